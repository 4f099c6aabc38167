"""Passages that the conversation has shown already."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyterrier as pt

from .._stage import Stage
from ..topics.checks import as_ids, first_three
from ..topics.messages import USER, shown_docnos

logger = logging.getLogger(__name__)


class DropSeen(Stage):
    """R -> R: leaves out the passages that the history already showed.

    A passage is seen if its ``docno`` is that of a message in the row's ``qhistory`` (``{"role": …, "content": …,
    "docno": …}``; a list of docnos counts each). Texts are not compared. What is left is ranked from 0 again, in its
    old order and with its old scores, so a list gets shorter by what was dropped: retrieve deeper first
    (``num_results=110`` for a hundred that are new). The number left out is logged.

    Input: qid, docno, qhistory, and rank or score. Output: the same columns, with ``rank``.

    Args:
        demote: keep what was seen, below all others and in its old order. Scores of demoted passages are lowered
            below the lowest of the others, so that every tool that sorts by score sees the same order.

    Raises:
        pt.validate.InputValidationError: ``qhistory`` is missing.
        ValueError: a ``qhistory`` that is no list of messages, or, where something is demoted, a score that is NaN or
            infinite; the message names the qid.

    Example:
        >>> import pandas as pd
        >>> history = [{"role": "assistant", "content": "Herbert wrote it.", "docno": "d1"}]
        >>> found = pd.DataFrame({"qid": "c_2", "docno": ["d1", "d2"], "score": [2.0, 1.0], "rank": [0, 1]})
        >>> found["qhistory"] = [history] * 2
        >>> DropSeen()(found)[["docno", "score", "rank"]].to_numpy().tolist()
        [['d2', 1.0, 0]]
        >>> DropSeen(demote=True)(found)[["docno", "score", "rank"]].to_numpy().tolist()
        [['d2', 1.0, 0], ['d1', 0.0, 1]]

    Source: ours. The answers of a conversation fill the top ranks of every system that reads its history, and make any
    two rankings from the same history look alike.
    """

    def __init__(self, *, demote: bool = False) -> None:
        self.demote = demote

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        with pt.validate.any(inp) as accepted:
            accepted.columns(includes=["qid", "docno", "qhistory", "rank"])
            accepted.columns(includes=["qid", "docno", "qhistory", "score"])
        queries = pd.factorize(inp["qid"])[0]
        old = inp["rank"].to_numpy() if "rank" in inp.columns else -inp["score"].to_numpy(dtype=np.float64)
        seen = self._seen(inp, queries)
        order = np.lexsort((old, seen, queries)) if self.demote else np.lexsort((old, queries))
        out = inp.take(order)
        seen = seen[order]
        if not self.demote:
            out = out[~seen]
        elif "score" in out.columns and seen.any():
            scores = out["score"].to_numpy(dtype=np.float64, na_value=np.nan)
            wrong = ~np.isfinite(scores) & np.isin(queries[order], queries[order][seen])
            if wrong.any():
                raise ValueError(
                    f"score of qid {first_three(out['qid'][wrong].unique())} is NaN or infinite: demote=True puts "
                    "what was seen below the lowest score of the others; give finite scores, or demote=False"
                )
            out = out.assign(score=_lowered(scores, seen, queries[order]))
        out = out.reset_index(drop=True)
        groups = pd.factorize(out["qid"])[0]
        sizes = np.bincount(groups) if len(groups) else np.empty(0, dtype=np.int64)
        out["rank"] = np.arange(len(out), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        logger.info(
            "%d of %d results were seen before: %s", seen.sum(), len(inp), "demoted" if self.demote else "left out"
        )
        return out

    def _seen(self, inp: pd.DataFrame, queries: np.ndarray) -> np.ndarray:
        """Which rows show a passage of their own history."""
        first = np.unique(queries, return_index=True)[1]
        answers = 0
        shown: list[set[str]] = []
        for qid, history in zip(inp["qid"].iloc[first], inp["qhistory"].iloc[first], strict=True):
            if not isinstance(history, Iterable) or isinstance(history, str | dict):
                raise ValueError(f"qhistory of qid {qid!r} is {history!r}: a list of messages is needed")
            docnos: set[str] = set()
            for message in history:
                if not isinstance(message, dict):
                    raise ValueError(
                        f"qhistory of qid {qid!r} holds {message!r}: a message is a dict with role and content"
                    )
                answers += message.get("role") != USER
                docnos.update(shown_docnos(message))
            shown.append(docnos)
        if answers and not any(shown):
            warnings.warn(
                "no message of any qhistory carries a docno, so DropSeen leaves nothing out: "
                "add 'docno' to the messages, as cs.topics.answers does",
                stacklevel=3,
            )
        pairs = zip(queries.tolist(), as_ids(inp["docno"], "docno"), strict=True)
        return np.fromiter((docno in shown[query] for query, docno in pairs), dtype=bool, count=len(inp))


def _lowered(scores: np.ndarray, seen: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Scores of seen rows moved below the lowest other score of their query, their distances kept."""
    frame = pd.DataFrame(
        {"query": queries, "kept": np.where(seen, np.nan, scores), "seen": np.where(seen, scores, np.nan)}
    )
    groups = frame.groupby("query")
    lowest = groups["kept"].transform("min").to_numpy()
    with np.errstate(over="ignore"):
        shift = lowest - 1.0 - groups["seen"].transform("max").to_numpy()
        lowered = np.where(seen, scores + np.nan_to_num(shift, nan=0.0, neginf=-np.inf).clip(max=0.0), scores)
    # where numbers are so far from 0 that a distance is lost, the next smaller number keeps the order
    below, before, query = np.inf, np.nan, -1
    moved = np.flatnonzero(seen & ~np.isnan(lowest))
    for row in moved[np.lexsort((-scores[moved], queries[moved]))]:
        if queries[row] != query:
            below, before, query = lowest[row], np.nan, queries[row]
        if scores[row] != before:
            wanted = lowered[row] if np.isfinite(lowered[row]) else np.inf
            below, before = min(wanted, np.nextafter(below, -np.inf)), scores[row]
        lowered[row] = below
    return lowered
