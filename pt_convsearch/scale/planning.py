"""What a collection of some size will cost, from what was measured and stated assumptions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from .._files import PathLike

#: Kim & Kim (2022, Limitations): QReCC's 54 million passages encoded on 8 GPUs in 28 hours, searched in 11
PAPER_PASSAGES, PAPER_GPUS, PAPER_ENCODING_HOURS, PAPER_SEARCH_HOURS = 54_000_000, 8, 28.0, 11.0
PAPER_RATE = PAPER_PASSAGES / PAPER_GPUS / PAPER_ENCODING_HOURS / 3600


@dataclass(frozen=True)
class Line:
    """One figure of a plan: what, how much, and what it rests on."""

    step: str
    what: str
    value: float
    unit: str
    basis: str
    kind: str  # "measured", "extrapolated" or "computed"

    @property
    def extrapolated(self) -> bool:
        return self.kind == "extrapolated"


@dataclass(frozen=True)
class Plan:
    """The figures of a plan; ``str(plan)`` is its table."""

    title: str
    lines: tuple[Line, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per figure: step, what, value, unit, basis, kind (measured, extrapolated or computed)."""
        return pd.DataFrame([vars(line) for line in self.lines])

    def __getitem__(self, key: tuple[str, str]) -> float:
        """The value of (step, what)."""
        for line in self.lines:
            if (line.step, line.what) == key:
                return line.value
        raise KeyError(key)

    def __str__(self) -> str:
        from tabulate import tabulate

        rows = [
            [
                line.step,
                line.what,
                _shown(line.value),
                line.unit,
                line.kind,
                line.basis,
            ]
            for line in self.lines
        ]
        table = tabulate(
            rows,
            headers=["step", "what", "value", "unit", "", "from"],
            disable_numparse=True,
            maxcolwidths=[None] * 5 + [70],
        )
        return f"{self.title}\n\n{table}"


def measured(path: PathLike | None = None) -> dict[str, Any]:
    """The figures that ``experiments/bench/scale.py`` measured; without ``path`` those that come with the package."""
    if path is not None:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    return json.loads(resources.files(__package__).joinpath("measured.json").read_text(encoding="utf-8"))


def plan(
    passages: int,
    *,
    dim: int = 768,
    gpus: int = 0,
    cores: int = 2,
    questions: int = 30_000,
    num_results: int = 100,
    passages_per_shard: int = 1_000_000,
    encode_rate: float | None = None,
    figures: dict[str, Any] | PathLike | None = None,
) -> Plan:
    """Hours, disk and memory of encoding, BM25, dense search and mining.

    Between two measured sizes a figure lies on the line through them, beyond the largest on the line through the two
    largest (bytes, seconds and milliseconds against passages; in proportion where there is one size alone).
    Assumptions: machines as fast per core as the measured one; encoding, indexing and search that spread over cores
    and GPUs without loss; results of shards merged by one process, each further shard at the highest cost that was
    measured; passages and questions as long as the measured ones; dense search in time proportional to passages times
    dimensions.

    Args:
        passages: how many.
        dim: dimensions of a vector.
        gpus: that encode; 0: the cores do.
        cores: of all machines together, for BM25, for dense search, and for encoding without GPUs.
        questions: that are mined, each one query to depth ``num_results``.
        num_results: results per question.
        passages_per_shard: of a :class:`ShardedIndex`.
        encode_rate: passages per second and GPU (and core, without GPUs); None: the paper's (67, BERT-base), since no
            GPU was measured here, and for cores the slowest encoder that was measured.
        figures: what was measured, or the file that the bench wrote; None: what comes with the package.

    Returns:
        the plan; each line says what it rests on.

    Raises:
        ValueError: a number out of range, or figures that lack a step.
    """
    for name, value in (
        ("passages", passages),
        ("dim", dim),
        ("cores", cores),
        ("questions", questions),
        ("num_results", num_results),
        ("passages_per_shard", passages_per_shard),
    ):
        if value < 1:
            raise ValueError(f"{name}={value!r}: a whole number from 1 on")
    if gpus < 0 or (encode_rate is not None and encode_rate <= 0):
        raise ValueError(f"gpus={gpus!r}, encode_rate={encode_rate!r}: not below 0, and a rate above 0")
    known = figures if isinstance(figures, dict) else measured(figures)
    asked = _Asked(passages, dim, cores, questions, num_results, min(passages, passages_per_shard))
    n = passages
    lines = [*_encoding(known, n, dim, gpus, cores, encode_rate), *_bm25(known, asked), *_dense(known, asked)]
    title = (
        f"{n:,} passages, {dim} dimensions, {gpus} GPUs, {cores} cores, {questions:,} questions to depth "
        f"{num_results}. "
        f"Measured on: {known['machine']}, {known['when']}."
    )
    return Plan(title, tuple(lines))


