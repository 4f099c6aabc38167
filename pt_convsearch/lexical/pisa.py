"""PISA behind the same door: for collections that do not fit our engine."""

from __future__ import annotations

import itertools
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import _files
from .._optional import require
from .engine import Engine, Query, quiet_stdout, split_by_query

_HAS_WORD = re.compile(r"[^\W_]")
_TOKS_SCALE = 1000.0  # PISA turns weights into whole repeats: a thousandth of the largest weight is the finest step


def _pisa() -> Any:
    return require("pyterrier_pisa", step="the PISA engine", install="pt-convsearch[pisa]")


def build_pisa_index(
    docs: Iterable[dict[str, Any]], path: str | os.PathLike[str], *, text_field: str = "text", **options: Any
) -> Any:
    """Build a PISA index, and check that every document arrived under its own docno.

    PISA's own indexer cuts a docno at white space, indexes repeats, and swallows an exception of the iterator: it
    then returns an index of what came before.

    Args:
        docs: dicts with ``docno`` and the text field, read once as a stream.
        path: the folder of the index.
        text_field: the field that is searched.
        options: of ``pyterrier_pisa.PisaIndex`` (``stemmer``, ``stops``, ``threads``, ``overwrite`` …). The folder
            appears under its name when all is written.

    Returns:
        ``pyterrier_pisa.PisaIndex``.

    Raises:
        ValueError: a docno that PISA would damage (empty, white space) or that is repeated, a text that is no str, or
            no document with a word in it.
        RuntimeError: not all documents arrived.
        Exception: whatever the iterator raised.
    """
    path = Path(path)
    if path.exists() and not options.pop("overwrite", False):
        raise FileExistsError(f"{path} exists: open it by PisaIndex(path), or give overwrite=True to replace it")
    options.pop("overwrite", None)
    seen: set[str] = set()
    failure: list[Exception] = []

    def checked() -> Iterator[dict[str, Any]]:
        try:
            for doc in docs:
                docno, text = doc.get("docno"), doc.get(text_field)
                if not isinstance(docno, str) or docno.split() != [docno]:
                    raise ValueError(
                        f"docno {docno!r} is empty or holds white space: PISA would cut it; replace it, e.g. by '_'"
                    )
                if docno in seen:
                    raise ValueError(f"docno {docno!r} stands for more than one document: keep one of each")
                if not isinstance(text, str):
                    raise ValueError(f"document {docno!r} has no text in {text_field!r} (found {text!r}): give a str")
                seen.add(docno)
                # PISA is told UTF-8, which has no lone surrogates
                yield {"docno": docno, text_field: text.encode("utf-8", "replace").decode()}
        except Exception as error:  # PISA reads in a thread, where it would be lost
            failure.append(error)

    stream = checked()
    held = list(_until_a_word(stream, text_field))
    if failure:
        raise failure[0]
    if not held or not _HAS_WORD.search(held[-1][text_field]):
        raise ValueError("no document holds a word, and PISA indexes nothing but words: is the collection empty?")
    _files.clear_unfinished(path)
    with _files.written(path) as folder:
        index = _pisa().PisaIndex(str(folder), text_field=text_field, **options)
        with quiet_stdout():
            try:
                index.indexer(text_field).index(itertools.chain(held, stream))
            except Exception as error:
                failure.append(error)
        if failure:
            raise failure[0]
        if index.num_docs() != len(seen):
            raise RuntimeError(
                f"{len(seen)} documents went in, the PISA index has {index.num_docs()}: is the disk full?"
            )
    return _pisa().PisaIndex(str(path), text_field=text_field, **options)


def _until_a_word(stream: Iterator[dict[str, Any]], text_field: str) -> Iterator[dict[str, Any]]:
    """Documents up to the first that holds a word: where there is none, PISA takes the whole process down."""
    for doc in stream:
        yield doc
        if _HAS_WORD.search(doc[text_field]):
            return


