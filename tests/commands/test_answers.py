"""``answers``: any log, with figures worked out by hand; and what it says of logs that cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pt_convsearch.cli import main

from .answer_logs import LOG, run, said, user, write


def test_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tmp_path, LOG, "--by", "lang")
    value, n = found["value"], found["n"]
    # turn 2: the answer seen ("alpha first") holds both words of the history, the right one ("alpha second") only one;
    # X_t \ q_t is the history, and finds the right one at rank 2; unseen, at rank 1
    assert value["BM25 X_t\\q_t", "t > 1", "RR"] == 0.5
    assert value["BM25, unseen X_t\\q_t", "t > 1", "RR"] == 1.0
    assert value["BM25 X_t", "t > 1", "R@1"] == 0.0
    assert value["BM25, unseen X_t", "t > 1", "R@1"] == 1.0
    assert value["BM25 q_t", "t > 1", "R@10"] == 0.0
    assert pd.isna(value["BM25 X_t\\q_t", "t = 1", "RR"])
    # the oracle: two answers a conversation, one once the first was given
    assert value["conversation oracle", "t > 1", "RR"] == 0.75
    assert value["conversation oracle", "t = 1", "R@1"] == 0.5
    assert value["conversation oracle, unseen", "t > 1", "RR"] == 1.0
    assert n["BM25 X_t", "en", "RR"] == 2  # of a label the questions with a history
    assert n["BM25 X_t", "t = 2", "RR"] == 3
    # no question holds a word of an answer: the rankings are the same with it, without it, and with another
    dependence = "BM25: X_t against X_t\\q_t"
    assert value[dependence, "t > 1", "overlap@10"] == 1.0
    assert value[dependence, "t > 1", "overlap@10 swapped"] == 1.0
    assert value[dependence, "t > 1", "retention"] == 1.0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "answers.png",
        "results.csv",
        "results.json",
        "table.md",
    ]
    printed = capsys.readouterr().out
    assert "Questions with a history (n 3)" in printed
    assert "conversation oracle" in printed
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]["answers"] == 6


def test_a_retriever_that_reads_the_question_is_seen(tmp_path: Path) -> None:
    """The same log with the question's word in its answer."""
    log = []
    for name, first, second in (("a", "apple", "pear"), ("b", "oak", "elm"), ("c", "cod", "eel")):
        log.append(
            {"id": name, "messages": [user(first), said(f"{first} {name}x"), user(second), said(f"{second} yes")]}
        )
    found = run(tmp_path, log)["value"]
    assert found["BM25, unseen X_t", "t > 1", "RR"] == 1.0
    assert found["BM25, unseen X_t\\q_t", "t > 1", "RR"] == 0.0
    dependence = "BM25: X_t against X_t\\q_t"
    assert found[dependence, "t > 1", "overlap@10"] == pytest.approx(0.5)
    assert found[dependence, "t > 1", "R@10 without"] == 0.0


def test_messages_of_all_kinds(tmp_path: Path) -> None:
    """System and tool messages, tool calls, parts, no answer, an empty one, equal and very long answers, one turn."""
    long = "word " * 30_000
    log = [
        {
            "id": 1,
            "messages": [
                {"role": "system", "content": "Be brief."},
                user("one"),
                {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
                {"role": "tool", "content": "42"},
                said("alpha first"),
                user([{"type": "text", "text": "two"}]),
                said("alpha second"),
            ],
        },
        {
            "id": 2,
            "messages": [user("three"), said("Yes."), user("four"), said("Yes."), user("five"), said(""), user("six")],
        },
        {"id": 3, "messages": [user("seven"), said(long), user("eight"), said(f"{long} more")]},
        {"id": 4, "messages": [user("nine"), said("alone")]},
        {"id": 5, "messages": [user("ten")]},
        {"id": 6, "messages": []},
    ]
    found = run(tmp_path, log)
    settings = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]
    # answers: alpha first, alpha second, Yes., the two long ones, alone
    assert (settings["answers"], settings["questions"], settings["with an answer"]) == (6, 10, 7)
    assert any("given before" in note for note in settings["notes"])
    assert any("share their answer" in note for note in settings["notes"])
    # t > 1: 1_2, 2_2 (answered before: 0 unseen), 3_2
    assert found["n"]["BM25 X_t", "t > 1", "RR"] == 3
    assert found["value"]["conversation oracle, unseen", "t > 1", "RR"] == pytest.approx(2 / 3)