def _encoding(known: dict[str, Any], n: int, dim: int, gpus: int, cores: int, rate: float | None) -> list[Line]:
    step = "encoding"
    if gpus and rate is None:
        rate = PAPER_RATE
        basis = f"the paper's {PAPER_RATE:.0f} passages/s per GPU (54M, 8 GPUs, 28 h); not measured here"
    elif rate is not None:
        basis = f"{rate:g} passages/s per {'GPU' if gpus else 'core'}, as given"
    else:
        run = _slowest_encoder(known)
        rate = run["passages_per_s"] / run["workers"]
        basis = f"{rate:.1f} passages/s per core: {run['what']}, {run['passages']:,} passages, {run['workers']} workers"
    assert rate is not None
    basis += _growth(known)
    peaks = [run for run in known["runs"].get("encode", []) if run.get("worker_peak_mb") is not None]
    units = gpus or cores
    size = 4 * dim * n / 1e9
    lines = [
        Line(step, "time", n / rate / units / 3600, "h", basis, "extrapolated"),
        Line(step, "disk", size, "GB", f"4 bytes x {dim} x passages", "computed"),
        Line(step, "disk while running", 2 * size, "GB", "parts, and the index they are put together to", "computed"),
    ]
    if peaks:
        run = max(peaks, key=lambda run: run["worker_peak_mb"])
        because = f"{run['what']}; blocks of 4,096 passages come and go, so it does not grow with the collection"
        lines.append(Line(step, "memory of a worker", run["worker_peak_mb"] / 1e3, "GB", because, "measured"))
    return lines


