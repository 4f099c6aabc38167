"""What the wrapped engines have in common: one contract, whatever the engine does by itself."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from .._contents import index_contents
from .._results import results_frame
from .._stage import Stage
from .queries import check_options, lexical_queries

Query = str | dict[str, float]
_STDOUT_LOCK = threading.Lock()


class Engine(Stage):
    """A retriever around another engine, ``Q -> R``, that keeps the contract of ours.

    A query that is None is refused with its qid, an empty one gets no rows, the topics' columns survive, frames are
    typed, and queries come back in the order they went in. Subclasses give :meth:`_retrieve`.
    """

    index: Any
    #: see BM25Retriever
    num_results: int
    k1: float
    b: float

    def _check_options(self) -> None:
        check_options(self.num_results, self.k1, self.b)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        self._check_options()  # GridScan sets attributes
        topics, queries = lexical_queries(inp, context=self)
        # engines are told UTF-8, which has no lone surrogates
        queries = [q.encode("utf-8", "replace").decode() if isinstance(q, str) else q for q in queries]
        asked = [
            i for i, query in enumerate(queries) if (query.strip() if isinstance(query, str) else any(query.values()))
        ]
        if not asked:
            return results_frame(topics, np.zeros(len(topics), dtype=np.int64), [], np.zeros(0))
        found = self._retrieve([queries[i] for i in asked])
        counts = np.zeros(len(topics), dtype=np.int64)
        counts[asked] = [len(docnos) for docnos, _ in found]
        docnos = [docno for docnos, _ in found for docno in docnos]
        scores = np.concatenate([np.asarray(scores, dtype=np.float64) for _, scores in found])
        return results_frame(topics, counts, docnos, scores)

    def _place(self) -> Any:
        """The path of the index."""
        return self.index

    def _contents(self) -> Any:
        found = index_contents(self._place())
        return [(name, found if name == "index" and found else value) for name, value in self._identity()]

    def _retrieve(self, queries: list[Query]) -> list[tuple[list[str], Any]]:
        """Docnos and scores of each query, best first."""
        raise NotImplementedError

    def fuse_rank_cutoff(self, k: int) -> Engine:
        """``retriever % k`` asks the engine for k documents, never for more than before."""
        if k >= self.num_results:
            return self
        fused = copy.copy(self)
        fused.num_results = k
        return fused


def split_by_query(rows: np.ndarray, docnos: Any, scores: Any, num_queries: int) -> list[tuple[list[str], Any]]:
    """Cut the rows of a result, in any order of queries but best first within each, into one part per query."""
    order = np.argsort(rows, kind="stable")
    docnos, scores = np.asarray(docnos, dtype=object)[order], np.asarray(scores, dtype=np.float64)[order]
    ends = np.cumsum(np.bincount(rows, minlength=num_queries))
    return [(docnos[a:b].tolist(), scores[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


@contextlib.contextmanager
def quiet_stdout(*, errors: bool = False) -> Iterator[None]:
    """Send what native code writes to standard output nowhere; what Python prints meanwhile is lost as well.

    Args:
        errors: and to standard error, where PISA draws progress bars.
    """
    with _STDOUT_LOCK, contextlib.ExitStack() as stack:
        for number, stream in ((1, sys.stdout), (2, sys.stderr))[: 1 + errors]:
            try:
                stream.flush()
                saved = os.dup(number)
            except (OSError, ValueError, AttributeError):  # no such stream
                continue
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, number)
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - os.devnull is no path of ours
                os.dup2(nowhere.fileno(), number)
        yield
