"""Costs are measured by clock, processor and memory, and tabulated by step."""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest

import pt_convsearch as cs
from pt_convsearch.evaluation.cost import Cost


def fresh(mebibytes: int) -> mmap.mmap:
    """So much memory of the system's own, touched: what an allocator hands out may have been resident before."""
    block = mmap.mmap(-1, mebibytes * 2**20)
    for _ in range(mebibytes):
        block.write(b"x" * 2**20)
    return block


def test_a_step_takes_the_time_and_memory_that_it_took() -> None:
    meter = cs.CostMeter(interval=0.002)
    with meter.measure("indexing", items=50) as sleeping:
        time.sleep(0.2)
    with meter.measure("mining", unit="questions") as filling:
        block = fresh(40)
        time.sleep(0.02)
        filling.items = 1
        block.close()
    assert [cost.step for cost in meter.costs] == ["indexing", "mining"]
    assert 0.2 <= sleeping.seconds < 2
    assert sleeping.cpu_seconds < 0.1  # asleep, the processor had nothing to do but look at the memory
    assert sleeping.per_second == pytest.approx(50 / sleeping.seconds)
    assert filling.peak_memory - sleeping.peak_memory > 30
    assert (filling.items, filling.unit) == (1, "questions")


def test_nested_steps_have_peaks_of_their_own_and_failed_ones_are_not_kept() -> None:
    meter = cs.CostMeter(interval=0.002)
    with meter.measure("outer") as outer:
        block = fresh(40)
        time.sleep(0.02)
        block.close()
        with meter.measure("inner") as inner:
            time.sleep(0.01)
    assert outer.peak_memory - inner.peak_memory > 30
    with pytest.raises(KeyError), meter.measure("broken"):
        raise KeyError
    assert [cost.step for cost in meter.costs] == ["inner", "outer"]
    with pytest.raises(ValueError, match="interval=0"):
        cs.CostMeter(interval=0)


def test_the_table_holds_medians_over_seeds_in_the_order_of_the_paper() -> None:
    table = cs.cost_table(
        {
            "DPR": [
                Cost("warming up", 1.0),
                Cost("indexing", 2.0, 1.0, items=100, peak_memory=70.0),
                Cost("training", 10.0, 9.0, items=320, unit="questions", peak_memory=500.0),
                Cost("training", 20.0, 18.0, items=320, unit="questions", peak_memory=520.0),
                Cost("training", 40.0, 20.0, items=320, unit="questions", peak_memory=900.0),
            ],
            "BM25": [{"step": "indexing", "seconds": 0.5, "cpu_seconds": 0.4, "items": 100, "peak_memory": 10.0}],
            "nothing": [],
        }
    )
    assert list(table.index) == ["DPR", "BM25", "nothing"]
    assert list(table.columns.get_level_values(0).unique()) == ["training", "indexing", "warming up"]
    assert table.loc["DPR", "training"].tolist() == [20.0, 18.0, 16.0, 520.0]
    assert table.loc["BM25", "indexing"].tolist() == [0.5, 0.4, 200.0, 10.0]
    assert table.loc["nothing"].isna().all()
    assert np.isnan(table.loc["BM25", ("training", "seconds")])
    assert np.isnan(table.loc["DPR", ("warming up", "items/s")])  # not counted
    assert "GPU MiB" not in table.columns.get_level_values(1)
    shown = cs.render(table, digits=1, notes=False)
    assert "20.0" in shown
    assert "–" in shown
    assert cs.cost_table({}).empty


def test_records_are_plain_and_go_back_into_a_table() -> None:
    meter = cs.CostMeter()
    with meter.measure("inference", items=3, unit="questions"):
        pass
    meter.costs[0].gpu_memory = 12.0
    table = cs.cost_table({"mine": meter.records()})
    assert table.loc["mine", ("inference", "GPU MiB")] == 12.0
