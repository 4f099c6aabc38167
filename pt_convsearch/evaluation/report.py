"""The two files of commands and experiments: results.csv, the numbers, and results.json, how they came to be."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch import __version__
from pt_convsearch._files import PathLike, write_json, written

_VERSIONS_OF = (
    "pyterrier", "pyterrier-dr", "pyterrier-pisa", "torch", "transformers", "sentence-transformers", "faiss-cpu",
    "numba", "numpy", "pandas", "scipy", "ir-measures",
)  # fmt: skip


def long_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table of :func:`Experiment` as rows: system, group, measure, value, n.

    A cell without a value (a form that cannot apply) is NaN, an empty field in CSV. Where the experiment was asked for
    bootstrap intervals (``ci``), ``low`` and ``high`` follow.
    """
    rows: list[tuple[str, str, str, float, int | None]] = []
    for group in table.columns.get_level_values(0).unique():
        block = table[group]
        counts = block["n"] if "n" in block else pd.Series(float("nan"), index=table.index)
        for measure in block.columns:
            if measure != "n":
                rows.extend(
                    (str(system), str(group), str(measure), float(value), int(n) if n == n else None)
                    for system, value, n in zip(table.index, block[measure], counts, strict=True)
                )
    long = pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"])
    intervals = pd.DataFrame(table.attrs.get("intervals", []))
    if len(intervals) == 0:
        return long
    intervals = intervals.rename(columns={"name": "system"})[["system", "group", "measure", "low", "high"]]
    return long.merge(intervals, how="left", on=["system", "group", "measure"], validate="one_to_one")


def environment() -> dict[str, Any]:
    """What a reader needs to know of where numbers came from: versions, machine, commit."""
    versions = {}
    for name in _VERSIONS_OF:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "pt_convsearch": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": versions,
        "command": _command(),
    }


def _command() -> str:
    """What was typed, with paths that only this machine has shortened to their names."""
    script = "python -m pt_convsearch" if sys.argv[0].endswith("__main__.py") else Path(sys.argv[0]).name
    shown = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return " ".join([script, *shown])


def _commit() -> str | None:
    """The commit of the checkout this runs from, "+changes" where files differ; None when installed elsewhere."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, encoding="utf-8", check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def write_results(
    out: PathLike,
    results: pd.DataFrame,
    *,
    settings: dict[str, Any],
    timings: dict[str, float] | None = None,
    more: dict[str, Any] | None = None,
) -> Path:
    """Write ``results.csv`` and ``results.json`` into the folder ``out``.

    Args:
        out: the folder; made where it is missing.
        results: columns system, group, measure, value, n (further columns are kept), as :func:`long_table` gives them.
        settings: what was chosen: data, sizes, seeds, models.
        timings: seconds by step.
        more: anything else worth keeping.

    Returns:
        the path of results.csv.
    """
    out = Path(out)
    missing = {"system", "group", "measure", "value", "n"} - set(results.columns)
    if missing:
        raise ValueError(f"results lack the columns {sorted(missing)}: pass what long_table(table) returns")
    made = environment()  # before a committed results.csv is replaced: it is no change of what made it
    with written(out / "results.csv") as path:
        results.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")
    write_json(
        out / "results.json",
        {"settings": settings, "timings": timings or {}, "environment": made, **(more or {})},
    )
    return out / "results.csv"
