"""The dense index: FlexIndex's files, with the encoder that made them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt
from npids import Lookup
from pyterrier_dr import FlexIndex, SimFn

from .._contents import index_contents
from .._encoders import check_encoder, query_side
from .._files import json_or_none
from .building import DenseIndexer
from .docnos import numbers_of_docnos, read_docnos
from .encoder import BiEncoder
from .lookup import DenseScorer, VecLoader
from .retriever import DenseRetriever


class DenseIndex(FlexIndex):
    """An index of passage vectors that knows the encoder it was built with.

    The files are those of ``pyterrier_dr.FlexIndex``, which opens them too, and this class opens its; so all of its
    retrievers (``np_retriever``, ``faiss_hnsw_retriever`` …) work on ``query_vec``. On top: :meth:`index` encodes
    text, writes under a temporary name, and takes up what a killed run left; :meth:`retriever` encodes the queries
    itself; an encoder that the index was not built with is refused; empty queries have no results; and unknown
    docnos, repeated docnos and NaN are errors.

    Args:
        path: the folder of the index; one that exists is opened.
        encoder: a :class:`~pt_convsearch.dense.BiEncoder`. None: the one that the index was built with, loaded by its
            name when needed, or ``doc_vec`` and ``query_vec`` come from elsewhere.
        similarity: "dot" or "cosine" (vectors are normalised) for vectors from elsewhere; an encoder brings its own.
        overwrite: :meth:`index` replaces an index that exists.
        verbose: show progress.

    Raises:
        TypeError: an encoder that is no BiEncoder.
        ValueError: the index was built with another encoder or similarity; the message names what differs.
            ``max_query_length`` may differ, for it changes no vector of the index; so may the query tower of an
            encoder that was given one of its own (``query_model``, as ``cs.train_convdr`` does).

    Example:
        >>> index = cs.DenseIndex("passages.flex", encoder).index(corpus)
        >>> pipeline = cs.form(cs.X) >> cs.DenseIndex("passages.flex", encoder).retriever(num_results=100)
    """

    ARTIFACT_PACKAGE_HINT = "pt-convsearch"

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: BiEncoder | None = None,
        *,
        similarity: Literal["dot", "cosine"] | None = None,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        if similarity not in (None, "dot", "cosine"):
            raise ValueError(f"similarity={similarity!r}: 'dot' or 'cosine'")
        if encoder is not None and not isinstance(encoder, BiEncoder):
            raise TypeError(
                f"encoder is {encoder!r}: give a cs.BiEncoder; any other encoder goes before the index, "
                "(encoder >> index).index(passages) and encoder >> index.retriever()"
            )
        # cosine is the dot product of normalised vectors, here and in any other reader of the files
        super().__init__(str(path), sim_fn=SimFn.dot, verbose=verbose)
        self._encoder = encoder
        self._similarity = similarity if encoder is None else encoder.similarity
        self.overwrite = overwrite
        if encoder is not None and similarity not in (None, encoder.similarity):
            raise ValueError(f"similarity={similarity!r}, but the encoder's is {encoder.similarity!r}: leave it out")
        if self.built() and not overwrite:
            self._check(encoder)

    # -- what was built, and with what ---------------------------------------------------------------------------------

    def built(self) -> bool:
        """Whether there is a whole index: a folder without metadata is what a killed run left."""
        return (self.index_path / "pt_meta.json").is_file()

    def reset(self) -> None:
        """Forget what was read from disk."""
        self._meta: Any = None
        self._docnos: Any = None
        self._dvecs: Any = None
        self._cache: dict[Any, Any] = {}
        for name in ("_strings", "max_norm"):
            self.__dict__.pop(name, None)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata; ``meta["convsearch"]`` holds the encoder's identity and the fingerprint of the collection."""
        if self._meta is None:
            if not self.built():
                raise FileNotFoundError(f"no dense index at {self.index_path}: build it with .index(passages)")
            path = self.index_path / "pt_meta.json"
            try:
                meta = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{path} is damaged ({error}): rebuild the index with overwrite=True") from error
            if (meta.get("type"), meta.get("format")) != (self.ARTIFACT_TYPE, self.ARTIFACT_FORMAT):
                raise ValueError(
                    f"{self.index_path} holds a {meta.get('type')}.{meta.get('format')}, not a dense index"
                )
            self._meta = meta
        return dict(self._meta)

    @property
    def similarity(self) -> str:
        """How vectors are compared: "dot" or "cosine"."""
        if self._similarity is None and self.built() and not self.overwrite:
            return self.meta.get("convsearch", {}).get("similarity") or "dot"
        return self._similarity or "dot"

    @property
    def encoder(self) -> BiEncoder | None:
        """The encoder given, or the one that the index was built with, if it can be loaded by name; else None."""
        if self._encoder is None and self.built() and not self.overwrite:
            spec = self.meta.get("convsearch", {}).get("encoder_spec")
            if spec is not None:
                encoder = BiEncoder(**spec)
                self._check(encoder)
                self._encoder = encoder
        return self._encoder

    def check_encoder(self, encoder: BiEncoder) -> None:
        """Refuse an encoder that cannot search this index.

        Raises:
            ValueError: it was built with another one; the message names what differs.
        """
        self._check(encoder)

    def _check(self, encoder: BiEncoder | None) -> None:
        """Refuse an encoder or a similarity that the index was not built with."""
        stored = self.meta.get("convsearch", {})
        if self._similarity is not None and stored.get("similarity", self._similarity) != self._similarity:
            raise ValueError(
                f"the index at {self.index_path} was built with similarity {stored['similarity']!r}, "
                f"not {self._similarity!r}: open it as it is, or overwrite=True and .index(passages) rebuild it"
            )
        if encoder is None:
            return
        ours = encoder.identity()
        theirs = stored.get("encoder") or {"dimensions": self.meta["vec_size"]}
        check_encoder(theirs, ours, self.index_path)

    def payload(self, return_dvecs: bool = True, return_docnos: bool = True) -> list[Any]:
        """pyterrier_dr's entry to the files: [docnos, vectors, metadata]."""
        if (return_dvecs or return_docnos) and self._dvecs is None:
            self._open()
        return [*([self._docnos] * return_docnos), *([self._dvecs] * return_dvecs), self.meta]

    def _open(self) -> None:
        """Map vectors and docnos together: an index that is replaced meanwhile stays what it was to who opened it.

        Raises:
            ValueError: a file is missing, cut, or of another index, or the encoder is not the one it was built with.
        """
        self._meta = None  # it may have been read before the index was replaced
        self._check(self._encoder)
        count, dimensions = self.meta["doc_count"], self.meta["vec_size"] or 0
        path = self.index_path / "vecs.f4"
        size = path.stat().st_size if path.is_file() else 0
        if size != count * dimensions * 4:
            raise ValueError(
                f"{path} holds {size} bytes, not {count} x {dimensions} x 4: the index is damaged, rebuild it"
            )
        self._docnos = self._read_docnos(count)
        shape = (count, dimensions)
        self._dvecs = np.memmap(path, np.float32, "r", shape=shape) if size else np.empty(shape, dtype=np.float32)

    def _read_docnos(self, count: int) -> Any:
        if not count:
            return _NoDocnos()
        path = self.index_path / "docnos.npids"
        try:
            docnos = Lookup(path)
            found = len(docnos)
        except Exception as error:  # npids reads what is there, and fails in many ways
            raise ValueError(f"{path} is missing or cut ({error}): the index is damaged, rebuild it") from error
        if found != count:
            raise ValueError(f"{path} holds {found} docnos, not {count}: the index is damaged, rebuild it")
        return docnos

    def replaced(self) -> bool:
        """Whether another index lies at the path by now than the one that is open."""
        self.payload()
        return json_or_none(self.index_path / "pt_meta.json") != self._meta

    @property
    def vectors(self) -> np.ndarray:
        """All vectors, memory-mapped: float32 of shape (passages, dimensions)."""
        return self.payload(return_docnos=False)[0]

    @cached_property
    def max_norm(self) -> float:
        """The length of the longest vector."""
        stored = self.meta.get("convsearch", {}).get("max_norm")
        if stored is not None:
            return float(stored)
        blocks = (self.vectors[start : start + 100_000] for start in range(0, len(self), 100_000))
        return max((float(np.linalg.norm(block, axis=1).max()) for block in blocks), default=0.0)

    @cached_property
    def _strings(self) -> pd.api.extensions.ExtensionArray:
        return pd.array(list(read_docnos(self.docnos())), dtype="str")

    def docnos_of(self, numbers: np.ndarray) -> pd.api.extensions.ExtensionArray:
        """The docnos of passages by their number, as pandas strings."""
        if len(numbers) == 0:
            return pd.array([], dtype="str")
        if "_strings" not in self.__dict__ and len(numbers) * 8 < len(self):
            return pd.array(self.docnos().fwd[numbers].astype(object), dtype="str")
        return self._strings.take(numbers)

    def numbers_of(self, docnos: pd.Series) -> np.ndarray:
        """The numbers of passages by their docno.

        Raises:
            ValueError: a docno that is not in the index; the message names the first three.
        """
        wanted = [str(docno) for docno in docnos]
        numbers = numbers_of_docnos(self.docnos(), wanted)
        unknown = list(dict.fromkeys(docno for docno, number in zip(wanted, numbers, strict=True) if number < 0))
        if unknown:
            from ..topics.checks import first_three

            raise ValueError(f"{len(unknown)} docnos are not in the index at {self.index_path}: {first_three(unknown)}")
        return numbers

    def _load_docids(self, inp: pd.DataFrame) -> np.ndarray:
        if "docno" in inp.columns:
            return self.numbers_of(inp["docno"])
        return super()._load_docids(inp)

    # -- building ------------------------------------------------------------------------------------------------------

    def index(self, inp: Iterable[dict[str, Any]] | pd.DataFrame) -> DenseIndex:
        """Encode and store a collection.

        Passages are encoded in blocks that are kept beside the index (``PATH.building``) until all are done; the
        folder is renamed then. After a kill, the next call says how many blocks it found and goes on where the
        passages and the encoder are the same.

        Args:
            inp: dicts, or a frame, with ``docno`` and the encoder's text field (and title), or ``docno`` and
                ``doc_vec``.

        Returns:
            this index.

        Raises:
            FileExistsError: there is an index already and ``overwrite`` is not set, or the path holds something else.
            ValueError: a docno that is missing or repeated, a text that is missing, a vector with NaN, no encoder and
                no vectors.
        """
        return self.indexer().index(inp)

    def indexer(self, *, mode: Any = None) -> DenseIndexer:
        """The stage that writes this index, to end a pipeline; ``mode="overwrite"`` replaces one that exists."""
        overwrite = self.overwrite if mode is None else getattr(mode, "value", mode) == "overwrite"
        return DenseIndexer(self, overwrite=overwrite)

    def get_corpus_iter(
        self, start_idx: int | None = None, stop_idx: int | None = None, verbose: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Dicts of ``docno`` and ``doc_vec``, in the order of the collection."""
        from tqdm.auto import tqdm

        rows = range(*slice(start_idx, stop_idx).indices(len(self)))
        for row in tqdm(rows, desc="vectors", disable=not verbose):
            yield {"docno": self._strings[row], "doc_vec": self.vectors[row]}

    # -- the stages ----------------------------------------------------------------------------------------------------

    def retriever(
        self,
        *,
        num_results: int = 1000,
        exact: bool = True,
        faiss: str | None = None,
        nprobe: int | None = None,
        ef_search: int | None = None,
        batch_size: int | None = None,
        threads: int | None = None,
        verbose: bool = False,
    ) -> DenseRetriever:
        """Q -> R: the nearest passages; see :class:`~pt_convsearch.dense.DenseRetriever`."""
        return DenseRetriever(
            self, num_results=num_results, exact=exact, faiss=faiss, nprobe=nprobe, ef_search=ef_search,
            batch_size=batch_size, threads=threads, verbose=verbose,
        )  # fmt: skip

    def vec_loader(self) -> VecLoader:
        """Adds ``doc_vec`` to frames with ``docno``."""
        return VecLoader(self)

    np_vec_loader = vec_loader

    def scorer(self, *, num_results: int | None = None) -> DenseScorer:
        """R -> R: scores what another retriever found; see :class:`~pt_convsearch.dense.lookup.DenseScorer`."""
        return DenseScorer(self, num_results=num_results)

    np_scorer = scorer

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """A frame of queries is searched, a frame of results is scored."""
        stage = self.scorer() if "docno" in inp.columns else self.retriever()
        return stage.transform(inp)

    # -- identity ------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """A worker opens the files again."""
        state = {**self.__dict__, "_meta": None, "_docnos": None, "_dvecs": None, "_cache": {}}
        state.pop("_strings", None)
        return state

    def _key(self) -> tuple[Any, ...]:
        fingerprint = None
        if self.built():
            fingerprint = json.dumps(self.meta, sort_keys=True)
        return (str(self.index_path.resolve()), fingerprint, query_side(self._encoder, self._known()))

    def _contents(self) -> Any:
        """As of :class:`~pt_convsearch._stage.Stage`: not where the encoder lay when the index was built, either."""
        known = self._known()
        kept = [known.get(name) for name in ("similarity", "encoder", "collection")]
        if self.built() and known.get("collection") is None:  # pyterrier_dr's, or older
            kept = [index_contents(self.index_path), self.similarity]
        return [*kept, query_side(self._encoder, known)]

    def _known(self) -> dict[str, Any]:
        return dict(self.meta.get("convsearch", {})) if self.built() else {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseIndex):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((DenseIndex, str(self.index_path.resolve())))

    def __repr__(self) -> str:
        encoder = "" if self._encoder is None else f", {self._encoder!r}"
        return f"DenseIndex({str(self.index_path)!r}{encoder})"

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        return {"label": "DenseIndex", "help_url": None}

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}


class _NoDocnos:
    """The docnos of an index of no passages: npids cannot store none."""

    fwd: np.ndarray = np.empty(0, dtype="U1")

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        return iter(())
