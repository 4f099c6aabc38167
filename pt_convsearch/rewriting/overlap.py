"""How many of its words a rewrite shares with the gold rewrite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from pt_convsearch.rewriting.words import folded, words


def term_overlap(rewrites: Iterable[str], golds: Iterable[str]) -> pd.DataFrame:
    """Precision, recall and F1 of the words of rewrites against those of gold rewrites, row by row.

    Words are compared case folded and without possessives; a word that is said twice must be found twice (this is
    ROUGE-1). Where both are empty all three are 1, where one is, 0.

    Args:
        rewrites: the queries to be judged.
        golds: the gold rewrites, in the same order.

    Returns:
        a frame with columns precision, recall, f1; indexed as ``rewrites`` where that is a Series.

    Raises:
        ValueError: not as many rewrites as golds.

    Example:
        >>> term_overlap(["When was Dune published?"], ["When was the book Dune published?"]).iloc[0].round(3).tolist()
        [1.0, 0.667, 0.8]

    Source: ROUGE-1 (Lin, 2004), which the papers on CANARD and QReCC report for rewrites.
    """
    index = rewrites.index if isinstance(rewrites, pd.Series) else None
    found, wanted = list(rewrites), list(golds)
    if len(found) != len(wanted):
        raise ValueError(f"{len(found)} rewrites, but {len(wanted)} gold rewrites: give one for each")
    rows = [_overlap(_bag(rewrite), _bag(gold)) for rewrite, gold in zip(found, wanted, strict=True)]
    return pd.DataFrame(rows, columns=["precision", "recall", "f1"], index=index, dtype="float64")


def _bag(text: str) -> Counter[str]:
    return Counter(map(folded, words(text)))


def _overlap(found: Counter[str], wanted: Counter[str]) -> tuple[float, float, float]:
    if not found and not wanted:
        return 1.0, 1.0, 1.0
    shared = (found & wanted).total()
    if not shared:
        return 0.0, 0.0, 0.0
    precision, recall = shared / found.total(), shared / wanted.total()
    return precision, recall, 2 * precision * recall / (precision + recall)
