"""What ``answers`` concludes and what it leaves alone: verdict, groups, files that are there, long conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pt_convsearch.cli import main
from pt_convsearch.commands._answers_log import search_depth

from .answer_logs import LOG, run, said, user, write


def go_on(conversations: int = 12) -> list[Any]:
    """All questions are "go on", and each answer begins with the end of the one before."""
    return [
        {"id": f"c{c}", "kind": "t > 1" if c % 2 else "All",
         "messages": [m for t in range(1, 5) for m in (
             user("go on"), said(" ".join(f"c{c}w{t + i}" for i in range(4))))]}
        for c in range(conversations)
    ]  # fmt: skip


def test_above_the_oracle_is_not_yet_reading_the_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tmp_path, go_on())["value"]
    # the next answer shares most words with the last one, so the history alone finds it at once, whatever is asked
    assert found["BM25, unseen X_t", "t > 1", "RR"] == found["BM25, unseen X_t\\q_t", "t > 1", "RR"] == 1.0
    assert found["conversation oracle, unseen", "t > 1", "RR"] < 1.0
    printed = capsys.readouterr().out
    assert "above the oracle, but not shown to be better than without the question" in printed
    assert "it reads the question" not in printed


def test_a_label_may_be_called_as_a_depth(tmp_path: Path) -> None:
    found = run(tmp_path, go_on(), "--by", "kind")["n"]
    # twelve conversations of four turns, three of them with a history; half the conversations have each label
    assert found["BM25 X_t", "t > 1", "RR"] == 36
    assert found["BM25 X_t", "kind: t > 1", "RR"] == found["BM25 X_t", "kind: All", "RR"] == 18
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_the_log_and_what_others_wrote_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "results.json"
    log.write_text(json.dumps(LOG), encoding="utf-8")
    assert main(["answers", str(log), "--out", str(tmp_path), "--no-dense", "--quiet"]) == 2
    assert "would be written over" in capsys.readouterr().err
    other = write(tmp_path / "log.jsonl", LOG)
    assert main(["answers", str(other), "--out", str(tmp_path), "--no-dense", "--quiet"]) == 2
    assert "no result of this package" in capsys.readouterr().err
    assert json.loads(log.read_text(encoding="utf-8")) == LOG
    run(tmp_path, LOG, "--seed", "-1", status=2)
    assert "--seed -1" in capsys.readouterr().err
    assert main(["answers", str(other), "--out", "s3://bucket/out", "--quiet"]) == 2
    assert "is an address" in capsys.readouterr().err
    run(tmp_path, LOG, "--user", "alice", status=2)
    assert "--user is for dialogues" in capsys.readouterr().err


def test_labels_of_any_log(tmp_path: Path) -> None:
    renamed = [{"messages": record["messages"], "id": record["id"], "language": record["lang"]} for record in LOG]
    for record in renamed:
        record["talk"] = record.pop("messages")
    del renamed[0]["language"]  # a label that the first record lacks
    options = ("--columns", "talk=messages", "--columns", "language=lang", "--by", "language", "--by", "turn_number")
    n = run(tmp_path, renamed, *options)["n"]
    assert [n["BM25 X_t", label, "RR"] for label in ("missing", "en", "de", "2")] == [1, 1, 1, 3]
    turns = [
        {"topic_number": number, "turn_number": turn, "raw_utterance": text, "response": answer, "part": part}
        for number, part, talk in ((1, "x", ("one", "alpha first", "two", "alpha second")),
                                   (2, "y", ("three", "beta first", "four", "beta second")))
        for turn, text, answer in ((1, *talk[:2]), (2, *talk[2:]))
    ]  # fmt: skip
    n = run(tmp_path, turns, "--by", "part")["n"]
    assert [n["BM25 X_t", label, "RR"] for label in ("x", "y")] == [1, 1]


def test_where_nothing_is_found_no_agreement_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [{"id": c, "messages": [user("?"), said("!"), user("…"), said(f"word{c}")]} for c in "ab"]
    run(tmp_path, log)
    printed = capsys.readouterr().out
    assert "it finds nothing for any question" in printed
    assert "nan%" not in printed


def test_a_hundred_are_left_however_much_was_seen() -> None:
    history = [{"role": "assistant", "content": "x", "docno": f"d{i % 1200}"} for i in range(1300)]
    assert search_depth(pd.DataFrame({"qhistory": [[], history]})) == 1300  # 1,200 distinct answers
