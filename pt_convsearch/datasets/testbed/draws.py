"""Random numbers that depend on a key only: the same on every platform and in every process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def draws(*key: int) -> Iterator[int]:
    """An endless stream of 64-bit integers for a key of non-negative integers.

    Raw output of PCG64, which numpy keeps stable from version to version (``Generator.integers`` is not).
    """
    bits = np.random.PCG64(np.random.SeedSequence(key))
    while True:
        yield from bits.random_raw(512).tolist()


def pick(stream: Iterator[int], items: Sequence[T]) -> T:
    return items[next(stream) % len(items)]


def uniform(stream: Iterator[int]) -> float:
    """A number from 0 to 1, 1 left out."""
    return (next(stream) >> 11) * 2.0**-53


def chance(stream: Iterator[int], probability: float) -> bool:
    return uniform(stream) < probability


def shuffled(stream: Iterator[int], size: int) -> list[int]:
    """The numbers below ``size`` in random order."""
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        other = next(stream) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order
