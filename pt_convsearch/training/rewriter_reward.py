"""What a rewrite is worth: a retrieval measure of what it finds, and the self-critical loss made of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch

from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.topics.checks import check_queries

logger = logging.getLogger(__name__)


class Reward:
    """What rewrites of questions are worth: a measure of what a pipeline finds with them.

    Args:
        pipeline: Q -> R.
        qrels: qid, docno, label.
        measure: one measure, or its name.
    """

    def __init__(self, pipeline: pt.Transformer, qrels: Any, measure: Any) -> None:
        self.pipeline = pipeline
        self.judgments = judgments(qrels)
        found = as_measures(measure)
        if len(found) != 1:
            raise ValueError(f"reward={measure!r}: one measure")
        ((self.name, self.measure),) = found.items()
        self._known: dict[tuple[str, str], float] = {}

    def judged(self, topics: pd.DataFrame, *, first_turns: bool, name: str = "topics") -> pd.DataFrame:
        """The questions that have a relevant document, and a history unless ``first_turns``."""
        topics = check_queries(topics)
        if "qhistory" not in topics.columns:
            raise ValueError(f"{name} have no column 'qhistory': build them with cs.topics.from_messages")
        relevant = set(self.judgments.qids[np.unique(self.judgments.query[self.judgments.label >= 1])])
        kept = topics["qid"].isin(relevant) & topics["qhistory"].map(lambda history: first_turns or len(history) > 0)
        kept &= topics["query"].str.strip() != ""
        if not kept.any():
            raise ValueError(
                f"none of the {len(topics)} {name} has a relevant document and a history: there is nothing to reward"
            )
        logger.info("%s: %d of %d questions have a relevant document and are used", name, int(kept.sum()), len(topics))
        return topics[kept].reset_index(drop=True)

    def __call__(self, topics: pd.DataFrame, rewrites: Sequence[str]) -> np.ndarray:
        """The reward of one rewrite for each row; 0 for one without words. Equal ones are searched for once.

        A question may stand in several rows, with a rewrite each: the pipeline then runs as often, for to it a qid
        names one query.
        """
        keys = list(zip(topics["qid"].tolist(), rewrites, strict=True))
        while new := [at for at, key in enumerate(keys) if key not in self._known]:
            once = sorted({keys[at][0]: at for at in reversed(new)}.values())  # the first of each question
            self._search(topics.iloc[once], [rewrites[at] for at in once])
        return np.array([self._known[key] for key in keys])

    def _search(self, topics: pd.DataFrame, rewrites: list[str]) -> None:
        asked = topics.assign(query=rewrites)
        asked = asked.drop(columns=[column for column in ("query_toks", "query_vec") if column in asked.columns])
        found = evaluate(pd.DataFrame(self.pipeline.transform(asked)), self.judgments, self.measure, qids=asked["qid"])
        values = found.iloc[:, 0].to_dict()
        for qid, rewrite in zip(asked["qid"].tolist(), rewrites, strict=True):
            self._known[qid, rewrite] = float(values.get(qid, 0.0)) if rewrite.strip() else 0.0


def advantages(
    drawn: np.ndarray, greedy: np.ndarray | None = None, *, normalize: bool = False, penalty: float = 1.0
) -> np.ndarray:
    """By how much each drawn rewrite is better than what it is compared with.

    Args:
        drawn: rewards, a row for each question, a column for each of its draws.
        greedy: rewards of the greedy rewrites; None: each draw is compared with the mean of the question's others.
        normalize: divide by the standard deviation over all draws, so that the step does not depend on the reward's
            scale.
        penalty: what those below 0 are multiplied by, after that.

    >>> advantages(np.array([[1.0, 0.25], [0.0, 0.5]]), np.array([0.5, 0.5])).tolist()
    [[0.5, -0.25], [-0.5, 0.0]]
    >>> advantages(np.array([[1.0, 0.0, 0.5]])).tolist()   # 1 - (0 + 0.5) / 2, 0 - (1 + 0.5) / 2, 0.5 - (1 + 0) / 2
    [[0.75, -0.75, 0.0]]
    """
    if greedy is None:
        others = drawn.shape[1] - 1
        found = drawn - (drawn.sum(axis=1, keepdims=True) - drawn) / others
    else:
        found = drawn - greedy[:, None]
    spread = float(found.std()) if normalize else 1.0
    found = found / spread if spread > 0 else found
    return np.where(found < 0, penalty * found, found)


def merged(
    each: Sequence[int], drawn: Sequence[Sequence[int]], advantage: Sequence[float] | np.ndarray
) -> tuple[list[int], list[list[int]], np.ndarray]:
    """Equal draws of one input as one, with the sum of their advantages; without those that pull nowhere.

    The gradient is the same, and a rewriter that is sure of itself draws the same text often. The first is left where
    all advantages are 0.

    Args:
        each: which input a draw was made for.
        drawn: token ids.
        advantage: of each draw.

    >>> [part if isinstance(part, list) else part.tolist()
    ...  for part in merged([0, 0, 0, 1, 1], [[7, 1], [8, 1], [7, 1], [7, 1], [9, 1]], [0.5, -1.0, 0.5, 0.25, 0.0])]
    [[0, 0, 1], [[7, 1], [8, 1], [7, 1]], [1.0, -1.0, 0.25]]
    """
    sums: dict[tuple[int, tuple[int, ...]], float] = {}
    for row, ids, value in zip(each, drawn, advantage, strict=True):
        key = (int(row), tuple(ids))
        sums[key] = sums.get(key, 0.0) + float(value)
    kept = [key for key, value in sums.items() if value != 0] or list(sums)[:1]
    return [row for row, _ in kept], [list(ids) for _, ids in kept], np.array([sums[key] for key in kept])


def self_critical_loss(
    log_probabilities: torch.Tensor, advantage: Sequence[float] | np.ndarray, *, draws: int | None = None
) -> torch.Tensor:
    """The mean of ``-advantage * log p(drawn)``, over so many draws; by default as many as are given.

    >>> float(self_critical_loss(torch.tensor([-2.0, -1.0]), [0.5, -0.25]))   # (0.5 * 2 - 0.25 * 1) / 2
    0.375
    """
    weights = torch.as_tensor(np.asarray(advantage), dtype=log_probabilities.dtype, device=log_probabilities.device)
    return -(weights * log_probabilities).sum() / (len(log_probabilities) if draws is None else draws)