@dataclass(frozen=True)
class _Asked:
    """What a plan is asked for."""

    passages: int
    dim: int
    cores: int
    questions: int
    num_results: int
    per_shard: int

    @property
    def shards(self) -> int:
        return -(-self.passages // self.per_shard)


def _bm25(known: dict[str, Any], asked: _Asked) -> list[Line]:
    step, n = "BM25", asked.passages
    index, search = _runs(known, "bm25_index"), _runs(known, "bm25_search")
    seconds, because = _at(index, "seconds", n)
    size, of_size = _at(index, "bytes", n)
    query, of_query = _at(search, "ms_per_query", n)
    peak, of_peak = _at(index, "peak_mb", asked.per_shard)
    beyond = _kind(n, index)
    of_query += f", queries of {search[-1]['terms']} terms, one core"
    return [
        Line(step, "indexing", seconds / asked.cores / 3600, "h", f"{because}, one core; shards spread over cores",
             beyond),
        Line(step, "disk", size / 1e9, "GB", f"{of_size}, scores of one (k1, b) included", beyond),
        Line(step, "memory of a worker that indexes", peak / 1e3, "GB", f"a shard of {asked.per_shard:,}: {of_peak}",
             _kind(asked.per_shard, index)),
        Line(step, "memory, all shards", size / 1e9, "GB", "as on disk, mapped: with less, a search reads from disk",
             beyond),
        *_search(step, asked, query / asked.cores, of_query, search, _shard_cost(known, "bm25_shards")),
    ]  # fmt: skip


def _dense(known: dict[str, Any], asked: _Asked) -> list[Line]:
    step = "dense, exact"
    runs = _runs(known, "dense_search")
    query, because = _at(runs, "ms_per_query", asked.passages)
    run = runs[-1]
    query *= asked.dim / run["dim"]
    because += f", {run['dim']} dimensions, batches of {run['queries']}, one core; times {asked.dim}/{run['dim']}"
    size = 4 * asked.dim * asked.passages / 1e9
    return [
        Line(step, "memory, all shards", size, "GB", "float32; SQfp16 takes half, SQ8 a quarter", "computed"),
        *_search(step, asked, query / asked.cores, because, runs, _shard_cost(known, "dense_shards")),
    ]


def _search(
    step: str, asked: _Asked, query: float, because: str, runs: list[dict[str, Any]], cost: tuple[float, str] | None
) -> list[Line]:
    """Search, the merge of its shards, and mining: both times the questions."""
    depth = runs[-1].get("k", asked.num_results)
    kind = _kind(asked.passages, runs) if depth == asked.num_results else "extrapolated"
    if depth != asked.num_results:
        because += f"; measured to depth {depth}"
    lines = [Line(step, "search", query, "ms/query", because, kind)]
    merge = 0.0
    if cost is not None:
        merge = cost[0] * (asked.shards - 1)
        lines.append(
            Line(step, f"merging {asked.shards:,} shards", merge, "ms/query", f"one process; {cost[1]}", "extrapolated")
        )
    hours = (query + merge) * asked.questions / 3.6e6
    what = f"mining {asked.questions:,} questions"
    paper = f"search and merge x questions (paper, dense: {PAPER_SEARCH_HOURS:.0f} h for 54M passages)"
    return [*lines, Line(step, what, hours, "h", paper, kind)]


def _shard_cost(known: dict[str, Any], step: str) -> tuple[float, str] | None:
    """Milliseconds per query that each shard after the first adds, the highest of the measured; None: not measured."""
    by_size: dict[int, dict[str, float]] = {}
    for run in known["runs"].get(step, []):
        by_size.setdefault(run["passages"], {})[run["system"]] = run["ms_per_query"]
    costs = [(0.0, "no cost was seen")]
    for passages, systems in by_size.items():
        for system, value in systems.items():
            number = int(system.split()[0]) if system[0].isdigit() else 1
            if number > 1 and "one index" in systems:
                each = (value - systems["one index"]) / (number - 1)
                costs.append((each, f"{_shown(each)} ms for each after the first, {system} of {passages:,} passages"))
    return max(costs) if by_size else None


def _kind(n: int, runs: list[dict[str, Any]]) -> str:
    return "extrapolated" if n > max(run["passages"] for run in runs) else "measured"


def _runs(known: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The runs of a step that were made as the largest was, by size."""
    largest = _largest(known, step)
    same = ("queries", "terms", "dim", "k")
    alike = [run for run in known["runs"][step] if all(run.get(name) == largest.get(name) for name in same)]
    return sorted(alike, key=lambda run: run["passages"])


def _slowest_encoder(known: dict[str, Any]) -> dict[str, Any]:
    """The largest run of the encoder that took the longest for a passage: small ones are measured for their growth."""
    _largest(known, "encode")  # there is one
    runs = known["runs"]["encode"]
    slowest = min(runs, key=lambda run: run["passages_per_s"] / run["workers"])["what"]
    return max((run for run in runs if run["what"] == slowest), key=lambda run: (run["passages"], run["workers"]))


def _growth(known: dict[str, Any]) -> str:
    """How the time for a passage grew with the collection, of the encoder and workers measured at the most passages."""
    runs = known["runs"].get("encode")
    if not runs:
        return ""
    last = _largest(known, "encode")
    same = [run for run in runs if (run["what"], run["workers"]) == (last["what"], last["workers"])]
    first = min(same, key=lambda run: run["passages"])
    if first["passages"] == last["passages"]:
        return ""
    times = first["passages_per_s"] / last["passages_per_s"]
    return (
        f"; in proportion to the passages: {times:.2f} times the seconds for one at {last['passages']:,} as at "
        f"{first['passages']:,} ({last['what']}, {last['workers']} workers)"
    )


def _largest(known: dict[str, Any], step: str) -> dict[str, Any]:
    runs = known["runs"].get(step)
    if not runs:
        raise ValueError(f"nothing was measured for {step!r}: experiments/bench/scale.py does")
    return max(runs, key=lambda run: (run["passages"], run.get("workers", 1)))


def _at(runs: list[dict[str, Any]], name: str, n: int) -> tuple[float, str]:
    """A figure at n passages: on the line through the two runs around n, or through the two nearest.

    In proportion to the nearest where there is one run alone, where a larger run took less, and where the line falls
    below nothing.
    """
    by_size = {run["passages"]: run[name] for run in runs}
    sizes = sorted(by_size)
    at = next((i for i, size in enumerate(sizes) if size >= n), len(sizes) - 1)
    high, low = sizes[at], sizes[at - 1] if at else sizes[min(1, len(sizes) - 1)]
    basis = f"{_shown(by_size[high])} at {high:,} passages"
    if n > high:
        basis = f"x{n / high:,.0f} beyond what was measured: {basis}"
    if low != high:
        slope = (by_size[high] - by_size[low]) / (high - low)
        basis += f", {_shown(by_size[low])} at {low:,}"
        if n > high and slope > 0 and by_size[low] > 0:
            basis += f" (grows as n^{math.log(by_size[high] / by_size[low]) / math.log(high / low):.2f})"
        found = by_size[high] + slope * (n - high)
        if slope > 0 and (n >= sizes[0] or by_size[high] >= slope * high):
            return found, basis
    return by_size[high] * n / high, basis


def _shown(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
