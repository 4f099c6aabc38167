"""Nearest vectors: exact in one FAISS call over the mapped file, or by a FAISS index of any kind."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import written

if TYPE_CHECKING:
    from .index import DenseIndex

logger = logging.getLogger(__name__)

Find = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
Dots = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: scores closer than this, relative to the lengths of the vectors, may be equal: float32 rounds by the batch's shape
_NEAR = 4e-6
#: candidates looked at beyond the last result, for what may tie with it
_MARGIN = 16
#: queries from which on a matrix product is faster than one scan per query
_BLAS_QUERIES = 8


def exact_search(
    queries: np.ndarray, vectors: np.ndarray, k: int, max_norm: float, threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` largest dot products per query, equal ones in the order of ``vectors``.

    FAISS's scores depend in their last digit on the shape of the batch, and its ties fall as they may. Scores too
    near to tell are therefore computed again in float64, pair by pair.

    Args:
        queries: float32 (queries, dimensions).
        vectors: float32 (passages, dimensions), memory-mapped or not; never copied.
        k: results per query.
        max_norm: the length of the longest vector.
        threads: of FAISS; None: its own choice.

    Returns:
        numbers of vectors (int64) and scores (float32), both (queries, min(k, passages)).
    """
    def find(asked: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        return candidates(asked, vectors, wanted, threads)

    def dots(asked: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return dot_products(asked, vectors, numbers)

    return nearest(queries, len(vectors), k, max_norm, find, dots)


def nearest(queries: np.ndarray, count: int, k: int, max_norm: float, find: Find, dots: Dots) -> tuple[Any, Any]:
    """:func:`exact_search` over vectors that lie anywhere.

    Args:
        queries: float32 (queries, dimensions).
        count: how many vectors there are.
        k: results per query.
        max_norm: the length of the longest vector.
        find: (queries, number wanted) to the numbers and scores of the nearest, (queries, wanted), best first; scores
            may be off by rounding.
        dots: (queries, numbers of as many vectors) to their dot products in float64.
    """
    k = min(k, count)
    numbers = np.empty((len(queries), k), dtype=np.int64)
    scores = np.empty((len(queries), k), dtype=np.float32)
    if k == 0 or len(queries) == 0:
        return numbers, scores
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    near = _NEAR * max_norm * np.linalg.norm(queries, axis=1)
    open_rows = np.arange(len(queries))
    wanted = min(k + _MARGIN, count)
    while len(open_rows):
        found, found_scores = find(queries[open_rows], wanted)
        found, found_scores = _settle(queries[open_rows], found, found_scores, near[open_rows], dots)
        numbers[open_rows] = found[:, :k]
        scores[open_rows] = found_scores[:, :k]
        if wanted == count:
            break
        # what lies beyond the last candidate may tie with the last result
        unsettled = found_scores[:, k - 1] - found_scores[:, -1] <= 2 * near[open_rows]
        open_rows = open_rows[unsettled]
        wanted = min(wanted * 4, count)
    return numbers, scores


def candidates(
    queries: np.ndarray, vectors: np.ndarray, wanted: int, threads: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and scores of the nearest vectors by FAISS, in one call: equal scores fall as they may."""
    import faiss

    with _threads(threads), _blas(len(queries)):
        scores, numbers = faiss.knn(queries, vectors, wanted, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


def dot_products(queries: np.ndarray, vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The dot product in float64 of each query with the vector of one number."""
    parts = [np.empty(0)]
    for start in range(0, len(numbers), 65_536):
        at = slice(start, start + 65_536)
        parts.append(
            np.einsum("ij,ij->i", queries[at].astype(np.float64), vectors[numbers[at]].astype(np.float64))
        )
    return np.concatenate(parts)


def _settle(
    queries: np.ndarray, numbers: np.ndarray, scores: np.ndarray, near: np.ndarray, dots: Dots
) -> tuple[np.ndarray, np.ndarray]:
    """Order what is too near to tell by scores in float64, then by number."""
    close = scores[:, :-1] - scores[:, 1:] <= near[:, None]
    rows = np.flatnonzero(close.any(axis=1))
    if len(rows) == 0:
        return numbers, scores
    pairs = np.zeros((len(rows), scores.shape[1]), dtype=bool)
    pairs[:, :-1] |= close[rows]
    pairs[:, 1:] |= close[rows]
    row, column = np.nonzero(pairs)
    again, numbers_again = scores[rows], numbers[rows]
    again[row, column] = dots(queries[rows[row]], numbers_again[row, column])
    order = np.lexsort((numbers_again, -again), axis=1)
    numbers, scores = numbers.copy(), scores.copy()
    numbers[rows] = np.take_along_axis(numbers_again, order, axis=1)
    scores[rows] = np.take_along_axis(again, order, axis=1)
    return numbers, scores


@contextlib.contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    import faiss

    before = faiss.omp_get_max_threads()
    if threads is not None:
        faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextlib.contextmanager
def _blas(queries: int) -> Iterator[None]:
    """Matrix products from a few queries on; left alone, FAISS 1.15 scans query by query up to some hundreds."""
    import faiss

    before = faiss.cvar.distance_compute_blas_threshold
    if queries >= _BLAS_QUERIES:
        faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


class Approximate:
    """A FAISS index of some kind over the vectors of a dense index."""

    def __init__(self, faiss_index: Any) -> None:
        self._faiss = faiss_index

    def search(
        self, queries: np.ndarray, k: int, *, nprobe: int | None, ef_search: int | None, threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :func:`exact_search`; where FAISS finds fewer, the numbers are -1."""
        import faiss

        k = min(k, self._faiss.ntotal)
        if k == 0 or len(queries) == 0:
            return np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k), dtype=np.float32)
        parameters = faiss.ParameterSpace()
        # several retrievers may share this index: what one sets does not stay for the next
        for name, value in (("nprobe", nprobe), ("efSearch", ef_search)):
            if value is not None:
                try:
                    parameters.set_index_parameter(self._faiss, name, value)
                except RuntimeError as error:
                    raise ValueError(f"{name}={value}: this kind of FAISS index has no such parameter") from error
        try:
            with _threads(threads):
                scores, numbers = self._faiss.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        finally:
            for name, value, default in (("nprobe", nprobe, 1), ("efSearch", ef_search, 16)):
                if value is not None:
                    parameters.set_index_parameter(self._faiss, name, default)
        # those not found go last, equal scores by number
        scores = np.where(numbers < 0, -np.inf, scores)
        order = np.lexsort((numbers, -scores), axis=1)
        return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)


def approximate(index: DenseIndex, kind: str) -> Approximate:
    """The FAISS index of a kind, from the folder of ``index`` or built there.

    Raises:
        ValueError: FAISS does not know the kind, or it needs more passages to train on than there are.
    """
    import faiss

    key = ("convsearch", kind)
    if key in index._cache:
        return index._cache[key]
    path = index.index_path / f"faiss-{re.sub(r'[^A-Za-z0-9]+', '-', kind)}.index"
    built = None if index.replaced() else _read(path, index.vectors)
    if built is None:
        built = _build(index.vectors, kind)
        if not index.replaced():
            try:
                with written(path) as temporary:
                    faiss.write_index(built, str(temporary))
            except (OSError, RuntimeError) as error:
                logger.info("%s is kept in memory: %s", path.name, error)
    index._cache[key] = Approximate(built)
    return index._cache[key]


def _read(path: Path, vectors: np.ndarray) -> Any:
    """The FAISS index at ``path``; None where there is none, or one that is damaged or of other vectors."""
    import faiss

    if not path.is_file():
        return None
    try:
        built = faiss.read_index(str(path))
    except RuntimeError as error:
        logger.warning("%s is damaged (%s): built anew", path, str(error).splitlines()[-1])
        return None
    if (built.ntotal, built.d) != vectors.shape:
        logger.warning("%s is of other vectors: built anew", path)
        return None
    return built


def _build(vectors: np.ndarray, kind: str, sample: int = 262_144) -> Any:
    import faiss

    count, dimensions = vectors.shape
    try:
        built = faiss.index_factory(max(dimensions, 1), kind, faiss.METRIC_INNER_PRODUCT)
        if not built.is_trained and count:
            inverted = faiss.try_extract_index_ivf(built)
            if inverted is not None:
                inverted.cp.min_points_per_centroid = 1  # FAISS prints a warning about fewer than 39 otherwise
            chosen = np.sort(np.random.default_rng(0).choice(count, size=min(count, sample), replace=False))
            built.train(np.ascontiguousarray(vectors[chosen]))
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise ValueError(
            f"faiss={kind!r} cannot be built over {count} passages of {dimensions} dimensions: {reason}"
        ) from error
    for start in range(0, count, 65_536):
        built.add(np.ascontiguousarray(vectors[start : start + 65_536]))
    return built
