"""The papers' measures over arrays: RR, R, Success, P, AP and nDCG as trec_eval defines them.

Only the judged documents that were found (the hits) matter to them, so each is a few operations over a short array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ir_measures import Measure
from ir_measures.providers.base import NOT_PROVIDED

from pt_convsearch.measures.runs import Judgments, Ranking


@dataclass(frozen=True)
class Hits:
    """Judged documents that the run found, by question and position, beside all that were judged."""

    judged: Judgments
    query: np.ndarray
    position: np.ndarray
    label: np.ndarray

    def relevant(self, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
        """Questions and positions of the relevant hits above the measure's cutoff, by question and position."""
        kept = self.label >= measure["rel"]
        if measure["cutoff"] is not NOT_PROVIDED:
            kept &= self.position < measure["cutoff"]
        return self.query[kept], self.position[kept]

    def num_relevant(self, measure: Measure) -> np.ndarray:
        """How many relevant documents each question has."""
        return self.count(self.judged.query[self.judged.label >= measure["rel"]])

    def count(self, query: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Rows, or the sum of ``weights``, per question."""
        return np.bincount(query, weights, minlength=len(self.judged.qids))


def hits(ranking: Ranking, judged: Judgments) -> Hits:
    """Look the ranking's documents up in the judgments."""
    query = judged.qids.get_indexer(ranking.qids)[ranking.query]
    known = pa.array(judged.docnos.to_numpy(dtype=object), type=pa.large_string())
    doc = pc.index_in(ranking.docno, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    rows = np.flatnonzero((query >= 0) & (doc >= 0))
    key = query[rows] * len(judged.docnos) + doc[rows]
    judged_key = judged.query * len(judged.docnos) + judged.doc
    order = np.argsort(judged_key)
    place = np.searchsorted(judged_key, key, sorter=order)
    place = order[np.minimum(place, len(order) - 1)] if len(order) else place
    found = judged_key[place] == key if len(order) else np.zeros(0, dtype=bool)
    rows, place = rows[found], place[found]
    by_question = np.lexsort((ranking.position[rows], query[rows]))
    rows, place = rows[by_question], place[by_question]
    return Hits(judged, query[rows], ranking.position[rows], judged.label[place])


def _rr(hits: Hits, measure: Measure) -> np.ndarray:
    query, position = hits.relevant(measure)
    first = np.full(len(hits.judged.qids), np.inf)
    np.minimum.at(first, query, position)
    return 1.0 / (first + 1.0)


def _recall(hits: Hits, measure: Measure) -> np.ndarray:
    return _share(hits.count(hits.relevant(measure)[0]), hits.num_relevant(measure))


def _success(hits: Hits, measure: Measure) -> np.ndarray:
    return (hits.count(hits.relevant(measure)[0]) > 0).astype(np.float64)


def _precision(hits: Hits, measure: Measure) -> np.ndarray:
    return hits.count(hits.relevant(measure)[0]) / measure["cutoff"]


def _ap(hits: Hits, measure: Measure) -> np.ndarray:
    query, position = hits.relevant(measure)
    found_so_far = _place_in_group(query) + 1
    return _share(hits.count(query, found_so_far / (position + 1.0)), hits.num_relevant(measure))


def _ndcg(hits: Hits, measure: Measure) -> np.ndarray:
    cutoff = np.inf if measure["cutoff"] is NOT_PROVIDED else measure["cutoff"]
    gain = _gains(hits.label, measure)
    kept = (hits.position < cutoff) & (gain > 0)
    dcg = hits.count(hits.query[kept], gain[kept] / np.log2(hits.position[kept] + 2.0))
    gain = _gains(hits.judged.label, measure)
    order = np.lexsort((-gain, hits.judged.query))
    query, gain = hits.judged.query[order], gain[order]
    position = _place_in_group(query)
    kept = (position < cutoff) & (gain > 0)
    return _share(dcg, hits.count(query[kept], gain[kept] / np.log2(position[kept] + 2.0)))


def _gains(label: np.ndarray, measure: Measure) -> np.ndarray:
    if measure["gains"] is not NOT_PROVIDED:
        grades, where = np.unique(label, return_inverse=True)
        label = np.array([measure["gains"].get(int(grade), int(grade)) for grade in grades], dtype=np.int64)[where]
    gain = np.maximum(label, 0).astype(np.float64)
    return np.exp2(gain) - 1.0 if measure["dcg"] == "exp-log2" else gain


def _place_in_group(group: np.ndarray) -> np.ndarray:
    """0, 1, 2 … within each run of equal values."""
    if len(group) == 0:
        return np.empty(0, dtype=np.int64)
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    return np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


_BY_NAME: dict[str, Callable[[Hits, Measure], np.ndarray]] = {
    "RR": _rr,
    "R": _recall,
    "Success": _success,
    "P": _precision,
    "AP": _ap,
    "nDCG": _ndcg,
}


def in_arrays(measure: Measure) -> bool:
    """Whether the measure is computed here; every other one is ir_measures' work."""
    return measure.NAME in _BY_NAME and not hasattr(measure, "runtime_impl") and not measure["judged_only"]


def values(hits: Hits, measure: Measure) -> np.ndarray:
    """The measure's value for each judged question."""
    return _BY_NAME[str(measure.NAME)](hits, measure)
