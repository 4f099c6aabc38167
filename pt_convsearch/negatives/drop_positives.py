"""Golds must not be negatives."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ._texts import Corpus
from .filter import TextFilter, described, pairs_in, positives_of


class DropPositives(TextFilter):
    """Drop every gold of a question, by id and by text.

    A passage whose words are those of a gold (case, punctuation and white space aside) is that gold under another id;
    the published code of Kim & Kim (2022) excluded neither. Texts are compared where they are known: from ``corpus``,
    from the corpus of :func:`training_pairs`, or from the text column; without texts, golds are dropped by id only.

    Input: qid, docno (and text). Output: the same without the golds; ranks stay those of retrieval.

    Args:
        qrels: qid, docno, label; a label above 0 is a gold.
        corpus: where the texts are, as in :func:`training_pairs`.
        text_field: the field, or column, of the text.

    Raises:
        ValueError: qrels without qid or docno.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> drop = cs.DropPositives(pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]}))
        >>> found = pd.DataFrame({"qid": "1", "docno": ["b", "a", "c"], "text": ["Two cats", "A cat", "a CAT!"],
        ...                       "rank": [0, 1, 2], "score": [3., 2., 1.]})
        >>> drop(found).docno.tolist()
        ['b']
    """

    def __init__(self, qrels: pd.DataFrame, *, corpus: Corpus | None = None, text_field: str = "text") -> None:
        self.qrels = qrels
        self.corpus = corpus
        self.text_field = text_field
        self._golds = positives_of(qrels)

    def __repr__(self) -> str:
        return f"DropPositives({described(self.qrels)})"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        qids = frame["qid"]
        asked = self._golds[self._golds["qid"].isin(qids.unique())]
        gold = pairs_in((qids, frame["docno"]), (asked["qid"], asked["docno"]))
        keys = self._keys(frame)
        if keys is not None:
            store = self._store()
            if store is not None:
                gold_qids, gold_keys = asked["qid"].to_numpy(), store.keys(store.rows(asked["docno"]))
            else:
                gold_qids, gold_keys = qids.to_numpy()[gold], keys[gold]
            known = gold_keys != 0
            gold |= pairs_in((qids, keys), (gold_qids[known], gold_keys[known]))
        return ~gold
