"""Reading and writing: nothing is lost, on any platform; what is damaged says so."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import pt_convsearch as cs

NAMES = ["t.jsonl", "t.jsonl.gz", "t.jsonl.bz2", "t.parquet"]
ODD = [
    "NA",
    "null",
    "",
    " ",
    "\"quoted\", 'twice'",
    "a\tb\nc\r\nd",
    "\ufeffBOM",
    "🙂👩‍👩‍👧",
    "org\u00e3os \u2028 \x85 x",
    "中文",
    "\\n",
    "007",
    "1e5",
    "None",
]


def odd_topics() -> pd.DataFrame:
    rows = len(ODD)
    history = [{"role": "user", "content": text} for text in ODD] + [
        {"role": "assistant", "content": "NA", "docno": "007"}
    ]
    return cs.topics.validate(
        pd.DataFrame(
            {
                "qid": [f"NA {at}\ufeff," for at in range(rows)],
                "query": [f"{text}?" for text in ODD],
                "qhistory": [history[: at + 1] if at % 3 else [] for at in range(rows - 1)] + [history],
                "qrewrite": [None if at % 2 else text for at, text in enumerate(ODD)],
                "turn_number": range(1, rows + 1),
                "weight": [1.0 if at % 2 else float("nan") for at in range(rows)],
                "count": pd.array([None if at % 4 == 0 else 2**53 + at for at in range(rows)], dtype="Int64"),
                "good": [at % 2 == 0 for at in range(rows)],
                "ids": [["NA", "b"][: at % 3] for at in range(rows)],
                "numbers": [[at, 2**60] for at in range(rows)],
            }
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost(tmp_path, name: str) -> None:
    topics = odd_topics()
    cs.topics.write(topics, tmp_path / name)
    pd.testing.assert_frame_equal(cs.topics.read(tmp_path / name), topics)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.filterwarnings("ignore:.*hold their own question")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_text_comes_back(tmp_path, texts: list[str]) -> None:
    log = [[{"role": "user", "content": text} for text in texts]]
    topics = cs.topics.from_messages(log)
    for name in ("t.jsonl", "t.parquet"):
        cs.topics.write(topics, tmp_path / name)
        pd.testing.assert_frame_equal(cs.topics.read(tmp_path / name), topics)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_frame_and_first_turns_only(tmp_path, name: str) -> None:
    topics = cs.topics.from_messages([[{"role": "user", "content": "q"}]])
    cs.topics.write(topics, tmp_path / name)
    pd.testing.assert_frame_equal(cs.topics.read(tmp_path / name), topics)
    cs.topics.write(topics.head(0), tmp_path / name)
    back = cs.topics.read(tmp_path / name)
    assert len(back) == 0
    assert {"qid", "query", "qhistory"} <= set(back.columns)


def test_categories_keep_their_order_in_parquet(tmp_path) -> None:
    topics = odd_topics().head(3).assign(qtype=pd.Categorical(["b", "a", "b"], categories=["b", "a"], ordered=True))
    cs.topics.write(topics, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(cs.topics.read(tmp_path / "t.parquet"), topics)


def test_a_frame_with_arrays_is_written_as_lists(tmp_path) -> None:
    topics = odd_topics().head(2).assign(ids=[np.array(["a"]), np.array(["b"])], when=pd.Timestamp("2024-01-02"))
    cs.topics.write(topics, tmp_path / "t.jsonl")
    assert cs.topics.read(tmp_path / "t.jsonl").ids.tolist() == [["a"], ["b"]]


CHATS = [
    {
        "id": "s",
        "conversations": [
            {"from": "human", "value": "Hi?"},
            {"from": "gpt", "value": "Yes."},
            {"from": "human", "value": "Why? 🙂"},
        ],
    },
    {"id": "t", "conversations": [{"from": "human", "value": "Alone"}]},
]


def as_jsonl(path, records: list, start: str = "") -> None:
    path.write_text(
        start + "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8"
    )


def test_chat_logs_on_disk(tmp_path) -> None:
    as_jsonl(tmp_path / "a.jsonl", CHATS)
    as_jsonl(tmp_path / "bom.jsonl", CHATS, "\ufeff")
    (tmp_path / "a.json").write_text(json.dumps(CHATS, indent=1), encoding="utf-8")
    pd.DataFrame(CHATS).to_parquet(tmp_path / "a.parquet")
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as handle:
        handle.write((tmp_path / "a.jsonl").read_text(encoding="utf-8").replace("\n", "\r\n\r\n"))
    expected = cs.topics.from_messages(CHATS)
    assert expected["query"].tolist() == ["Hi?", "Why? 🙂", "Alone"]
    for name in ("a.jsonl", "bom.jsonl", "a.json", "a.parquet", "a.jsonl.gz"):
        pd.testing.assert_frame_equal(cs.topics.read(tmp_path / name), expected)
        pd.testing.assert_frame_equal(cs.topics.from_messages(tmp_path / name), expected)
    messages = [chat["conversations"] for chat in CHATS]
    as_jsonl(tmp_path / "bare.jsonl", messages)
    as_jsonl(tmp_path / "lines.json", CHATS)
    assert cs.topics.read(tmp_path / "bare.jsonl").qid.tolist() == ["1_1", "1_2", "2_1"]
    pd.testing.assert_frame_equal(cs.topics.read(tmp_path / "lines.json"), expected)
    assert cs.topics.read(tmp_path / "a.jsonl", turns="last")["query"].tolist() == ["Why? 🙂", "Alone"]


def test_dialogues_turns_and_renamed_columns_on_disk(tmp_path) -> None:
    as_jsonl(
        tmp_path / "d.jsonl",
        [{"dialogue_id": "d", "utterances": [{"speaker": "a", "text": "x"}, {"speaker": "b", "text": "y"}]}],
    )
    assert cs.topics.read(tmp_path / "d.jsonl", user="b")["query"].tolist() == ["y"]
    as_jsonl(tmp_path / "t.jsonl", [{"topic": 1, "turn": turn, "utterance": f"q{turn}"} for turn in (1, 2)])
    assert cs.topics.read(tmp_path / "t.jsonl").qid.tolist() == ["1_1", "1_2"]
    as_jsonl(
        tmp_path / "r.jsonl",
        [{"qid": "q", "query": "x", "history": [{"speaker": "agent", "text": "y"}], "rewrite": None}],
    )
    topics = cs.topics.read(tmp_path / "r.jsonl", columns={"history": "qhistory", "rewrite": "qrewrite"})
    assert topics.qhistory[0] == [{"role": "assistant", "content": "y"}]
    assert topics.qrewrite.isna().all()


def test_a_failed_write_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    cs.topics.write(odd_topics(), path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        cs.topics.write(odd_topics().assign(thing=[object()] * len(ODD)), path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_an_ascii_locale_reads_the_same(tmp_path) -> None:
    as_jsonl(tmp_path / "t.jsonl", [{"qid": "1", "query": "What’s órgãos? 🙂", "qhistory": []}])
    code = "import pt_convsearch as cs, sys; print(ascii(cs.topics.read(sys.argv[1])['query'][0]))"
    found = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", code, str(tmp_path / "t.jsonl")],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert found.stdout.strip() == ascii("What’s órgãos? 🙂")
    assert "pt_convsearch" not in found.stderr


def test_a_history_of_another_name_is_asked_for(tmp_path) -> None:
    path = tmp_path / "topics.jsonl"
    path.write_text('{"qid": "1", "query": "b", "history": ["a"]}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="no field 'qhistory' among qid, query, history; name it with columns="):
        cs.topics.read(path)
    assert len(cs.topics.read(path, columns={"history": "qhistory"}).qhistory[0]) == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_one_docno_and_several_in_a_file(tmp_path, name: str) -> None:
    shown = [None, "d1", ["d2", "d3"]]
    history = [{"role": "assistant", "content": "x", **({"docno": docno} if docno else {})} for docno in shown]
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"], "qhistory": [history, []]})
    cs.topics.write(topics, tmp_path / name)
    assert cs.topics.read(tmp_path / name).qhistory.tolist() == [history, []]


def chat(name: str) -> list[dict]:
    return [
        {"role": "user", "content": f"{name} who?"},
        {"role": "assistant", "content": f"{name} Ann."},
        {"role": "user", "content": f"{name} when?"},
    ]


@pytest.mark.parametrize("field", ["turns", "turn", "dialogue", "dialog"])
@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet"])
def test_a_list_is_told_by_what_it_holds(tmp_path, field: str, name: str) -> None:
    """Messages, utterances, texts, CAsT's turns: under a name that all of them use; an empty list first."""

    def read(lists: list) -> pd.DataFrame:
        found = [{"id": str(at), field: values} for at, values in enumerate(lists)]
        if name.endswith(".parquet"):
            pd.DataFrame(found).to_parquet(tmp_path / name)
        elif name.endswith(".json"):
            (tmp_path / name).write_text(json.dumps(found), encoding="utf-8")
        else:
            as_jsonl(tmp_path / name, found)
        return cs.topics.read(tmp_path / name)

    topics = read([[], chat("a")])
    assert topics.qid.tolist() == ["1_1", "1_2"]
    assert topics.answer.tolist() == ["a Ann.", ""]
    said = [{"speaker": "ann", "text": "one"}, {"speaker": "bob", "text": "two"}, {"speaker": "ann", "text": "three"}]
    assert read([[], said])["query"].tolist() == ["one", "three"]
    assert read([["one", "two", "three"]]).answer.tolist() == ["two", ""]


