"""Dense retrieval: topics to the nearest passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt

from .._results import results_frame
from .._stage import Stage
from ..topics.checks import check_queries
from .search import approximate, exact_search
from .vectors import query_vectors

if TYPE_CHECKING:
    from .index import DenseIndex

#: queries searched together when no batch size is given
_BATCH = 4096


class DenseRetriever(Stage):
    """Q -> R: the passages whose vectors are nearest to the query's.

    Input: ``qid`` and ``query``, which the index's encoder encodes, or ``query_vec`` where an earlier stage left it
    (formers drop it with the query it belonged to). Output: the columns of the topics, ``docno``, ``score`` (dot
    product or cosine), ``rank``. A query that is empty or blank has no results. Equal scores rank in the order of the
    collection, the same in any batch.

    Args:
        index: the index.
        num_results: passages per query; all of them where the index holds fewer.
        exact: compare with every passage. False: a FAISS index of the kind ``faiss``, built on first use and kept in
            the folder.
        faiss: the kind, as FAISS's ``index_factory`` names it: "HNSW32", "IVF1024,Flat", "IVF256,PQ48", "SQ8" …
        nprobe: lists of an IVF index to visit (FAISS's default: 1).
        ef_search: candidates that an HNSW index keeps (FAISS's default: 16).
        batch_size: queries searched together.
        threads: of FAISS; None: as many as it likes.
        verbose: show progress.

    Raises:
        ValueError: a query that is None, a vector with NaN, no encoder to encode with, ``faiss`` without
            ``exact=False``.

    Example:
        >>> exact = cs.form(cs.X) >> dense_index.retriever(num_results=100)
        >>> approximate = cs.form(cs.X) >> dense_index.retriever(exact=False, faiss="HNSW32")
    """

    label = "Dense retriever"

    def __init__(
        self,
        index: DenseIndex,
        *,
        num_results: int = 1000,
        exact: bool = True,
        faiss: str | None = None,
        nprobe: int | None = None,
        ef_search: int | None = None,
        batch_size: int | None = None,
        threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        if num_results < 1:
            raise ValueError(f"num_results={num_results}: at least 1")
        if exact and (faiss, nprobe, ef_search) != (None, None, None):
            raise ValueError("faiss, nprobe and ef_search are for exact=False")
        self.index = index
        self.num_results = num_results
        self.exact = exact
        self.faiss = faiss if exact or faiss else "HNSW32"
        self.nprobe = nprobe
        self.ef_search = ef_search
        self.batch_size = batch_size
        self.threads = threads
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        with pt.validate.any(inp) as accepted:
            accepted.query_frame(["query"])
            accepted.query_frame(["query_vec"])
        if "query" in inp.columns:
            topics = check_queries(inp, context=self)
            blank = [not query.strip() for query in topics["query"]]
        else:
            topics = check_queries(inp.assign(query="x"), context=self).drop(columns="query")
            blank = [False] * len(topics)
        searched = topics[~np.array(blank, dtype=bool)]
        if len(searched) == 0 or not self.index.built():
            if len(searched):
                self.index.meta  # noqa: B018 - says that the index was not built
            return results_frame(topics, np.zeros(len(topics), dtype=np.int64), [], np.empty(0))
        queries = query_vectors(self.index, searched, verbose=self.verbose)
        numbers, scores = self._search(queries)
        found = numbers >= 0
        counts = np.zeros(len(topics), dtype=np.int64)
        counts[~np.array(blank, dtype=bool)] = found.sum(axis=1)
        return results_frame(topics, counts, self.index.docnos_of(numbers[found]), scores[found])

    def _search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from tqdm.auto import tqdm

        size = self.batch_size or _BATCH
        found = []
        for start in tqdm(range(0, len(queries), size), desc="searching", unit="batch", disable=not self.verbose):
            batch = queries[start : start + size]
            if self.exact:
                found.append(
                    exact_search(batch, self.index.vectors, self.num_results, self.index.max_norm, self.threads)
                )
            else:
                assert self.faiss is not None
                found.append(
                    approximate(self.index, self.faiss).search(
                        batch, self.num_results, nprobe=self.nprobe, ef_search=self.ef_search, threads=self.threads
                    )
                )
        numbers, scores = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(scores)

    def fuse_rank_cutoff(self, k: int) -> DenseRetriever | None:
        if k >= self.num_results or not self.exact:
            return None
        return self.index.retriever(
            num_results=k, batch_size=self.batch_size, threads=self.threads, verbose=self.verbose
        )

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}