class PisaRetriever(Engine):
    """PISA's BM25, exact and with query term frequencies, ``Q -> R``.

    Scores use Robertson's idf, floored at 1e-6 (:class:`BM25Retriever` with ``idf="robertson"`` ranks alike for equal
    tokens). PISA's defaults count each query term once and are slow on long queries; here ``maxscore`` and weighted
    queries are used. ``query_toks`` holds index terms as they stand (not stemmed), its weights are rounded to a
    thousandth of the largest one.

    Input columns: ``qid``, ``query`` (or ``query_toks``, ``qsep``). Output columns: those, ``docno``, ``score``,
    ``rank``.

    Args:
        index: ``pyterrier_pisa.PisaIndex`` or its path.
        num_results, k1, b, threads: as in :class:`BM25Retriever`.
        query_algorithm: PISA's name of an algorithm; all that are exact give the same scores.
        stops: stop words taken from queries: ``"terrier"``, ``"lucene"``, ``"none"``; None: the index's.

    Raises:
        ImportError: pyterrier-pisa is not installed.
        ValueError: see :class:`BM25Retriever`.

    Example:
        ``cs.form(cs.X) >> cs.bm25(pisa_index, num_results=100)``
    """

    def __init__(
        self,
        index: Any,
        *,
        num_results: int = 1000,
        k1: float = 0.9,
        b: float = 0.4,
        threads: int = 1,
        query_algorithm: str = "maxscore",
        stops: str | None = None,
    ) -> None:
        if not hasattr(index, "num_docs"):
            index = _pisa().PisaIndex(str(index))
        if not index.built():
            raise FileNotFoundError(f"there is no PISA index at {index.path}")
        self.index = index
        self.num_results = num_results
        self.k1 = k1
        self.b = b
        self.threads = threads
        self.query_algorithm = query_algorithm
        self.stops = stops
        self._check_options()
        self._ready: dict[Any, Any] = {}

    def _identity(self) -> tuple[Any, ...]:
        return tuple((name, self._named(value) if name == "index" else value) for name, value in super()._identity())

    def _place(self) -> Any:
        return self.index.path

    def _contents(self) -> Any:
        return [*super()._contents(), ("stops of the index", str(self.index.stops))]

    def _named(self, index: Any) -> tuple[str, str]:
        return str(Path(index.path).resolve()), str(index.stops)

    def _engine(self, weighted: bool) -> Any:
        key = (self.num_results, self.k1, self.b, self.threads, self.query_algorithm, self.stops, weighted)
        if key not in self._ready:
            index = self.index
            if weighted:
                with warnings.catch_warnings():  # the terms are index terms: that they are not stemmed again is meant
                    warnings.simplefilter("ignore")
                    index = _pisa().PisaIndex(str(index.path), stemmer="none", stops=index.stops)
            with quiet_stdout(errors=True):
                self._ready[key] = _pisa().PisaRetrieve(
                    index,
                    "bm25",
                    bm25_k1=self.k1,
                    bm25_b=self.b,
                    num_results=self.num_results,
                    threads=self.threads,
                    stops=self.stops,
                    query_algorithm=self.query_algorithm,
                    query_weighted=True,
                    toks_scale=_TOKS_SCALE,
                )
        return self._ready[key]

    def _retrieve(self, queries: list[Query]) -> list[tuple[list[str], Any]]:
        weighted = isinstance(queries[0], dict)
        column = "query_toks" if weighted else "query"
        scales = [max(query.values()) if isinstance(query, dict) else 1.0 for query in queries]
        if weighted:
            queries = [
                {term: weight / scale for term, weight in query.items()}  # type: ignore[union-attr]
                for query, scale in zip(queries, scales, strict=True)
            ]
        frame = pd.DataFrame({"qid": [str(i) for i in range(len(queries))]})
        frame[column] = pd.Series(queries, dtype=object)
        found = self._engine(weighted)(frame)
        parts = split_by_query(found["qid"].astype(int).to_numpy(), found["docno"], found["score"], len(queries))
        if not weighted:
            return parts
        return [
            (docnos, np.asarray(scores) * scale / _TOKS_SCALE)
            for (docnos, scores), scale in zip(parts, scales, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:  # the engine's own object cannot be pickled, and is not shared by copies
        return {**self.__dict__, "_ready": {}}
