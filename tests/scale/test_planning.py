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
        "encode": [{"what": "MiniLM", "passages": 400, "workers": 2, "passages_per_s": 40.0, "worker_peak_mb": 750}],
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
    assert plan["encoding", "memory of a worker"] == pytest.approx(0.75)  # whatever the collection
    # the line through (1000, 500 kB) and (2000, 900 kB): 100 kB + 400 bytes a passage
    assert plan["BM25", "disk"] == pytest.approx(1_700_000 / 1e9)
    assert plan["BM25", "indexing"] == pytest.approx(5.0 / 2 / 3600)
    assert plan["BM25", "search"] == pytest.approx(2.5 / 2)
    assert plan["BM25", "mining 30,000 questions"] == pytest.approx(2.5 / 2 * 30_000 / 3.6e6)
    # one size: in proportion; twice the dimensions, twice the time
    assert plan["dense, exact", "search"] == pytest.approx(4.0 * 2 * 2 / 2)
    assert plan.to_frame().query("step == 'BM25' and what == 'search'")["kind"].tolist() == ["extrapolated"]


#: what the bench writes of n passages and of half as many, with shards
SHARDED = {
    **FIGURES,
    "runs": {
        **FIGURES["runs"],
        "bm25_search": [
            {"passages": 1000, "ms_per_query": 9.0, "terms": 6, "queries": 5, "k": 100},  # another kind of query
            {"passages": 1000, "ms_per_query": 1.0, "terms": 470, "queries": 9, "k": 100},
            {"passages": 2000, "ms_per_query": 3.0, "terms": 470, "queries": 9, "k": 100},
        ],
        "bm25_shards": [
            {"passages": 1000, "system": "one index", "ms_per_query": 1.0},
            {"passages": 1000, "system": "2 shards", "ms_per_query": 1.1},
            {"passages": 2000, "system": "one index", "ms_per_query": 3.0},
            {"passages": 2000, "system": "2 shards", "ms_per_query": 2.9},
            {"passages": 2000, "system": "8 shards", "ms_per_query": 3.14},
        ],
    },
}  # fmt: skip


def test_twice_the_size_by_hand():
    plan = cs.scale.plan(4000, dim=384, cores=4, questions=9000, passages_per_shard=500, figures=SHARDED)
    # seconds 2, 3 -> 5; bytes 500 kB, 900 kB -> 1.7 MB; a shard of 500 passages: 300 - 500 x 0.01 MB
    assert plan["BM25", "indexing"] == pytest.approx(5.0 / 4 / 3600)
    assert plan["BM25", "disk"] == plan["BM25", "memory, all shards"] == pytest.approx(1.7e6 / 1e9)
    assert plan["BM25", "memory of a worker that indexes"] == pytest.approx(0.295)
    # 1, 3 -> 7 ms on one core, the queries of 6 terms aside; it grows faster than the passages, and is not cut to 6
    assert plan["BM25", "search"] == pytest.approx(7 / 4)
    # 8 shards: 7 further ones; a further one costs 0.1 ms at 1000 passages (more than 0.14 / 7), on one process
    assert plan["BM25", "merging 8 shards"] == pytest.approx(0.7)
    assert plan["BM25", "mining 9,000 questions"] == pytest.approx((7 / 4 + 0.7) * 9000 / 3.6e6)
    # dense: one size, so twice the time; no shards were measured, no merge is claimed
    assert plan["dense, exact", "search"] == pytest.approx(4.0 * 2 / 4)
    assert not [line for line in plan.lines if line.step == "dense, exact" and "merging" in line.what]


def test_between_two_sizes_and_below_the_smallest():
    at = {n: cs.scale.plan(n, cores=1, figures=SHARDED)["BM25", "search"] for n in (1000, 1500, 500)}
    assert at == {1000: pytest.approx(1.0), 1500: pytest.approx(2.0), 500: pytest.approx(0.5)}


def test_another_depth_than_measured_is_said():
    plan = cs.scale.plan(2000, num_results=1000, figures=SHARDED)
    search = next(line for line in plan.lines if (line.step, line.what) == ("BM25", "search"))
    assert search.extrapolated
    assert "measured to depth 100" in search.basis


def test_what_was_measured_up_to_a_size_tells_four_times_as_much():
    """The package's own figures up to 500,000 passages against its run of 2,000,000."""
    known = measured()
    part = {step: [run for run in runs if run["passages"] <= 500_000] for step, runs in known["runs"].items()}
    plan = cs.scale.plan(2_000_000, dim=384, cores=1, figures={**known, "runs": part})
    index = next(run for run in known["runs"]["bm25_index"] if run["passages"] == 2_000_000)
    search = next(run for run in known["runs"]["bm25_search"] if run["passages"] == 2_000_000)
    assert plan["BM25", "disk"] == pytest.approx(index["bytes"] / 1e9, rel=0.01)
    assert plan["BM25", "search"] == pytest.approx(search["ms_per_query"], rel=0.03)
    assert plan["BM25", "indexing"] == pytest.approx(index["seconds"] / 3600, rel=0.2)
    dense = next(run for run in known["runs"]["dense_search"] if run["passages"] == 2_000_000)
    assert plan["dense, exact", "search"] == pytest.approx(dense["ms_per_query"], rel=0.03)


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


def test_cores_are_reckoned_with_the_slowest_encoder_and_growth_with_the_most_passages():
    encode = [
        {"what": "large", "passages": 400, "workers": 1, "passages_per_s": 11.0, "worker_peak_mb": 900},
        {"what": "large", "passages": 800, "workers": 2, "passages_per_s": 20.0, "worker_peak_mb": None},
        {"what": "tiny", "passages": 5000, "workers": 2, "passages_per_s": 2000.0, "worker_peak_mb": 500},
        {"what": "tiny", "passages": 10000, "workers": 2, "passages_per_s": 1600.0, "worker_peak_mb": 510},
    ]
    figures = {**FIGURES, "runs": {**FIGURES["runs"], "encode": encode}}
    plan = cs.scale.plan(36_000, cores=4, figures=figures)
    assert plan["encoding", "time"] == pytest.approx(36_000 / 10 / 4 / 3600)  # 20 a second by two workers
    assert plan["encoding", "memory of a worker"] == pytest.approx(0.9)
    basis = plan.lines[0].basis
    assert "10.0 passages/s per core: large, 800 passages, 2 workers" in basis
    assert "1.25 times the seconds for one at 10,000 as at 5,000 (tiny, 2 workers)" in basis  # 2000 / 1600
    given = cs.scale.plan(36_000, cores=4, encode_rate=100, figures=figures)
    assert given["encoding", "time"] == pytest.approx(0.025)
    assert given.lines[0].basis.startswith("100 passages/s per core, as given")


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
