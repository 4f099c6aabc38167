"""The tables of the page about scale, from the figures in the package; ``update_readme.py`` puts them into the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pt_convsearch.scale import plan
from pt_convsearch.scale.planning import PAPER_ENCODING_HOURS, PAPER_SEARCH_HOURS, measured

PASSAGES, DIM, GPUS, CORES = 54_000_000, 768, 8, 64
_PAPER = {("encoding", "time"): PAPER_ENCODING_HOURS, ("dense, exact", "mining 30,000 questions"): PAPER_SEARCH_HOURS}


def table(name: str) -> str:
    """The Markdown of one table."""
    return TABLES[name]()


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return "Not measured here.\n"
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _plan() -> str:
    made = plan(PASSAGES, dim=DIM, gpus=GPUS, cores=CORES)
    rows = []
    for line in made.lines:
        paper = _PAPER.get((line.step, line.what))
        rows.append(
            [f"{line.step}: {line.what}", f"{_shown(line.value)} {line.unit}", "" if paper is None else f"{paper:g} h",
             line.kind, line.basis.replace("|", "/")]
        )  # fmt: skip
    said = f"Measured on {measured()['machine']}; {measured()['when']}.\n\n"
    return said + _markdown(["", f"{GPUS} GPUs, {CORES} cores", "paper", "", "rests on"], rows)


def _sharding() -> str:
    """Processor time over that of one index."""
    runs = measured()["runs"]
    named = [("BM25", "bm25_shards", "terms", "terms"), ("exact dense", "dense_shards", "dim", "dimensions")]
    counts: list[int] = []
    rows = {}
    for what, step, key, unit in named:
        for run in runs.get(step, []):
            if run["system"] == "one index":
                continue
            shards = int(run["system"].split()[0])
            counts.append(shards)
            cell = f"{what}, {run['passages']:,}, {run['queries']} queries, {run[key]} {unit}, k = {run['k']}"
            rows.setdefault(cell, {})[shards] = f"{run['to_one']:.2f}"
    heads = sorted(set(counts))
    cells = [[name, *(found.get(count, "") for count in heads)] for name, found in rows.items()]
    return _markdown(["", *(f"{count} shards" for count in heads)], cells)


def _sizes() -> str:
    """How search grows with the collection, one core."""
    runs = measured()["runs"]
    rows = [
        [f"BM25, {run['queries']} queries of {run['terms']} terms", f"{run['passages']:,}",
         f"{run['ms_per_query']:.2f}", ""]
        for run in runs["bm25_search"]
    ]  # fmt: skip
    rows += [
        [f"exact dense, {run['queries']} queries of {run['dim']} dimensions", f"{run['passages']:,}",
         f"{run['ms_per_query']:.2f}", _gb(run, "peak_own_mb")]
        for run in runs["dense_search"]
    ]  # fmt: skip
    return _markdown(["", "passages", "ms per query", "memory of its own, GB"], rows)


def _gb(run: dict[str, Any], key: str) -> str:
    return f"{run[key] / 1000:.2f}" if run.get(key) is not None else ""


def _pisa() -> str:
    rows = [
        [f"{run['passages']:,}", "all terms" if run["kind"] == "all" else "without stop words", run["system"],
         f"{run['ms_per_query']:.1f}", f"{run['to_ours']:.1f}", f"{run['top_10_shared']:.3f}"]
        for run in measured()["runs"].get("bm25_pisa", [])
    ]  # fmt: skip
    return _markdown(["passages", "queries", "", "ms per query", "over ours", "top 10 shared"], rows)


def _encoding() -> str:
    rows = [
        [run["what"], f"{run['passages']:,}", str(run["workers"]), f"{run['passages_per_s'] / run['workers']:,.0f}",
         "" if run.get("seconds_to_start") is None else f"{run['seconds_to_start']:.0f}", _gb(run, "worker_peak_mb"),
         _gb(run, "peak_mb"), "" if run.get("speed_to_plain") is None else f"{run['speed_to_plain']:.3f}"]
        for run in measured()["runs"]["encode"]
    ]  # fmt: skip
    head = ["encoder", "passages", "workers", "passages per second and core", "seconds to start", "a worker, GB",
            "the caller, GB", "speed over plain processes"]  # fmt: skip
    return _markdown(head, rows)


def _stream() -> str:
    rows = [
        [f"{run['passages']:,}", str(run["shards"]), f"{run['seconds']:.0f}", f"{run['bytes'] / 1e9:.2f}",
         _gb(run, "peak_own_mb"), _gb(run, "peak_mb")]
        for run in measured()["runs"].get("bm25_stream", [])
    ]  # fmt: skip
    head = ["passages", "shards", "seconds", "GB on disk", "memory of its own, GB", "with mapped files, GB"]
    return _markdown(head, rows)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


TABLES: dict[str, Callable[[], str]] = {
    "plan": _plan, "sharding": _sharding, "sizes": _sizes, "pisa": _pisa, "encoding": _encoding, "stream": _stream,
}  # fmt: skip