def test_equal_answers_of_their_own(tmp_path: Path) -> None:
    log = [{"id": name, "messages": [user("x"), said("Yes."), user("y"), said("Yes.")]} for name in "ab"]
    run(tmp_path, log, "--duplicates", "own-id")
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]["answers"] == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("猫が好きです", "猫は動物です"),
        ("Кошки любят молоко", "Кошки спят днём"),
        ("القطط تحب الحليب", "القطط تنام نهارا"),
    ],
)
def test_other_scripts(tmp_path: Path, first: str, second: str) -> None:
    log = [
        {"id": "a", "messages": [user("?!"), said(first), user("…"), said(second)]},
        {"id": "b", "messages": [user("?!"), said("ὁ δὲ ἀνεξέταστος βίος"), user("…"), said("οὐ βιωτὸς ἀνθρώπῳ βίος")]},
    ]
    found = run(tmp_path, log)["value"]
    notes = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]["notes"]
    assert any("'unicode'" in note for note in notes)
    assert found["BM25, unseen X_t", "t > 1", "R@1"] == 1.0


def test_a_sample_says_so_and_keeps_the_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tmp_path, LOG, "--sample", "3", "--seed", "4")
    settings = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["searched"], settings["with an answer"], settings["answers"]) == (3, 6, 6)
    assert found["n"]["BM25 X_t", "All", "RR"] == 3
    assert "3 questions were drawn from 6" in capsys.readouterr().out
    again = run(tmp_path, LOG, "--sample", "3", "--seed", "4")
    pd.testing.assert_frame_equal(found, again)


def test_a_sample_of_one_has_a_history(tmp_path: Path) -> None:
    log = [{"id": str(at), "messages": [user(f"q{at}"), said(f"a{at}")]} for at in range(30)]
    log.append(LOG[0])
    found = run(tmp_path, log, "--sample", "1")
    assert found["n"]["BM25 X_t", "t > 1", "RR"] == 1


