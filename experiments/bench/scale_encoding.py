"""The encoding step of ``scale.py``: Ray workers of one thread beside as many plain processes, in processor time."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

SEED = 1


def encode(sizes: list[int], folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per number of workers and size; what starting costs is measured with a few passages, and taken off."""
    import pt_convsearch as cs

    model, what = small_model(arguments, folder)
    encoder = cs.BiEncoder(model)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's workers give way to all else, and plain processes do not
    cs.scale.connect(num_cpus=2, object_store_memory=500_000_000)
    rows = []
    starts: dict[int, Processes] = {}
    for size, workers in itertools.product(sizes, arguments.workers):
        plain = plain_seconds(model, size, workers) if arguments.plain is None or size in arguments.plain else None
        if workers not in starts:
            for turn in ("first", "again"):  # the first reads from disk what later ones find in memory
                with Processes() as starts[workers]:
                    cs.scale.encode(Passages(8), encoder, folder / f"{turn}-{workers}.flex", num_workers=workers)
        started = starts[workers]
        start = time.perf_counter()
        with Processes() as used:
            cs.scale.encode(Passages(size), encoder, folder / f"{size}-{workers}.flex", num_workers=workers)
        clock = time.perf_counter() - start
        seconds = used.seconds - started.seconds
        rows.append({
            "what": what, "passages": size, "workers": workers,
            "seconds": round(seconds, 1), "seconds_to_start": round(started.seconds, 1),
            "passages_per_s": round(workers * size / seconds, 1), "clock_seconds": round(clock, 1),
            "plain_seconds": None if plain is None else round(plain, 1),
            "speed_to_plain": None if plain is None else round(plain / seconds, 3),
            "worker_peak_mb": round(used.peak_mb("MapWorker"), 1), "peak_mb": round(used.peak_mb(""), 1),
            "bytes": sum(path.stat().st_size for path in (folder / f"{size}-{workers}.flex").iterdir()),
        })  # fmt: skip
    return rows


class Passages:
    """The testbed's passages as a function of nothing, which a worker can call."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self) -> Any:
        import pt_convsearch as cs

        data = cs.dataset("testbed", passages=max(1000, self.size), seed=SEED)
        return itertools.islice(data.get_corpus_iter(), self.size)


def small_model(arguments: argparse.Namespace, folder: Path) -> tuple[str, str]:
    """The model, and what to call it: as it is, its first layers, or a random one of few dimensions."""
    if arguments.layers is None and arguments.random is None:
        return arguments.model, arguments.model
    from sentence_transformers import SentenceTransformer
    from transformers import BertConfig, BertModel

    import pt_convsearch as cs

    model: Any = cs.BiEncoder(arguments.model)._load()[1]
    what = f"{arguments.model}, the first {arguments.layers} layers"
    if arguments.random is not None:
        config = BertConfig(
            vocab_size=len(model.tokenizer), hidden_size=arguments.random, num_hidden_layers=arguments.layers or 2,
            num_attention_heads=2, intermediate_size=4 * arguments.random,
        )  # fmt: skip
        BertModel(config).save_pretrained(folder / "bert")
        model.tokenizer.save_pretrained(folder / "bert")
        model = SentenceTransformer(str(folder / "bert"), device="cpu")
        what = f"BERT of {arguments.layers or 2} layers of {arguments.random} dimensions, random weights"
    else:
        inner = model[0].auto_model
        inner.encoder.layer = inner.encoder.layer[: arguments.layers]
        inner.config.num_hidden_layers = arguments.layers
    model.save(str(folder / "model"))
    return str(folder / "model"), what


def plain_seconds(model: str, size: int, workers: int) -> float:
    """Processor seconds of as many plain processes, each with its share of the passages; loading is taken off."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _start, (model,)) as pool:
        seconds = pool.map(_encode, [(size, number, workers) for number in range(workers)], chunksize=1)
    return sum(seconds)


_PLAIN: Any = None


def _start(model: str) -> None:
    global _PLAIN
    import torch

    import pt_convsearch as cs

    torch.set_num_threads(1)
    _PLAIN = cs.BiEncoder(model)
    _PLAIN.encode_docs(["loaded"])


def _encode(share: tuple[int, int, int]) -> float:
    """Every ``workers``-th block of 4,096 passages, read as the process goes; others are read, but not counted."""
    size, number, workers = share
    stream, seconds = iter(Passages(size)()), 0.0
    for turn in itertools.count():
        start = time.process_time()
        block = [passage["text"] for passage in itertools.islice(stream, 4096)]
        if not block:
            return seconds
        if turn % workers == number:
            _PLAIN.encode_docs(block)
            seconds += time.process_time() - start
    raise AssertionError


class Processes(threading.Thread):
    """Processor seconds and peak memory of this process and all that it started, looked at twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._seconds: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._peaks: dict[tuple[int, str], float] = {}
        self.seconds = 0.0

    def __enter__(self) -> Processes:
        self._look()
        self._before, self._peaks = dict(self._seconds), {}
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._look()
        self.seconds = sum(value - self._before.get(pid, 0.0) for pid, value in self._seconds.items())

    def run(self) -> None:
        while not self._over.wait(0.5):
            self._look()

    def peak_mb(self, name: str) -> float:
        """The most memory of one process whose title holds ``name``; of this process for an empty one."""
        if not name:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return max((peak for (_, title), peak in self._peaks.items() if name in title), default=0.0)

    def _look(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        parents: dict[int, int] = {}
        seconds: dict[int, float] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                except OSError:
                    continue
                pid = int(entry.name)
                parents[pid], seconds[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / tick
        for pid in parents:
            above = pid
            while above > 1 and above != os.getpid():
                above = parents.get(above, 0)
            if above != os.getpid():
                continue
            self._seconds[pid] = seconds[pid]
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").partition("\0")[0]
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            except OSError:
                continue
            if "VmHWM:" in status:
                self._peaks[pid, title] = int(status.partition("VmHWM:")[2].split()[0]) / 1024
