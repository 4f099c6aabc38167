"""Retrieval by dot products of weighted terms."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyterrier as pt

from .._results import results_frame
from .._stage import Stage
from .queries import check_options, lexical_queries
from .retriever import best_documents, progress, searched

if TYPE_CHECKING:
    from .impacts import ImpactIndex


class ImpactRetriever(Stage):
    """The documents whose weights have the highest dot product with the query's, ``Q -> R``.

    Exact, by the kernels of BM25 (sums are float32). Documents of a score above 0 are returned, best first; equal
    scores in the order of the collection. A query that is empty, or has no known term, gets no rows.

    Input columns: ``qid`` and ``query_toks`` (term -> weight, none negative; keys are the index's terms as they stand),
    or ``query``, which the index's encoder reads. Output columns: those of the input, then ``docno``, ``score``,
    ``rank`` (from 0).

    Args:
        index: the index.
        num_results: how many documents per query at most.
        threads: how many queries are searched at the same time; None: one per processor.
        verbose: show progress.

    Raises:
        ValueError: a query that is None or NaN, a repeated qid, a weight that is negative or no number, or text without
            an encoder (on transform); an option out of range.

    Example:
        ``cs.form(cs.X) >> cs.ImpactIndex("passages.impacts", encoder).retriever(num_results=100)``
    """

    label = "Impact retriever"

    def __init__(
        self, index: ImpactIndex, *, num_results: int = 1000, threads: int | None = None, verbose: bool = False
    ) -> None:
        self.index = index
        self.num_results = num_results
        self.threads = threads
        self.verbose = verbose
        check_options(num_results, 0.0, 0.0)
        if threads is not None and threads < 1:
            raise ValueError(f"threads={threads!r}: a whole number from 1 on, or None")

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """``retriever % k`` asks the index for k documents, never for more than before."""
        if k >= self.num_results:
            return self
        fused = copy.copy(self)
        fused.num_results = k
        return fused

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        topics, queries = lexical_queries(inp, context=self)
        counts, docs, scores = self._search(self._weights(topics, queries))
        docnos = self.index._reading.docnos.take(docs) if len(docs) else pa.array([], type=pa.large_string())
        return results_frame(topics, counts, docnos, scores)

    def _weights(self, topics: pd.DataFrame, queries: list[Any]) -> list[dict[str, float]]:
        if "query_toks" in topics.columns or not queries:
            return queries
        if self.index.encoder is None:
            raise ValueError(
                f"the index at {self.index.path} was opened without an encoder, and the frame has no query_toks: "
                "cs.ImpactIndex(path, encoder), or encoder.query_encoder() >> index.retriever()"
            )
        return self.index.encoder.query_encoder().weights(topics)

    def _search(self, queries: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not queries:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        reading = self.index._reading
        k = int(min(self.num_results, reading.num_docs))

        def task(part: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return best_documents(reading, reading.weights, reading.weighted_terms(part), k)

        return searched(queries, task, threads=self.threads, progress=self._progress)

    def _progress(self, results: Iterable[Any], total: int) -> Iterable[Any]:
        return progress(results, total, repr(self)) if self.verbose else results
