"""Negatives that score too close to the positive are often positives."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd

from .filter import NegativeFilter, described, pairs_in, positives_of

logger = logging.getLogger(__name__)


class Margin(NegativeFilter):
    """Drop negatives whose score comes too close to that of the question's best positive.

    A row stays where ``score <= positive - absolute`` and, with ``relative``, ``score <= positive * relative`` (the
    "perc-to-pos" of Moreira et al., 2024, for scores above 0). The positive's score is read from the ranking itself,
    so this filter goes before :class:`DropPositives`, which then removes the positives that this filter leaves in.
    Where no positive was retrieved there is nothing to compare with, and every row stays.

    Input: qid, docno, score. Output: the same without those rows; ranks stay those of retrieval.

    Args:
        qrels: qid, docno, label; a label above 0 is a positive.
        absolute: how far below the positive a negative must score.
        relative: the largest share of the positive's score that a negative may have, e.g. 0.95.

    Raises:
        ValueError: ``absolute`` below 0, or ``relative`` outside (0, 1].

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
        >>> found = pd.DataFrame({"qid": "1", "docno": list("bacd"), "rank": range(4), "score": [9., 8., 7.5, 6.]})
        >>> cs.Margin(qrels, absolute=1)(found).docno.tolist()
        ['a', 'd']
    """

    needs = ("qid", "docno", "score")

    def __init__(self, qrels: pd.DataFrame, *, absolute: float = 0.0, relative: float | None = None) -> None:
        if absolute < 0:
            raise ValueError(f"absolute={absolute}: a margin is 0 or more")
        if relative is not None and not 0 < relative <= 1:
            raise ValueError(f"relative={relative}: a share of the positive's score lies in (0, 1]")
        self.qrels = qrels
        self.absolute = absolute
        self.relative = relative
        self._golds = positives_of(qrels)

    def __repr__(self) -> str:
        relative = "" if self.relative is None else f", relative={self.relative}"
        return f"Margin({described(self.qrels)}, absolute={self.absolute}{relative})"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        qids = frame["qid"]
        gold = pairs_in((qids, frame["docno"]), (self._golds["qid"], self._golds["docno"]))
        best = pd.Series(frame["score"].to_numpy()[gold]).groupby(qids.to_numpy()[gold]).max()
        positive = qids.map(best).to_numpy(dtype=np.float64)
        unknown = np.isnan(positive)
        if unknown.any():
            logger.info("%r: no positive was retrieved for %d questions", self, qids[unknown].nunique())
        scores = frame["score"].to_numpy(dtype=np.float64)
        allowed = scores <= positive - self.absolute
        if self.relative is not None:
            allowed &= scores <= positive * self.relative
        return allowed | unknown | gold
