"""An index that is open: its arrays, the terms of queries, and the scores for (k1, b)."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _files
from ..topics.checks import first_three
from . import kernels
from .analysis import Analyzer
from .folders import Kind
from .settings import check_given
from .storage import Lookup, Strings, load_array

if TYPE_CHECKING:
    import scipy.sparse

logger = logging.getLogger(__name__)

LONGEST_CACHED = 64
REMEMBERED = 1_000_000  # pieces of text and terms
UNKNOWN = -1
KIND = Kind("sparse_index", "convsearch_bm25", 1, "BM25 index", "BM25Index")
IDFS = ("lucene", "robertson")


class WeightedTerms:
    """From the weighted terms of queries to their numbers.

    Args:
        lexicon: terms by number.
    """

    def __init__(self, lexicon: Lookup) -> None:
        self.lexicon = lexicon
        self._term_ids = _TermIds(lexicon)

    def weighted_terms(self, queries: Sequence[dict[str, float]]) -> Terms:
        """The known terms of queries, rising, with their weights; those of weight 0 are left out."""
        find = self._term_ids.__getitem__
        parts = []
        for query in queries:
            ids = np.fromiter(map(find, query), dtype=np.int64, count=len(query))
            weights = np.fromiter(query.values(), dtype=np.float64, count=len(query))
            kept = np.flatnonzero((ids >= 0) & (weights > 0))
            kept = kept[np.argsort(ids[kept])]
            parts.append((ids[kept], weights[kept]))
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids, _ in parts], out=offsets[1:])
        return Terms(offsets, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class QueryTerms(WeightedTerms):
    """From the texts of queries to the numbers of their terms.

    Args:
        analyzer: text to terms.
        lexicon: terms by number.
    """

    def __init__(self, analyzer: Analyzer, lexicon: Lookup) -> None:
        super().__init__(lexicon)
        self.analyzer = analyzer
        self._analyzed = _Analyzed(analyzer)
        self._chunks = _Chunks(analyzer, self._term_ids)

    def text_terms(self, texts: Sequence[str]) -> Terms:
        """The known terms of queries, rising, with how often each occurs."""
        find = self._chunks.__getitem__
        if self.analyzer.by_chunk:
            found = [list(map(find, text.split())) for text in texts]
        else:
            found = [[self._chunks.terms_of(self.analyzer(text))] for text in texts]
        try:
            ids = np.fromiter(itertools.chain.from_iterable(found), dtype=np.int64)
        except TypeError:  # a piece of several terms
            found = [[i for value in row for i in (value if type(value) is tuple else (value,))] for row in found]
            ids = np.fromiter(itertools.chain.from_iterable(found), dtype=np.int64)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(list(map(len, found)), out=offsets[1:])
        terms = np.empty(len(ids), dtype=np.int64)
        weights = np.empty(len(ids), dtype=np.float64)
        term_offsets = np.zeros_like(offsets)
        kernels.collapse(ids, offsets, terms, weights, term_offsets)
        return Terms(term_offsets, terms[: term_offsets[-1]], weights[: term_offsets[-1]])

    def analyze(self, text: str) -> list[str]:
        """The index terms of a text, in order, unknown ones too."""
        if not self.analyzer.by_chunk:
            return self.analyzer(text)
        return list(itertools.chain.from_iterable(map(self._analyzed.__getitem__, text.split())))


class Reading(QueryTerms):
    """The open files of an index; one per index object and process.

    Raises:
        FileNotFoundError: there is no index at the path.
        ValueError: the folder holds something else, another version of the format, or an index with other settings.
    """

    def __init__(self, path: Path, given: dict[str, Any]) -> None:
        self.path = path
        self.meta = KIND.meta(path)
        self.check(given)
        tokenizer = given.get("tokenizer")
        if callable(tokenizer):
            analyzer = Analyzer(tokenizer, self.meta["stemmer"], self.meta["stopwords"])
        else:
            analyzer = Analyzer.from_settings(self.meta)
        self.num_docs = int(self.meta["num_docs"])
        self.average_length = self.meta["num_tokens"] / self.num_docs if self.num_docs else 0.0
        try:
            super().__init__(analyzer, Lookup(path, "lexicon"))
            self._open()
        except ValueError as error:
            raise ValueError(f"the index at {path} is damaged: {error}; build it anew") from error
        self._scores: dict[tuple[float, float, str], np.ndarray] = {}
        self._lock = threading.Lock()
        #: of what BM25 counts, which for a shard is the whole collection: documents, documents per term of the lexicon
        self.collection_size = self.num_docs
        self.collection_df: np.ndarray | None = None
        self.scores_folder = path / "scores"

    def _open(self) -> None:
        """Map all files, so that an index that is replaced meanwhile stays what it was to whoever opened it.

        Raises:
            ValueError: a file is missing, cut, or of another index.
        """
        path, meta = self.path, self.meta
        self.offsets = load_array(path, "postings.offsets")
        self.docs = load_array(path, "postings.docs")  # within blocks of 65,536 documents
        self.blocks = tuple(load_array(path, f"blocks.{name}") for name in ("offsets", "ids", "sizes"))
        self.tfs = load_array(path, "postings.tfs")
        self.lengths = load_array(path, "lengths")
        self.docnos = Lookup(path, "docnos")
        self._forward = tuple(load_array(path, f"forward.{name}") for name in ("offsets", "terms", "tfs"))
        self._stored = {name: Strings(path, f"stored.{name}") for name in meta["text_field"] if meta["store_text"]}
        block_offsets, block_ids, block_sizes = self.blocks
        forward_offsets, forward_terms, forward_tfs = self._forward
        lengths: list[tuple[Any, ...]] = [
            (meta["num_docs"], self.lengths, self.docnos, forward_offsets[1:], *self._stored.values()),
            (meta["num_terms"], self.lexicon, self.offsets[1:], block_offsets[1:]),
            (meta["num_postings"], self.docs, self.tfs, forward_terms, forward_tfs),
            (len(block_ids), block_sizes),
        ]
        ends: list[tuple[Any, ...]] = [
            (meta["num_postings"], self.offsets[-1:], forward_offsets[-1:]),
            (len(block_ids), block_offsets[-1:]),
        ]
        if any(len(file) != count for count, *files in lengths for file in files) or any(
            file.tolist() != [end] for end, *files in ends for file in files
        ):
            raise ValueError("its files do not fit its pt_meta.json")

    def check(self, given: dict[str, Any]) -> None:
        """Raise where settings given by the user are not those of the index, and say which."""
        check_given(given, self.meta, self.path)

    def df(self, ids: np.ndarray) -> np.ndarray:
        known = ids >= 0
        result = np.zeros(len(ids), dtype=np.int64)
        result[known] = self.offsets[ids[known] + 1] - self.offsets[ids[known]]
        return result

    def doc_ids(self, docnos: Iterable[str]) -> np.ndarray:
        docnos = list(docnos)
        ids = self.docnos.find(docnos)
        if len(ids) and ids.min() < 0:
            unknown = sorted({docno for docno, i in zip(docnos, ids, strict=True) if i < 0})
            raise ValueError(f"{len(unknown)} docnos are not in the index at {self.path} ({first_three(unknown)})")
        return ids

    def stored(self, field: str | None = None) -> Strings:
        """The stored texts of one field."""
        names = self.meta["text_field"]
        if not self.meta["store_text"]:
            raise ValueError(f"the index at {self.path} was built with store_text=False: it has no texts to load")
        field = names[-1] if field is None else field
        if field not in names:
            raise ValueError(f"the index at {self.path} stores {', '.join(map(repr, names))}, not {field!r}")
        return self._stored[field]

    # -- scores

    def norms(self, lengths: np.ndarray, k1: float, b: float) -> np.ndarray:
        """k1 * (1 - b + b * length / average length), float64."""
        return k1 * (1 - b + b * np.asarray(lengths, dtype=np.float64) / (self.average_length or 1.0))

    def idfs(self, df: np.ndarray, idf: str) -> np.ndarray:
        """The idf of terms in so many documents, float64."""
        ratio = (self.collection_size - df + 0.5) / (df + 0.5)
        return np.log1p(ratio) if idf == "lucene" else np.maximum(np.log(ratio), 1e-6)

    def scores(self, k1: float, b: float, idf: str) -> np.ndarray:
        """Scores of all postings for (k1, b, idf), float32: from the folder, or computed and kept there."""
        key = (float(k1), float(b), idf)
        with self._lock:
            if key not in self._scores:
                self._scores[key] = self._load_scores(*key)
            return self._scores[key]

    def _load_scores(self, k1: float, b: float, idf: str) -> np.ndarray:
        name = (
            f"k1={k1:g},b={b:g},idf={idf}"
            if (float(f"{k1:g}"), float(f"{b:g}")) == (k1, b)
            else f"k1={k1!r},b={b!r},idf={idf}"
        )
        folder = self.scores_folder
        path = folder / f"{name}.npy"
        current = KIND.meta(self.path)["build"] == self.meta["build"]  # else the index was replaced while it was open
        if current and path.exists():
            try:
                stored = load_array(folder, name)
                if stored.dtype == np.float32 and len(stored) == len(self.docs):
                    return stored
                logger.warning("%s does not fit the index: computed anew", path)
            except ValueError as error:
                logger.warning("%s is damaged (%s): computed anew", path, error)
        scores = np.empty(len(self.docs), dtype=np.float32)
        df = np.diff(self.offsets) if self.collection_df is None else self.collection_df
        norms, idfs = self.norms(self.lengths, k1, b), self.idfs(df, idf)
        kernels.eager_scores(self.offsets, *self.blocks, self.docs, self.tfs, norms, idfs, scores)
        if not current:
            return scores
        try:
            with _files.written(path) as temporary, temporary.open("wb") as handle:
                np.save(handle, scores, allow_pickle=False)
        except OSError as error:
            logger.info("scores for %s are kept in memory: %s", name, error)
            return scores
        return load_array(folder, name)

    def vectors(self, ids: np.ndarray, k1: float, b: float, idf: str) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        starts, terms, tfs = self.forward(ids)
        terms, tf = terms.astype(np.int64), tfs.astype(np.float64)
        norms = np.repeat(self.norms(self.lengths[ids], k1, b), np.diff(starts))
        data = self.idfs(self.df(terms), idf) * tf / (tf + norms)
        shape = (len(ids), len(self.offsets) - 1)
        return scipy.sparse.csr_matrix((data.astype(np.float32), terms, starts), shape=shape)

    def forward(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The terms of documents: where each one's begin (and the last one's end), the terms, their frequencies."""
        offsets, terms, tfs = self._forward
        firsts, lasts = offsets[ids], offsets[np.asarray(ids) + 1]
        starts = np.concatenate([[0], np.cumsum(lasts - firsts)])
        at = np.repeat(firsts - starts[:-1], lasts - firsts) + np.arange(starts[-1])
        return starts, np.asarray(terms[at]), np.asarray(tfs[at])


class Terms(NamedTuple):
    """Terms of several queries: those of query q are ``ids[offsets[q]:offsets[q + 1]]``."""

    offsets: np.ndarray
    ids: np.ndarray
    weights: np.ndarray


class _TermIds(dict[str, int]):
    """Numbers of terms, remembered; UNKNOWN for unknown ones."""

    def __init__(self, lexicon: Lookup) -> None:
        super().__init__()
        self._lexicon = lexicon

    def __missing__(self, term: str) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        number = self[term] = int(self._lexicon.find([term])[0])
        return number


class _Analyzed(dict[str, list[str]]):
    """The index terms of pieces of text between white space, remembered."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self._analyzer = analyzer

    def __missing__(self, chunk: str) -> list[str]:
        terms = self._analyzer(chunk)
        if len(chunk) <= LONGEST_CACHED:
            if len(self) >= REMEMBERED:
                self.clear()
            self[chunk] = terms
        return terms


class _Chunks(dict[str, Any]):
    """What a piece of text between white space stands for, remembered: one term (or UNKNOWN), or a tuple of several."""

    def __init__(self, analyzer: Analyzer, term_ids: _TermIds) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._term_ids = term_ids

    def __missing__(self, chunk: str) -> Any:
        value = self.terms_of(self._analyzer(chunk))
        if len(chunk) <= LONGEST_CACHED:
            if len(self) >= REMEMBERED:
                self.clear()
            self[chunk] = value
        return value

    def terms_of(self, tokens: Iterable[str]) -> Any:
        ids = [number for number in map(self._term_ids.__getitem__, tokens) if number != UNKNOWN]
        return (ids[0] if ids else UNKNOWN) if len(ids) < 2 else tuple(ids)
