"""BM25 retrieval over our index: exact, term at a time, for queries of any length."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyterrier as pt

from .._process import processors
from .._results import results_frame
from .._stage import Stage
from . import kernels
from .queries import check_options, lexical_queries
from .reading import IDFS, Terms

if TYPE_CHECKING:
    from .index import BM25Index

QUERIES_PER_TASK = 16


class BM25Retriever(Stage):
    """Exact BM25, ``Q -> R``.

    Scores are those of Lucene: for each query term, times its frequency in the query,
    ``idf * tf / (tf + k1 * (1 - b + b * length / average length))`` with ``idf = ln(1 + (N - df + .5) / (df + .5))``;
    lengths are exact (Lucene rounds them to one byte). Sums are float32, so scores are right to about six digits.
    Documents with at least one query term are returned, best first; equal scores in the order of the collection. A
    query that is empty or has no known term gets no rows.

    Input columns: ``qid``, ``query``; where ``query_toks`` is present (term -> weight) it is used in place of
    ``query``: its keys are index terms as they stand (as RM3 and :meth:`BM25Index.analyze` give them), neither
    stemmed nor stopped. ``qsep``, written by formers, names separators that are taken out of the text before analysis.
    Output columns: those of the input, then ``docno``, ``score``, ``rank`` (from 0).

    Args:
        index: the index.
        num_results: how many documents per query at most.
        k1: saturation of term frequency.
        b: strength of length normalisation, 0 to 1.
        idf: ``"lucene"``, or ``"robertson"`` for ``max(1e-6, ln((N - df + .5) / (df + .5)))``, which ranks as PISA
            does.
        threads: how many queries are searched at the same time; None: one per processor.
        verbose: show progress.

    Raises:
        ValueError: a query that is None or NaN, a repeated qid, a weight that is negative or no number (on
        transform); an
            option out of range.

    Example:
        ``cs.form(cs.X) >> index.bm25(num_results=100)``

    Source: Robertson et al., TREC-3; Lucene's BM25Similarity; Kamphuis et al., "Which BM25 do you mean?", ECIR 2020.
    """

    def __init__(
        self,
        index: BM25Index,
        *,
        num_results: int = 1000,
        k1: float = 0.9,
        b: float = 0.4,
        idf: Literal["lucene", "robertson"] = "lucene",
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.index = index
        self.num_results = num_results
        self.k1 = k1
        self.b = b
        self.idf = idf
        self.threads = threads
        self.verbose = verbose
        self._check_options()

    def _check_options(self) -> None:
        check_options(self.num_results, self.k1, self.b)
        if self.idf not in IDFS:
            raise ValueError(f"idf={self.idf!r}: one of {', '.join(IDFS)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads={self.threads!r}: a whole number from 1 on, or None")

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """``retriever % k`` asks the index for k documents, never for more than before."""
        if k >= self.num_results:
            return self
        fused = copy.copy(self)
        fused.num_results = k
        return fused

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        self._check_options()  # GridScan sets attributes
        topics, queries = lexical_queries(inp, context=self)
        counts, docs, scores = self._search(queries)
        docnos = self.index._reading.docnos.take(docs) if len(docs) else pa.array([], type=pa.large_string())
        return results_frame(topics, counts, docnos, scores)

    def _search(self, queries: list[str | dict[str, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not queries:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        reading = self.index._reading
        eager = reading.scores(self.k1, self.b, self.idf)
        k = int(min(self.num_results, reading.num_docs))

        def task(part: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            terms = reading.text_terms(part) if isinstance(part[0], str) else reading.weighted_terms(part)
            return best_documents(reading, eager, terms, k)

        return searched(queries, task, threads=self.threads, progress=self._progress)

    def _progress(self, results: Iterable[Any], total: int) -> Iterable[Any]:
        return progress(results, total, repr(self)) if self.verbose else results


def searched(
    queries: list[Any],
    task: Callable[[list[Any]], Any],
    *,
    threads: int | None,
    progress: Callable[[Iterable[Any], int], Iterable[Any]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Search queries in parts, several at the same time.

    Args:
        queries: one or more.
        task: counts, document numbers and scores of some of them.
        threads: how many at the same time; None: one per processor.
        progress: follows the results, told how many there will be.
    """
    threads = min(threads or processors(), len(queries))
    size = min(QUERIES_PER_TASK, -(-len(queries) // threads))
    parts = [queries[i : i + size] for i in range(0, len(queries), size)]
    done = list(progress(_map(task, parts, threads), len(parts)))
    counts, docs, scores = (np.concatenate(arrays) for arrays in zip(*done, strict=True))
    return counts, docs, scores


def progress(results: Iterable[Any], total: int, label: str) -> Iterable[Any]:
    """The results, with a progress bar."""
    from tqdm.auto import tqdm

    return tqdm(results, total=total, unit="batch", desc=label)


def best_documents(
    reading: Any, eager: np.ndarray, terms: Terms, k: int, floors: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k best documents of each query.

    Args:
        reading: the open index.
        eager: its scores, see :meth:`Reading.scores`.
        terms: the queries. Scores are summed in the order of a query's terms.
        k: at most as many as there are documents.
        floors: per query the score that a document must exceed, as scores are returned; None: 0.

    Returns:
        how many each query has (int64), their numbers (int64) and scores (float64), query after query, best first.
    """
    num_queries = len(terms.offsets) - 1
    shifts = _shifts(terms)
    weights = np.ldexp(terms.weights, np.repeat(shifts, np.diff(terms.offsets))).astype(np.float32)
    bars = np.zeros(num_queries) if floors is None else np.ldexp(floors, shifts)
    docs = np.empty((num_queries, k), dtype=np.int64)
    scores = np.empty((num_queries, k), dtype=np.float32)
    counts = np.zeros(num_queries, dtype=np.int64)
    if k:
        kernels.search(
            reading.offsets, *reading.blocks, reading.docs, eager, reading.num_docs,
            terms.offsets, terms.ids, weights, bars.astype(np.float32), k, docs, scores, counts,
        )  # fmt: skip
    filled = np.arange(k) < counts[:, None]
    return counts, docs[filled], np.ldexp(scores[filled].astype(np.float64), -np.repeat(shifts, counts))


def _shifts(terms: Terms) -> np.ndarray:
    """Per query the power of two that brings its largest weight below 1: exact, and no weight leaves float32."""
    largest = np.zeros(len(terms.offsets) - 1)
    filled = np.diff(terms.offsets) > 0
    if filled.any():
        largest[filled] = np.maximum.reduceat(terms.weights, terms.offsets[:-1][filled])
    return -np.frexp(largest)[1]


def _map(task: Any, parts: list[Any], threads: int) -> Iterable[Any]:
    if threads <= 1:
        yield from map(task, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(task, parts)
