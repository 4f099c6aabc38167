"""Building shards from a stream: one after another here, or on Ray; what a killed run finished is kept."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from .._files import clear_unfinished, put
from ..lexical.building import dicts
from ..topics.checks import first_three
from .cluster import connect, plain_errors
from .manifest import NAME, STATISTICS, Manifest, Shard
from .storage import Storage, described, room_for

logger = logging.getLogger(__name__)

_RECORDS = "records"
_ARRAY = "__array__"


class Recipe(Protocol):
    """How shards of one kind are made. Picklable."""

    kind: str
    fields: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """What the shards depend on, as JSON; goes into the manifest."""
        ...

    def build(self, folder: Path, docs: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Make a shard's folder; returns ``num_docs`` and whatever else is counted."""
        ...

    def docnos(self, folder: Path) -> Sequence[str]:
        """All docnos of a shard, in order."""
        ...

    def finish(self, folders: list[Path], shards: list[Shard], statistics: Path) -> dict[str, Any]:
        """Write what is known of the whole to a folder; returns what is added to the settings."""
        ...


def build_shards(
    docs: Iterable[dict[str, Any]] | pd.DataFrame,
    storage: Storage,
    recipe: Recipe,
    *,
    passages_per_shard: int,
    engine: str,
    num_workers: int | None,
    overwrite: bool,
    verbose: bool,
) -> Manifest:
    """Cut a stream into shards, build each, and write the manifest last.

    Raises:
        FileExistsError: something lies at the address, and ``overwrite`` was not given, or it is no sharded index.
        ValueError: a docno in more than one shard; whatever the index of a shard refuses.
    """
    check_free(storage, overwrite=overwrite)
    root = storage if storage.remote else storage.beside(".building")
    if not storage.remote:
        clear_unfinished(storage.path)
    with root.held():
        building = Building(storage, root, recipe, passages_per_shard)
        shards = building.run(dicts(docs), engine, num_workers, verbose)
        return building.finish(shards)


