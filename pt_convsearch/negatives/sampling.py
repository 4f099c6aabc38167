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


def uniform(seed: int, epoch: int, rows: np.ndarray, items: np.ndarray) -> np.ndarray:
    """A number in (0, 1) for each row and item, float64 of shape (rows, items)."""
    state = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in (seed, epoch):
            state = _scramble(state + _GOLDEN * np.uint64((part + 1) % 2**64))
        state = _scramble(state + _GOLDEN * (np.asarray(rows, dtype=np.uint64) + np.uint64(1)))
        mixed = _scramble(state[:, None] + _GOLDEN * (np.asarray(items, dtype=np.uint64) + np.uint64(1))[None, :])
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53


def draw(
    seed: int, epoch: int, rows: np.ndarray, sizes: np.ndarray, count: int, weights: np.ndarray | None = None
) -> list[np.ndarray]:
    """Which passages of its pool each row gets in an epoch: ``count`` of them, or all if there are fewer, none twice.

    Args:
        seed: of the run.
        epoch: from 0.
        rows: of the questions.
        sizes: of their pools.
        count: how many to draw for each.
        weights: how likely each passage is, in any unit, of shape (rows, largest pool); evenly if None. Passages are
            drawn one after the other without putting back (Efraimidis & Spirakis, 2006).

    Returns:
        positions in the pool, int64, in the order of drawing, for each row.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    width = int(sizes.max(initial=0))
    keys = uniform(seed, epoch, rows, np.arange(width))
    if weights is not None:
        keys = np.log(keys) / weights
    keys[np.arange(width)[None, :] >= sizes[:, None]] = -np.inf
    places = np.argsort(-keys, axis=1, kind="stable")[:, :count]
    return [own[: min(count, size)] for own, size in zip(places, sizes, strict=True)]


def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of the questions in an epoch: a permutation of ``size`` rows."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, epoch])).permutation(size)
