"""What is wrong in a file of topics or a log: named by the file and the record, with the remedy."""

from __future__ import annotations

import gzip
import json

import pandas as pd
import pytest

import pt_convsearch as cs

from .test_files import CHATS, as_jsonl, chat, odd_topics


def test_files_that_are_damaged_or_strange(tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"qid": "1", "query": "a", "qhistory": []}\n{"qid": ', encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.jsonl, line 2"):
        cs.topics.read(path)
    topic = {"qid": "1", "query": "a", "qhistory": []}
    for strange, told in (
        ([3], "line 1: 3 is no record"),
        ([None, topic], "line 1: null is no record"),
        ([topic, 3], "line 2: 3 is no record"),
        ([topic, topic, []], "line 3: a list among topics"),
    ):
        as_jsonl(path, strange)
        with pytest.raises(ValueError, match=rf"t\.jsonl, {told}"):
            cs.topics.read(path)
    (tmp_path / "t.json").write_text('[{"qid": ', encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.json: not valid JSON"):
        cs.topics.read(tmp_path / "t.json")
    as_jsonl(path, [{"name": "x"}])
    with pytest.raises(ValueError, match="columns="):
        cs.topics.read(path)
    with pytest.raises(FileNotFoundError):
        cs.topics.read(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match=r"\.jsonl"):
        cs.topics.write(odd_topics(), tmp_path / "t.csv")
    whole = tmp_path / "t.jsonl.gz"
    cs.topics.write(odd_topics(), whole)
    whole.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"t\.jsonl\.gz"):
        cs.topics.read(whole)


@pytest.mark.parametrize("strange", [None, "x", 3, True])
@pytest.mark.parametrize("name", ["t.jsonl", "t.json"])
def test_a_record_that_is_none_is_named(tmp_path, name: str, strange) -> None:
    """Whoever reads it: as the fourth record of a log, of a log with renamed fields, of turns, of dialogues."""
    place = "line 4" if name == "t.jsonl" else "record 4"
    told = rf"{name.replace('.', '[.]')}, {place}: {json.dumps(strange)} is no record"
    turns = [{"topic": 1, "turn": at, "utterance": "q"} for at in (1, 2, 3)]
    for records in ([{"id": at, "messages": chat("a")} for at in (1, 2, 3)], turns):
        if name == "t.jsonl":
            as_jsonl(tmp_path / name, [*records, strange])
        else:
            (tmp_path / name).write_text(json.dumps([*records, strange]), encoding="utf-8")
        build = cs.topics.from_turns if records is turns else cs.topics.from_messages
        for read in (cs.topics.read, lambda path: cs.topics.read(path, columns={"lang": "language"}), build):
            with pytest.raises(ValueError, match=told):
                read(tmp_path / name)


@pytest.mark.parametrize("name", ["t.jsonl", "t.json"])
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ('{"id": "2", "id": "3", "messages": []}', "the key 'id' stands twice in one object"),
        ('{"id": "2", "messages": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ('{"id": ' + "7" * 5000 + ', "messages": []}', "4300 digits"),
    ],
)
def test_json_that_python_cannot_hold_is_named(tmp_path, name: str, bad: str, told: str) -> None:
    good = json.dumps({"id": "1", "messages": chat("a")}, indent=None if name == "t.jsonl" else 1)
    text = f"{good}\n{bad}\n" if name == "t.jsonl" else f"[{good},\n {bad} ]"
    (tmp_path / name).write_text(text, encoding="utf-8")
    place = "line 2" if name == "t.jsonl" else "record 2"
    with pytest.raises(ValueError, match=rf"{name.replace('.', '[.]')}, {place}: not valid JSON \(.*{told}"):
        cs.topics.read(tmp_path / name)


