"""Encoding a collection by many workers, on Ray Data."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import PathLike, clear_unfinished
from ..dense.building import BLOCK, block_digest, check_free
from ..dense.encoder import BiEncoder, normalized, titled
from ..dense.index import DenseIndex
from ..topics.checks import first_three
from . import building
from .cluster import connect, plain_errors
from .parts import Part, Parts, assemble_index, assemble_shards
from .sources import Source, blocks, source
from .storage import Storage

if TYPE_CHECKING:
    from .sharded import ShardedIndex

logger = logging.getLogger(__name__)


def encode(
    corpus: Any,
    encoder: BiEncoder,
    path: PathLike,
    *,
    passages_per_shard: int | None = None,
    num_workers: int | None = None,
    num_gpus: float | None = None,
    threads: int = 1,
    batch_size: int | None = None,
    storage_options: dict[str, Any] | None = None,
    overwrite: bool = False,
    verbose: bool = False,
) -> DenseIndex | ShardedIndex:
    """Encode a collection with many workers into one index, or into shards.

    One Ray Data pipeline: a task reads the collection as a stream and cuts it into blocks of 4,096 passages; a pool of
    actors, the model loaded once in each, encodes them, sorted by length within a block; each block is written in one
    step as a part, with its docnos, count and checksum. The parts are then put together in the order of the
    collection. Blocks, texts and order are those of ``cs.DenseIndex(path, encoder).index(corpus)``, and so are the
    vectors, to rounding.

    Where a worker or a machine is lost, Ray does its block again. Where the driver is lost, the same call goes on:
    parts that are whole, of the same passages and the same encoder, are kept.

    Args:
        corpus: a data set of ours (or "convsearch:NAME"), a function that gives an iterator of dicts, JSON Lines or
            parquet files (a path, folder, pattern or address, or a list of them), a data frame, or any iterable of
            dicts with ``docno`` and the encoder's text field; an iterable is first copied to disk, as a stream.
        encoder: a :class:`~pt_convsearch.dense.BiEncoder`.
        path: a folder that all machines see, or an fsspec address (``s3://…``); an address always gives shards.
        passages_per_shard: None: one :class:`~pt_convsearch.dense.DenseIndex`. A number (rounded up to whole blocks): a
            :class:`~pt_convsearch.scale.ShardedIndex`.
        num_workers: actors; None: one per GPU of the cluster, or one per ``threads`` processors where there is none.
        num_gpus: GPUs per actor; None: 1 where the cluster has some, else 0.
        threads: processors per actor, and PyTorch's threads in it.
        batch_size: texts in a batch; None: the encoder's choice.
        storage_options: for fsspec's file system.
        overwrite: replace an index that exists.
        verbose: show progress.

    Raises:
        FileExistsError: there is an index already and ``overwrite`` is not set.
        ValueError: a passage without docno or text, a docno that came twice, a passage that the encoder cannot encode;
            the message names the docno. What was encoded is kept for the next run.
        ImportError: Ray is not installed.

    Example:
        >>> cs.scale.encode("passages/*.jsonl.gz", encoder, "passages.flex", num_workers=8)  # doctest: +SKIP

    Source: the encoding that took Kim & Kim (2022, Limitations) 28 hours on 8 GPUs for QReCC's 54 million passages.
    """
    if not isinstance(encoder, BiEncoder):
        raise TypeError(f"encoder is {encoder!r}: give a cs.BiEncoder")
    for name, value in (("passages_per_shard", passages_per_shard), ("num_workers", num_workers), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r}: a whole number from 1 on")
    storage = Storage(path, storage_options)
    sharded = storage.remote or passages_per_shard is not None
    if sharded:
        building.check_free(storage, overwrite=overwrite)
    else:
        check_free(storage.path, overwrite=overwrite)
    ray = connect()
    work = storage.child("parts") if storage.remote else storage.beside(".building")
    fields = [name for name in (encoder.title_field, encoder.text_field) if name]
    if not storage.remote:
        clear_unfinished(storage.path)
    with work.held():
        parts = Parts(work, {"encoder": encoder.identity(), "block": BLOCK})
        read = source(corpus, work.child("input"), fields, storage_options)
        reader = _Reader(read, fields, encoder.title_field, encoder.title_separator, parts.finished())
        done = _run(ray, reader, encoder, parts, num_workers, num_gpus, threads, batch_size, verbose)
        building.check_distinct([functools.partial(parts.docnos, part) for part in done])
        if not sharded:
            return assemble_index(encoder, parts, done, storage.path)
        per_shard = -(-(passages_per_shard or 1_000_000) // BLOCK)
        return assemble_shards(encoder, parts, done, storage, per_shard)


def _run(
    ray: Any,
    reader: _Reader,
    encoder: BiEncoder,
    parts: Parts,
    num_workers: int | None,
    num_gpus: float | None,
    threads: int,
    batch_size: int | None,
    verbose: bool,
) -> list[Part]:
    """Encode what is missing; all parts, in order."""
    from ray.data import ActorPoolStrategy, DataContext
    from tqdm.auto import tqdm

    resources = ray.cluster_resources()
    gpus = (1.0 if resources.get("GPU", 0) >= 1 else 0.0) if num_gpus is None else num_gpus
    if num_workers is None:
        num_workers = int(resources["GPU"] // gpus) if gpus else int(resources.get("CPU", 1) // threads)
    quiet = logging.getLogger("ray.data")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # a row, which is a block of passages, is what is handed out
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    found: dict[int, Part] = {}
    total = None
    try:
        with DataContext.current(context), plain_errors(f"encoding into {parts.storage.address}"):
            rows = (
                ray.data.from_items([0])  # no read task: it would wait for a processor that the actors hold
                .map_batches(reader, batch_size=None, num_cpus=0)
                .map_batches(
                    _Encoder, batch_size=None, fn_constructor_args=(encoder, parts, threads, batch_size),
                    compute=ActorPoolStrategy(size=max(1, num_workers)), num_cpus=threads, num_gpus=gpus,
                )
            )  # fmt: skip
            with tqdm(desc="encoding", unit="passage", disable=not verbose) as bar:
                for row in rows.iter_rows():
                    if row["error"]:
                        raise _failure(row["error"])
                    if row["number"] < 0:
                        total = int(row["count"])
                        continue
                    part = Part(**json.loads(row["part"]))
                    found[part.number] = part
                    bar.update(part.count)
    finally:
        quiet.setLevel(level)
    done = [found[number] for number in sorted(found)]
    if total is None or [part.number for part in done] != list(range(len(done))) or sum(p.count for p in done) != total:
        raise RuntimeError(
            f"{total} passages were read, {sum(part.count for part in done)} encoded in {len(done)} parts: "
            f"run it again, parts in {parts.storage.address} are kept"
        )
    return done


_ERRORS = {error.__name__: error for error in (ValueError, TypeError, FileNotFoundError, ImportError, KeyError)}


def _told(error: BaseException) -> str:
    return json.dumps([type(error).__name__, str(error)])


def _failure(told: str) -> Exception:
    name, message = json.loads(told)
    return _ERRORS.get(name, RuntimeError)(message)


def _row(
    number: int, count: int = 0, *, digest: str = "", docs: bytes = b"", part: str = "", error: str = ""
) -> dict[str, Any]:
    columns = {"number": number, "count": count, "digest": digest, "docs": docs, "part": part, "error": error}
    return {
        name: np.array([value], dtype=object if isinstance(value, bytes | str) else np.int64)
        for name, value in columns.items()
    }


class _Reader:
    """The collection as rows, one per block; a block that was encoded earlier comes as its part. Errors are rows."""

    def __init__(
        self, read: Source, fields: list[str], title_field: str | None, separator: str, finished: dict[int, Part]
    ) -> None:
        self.read = read
        self.fields = fields
        self.title_field = title_field
        self.separator = separator
        self.finished = finished
        self.block = BLOCK

    def __call__(self, _: dict[str, Any]) -> Iterator[dict[str, Any]]:
        total = 0
        try:
            for number, frame in blocks(self.read(), self.fields, self.block):
                titles = list(frame[self.title_field]) if self.title_field in frame.columns else None
                texts = titled(titles, frame[self.fields[-1]].tolist(), self.separator)
                docnos = frame["docno"].tolist()
                total += len(docnos)
                digest = block_digest(docnos, texts).hex()
                known = self.finished.get(number)
                if known is not None and known.digest == digest:
                    yield _row(number, len(docnos), part=known.to_json())
                else:
                    docs = json.dumps([docnos, texts]).encode()
                    yield _row(number, len(docnos), digest=digest, docs=docs)
        except Exception as error:  # told by the driver, without Ray's trace around it
            yield _row(-2, error=_told(error))
            return
        yield _row(-1, total)


class _Encoder:
    """An actor that holds the model and turns blocks into parts."""

    def __init__(self, encoder: BiEncoder, parts: Parts, threads: int, batch_size: int | None) -> None:
        import torch

        torch.set_num_threads(threads)
        self.encoder = encoder
        self.parts = parts
        self.batch_size = batch_size

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = [self._encoded({name: values[i] for name, values in batch.items()}) for i in range(len(batch["number"]))]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _encoded(self, row: dict[str, Any]) -> dict[str, Any]:
        number, count = int(row["number"]), int(row["count"])
        if number < 0 or row["part"]:
            return _row(number, count, part=row["part"], error=row["error"])
        try:
            docnos, texts = json.loads(row["docs"])
            before = self.encoder.cut["passage"]
            vectors = self._vectors(docnos, texts)
            cut = self.encoder.cut["passage"] - before
            part = self.parts.write(number, docnos, vectors, row["digest"], cut)
        except Exception as error:
            return _row(number, count, error=_told(error))
        return _row(number, count, part=part.to_json())

    def _vectors(self, docnos: list[str], texts: list[str]) -> np.ndarray:
        try:
            vectors = self.encoder.encode_docs(texts, batch_size=self.batch_size)
        except Exception as error:
            culprit = self._culprit(docnos, texts)
            if culprit is None:
                raise
            raise ValueError(f"the encoder cannot encode docno {culprit!r}: {type(error).__name__}: {error}") from error
        wrong = ~np.isfinite(vectors).all(axis=1)
        if wrong.any():
            named = first_three([docno for docno, bad in zip(docnos, wrong, strict=True) if bad])
            raise ValueError(
                f"the vector of docno {named} holds NaN or infinity: damaged weights, or overflow in half precision"
            )
        return normalized(vectors) if self.encoder.similarity == "cosine" else vectors

    def _culprit(self, docnos: list[str], texts: list[str]) -> str | None:
        """The docno whose text alone makes the encoder raise, found by halving; None where no half does."""
        while len(docnos) > 1:
            half = len(docnos) // 2
            for part in (slice(0, half), slice(half, None)):
                try:
                    self.encoder.encode_docs(texts[part], batch_size=self.batch_size)
                except Exception:
                    docnos, texts = docnos[part], texts[part]
                    break
            else:
                return None
        return docnos[0]
