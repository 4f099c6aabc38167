"""The plan's arithmetic, by hand."""

from __future__ import annotations

import json

import pytest

import pt_convsearch as cs
from pt_convsearch.cli import main
from pt_convsearch.scale.planning import measured

FIGURES = {
    "machine": "2 cores", "when": "2026-11-30",
    "runs": {
        "encode": [{"what": "MiniLM", "passages": 400, "workers": 2, "passages_per_s": 40.0}],
        "bm25_index": [
            {"passages": 1000, "seconds": 2.0, "bytes": 500_000, "peak_mb": 300},
            {"passages": 2000, "seconds": 3.0, "bytes": 900_000, "peak_mb": 310},
        ],
        "bm25_search": [
            {"passages": 1000, "ms_per_query": 1.0, "terms": 470},
            {"passages": 2000, "ms_per_query": 1.5, "terms": 470},
        ],
        "dense_search": [{"passages": 2000, "ms_per_query": 4.0, "dim": 384, "queries": 500}],
    },
}  # fmt: skip


def test_plan_by_hand():
    plan = cs.scale.plan(4000, dim=768, gpus=0, cores=2, questions=30_000, figures=FIGURES)
    # 20 passages a second and core, two cores
    assert plan["encoding", "time"] == pytest.approx(4000 / 40 / 3600)
    assert plan["encoding", "disk"] == pytest.approx(4 * 768 * 4000 / 1e9)
    # the line through (1000, 500 kB) and (2000, 900 kB): 100 kB + 400 bytes a passage
    assert plan["BM25", "disk"] == pytest.approx(1_700_000 / 1e9)
    assert plan["BM25", "indexing"] == pytest.approx(5.0 / 2 / 3600)
    assert plan["BM25", "search"] == pytest.approx(2.5 / 2)
    assert plan["BM25", "mining 30,000 questions"] == pytest.approx(2.5 / 2 * 30_000 / 3.6e6)
    # one size: in proportion; twice the dimensions, twice the time
    assert plan["dense, exact", "search"] == pytest.approx(4.0 * 2 * 2 / 2)
    assert plan.to_frame().query("step == 'BM25' and what == 'search'")["kind"].tolist() == ["extrapolated"]


def test_a_size_that_was_measured_is_not_extrapolated():
    plan = cs.scale.plan(2000, dim=384, cores=1, figures=FIGURES)
    assert plan["BM25", "search"] == pytest.approx(1.5)
    lines = {(line.step, line.what): line.extrapolated for line in plan.lines}
    assert not lines["BM25", "search"]
    assert not lines["dense, exact", "search"]


def test_gpus_without_a_rate_take_the_papers():
    # 54 million passages on 8 GPUs in 28 hours: the paper's own line comes back
    plan = cs.scale.plan(54_000_000, dim=768, gpus=8, figures=FIGURES)
    assert plan["encoding", "time"] == pytest.approx(28.0)
    assert "not measured here" in plan.lines[0].basis
    assert cs.scale.plan(3_600_000, gpus=2, encode_rate=500, figures=FIGURES)["encoding", "time"] == pytest.approx(1.0)


def test_command(tmp_path, capsys):
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES), encoding="utf-8")
    command = ["scale", "plan", "--passages", "54000000", "--gpus", "8", "--figures", str(tmp_path / "figures.json")]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "54,000,000 passages, 768 dimensions, 8 GPUs" in shown
    assert "extrapolated" in shown
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["value"] == pytest.approx(28.0)
    assert main(["scale", "plan", "--passages", "0"]) == 2


def test_figures_that_come_with_the_package_make_a_plan():
    known = measured()
    plan = cs.scale.plan(54_000_000, dim=768, gpus=8, cores=64)
    assert known["machine"] in plan.title
    assert all(line.value > 0 and line.basis for line in plan.lines)


@pytest.mark.parametrize("wrong", [{"passages": 0}, {"passages": 5, "cores": 0}, {"passages": 5, "gpus": -1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="whole number|not below 0"):
        cs.scale.plan(wrong.pop("passages"), figures=FIGURES, **wrong)
