"""What all filters of negatives are: they only remove, and they say how many."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch._stage import Stage
from pt_convsearch.measures import judgments
from pt_convsearch.topics.checks import as_ids

from ._mining import current_texts, record
from ._texts import Corpus, TextStore, text_key

logger = logging.getLogger(__name__)


class NegativeFilter(Stage):
    """Base of the filters: ``R -> R``, rows are removed and nothing else changes, so ranks stay those of retrieval.

    A subclass names the columns it reads and says which rows stay. How many rows went is logged, and counted in the
    report of :func:`training_pairs` when it runs there.
    """

    #: columns without which the filter cannot decide
    needs: tuple[str, ...] = ("qid", "docno")

    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(frame, includes=list(self.needs))
        if len(frame) == 0:
            return frame.reset_index(drop=True)
        keep = self._keep(frame.assign(**{column: as_ids(frame[column], column) for column in ("qid", "docno")}))
        removed = int(len(keep) - np.count_nonzero(keep))
        record(repr(self), removed)
        logger.info("%r removed %d of %d", self, removed, len(frame))
        return frame[keep].reset_index(drop=True) if removed else frame.reset_index(drop=True)

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        """True for each row that stays; qid and docno are str."""
        raise NotImplementedError


class TextFilter(NegativeFilter):
    """Base of the filters that read texts.

    The text comes from ``corpus`` where one was given; else from the ``text`` column (put ``index.text_loader()``
    before the filter); else, inside :func:`training_pairs`, from the corpus given there.
    """

    corpus: Corpus | None
    text_field: str

    def _store(self) -> TextStore | None:
        if self.corpus is None:
            return current_texts()
        store = self.__dict__.get("_texts")
        if store is None:
            store = self.__dict__["_texts"] = TextStore(self.corpus, self.text_field)
        return store

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_texts"}

    def _distinct_texts(self, frame: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
        """Which distinct passage each row holds, and the texts of these passages."""
        codes, docnos = pd.factorize(frame["docno"])
        store = self._store() if self.corpus is not None or self.text_field not in frame.columns else None
        if store is not None:
            rows = store.rows(docnos)
            found = iter(store.texts(rows[rows >= 0]))
            return codes, [next(found) if row >= 0 else "" for row in rows]
        if self.text_field in frame.columns:
            first = np.full(len(docnos), -1)
            first[codes[::-1]] = np.arange(len(codes))[::-1]
            texts = frame[self.text_field].to_numpy(dtype=object)[first]
            return codes, [text if isinstance(text, str) else "" for text in texts]
        raise ValueError(
            f"{type(self).__name__} needs texts, and there is no column {self.text_field!r}: "
            "put index.text_loader() before it, or give it corpus="
        )

    def _keys(self, frame: pd.DataFrame) -> np.ndarray | None:
        """A number per row, equal where the words of the texts are; None where there are no texts at all."""
        store = self._store()
        if store is not None:
            return store.keys(store.rows(frame["docno"]))
        if self.text_field not in frame.columns:
            return None
        codes, texts = self._distinct_texts(frame)
        return np.array([text_key(text) if text else 0 for text in texts], dtype=np.int64)[codes]


def pairs_in(left: tuple[Any, Any], right: tuple[Any, Any]) -> np.ndarray:
    """For each pair of values in ``left``, whether the pair is in ``right``; without a Python loop."""
    if len(right[0]) == 0 or len(left[0]) == 0:
        return np.zeros(len(left[0]), dtype=bool)
    coded = []
    for first, second in zip(left, right, strict=True):
        index = pd.Index(pd.unique(pd.Series(second)))
        coded.append((index.get_indexer(pd.Index(first)), index.get_indexer(pd.Index(second)), len(index)))
    (left_a, right_a, _), (left_b, right_b, width) = coded
    known = (left_a >= 0) & (left_b >= 0)
    return known & np.isin(left_a * np.int64(width) + left_b, right_a * np.int64(width) + right_b)


def positives_of(qrels: Any) -> pd.DataFrame:
    """qid and docno (str) of the relevant judgments: label above 0, every row where there is no label.

    Raises:
        ValueError: a column is missing, a label is no whole number, or two rows contradict each other.
    """
    if isinstance(qrels, pd.DataFrame) and "label" not in qrels.columns:
        qrels = qrels.assign(label=1)
    judged = judgments(qrels)
    relevant = judged.label > 0
    qids, docnos = judged.qids.take(judged.query[relevant]), judged.docnos.take(judged.doc[relevant])
    return pd.DataFrame({"qid": pd.Series(qids, dtype="str"), "docno": pd.Series(docnos, dtype="str")})


def described(frame: pd.DataFrame) -> str:
    """How a frame of judgments is shown in a name: its content would not fit."""
    return f"qrels[{len(frame)}]"
