"""Encoded blocks on disk, and how they become an index."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from .._files import put, write_json, written
from ..dense.building import metadata
from ..dense.docnos import write_docnos
from ..dense.encoder import BiEncoder
from ..dense.index import DenseIndex
from .cluster import connect, plain_errors
from .manifest import NAME, Manifest, Shard
from .storage import Storage, damaged, described

if TYPE_CHECKING:
    from .sharded_dense import ShardedDenseIndex

logger = logging.getLogger(__name__)

_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Part:
    """An encoded block: number, count of passages, digest of their texts, checksum of the file, what was counted."""

    number: int
    count: int
    digest: str
    sha256: str
    dimensions: int
    max_norm: float
    cut: int

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}.arrow"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Content(NamedTuple):
    """What a part holds."""

    docnos: list[str]
    vectors: np.ndarray


class Parts:
    """The folder of parts: ``part-N.arrow`` (docno, vector), vouched for by a ``part-N.json`` that is written after it.

    Args:
        storage: the folder.
        settings: what the vectors depend on; parts made with others are removed.
    """

    def __init__(self, storage: Storage, settings: dict[str, Any]) -> None:
        self.storage = storage
        content = json.dumps(settings, sort_keys=True).encode()
        if storage.exists(_SETTINGS) and storage.read(_SETTINGS) == content:
            return
        if storage.names():
            logger.info("%s: an earlier run was stopped, with another encoder; starting anew", storage.address)
            storage.clear()
        storage.write(_SETTINGS, content)

    def finished(self) -> dict[int, Part]:
        """Parts that an earlier run wrote, those that are whole on disk."""
        names = self.storage.names()
        records = [name for name in names if name.startswith("part-") and name.endswith(".json")]
        parts = [Part(**json.loads(content)) for content in self.storage.read_all(records)]
        there = set(names)
        kept = {part.number: part for part in parts if part.name in there and self._whole(part)}
        if kept:
            logger.info(
                "%s: found %d parts of %d passages that an earlier run encoded; going on from there",
                self.storage.address, len(kept), sum(part.count for part in kept.values()),
            )  # fmt: skip
        return kept

    def _whole(self, part: Part) -> bool:
        return self.storage.remote or self.storage.size(part.name) >= part.count * part.dimensions * 4

    def write(self, number: int, docnos: list[str], vectors: np.ndarray, digest: str, cut: int) -> Part:
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        table = pa.table({"docno": pa.array(docnos, pa.large_string()), "vector": values})
        out = io.BytesIO()
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        content = out.getvalue()
        norm = float(np.linalg.norm(vectors, axis=1).max()) if len(vectors) else 0.0
        part = Part(number, len(docnos), digest, hashlib.sha256(content).hexdigest(), vectors.shape[1], norm, cut)
        self.storage.write(part.name, content)
        self.storage.write(f"part-{number:06d}.json", part.to_json().encode())
        return part

    def read(self, part: Part) -> Content:
        """What a part holds.

        Raises:
            ValueError: the file is missing, cut or altered; the message names it.
        """
        try:
            content = self.storage.read(part.name)
        except FileNotFoundError as error:
            raise damaged(f"{self.storage.address}/{part.name}", "it is missing") from error
        if hashlib.sha256(content).hexdigest() != part.sha256:
            self.storage.remove(f"part-{part.number:06d}.json")
            raise ValueError(
                f"part {self.storage.address}/{part.name} is cut or altered (its checksum differs): run it "
                "again, only this part will be encoded anew"
            )
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        vectors = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return Content(table["docno"].to_pylist(), vectors.reshape(len(table), part.dimensions))

    def docnos(self, part: Part) -> list[str]:
        """The docnos of a part."""
        return self.read(part).docnos


def write_index(encoder: BiEncoder, parts: Parts, chosen: Sequence[Part], folder: Path) -> None:
    """Write some parts, one after another, as the files of a :class:`DenseIndex` into an empty folder."""
    folder.mkdir(parents=True)
    docnos: list[str] = []
    with (folder / "vecs.f4").open("wb") as out:
        for part in chosen:
            content = parts.read(part)
            docnos += content.docnos
            out.write(np.ascontiguousarray(content.vectors).data)
    if docnos:
        write_docnos(docnos, folder / "docnos.npids")
    else:
        (folder / "docnos.npids").touch()
    digest = hashlib.sha256(b"".join(bytes.fromhex(part.digest) for part in chosen))
    meta = metadata(
        DenseIndex(folder / "none", encoder), dimensions=encoder.dimensions, count=len(docnos),
        collection=digest.hexdigest(),
        max_norm=max((part.max_norm for part in chosen), default=0.0), cut=sum(part.cut for part in chosen),
    )  # fmt: skip
    write_json(folder / "pt_meta.json", meta)


def assemble_index(encoder: BiEncoder, parts: Parts, done: Sequence[Part], path: Path) -> DenseIndex:
    """All parts as one index; the parts are removed."""
    with written(path) as folder:
        write_index(encoder, parts, done, folder)
    parts.storage.remove()
    return DenseIndex(path, encoder)


def assemble_shards(
    encoder: BiEncoder, parts: Parts, done: Sequence[Part], storage: Storage, parts_per_shard: int
) -> ShardedDenseIndex:
    """Parts as shards, put together by workers; the parts are removed."""
    from .sharded_dense import DenseRecipe, ShardedDenseIndex

    ray = connect()
    root = storage if storage.remote else storage.beside(".shards")
    if not storage.remote:
        root.remove()
    groups = [done[start : start + parts_per_shard] for start in range(0, len(done), parts_per_shard)]
    blob = ray.put(encoder)
    remote = ray.remote(num_cpus=1, max_retries=5)(_assemble_shard)
    with plain_errors(f"shards of {storage.address}"):
        shards: list[Shard] = ray.get([
            remote.remote(blob, parts, group, root, f"shard-{number:05d}") for number, group in enumerate(groups)
        ])  # fmt: skip
    first, placed = 0, []
    for shard in shards:
        placed.append(Shard(**{**shard.__dict__, "first": first}))
        first += shard.num_docs
    recipe = DenseRecipe(encoder, encoder.similarity)
    settings = {**recipe.settings(), **recipe.finish([], placed, Path())}
    root.write(NAME, Manifest("dense", uuid.uuid4().hex, settings, tuple(placed), {}).to_json())
    if not storage.remote:
        put(root.path, storage.path)
    parts.storage.remove()
    return ShardedDenseIndex(storage.address, encoder, storage_options=storage.options or None)


def _assemble_shard(encoder: BiEncoder, parts: Parts, chosen: Sequence[Part], root: Storage, name: str) -> Shard:
    root.remove(name)
    with root.making(name) as folder:
        write_index(encoder, parts, chosen, folder)
        files = described(folder)
        meta = json.loads((folder / "pt_meta.json").read_text(encoding="utf-8"))
    counts = {
        "vec_size": meta["vec_size"],
        **{k: meta["convsearch"][k] for k in ("max_norm", "cut_passages", "collection")},
    }
    return Shard(name, meta["doc_count"], counts["collection"], files, counts)
