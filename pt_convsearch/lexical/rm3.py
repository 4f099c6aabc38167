"""RM3: query expansion by the terms of the best documents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._stage import Stage
from ..topics.checks import first_three, topic_columns
from .queries import lexical_queries

if TYPE_CHECKING:
    from .index import BM25Index

SMALL = 100  # documents below which no term is too frequent to be a feedback term


class RM3(Stage):
    """Pseudo-relevance feedback, ``R -> Q``: the query's terms mixed with those of the best documents.

    Anserini's definition. Of each of the first ``fb_docs`` documents the ``fb_terms`` most frequent terms are kept,
    their frequencies divided by the sum of those kept, times the document's share of the sum of scores; summed over
    documents, the best ``fb_terms`` are kept and scaled to sum 1. The original query, scaled to sum 1 too, is mixed in:
    ``original_query_weight * query + (1 - original_query_weight) * feedback``. A score below 0 (of a dense retriever,
    say) counts as 0: such a document says nothing. Equal weights: in the order of the
    alphabet. As in Anserini, terms in more than a tenth of the documents and terms of fewer than 2 or more than 20
    characters or with punctuation are no candidates; in collections of fewer than 100 documents, where that would
    leave nothing, all are.

    Input columns: ``qid``, ``query``, ``docno``, ``score``, ``rank`` of any retriever over the same documents. Output
    columns: the query's (those that begin with q, and conversation_id, turn_number, answer), and ``query_toks``, the
    weighted index terms, which every retriever of ours takes in place of ``query``. One row per qid that has results.

    Args:
        index: where the documents' terms are.
        fb_docs: how many documents are read.
        fb_terms: how many terms are added.
        original_query_weight: from 0 (feedback alone) to 1 (the query alone).

    Raises:
        ValueError: an option out of range, a score that is no finite number, or a docno that the index does not have.

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
        first = inp[topic_columns(inp)].groupby("qid", sort=False).head(1).reset_index(drop=True)
        topics, queries = lexical_queries(first, context=self)
        if len(topics) == 0:
            return topics.assign(query_toks=pd.Series([], dtype=object))
        row_of = {qid: i for i, qid in enumerate(first["qid"])}
        best = inp.sort_values("rank", kind="stable").groupby("qid", sort=False).head(int(self.fb_docs))
        rows = np.array([row_of[qid] for qid in best["qid"]])
        order = np.argsort(rows, kind="stable")
        unscored = ~np.isfinite(best["score"].to_numpy(dtype=np.float64, na_value=np.nan))
        if unscored.any():
            qids = first_three(best["qid"][unscored].unique())
            raise ValueError(f"score of qid {qids} is NaN or infinite: RM3 weighs by scores")
        feedback = self._feedback(
            rows[order], best["docno"].to_numpy()[order], best["score"].to_numpy(np.float64)[order]
        )
        toks = [self._mixed(query, feedback.get(i, {})) for i, query in enumerate(queries)]
        return topics.assign(query_toks=pd.Series(toks, dtype=object))

    def _feedback(self, rows: np.ndarray, docnos: np.ndarray, scores: np.ndarray) -> dict[int, dict[str, float]]:
        """The feedback terms of each query, summing to 1: ``rows`` says which query a document was found for."""
        reading = self.index._reading
        starts, ids, tfs = reading.forward(reading.doc_ids(docnos.tolist()))
        docs = np.repeat(np.arange(len(rows)), np.diff(starts))
        terms, ids, names = self._by_name(ids.astype(np.int64))
        kept = self._candidates(names, reading.df(ids))[terms]
        terms, docs, weights = terms[kept], docs[kept], tfs[kept].astype(np.float64)
        best = _top_of_groups(docs, weights, terms, int(self.fb_terms))
        terms, docs, weights = terms[best], docs[best], weights[best]
        sums = np.bincount(docs, weights, minlength=len(rows))
        scores = np.maximum(scores, 0.0)  # negative shares would turn the ranking round
        totals = np.bincount(rows, scores)[rows]
        shares = np.divide(scores, totals, out=np.zeros_like(scores), where=totals != 0)
        weights = weights / sums[docs] * shares[docs]
        # the same term in several documents of one query
        pairs, at = np.unique(rows[docs] * max(1, len(names)) + terms, return_inverse=True)
        weights = np.bincount(at, weights, minlength=len(pairs)).astype(np.float64)  # of nothing at all: whole numbers
        queries, terms = np.divmod(pairs, max(1, len(names)))
        best = _top_of_groups(queries, weights, terms, int(self.fb_terms))
        queries, terms, weights = queries[best], terms[best], weights[best]
        total = np.bincount(queries, weights, minlength=int(rows.max()) + 1)[queries]
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        found: dict[int, dict[str, float]] = {}
        for query, term, weight in zip(queries.tolist(), terms.tolist(), weights.tolist(), strict=True):
            found.setdefault(query, {})[names[term]] = weight
        return found

    def _by_name(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Terms numbered in the order of the alphabet; the index's numbers and the names in that order."""
        unique, at = np.unique(ids, return_inverse=True)
        names = self.index._reading.lexicon.take(unique).to_pylist()
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return place[at], unique[order], [names[i] for i in order]

    def _candidates(self, names: list[str], df: np.ndarray) -> np.ndarray:
        num_docs = self.index.num_docs
        if num_docs < SMALL:
            return np.ones(len(names), dtype=bool)
        plain = np.array([2 <= len(name) <= 20 and name.isalnum() for name in names], dtype=bool)
        return plain & (df <= 0.1 * num_docs)

    def _mixed(self, query: str | dict[str, float], feedback: dict[str, float]) -> dict[str, float]:
        original: dict[str, Any] = query if isinstance(query, dict) else Counter(self.index.analyze(query))
        total = sum(original.values())
        weight = float(self.original_query_weight)
        mixed = {term: weight * value / total for term, value in original.items() if value > 0}
        for term, value in feedback.items():
            mixed[term] = mixed.get(term, 0.0) + (1 - weight) * value
        return {term: value for term, value in mixed.items() if value > 0}


def _top_of_groups(groups: np.ndarray, weights: np.ndarray, terms: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest weights of each group; equal weights in the order of the terms."""
    order = np.lexsort((terms, -weights, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    position = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return order[position < k]
