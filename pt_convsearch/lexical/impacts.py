"""The impact index: documents as weighted terms that an encoder gave them, searched by the engine of BM25."""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .. import __version__, _files
from .._encoders import check_encoder
from .impacts_reading import KIND, ImpactReading

if TYPE_CHECKING:
    import scipy.sparse

    from .impacts_retriever import ImpactRetriever

logger = logging.getLogger(__name__)


class ImpactIndex(pt.Artifact, pt.Indexer):
    """An inverted index of weighted terms (SPLADE, uniCOIL, DeepImpact); a PyTerrier indexer and artifact.

    A document's score is the dot product of its weights and the query's, exact, for queries of any number of terms, by
    the kernels of :class:`BM25Index`. Weights are kept as they are (float32), not rounded to whole numbers.

    Input of :meth:`index`: dicts with ``docno`` (str, distinct, no white space) and ``toks`` (term -> weight, none
    negative), as ``encoder.doc_encoder()`` gives them; with an encoder also its text field alone, which it encodes.
    They are read once, as a stream. The folder appears under its name when all is written.

    Args:
        path: the folder. An index that exists there is opened.
        encoder: a :class:`~pt_convsearch.dense.SparseEncoder`, that encodes documents and queries; None: ``toks`` and
            ``query_toks`` come from elsewhere.
        overwrite: let :meth:`index` replace an index that exists.
        verbose: show progress.

    Raises:
        ValueError: the index at ``path`` was built with another encoder, or the folder holds something else; the
            message names what differs. The query tower of an encoder that was given one of its own may differ
            (``cs.train_disco``).

    Example:
        >>> import tempfile, pt_convsearch as cs
        >>> docs = [{"docno": "a", "toks": {"dune": 2.0, "book": 0.5}}, {"docno": "b", "toks": {"book": 1.5}}]
        >>> index = cs.ImpactIndex(tempfile.mkdtemp() + "/x.impacts").index(docs)
        >>> queries = pd.DataFrame({"qid": ["1"], "query_toks": [{"dune": 1.0, "book": 2.0, "film": 1.0}]})
        >>> index.retriever(num_results=10)(queries)[["docno", "score"]].values.tolist()
        [['a', 3.0], ['b', 3.0]]

    ``encoder.doc_encoder() >> cs.ImpactIndex("x.impacts")`` indexes what a pipeline gives.
    """

    ARTIFACT_TYPE, ARTIFACT_FORMAT = KIND.type, KIND.format
    ARTIFACT_PACKAGE_HINT = "pt-convsearch"
    path: Path

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: Any = None,
        *,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(Path(path))
        if encoder is not None and not hasattr(encoder, "doc_toks"):
            raise TypeError(f"encoder is {encoder!r}: give a cs.SparseEncoder, or weights as toks and query_toks")
        self.encoder = encoder
        self.overwrite = overwrite
        self.verbose = verbose
        if self.built() and not overwrite:
            meta = self._reading.meta
            if encoder is not None and meta["encoder"] is not None:
                check_encoder(meta["encoder"], encoder.identity(), self.path)

    # -- building

    def built(self) -> bool:
        """Is there an index at the path?"""
        return (self.path / "pt_meta.json").exists()

    def check_encoder(self, encoder: Any) -> None:
        """Refuse an encoder that cannot search this index.

        Raises:
            ValueError: it was built with another one; the message names what differs.
        """
        check_encoder(self._reading.meta["encoder"] or {}, encoder.identity(), self.path)

    def index_inputs(self) -> list[list[str]]:
        """The columns that :meth:`index` reads."""
        return [["docno", "toks"], *([] if self.encoder is None else [["docno", self.encoder.text_field]])]

    def index(self, iter: Iterable[dict[str, Any]] | pd.DataFrame, **kwargs: Any) -> ImpactIndex:
        """Build the index from a stream of documents.

        Args:
            iter: dicts (or a data frame) with ``docno`` and ``toks``, or the text that the encoder reads.

        Returns:
            this index, ready for use.

        Raises:
            FileExistsError: something is at the path already, and ``overwrite`` was not given.
            ValueError: a docno that is missing, empty, repeated or holds white space; a document without weights (and
                without a text to encode); a weight that is negative or not finite.
        """
        from .impacts_building import build

        if kwargs:
            raise TypeError(f"index() has no option {', '.join(kwargs)}: options are given to ImpactIndex(path, ...)")
        KIND.make_room(self.path, overwrite=self.overwrite)
        with _files.written(self.path) as folder:
            folder.mkdir()
            counts = build(iter, folder, self.encoder, verbose=self.verbose)
            _files.write_json(
                folder / "pt_meta.json",
                {
                    "type": self.ARTIFACT_TYPE,
                    "format": self.ARTIFACT_FORMAT,
                    "package_hint": self.ARTIFACT_PACKAGE_HINT,
                    "format_version": KIND.version,
                    "build": uuid.uuid4().hex,
                    **counts,
                    "encoder": None if self.encoder is None else self.encoder.identity(),
                    "versions": {"pt_convsearch": __version__, "pyterrier": pt.__version__},
                },
            )
        self.__dict__.pop("_reading", None)
        logger.info("%s: %d documents, %d terms", self.path, counts["num_docs"], counts["num_terms"])
        return self

    # -- what it holds

    @functools.cached_property
    def _reading(self) -> ImpactReading:
        return ImpactReading(self.path)

    @property
    def meta(self) -> dict[str, Any]:
        """The encoder's identity, counts, versions and the fingerprint of the weights, as stored in pt_meta.json."""
        return dict(self._reading.meta)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over docnos and weights, in the order of the collection."""
        return str(self._reading.meta["fingerprint"])

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._reading.num_docs)

    def terms(self) -> list[str]:
        """All terms, by number."""
        return self._reading.lexicon.arrow.to_pylist()

    def docnos(self) -> list[str]:
        """All docnos, in the order of the collection."""
        return self._reading.docnos.arrow.to_pylist()

    def vectors(self, docnos: Iterable[str] | None = None) -> scipy.sparse.csr_matrix:
        """Weights of documents.

        Args:
            docnos: which documents; None: all, in the order of the collection.

        Returns:
            scipy CSR matrix, float32, one row per docno given, one column per term of :meth:`terms`.

        Raises:
            ValueError: a docno that the index does not have; the message names the first three.
        """
        return self.vectors_of(np.arange(len(self)) if docnos is None else self.doc_ids(docnos))

    def doc_ids(self, docnos: Iterable[str]) -> np.ndarray:
        """The numbers of documents, in the order of the collection; int64.

        Raises:
            ValueError: a docno that the index does not have; the message names the first three.
        """
        return self._reading.doc_ids(docnos)

    def vectors_of(self, numbers: np.ndarray) -> scipy.sparse.csr_matrix:
        """:meth:`vectors` of documents by their number."""
        return self._reading.vectors(numbers)

    # -- what reads it

    def retriever(
        self, *, num_results: int = 1000, threads: int | None = None, verbose: bool = False
    ) -> ImpactRetriever:
        """Q -> R: the documents of highest dot product; see :class:`~pt_convsearch.lexical.ImpactRetriever`."""
        from .impacts_retriever import ImpactRetriever

        return ImpactRetriever(self, num_results=num_results, threads=threads, verbose=verbose)

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        own = None if self.encoder is None else tuple(self.encoder.identity().items())
        known = KIND.meta(self.path)["fingerprint"] if self.built() else None
        return (str(self.path.resolve()), known, own)

    def _contents(self) -> Any:
        """As of :class:`~pt_convsearch._stage.Stage`."""
        own = None if self.encoder is None else self.encoder.identity()
        return [KIND.contents(self.path) if self.built() else None, own]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ImpactIndex) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(str(self.path.resolve()))

    def __repr__(self) -> str:
        encoder = "" if self.encoder is None else f", {self.encoder!r}"
        return f"ImpactIndex({str(self.path)!r}{encoder})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reading"}
