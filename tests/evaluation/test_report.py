"""results.csv and results.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from ir_measures import RR

import pt_convsearch as cs
from pt_convsearch.evaluation import report
from pt_convsearch.evaluation.report import long_table, write_results


@pytest.fixture
def table() -> cs.Experiment:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"], "kind": ["x", "y"]})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "d"], "label": [1, 1]})
    run = pd.DataFrame({"qid": ["1", "1"], "docno": ["e", "d"], "score": [2.0, 1.0], "rank": [0, 1]})
    return cs.Experiment({"only": run}, topics, qrels, [RR], by="kind")


def test_a_table_as_rows(table) -> None:
    rows = long_table(table)
    assert list(rows.columns) == ["system", "group", "measure", "value", "n"]
    # the gold is second for question 1 and missing for question 2
    assert rows.to_numpy().tolist() == [
        ["only", "All", "RR", 0.25, 2], ["only", "x", "RR", 0.5, 1], ["only", "y", "RR", 0.0, 1]
    ]  # fmt: skip


def test_intervals_follow_where_they_were_asked_for() -> None:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"], "conversation_id": ["c", "d"]})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "d"], "label": [1, 1]})
    run = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "d"], "score": [2.0, 1.0], "rank": [0, 0]})
    rows = long_table(cs.Experiment({"only": run}, topics, qrels, [RR], ci=0.95))
    # both questions have 1: so has every resample
    assert rows.to_dict("records") == [
        {"system": "only", "group": "All", "measure": "RR", "value": 1.0, "n": 2, "low": 1.0, "high": 1.0}
    ]


def test_both_files(table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/experiments/mtrag.py", "--data", "/home/me/mtrag", "--out", "out"])
    write_results(tmp_path / "new", long_table(table), settings={"seed": 1}, timings={"total": 2.0})
    read = pd.read_csv(tmp_path / "new" / "results.csv")
    assert read["value"].tolist() == [0.25, 0.5, 0.0]
    meta = json.loads((tmp_path / "new" / "results.json").read_text(encoding="utf-8"))
    assert (meta["settings"], meta["timings"]) == ({"seed": 1}, {"total": 2.0})
    # what was typed, without what only this machine knows
    assert meta["environment"]["command"] == "mtrag.py --data mtrag --out out"
    assert meta["environment"]["pt_convsearch"] == cs.__version__


def test_the_commit_is_that_of_before_the_old_table_is_replaced(
    table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committed results.csv that is written anew would make its own checkout look changed."""
    (tmp_path / "results.csv").write_text("old", encoding="utf-8")
    monkeypatch.setattr(report, "environment", lambda: {"commit": (tmp_path / "results.csv").read_text("utf-8")})
    write_results(tmp_path, long_table(table), settings={})
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["environment"] == {"commit": "old"}


def test_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measure"):
        write_results(tmp_path, pd.DataFrame({"system": [], "group": [], "value": [], "n": []}), settings={})
    assert not (tmp_path / "results.csv").exists()
