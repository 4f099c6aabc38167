"""Question types: first, switch, no-switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch.measures import Judgments, judgments
from pt_convsearch.topics.checks import as_ids, first_three
from pt_convsearch.topics.validation import turn_numbers

FIRST, SWITCH, NO_SWITCH = "first", "switch", "no-switch"
TYPES = (FIRST, SWITCH, NO_SWITCH)


class QuestionTypes:
    """Labels questions first, switch or no-switch; called on a topics frame it returns the frame with the column
    ``qtype``.

    - **first**: turn 1 of its conversation.
    - **switch** and **no-switch**: a later turn for which both it and the turn before have gold passages. The two
      sets are compared by the dot product of their BM25 vectors, the largest over all pairs: below ``threshold`` it
      is a switch.
    - no label: any other question (the turn before is missing, or one of the two has no gold).

    It looks at other rows of the topics (the turn before), so it is called once on all of them and is no stage of a
    pipeline.

    Args:
        index: the BM25 index that holds the gold passages.
        qrels: qid, docno, label, or ``{qid: {docno: label}}``.
        threshold: the dot product from which on two turns are about the same topic. Kim & Kim do not publish theirs:
            :meth:`similarity` shows the values to choose it from, and whoever reports types reports it.
        k1: BM25's k1 for the vectors.
        b: BM25's b.
        rel: the lowest label of a gold passage.

    Without index and threshold only turn 1 is labelled, which needs no judgments. Published lists are read by
    :meth:`from_lists`.

    Columns: reads qid, conversation_id, turn_number; writes qtype (categories in the order first, switch, no-switch).

    Raises:
        ValueError: an index without judgments or threshold; topics without ``conversation_id`` or ``turn_number``.

    Example:
        >>> topics = pd.DataFrame({"qid": ["c_1", "c_2"], "conversation_id": "c", "turn_number": [1, 2]})
        >>> QuestionTypes()(topics)["qtype"].astype(object).where(lambda label: label.notna(), None).tolist()
        ['first', None]

    Source: Kim & Kim (2022), who define the types; the largest over several gold passages, and turn numbers that
    follow each other, are our reading.
    """

    def __init__(
        self,
        index: Any = None,
        qrels: pd.DataFrame | Mapping[str, Mapping[str, int]] | None = None,
        *,
        threshold: float | None = None,
        k1: float = 0.9,
        b: float = 0.4,
        rel: int = 1,
    ) -> None:
        if index is not None and qrels is None:
            raise ValueError("types of later questions need qrels beside the index")
        if index is not None and threshold is None:
            raise ValueError(
                "switch and no-switch are told apart by a threshold: look at similarity(topics) and state one"
            )
        if index is None and threshold is not None:
            raise ValueError("a threshold compares BM25 vectors: give the index that holds the gold passages")
        self.index = index
        self.qrels = qrels
        self.threshold = threshold
        self.k1 = k1
        self.b = b
        self.rel = rel

    @staticmethod
    def from_lists(lists: Mapping[str, Any], labels: Iterable[str] = TYPES) -> _Listed:
        """Types from published lists, such as those of QReCC's test questions.

        Args:
            lists: label -> qids. Labels that are not in ``labels`` (QReCC's file lists sources as well) are left out.
            labels: the labels to use, in the order in which tables show them.

        Returns:
            a function from topics to topics with ``qtype``; a question that is on no list has no label.

        Raises:
            ValueError: a label without a list, or a qid on two lists.

        Example:
            >>> types = QuestionTypes.from_lists({"first": ["1_1"], "switch": ["1_2"]}, labels=["first", "switch"])
            >>> types(pd.DataFrame({"qid": ["1_2", "1_1"]}))["qtype"].tolist()
            ['switch', 'first']
        """
        return _Listed(lists, labels)

    def __call__(self, topics: pd.DataFrame) -> pd.DataFrame:
        """The topics with the column ``qtype``."""
        first = _turns(topics) == 1
        labels = np.full(len(topics), None, dtype=object)
        labels[first] = FIRST
        if self.index is not None:
            similarity = self.similarity(topics).to_numpy()
            known = ~np.isnan(similarity)
            labels[known] = np.where(similarity[known] < self.threshold, SWITCH, NO_SWITCH)
        return topics.assign(qtype=pd.Categorical(labels, categories=list(TYPES)))

    def comparable(self, topics: pd.DataFrame) -> pd.Series:
        """Which questions are switch or no-switch: later turns that have gold, as has the turn before. Needs no
        index."""
        return pd.Series(self._pairs(topics)[0] >= 0, index=topics.index)

    def similarity(self, topics: pd.DataFrame) -> pd.Series:
        """The dot product of the BM25 vectors of this turn's and the previous turn's gold passages; NaN where it is
        undefined.

        Raises:
            ValueError: no index was given.
        """
        if self.index is None:
            raise ValueError(
                "similarity compares BM25 vectors: give the index that holds the gold passages, and a threshold"
            )
        before, judged = self._pairs(topics)
        golds = _golds(judged, self.rel)
        qids = as_ids(topics["qid"], "qid").to_numpy(dtype=object)
        rows = np.flatnonzero(before >= 0)
        docnos = sorted({docno for row in rows for qid in (qids[row], qids[before[row]]) for docno in golds[qid]})
        values = np.full(len(topics), np.nan)
        if docnos:
            vectors = self.index.vectors(docnos, k1=self.k1, b=self.b)
            place = {docno: at for at, docno in enumerate(docnos)}
            for row in rows:
                mine = vectors[[place[docno] for docno in golds[qids[row]]]]
                previous = vectors[[place[docno] for docno in golds[qids[before[row]]]]]
                values[row] = (mine @ previous.T).max()
        return pd.Series(values, index=topics.index, name="similarity")

    def _pairs(self, topics: pd.DataFrame) -> tuple[np.ndarray, Judgments]:
        """For each row the row of the turn before, -1 where there is none or one of the two has no gold."""
        if self.qrels is None:
            raise ValueError("switch and no-switch need qrels: QuestionTypes(index, qrels, threshold=…)")
        turn = _turns(topics)
        conversations = as_ids(topics["conversation_id"], "conversation_id").tolist()
        judged = judgments(self.qrels)
        gold = as_ids(topics["qid"], "qid").isin(list(_golds(judged, self.rel))).to_numpy(dtype=bool)
        place = {key: row for row, key in enumerate(zip(conversations, turn.tolist(), strict=True))}
        if len(place) < len(topics):
            raise ValueError(
                f"{len(topics) - len(place)} topics share conversation_id and turn_number with another: "
                "a turn is one question"
            )
        before = np.array(
            [
                place.get((conversation, number - 1), -1)
                for conversation, number in zip(conversations, turn.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        usable = gold & (before >= 0) & (turn > 1)
        usable[usable] = gold[before[usable]]
        return np.where(usable, before, -1), judged


class _Listed:
    """Types looked up in lists."""

    def __init__(self, lists: Mapping[str, Any], labels: Iterable[str]) -> None:
        self.labels = tuple(labels)
        missing = [label for label in self.labels if label not in lists]
        if missing:
            raise ValueError(
                f"no list for {first_three(missing)} (found {first_three(lists)}): name the labels to use with labels="
            )
        self._label_of: dict[str, str] = {}
        for label in self.labels:
            for qid in as_ids(pd.Series(list(lists[label]), dtype=object), label):
                if self._label_of.setdefault(qid, label) != label:
                    raise ValueError(f"qid {qid!r} stands on two lists, {self._label_of[qid]!r} and {label!r}")

    def __call__(self, topics: pd.DataFrame) -> pd.DataFrame:
        """The topics with the column ``qtype``."""
        labels = [self._label_of.get(qid) for qid in as_ids(topics["qid"], "qid")]
        return topics.assign(qtype=pd.Categorical(labels, categories=list(self.labels)))


def _turns(topics: pd.DataFrame) -> np.ndarray:
    missing = [column for column in ("qid", "conversation_id", "turn_number") if column not in topics.columns]
    if missing:
        raise ValueError(
            f"topics lack the columns {missing}: types need conversation and turn, which are never guessed from the qid"
        )
    return turn_numbers(topics["turn_number"], as_ids(topics["qid"], "qid")).to_numpy()


def _golds(judged: Judgments, rel: int) -> dict[str, list[str]]:
    golds: dict[str, list[str]] = {}
    for query, doc in zip(judged.query[judged.label >= rel], judged.doc[judged.label >= rel], strict=True):
        golds.setdefault(judged.qids[query], []).append(judged.docnos[doc])
    return golds
