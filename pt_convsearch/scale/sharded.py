"""An index in shards: what BM25 and dense ones have in common."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt

from .._files import PathLike, sha256
from .building import Recipe, build_shards
from .manifest import NAME, STATISTICS, Manifest, read_manifest
from .serving import LocalShards, RayShards
from .storage import Storage, damaged

Engine = Literal["threads", "ray"]


class ShardedIndex(pt.Indexer):
    """An index cut into shards, searched as if it were one: the same results, with the same scores and order of ties.

    ``ShardedIndex(path)`` opens what is there and is a :class:`ShardedBM25Index` or a :class:`ShardedDenseIndex`. For
    a new index, ``ShardedIndex(path, encoder)`` is a dense one (``similarity=`` in place of an encoder for vectors
    from elsewhere), ``ShardedIndex(path)`` BM25; each takes the options of its class too.

    Shards follow each other in the order of the collection. With ``engine="threads"`` this process maps the shards'
    files into memory and reads one shard for all queries before the next, so that the index may be larger than memory.
    With ``engine="ray"`` each shard is held by a Ray actor, several on a machine; an actor that is lost is started
    again. The files must be where every machine sees them: a folder on a shared disk, or an fsspec address
    (``s3://…``), from which each machine fetches the shards it serves into ``cache``.

    Args:
        path: a folder, or an address that fsspec knows.
        encoder: a :class:`~pt_convsearch.dense.BiEncoder`, for a dense index.
        passages_per_shard: how many passages a shard holds at most, when :meth:`index` builds it.
        engine: ``"threads"`` of this process, or ``"ray"``; for building and searching.
        threads: threads of this process that search; None: one per processor. With Ray: threads of each actor, None:
            one.
        num_workers: shards that Ray builds at the same time; None: one per processor of the cluster.
        storage_options: for fsspec's file system (keys, endpoint).
        cache: the folder for shards that were fetched; None: ~/.cache/pt_convsearch/shards.
        overwrite: :meth:`index` replaces a sharded index that exists.
        verbose: show progress.

    Raises:
        ValueError: the index was built with other settings than those given; the message names what differs.

    Example:
        >>> import tempfile, pt_convsearch as cs
        >>> docs = [{"docno": f"d{i}", "text": f"passage {i % 3} of the town"} for i in range(9)]
        >>> index = cs.scale.ShardedIndex(tempfile.mkdtemp() + "/x", passages_per_shard=4, threads=1).index(docs)
        >>> index.num_shards, index.bm25(num_results=2).search("passage 2")["docno"].tolist()
        (3, ['d2', 'd5'])
    """

    kind: str = ""

    def __new__(cls, path: PathLike = "", *arguments: Any, **options: Any) -> ShardedIndex:
        if cls is not ShardedIndex:
            return super().__new__(cls)
        from .sharded_bm25 import ShardedBM25Index
        from .sharded_dense import ShardedDenseIndex

        encoder = arguments[0] if arguments else options.get("encoder")
        dense = encoder is not None or options.get("similarity") is not None
        storage = Storage(path, options.get("storage_options"), options.get("cache"))
        if storage.exists(NAME) and not options.get("overwrite"):
            kind = read_manifest(storage).kind
            if dense and kind != "dense":
                raise ValueError(f"{storage.address} holds BM25 shards: they take no encoder")
            dense = kind == "dense"
        return super().__new__(ShardedDenseIndex if dense else ShardedBM25Index)

    def __init__(
        self,
        path: PathLike,
        *,
        passages_per_shard: int = 1_000_000,
        engine: Engine = "threads",
        threads: int | None = None,
        num_workers: int | None = None,
        storage_options: dict[str, Any] | None = None,
        cache: PathLike | None = None,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        if engine not in ("threads", "ray"):
            raise ValueError(f"engine={engine!r}: 'threads' or 'ray'")
        for name, value in (
            ("passages_per_shard", passages_per_shard),
            ("threads", threads),
            ("num_workers", num_workers),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value!r}: a whole number from 1 on")
        self.path = os.fspath(path)
        self.passages_per_shard = int(passages_per_shard)
        self.engine = engine
        self.threads = threads
        self.num_workers = num_workers
        self.overwrite = overwrite
        self.verbose = verbose
        self.storage = Storage(path, storage_options, cache)
        if self.built() and not overwrite:
            self._check(self.manifest.settings)

    def _check(self, settings: dict[str, Any]) -> None:
        """Raise where settings that were given are not those of the index."""

    def _recipe(self) -> Recipe:
        raise NotImplementedError

    def _opener(self, number: int) -> Callable[[], Any]:
        raise NotImplementedError

    # -- building

    def built(self) -> bool:
        """Is there a whole index at the address?"""
        return self.storage.exists(NAME)

    def index(self, iter: Iterable[dict[str, Any]] | pd.DataFrame) -> ShardedIndex:  # type: ignore[override]
        """Build the index from a stream of passages.

        Shards are finished one by one; a run that was killed is taken up by the next, which makes only what is missing
        or was made of other passages.

        Args:
            iter: dicts (or a frame) as the index of one machine takes them.

        Returns:
            this index.

        Raises:
            FileExistsError: something lies at the address, and ``overwrite`` was not given.
            ValueError: a docno that is missing or came twice, a passage without text.
        """
        self.close()
        build_shards(
            iter, self.storage, self._recipe(), passages_per_shard=self.passages_per_shard, engine=self.engine,
            num_workers=self.num_workers, overwrite=self.overwrite, verbose=self.verbose,
        )  # fmt: skip
        self._forget()
        return self

    # -- what it holds

    @functools.cached_property
    def manifest(self) -> Manifest:
        """Settings, shards and checksums."""
        return read_manifest(self.storage)

    @property
    def num_shards(self) -> int:
        return len(self.manifest.shards)

    def __len__(self) -> int:
        """How many passages there are."""
        return self.manifest.num_docs

    @property
    def num_docs(self) -> int:
        """N: how many passages there are."""
        return len(self)

    @functools.cached_property
    def firsts(self) -> np.ndarray:
        """The number of each shard's first passage in the collection, and how many there are in all."""
        return np.cumsum([0, *(shard.num_docs for shard in self.manifest.shards)])

    def by_shard(self, numbers: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Passages by the shard they are in: (shard, places in ``numbers``, numbers within the shard)."""
        shard = np.searchsorted(self.firsts, numbers, side="right") - 1
        order = np.argsort(shard, kind="stable")
        present, starts = np.unique(shard[order], return_index=True)
        places = np.split(order, starts[1:]) if len(present) else []
        return [(int(s), at, numbers[at] - self.firsts[s]) for s, at in zip(present, places, strict=True)]

    def verify(self) -> None:
        """Compare every file of every shard, and of the statistics of the whole, with its checksum.

        Raises:
            ValueError: a file is missing, cut or altered; the message names the shard and the file.
        """
        manifest = self.manifest
        folders = [(shard.name, shard.files, shard.digest) for shard in manifest.shards]
        if manifest.statistics:
            folders.append((STATISTICS, manifest.statistics, manifest.build))
        for folder_name, files, build in folders:
            folder = self.storage.local(folder_name, files, build=build)
            for name, known in files.items():
                if sha256(folder / name) != known["sha256"]:
                    raise damaged(f"{self.storage.address}/{folder_name}", f"{name} is not what was written")

    # -- who answers

    @functools.cached_property
    def serving(self) -> LocalShards | RayShards:
        """Who holds the shards: threads of this process, or Ray actors."""
        openers = [self._opener(number) for number in range(self.num_shards)]
        if self.engine == "threads":
            return LocalShards(openers, self.threads)
        names = [f"{self.storage.address}/{shard.name}" for shard in self.manifest.shards]
        return RayShards(openers, names, f"{self.storage.address}\n{self.manifest.build}")

    def close(self) -> None:
        """Let go of the shards: files are closed, actors end."""
        if "serving" in self.__dict__:
            self.serving.close()
        self._forget()

    def _forget(self) -> None:
        for name in ("manifest", "firsts", "serving"):
            self.__dict__.pop(name, None)

    def ask_all(
        self, method: str, arguments: Callable[[int], tuple[Any, ...]], shards: Iterable[int] | None = None
    ) -> list[Any]:
        """One question to many shards at the same time."""
        numbers = range(self.num_shards) if shards is None else shards
        return list(self.serving.run((number, method, arguments(number)) for number in numbers))

    def gathered(self, method: str, numbers: np.ndarray, *arguments: Any) -> list[tuple[np.ndarray, Any]]:
        """What shards say of passages: (places in ``numbers``, answer of the shard that has them)."""
        parts = self.by_shard(numbers)
        answers = self.serving.run((shard, method, (local, *arguments)) for shard, _, local in parts)
        return [(places, answer) for (_, places, _), answer in zip(parts, answers, strict=True)]

    # -- identity

    def _key(self) -> tuple[Any, ...]:
        return (type(self), self.storage.address, self.manifest.build if self.built() else None)

    def _contents(self) -> Any:
        """As of :class:`~pt_convsearch._stage.Stage`: the passages and the settings, not who serves them, nor where."""
        if not self.built():
            return None
        settings = {name: value for name, value in self.manifest.settings.items() if name != "encoder_spec"}
        return [self.manifest.kind, settings, [(shard.num_docs, shard.digest) for shard in self.manifest.shards]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardedIndex) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((ShardedIndex, self.storage.address))

    def __repr__(self) -> str:
        engine = "" if self.engine == "threads" else f", engine={self.engine!r}"
        return f"ShardedIndex({self.path!r}{engine})"

    def __getstate__(self) -> dict[str, Any]:
        """A worker opens the shards again, or finds the actors that serve them."""
        dropped = ("manifest", "firsts", "serving", "_reading")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}


def differing(storage: Storage, differ: list[str]) -> ValueError:
    return ValueError(
        f"the index at {storage.address} was built with other settings: {'; '.join(differ)}. Leave the option out to "
        "use the index as it is, or give overwrite=True and index the collection again"
    )


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:20] + "…"
