"""What the experiments share: their arguments, the engines they run, the files they write."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

import pt_convsearch as cs
from pt_convsearch.evaluation.study import Engine, Study, dense_engine

BEGAN = time.perf_counter()


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"[{time.perf_counter() - BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


def arguments(doc: str | None, *, data: str, quick: str) -> argparse.ArgumentParser:
    """A parser with the arguments that all experiments take.

    Args:
        doc: the script's docstring.
        data: what ``--data`` must point to.
        quick: what ``--quick`` leaves out.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help=data)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where results and tables go")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-dense", action="store_true", help="only the lexical rows")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def engines(
    corpus: Callable[[], Iterable[dict[str, Any]]],
    folder: Path,
    *,
    dense: bool,
    k1: float = 0.9,
    b: float = 0.4,
    num_results: int = 100,
) -> list[Engine]:
    """BM25 and, if asked for, the untrained all-MiniLM-L6-v2 over a collection; indexes are written into ``folder``."""
    index = cs.BM25Index(folder / "passages.bm25").index(corpus())
    found = [Engine("BM25", index.bm25(num_results=num_results, k1=k1, b=b))]
    say("indexed with BM25")
    if dense:
        from pt_convsearch.dense import minilm_path

        encoder = cs.BiEncoder(minilm_path(), verbose=True)
        passages = cs.DenseIndex(folder / "passages.flex", encoder).index(corpus())
        found.append(dense_engine("MiniLM", passages.retriever(num_results=num_results), encoder))
        say("encoded with all-MiniLM-L6-v2")
    return found


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder for indexes that nobody needs afterwards."""
    return tempfile.TemporaryDirectory(prefix="convsearch-")


def finish(study: Study, out: Path, settings: dict[str, Any], **more: pd.DataFrame) -> None:
    """Write results.csv, results.json and the tables as Markdown; print them."""
    study.write(out, settings=settings, timings={"total": time.perf_counter() - BEGAN})
    tables = {"table": study.table, "dependence": study.dependence_table(), **more}
    for name, table in tables.items():
        (out / f"{name}.md").write_text(cs.render(table, "markdown") + "\n", encoding="utf-8")
        print(cs.render(table, "text"), end="\n\n")
    say(f"written to {out}")