class Building:
    """The working folder: ``PATH.building`` beside a local address, the address itself elsewhere."""

    def __init__(self, storage: Storage, root: Storage, recipe: Recipe, passages_per_shard: int) -> None:
        self.storage = storage
        self.root = root
        self.recipe = recipe
        self.passages_per_shard = passages_per_shard
        settings = {"passages_per_shard": passages_per_shard, "kind": recipe.kind, **recipe.settings()}
        self._known = self._open(json.dumps(settings, sort_keys=True).encode())

    def _open(self, settings: bytes) -> dict[str, Shard]:
        header = f"{_RECORDS}/settings.json"
        if self.root.exists(header):
            if self.root.read(header) == settings:
                return self._records()
            logger.info("%s: an earlier run was stopped, with other settings; starting anew", self.root.address)
        self.root.clear()
        self.root.write(header, settings)
        return {}

    def _records(self) -> dict[str, Shard]:
        names = [name for name in self.root.names(_RECORDS) if name.startswith("shard-") and name.endswith(".json")]
        found = self.root.read_all([f"{_RECORDS}/{name}" for name in names])
        shards = {shard.name: shard for shard in (Shard(**json.loads(content)) for content in found)}
        if shards:
            logger.info("%s: found %d shards that an earlier run finished", self.root.address, len(shards))
        return shards

    def run(self, docs: Iterator[dict[str, Any]], engine: str, num_workers: int | None, verbose: bool) -> list[Shard]:
        from tqdm.auto import tqdm

        chunks = _chunks(docs, self.passages_per_shard)
        made = self._made_on_ray(chunks, num_workers) if engine == "ray" else itertools.starmap(self._made_here, chunks)
        with tqdm(desc="shards", unit="passage", disable=not verbose) as bar:
            shards = []
            for shard in made:
                shards.append(shard)
                bar.update(shard.num_docs)
        return sorted(shards, key=lambda shard: shard.name)

    def _made_here(self, name: str, chunk: Iterator[dict[str, Any]]) -> Shard:
        if name not in self._known:
            return make_shard(self.root, name, self.recipe, chunk)
        digest = self._spooled(name, chunk)
        return self._kept(name, digest) or make_shard(self.root, name, self.recipe, _read_spool(self.root, name))

    def _made_on_ray(
        self, chunks: Iterable[tuple[str, Iterator[dict[str, Any]]]], num_workers: int | None
    ) -> Iterator[Shard]:
        ray = connect()
        remote = ray.remote(num_cpus=1, max_retries=5)(_make_shard_from_spool)
        limit = num_workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        running: dict[Any, str] = {}

        def finished() -> Shard:
            done, _ = ray.wait(list(running), num_returns=1)
            name = running.pop(done[0])
            with plain_errors(f"shard {self.root.address}/{name}"):
                shard: Shard = ray.get(done[0])
            return shard

        try:
            for name, chunk in chunks:
                while len(running) >= limit:
                    yield finished()
                kept = self._kept(name, self._spooled(name, chunk))
                if kept is not None:
                    yield kept
                else:
                    running[remote.remote(self.root, name, self.recipe)] = name
            while running:
                yield finished()
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _kept(self, name: str, digest: str) -> Shard | None:
        shard = self._known.get(name)
        if shard is not None and shard.digest == digest and self._whole(shard):
            self.root.remove(f"{_RECORDS}/{name}.jsonl")
            return shard
        if shard is not None:
            logger.info(
                "%s/%s: the passages differ from those of the earlier run, or its files; made anew",
                self.root.address,
                name,
            )
        return None

    def _whole(self, shard: Shard) -> bool:
        try:
            return all(self.root.size(f"{shard.name}/{file}") == known["bytes"] for file, known in shard.files.items())
        except FileNotFoundError:
            return False

    def _spooled(self, name: str, chunk: Iterator[dict[str, Any]]) -> str:
        """Put the passages of a shard down where a worker can read them; returns their digest."""
        digest = hashlib.sha256()
        path = f"{_RECORDS}/{name}.jsonl"
        with room_for(f"{self.root.address}/{path}"), self.root.open(path, "wb") as out:
            for line in _lines(chunk, self.recipe.fields):
                digest.update(line)
                out.write(line)
        return digest.hexdigest()

    def finish(self, shards: list[Shard]) -> Manifest:
        """Compare docnos over shards, write what is known of the whole, then the manifest, and give it its name."""
        build = uuid.uuid4().hex
        folders = [self.root.local(shard.name, shard.files, build=shard.digest) for shard in shards]
        check_distinct([functools.partial(self.recipe.docnos, folder) for folder in folders])
        firsts = itertools.accumulate((shard.num_docs for shard in shards), initial=0)
        placed = [Shard(**{**shard.__dict__, "first": first}) for shard, first in zip(shards, firsts, strict=False)]
        self.root.remove(STATISTICS)
        with self.root.making(STATISTICS) as folder:
            folder.mkdir()
            added = self.recipe.finish(folders, placed, folder)
            files = described(folder)
        manifest = Manifest(self.recipe.kind, build, {**self.recipe.settings(), **added}, tuple(placed), files)
        names = {shard.name for shard in shards}
        for name in self.root.names():
            if name.startswith("shard-") and name not in names:  # of an earlier run over a larger collection
                self.root.remove(name)
        self.root.write(NAME, manifest.to_json())
        if not self.storage.remote:
            put(self.root.path, self.storage.path)
        self.storage.remove(_RECORDS)
        return manifest


def make_shard(root: Storage, name: str, recipe: Recipe, docs: Iterable[dict[str, Any]]) -> Shard:
    """Build one shard, and the record that vouches for it."""
    digest = hashlib.sha256()
    root.remove(f"{_RECORDS}/{name}.json")
    root.remove(name)
    with root.making(name) as folder:
        counts = recipe.build(folder, _digested(docs, recipe.fields, digest))
        files = described(folder)
    shard = Shard(name, counts.pop("num_docs"), digest.hexdigest(), files, counts)
    root.write(f"{_RECORDS}/{name}.json", shard.to_json())
    root.remove(f"{_RECORDS}/{name}.jsonl")
    return shard


def _make_shard_from_spool(root: Storage, name: str, recipe: Recipe) -> Shard:
    record = f"{_RECORDS}/{name}.json"
    if not root.exists(f"{_RECORDS}/{name}.jsonl") and root.exists(record):
        return Shard(**json.loads(root.read(record)))  # tried again after the worker was lost at its last step
    return make_shard(root, name, recipe, _read_spool(root, name))