def test_a_greeting_is_no_history(tmp_path: Path) -> None:
    """Support chats open with the same words of the assistant: first questions are first questions all the same."""
    greeting = [said("Hello! How can I help?")]
    found = run(tmp_path, [{**one, "messages": greeting + one["messages"]} for one in LOG])
    assert found["n"]["BM25 X_t", "t = 1", "RR"] == found["n"]["BM25 X_t", "t > 1", "RR"] == 3
    assert found["n"]["BM25: X_t against X_t\\q_t", "All", "overlap@10"] == 3
    # the conversation's answers: the greeting, the first, the second; unseen by turn 2 the second alone
    assert found["value"]["conversation oracle", "t = 1", "RR"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found["value"]["conversation oracle, unseen", "t > 1", "RR"] == 1.0


def test_no_better_than_the_oracle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where everything was said before, nobody finds anything unseen: that is no proof of reading the question."""
    run(tmp_path, [{"id": name, "messages": [user("x"), said("ok"), user("y"), said("ok")]} for name in "ab"])
    out = capsys.readouterr().out
    assert "Unseen MRR 0.000, oracle 0.000: no better than the oracle, so it has not shown" in out
    assert "it reads the question." not in out.replace("that it reads the question.", "")


GERMAN = (
    "Die Stadt liegt an einem Fluss und hat viele alte Häuser, die man zu Fuß besuchen kann. Wer Zeit hat, fährt mit "
    "der Bahn in das nahe Gebirge, denn dort ist es im Sommer kühl und die Wege sind gut."
)
ENGLISH = (
    "The city lies on a river and has many old houses that can be visited on foot. If there is time, take the train to "
    "the nearby mountains, for it is cool there in summer and the paths are good."
)


@pytest.mark.parametrize(
    ("text", "options", "noted"),
    [(GERMAN, (), True), (GERMAN, ("--stemmer", "german"), False), (ENGLISH, (), False), ("Nein, danke!", (), False)],
)
def test_another_language_in_latin_letters_is_told(tmp_path: Path, text: str, options: tuple, noted: bool) -> None:
    log = [{"id": at, "messages": [user("x"), said(f"{at} {text}"), user("y"), said(f"{text} {at}")]} for at in "abcd"]
    run(tmp_path, log, *options)
    notes = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]["notes"]
    assert any("--stemmer" in note for note in notes) == noted


def test_one_conversation_has_no_control(tmp_path: Path) -> None:
    found = run(tmp_path, LOG[:1])
    assert "overlap@10 swapped" not in set(found.index.get_level_values("measure"))


def test_topics_files_and_other_names(tmp_path: Path) -> None:
    topics = [
        {"qid": "a_1", "conversation_id": "a", "turn": 1, "query": "one", "history": [], "answer": "alpha first"},
        {
            "qid": "a_2",
            "conversation_id": "a",
            "turn": 2,
            "query": "two",
            "answer": "alpha second",
            "history": [{"speaker": "user", "text": "one"}, {"speaker": "agent", "text": "alpha first"}],
        },
        {"qid": "b_1", "conversation_id": "b", "turn": 1, "query": "three", "history": [], "answer": "beta"},
    ]
    found = run(tmp_path, write(tmp_path / "topics.jsonl.gz", topics))["value"]
    assert found["conversation oracle", "t > 1", "RR"] == 0.75
    renamed = [{"convo": record["messages"], "name": record["id"]} for record in LOG]
    found = run(tmp_path, renamed, "--columns", "convo=messages", "--columns", "name=id")["value"]
    assert found["BM25, unseen X_t", "t > 1", "R@1"] == 1.0


def test_single_messages_are_brought_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An export of a database: a message a line, conversations mixed."""
    by_turn = [[{"thread": one["id"], "lang": one["lang"], **message} for message in one["messages"]] for one in LOG]
    lines = [message for row in zip(*by_turn, strict=True) for message in row]
    renamed = [{"conversation_id": line["thread"], **line} for line in lines]
    (tmp_path / "whole").mkdir()
    whole = run(tmp_path / "whole", LOG, "--by", "lang")["value"]
    pd.testing.assert_series_equal(run(tmp_path, renamed, "--by", "lang")["value"], whole)
    found = run(tmp_path, lines, "--columns", "thread=conversation_id")["value"]
    pd.testing.assert_series_equal(found, whole[found.index])
    capsys.readouterr()
    run(tmp_path, lines, status=2)
    said = capsys.readouterr().err
    assert "message 1 of the log says no conversation_id" in said
    assert "(here: --columns THEIRS=OURS)" in said
    run(tmp_path, [*renamed[:3], {**renamed[3], "conversation_id": None}], status=2)
    assert "message 4 of the log says no conversation_id" in capsys.readouterr().err


def test_other_names_of_speakers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = {"user": "customer", "assistant": "bot"}
    log = [
        {**one, "messages": [{**said, "role": renamed[said["role"]]} for said in one["messages"]]} for one in LOG
    ]
    log[0]["messages"].insert(1, {"role": "note", "content": "beta beta"})
    run(tmp_path, log, status=2)
    assert "(here: --roles THEIRS=assistant)" in capsys.readouterr().err
    roles = [word for pair in ("customer=user", "bot=assistant", "note=none") for word in ("--roles", pair)]
    (tmp_path / "whole").mkdir()
    pd.testing.assert_series_equal(run(tmp_path, log, *roles)["value"], run(tmp_path / "whole", LOG)["value"])
    run(tmp_path, log, "--roles", "bot=robot", status=2)
    assert "--roles bot=robot: write THEIRS=user" in capsys.readouterr().err


def test_dialogues_of_named_speakers(tmp_path: Path) -> None:
    dialogue = [("bot", "Hello"), ("ann", "one"), ("bot", "alpha first"), ("ann", "two"), ("bot", "alpha second")]
    log = [
        {"dialogue_id": name, "utterances": [{"speaker": who, "text": text} for who, text in dialogue]} for name in "ab"
    ]
    found = run(tmp_path, log, "--user", "ann")
    # the bot opens, but ann's first question is a first one
    assert found["n"]["BM25 X_t", "t = 1", "RR"] == found["n"]["BM25 X_t", "t > 1", "RR"] == 2


BAD = [
    (
        [{"id": "a", "messages": [user("one"), said("x")]}, {"id": "b", "messages": [user("two"), said("y")]}],
        "first turns",
    ),
    ([{"id": "a", "messages": [user("one"), said(" "), user("two")]}], "none of the 2 questions"),
    ([{"id": "a", "messages": [{"role": "system", "content": "x"}]}], "no question"),
    ([{"id": "a", "messages": [{"role": "narrator", "content": "x"}]}], "narrator"),
    ([{"qid": "a", "query": "x", "qhistory": []}], "answer"),
    ([{"qid": "a", "query": "x", "qhistory": [], "answer": "y"}], "conversation_id"),
    ([], "no question"),
]


@pytest.mark.parametrize(("log", "message"), BAD)
def test_logs_that_cannot_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: list[Any], message: str
) -> None:
    run(tmp_path, log, status=2)
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert not (tmp_path / "out").exists()


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, LOG, "--by", "language", status=2)
    assert "language" in capsys.readouterr().err
    run(tmp_path, LOG, "--columns", "nonsense", status=2)
    assert "THEIRS=OURS" in capsys.readouterr().err
    many = [{**record, "lang": f"{at}"} for at in range(50) for record in [{**LOG[0], "id": f"x{at}"}]]
    run(tmp_path, many, "--by", "lang", status=2)
    assert "50 different values" in capsys.readouterr().err
    path = write(tmp_path / "log.jsonl", LOG)
    assert main(["answers", str(path), "--out", str(path)]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["answers", str(path), "--out", str(tmp_path / "out"), "--quiet", "--encoder", "no/where"]) == 2
    assert "no/where" in capsys.readouterr().err
    (tmp_path / "qrels.txt").touch()
    run(tmp_path, tmp_path, status=2)
    assert "name the file of the topics" in capsys.readouterr().err
    assert main(["answers", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "is the folder of the log" in capsys.readouterr().err
    run(tmp_path, tmp_path / "nowhere.jsonl", status=2)
    assert "nowhere.jsonl" in capsys.readouterr().err


def test_a_folder_of_logs_whose_lists_are_called_turns(tmp_path: Path) -> None:
    """Split over files, one of them compressed, and under another name, it is the same log."""
    (tmp_path / "logs").mkdir()
    turns = [{"id": record["id"], "lang": record["lang"], "turns": record["messages"]} for record in LOG]
    write(tmp_path / "logs" / "1.jsonl", turns[:1])
    write(tmp_path / "logs" / "2.jsonl.gz", turns[1:])
    found = run(tmp_path, tmp_path / "logs", "--by", "lang")
    pd.testing.assert_frame_equal(found, run(tmp_path, LOG, "--by", "lang"))


def test_answers_without_content_are_told(tmp_path: Path) -> None:
    """The text in a field of another name would be no answer, silently; a call of a tool is none and no fault."""
    broken = {"role": "assistant", "body": "beta first"}
    tool = {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]}
    log = [LOG[0], {"id": "b", "messages": [user("three"), broken, user("four"), tool, {**broken}]}]
    told = r"2 assistant messages have no content .* first message 2 of conversation 'b'"
    with pytest.warns(UserWarning, match=told):
        run(tmp_path, log)


def test_the_settings_say_how_the_text_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settings(log: list[Any], *options: str) -> dict[str, Any]:
        run(tmp_path, log, *options)
        return json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["settings"]

    found = settings(LOG)
    assert found["BM25"] == {"tokenizer": "lucene", "stemmer": "porter", "stopwords": "lucene"}
    assert not any("mixes scripts" in note for note in found["notes"])
    greek = [
        {"id": "g", "messages": [user("x"), said("άλφα πρώτη"), user("y"), said("άλφα δεύτερη")]},
        {"id": "h", "messages": [user("x"), said("βήτα πρώτη"), user("y"), said("βήτα δεύτερη")]},
    ]
    found = settings([*LOG, *greek])  # 65 of 109 letters are Latin
    assert found["BM25"]["tokenizer"] == "lucene"
    assert any(note.startswith("60% of the letters are Latin: the log mixes scripts") for note in found["notes"])
    assert settings(greek)["BM25"] == {"tokenizer": "unicode", "stemmer": None, "stopwords": None}
    assert settings(LOG, "--stemmer", "german")["BM25"]["stemmer"] == "german"


def test_it_says_at_once_that_it_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "log.jsonl", LOG)
    assert main(["answers", str(path), "--out", str(tmp_path / "out"), "--no-dense"]) == 0
    assert capsys.readouterr().err.splitlines()[0].endswith(
        "reading log.jsonl; libraries are loaded meanwhile, which takes a while the first time"
    )


def test_dense_rows(tmp_path: Path, minilm: str) -> None:
    path = write(tmp_path / "log.jsonl", LOG)
    assert main(["answers", str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    found = pd.read_csv(tmp_path / "out" / "results.csv").set_index(["system", "group", "measure"])["value"]
    assert found["MiniLM, unseen X_t", "t > 1", "R@10"] == 1.0
    assert found["MiniLM: X_t against X_t\\q_t", "t > 1", "overlap@10"] == 1.0  # six answers, all in the top ten
