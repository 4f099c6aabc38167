# mypy: disable-error-code="no-untyped-def,assignment"
"""The inner loops, compiled by numba, without the interpreter's lock: index building, eager scores, search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS  # documents whose scores are summed at a time: 256 KB of float32 stay in the processor's cache
STRIPE = 128  # sums that are compared with the k-th best at a time


def compiled(function: Callable[..., Any]) -> Any:
    """numba's nogil compilation, kept on disk for the next process where some folder can be written."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder for the cache can be written: compile once per process
        return numba.njit(nogil=True)(function)


@compiled
def count_tokens(pieces, chunk_offsets):
    """How many terms a batch of documents has, repeats included."""
    total = 0
    for piece in pieces:
        total += chunk_offsets[piece + 1] - chunk_offsets[piece]
    return total


@compiled
def count_terms(pieces, ends, chunk_offsets, chunk_terms, num_terms, terms, tfs, lengths, unique):
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
def sort_by_term(terms, tfs, unique, first_doc, cursors, docs, sorted_tfs):
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
def scatter_run(terms, counts, run_docs, run_tfs, cursors, docs, tfs):
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
def cut_into_blocks(ends, docs, local, block_ids, block_sizes, block_ends):
    """Document numbers as block and place within the block; returns how many (term, block) pairs there are.

    Block b of a term has block_sizes + 1 postings: 65,536 fit into 16 bits so.
    """
    size = 0
    p = 0
    for term in range(len(ends)):
        current = -1
        while p < ends[term]:
            block = np.int64(docs[p] >> BLOCK_BITS)
            if block != current:
                block_ids[size] = block
                block_sizes[size] = 0
                size += 1
                current = block
            else:
                block_sizes[size - 1] += 1
            local[p] = docs[p] & (BLOCK - 1)
            p += 1
        block_ends[term] = size
    return size


@compiled
def eager_scores(offsets, block_offsets, block_ids, block_sizes, docs, tfs, norms, idfs, scores):
    """scores[p] = idf * tf / (tf + norm of the document), for all postings."""
    p = 0
    for term in range(len(offsets) - 1):
        idf = idfs[term]
        for i in range(block_offsets[term], block_offsets[term + 1]):
            low = np.int64(block_ids[i]) << BLOCK_BITS
            for _ in range(np.int64(block_sizes[i]) + 1):
                tf = np.float64(tfs[p])
                scores[p] = idf * tf / (tf + norms[low + docs[p]])
                p += 1


@compiled
def collapse(ids, offsets, terms, weights, term_offsets):
    """Per query: distinct known terms, rising, and how often each occurs. Unknown terms are -1."""
    size = 0
    for q in range(len(offsets) - 1):
        part = np.sort(ids[offsets[q] : offsets[q + 1]])
        first = size
        for term in part:
            if term < 0:
                continue
            if size > first and terms[size - 1] == term:
                weights[size - 1] += 1
            else:
                terms[size] = term
                weights[size] = 1
                size += 1
        term_offsets[q + 1] = size


@compiled
def _worse(score_a, doc_a, score_b, doc_b):
    """a ranks below b: lower score, or equal score and later in the collection."""
    return score_a < score_b or (score_a == score_b and doc_a > doc_b)


@compiled
def _offer(heap_scores, heap_docs, size, score, doc):
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
def _sort_heap(heap_scores, heap_docs, size):
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
def search(
    offsets,
    block_offsets,
    block_ids,
    block_sizes,
    docs,
    scores,
    num_docs,
    query_offsets,
    terms,
    weights,
    floors,
    k,
    out_docs,
    out_scores,
    out_counts,
):
    """The k best documents of each query, exactly.

    Term at a time within blocks of documents: the sums of one block stay in the processor's cache, its best documents
    go to a heap of the k best, the sums are cleared while they are read. All queries are served from a block before
    the next one, so that postings of frequent terms are read from memory once. Query q has the terms
    terms[query_offsets[q]:query_offsets[q + 1]], distinct, with positive weights; only scores above floors[q] count.
    """
    sums = np.zeros(BLOCK, dtype=np.float32)
    blocks_at = np.empty(len(terms), dtype=np.int64)
    postings_at = np.empty(len(terms), dtype=np.int64)
    for t in range(len(terms)):
        blocks_at[t] = block_offsets[terms[t]]
        postings_at[t] = offsets[terms[t]]
    out_counts[:] = 0
    for block in range((num_docs + BLOCK - 1) >> BLOCK_BITS):
        low = block << BLOCK_BITS
        used = (min(BLOCK, num_docs - low) + STRIPE - 1) // STRIPE
        for q in range(len(query_offsets) - 1):
            touched = 0
            for t in range(query_offsets[q], query_offsets[q + 1]):
                at = blocks_at[t]
                if at == block_offsets[terms[t] + 1] or block_ids[at] != block:
                    continue
                start = postings_at[t]
                count = np.int64(block_sizes[at]) + 1
                blocks_at[t] = at + 1
                postings_at[t] = start + count
                touched += count
                _add(docs, scores, np.uint64(start), np.uint64(start + count), weights[t], sums)
            if touched:
                out_counts[q] = _collect(sums, used, low, floors[q], out_scores[q], out_docs[q], out_counts[q])
    for q in range(len(query_offsets) - 1):
        _sort_heap(out_scores[q], out_docs[q], out_counts[q])


@compiled
def _add(docs, scores, start, end, weight, sums):
    # unsigned counters: numba looks for negative indices otherwise, which costs as much as the addition
    for p in range(start, end):
        sums[docs[p]] += weight * scores[p]


@compiled
def _collect(sums, used, low, floor, heap_scores, heap_docs, size):
    """Offer the documents of a block with scores above the floor to the k best, and set its sums to 0."""
    k = len(heap_scores)
    bar = floor if size < k else heap_scores[0]
    for stripe in range(used):
        first = np.uint64(stripe * STRIPE)
        part = sums[first : first + np.uint64(STRIPE)]
        above = np.int32(0)
        for i in range(np.uint64(STRIPE)):
            above |= np.int32(part[i] > bar)
        if above:
            for i in range(STRIPE):
                if part[i] > bar:
                    size = _offer(heap_scores, heap_docs, size, part[i], np.int64(low + stripe * STRIPE + i))
                    if size == k:
                        bar = heap_scores[0]
        part[:] = np.float32(0.0)
    return size
