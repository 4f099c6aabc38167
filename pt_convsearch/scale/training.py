"""Training a bi-encoder on several machines: ``cs.train`` in the workers of Ray Train."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import os
import shutil
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _files
from ..negatives import TrainingPairs
from .cluster import connect, first_line, ray_module
from .progress import training_bar

if TYPE_CHECKING:
    from ..dense import BiEncoder

logger = logging.getLogger(__name__)

_SHARED = "pairs, init and out must be where every machine sees them under the same name: on a shared disk"
#: how the libraries under torch.distributed say that another process went away, and torch calls it
_PEER_GONE = ("gloo", "nccl", "connection closed by peer", "connection reset", "broken pipe", "timed out waiting")
_PEER_ERRORS = frozenset({"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"})
#: seconds that a first worker waits for the one before it, which was lost and may not know it yet, to let go
PATIENCE = 60.0


def train(
    pairs: TrainingPairs | _files.PathLike,
    *,
    init: Any,
    out: _files.PathLike,
    num_workers: int,
    num_gpus: float | None = None,
    threads: int = 1,
    max_failures: int = 3,
    verbose: bool = False,
    **options: Any,
) -> BiEncoder:
    """``cs.train`` over the machines of a Ray cluster, one model trained by all workers together.

    Every worker runs :func:`pt_convsearch.train` on batches of its own, as under ``torchrun``: a question competes with
    the passages of all workers, gathered with their gradients, but for its own golds, whoever's they are; gradients
    are averaged. So ``num_workers=4, batch_size=32`` is one process with ``batch_size=128``: the same loss, the same
    steps (the questions that fill no whole round of all workers sit out an epoch). The first worker measures on the
    dev collection, writes checkpoints to ``<out>.training`` and the model to ``out``.

    The processes are those of Ray Train's ``TorchTrainer``, because the machines are already one Ray cluster for
    everything else here, and Ray places all workers or none, tells them of each other, notices one that is lost and
    ends the others, which would wait for it. After such a loss all start again from the last checkpoint, up to
    ``max_failures`` times, on CPUs to exactly the weights of an undisturbed run; so does the same call after
    the calling program was lost. ``accelerate launch`` and ``torchrun`` with ``cs.train`` in the script do the same
    without Ray, started by hand on each machine.

    Args:
        pairs: what ``cs.training_pairs`` returned, or its folder.
        init: a name on the hub, a folder, or a SentenceTransformer; a pair of them for two towers.
        out: the folder to write. ``pairs``, ``init`` and ``out`` lie on a disk that all machines share: checkpoints
            are read again from there, so an address of fsspec will not do.
        num_workers: processes that train together.
        num_gpus: GPUs per worker; None: 1 where the cluster has some, else 0.
        threads: processors per worker, and PyTorch's threads in it.
        max_failures: how often the training is taken up again after workers were lost; 0: never, the loss is an error.
        verbose: show a progress bar.
        options: all others of :func:`pt_convsearch.train`: ``batch_size`` (questions per step and worker), ``dev``,
            ``epochs``, ``learning_rate`` … They are sent to the workers, so they must be picklable. ``num_workers``
            there, processes that make batches, is ``trainer_options={"dataloader_num_workers": n}`` here.

    Returns:
        the encoder, for pipelines, as ``cs.train`` does.

    Raises:
        ValueError: an address (``s3://…``) in the place of a folder; whatever ``cs.train`` refuses, as it refuses it.
        TypeError: an option that ``cs.train`` does not have, or that cannot be sent to another process.
        FileNotFoundError: a machine does not see one of the folders; the message names the machine.
        RuntimeError: workers were lost more than ``max_failures`` times. What was trained is kept: the same call goes
            on from there.
        ImportError: Ray is not installed.

    Example:
        >>> pairs = cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=bm25, out="pairs")    # doctest: +SKIP
        >>> encoder = cs.scale.train(pairs, init="bert-base-uncased", out="dpr", num_workers=8)         # doctest: +SKIP

    Source: the loss and its options are those of ``cs.train`` (Kim & Kim, 2022, Section 3).
    """
    for name, value in (("num_workers", num_workers), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name}={value!r}: a whole number from 1 on")
    if max_failures < 0:
        raise ValueError(f"max_failures={max_failures!r}: a whole number from 0 on")
    for folder in (getattr(pairs, "path", pairs), out, *(init if isinstance(init, tuple) else (init,))):
        if isinstance(folder, str | os.PathLike):
            _files.no_address(folder)
    _check_names(options)
    ray_module("training on several machines")
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    if options.get("form") is None:
        options["form"] = pairs.form
    target = Path(out).absolute()
    given = {
        **options,
        # a set that was mined in this process can be mined again by a worker; else its folder says all
        "pairs": pairs if options.get("refresh") is not None else str(Path(str(pairs.path)).absolute()),
        "init": tuple(map(_absolute, init)) if isinstance(init, tuple) else _absolute(init),
        "out": str(target),
    }
    ray = connect()
    resources = ray.cluster_resources()
    gpus = (1.0 if resources.get("GPU", 0) >= 1 else 0.0) if num_gpus is None else num_gpus
    warn_if_too_few(resources, {"CPU": threads, "GPU": gpus}, num_workers)
    sent = _sent(ray, given)
    work = target.with_name(f"{target.name}.training")
    from ..training.runs import CURVE, SETTINGS, opened

    with _led(target) as marks, training_bar(work / CURVE, verbose):
        for attempt in itertools.count(1):
            lost = _fit([sent], marks, work, num_workers, gpus, threads)
            if lost is None:
                break
            if attempt > max_failures:
                raise RuntimeError(
                    f"training {target}: {lost}. What was trained until the last checkpoint is in {work}: the same "
                    "call goes on from there"
                )
            logger.warning("training %s: %s; going on from the last checkpoint", target, lost)
    with contextlib.suppress(OSError):
        work.rmdir()  # nothing was to be trained
    return opened(target, _files.json_or_none(target / SETTINGS))


def _check_names(options: dict[str, Any]) -> None:
    from ..training import train as here

    known = inspect.signature(here).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"cs.train has no option {', '.join(map(repr, unknown))}")


def _absolute(init: Any) -> Any:
    """A folder by a name that holds elsewhere too; names on the hub and models as they are."""
    return str(Path(init).absolute()) if isinstance(init, str | os.PathLike) and Path(init).exists() else init


def warn_if_too_few(resources: dict[str, float], each: dict[str, float], num_workers: int) -> None:
    """Tell of a training that would only wait."""
    for what, per_worker in each.items():
        needed, there = per_worker * num_workers, resources.get(what, 0)
        if needed > there:
            warnings.warn(
                f"{num_workers} workers need {needed:g} {what}s, and the cluster has {there:g}: the training begins "
                "when machines have joined that have them",
                stacklevel=3,
            )


def _sent(ray: Any, given: dict[str, Any]) -> Any:
    """The options where the workers find them.

    Raises:
        TypeError: one cannot be sent; the message names it.
    """
    from ray import cloudpickle

    for name, value in given.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise TypeError(
                f"{name} cannot be sent to the workers ({type(error).__name__}: {error}): give a list, a frame or a "
                "data set in place of a generator, and open files inside functions, when they are called"
            ) from error
    return ray.put(given)


@contextlib.contextmanager
def _led(target: Path) -> Iterator[Path]:
    """The folder of marks and of what Ray Train writes; it says that this program leads the training of ``target``."""
    marks = target.with_name(f"{target.name}.ray")
    with _files.alone(marks):
        try:
            yield marks
        finally:
            for _ in range(20):  # a worker on its last legs may write there meanwhile
                shutil.rmtree(marks, ignore_errors=True)
                if not marks.exists():
                    break
                time.sleep(0.25)


def _fit(sent: list[Any], marks: Path, work: Path, num_workers: int, gpus: float, threads: int) -> str | None:
    """Train once, to the end or until a worker is lost: None, or what was lost.

    Raises:
        Exception: what the training itself raised.
        KeyboardInterrupt: it was interrupted.
    """
    from ray.exceptions import RayActorError
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    _files.clear(marks)  # Ray Train would go on from what it finds there
    mark = marks / "seen"
    _files.write_json(mark, socket.gethostname())
    trainer = TorchTrainer(
        _worker(sent, str(mark), str(work), gpus > 0, threads),
        scaling_config=ScalingConfig(
            num_workers=num_workers, use_gpu=gpus > 0,
            resources_per_worker={"CPU": threads, **({"GPU": gpus} if gpus else {})},
        ),
        run_config=RunConfig(
            name="run", storage_path=str(marks), failure_config=FailureConfig(max_failures=0)
        ),
    )  # fmt: skip
    before = _reserved()
    try:
        with _staying(), _interrupted():
            trainer.fit()
    except TrainingFailedError as error:
        return what_was_lost(error)
    except RayActorError as error:
        _release(_reserved() - before)
        return f"the process that leads the workers was lost ({first_line(error)})"
    return None


def _reserved() -> set[str]:
    """The placement groups that hold resources for the program that runs here."""
    import ray
    from ray.util import placement_group_table

    job = ray.get_runtime_context().get_job_id()  # the end of the ids of all that it makes
    there = placement_group_table().items()
    return {name for name, group in there if group["state"] != "REMOVED" and name.endswith(job)}


def _release(groups: set[str]) -> None:
    """Give back what lost leaders had reserved. Ray Train leaves it to a process that asks the dashboard whether the
    leader lives, and here there is none: the next leader would wait for its own resources, for ever."""
    import ray
    from ray.util import remove_placement_group
    from ray.util.placement_group import PlacementGroup

    for name in groups:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(name)))


def _worker(sent: list[Any], mark: str, folder: str, gpu: bool, threads: int) -> Callable[[], None]:
    """What each worker does."""

    def work() -> None:
        import ray
        import torch
        from ray.train import get_context
        from ray.train.torch import get_device

        import pt_convsearch as cs

        options = ray.get(sent[0])
        rank, host = get_context().get_world_rank(), socket.gethostname()
        together = get_context().get_world_size() > 1
        pairs = options.pop("pairs")
        for path in (mark, str(getattr(pairs, "path", pairs))):
            if not Path(path).exists():
                raise FileNotFoundError(f"worker {rank} on {host} does not see {path}: {_SHARED}")
        torch.set_num_threads(threads)
        options["device"] = options.get("device") or (str(get_device()) if gpu else "cpu")
        with in_turn(Path(folder), hold=together) if rank == 0 else contextlib.nullcontext():
            cs.train(pairs, **options)

    return work


@contextlib.contextmanager
def in_turn(folder: Path, *, hold: bool) -> Iterator[None]:
    """Wait until nobody else writes in a training's folder: Ray ends the workers of a lost group in its own time.

    Args:
        folder: the working folder.
        hold: keep the others out while the block runs; not where what runs in it does so itself.

    Raises:
        RuntimeError: somebody still does after :data:`PATIENCE` seconds.
    """
    end = time.monotonic() + PATIENCE
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(_files.alone(folder))
                break
            except RuntimeError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.2)
        if not hold:
            held.close()
        yield


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Workers stay in the folder they start in, so that names of files mean what they meant."""
    name = "RAY_CHDIR_TO_TRIAL_DIR"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def _interrupted() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt, here and afterwards: Ray Train puts a handler of its own in place that exits with
    status 0, and leaves it there."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if main and before is not None:
            signal.signal(signal.SIGINT, before)


