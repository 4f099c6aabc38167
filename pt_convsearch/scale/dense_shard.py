"""One dense shard, as it is served."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..dense.docnos import numbers_of_docnos
from ..dense.index import DenseIndex
from ..dense.search import approximate, candidates, dot_products
from .manifest import read_manifest
from .storage import Storage, damaged

Found = tuple[np.ndarray, np.ndarray, np.ndarray]


class DenseShard:
    """Answers for the passages of one shard, by their number in the shard."""

    def __init__(self, index: DenseIndex) -> None:
        self.index = index

    @classmethod
    def open(cls, storage: Storage, number: int, build: str) -> DenseShard:
        """Open a shard of a build of the index where it lies, or a copy.

        Raises:
            ValueError: a file is missing or cut; the message names the shard.
        """
        shard = read_manifest(storage, build).shards[number]
        folder = storage.local(shard.name, shard.files, build=shard.digest)
        index = DenseIndex(folder)
        try:
            index.payload()
        except (OSError, ValueError) as error:
            raise damaged(f"{storage.address}/{shard.name}", str(error)) from error
        return cls(index)

    def candidates(self, queries: np.ndarray, wanted: int, threads: int | None) -> Found:
        """The nearest passages by FAISS: how many, numbers, scores; equal scores fall as they may."""
        wanted = min(wanted, len(self.index))
        if wanted == 0:
            return np.zeros(len(queries), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        numbers, scores = candidates(np.ascontiguousarray(queries), self.index.vectors, wanted, threads)
        return np.full(len(queries), wanted, dtype=np.int64), numbers.ravel(), scores.ravel()

    def approximate(
        self, queries: np.ndarray, k: int, kind: str, nprobe: int | None, ef_search: int | None, threads: int | None
    ) -> Found:
        """The same by a FAISS index of a kind, which may find fewer."""
        numbers, scores = approximate(self.index, kind).search(
            queries, k, nprobe=nprobe, ef_search=ef_search, threads=threads
        )
        found = numbers >= 0
        return found.sum(axis=1), numbers[found], scores[found]

    def dots(self, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return dot_products(queries, self.index.vectors, numbers)

    def docnos(self, numbers: np.ndarray) -> pa.Array:
        return pa.array(self.index.docnos_of(numbers), type=pa.large_string())

    def find(self, docnos: list[str]) -> np.ndarray:
        return numbers_of_docnos(self.index.docnos(), docnos)

    def vectors(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.index.vectors[numbers])
