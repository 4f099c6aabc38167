"""How much two rankings agree, without judgments: overlap@k and rank-biased overlap."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from pt_convsearch.measures.runs import Ranking, Ties, ranking
from pt_convsearch.topics.checks import as_ids, first_three


def agreement(
    first: pd.DataFrame,
    second: pd.DataFrame,
    qids: pd.Series | pd.Index,
    *,
    k: int = 10,
    p: float = 0.9,
    ties: Ties = "rank",
) -> pd.DataFrame:
    """Overlap@k and RBO of two runs, for each question.

    Args:
        first: a run: qid, docno, rank or score.
        second: another run.
        qids: the questions, in the order wanted.
        k: depth of the overlap.
        p: RBO's persistence, between 0 and 1: at 0.9 the first ten ranks carry 86% of the weight.
        ties: as in :func:`evaluate`.

    Returns:
        a frame indexed by qid: ``overlap``, shared documents of the two top k over the length of the longer one (k,
        where both reach it); ``rbo``, the extrapolated rank-biased overlap of the two rankings as far as they go. Where
        one ranking is empty both are 0; where both are empty there is nothing to agree on, and both are NaN.

    Source: Webber, Moffat & Zobel, A similarity measure for indefinite rankings (TOIS 2010), equation 32 for lists
        of uneven length.

    Example:
        >>> a = pd.DataFrame({"qid": "1", "docno": ["x", "y"], "rank": [0, 1]})
        >>> b = pd.DataFrame({"qid": "1", "docno": ["y", "z"], "rank": [0, 1]})
        >>> agreement(a, b, ["1"], k=2, p=0.5).round(3).values.tolist()
        [[0.5, 0.25]]
    """
    if k < 1:
        raise ValueError(f"k={k}: the depth of an overlap is at least 1")
    if not 0 < p < 1:
        raise ValueError(f"p={p}: RBO's persistence lies between 0 and 1")
    questions = pd.Index(as_ids(pd.Series(list(qids), dtype=object), "qid"), name="qid")
    if questions.has_duplicates:
        raise ValueError(f"qids {first_three(questions[questions.duplicated()].unique())} are asked for more than once")
    runs = ranking(first, ties=ties), ranking(second, ties=ties)
    depths = [_depths(run, questions) for run in runs]
    query, position_a, position_b = _shared(*runs, questions)
    longer, shorter = np.maximum(*depths), np.minimum(*depths)
    top = (position_a < k) & (position_b < k)
    with np.errstate(invalid="ignore"):
        overlap = np.bincount(query[top], minlength=len(questions)) / np.minimum(longer, k)
    rbo = _rbo(query, np.maximum(position_a, position_b) + 1, shorter, longer, p)
    rbo[longer == 0] = np.nan
    return pd.DataFrame({"overlap": overlap, "rbo": rbo}, index=questions)


def _depths(run: Ranking, questions: pd.Index) -> np.ndarray:
    """How many documents the run holds for each question."""
    place = questions.get_indexer(run.qids)
    counts = np.bincount(run.query, minlength=len(run.qids))
    depths = np.zeros(len(questions), dtype=np.int64)
    depths[place[place >= 0]] = counts[place >= 0]
    return depths


def _shared(a: Ranking, b: Ranking, questions: pd.Index) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Question and both positions of each document that stands in both rankings of a question."""
    query_a, query_b = questions.get_indexer(a.qids)[a.query], questions.get_indexer(b.qids)[b.query]
    codes = pa.concat_arrays([a.docno, b.docno]).dictionary_encode().indices.to_numpy().astype(np.int64)
    doc_a, doc_b = codes[: len(query_a)], codes[len(query_a) :]
    width = int(codes.max(initial=0)) + 1
    rows_a, rows_b = np.flatnonzero(query_a >= 0), np.flatnonzero(query_b >= 0)
    _, in_a, in_b = np.intersect1d(
        query_a[rows_a] * width + doc_a[rows_a],
        query_b[rows_b] * width + doc_b[rows_b],
        assume_unique=True,
        return_indices=True,
    )
    rows_a, rows_b = rows_a[in_a], rows_b[in_b]
    return query_a[rows_a], a.position[rows_a], b.position[rows_b]


def _rbo(query: np.ndarray, depth: np.ndarray, shorter: np.ndarray, longer: np.ndarray, p: float) -> np.ndarray:
    """RBO_EXT. ``depth``: from which depth on each shared document counts; a sum over depths becomes one over
    documents.

    With s and l the two lengths and X_d the number of documents shared at depth d:
    RBO = (1-p)/p (sum_{d=1..l} X_d/d p^d + sum_{d=s+1..l} X_s (d-s)/(s d) p^d) + ((X_l - X_s)/l + X_s/s) p^l
    """
    deepest = int(longer.max(initial=0))
    d = np.arange(1, deepest + 1)
    power = np.r_[0.0, np.cumsum(p**d)]  # sum of p^1 … p^d
    discounted = np.r_[0.0, np.cumsum(p**d / d)]  # sum of p^1/1 … p^d/d
    at_l = np.bincount(query, minlength=len(longer)).astype(np.float64)
    at_s = np.bincount(query[depth <= shorter[query]], minlength=len(longer)).astype(np.float64)
    summed = np.bincount(query, discounted[longer[query]] - discounted[depth - 1], minlength=len(longer))
    s, whole = np.maximum(shorter, 1), np.maximum(longer, 1)
    beyond = at_s * ((power[longer] - power[shorter]) / s - (discounted[longer] - discounted[shorter]))
    return (1 - p) / p * (summed + beyond) + ((at_l - at_s) / whole + at_s / s) * p ** longer.astype(np.float64)
