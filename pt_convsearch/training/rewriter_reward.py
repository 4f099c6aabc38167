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
        """The reward of one rewrite for each question; 0 for one without words. Equal ones are searched for once."""
        keys = list(zip(topics["qid"].tolist(), rewrites, strict=True))
        new = [at for at, key in enumerate(keys) if key not in self._known]
        if new:
            asked = topics.iloc[new].assign(query=[rewrites[at] for at in new])
            asked = asked.drop(columns=[column for column in ("query_toks", "query_vec") if column in asked.columns])
            found = evaluate(
                pd.DataFrame(self.pipeline.transform(asked)), self.judgments, self.measure, qids=asked["qid"]
            )
            values = found.iloc[:, 0].to_dict()
            self._known.update(
                {keys[at]: float(values.get(keys[at][0], 0.0)) if rewrites[at].strip() else 0.0 for at in new}
            )
        return np.array([self._known[key] for key in keys])


def self_critical_loss(
    log_probabilities: torch.Tensor, drawn: Sequence[float] | np.ndarray, greedy: Sequence[float] | np.ndarray
) -> torch.Tensor:
    """The mean of ``-(reward(drawn) - reward(greedy)) * log p(drawn)``.

    >>> float(self_critical_loss(torch.tensor([-2.0, -1.0]), [1.0, 0.25], [0.5, 0.5]))   # (0.5 * 2 - 0.25 * 1) / 2
    0.375
    """
    advantage = torch.as_tensor(np.asarray(drawn) - np.asarray(greedy), dtype=log_probabilities.dtype)
    return -(advantage.to(log_probabilities.device) * log_probabilities).mean()
