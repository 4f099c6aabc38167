"""Which checkpoint of a re-ranker is the best: it re-ranks the candidates of dev questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.negatives._texts import as_store
from pt_convsearch.negatives.training_pairs import as_former
from pt_convsearch.topics.checks import as_ids, check_queries, first_three


class DevReranking:
    """Re-ranks the candidates of dev questions, and measures.

    Args:
        dev: (topics, qrels, corpus, candidates); candidates are a frame of qid and docno, ranked as a first stage
            ranked them, or that first stage itself, which is run once.
        form: the form of the questions; None: that of the training set.
        pairs: the training set.
        metric: the measure to select by: "nDCG@10", "RR", "AP" …
    """

    def __init__(self, dev: Any, form: Any, pairs: TrainingPairs, metric: Any) -> None:
        if not isinstance(dev, tuple | list) or len(dev) != 4:
            raise TypeError(
                "dev is (topics, qrels, corpus, candidates): what is re-ranked, as a frame of qid and docno or as the "
                "pipeline that finds it (cs.form(cs.X) >> bm25 % 100)"
            )
        if form is None and pairs.form is None:
            raise ValueError(
                f"form: {pairs!r} was opened from disk; say how dev questions are formed, form={pairs.settings['form']}"
            )
        topics, qrels, corpus, candidates = dev
        named = as_measures(metric)
        if len(named) != 1:
            raise ValueError(f"metric={metric!r}: a model is selected by one measure")
        self.metric = next(iter(named))
        self.measure = named[self.metric]
        self.judgments = judgments(qrels)
        topics = check_queries(topics)
        topics = topics[topics["qid"].isin(self.judgments.qids)].reset_index(drop=True)
        if len(topics) == 0:
            raise ValueError("dev: none of the questions is judged: dev is (topics, qrels, corpus, candidates)")
        self.qids = topics["qid"]
        if isinstance(candidates, pt.Transformer):
            candidates = candidates.transform(topics)
        candidates = candidates.assign(qid=as_ids(candidates["qid"], "qid"), docno=as_ids(candidates["docno"], "docno"))
        candidates = candidates[candidates["qid"].isin(topics["qid"])]
        if len(candidates) == 0:
            raise ValueError("dev: the candidates hold no judged question")
        former = pairs.form if form is None else as_former(form)
        assert former is not None
        formed = former.transform(topics)
        store = as_store(corpus, pairs.settings["text_field"], pairs.settings["title_field"])
        rows = store.rows(candidates["docno"])
        if (rows < 0).any():
            raise ValueError(
                f"dev: candidate {first_three(candidates['docno'][rows < 0].unique())} is not in the dev corpus"
            )
        self.frame = pd.DataFrame(
            {
                "qid": candidates["qid"].to_numpy(dtype=object),
                "query": candidates["qid"].map(dict(zip(formed["qid"], formed["query"], strict=True))).to_numpy(),
                "docno": candidates["docno"].to_numpy(dtype=object),
                "text": store.texts(rows),
                "rank": candidates["rank"].to_numpy() if "rank" in candidates else np.arange(len(candidates)),
            }
        )

        # without ranks, the order of the frame must not decide ties: a model that gives one score would win with it
        by_chance = np.random.default_rng(0).permutation(len(self.frame))
        self._asked = self.frame if "rank" in candidates else self.frame.assign(rank=by_chance)

    def __call__(self, stage: pt.Transformer) -> dict[str, float]:
        """The measure of a stage."""
        values = evaluate(stage.transform(self._asked), self.judgments, self.measure, qids=self.qids)
        return {self.metric: float(values.iloc[:, 0].mean())}

    def digest(self) -> str:
        """A hash of what is re-ranked and of the judgments."""
        judged = self.judgments
        return digest([self.frame, judged.qids, judged.docnos, judged.query, judged.doc, judged.label])


def measured(dev: DevReranking | None, stage: Callable[[], pt.Transformer]) -> Callable[[], dict[str, float]] | None:
    """The dev measure of the stage that is in training, as a function without arguments."""
    return None if dev is None else lambda: dev(stage())
