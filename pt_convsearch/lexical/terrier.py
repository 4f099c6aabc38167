"""Terrier behind the same door: Terrier's own BM25, with text that never reaches its query language."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .engine import Engine, Query, split_by_query

_SMALLEST = 1e-6  # Terrier is told weights with six decimals


def _start() -> None:
    if pt.java.started():
        return
    try:
        pt.java.init()
    except Exception as error:
        raise RuntimeError(
            f"the Terrier engine needs Java and Terrier's jars ({type(error).__name__}: {error}): install a JDK, and "
            "without network put the jars into PYTERRIER_HOME and set TERRIER_VERSION and TERRIER_HELPER_VERSION"
        ) from error


class TerrierRetriever(Engine):
    """Terrier's BM25, ``Q -> R``. It is not the same BM25 as Lucene's, ours or PISA's and does not rank alike.

    Its idf is ``log2((N - df + .5) / (df + .5))``, negative for a term in more than half of the documents; its query
    term frequency is divided by the largest in the query and saturated (k_3 = 8), so "bond bond" is "bond", and
    saying a word again lowers the weight of the others. Text is split by Terrier's tokeniser and handed over as
    weighted terms, so that no character is read as query language; stop words and stemming are those of the index,
    also for ``query_toks``.

    Input columns: ``qid``, ``query`` (or ``query_toks``, ``qsep``). Output columns: those, ``docno``, ``score``,
    ``rank``.

    Args:
        index: ``pt.terrier.TerrierIndex``, an IndexRef, a Java Index, or the path of an index.
        num_results, k1, b: as in :class:`BM25Retriever`.
        tokeniser: the tokeniser that the index was built with: ``"english"`` (splits at letters with accents and
            loses other scripts) or ``"utf"``.
        threads: as in ``pt.terrier.Retriever``.

    Raises:
        RuntimeError: Java or Terrier's jars are missing.
        ValueError: see :class:`BM25Retriever`.

    Example:
        ``cs.form(cs.X) >> cs.bm25("passages.terrier", num_results=100)``
    """

    def __init__(
        self,
        index: Any,
        *,
        num_results: int = 1000,
        k1: float = 0.9,
        b: float = 0.4,
        tokeniser: str = "english",
        threads: int = 1,
    ) -> None:
        _start()
        self.index = str(index) if isinstance(index, Path) else index
        self.num_results = num_results
        self.k1 = k1
        self.b = b
        self.tokeniser = tokeniser
        self.threads = threads
        self._check_options()
        self._ready: dict[Any, Any] = {}

    def _identity(self) -> tuple[Any, ...]:
        return tuple((name, self._place() if name == "index" else value) for name, value in super()._identity())

    def _place(self) -> str:
        where = self.index if isinstance(self.index, str) else getattr(self.index, "path", None) or self.index
        if hasattr(where, "getIndexRef"):  # a Java Index
            where = where.getIndexRef()
        return str(where.toString() if hasattr(where, "toString") else where)

    def _engine(self) -> tuple[Any, Any]:
        key = (self.num_results, self.k1, self.b, self.tokeniser, self.threads)
        if key not in self._ready:
            index = self.index
            if isinstance(index, str) and Path(index).exists():  # Java stays in the folder that it was started in
                index = str(Path(index).absolute())
            retriever = pt.terrier.Retriever(
                index,
                wmodel="BM25",
                controls={"bm25.k_1": str(self.k1), "bm25.b": str(self.b)},
                num_results=self.num_results,
                tokeniser=self.tokeniser,
                threads=self.threads,
            )
            tokeniser = pt.terrier.TerrierTokeniser.java_tokeniser(pt.terrier.TerrierTokeniser._to_obj(self.tokeniser))
            self._ready = {key: (retriever, tokeniser)}
        return self._ready[key]

    def _retrieve(self, queries: list[Query]) -> list[tuple[list[str], Any]]:
        retriever, tokeniser = self._engine()
        rows, weights = [], []
        for i, query in enumerate(queries):
            terms: dict[str, float] = dict(Counter(tokeniser.getTokens(query))) if isinstance(query, str) else query
            largest = max(terms.values(), default=1.0)
            terms = {term: weight / largest for term, weight in terms.items() if term and weight / largest >= _SMALLEST}
            if terms:
                rows.append(str(i))
                weights.append(terms)
        frame = pd.DataFrame({"qid": rows})
        frame["query_toks"] = pd.Series(weights, dtype=object)
        found = retriever(frame) if rows else pd.DataFrame({"qid": [], "docno": [], "score": []})
        return split_by_query(found["qid"].astype(np.int64).to_numpy(), found["docno"], found["score"], len(queries))

    def __getstate__(self) -> dict[str, Any]:  # the engine's own object cannot be pickled, and is not shared by copies
        return {**self.__dict__, "_ready": {}}
