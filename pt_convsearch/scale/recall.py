"""What smaller shards lose: recall of approximate search against exact, measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from .sharded_dense import ShardedDenseIndex


def recall_of(
    index: ShardedDenseIndex,
    topics: pd.DataFrame,
    kinds: Sequence[str],
    *,
    num_results: int = 10,
    nprobe: int | None = None,
    ef_search: int | None = None,
) -> pd.DataFrame:
    """How much of the exact result each kind of FAISS shard finds.

    Args:
        index: dense shards.
        topics: as for its retriever: ``qid`` and ``query`` or ``query_vec``.
        kinds: as FAISS's ``index_factory`` names them: "SQfp16" (half the memory), "SQ8" (a quarter) …
        num_results: depth at which recall is taken.
        nprobe: lists of an IVF index to visit.
        ef_search: candidates that an HNSW index keeps.

    Returns:
        one row per kind, "exact" first: ``kind``, ``recall`` (mean over the queries of the share of the exact
        ``num_results`` that were found; queries without results are left out), ``ms_per_query`` (after the indexes
        were built).

    Raises:
        ValueError: FAISS does not know a kind.

    Example:
        >>> cs.scale.recall_of(shards, topics, ["SQfp16", "IVF4,SQ8"], nprobe=4)["kind"].tolist()
        ['exact', 'SQfp16', 'IVF4,SQ8']
    """
    exact = index.retriever(num_results=num_results)
    found, seconds = _timed(exact, topics)
    wanted = _sets(found)
    rows = [{"kind": "exact", "recall": 1.0, "ms_per_query": 1000 * seconds / max(1, len(topics))}]
    for kind in kinds:
        retriever = index.retriever(
            num_results=num_results, exact=False, faiss=kind, nprobe=nprobe if "IVF" in kind else None,
            ef_search=ef_search if "HNSW" in kind else None,
        )  # fmt: skip
        retriever(topics.head(1))  # builds
        found, seconds = _timed(retriever, topics)
        got = _sets(found)
        shares = [len(docnos & got.get(qid, set())) / len(docnos) for qid, docnos in wanted.items()]
        recall = sum(shares) / len(shares) if shares else float("nan")
        rows.append({"kind": kind, "recall": recall, "ms_per_query": 1000 * seconds / max(1, len(topics))})
    return pd.DataFrame(rows)


def _timed(retriever: object, topics: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    start = time.perf_counter()
    found: pd.DataFrame = retriever(topics)  # type: ignore[operator]
    return found, time.perf_counter() - start


def _sets(found: pd.DataFrame) -> dict[str, set[str]]:
    return {str(qid): set(docnos) for qid, docnos in found.groupby("qid", sort=False)["docno"]}
