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
    encode_rate: float | None = None,
    figures: dict[str, Any] | PathLike | None = None,
) -> Plan:
    """Hours, disk and memory of encoding, BM25, dense search and mining.

    Measured figures grow along the line through the two largest runs (bytes, seconds and milliseconds against
    passages).
    Assumptions: machines as fast per core as the measured one; work that spreads over cores and GPUs without loss;
    passages and questions as long as the measured ones; dense search in time proportional to passages times
    dimensions.

    Args:
        passages: how many.
        dim: dimensions of a vector.
        gpus: that encode; 0: the cores do.
        cores: of all machines together, for BM25, for dense search, and for encoding without GPUs.
        questions: that are mined, each one query to depth ``num_results``.
        num_results: results per question.
        encode_rate: passages per second and GPU; None: the paper's (67, BERT-base), since none was measured here.
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
    ):
        if value < 1:
            raise ValueError(f"{name}={value!r}: a whole number from 1 on")
    if gpus < 0 or (encode_rate is not None and encode_rate <= 0):
        raise ValueError(f"gpus={gpus!r}, encode_rate={encode_rate!r}: not below 0, and a rate above 0")
    known = figures if isinstance(figures, dict) else measured(figures)
    n = passages
    lines = [
        *_encoding(known, n, dim, gpus, cores, encode_rate),
        *_bm25(known, n, cores, questions),
        *_dense(known, n, dim, cores, questions),
    ]
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
    elif gpus:
        basis = f"{rate:g} passages/s per GPU, as given"
    else:
        run = _largest(known, "encode")
        rate = run["passages_per_s"] / run["workers"]
        basis = f"{rate:.1f} passages/s per core: {run['what']}, {run['passages']:,} passages, {run['workers']} workers"
    assert rate is not None
    units = gpus or cores
    size = 4 * dim * n / 1e9
    return [
        Line(step, "time", n / rate / units / 3600, "h", basis, "extrapolated"),
        Line(step, "disk", size, "GB", f"4 bytes x {dim} x passages", "computed"),
        Line(step, "disk while running", 2 * size, "GB", "parts, and the index they are put together to", "computed"),
    ]


def _bm25(known: dict[str, Any], n: int, cores: int, questions: int) -> list[Line]:
    step = "BM25"
    index, search = known["runs"]["bm25_index"], known["runs"]["bm25_search"]
    seconds, because = _at(index, "seconds", n)
    size, of_size = _at(index, "bytes", n)
    query, of_query = _at(search, "ms_per_query", n)
    memory = max(index, key=lambda run: run["passages"])
    beyond = _kind(n, index)
    terms = search[0]["terms"]
    return [
        Line(step, "indexing", seconds / cores / 3600, "h", f"{because}, one core; shards spread over cores", beyond),
        Line(step, "disk", size / 1e9, "GB", f"{of_size}, scores of one (k1, b) included", beyond),
        Line(
            step,
            "memory of a worker that indexes",
            memory["peak_mb"] / 1e3,
            "GB",
            f"a shard of {memory['passages']:,} passages",
            "measured",
        ),
        Line(step, "search", query / cores, "ms/query", f"{of_query}, queries of {terms} terms, one core", beyond),
        Line(
            step,
            f"mining {questions:,} questions",
            query * questions / cores / 3.6e6,
            "h",
            "search x questions",
            beyond,
        ),
    ]


def _dense(known: dict[str, Any], n: int, dim: int, cores: int, questions: int) -> list[Line]:
    step = "dense, exact"
    runs = known["runs"]["dense_search"]
    query, because = _at(runs, "ms_per_query", n)
    run = _largest(known, "dense_search")
    query *= dim / run["dim"]
    because += f", {run['dim']} dimensions, batches of {run['queries']}, one core; times {dim}/{run['dim']}"
    beyond = _kind(n, runs)
    hours = query * questions / cores / 3.6e6
    paper = f"search x questions (paper: {PAPER_SEARCH_HOURS:.0f} h)"
    kinds = "float32; SQfp16 takes half, SQ8 a quarter"
    return [
        Line(step, "memory, all shards", 4 * dim * n / 1e9, "GB", kinds, "computed"),
        Line(step, "search", query / cores, "ms/query", because, beyond),
        Line(step, f"mining {questions:,} questions", hours, "h", paper, beyond),
    ]  # fmt: skip


def _kind(n: int, runs: list[dict[str, Any]]) -> str:
    return "extrapolated" if n > max(run["passages"] for run in runs) else "measured"


def _largest(known: dict[str, Any], step: str) -> dict[str, Any]:
    runs = known["runs"].get(step)
    if not runs:
        raise ValueError(f"nothing was measured for {step!r}: experiments/bench/scale.py does")
    return max(runs, key=lambda run: (run["passages"], run.get("workers", 1)))


def _at(runs: list[dict[str, Any]], name: str, n: int) -> tuple[float, str]:
    """A figure at n passages, on the line through the two largest runs (through the origin where it would fall)."""
    ordered = sorted(runs, key=lambda run: run["passages"])
    last = ordered[-1]
    smaller = [run for run in ordered if run["passages"] < last["passages"]]
    basis = f"{_shown(last[name])} at {last['passages']:,} passages"
    if n > last["passages"]:
        basis = f"x{n / last['passages']:,.0f} beyond what was measured: {basis}"
    if smaller:
        first = smaller[-1]
        slope = (last[name] - first[name]) / (last["passages"] - first["passages"])
        start = last[name] - slope * last["passages"]
        power = math.log(last[name] / first[name]) / math.log(last["passages"] / first["passages"])
        basis += f", {_shown(first[name])} at {first['passages']:,} (grows as n^{power:.2f})"
        if start >= 0 and slope > 0:
            return start + slope * n, basis
    return last[name] * n / last["passages"], basis


def _shown(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