def test_turns_of_cast_stay_turns(tmp_path) -> None:
    nested = [{"number": 31, "turn": [{"number": 1, "raw_utterance": "x"}, {"number": 2, "raw_utterance": "y"}]}]
    (tmp_path / "cast.json").write_text(json.dumps(nested), encoding="utf-8")
    assert cs.topics.read(tmp_path / "cast.json").qid.tolist() == ["31_1", "31_2"]
    with pytest.raises(ValueError, match=r"turns of conversation 'c' are no records of turns.*from_messages"):
        cs.topics.from_turns([{"conversation_id": "c", "turns": chat("a")}])


def test_a_folder_of_files_is_one_log(tmp_path) -> None:
    as_jsonl(tmp_path / "b.jsonl", [{"id": "2", "messages": chat("b")}])
    (tmp_path / "a.json").write_text(json.dumps([{"id": "1", "messages": chat("a")}]), encoding="utf-8")
    (tmp_path / "README.txt").write_text("not a log", encoding="utf-8")
    (tmp_path / ".hidden.jsonl").write_text("{", encoding="utf-8")
    assert cs.topics.read(tmp_path).qid.tolist() == ["1_1", "1_2", "2_1", "2_2"]
    as_jsonl(tmp_path / "c.jsonl", [{"id": "2", "messages": chat("c")}])
    with pytest.raises(ValueError, match=r"1 conversation ids are used more than once \('2'\)"):
        cs.topics.read(tmp_path)
    as_jsonl(tmp_path / "corpus.jsonl", [{"docno": "d", "text": "x"}])
    with pytest.raises(ValueError, match=r"is a data set \(it holds corpus\.jsonl\): name the file of the topics"):
        cs.topics.read(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"none holds no file of records"):
        cs.topics.read(tmp_path / "none")


def test_a_folder_of_topics(tmp_path) -> None:
    topics = odd_topics()
    cs.topics.write(topics.head(5), tmp_path / "1.jsonl")
    cs.topics.write(topics.tail(len(topics) - 5), tmp_path / "2.parquet")
    assert cs.topics.read(tmp_path).qid.tolist() == topics.qid.tolist()
