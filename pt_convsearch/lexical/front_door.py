"""One door to BM25, whatever engine holds the index."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyterrier as pt

from .._files import json_or_none
from .._stage import Stage
from .index import BM25Index


def bm25(index: Any, **options: Any) -> Stage:
    """A BM25 retriever over any engine's index, ``Q -> R``; all keep one contract.

    ========= ==================================== ============================== ============================
    engine    index                                formula                        a query term said n times
    ========= ==================================== ============================== ============================
    ours      :class:`BM25Index`                   Lucene's, exact lengths        counts n times
    PISA      ``pyterrier_pisa.PisaIndex``         Robertson's idf, from 1e-6 on  counts n times
    Terrier   ``pt.terrier.TerrierIndex``,         Terrier's, idf may be negative divided by the largest count,
              IndexRef                                                            then saturated
    Anserini  Lucene index, pyserini's searcher    Lucene's, lengths in one byte  counts n times
    ========= ==================================== ============================== ============================

    Equal scores come in the order of the collection from ours; in the engine's own order from the others.

    **Which rank alike** for equal tokens: ours and bm25s (``method="lucene"``), and Lucene up to its rounded lengths;
    ours with ``idf="robertson"`` and PISA. Terrier's BM25 is another function and ranks like none of them. Tokens are
    equal only where tokenizer, stop words and stemmer are: each engine uses those of its index.

    Input columns: ``qid``, ``query``, or ``query_toks`` (term -> weight; it wins). ``qsep`` names separators that are
    taken out of the text. Output columns: those of the input, ``docno`` (str), ``score`` (float64), ``rank`` (int64,
    from 0). None as query is an error that names the qid; an empty query gets no rows.

    Args:
        index: an index object or the path of an index; which engine it is, is seen from its files.
        options: of the engine's retriever; all know ``num_results``, ``k1``, ``b``, ``threads``.

    Returns:
        :class:`BM25Retriever`, :class:`PisaRetriever`, :class:`TerrierRetriever` or :class:`AnseriniRetriever`.

    Raises:
        FileNotFoundError: there is nothing at the path.
        ValueError: the path holds an index that no engine here reads.
        ImportError, RuntimeError: the engine is not installed; the message says how to get it.

    Example:
        ``cs.form(cs.X) >> cs.bm25("passages.bm25", num_results=100, k1=0.82, b=0.68)``
    """
    if isinstance(index, BM25Index):
        return index.bm25(**options)
    engine = _engine_of_path(Path(index)) if isinstance(index, str | os.PathLike) else _engine_of_object(index)
    if engine == "convsearch_bm25":
        return BM25Index(index).bm25(**options)
    if engine == "pisa":
        from .pisa import PisaRetriever

        return PisaRetriever(index, **options)
    if engine == "terrier":
        from .terrier import TerrierRetriever

        return TerrierRetriever(index, **options)
    from .anserini import AnseriniRetriever

    return AnseriniRetriever(index, **options)


def _engine_of_object(index: Any) -> str:
    module = type(index).__module__.partition(".")[0]
    if module == "pyterrier_pisa":
        return "pisa"
    if isinstance(index, pt.terrier.TerrierIndex) or "org.terrier" in f"{type(index)}":
        return "terrier"
    if module == "pyserini":
        return "anserini"
    raise TypeError(
        f"{type(index).__name__} is no index that cs.bm25 knows: give a BM25Index, a PisaIndex, a TerrierIndex, "
        "an IndexRef, a LuceneSearcher, or a path"
    )


def _engine_of_path(path: Path) -> str:
    if path.name.endswith(".properties") and path.exists():
        return "terrier"
    if not path.exists():
        raise FileNotFoundError(f"there is no index at {path}")
    if (path / "pt_pisa_config.json").exists():
        return "pisa"
    if (path / "data.properties").exists():
        return "terrier"
    if any(path.glob("segments_*")):
        return "anserini"
    found = "a folder without a known index"
    meta = json_or_none(path / "pt_meta.json")
    if isinstance(meta, dict):
        found = meta.get("format", "an unknown format")
        if found in ("convsearch_bm25", "pisa", "terrier", "anserini"):
            return str(found)
    raise ValueError(f"{path} holds {found}: cs.bm25 reads indexes of ours, PISA, Terrier and Lucene")
