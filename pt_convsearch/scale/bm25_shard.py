"""One shard of BM25, as it is served: scored with the statistics of the whole collection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from ..lexical.reading import Reading, Terms
from ..lexical.retriever import QUERIES_PER_TASK, best_documents
from ..lexical.storage import load_array
from .manifest import STATISTICS, read_manifest
from .storage import Storage, damaged

Found = tuple[np.ndarray, np.ndarray, np.ndarray]


class BM25Shard:
    """Answers for the passages of one shard.

    Terms come and go by their number in the whole, passages by theirs in the shard.

    Args:
        reading: the open index of the shard.
        term_numbers: of each term of the shard, its number in the whole.
    """

    def __init__(self, reading: Reading, term_numbers: np.ndarray) -> None:
        self.reading = reading
        self._numbers = term_numbers
        self._order = np.argsort(term_numbers)
        self._sorted = np.asarray(term_numbers)[self._order].astype(np.int64)

    @classmethod
    def open(cls, storage: Storage, number: int, build: str, given: dict[str, Any]) -> BM25Shard:
        """Open a shard of a build of the index where it lies, or a copy.

        Raises:
            ValueError: a file is missing or cut; the message names the shard.
        """
        manifest = read_manifest(storage, build)
        shard = manifest.shards[number]
        folder = storage.local(shard.name, shard.files, build=shard.digest)
        statistics = storage.local(STATISTICS, manifest.statistics, build=manifest.build)
        try:
            reading = Reading(folder, given)
        except (OSError, ValueError) as error:
            raise damaged(f"{storage.address}/{shard.name}", str(error)) from error
        numbers = load_array(statistics, f"{shard.name}.terms")
        reading.collection_size = manifest.num_docs
        reading.average_length = manifest.settings["num_tokens"] / manifest.num_docs
        reading.collection_df = np.asarray(load_array(statistics, "df")[numbers])
        reading.scores_folder = folder.parent / "scores" / f"{shard.name}-{manifest.build[:8]}"
        return cls(reading, numbers)

    def search(
        self, terms: tuple[np.ndarray, ...], floors: np.ndarray, k: int, k1: float, b: float, idf: str, threads: int = 1
    ) -> Found:
        """The best passages of each query with scores above its floor: how many, their numbers, their scores."""
        eager = self.reading.scores(k1, b, idf)
        own = self._own(Terms(*terms))
        k = min(k, self.reading.num_docs)
        num_queries = len(own.offsets) - 1
        if threads <= 1 or num_queries <= QUERIES_PER_TASK:
            return best_documents(self.reading, eager, own, k, floors)
        size = QUERIES_PER_TASK
        parts = [(cut(own, start, start + size), floors[start : start + size]) for start in range(0, num_queries, size)]
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda part: best_documents(self.reading, eager, part[0], k, part[1]), parts))
        counts, docs, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return counts, docs, scores

    def _own(self, terms: Terms) -> Terms:
        """The terms by their number in the shard, in the order of the whole; those it does not have are left out."""
        if not len(self._sorted):
            return Terms(np.zeros_like(terms.offsets), terms.ids[:0], terms.weights[:0])
        at = np.minimum(np.searchsorted(self._sorted, terms.ids), len(self._sorted) - 1)
        known = self._sorted[at] == terms.ids
        offsets = np.concatenate([[0], np.cumsum(known)])[terms.offsets]
        return Terms(offsets, self._order[at[known]], terms.weights[known])

    def docnos(self, numbers: np.ndarray) -> pa.Array:
        return self.reading.docnos.take(numbers)

    def find(self, docnos: list[str]) -> np.ndarray:
        return self.reading.docnos.find(docnos)

    def texts(self, numbers: np.ndarray, field: str) -> pa.Array:
        return self.reading.stored(field).take(numbers)

    def forward(self, numbers: np.ndarray) -> Found:
        starts, terms, tfs = self.reading.forward(numbers)
        return starts, np.asarray(self._numbers)[terms], tfs


def cut(terms: Terms, first: int, last: int) -> Terms:
    """The terms of some of the queries."""
    offsets = terms.offsets[first : last + 1]
    return Terms(offsets - offsets[0], terms.ids[offsets[0] : offsets[-1]], terms.weights[offsets[0] : offsets[-1]])