def test_a_parquet_file_that_is_none_is_named(tmp_path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    for read in (cs.topics.read, cs.topics.from_messages):
        with pytest.raises(ValueError, match=r"t\.parquet: not a parquet file, or a cut or damaged one"):
            read(tmp_path / "t.parquet")


def test_errors_name_the_file_and_the_record(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    as_jsonl(tmp_path / "logs" / "a.jsonl", [{"id": "1", "messages": chat("a")}, {"id": "2", "messages": chat("b")}])
    for record, told in (
        ({"id": "", "messages": chat("c")}, r"logs/b\.jsonl, line 2: conversation 4: .*'conversation_id' .* empty id"),
        ({"id": 2.5, "messages": chat("c")}, r"logs/b\.jsonl, line 2: conversation 4: .* a fraction is no id"),
        ({"id": "4", "said": []}, r"logs/b\.jsonl, line 2: conversation 4 has none of messages"),
        (
            {"id": "4", "messages": [{"role": "user"}]},
            r"logs/b\.jsonl, line 2: message 1 of conversation '4' is a user",
        ),
        ({"id": "1", "messages": []}, r"logs: 1 conversation ids are used more than once \('1'\).* its own id$"),
        (
            {"messages": []},
            r"logs: 1 conv.* once \('4'\): .* its own id \('4': given by position, from 1, where a conv",
        ),
    ):
        name = "4" if "messages" in record and "id" not in record else "3"
        as_jsonl(tmp_path / "logs" / "b.jsonl", [{"id": name, "messages": chat("c")}, record])
        for read in (cs.topics.read, cs.topics.from_messages):
            with pytest.raises(ValueError, match=told):
                read(tmp_path / "logs")
    path = tmp_path / "d.jsonl"
    as_jsonl(path, [{"id": 2, "utterances": ["a", "b"]}, {"utterances": ["a", "b"]}])
    for read in (cs.topics.read, cs.topics.from_dialogues, cs.topics.responses):
        with pytest.raises(ValueError, match=r"d\.jsonl: 1 conversation ids .*\('2': given by position"):
            read(path)
    as_jsonl(path, [{"topic": 1, "turn": 1, "utterance": "q"}, {"topic": "", "turn": 1, "utterance": "q"}])
    with pytest.raises(
        ValueError, match=r"d\.jsonl, line 2: turn record 2: column 'conversation_id' holds an empty id"
    ):
        cs.topics.read(path)
    topic = {"qid": "1", "query": "a", "qhistory": []}
    as_jsonl(path, [topic, {**topic, "qid": ""}])
    with pytest.raises(ValueError, match=r"d\.jsonl, line 2: column 'qid' holds an empty id"):
        cs.topics.read(path)
    as_jsonl(path, [topic, {**topic, "qid": None}])
    with pytest.raises(ValueError, match=r"d\.jsonl: column 'qid' holds a missing id .* \(row 2\)"):
        cs.topics.read(path)
    as_jsonl(path, [topic, topic])
    with pytest.raises(ValueError, match=r"d\.jsonl: 1 qids stand in more than one row \('1'\)"):
        cs.topics.read(path)


def test_an_option_that_a_shape_does_not_take_is_named(tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    for record, options, told in (
        (
            {"id": 1, "utterances": ["a"]},
            {"roles": {}},
            "dialogues, which take no option 'roles': .*from_dialogues takes user",
        ),
        (
            {"id": 1, "messages": []},
            {"user": "ann"},
            "messages, which take no option 'user': .*from_messages takes turns, r",
        ),
        ([], {"user": "ann"}, "lists of messages, which take no option 'user'"),
        (
            {"topic": 1, "turn": 1, "query": "q"},
            {"turns": "last"},
            "records of turns, which take no option 'turns': .* pas",
        ),
        (
            {"qid": 1, "query": "q", "qhistory": []},
            {"turns": "last"},
            "topics, which take no option 'turns': .* history, s",
        ),
    ):
        as_jsonl(path, [record])
        with pytest.raises(ValueError, match=rf"t\.jsonl holds {told}"):
            cs.topics.read(path, **options)


@pytest.mark.filterwarnings("ignore:.*hold their own question")
def test_half_an_emoji_in_a_file_of_topics(tmp_path) -> None:
    """Texts are cleaned, wherever they stand, so that they can be written; an id that holds one is named."""
    path, half = tmp_path / "t.jsonl", "a \ud83d"
    topic = {
        "qid": "1", "query": half, "answer": half, "qrewrite": half, "label": half, "mixed": [half],
        "qhistory": [{"role": "user", "content": half}, {"role": "assistant", "content": "", "note": 1}],
    }  # fmt: skip
    path.write_text(json.dumps(topic) + "\n" + json.dumps({**topic, "qid": "2", "label": None}), encoding="utf-8")
    topics = cs.topics.read(path)
    for column in ("query", "answer", "qrewrite", "label"):
        assert topics[column][0] == "a \ufffd"
    assert topics.qhistory[0] == [
        {"role": "user", "content": "a \ufffd"},
        {"role": "assistant", "content": "", "note": 1},
    ]
    assert cs.form(cs.X)(topics)["query"][0].count("\ufffd") == 2
    for name in ("out.jsonl", "out.parquet"):
        cs.topics.write(topics, tmp_path / name)
        assert cs.topics.read(tmp_path / name)["mixed"].tolist() == [["a \ufffd"]] * 2
    for record, columns in (
        ({**topic, "qid": half}, {}),
        ({**topic, "name": half, "qid": "3"}, {"name": "conversation_id"}),
    ):
        path.write_text(json.dumps(topic) + "\n" + json.dumps(record), encoding="utf-8")
        with pytest.raises(
            ValueError, match=r"t\.jsonl, line 2: column '.*id' holds the id 'a \\ud83d', .*: replace it"
        ):
            cs.topics.read(path, columns=columns)
    path.write_text(json.dumps({"id": half, "messages": chat("a")}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"t\.jsonl, line 1: conversation 1: .* 'a \\ud83d', .*: replace it"):
        cs.topics.read(path)
    path.write_text(json.dumps({"id": 1, "lang": half, "messages": chat("a")}), encoding="utf-8")
    assert cs.topics.from_messages(path, columns="lang").lang.tolist() == ["a \ufffd"] * 2
    frame = pd.DataFrame({"qid": ["1"], "query": pd.Series([half], dtype=object), "qhistory": [[]]})
    assert cs.topics.validate(frame)["query"][0] == "a \ufffd"
    message = {"role": "assistant", "content": "x", "docno": half}
    with pytest.raises(ValueError, match=r"message 1 of qhistory of qid '1': column 'docno' .* 'a \\ud83d'"):
        cs.topics.validate(frame.assign(qhistory=[[message]]))


def test_what_a_file_is_not(tmp_path) -> None:
    """Compression without its ending is seen; other encodings, tables and damage are told."""
    lines = "".join(json.dumps(record) + "\n" for record in CHATS).encode()
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(lines))
    assert cs.topics.read(tmp_path / "packed.jsonl").qid.tolist() == ["s_1", "s_2", "t_1"]
    damaged = bytearray(gzip.compress(lines * 50))
    damaged[len(damaged) // 2] ^= 0xFF
    for name, content, told in (
        ("utf16.jsonl", lines.decode().encode("utf-16"), "line 1: UTF-16, not UTF-8: save it as UTF-8"),
        ("utf32.jsonl", lines.decode().encode("utf-32"), r"utf32\.jsonl, line 1: UTF-32, not UTF-8: save it as UTF-8"),
        ("utf32be.json", b"\x00\x00\xfe\xff" + lines.decode().encode("utf-32-be"), "line 1: UTF-32, not UTF-8"),
        ("bare16le.jsonl", lines.decode().encode("utf-16-le"), r"bare16le\.jsonl, line 1: .*like UTF-16 or UTF-32 w"),
        ("bare16be.json", lines.decode().encode("utf-16-be"), r"bare16be\.json, line 1: .*like UTF-16 .* as UTF-8"),
        ("bare32le.json", lines.decode().encode("utf-32-le"), r"bare32le\.json, line 1: .*like UTF-16 .* as UTF-8"),
        ("bare32be.jsonl", lines.decode().encode("utf-32-be"), "line 1: .*like UTF-16 or UTF-32 without a byte order"),
        ("zeros.jsonl", bytes(20), "line 1: not valid JSON"),
        ("latin.jsonl", '["é"]'.encode("latin-1"), "not valid UTF-8 .*save it as UTF-8"),
        ("latin.json", '["é"]'.encode("latin-1"), "not valid UTF-8 .*save it as UTF-8"),
        ("log.csv", b"id,role,content\n", "is a table: read it with pandas"),
        ("cut.json.gz", gzip.compress(lines)[:-9], "the file is cut or damaged"),
        ("damaged.jsonl.gz", bytes(damaged), "cut or damaged|not valid"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=told):
            cs.topics.read(tmp_path / name)
    for name in ("empty.json", "empty.jsonl"):
        (tmp_path / name).write_bytes(b"")
        assert len(cs.topics.read(tmp_path / name)) == 0
