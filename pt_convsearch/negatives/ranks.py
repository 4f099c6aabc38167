"""A window of the ranking."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .filter import NegativeFilter


class Ranks(NegativeFilter):
    """Keep the ranks ``low`` to ``high`` of the retrieval, counted from 1, both included.

    ``Ranks(91, 100)`` is Penha & Hauff's experiment E2: negatives from far down the list are less often relevant ones
    that nobody judged. Ranks are those of the retriever: what an earlier filter removed leaves a gap.

    Input: qid, docno, rank (from 0, as in PyTerrier). Output: the same without the other rows.

    Args:
        low: the first rank that stays, at least 1.
        high: the last rank that stays; None: to the end.

    Raises:
        ValueError: the window is empty or starts before rank 1.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> found = pd.DataFrame({"qid": "1", "docno": list("abcd"), "rank": [0, 1, 2, 3], "score": [4., 3., 2., 1.]})
        >>> cs.Ranks(2, 3)(found).docno.tolist()
        ['b', 'c']
    """

    needs = ("qid", "docno", "rank")

    def __init__(self, low: int, high: int | None = None) -> None:
        if low < 1:
            raise ValueError(f"low={low}: ranks are counted from 1")
        if high is not None and high < low:
            raise ValueError(f"high={high} is below low={low}: no rank lies in that window")
        self.low = low
        self.high = high

    @property
    def width(self) -> int | None:
        """How many ranks the window holds; None without an end."""
        return None if self.high is None else self.high - self.low + 1

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        ranks = frame["rank"].to_numpy()
        keep = ranks >= self.low - 1
        if self.high is not None:
            keep &= ranks <= self.high - 1
        return keep
