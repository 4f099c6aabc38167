"""Anserini (Lucene) behind the same door, through pyserini where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._optional import require
from .engine import Engine, Query


class AnseriniRetriever(Engine):
    """Lucene's BM25 by way of Anserini, ``Q -> R``.

    The formula is that of :class:`BM25Retriever`, so both rank alike for equal tokens, but for document lengths,
    which Lucene rounds to one byte (scores differ in the second digit, close documents change places). Lucene's limit
    of 1,024 distinct query terms is lifted. ``query_toks`` holds index terms as they stand.

    Input columns: ``qid``, ``query`` (or ``query_toks``, ``qsep``). Output columns: those, ``docno``, ``score``,
    ``rank``.

    Args:
        index: the path of a Lucene index, or a ``pyserini.search.lucene.LuceneSearcher``, which keeps the analyzer and
            the language it was given and gets k1 and b from here; its Java object stays in this process.
        num_results, k1, b, threads: as in :class:`BM25Retriever`.

    Raises:
        ImportError: pyserini is not installed (it needs Java 21 or newer).
        ValueError: see :class:`BM25Retriever`.
        TypeError: pickled with a searcher (for other processes, give the path).

    Example:
        ``cs.form(cs.X) >> cs.bm25("passages.lucene", num_results=100)``
    """

    def __init__(
        self, index: Any, *, num_results: int = 1000, k1: float = 0.9, b: float = 0.4, threads: int = 1
    ) -> None:
        require("pyserini", step="the Anserini engine", install="pyserini")
        self.index = str(getattr(index, "index_dir", index))
        self.searcher = index if hasattr(index, "index_dir") else None
        self.num_results = num_results
        self.k1 = k1
        self.b = b
        self.threads = threads
        self._check_options()
        self._searcher: Any = self.searcher

    def _ready(self) -> Any:
        if self._searcher is None:
            lucene = require("pyserini.search.lucene", step="the Anserini engine", install="pyserini")
            if not Path(self.index).is_dir():
                raise FileNotFoundError(f"there is no Lucene index at {self.index}")
            self._searcher = lucene.LuceneSearcher(self.index)
            self._class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
        self._searcher.set_bm25(self.k1, self.b)
        return self._searcher

    @staticmethod
    def _class(name: str) -> Any:
        return require("pyserini.pyclass", step="the Anserini engine", install="pyserini").autoclass(name)

    def _weighted(self, terms: dict[str, float]) -> Any:
        """The sum of term queries, each times its weight; no analysis."""
        builder = self._class("org.apache.lucene.search.BooleanQuery$Builder")()
        should = self._class("org.apache.lucene.search.BooleanClause$Occur").SHOULD
        term_class, term_query = (
            self._class("org.apache.lucene.index.Term"),
            self._class("org.apache.lucene.search.TermQuery"),
        )
        boost = self._class("org.apache.lucene.search.BoostQuery")
        for term, weight in terms.items():
            builder.add(boost(term_query(term_class("contents", term)), float(weight)), should)
        return builder.build()

    def _retrieve(self, queries: list[Query]) -> list[tuple[list[str], Any]]:
        searcher = self._ready()
        if isinstance(queries[0], dict):
            found = [searcher.search(self._weighted(query), self.num_results) for query in queries]  # type: ignore[arg-type]
        else:
            names = [str(i) for i in range(len(queries))]
            by_name = searcher.batch_search(queries, names, self.num_results, self.threads)
            found = [by_name.get(name, []) for name in names]
        return [([hit.docid for hit in hits], [hit.score for hit in hits]) for hits in found]

    def _identity(self) -> tuple[Any, ...]:
        told = () if self.searcher is None else (("searcher", id(self.searcher)),)  # what it was told cannot be read
        return (*super()._identity(), *told)

    def __getstate__(self) -> dict[str, Any]:
        if self.searcher is not None:
            raise TypeError(f"a LuceneSearcher lives in one process: give the path, cs.bm25({self.index!r})")
        return {**self.__dict__, "_searcher": None}

    def __copy__(self) -> AnseriniRetriever:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied
