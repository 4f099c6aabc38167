"""From arrays of hits to the result frame, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray


def results_frame(
    topics: pd.DataFrame,
    counts: Sequence[int] | np.ndarray,
    docnos: Sequence[str] | np.ndarray | pa.Array | ExtensionArray,
    scores: np.ndarray,
) -> pd.DataFrame:
    """The result frame of a retriever.

    Args:
        topics: one row per query; all its columns are kept, in front.
        counts: how many hits each query has, in the order of ``topics``; their sum is the length of the next two.
        docnos: docnos of all hits, query after query, best first (an Arrow array of strings, or a pandas array of dtype
            ``str``, costs no Python object per hit).
        scores: their scores, float.

    Returns:
        the columns of ``topics`` without stale ``docno``, ``docid``, ``score``, ``rank``, then docno (str), score
        (float64), rank (int64, from 0 within each query). With no hits, an empty frame of the same columns and dtypes.
    """
    counts = np.asarray(counts, dtype=np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    kept = topics[[column for column in topics.columns if column not in ("docno", "docid", "score", "rank")]]
    frame = kept.take(rows).reset_index(drop=True)
    # a plain object array of str would cost a scan per row; the string dtype of pandas shares the buffers
    if not isinstance(docnos, pa.Array | ExtensionArray):
        docnos = np.asarray(docnos, dtype=object)
    frame["docno"] = pd.array(docnos, dtype="str")  # type: ignore[arg-type]
    frame["score"] = np.asarray(scores, dtype=np.float64)
    frame["rank"] = np.arange(len(rows), dtype=np.int64) - starts
    return frame


def ranked(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows best first within each query, with their ``rank``; equal scores stay in the order given.

    Queries keep the order of their first row. ``score`` becomes float64, ``rank`` int64 from 0.
    """
    queries = pd.factorize(frame["qid"])[0]
    scores = frame["score"].to_numpy(dtype=np.float64)
    order = np.lexsort((-scores, queries))
    starts = np.r_[0, np.cumsum(np.bincount(queries))[:-1]] if len(frame) else np.empty(0, dtype=np.int64)
    ordered = frame.take(order).reset_index(drop=True)
    ordered["score"] = scores[order]
    ordered["rank"] = np.arange(len(frame), dtype=np.int64) - starts[queries[order]]
    return ordered