def what_was_lost(error: Any) -> str:
    """What became of the workers, in a few words.

    Raises:
        Exception: the training itself failed, and would again: what it raised.
    """
    failures = getattr(error, "worker_failures", None)
    if failures is None:  # no worker had begun, say because a port was taken in the meantime
        return f"the workers could not be started ({first_line(getattr(error, 'controller_failure', error))})"
    lost = any(_is_lost(failure) for failure in failures.values())
    own = {
        rank: failure
        for rank, failure in failures.items()
        # beside a lost worker, whatever the system says in another is what became of it
        if not (_is_lost(failure) or _is_peer(failure) or (lost and isinstance(failure, RuntimeError | OSError)))
    }
    if own:
        rank = min(own)
        failure = own[rank]
        failure.add_note(f"(raised in worker {rank})")
        raise failure from None
    if lost:
        gone = [rank for rank in sorted(failures) if _is_lost(failures[rank])]
        who = f"worker {gone[0]} was" if len(gone) == 1 else f"workers {', '.join(map(str, gone))} were"
        return f"{who} lost ({first_line(failures[gone[0]])})"
    return f"worker {min(failures)} lost touch with another ({first_line(failures[min(failures)])})"


def _is_lost(failure: BaseException) -> bool:
    """Does Ray say that the worker is gone?"""
    return type(failure).__module__.partition(".")[0] == "ray"


def _is_peer(failure: BaseException) -> bool:
    """Is this what another one's loss looks like from a worker?"""
    text = str(failure).lower()
    named = any(kind.__name__ in _PEER_ERRORS for kind in type(failure).__mro__)
    return named or (isinstance(failure, RuntimeError | OSError) and any(sign in text for sign in _PEER_GONE))
