"""What training, mining, indexing and inference cost: seconds, items per second, peak memory."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

#: the steps of the paper's table, in its order; others follow
STEPS = ("training", "mining", "indexing", "inference")
_STATM = Path("/proc/self/statm")
_MIB = 2**20


@dataclass
class Cost:
    """What one step took.

    Attributes:
        step: training, mining, indexing, inference, or another name.
        seconds: by the clock.
        cpu_seconds: of all threads of this process: what to compare where the machine is shared.
        items: how many passages, pairs or questions; None: not counted.
        unit: what the items are.
        peak_memory: MiB resident at the highest, model and data included.
        gpu_memory: MiB allocated on GPUs at the highest; None without one.
    """

    step: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    items: int | None = None
    unit: str = "passages"
    peak_memory: float = 0.0
    gpu_memory: float | None = None

    @property
    def per_second(self) -> float:
        """Items per second by the clock; NaN where nothing was counted."""
        return float("nan") if self.items is None or self.seconds <= 0 else self.items / self.seconds


class CostMeter:
    """Measures the steps of one system.

    Args:
        interval: seconds between two looks at the memory.

    Example:
        >>> meter = CostMeter()
        >>> with meter.measure("indexing") as cost:
        ...     cost.items = len([text.split() for text in ("one passage", "another")])
        >>> meter.costs[0].step, meter.costs[0].items
        ('indexing', 2)
    """

    def __init__(self, *, interval: float = 0.02) -> None:
        if interval <= 0:
            raise ValueError(f"interval={interval}: seconds between two looks at the memory")
        self.interval = interval
        self.costs: list[Cost] = []

    @contextlib.contextmanager
    def measure(self, step: str, *, items: int | None = None, unit: str = "passages") -> Iterator[Cost]:
        """Measure what is done in the block; ``items`` may be set on the cost that it gives, when they are known.

        A step that fails is not kept. Steps may be nested: each has its own peak.
        """
        cost = Cost(step, items=items, unit=unit)
        cuda = _reset_gpus()
        with _PeakMemory(self.interval) as peak:
            began, began_cpu = time.perf_counter(), time.process_time()
            yield cost
            cost.seconds, cost.cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        cost.peak_memory = peak.highest / _MIB
        cost.gpu_memory = _gpu_peak() if cuda else None
        self.costs.append(cost)

    def records(self) -> list[dict[str, Any]]:
        """The costs as plain dicts, for JSON."""
        return [asdict(cost) for cost in self.costs]


def cost_table(costs: Mapping[str, Iterable[Cost | Mapping[str, Any]]]) -> pd.DataFrame:
    """The cost of each system, step by step: appendix D of Kim & Kim (2022), with memory.

    Args:
        costs: system -> its costs (``meter.costs``, or the dicts of ``meter.records()``). Several of one step (seeds)
            give their median.

    Returns:
        one row per system; for each step the columns seconds, CPU seconds, items/s and peak MiB (and GPU MiB where
        one was used). A step that a system has not is NaN, rendered as a dash.

    Example:
        >>> cost_table({"BM25": [Cost("indexing", 2.0, items=100)]})["indexing"]["items/s"].tolist()
        [50.0]
    """
    names = ["seconds", "CPU seconds", "items/s", "peak MiB", "GPU MiB"]
    rows = [
        (system, one.step, one.seconds, one.cpu_seconds, one.per_second, one.peak_memory, one.gpu_memory)
        for system, found in costs.items()
        for one in (cost if isinstance(cost, Cost) else Cost(**dict(cost)) for cost in found)
    ]
    frame = pd.DataFrame(rows, columns=["system", "step", *names]).astype({"GPU MiB": float})
    if frame["GPU MiB"].isna().all():
        names = names[:-1]
    medians = frame.groupby(["system", "step"])[names].median()
    steps = sorted(frame["step"].unique(), key=lambda step: STEPS.index(step) if step in STEPS else len(STEPS))
    return pd.DataFrame(
        {
            (step, name): medians[name].reindex([(system, step) for system in costs]).to_numpy()
            for step in steps
            for name in names
        },
        index=list(costs),
    )


class _PeakMemory:
    """Watches the resident memory of this process from a thread of its own."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.highest = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self.highest = max(self.highest, _resident())

    def __enter__(self) -> _PeakMemory:
        self.highest = _resident()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.highest = max(self.highest, _resident())


def _resident() -> int:
    """Bytes resident now; where the system does not tell, the most that ever were."""
    if _STATM.is_file():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _reset_gpus() -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return False
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)
    return True


def _gpu_peak() -> float:
    torch = sys.modules["torch"]
    return sum(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count())) / _MIB
