"""The BM25 index: what is on disk, and the factory of everything that reads it."""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt

from .. import __version__, _files
from .analysis import Tokenizer
from .reading import KIND, Reading
from .settings import given_settings, new_analyzer, text_fields

if TYPE_CHECKING:
    import scipy.sparse

    from .retriever import BM25Retriever
    from .rm3 import RM3
    from .text_loader import TextLoader

logger = logging.getLogger(__name__)


class BM25Index(pt.Artifact, pt.Indexer):
    """An inverted index for exact BM25 on queries of any length; a PyTerrier indexer and artifact.

    Term frequencies, document lengths, the lexicon, a forward index and the texts are kept in one folder of
    memory-mapped ``.npy`` files. Scores for a (k1, b) are computed when a retriever with them is first used, and kept
    beside the index.

    Input of :meth:`index`: dicts with ``docno`` (str, distinct, no white space; any length) and ``text``, ``title``
    where there is one. They are read once, as a stream, and memory does not grow with the collection, the vocabulary
    aside. The folder appears under its name when all is written: a kill leaves nothing that could be opened.

    Args:
        path: the folder. An index that exists there is opened.
        tokenizer: ``"lucene"`` (default: as Lucene's English analyzer), ``"unicode"`` (words of any script; Chinese,
            Japanese and Thai by character), or a function from a text to its tokens.
        stemmer: ``"porter"`` (default), None, or a Snowball name that PyStemmer knows.
        stopwords: ``"lucene"`` (default: its 33 English ones), None, or a list of words.
        text_field: name or names of what is searched, joined by a blank; default title (where there is one) and text.
        store_text: keep the texts, for :meth:`text_loader`.
        overwrite: let :meth:`index` replace an index that exists.
        verbose: show progress.

    Raises:
        ValueError: the index at ``path`` was built with other settings than those given, or the folder holds
            something else; the message names what differs.

    Example:
        >>> import tempfile, pt_convsearch as cs
        >>> docs = [{"docno": "d1", "text": "Frank Herbert wrote it."}, {"docno": "d2", "text": "Published in 1965."}]
        >>> index = cs.BM25Index(tempfile.mkdtemp() + "/passages.bm25").index(docs)
        >>> index.bm25(num_results=10).search("When was it published?")["docno"].tolist()
        ['d2']

    ``expander >> cs.BM25Index("expanded.bm25")`` indexes what a document transformer gives.
    """

    ARTIFACT_TYPE, ARTIFACT_FORMAT = KIND.type, KIND.format
    ARTIFACT_PACKAGE_HINT = "pt-convsearch"
    path: Path

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tokenizer: Tokenizer | Literal["default"] = "default",
        stemmer: str | None = "default",
        stopwords: str | Iterable[str] | None = "default",
        text_field: str | Sequence[str] = "default",
        store_text: bool = True,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(Path(path))
        self.store_text = store_text
        self.overwrite = overwrite
        self.verbose = verbose
        self._given = given_settings(tokenizer, stemmer, stopwords, text_field)
        new_analyzer(self._given)  # a setting that does not exist is refused now, not after a collection was read
        if self.built() and not overwrite:
            self._reading.check(self._given)

    # -- building

    def built(self) -> bool:
        """Is there an index at the path?"""
        return (self.path / "pt_meta.json").exists()

    def index_inputs(self) -> list[list[str]]:
        """The columns that :meth:`index` reads."""
        fields = text_fields(self._given)
        return [["docno", *fields], ["docno", fields[-1]]]

    def index(self, iter: Iterable[dict[str, Any]] | pd.DataFrame, **kwargs: Any) -> BM25Index:
        """Build the index from a stream of documents.

        Args:
            iter: dicts (or a data frame) with ``docno`` and ``text``, ``title`` where there is one.

        Returns:
            this index, ready for use.

        Raises:
            FileExistsError: something is at the path already, and ``overwrite`` was not given.
            ValueError: a docno that is missing, empty, repeated or holds white space; a document without text.
        """
        from .building import build

        if kwargs:
            raise TypeError(f"index() has no option {', '.join(kwargs)}: options are given to BM25Index(path, ...)")
        KIND.make_room(self.path, overwrite=self.overwrite)
        if self.verbose:
            from tqdm.auto import tqdm

            iter = tqdm(
                iter.to_dict("records") if isinstance(iter, pd.DataFrame) else iter, unit="doc", desc="BM25 index"
            )
        analyzer = new_analyzer(self._given)
        with _files.written(self.path) as folder:
            counts = build(iter, folder, analyzer, text_field=text_fields(self._given), store_text=self.store_text)
            _files.write_json(
                folder / "pt_meta.json",
                {
                    "type": self.ARTIFACT_TYPE,
                    "format": self.ARTIFACT_FORMAT,
                    "package_hint": self.ARTIFACT_PACKAGE_HINT,
                    "format_version": KIND.version,
                    "build": uuid.uuid4().hex,
                    **counts,
                    **analyzer.settings(),
                    "text_field": list(text_fields(self._given)),
                    "store_text": self.store_text,
                    "versions": {"pt_convsearch": __version__, "pyterrier": pt.__version__},
                },
            )
        self.__dict__.pop("_reading", None)
        logger.info("%s: %d documents, %d terms", self.path, counts["num_docs"], counts["num_terms"])
        return self

    # -- what it holds

    @functools.cached_property
    def _reading(self) -> Reading:
        return Reading(self.path, self._given)

    @property
    def meta(self) -> dict[str, Any]:
        """Settings, counts, versions and the fingerprint of the collection, as stored in pt_meta.json."""
        return dict(self._reading.meta)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over docnos and texts, in the order of the collection."""
        return str(self._reading.meta["fingerprint"])

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._reading.num_docs)

    @property
    def num_docs(self) -> int:
        """N: how many documents there are."""
        return len(self)

    @property
    def average_length(self) -> float:
        """avdl: the mean number of terms in a document (0 without documents)."""
        return self._reading.average_length

    def analyze(self, text: str) -> list[str]:
        """The index terms of a text, in order, repeats included, unknown ones too."""
        return self._reading.analyze(text)

    def term_ids(self, terms: Iterable[str]) -> np.ndarray:
        """The numbers of terms as they stand in the index (see :meth:`analyze`), -1 for unknown ones; int64."""
        return self._reading.lexicon.find(terms)

    def terms(self, ids: Iterable[int]) -> list[str]:
        """The terms of these numbers."""
        return [self._reading.lexicon[int(i)] for i in ids]

    def df(self, terms: Iterable[str]) -> np.ndarray:
        """In how many documents each term occurs, 0 for unknown ones; int64."""
        return self._reading.df(self.term_ids(terms))

    def docnos(self) -> list[str]:
        """All docnos, in the order of the collection."""
        return self._reading.docnos.arrow.to_pylist()

    def doc_ids(self, docnos: Iterable[str]) -> np.ndarray:
        """The numbers of documents, in the order of the collection; int64.

        Raises:
            ValueError: a docno that the index does not have; the message names the first three.
        """
        return self._reading.doc_ids(docnos)

    def texts(self, docnos: Iterable[str], field: str | None = None) -> list[str]:
        """The stored texts of documents.

        Args:
            docnos: docnos of the index.
            field: one of the index's text fields; default the last one, ``text``.

        Raises:
            ValueError: an unknown docno or field, or an index without stored texts.
        """
        return self._reading.stored(field).take(self.doc_ids(docnos)).to_pylist()

    def vectors(
        self, docnos: Iterable[str] | None = None, *, k1: float = 0.9, b: float = 0.4, idf: str = "lucene"
    ) -> scipy.sparse.csr_matrix:
        """BM25 weights of documents' terms.

        Args:
            docnos: which documents; None: all, in the order of the collection.
            k1, b, idf: as in :meth:`bm25`.

        Returns:
            scipy CSR matrix, float32, one row per docno given and one column per term (number as in :meth:`term_ids`).

        Raises:
            ValueError: an unknown docno.
        """
        ids = np.arange(len(self)) if docnos is None else self.doc_ids(docnos)
        return self._reading.vectors(ids, k1, b, idf)

    # -- what reads it

    def bm25(
        self,
        *,
        num_results: int = 1000,
        k1: float = 0.9,
        b: float = 0.4,
        idf: Literal["lucene", "robertson"] = "lucene",
        threads: int | None = None,
        verbose: bool = False,
    ) -> BM25Retriever:
        """A retriever, ``Q -> R``: see :class:`~pt_convsearch.lexical.BM25Retriever`, with the same options."""
        from .retriever import BM25Retriever

        return BM25Retriever(self, num_results=num_results, k1=k1, b=b, idf=idf, threads=threads, verbose=verbose)

    def rm3(self, *, fb_docs: int = 10, fb_terms: int = 10, original_query_weight: float = 0.5) -> RM3:
        """Query expansion by feedback, ``R -> Q``: see :class:`~pt_convsearch.lexical.RM3`, with the same options."""
        from .rm3 import RM3

        return RM3(self, fb_docs=fb_docs, fb_terms=fb_terms, original_query_weight=original_query_weight)

    def text_loader(self, fields: str | Sequence[str] | None = None) -> TextLoader:
        """Adds the stored texts to results, ``R -> R``: see :class:`~pt_convsearch.lexical.TextLoader`."""
        from .text_loader import TextLoader

        return TextLoader(self, fields)

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        where = str(self.path.resolve())
        if self.built():
            return (where, KIND.meta(self.path)["fingerprint"])
        return (where, repr(new_analyzer(self._given).settings()))

    def _contents(self) -> Any:
        """As of :class:`~pt_convsearch._stage.Stage`."""
        return KIND.contents(self.path) if self.built() else new_analyzer(self._given).settings()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BM25Index) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(str(self.path.resolve()))

    def __repr__(self) -> str:
        return f"BM25Index({str(self.path)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reading"}
