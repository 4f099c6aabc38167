"""Random numbers that depend on where they are used, and on nothing else.

A draw is a function of (seed, epoch, row, item): it is the same whichever worker makes it, in whatever order, and
whether the run was interrupted or not (SplitMix64, Steele et al., 2014, used as a hash).
"""

from __future__ import annotations

import numpy as np

#: items that no passage of a pool has: what else is drawn for a row
HISTORY, POSITIVE = 2**62, 2**62 + 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _scramble(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def uniform(seed: int, epoch: int, row: int, items: np.ndarray) -> np.ndarray:
    """A number in (0, 1) for each item (float64)."""
    state = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in (seed, epoch, row):
            state = _scramble(state + _GOLDEN * np.uint64(part % 2**64 + 1 & 2**64 - 1))
        mixed = _scramble(state + _GOLDEN * (np.asarray(items, dtype=np.uint64) + np.uint64(1)))
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53


def draw(seed: int, epoch: int, row: int, size: int, count: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Which of ``size`` passages a row gets in an epoch: ``count`` of them, or all if there are fewer, none twice.

    Args:
        seed: of the run.
        epoch: from 0.
        row: of the question.
        size: of its pool.
        count: how many to draw.
        weights: how likely each passage is, in any unit; evenly if None. Passages are drawn one after the other
            without putting back (Efraimidis & Spirakis, 2006).

    Returns:
        positions in the pool, int64, in the order of drawing.
    """
    keys = uniform(seed, epoch, row, np.arange(size))
    if weights is not None:
        keys = np.log(keys) / weights
    return np.argsort(-keys, kind="stable")[:count]


def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of the questions in an epoch: a permutation of ``size`` rows."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, epoch])).permutation(size)
