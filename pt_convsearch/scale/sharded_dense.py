"""Dense shards: exact search as over one index, or a FAISS index of any kind per shard."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from .._encoders import differing as differing_names, query_side
from .._files import PathLike
from ..dense import building
from ..dense.encoder import BiEncoder
from ..dense.index import DenseIndex
from ..dense.lookup import DenseScorer, VecLoader
from ..dense.retriever import DenseRetriever
from ..dense.search import nearest
from .building import Recipe
from .dense_shard import DenseShard
from .manifest import Shard
from .merging import Best
from .serving import LocalShards
from .sharded import ShardedIndex, differing, shown
from .sharded_bm25 import find_docnos, take_strings

if TYPE_CHECKING:
    from collections.abc import Iterator

#: queries that are compared with a shard together
QUERIES_PER_CALL = 512


class ShardedDenseIndex(ShardedIndex):
    """Dense shards, each a :class:`~pt_convsearch.dense.DenseIndex`; exact search gives what one index gives.

    Args:
        encoder: a :class:`~pt_convsearch.dense.BiEncoder`. None: the one that the shards were built with, or
            ``doc_vec`` and ``query_vec`` come from elsewhere.
        similarity: "dot" or "cosine" for vectors from elsewhere.
        passages_per_shard: with an encoder rounded up to whole blocks of 4,096, so that the vectors are those of one
            index to the last digit.
        options: the others of :class:`ShardedIndex`.

    With ``engine="ray"``, :meth:`index` encodes by :func:`~pt_convsearch.scale.encode`.

    Example:
        ``cs.form(cs.X) >> cs.scale.ShardedIndex("passages.shards", encoder).retriever(num_results=100)``
    """

    kind = "dense"

    def __init__(
        self,
        path: PathLike,
        encoder: BiEncoder | None = None,
        *,
        similarity: Literal["dot", "cosine"] | None = None,
        passages_per_shard: int = 1_000_000,
        **options: Any,
    ) -> None:
        if similarity not in (None, "dot", "cosine"):
            raise ValueError(f"similarity={similarity!r}: 'dot' or 'cosine'")
        if encoder is not None and not isinstance(encoder, BiEncoder):
            raise TypeError(f"encoder is {encoder!r}: give a cs.BiEncoder, or similarity= and doc_vec from elsewhere")
        self._encoder = encoder
        self._similarity = similarity if encoder is None else encoder.similarity
        if encoder is not None:
            passages_per_shard = -(-passages_per_shard // building.BLOCK) * building.BLOCK
        super().__init__(path, passages_per_shard=passages_per_shard, **options)

    def _check(self, settings: dict[str, Any]) -> None:
        if self._similarity is not None and settings["similarity"] != self._similarity:
            raise differing(
                self.storage, [f"similarity={self._similarity!r}, the index has {settings['similarity']!r}"]
            )
        theirs = settings.get("encoder")
        if self._encoder is None or theirs is None:
            return
        ours = self._encoder.identity()
        names = differing_names(theirs, ours)
        if names:
            raise differing(
                self.storage, [f"{name} is {shown(theirs[name])} there, {shown(ours.get(name))} here" for name in names]
            )

    def index_inputs(self) -> list[list[str]]:
        return [["docno", "doc_vec"]] if self._encoder is None else [["docno", self._encoder.text_field]]

    def index(self, iter: Iterable[dict[str, Any]] | pd.DataFrame) -> ShardedDenseIndex:  # type: ignore[override]
        if self.engine == "ray" and self._encoder is not None:
            from .encoding import encode

            self.close()
            encode(
                iter, self._encoder, self.path, passages_per_shard=self.passages_per_shard,
                num_workers=self.num_workers, storage_options=self.storage.options, overwrite=self.overwrite,
                verbose=self.verbose,
            )  # fmt: skip
            self._forget()
            return self
        super().index(iter)
        return self

    def _recipe(self) -> Recipe:
        return DenseRecipe(self._encoder, self._similarity)

    def _opener(self, number: int) -> Callable[[], Any]:
        return functools.partial(DenseShard.open, self.storage, number, self.manifest.build)

    def _contents(self) -> Any:
        known = self.manifest.settings if self.built() else {}
        return [super()._contents(), query_side(self._encoder, known)]

    # -- what DenseIndex offers too

    @property
    def index_path(self) -> str:
        """Where the index lies, for messages."""
        return self.storage.address

    @property
    def meta(self) -> dict[str, Any]:
        return dict(self.manifest.settings)

    @property
    def similarity(self) -> str:
        """How vectors are compared: "dot" or "cosine"."""
        return (
            self.manifest.settings["similarity"] if self.built() and not self.overwrite else self._similarity or "dot"
        )

    @property
    def encoder(self) -> BiEncoder | None:
        """The encoder given, or the one that the index was built with, if it can be loaded by name; else None."""
        if self._encoder is None and self.built():
            spec = self.manifest.settings.get("encoder_spec")
            if spec is not None:
                encoder = BiEncoder(**spec)
                self._encoder = encoder
                self._check(self.manifest.settings)
        return self._encoder

    @property
    def max_norm(self) -> float:
        """The length of the longest vector."""
        return float(self.manifest.settings["max_norm"])

    def docnos_of(self, numbers: np.ndarray) -> pd.api.extensions.ExtensionArray:
        """The docnos of passages by their number in the collection, as pandas strings."""
        return pd.array(take_strings(self, "docnos", np.asarray(numbers)), dtype="str")

    def docnos(self) -> list[str]:
        """All docnos, in the order of the collection."""
        return list(self.docnos_of(np.arange(len(self))))

    def numbers_of(self, docnos: pd.Series) -> np.ndarray:
        """The numbers of passages by their docno.

        Raises:
            ValueError: a docno that no shard has.
        """
        return find_docnos(self, docnos.tolist())

    @property
    def vectors(self) -> _Vectors:
        """The vectors by number of the passage: ``index.vectors[numbers]``."""
        return _Vectors(self)

    def get_corpus_iter(self) -> Iterator[dict[str, Any]]:
        """Dicts of ``docno`` and ``doc_vec``, in the order of the collection."""
        for start in range(0, len(self), 4096):
            numbers = np.arange(start, min(start + 4096, len(self)))
            for docno, vector in zip(self.docnos_of(numbers), self.vectors[numbers], strict=True):
                yield {"docno": docno, "doc_vec": vector}

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
    ) -> ShardedDenseRetriever:
        """Q -> R, with the options and columns of :class:`~pt_convsearch.dense.DenseRetriever`.

        ``exact=False`` searches a FAISS index per shard, built on first use beside the shard: ``faiss="SQfp16"``
        halves the memory, ``"SQ8"`` quarters it, ``"IVF1024,PQ48"`` and kin are smaller and faster still.
        :func:`~pt_convsearch.scale.recall_of` says what each loses.
        """
        return ShardedDenseRetriever(
            self, num_results=num_results, exact=exact, faiss=faiss, nprobe=nprobe, ef_search=ef_search,
            batch_size=batch_size, threads=threads, verbose=verbose,
        )  # fmt: skip

    def vec_loader(self) -> VecLoader:
        """Adds ``doc_vec`` to frames with ``docno``."""
        return VecLoader(self)  # type: ignore[arg-type]

    def scorer(self, *, num_results: int | None = None) -> DenseScorer:
        """R -> R: scores what another retriever found."""
        return DenseScorer(self, num_results=num_results)  # type: ignore[arg-type]


class _Vectors:
    def __init__(self, index: ShardedDenseIndex) -> None:
        self._index = index

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        numbers = np.asarray(numbers)
        found = np.empty((len(numbers), self._index.meta["vec_size"]), dtype=np.float32)
        for places, vectors in self._index.gathered("vectors", numbers):
            found[places] = vectors
        return found


class ShardedDenseRetriever(DenseRetriever):
    """:class:`~pt_convsearch.dense.DenseRetriever` over shards: the same columns, scores and order."""

    def __init__(self, index: ShardedDenseIndex, **options: Any) -> None:
        super().__init__(index, **options)  # type: ignore[arg-type]

    def _identity(self) -> tuple[Any, ...]:
        names = ("index", "num_results", "exact", "faiss", "nprobe", "ef_search")
        return tuple((name, getattr(self, name)) for name in names)

    def __repr__(self) -> str:
        shown = [repr(self.index), *(f"{name}={value!r}" for name, value in self._identity()[1:] if value is not None)]
        return f"ShardedDenseRetriever({', '.join(shown)})"

    def _search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index: Any = self.index
        k = min(self.num_results, len(index))
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if not self.exact:
            asked = np.full(index.num_shards, k)
            best = self._best(queries, k, "approximate", asked, (self.faiss, self.nprobe, self.ef_search))
            return best.docs, best.scores
        return nearest(queries, len(index), k, index.max_norm, self._candidates, self._dots)

    def _candidates(self, queries: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest passages of all shards, (queries, wanted): numbers and scores.

        Long lists are what sharding costs, so each shard is first asked for its share and some more. Only where the
        last that a shard gave is among the best of all, and more may follow, is it asked for the whole length.
        """
        index: Any = self.index
        sizes = np.diff(index.firsts)
        share = wanted * sizes / max(1, sizes.sum())
        asked = np.minimum(np.ceil(share + 4 * np.sqrt(share) + 4).astype(np.int64), wanted)
        lasts = np.empty((index.num_shards, len(queries)), dtype=np.float32)
        best = self._best(queries, wanted, "candidates", asked, (), lasts)
        more = (lasts >= best.scores[:, -1]) & (asked < np.minimum(wanted, sizes))[:, None]
        for shard in np.flatnonzero(more.any(axis=1)).tolist():
            rows = np.flatnonzero(more[shard])
            again = self._best(queries[rows], wanted, "candidates", np.full(1, wanted), (), shards=[shard])
            best.replace(rows, again, int(index.firsts[shard]), int(index.firsts[shard + 1]))
        return best.docs, best.scores

    def _best(
        self,
        queries: np.ndarray,
        k: int,
        method: str,
        asked: np.ndarray,
        options: tuple[Any, ...],
        lasts: np.ndarray | None = None,
        shards: Sequence[int] | None = None,
    ) -> Best:
        """The best ``k`` per query of what shards answer.

        Args:
            queries: float32 (queries, dimensions).
            k: results per query.
            method: of the shards.
            asked: results that each shard is asked for.
            options: of the method.
            lasts: filled with the last score that each shard gave for each query.
            shards: which ones; None: all.
        """
        index: Any = self.index
        serving = index.serving
        here = isinstance(serving, LocalShards)
        size = self.batch_size or QUERIES_PER_CALL
        parts = [slice(start, start + size) for start in range(0, len(queries), size)]
        best = Best(len(queries), k, np.float32)
        numbers = list(range(index.num_shards)) if shards is None else list(shards)
        order = (
            [(place, part) for place in range(len(numbers)) for part in range(len(parts))]
            if here
            else [(place, part) for part in range(len(parts)) for place in range(len(numbers))]
        )
        sent = [serving.shared(queries[part]) for part in parts]
        threads = self.threads or index.threads
        # FAISS itself spreads a call over threads: one call at a time here, one per actor on Ray
        calls = (
            (numbers[place], method, (sent[part], int(asked[place]), *options, threads if here else threads or 1))
            for place, part in order
        )
        for (place, part), (counts, docs, scores) in zip(order, serving.run(calls, 1), strict=True):
            best.add(counts, docs, scores, int(index.firsts[numbers[place]]), parts[part])
            if lasts is not None:
                ends = np.cumsum(counts)
                lasts[place, parts[part]] = np.where(counts > 0, scores[ends - 1], -np.inf) if len(scores) else -np.inf
        return best

    def _dots(self, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        index: Any = self.index
        found = np.empty(len(numbers))
        parts = index.by_shard(numbers)
        answers = index.serving.run((s, "dots", (queries[places], local)) for s, places, local in parts)
        for (_, places, _), values in zip(parts, answers, strict=True):
            found[places] = values
        return found


class DenseRecipe:
    """How a dense shard is built on one machine."""

    kind = "dense"

    def __init__(self, encoder: BiEncoder | None, similarity: str | None) -> None:
        self.encoder = encoder
        self.similarity = similarity
        fields = ("doc_vec",) if encoder is None else (encoder.title_field, encoder.text_field, "doc_vec")
        self.fields = ("docno", *(field for field in fields if field is not None))

    def _open(self, folder: Path) -> DenseIndex:
        similarity: Any = self.similarity
        return DenseIndex(folder, self.encoder, similarity=None if self.encoder is not None else similarity)

    def settings(self) -> dict[str, Any]:
        encoder = self.encoder
        return {
            "similarity": self.similarity or "dot",
            "encoder": None if encoder is None else encoder.identity(),
            "encoder_spec": None if encoder is None else encoder.spec(),
        }

    def build(self, folder: Path, docs: Iterable[dict[str, Any]]) -> dict[str, Any]:
        meta = self._open(folder).index(docs).meta
        known = meta["convsearch"]
        return {
            "num_docs": meta["doc_count"], "vec_size": meta["vec_size"], "max_norm": known["max_norm"],
            "cut_passages": known["cut_passages"], "collection": known["collection"],
        }  # fmt: skip

    def docnos(self, folder: Path) -> Sequence[str]:
        from ..dense.docnos import read_docnos

        index = DenseIndex(folder)
        return list(read_docnos(index.docnos())) if len(index) else []

    def finish(self, folders: list[Path], shards: list[Shard], statistics: Path) -> dict[str, Any]:
        sizes = {shard.counts["vec_size"] for shard in shards}
        if len(sizes) > 1:
            raise ValueError(f"doc_vec of {sorted(sizes)} dimensions in one collection")
        return {
            "vec_size": sizes.pop() if sizes else 0,
            "max_norm": max((shard.counts["max_norm"] for shard in shards), default=0.0),
            "cut_passages": sum(shard.counts["cut_passages"] for shard in shards),
        }