def _read_spool(root: Storage, name: str) -> Iterator[dict[str, Any]]:
    with root.open(f"{_RECORDS}/{name}.jsonl", "rb") as lines:
        for line in lines:
            yield json.loads(line, object_hook=_from_plain)


def _chunks(docs: Iterator[dict[str, Any]], size: int) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """(name of the shard, its passages): each must be read to its end before the next."""
    for number in itertools.count():
        first = next(docs, None)
        if first is None:
            return
        yield f"shard-{number:05d}", itertools.chain([first], itertools.islice(docs, size - 1))


def _lines(docs: Iterable[dict[str, Any]], fields: tuple[str, ...]) -> Iterator[bytes]:
    for doc in docs:
        yield _line(doc, fields)


def _line(doc: dict[str, Any], fields: tuple[str, ...]) -> bytes:
    if not isinstance(doc, dict):
        raise TypeError(f"documents are dicts with docno and text, not {type(doc).__name__}: {str(doc)[:80]}")
    return json.dumps({name: doc[name] for name in fields if name in doc}, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    """What JSON does not know: arrays and tensors go as their bytes (as text they are four times as long, and slow)."""
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            return array.tolist()
        return {_ARRAY: base64.b64encode(array.tobytes()).decode(), "dtype": array.dtype.str, "shape": array.shape}
    raise TypeError(f"{value!r} ({type(value).__name__}) is neither text nor a vector")


def _from_plain(value: dict[str, Any]) -> Any:
    if _ARRAY not in value:
        return value
    return np.frombuffer(base64.b64decode(value[_ARRAY]), dtype=value["dtype"]).reshape(value["shape"])


def _digested(docs: Iterable[dict[str, Any]], fields: tuple[str, ...], digest: Any) -> Iterator[dict[str, Any]]:
    for doc in docs:
        digest.update(_line(doc, fields))
        yield doc


def check_distinct(docnos: Sequence[Callable[[], Sequence[str]]]) -> None:
    """Raises ValueError where a docno stands in more than one place; the message names the first three.

    Args:
        docnos: per shard, what gives its docnos: hashes are held of all, the docnos of one shard at a time.
    """
    hashes = [np.empty(0, dtype=np.uint64)]
    for read in docnos:
        values = np.asarray(read(), dtype=object)
        hashes.append(pd.util.hash_array(values, categorize=False) if len(values) else hashes[0])
    starts = np.cumsum([len(part) for part in hashes])
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    same = together[order[1:]] == together[order[:-1]]
    suspects = np.unique(np.concatenate([order[1:][same], order[:-1][same]]))
    shard = np.searchsorted(starts, suspects, side="right") - 1
    names: list[str] = []
    for number in np.unique(shard).tolist():
        values = docnos[number]()
        names += [str(values[i]) for i in (suspects[shard == number] - starts[number]).tolist()]
    found = pd.Series(names, dtype=str)
    repeated = found[found.duplicated()].drop_duplicates().tolist()
    if repeated:
        raise ValueError(f"docno {first_three(repeated)} came more than once ({len(repeated)} such): keep one of each")


def check_free(storage: Storage, *, overwrite: bool) -> None:
    """Raises FileExistsError where something lies that may not be replaced."""
    names = [name for name in storage.names() if not storage.remote or name not in (_RECORDS, "parts")]
    if NAME in names:
        if storage.exists(_RECORDS):
            storage.remove(_RECORDS)  # of a run that was killed at its very last step
        if not overwrite:
            raise FileExistsError(f"{storage.address} holds a sharded index already: overwrite=True replaces it")
        if storage.remote:
            storage.remove()
    elif not storage.remote and (names or (storage.path.exists() and not storage.path.is_dir())):
        raise FileExistsError(
            f"{storage.address} holds something that is no sharded index ({first_three(names)}): give another path"
        )
    elif storage.remote and any(not name.startswith(("shard-", STATISTICS)) for name in names):
        raise FileExistsError(
            f"{storage.address} holds something that is no sharded index ({first_three(names)}): give another address"
        )
