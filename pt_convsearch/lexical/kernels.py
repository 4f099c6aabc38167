"""The inner loops, compiled by numba, without the interpreter's lock: index building, eager scores, search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCK = 1 << 16  # documents whose scores are summed at a time: 256 KB of float32 stay in the processor's cache


def compiled(function: Callable[..., Any]) -> Any:
    """numba's nogil compilation, kept on disk for the next process where some folder can be written."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder for the cache can be written: compile once per process
        return numba.njit(nogil=True)(function)


@compiled
def count_tokens(pieces, chunk_offsets):  # type: ignore[no-untyped-def]
    """How many terms a batch of documents has, repeats included."""
    total = 0
    for piece in pieces:
        total += chunk_offsets[piece + 1] - chunk_offsets[piece]
    return total


@compiled
def count_terms(pieces, ends, chunk_offsets, chunk_terms, num_terms, terms, tfs, lengths, unique):  # type: ignore[no-untyped-def]
    """Distinct terms and their frequencies, document after document; returns how many pairs there are."""
    last_doc = np.full(num_terms, -1, dtype=np.int64)
    slot = np.empty(num_terms, dtype=np.int64)
    size = 0
    start = 0
    for doc in range(len(ends)):
        first = size
        length = 0
        for i in range(start, ends[doc]):
            piece = pieces[i]
            for j in range(chunk_offsets[piece], chunk_offsets[piece + 1]):
                term = chunk_terms[j]
                length += 1
                if last_doc[term] == doc:
                    tfs[slot[term]] += 1
                else:
                    last_doc[term] = doc
                    slot[term] = size
                    terms[size] = term
                    tfs[size] = 1
                    size += 1
        start = ends[doc]
        lengths[doc] = length
        unique[doc] = size - first
    return size


@compiled
def sort_by_term(terms, tfs, unique, first_doc, cursors, docs, sorted_tfs):  # type: ignore[no-untyped-def]
    """From documents' terms to terms' documents, within a batch."""
    p = 0
    for doc in range(len(unique)):
        for _ in range(unique[doc]):
            at = cursors[terms[p]]
            docs[at] = first_doc + doc
            sorted_tfs[at] = tfs[p]
            cursors[terms[p]] = at + 1
            p += 1


@compiled
def scatter_run(terms, counts, run_docs, run_tfs, cursors, docs, tfs):  # type: ignore[no-untyped-def]
    """Append the postings of one run to those of earlier runs, term by term."""
    p = 0
    for i in range(len(terms)):
        at = cursors[terms[i]]
        for _ in range(counts[i]):
            docs[at] = run_docs[p]
            tfs[at] = run_tfs[p]
            at += 1
            p += 1
        cursors[terms[i]] = at


@compiled
def eager_scores(offsets, docs, tfs, norms, idfs, scores):  # type: ignore[no-untyped-def]
    """scores[p] = idf * tf / (tf + norm of the document), for all postings."""
    for term in range(len(offsets) - 1):
        idf = idfs[term]
        for p in range(offsets[term], offsets[term + 1]):
            tf = np.float64(tfs[p])
            scores[p] = idf * tf / (tf + norms[docs[p]])


@compiled
def _worse(score_a, doc_a, score_b, doc_b):  # type: ignore[no-untyped-def]
    """a ranks below b: lower score, or equal score and later in the collection."""
    return score_a < score_b or (score_a == score_b and doc_a > doc_b)


@compiled
def _offer(heap_scores, heap_docs, size, score, doc):  # type: ignore[no-untyped-def]
    """Put a document among the best k (a heap with the worst on top); returns how many there are."""
    k = len(heap_scores)
    if size < k:
        i = size
        while i > 0:
            parent = (i - 1) >> 1
            if not _worse(score, doc, heap_scores[parent], heap_docs[parent]):
                break
            heap_scores[i] = heap_scores[parent]
            heap_docs[i] = heap_docs[parent]
            i = parent
        heap_scores[i] = score
        heap_docs[i] = doc
        return size + 1
    if not _worse(heap_scores[0], heap_docs[0], score, doc):
        return size
    i = 0
    while True:
        child = 2 * i + 1
        if child >= k:
            break
        if child + 1 < k and _worse(heap_scores[child + 1], heap_docs[child + 1], heap_scores[child], heap_docs[child]):
            child += 1
        if not _worse(heap_scores[child], heap_docs[child], score, doc):
            break
        heap_scores[i] = heap_scores[child]
        heap_docs[i] = heap_docs[child]
        i = child
    heap_scores[i] = score
    heap_docs[i] = doc
    return size


@compiled
def _sort_heap(heap_scores, heap_docs, size):  # type: ignore[no-untyped-def]
    """Best first, in place: take the worst off the top again and again."""
    for end in range(size - 1, 0, -1):
        score = heap_scores[end]
        doc = heap_docs[end]
        heap_scores[end] = heap_scores[0]
        heap_docs[end] = heap_docs[0]
        i = 0
        while True:
            child = 2 * i + 1
            if child >= end:
                break
            if child + 1 < end and _worse(
                heap_scores[child + 1], heap_docs[child + 1], heap_scores[child], heap_docs[child]
            ):
                child += 1
            if not _worse(heap_scores[child], heap_docs[child], score, doc):
                break
            heap_scores[i] = heap_scores[child]
            heap_docs[i] = heap_docs[child]
            i = child
        heap_scores[i] = score
        heap_docs[i] = doc


@compiled
def search(offsets, docs, scores, num_docs, query_offsets, query_terms, query_weights, k, out_docs, out_scores, out_counts):  # type: ignore[no-untyped-def]
    """The k best documents of each query, exactly.

    Term at a time within blocks of documents: the sums of one block stay in cache, the best k of the block go to a heap, the
    sums are cleared while they are read. Query q has the terms query_terms[query_offsets[q]:query_offsets[q + 1]], distinct,
    in rising order; all weights are positive.
    """
    sums = np.zeros(BLOCK, dtype=np.float32)
    for q in range(len(query_offsets) - 1):
        first = query_offsets[q]
        num_terms = query_offsets[q + 1] - first
        cursors = np.empty(num_terms, dtype=np.int64)
        for t in range(num_terms):
            cursors[t] = offsets[query_terms[first + t]]
        heap_scores = out_scores[q]
        heap_docs = out_docs[q]
        size = 0
        for low in range(0, num_docs, BLOCK):
            high = min(low + BLOCK, num_docs)
            touched = 0
            for t in range(num_terms):
                term = query_terms[first + t]
                weight = query_weights[first + t]
                start = cursors[t]
                end = offsets[term + 1]
                p = start
                while p < end:
                    doc = docs[p]
                    if doc >= high:
                        break
                    sums[doc - low] += weight * scores[p]
                    p += 1
                cursors[t] = p
                touched += p - start
            if touched == 0:
                continue
            bar = np.float32(0.0) if size < k else heap_scores[0]
            for i in range(high - low):
                value = sums[i]
                if value > bar:
                    size = _offer(heap_scores, heap_docs, size, value, low + i)
                    if size == k:
                        bar = heap_scores[0]
                sums[i] = 0.0
        _sort_heap(heap_scores, heap_docs, size)
        out_counts[q] = size
