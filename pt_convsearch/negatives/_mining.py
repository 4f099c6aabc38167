"""What filters share while ``training_pairs`` runs a pipeline: the texts of the collection, and a tally of what was
removed.

Filters hold no counts themselves: a transformer that changes while it runs is neither equal to itself nor safe in
threads.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from ._texts import TextStore


@dataclass
class Mining:
    """A run of a miner."""

    texts: TextStore | None = None
    removed: Counter[str] = field(default_factory=Counter)


_CURRENT: ContextVar[Mining | None] = ContextVar("pt_convsearch_mining", default=None)


@contextlib.contextmanager
def mining(texts: TextStore | None = None) -> Iterator[Mining]:
    """Everything that filters remove inside the block is counted in what the block is given."""
    run = Mining(texts)
    token = _CURRENT.set(run)
    try:
        yield run
    finally:
        _CURRENT.reset(token)


def record(stage: str, removed: int) -> None:
    """Count what a filter removed, if a miner is running."""
    run = _CURRENT.get()
    if run is not None:
        run.removed[f"removed by {stage}"] += removed


def current_texts() -> TextStore | None:
    """The collection of the miner that is running, if any."""
    run = _CURRENT.get()
    return None if run is None else run.texts
