"""Rare branches of evaluation, each by the smallest input that reaches it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR

import pt_convsearch as cs
from pt_convsearch.evaluation import cost, report
from pt_convsearch.evaluation.projection import _plane
from pt_convsearch.evaluation.systems import had_nothing_to_say

TOPICS = pd.DataFrame(
    {"qid": ["1", "2"], "query": ["x", "y"], "qhistory": [[], []], "conversation_id": ["1", None]}
)
QRELS = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "b"], "label": [1, 1]})
RUN = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "a"], "rank": [0, 0], "score": [1.0, 1.0]})


def test_systems_and_their_names(tmp_path: Path) -> None:
    """One run alone is a table of one row; topics may be a file; a mapping names its systems itself."""
    table = cs.Experiment(RUN, TOPICS, QRELS, [RR], names=["run"])
    assert table.loc["run", ("All", "RR")] == 0.5
    cs.topics.write(TOPICS.drop(columns="conversation_id"), tmp_path / "t.jsonl")
    pd.testing.assert_frame_equal(cs.Experiment([RUN], tmp_path / "t.jsonl", QRELS, [RR], names=["run"]), table)
    with pytest.raises(ValueError, match="names= goes with a list of systems"):
        cs.Experiment({"run": RUN}, TOPICS, QRELS, [RR], names=["run"])
    with pytest.raises(ValueError, match="some judged question has no conversation_id"):
        cs.Experiment({"run": RUN}, TOPICS, QRELS, [RR], average="conversation")


def test_groups_that_cannot_be_told_apart() -> None:
    def table(by: Any) -> pd.DataFrame:
        return cs.Experiment({"run": RUN}, TOPICS, QRELS, [RR], by=by)

    mask = np.array([True, False], dtype=object)
    assert table({"one": mask})["one", "RR"].tolist() == [1.0]
    with pytest.raises(ValueError, match="the mask 'one' says nothing about 1 rows"):
        table({"one": pd.Series([True], index=[0])})
    with pytest.raises(ValueError, match="names the group 'mask: one' twice"):
        table([{"one": mask}, {"one": mask}])


def test_an_oracle_needs_histories() -> None:
    oracle = cs.evaluation.ConversationOracle(TOPICS.assign(conversation_id="1"), QRELS)
    with pytest.raises(ValueError, match="topics have no column 'qhistory'"):
        oracle.expected(TOPICS.assign(conversation_id="1").drop(columns="qhistory"), QRELS, [RR], drop_seen=True)


def test_who_had_nothing_to_say() -> None:
    """Of stages in a row and side by side: whether each was left with empty queries alone."""
    empty = TOPICS.assign(query="")
    emptied = pt.apply.query(lambda row: "")
    found = pt.apply.generic(lambda frame: RUN.head(len(frame)))
    assert had_nothing_to_say(emptied >> found, TOPICS)
    assert not had_nothing_to_say(found, TOPICS)
    assert not had_nothing_to_say(found >> pt.apply.generic(lambda frame: frame), TOPICS)
    assert had_nothing_to_say((emptied >> found) + (emptied >> found), TOPICS)
    assert not had_nothing_to_say((emptied >> found) + found, TOPICS)
    assert had_nothing_to_say(emptied >> ((emptied >> found) + found), TOPICS)
    assert had_nothing_to_say(found, empty)


def test_what_a_report_knows_of_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "_VERSIONS_OF", ("numpy", "no-such-package"))
    assert report.environment()["versions"] == {"numpy": np.__version__}
    monkeypatch.setattr(report, "__file__", str(tmp_path / "a" / "b" / "report.py"))
    assert report._commit() is None  # not a checkout
    (tmp_path / ".git").mkdir()
    assert report._commit() is None  # and not one of git's


def test_memory_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without /proc the most that ever was resident counts, on a system that knows it."""
    monkeypatch.setattr(cost, "_STATM", tmp_path / "none")
    assert cost._resident() > 10 * 2**20
    monkeypatch.setitem(sys.modules, "resource", None)
    assert cost._resident() == 0


def test_the_memory_of_gpus_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        reset: list[int] = []

        is_available = staticmethod(lambda: True)
        device_count = staticmethod(lambda: 2)
        reset_peak_memory_stats = staticmethod(reset.append)
        max_memory_allocated = staticmethod(lambda device: (device + 1) * 2**20)

    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))
    assert cost._reset_gpus()
    assert Cuda.reset == [0, 1]
    assert cost._gpu_peak() == 3.0


def test_umap_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"UMAP projection.*pip install .*umap-learn"):
        _plane(np.zeros((3, 2)), "umap", 1.0, 1)
