"""Which checkpoint is the best: retrieval on a small dev collection, by the measure that counts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sentence_transformers.base.evaluation import BaseEvaluator

from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.negatives._texts import TextStore, as_store
from pt_convsearch.negatives.training_pairs import as_former
from pt_convsearch.topics.checks import as_ids, check_queries

if TYPE_CHECKING:
    from pt_convsearch.dense import BiEncoder

logger = logging.getLogger(__name__)


class DevRetrieval(BaseEvaluator):
    """Encodes the dev collection, searches it exactly and measures.

    Args:
        topics: dev topics, formed already; questions without judgments are left out, one with an empty query counts 0.
        qrels: qid, docno, label.
        corpus: the dev collection, as in ``cs.training_pairs``; a store of texts.
        encoder: makes the PyTerrier encoder of the model in training.
        metric: the measure to select by, e.g. "R@5", "RR", "AP".
        candidates: qid, docno: rank these passages only (R_10@1-like tasks; MAP over candidates). None: the whole
            collection.
        depth: how deep to search.
    """

    def __init__(
        self,
        topics: pd.DataFrame,
        qrels: pd.DataFrame,
        corpus: TextStore,
        *,
        encoder: Callable[[Any], BiEncoder],
        metric: Any,
        candidates: pd.DataFrame | None = None,
        depth: int = 100,
    ) -> None:
        super().__init__()
        self.judgments = judgments(qrels)
        self.topics = topics[topics["qid"].isin(self.judgments.qids)].reset_index(drop=True)
        if len(self.topics) == 0:
            raise ValueError("dev: none of the questions is judged: dev is (topics, qrels, corpus) of one collection")
        self.corpus = corpus
        self.encoder = encoder
        named = as_measures(metric)
        if len(named) != 1:
            raise ValueError(f"metric={metric!r}: a model is selected by one measure")
        self.metric = next(iter(named))
        self.measure = named[self.metric]
        self.candidates = None if candidates is None else self._of_questions(candidates)
        if candidates is None and corpus.size == 0:
            raise ValueError("dev: the corpus is empty, or a text loader, which cannot be searched: give its passages")
        self.depth = max(depth, getattr(self.measure, "params", {}).get("cutoff", 0))
        self.primary_metric = self.metric
        self.greater_is_better = True

    def _of_questions(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """The candidates, ids as str; some must be of judged questions."""
        missing = [column for column in ("qid", "docno") if column not in candidates.columns]
        if missing:
            raise ValueError(f"dev: the candidates have no column {missing[0]!r}: give qid and docno")
        candidates = candidates.assign(qid=as_ids(candidates["qid"], "qid"), docno=as_ids(candidates["docno"], "docno"))
        if not candidates["qid"].isin(self.topics["qid"]).any():
            raise ValueError("dev: the candidates hold no judged question")
        return candidates

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        training = model.training
        encoder = self.encoder(model)
        asked = self.topics[self.topics["query"].str.strip() != ""]
        queries = encoder.encode_queries(asked["query"].tolist())
        run = self._rank(asked, queries, encoder)
        model.train(training)
        values = evaluate(run, self.judgments, self.measure, qids=self.topics["qid"])
        return {self.metric: float(values.iloc[:, 0].mean())}

    def _rank(self, asked: pd.DataFrame, queries: np.ndarray, encoder: BiEncoder) -> pd.DataFrame:
        import faiss

        if self.candidates is not None:
            # the order of the file must not decide ties: a model that gives all texts one vector would win with it
            frame = self.candidates[self.candidates["qid"].isin(asked["qid"])].sample(frac=1, random_state=0)
            docnos = pd.unique(frame["docno"])
            passages = self._encode(self.corpus.rows(docnos), encoder, docnos)
            left = pd.Index(asked["qid"]).get_indexer(pd.Index(frame["qid"]))
            right = pd.Index(docnos).get_indexer(pd.Index(frame["docno"]))
            scores = np.einsum("ij,ij->i", queries[left], passages[right])
            return pd.DataFrame({"qid": frame["qid"].to_numpy(), "docno": frame["docno"].to_numpy(), "score": scores})
        rows = np.arange(self.corpus.size)
        passages = self._encode(rows, encoder, rows)
        depth = min(self.depth, len(passages))
        if len(asked) == 0:
            return pd.DataFrame({"qid": [], "docno": [], "score": []}).astype(
                {"qid": str, "docno": str, "score": float}
            )
        scores, found = faiss.knn(queries, passages, depth, metric=faiss.METRIC_INNER_PRODUCT)
        return pd.DataFrame(
            {
                "qid": np.repeat(asked["qid"].to_numpy(dtype=object), depth),
                "docno": self.corpus.docnos(found.ravel()),
                "score": scores.ravel().astype(np.float64),
            }
        )

    def _encode(self, rows: np.ndarray, encoder: BiEncoder, named: Any) -> np.ndarray:
        if (rows < 0).any():
            raise ValueError(f"dev: candidate {named[int((rows < 0).argmax())]!r} is not in the dev corpus")
        return encoder.encode_docs(self.corpus.texts(rows))


def dev_evaluator(
    dev: Any, form: Any, pairs: TrainingPairs, similarity: Any, query_length: int, passage_length: int, metric: Any
) -> DevRetrieval | None:
    """The evaluator for ``dev=(topics, qrels, corpus)`` or ``(topics, qrels, corpus, candidates)``; None without dev.

    Dev questions are formed as those of the training set, unless ``form`` says otherwise.

    Raises:
        ValueError: the set was opened from disk and ``form`` is not given.
        TypeError: ``dev`` is no such tuple.
    """
    if dev is None:
        return None
    if not isinstance(dev, tuple | list) or len(dev) not in (3, 4):
        raise TypeError(
            "dev is (topics, qrels, corpus), or (topics, qrels, corpus, candidates) to rank candidates only"
        )
    if form is None and pairs.form is None:
        raise ValueError(
            f"form: {pairs!r} was opened from disk; say how dev questions are formed, form={pairs.settings['form']}"
        )
    former = pairs.form if form is None else as_former(form)
    assert former is not None
    topics, qrels, corpus, *rest = dev

    def encoder(model: Any) -> BiEncoder:
        return encoder_of(model, similarity, query_length, passage_length)

    return DevRetrieval(
        former.transform(check_queries(topics)),
        qrels,
        as_store(corpus, pairs.settings["text_field"], pairs.settings["title_field"]),
        encoder=encoder,
        metric=metric,
        candidates=rest[0] if rest else None,
    )


def encoder_of(model: Any, similarity: Any, query_length: int, passage_length: int) -> BiEncoder:
    """The PyTerrier encoder of a model in training."""
    from pt_convsearch.dense import BiEncoder

    return BiEncoder(model, similarity=similarity, max_query_length=query_length, max_passage_length=passage_length)


def dev_digest(evaluator: DevRetrieval | None) -> str | None:
    """A hash of the dev collection."""
    if evaluator is None:
        return None
    judged = evaluator.judgments
    golds = [judged.qids, judged.docnos, judged.query, judged.doc, judged.label]
    return digest([evaluator.topics[["qid", "query"]], golds, evaluator.corpus.fingerprint, evaluator.candidates])
