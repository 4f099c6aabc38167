# mypy: disable-error-code="no-untyped-def"
"""The best of several shards: sorted lists merged two at a time, ties in the order of the shards."""

from __future__ import annotations

import numpy as np

from ..lexical.kernels import compiled


class Best:
    """The k best results of some queries over the shards that were added, in the order of the collection.

    Args:
        num_queries: how many queries.
        k: results per query.
        dtype: of the scores.
    """

    def __init__(self, num_queries: int, k: int, dtype: type = np.float64) -> None:
        self.counts = np.zeros(num_queries, dtype=np.int64)
        self.docs = np.full((num_queries, k), -1, dtype=np.int64)
        self.scores: np.ndarray = np.full((num_queries, k), -np.inf, dtype=dtype)

    def add(
        self, counts: np.ndarray, docs: np.ndarray, scores: np.ndarray, first: int, queries: slice = slice(None)
    ) -> None:
        """Add the results of the next shard.

        Args:
            counts: how many each query has.
            docs: numbers within the shard, query after query, best first.
            scores: as many.
            first: number of the shard's first passage in the collection.
            queries: which queries they are of.
        """
        starts = np.concatenate([[0], np.cumsum(counts)])
        docs = np.ascontiguousarray(docs, dtype=np.int64)
        scores = np.ascontiguousarray(scores, dtype=self.scores.dtype)
        merge(self.counts[queries], self.docs[queries], self.scores[queries], starts, docs, scores, first)

    def replace(self, queries: np.ndarray, longer: Best, first: int, last: int) -> None:
        """Put a longer list of one shard in the place of what it gave before; equal scores fall as they may.

        Args:
            queries: numbers of the queries.
            longer: the lists, of as many queries, which hold all that the shard gave before.
            first: number of the shard's first passage in the collection.
            last: of the passage after its last one.
        """
        docs, scores = self.docs[queries], self.scores[queries]
        theirs = (docs >= first) & (docs < last)
        order = np.argsort(theirs, axis=1, kind="stable")
        docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
        counts = self.counts[queries] - theirs.sum(axis=1)
        starts = np.concatenate([[0], np.cumsum(longer.counts)])
        _, found, found_scores = longer.flat()
        merge(counts, docs, scores, starts, found, found_scores, 0)
        self.counts[queries], self.docs[queries], self.scores[queries] = counts, docs, scores

    def floors(self) -> np.ndarray:
        """Per query the score that a passage of a later shard must exceed to be among the best (0: any does)."""
        return np.where(self.counts == self.scores.shape[1], self.scores[:, -1], 0.0)

    def flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many results each query has; their numbers in the collection and scores, query after query."""
        filled = np.arange(self.docs.shape[1]) < self.counts[:, None]
        return self.counts, self.docs[filled], self.scores[filled]


@compiled
def merge(best_counts, best_docs, best_scores, starts, docs, scores, first):
    """Merge sorted results of a later shard into the best so far, which win where scores are equal."""
    k = best_docs.shape[1]
    merged_docs = np.empty(k, dtype=np.int64)
    merged_scores = np.empty(k, dtype=best_scores.dtype)
    for q in range(len(best_counts)):
        a = 0
        b = starts[q]
        last_a = best_counts[q]
        last_b = starts[q + 1]
        if b == last_b or (last_a == k and not scores[b] > best_scores[q, k - 1]):
            continue
        size = 0
        while size < k and (a < last_a or b < last_b):
            if b == last_b or (a < last_a and best_scores[q, a] >= scores[b]):
                merged_docs[size] = best_docs[q, a]
                merged_scores[size] = best_scores[q, a]
                a += 1
            else:
                merged_docs[size] = docs[b] + first
                merged_scores[size] = scores[b]
                b += 1
            size += 1
        best_docs[q, :size] = merged_docs[:size]
        best_scores[q, :size] = merged_scores[:size]
        best_counts[q] = size
