"""RM3: query expansion by the terms of the best documents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._stage import Stage
from .queries import lexical_queries

if TYPE_CHECKING:
    from .index import BM25Index

SMALL = 100  # documents below which no term is too frequent to be a feedback term
TOPIC_COLUMNS = ("conversation_id", "turn_number", "answer")  # of the topics frame, beside those that begin with q


class RM3(Stage):
    """Pseudo-relevance feedback, ``R -> Q``: the query's terms mixed with those of the best documents.

    Anserini's definition. Of each of the first ``fb_docs`` documents the ``fb_terms`` most frequent terms are kept,
    their frequencies divided by the sum of those kept, times the document's share of the sum of scores; summed over
    documents, the best ``fb_terms`` are kept and scaled to sum 1. The original query, scaled to sum 1 too, is mixed in:
    ``original_query_weight * query + (1 - original_query_weight) * feedback``. Equal weights: in the order of the
    alphabet. As in Anserini, terms in more than a tenth of the documents and terms of fewer than 2 or more than 20
    characters or with punctuation are no candidates; in collections of fewer than 100 documents, where that would
    leave nothing, all are.

    Input columns: ``qid``, ``query``, ``docno``, ``score``, ``rank`` of any retriever over the same documents. Output
    columns: the query's (those that begin with q, and conversation_id, turn_number, answer), and ``query_toks``, the
        weighted index
    terms, which every retriever of ours takes in place of ``query``. One row per qid that has results.

    Args:
        index: where the documents' terms are.
        fb_docs: how many documents are read.
        fb_terms: how many terms are added.
        original_query_weight: from 0 (feedback alone) to 1 (the query alone).

    Raises:
        ValueError: an option out of range, or a docno that the index does not have.

    Example:
        ``index.bm25(num_results=10) >> index.rm3(fb_docs=10, fb_terms=10, original_query_weight=0.5) >> index.bm25()``

    Source: Abdul-Jaleel et al., UMass at TREC 2004; Anserini's Rm3Reranker; settings of Penha & Hauff.
    """

    def __init__(
        self, index: BM25Index, *, fb_docs: int = 10, fb_terms: int = 10, original_query_weight: float = 0.5
    ) -> None:
        self.index = index
        self.fb_docs = fb_docs
        self.fb_terms = fb_terms
        self.original_query_weight = original_query_weight
        self._check_options()

    def _check_options(self) -> None:
        for name in ("fb_docs", "fb_terms"):
            value = getattr(self, name)
            if int(value) != value or value < 1:
                raise ValueError(f"{name}={value!r}: a whole number from 1 on")
        if not 0 <= self.original_query_weight <= 1:
            raise ValueError(f"original_query_weight={self.original_query_weight!r}: a number from 0 to 1")

    def compile(self) -> pt.Transformer:
        """Only the first ``fb_docs`` results are read: say so to the retriever in front."""
        return pt.RankCutoff(int(self.fb_docs)) >> self

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        self._check_options()  # GridScan sets attributes
        pt.validate.columns(inp, includes=["qid", "docno", "score", "rank"], context=self)
        kept = [name for name in inp.columns if name[0] == "q" or name in TOPIC_COLUMNS]
        first = inp[kept].groupby("qid", sort=False).head(1).reset_index(drop=True)
        topics, queries = lexical_queries(first, context=self)
        if len(topics) == 0:
            return topics.assign(query_toks=pd.Series([], dtype=object))
        row_of = {qid: i for i, qid in enumerate(first["qid"])}
        best = inp.sort_values("rank", kind="stable").groupby("qid", sort=False).head(int(self.fb_docs))
        rows = np.array([row_of[qid] for qid in best["qid"]])
        order = np.argsort(rows, kind="stable")
        feedback = self._feedback(
            rows[order], best["docno"].to_numpy()[order], best["score"].to_numpy(np.float64)[order]
        )
        toks = [self._mixed(query, feedback.get(i, {})) for i, query in enumerate(queries)]
        return topics.assign(query_toks=pd.Series(toks, dtype=object))

    def _feedback(self, rows: np.ndarray, docnos: np.ndarray, scores: np.ndarray) -> dict[int, dict[str, float]]:
        reading = self.index._reading
        starts, terms, tfs = reading.forward(reading.doc_ids(docnos.tolist()))
        doc_of = np.repeat(np.arange(len(rows)), np.diff(starts))
        kept = self._candidates(terms)
        terms, tfs, doc_of = terms[kept].astype(np.int64), tfs[kept].astype(np.float64), doc_of[kept]
        names = self._names(terms)
        best = _top_of_groups(doc_of, tfs, names, int(self.fb_terms))
        terms, tfs, doc_of, names = terms[best], tfs[best], doc_of[best], names[best]
        sums = np.bincount(doc_of, tfs, minlength=len(rows))
        totals = np.bincount(rows, scores)[rows]
        shares = np.divide(scores, totals, out=np.zeros_like(scores), where=totals != 0)
        weights = tfs / sums[doc_of] * shares[doc_of]
        # the same term in several documents of one query
        num_terms = len(reading.offsets)
        keys, at = np.unique(rows[doc_of] * num_terms + terms, return_inverse=True)
        weights = np.bincount(at, weights, minlength=len(keys))
        query_of, terms = keys // num_terms, keys % num_terms
        names = self._names(terms)
        best = _top_of_groups(query_of, weights, names, int(self.fb_terms))
        query_of, names, weights = query_of[best], names[best], weights[best]
        total = np.bincount(query_of, weights, minlength=int(rows.max()) + 1)
        found: dict[int, dict[str, float]] = {}
        for query, name, weight in zip(query_of.tolist(), names.tolist(), weights.tolist(), strict=True):
            if weight > 0:
                found.setdefault(query, {})[name] = weight / float(total[query])
        return found

    def _names(self, terms: np.ndarray) -> np.ndarray:
        unique, at = np.unique(terms, return_inverse=True)
        return np.asarray(self.index._reading.lexicon.take(unique).to_pylist(), dtype=object)[at]

    def _candidates(self, terms: np.ndarray) -> np.ndarray:
        reading = self.index._reading
        if reading.num_docs < SMALL:
            return np.ones(len(terms), dtype=bool)
        unique, at = np.unique(terms, return_inverse=True)
        names = reading.lexicon.take(unique.astype(np.int64)).to_pylist()
        plain = np.array([2 <= len(name) <= 20 and name.isalnum() for name in names], dtype=bool)
        return (plain & (reading.df(unique.astype(np.int64)) <= 0.1 * reading.num_docs))[at]

    def _mixed(self, query: str | dict[str, float], feedback: dict[str, float]) -> dict[str, float]:
        original: dict[str, Any] = query if isinstance(query, dict) else Counter(self.index.analyze(query))
        total = sum(original.values())
        weight = float(self.original_query_weight)
        mixed = {term: weight * value / total for term, value in original.items() if value > 0}
        for term, value in feedback.items():
            mixed[term] = mixed.get(term, 0.0) + (1 - weight) * value
        return {term: value for term, value in mixed.items() if value > 0}


def _top_of_groups(groups: np.ndarray, weights: np.ndarray, names: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest weights of each group; equal weights in the order of the names."""
    by_name = np.unique(names.astype(str), return_inverse=True)[1] if len(names) else np.zeros(0, dtype=np.int64)
    order = np.lexsort((by_name, -weights, groups))
    starts = np.flatnonzero(np.r_[True, np.diff(groups[order]) != 0]) if len(order) else np.zeros(0, dtype=np.int64)
    position = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    return order[position < k]
