"""Any pipeline on many workers: rows go out by whole conversations and queries, results come back in order."""

from __future__ import annotations

import hashlib
import itertools
import logging
import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._files import PathLike
from .._stage import Stage
from ..topics.frames import frames_of
from .cluster import connect, first_line, plain_errors
from .frames import frame_bytes, frame_from_bytes
from .storage import Storage

logger = logging.getLogger(__name__)

_KEYS = ("conversation_id", "qid", "docno")


def on_ray(
    pipeline: pt.Transformer,
    *,
    num_workers: int | None = None,
    batch_size: int = 256,
    num_cpus: float = 1,
    num_gpus: float = 0,
    checkpoint: PathLike | None = None,
    storage_options: dict[str, Any] | None = None,
    verbose: bool = False,
) -> OnRay:
    """A transformer that does what ``pipeline`` does, on many workers: see :class:`OnRay`, with the same options."""
    return OnRay(
        pipeline, num_workers=num_workers, batch_size=batch_size, num_cpus=num_cpus, num_gpus=num_gpus,
        checkpoint=checkpoint, storage_options=storage_options, verbose=verbose,
    )  # fmt: skip


class OnRay(Stage):
    """Spreads the rows of a frame over Ray actors that each hold the pipeline.

    Rows of one conversation (``conversation_id``, else ``qid``, else ``docno``) are never parted. Results come back in
    the order of the rows that went in, so that a pipeline whose results for a query depend on that query alone, as
    retrieval, rewriting, re-ranking, mining and expansion do, gives the same frame as without it. A worker that is
    lost is started again and its rows are done again. Input and output are those of the pipeline.

    As an iterator (``on_ray(expander) >> index``) it streams: a few batches per worker are in memory.

    Args:
        pipeline: any transformer that can be pickled; sent to each worker once.
        num_workers: actors; None: as many as the cluster's processors (or GPUs) allow.
        batch_size: rows sent together, at least; more where a conversation or query is larger.
        num_cpus: processors of an actor.
        num_gpus: GPUs of an actor.
        checkpoint: a folder or fsspec address in which the result of each batch is kept until it is removed: the next
            run over the same rows with the same pipeline (told by its pickled form, and its indexes by their content)
            takes it from there. None: nothing is kept.
        storage_options: for fsspec's file system.
        verbose: show progress.

    Raises:
        TypeError: the pipeline, or a stage in it, cannot be sent to another process; the message names it.
        ImportError: Ray is not installed (when rows come).

    Example:
        >>> mined = cs.scale.on_ray(cs.form(cs.X) >> bm25, num_workers=8)(topics)     # doctest: +SKIP
        >>> cs.Experiment([cs.scale.on_ray(cs.form(cs.X) >> bm25)], topics, qrels, [RR])  # doctest: +SKIP
    """

    def __init__(
        self,
        pipeline: pt.Transformer,
        *,
        num_workers: int | None = None,
        batch_size: int = 256,
        num_cpus: float = 1,
        num_gpus: float = 0,
        checkpoint: PathLike | None = None,
        storage_options: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        if not isinstance(pipeline, pt.Transformer):
            raise TypeError(f"{pipeline!r} is no PyTerrier transformer: a function becomes one by pt.apply")
        for name, value in (("num_workers", num_workers), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value!r}: a whole number from 1 on")
        self.pipeline = pipeline
        self.num_workers = num_workers
        self.batch_size = batch_size
        self.num_cpus = num_cpus
        self.num_gpus = num_gpus
        self.checkpoint = checkpoint
        self.storage_options = storage_options
        self.verbose = verbose
        self._digest = hashlib.sha256(shipped(pipeline)).digest()

    def _identity(self) -> tuple[Any, ...]:
        return (("pipeline", self.pipeline),)

    def __repr__(self) -> str:
        return f"on_ray({self.pipeline!r})"

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {"pipeline": self.pipeline}

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """``on_ray(retriever) % k`` asks the retriever in the workers for k."""
        fuse = getattr(self.pipeline, "fuse_rank_cutoff", None)
        fused = fuse(k) if fuse is not None else None
        return None if fused is None else self._around(fused)

    def _around(self, pipeline: pt.Transformer) -> OnRay:
        return OnRay(
            pipeline, num_workers=self.num_workers, batch_size=self.batch_size, num_cpus=self.num_cpus,
            num_gpus=self.num_gpus, checkpoint=self.checkpoint, storage_options=self.storage_options,
            verbose=self.verbose,
        )  # fmt: skip

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        if len(inp) == 0:
            return self.pipeline.transform(inp)  # also how PyTerrier asks for the columns
        parts = cut_frame(inp, self.batch_size)
        done = list(self._results(iter(parts), len(parts)))
        filled = [(part, result) for part, result in zip(parts, done, strict=True) if len(result)]
        if not filled:
            return done[0]
        kept = all(result.index.equals(part.index) for part, result in filled)
        return pd.concat([result for _, result in filled], ignore_index=not kept)

    def transform_iter(self, inp: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for result in self._results(frames_of(inp, self.batch_size), None):
            yield from result.to_dict("records")  # type: ignore[misc]

    def _results(self, parts: Iterator[pd.DataFrame], total: int | None) -> Iterator[pd.DataFrame]:
        """The pipeline's results for each part, in order; few are in memory or under way at a time."""
        from tqdm.auto import tqdm

        storage = None if self.checkpoint is None else Storage(self.checkpoint, self.storage_options)
        if storage is not None:
            storage.sweep()
        key = hashlib.sha256(self._digest + "\n".join(_indexes(self.pipeline)).encode()).digest()
        workers = _Workers(self)
        pending: deque[tuple[str, Any]] = deque()
        try:
            with tqdm(desc=repr(self), total=total, unit="batch", disable=not self.verbose) as bar:

                def finished() -> pd.DataFrame:
                    name, waiting = pending.popleft()
                    bar.update()
                    if isinstance(waiting, pd.DataFrame):
                        return waiting
                    result = workers.result(waiting)
                    if storage is not None:
                        storage.write(name, frame_bytes(result))
                    return result

                for part in parts:
                    name = (
                        "" if storage is None else f"{hashlib.sha256(key + frame_bytes(part)).hexdigest()[:32]}.parquet"
                    )
                    known = None if storage is None else kept_result(storage, name)
                    pending.append((name, workers.submit(part) if known is None else known))
                    while len(pending) > workers.limit:
                        yield finished()
                while pending:
                    yield finished()
        finally:
            workers.close()


def kept_result(storage: Storage, name: str) -> pd.DataFrame | None:
    """What an earlier run kept of a batch; None where there is nothing, or a file that is cut or altered."""
    if not storage.exists(name):
        return None
    try:
        return frame_from_bytes(storage.read(name))
    except Exception as error:  # whatever parquet and JSON say of such bytes
        logger.warning("%s/%s is damaged (%s): done again", storage.address, name, first_line(error))
        return None


class _Workers:
    """Actors that hold the pipeline, each given the next rows when it is free; started when rows come."""

    def __init__(self, stage: OnRay) -> None:
        self._stage = stage
        self._actors: list[Any] = []
        self._ray: Any = None
        self._owner: dict[Any, int] = {}
        self._busy: list[int] = []
        self.limit = 2

    def _start(self) -> None:
        self._ray = ray = connect()
        stage = self._stage
        resources = ray.cluster_resources()
        number = stage.num_workers
        if number is None:
            gpus = resources.get("GPU", 0) // stage.num_gpus if stage.num_gpus else float("inf")
            cpus = resources.get("CPU", 1) // stage.num_cpus if stage.num_cpus else resources.get("CPU", 1)
            number = max(1, int(min(gpus, cpus)))
        remote = ray.remote(
            num_cpus=stage.num_cpus, num_gpus=stage.num_gpus, max_restarts=100, max_task_retries=5,
            scheduling_strategy="SPREAD",
        )(PipelineActor)  # fmt: skip
        # cloudpickle, which also knows what was defined in a notebook; that plain pickle can do it was checked before
        self._blob = ray.put(stage.pipeline)
        self._actors = [remote.remote() for _ in range(number)]
        self._busy = [0] * number
        self.limit = 2 * number

    def submit(self, part: pd.DataFrame) -> Any:
        if not self._actors:
            self._start()
        if min(self._busy) >= 2:
            self._settle()
        actor = self._busy.index(min(self._busy))
        reference = self._actors[actor].transform.remote([self._blob], part)
        self._owner[reference] = actor
        self._busy[actor] += 1
        return reference

    def _settle(self) -> None:
        """Wait until an actor has answered: a slow one gets no further rows meanwhile."""
        done, _ = self._ray.wait(list(self._owner), num_returns=1)
        for reference in done:
            self._busy[self._owner.pop(reference)] -= 1

    def result(self, reference: Any) -> pd.DataFrame:
        with plain_errors(f"a worker of {self._stage!r}"):
            frame: pd.DataFrame = self._ray.get(reference)
        if reference in self._owner:
            self._busy[self._owner.pop(reference)] -= 1
        return frame

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []


class PipelineActor:
    """Holds the pipeline, fetched with the first rows, and again where the actor was lost."""

    def __init__(self) -> None:
        self._pipeline: pt.Transformer | None = None

    def transform(self, blob: list[Any], part: pd.DataFrame) -> pd.DataFrame:
        if self._pipeline is None:
            import ray

            self._pipeline = ray.get(blob[0])
        return self._pipeline.transform(part)


def shipped(pipeline: pt.Transformer) -> bytes:
    """The pipeline, pickled.

    Raises:
        TypeError: a stage cannot be pickled; the message names it and says what to do.
    """
    try:
        return pickle.dumps(pipeline)
    except Exception as error:
        culprit, why = _culprit(pipeline, error)
        raise TypeError(
            f"{culprit!r} cannot be sent to another process ({type(why).__name__}: {why}): put a function that is "
            "defined at the top of a module in place of a lambda or a nested function, and open files, connections and "
            "models inside the stage when it is first used"
        ) from error


def _indexes(stage: pt.Transformer) -> Iterator[str]:
    """What tells the state of each index behind a pipeline: its pickled form knows the path alone."""
    index = getattr(stage, "index", None)
    for name in ("_identity", "_key"):
        if index is not None and hasattr(index, name):
            yield repr(getattr(index, name)())
    for value in pt.inspect.subtransformers(stage).values():
        for inner in value if isinstance(value, list) else [value]:
            yield from _indexes(inner)


def _culprit(stage: Any, error: Exception) -> tuple[Any, Exception]:
    """The smallest stage inside that cannot be pickled."""
    inner = pt.inspect.subtransformers(stage) if isinstance(stage, pt.Transformer) else {}
    for value in inner.values():
        for part in value if isinstance(value, list) else [value]:
            try:
                pickle.dumps(part)
            except Exception as why:
                return _culprit(part, why)
    return stage, error


def cut_frame(frame: pd.DataFrame, size: int) -> list[pd.DataFrame]:
    """Runs of at least ``size`` rows; rows of one conversation, query or document stay together.

    >>> [len(part) for part in cut_frame(pd.DataFrame({"qid": ["1", "1", "1", "2", "3"]}), 2)]
    [3, 2]
    """
    column = next((name for name in _KEYS if name in frame.columns), None)
    if column is None:
        ends = np.arange(1, len(frame) + 1)
    else:
        codes = pd.factorize(frame[column])[0]
        last = np.zeros(codes.max() + 2, dtype=np.int64)
        last[codes] = np.arange(len(codes))  # a missing id (-1) is a key like any other: the last place
        # a cut may stand where no key of the rows before comes again
        ends = np.flatnonzero(np.maximum.accumulate(last[codes]) == np.arange(len(codes))) + 1
    cuts = [0]
    for end in ends.tolist():
        if end - cuts[-1] >= size or end == len(frame):
            cuts.append(end)
    return [frame.iloc[start:end] for start, end in itertools.pairwise(cuts)]
