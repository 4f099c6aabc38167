"""From arrays of hits to the result frame, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def results_frame(
    topics: pd.DataFrame, counts: Sequence[int] | np.ndarray, docnos: Sequence[str] | np.ndarray, scores: np.ndarray
) -> pd.DataFrame:
    """The result frame of a retriever.

    Args:
        topics: one row per query; all its columns are kept, in front.
        counts: how many hits each query has, in the order of ``topics``; their sum is the length of the next two.
        docnos: docnos of all hits, query after query, best first.
        scores: their scores, float.

    Returns:
        the columns of ``topics`` without stale ``docno``, ``docid``, ``score``, ``rank``, then docno (str), score (float64),
        rank (int64, from 0 within each query). With no hits at all, an empty frame of the same columns and dtypes.
    """
    counts = np.asarray(counts, dtype=np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    kept = topics[[column for column in topics.columns if column not in ("docno", "docid", "score", "rank")]]
    frame = kept.take(rows).reset_index(drop=True)
    # a plain object array of str would cost a scan per row; the string dtype of pandas shares the buffers
    frame["docno"] = pd.array(np.asarray(docnos, dtype=object), dtype="str")
    frame["score"] = np.asarray(scores, dtype=np.float64)
    frame["rank"] = np.arange(len(rows), dtype=np.int64) - starts
    return frame
