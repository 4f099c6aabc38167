"""An almost equal passage is the positive once more."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ._texts import Corpus, normalise
from .filter import TextFilter, described, pairs_in, positives_of


class DropNearDuplicates(TextFilter):
    """Drop negatives that share most of their words with a positive of the question.

    Likeness is the Jaccard coefficient of the sets of word n-grams: shared n-grams over all n-grams of both. A
    passage shorter than n words is one n-gram.

    Input: qid, docno (and text). Output: the same without those rows; the positives themselves go as well.

    Args:
        qrels: qid, docno, label; a label above 0 is a positive.
        threshold: the likeness from which on a passage is dropped, in (0, 1].
        ngram: words per n-gram; 1 compares bags of words.
        corpus: where the texts are, as in :func:`training_pairs`. Without it and outside of that function, only
            positives that were retrieved have a text to compare with.
        text_field: the field, or column, of the text.

    Raises:
        ValueError: there are no texts, or a threshold or ngram that makes no sense.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
        >>> corpus = [{"docno": "a", "text": "the old man and the sea"},
        ...           {"docno": "b", "text": "The old man and a sea"}, {"docno": "c", "text": "the sea"}]
        >>> found = pd.DataFrame({"qid": "1", "docno": ["b", "c"], "rank": [0, 1], "score": [2., 1.]})
        >>> cs.DropNearDuplicates(qrels, threshold=0.8, ngram=1, corpus=corpus)(found).docno.tolist()
        ['c']
    """

    def __init__(
        self,
        qrels: pd.DataFrame,
        *,
        threshold: float = 0.8,
        ngram: int = 3,
        corpus: Corpus | None = None,
        text_field: str = "text",
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold={threshold}: a likeness lies in (0, 1]")
        if ngram < 1:
            raise ValueError(f"ngram={ngram}: an n-gram has at least one word")
        self.qrels = qrels
        self.threshold = threshold
        self.ngram = ngram
        self.corpus = corpus
        self.text_field = text_field
        self._golds = positives_of(qrels)

    def __repr__(self) -> str:
        return f"DropNearDuplicates({described(self.qrels)}, threshold={self.threshold}, ngram={self.ngram})"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        codes, texts = self._distinct_texts(frame)
        grams = [self._grams(text) for text in texts]
        qids = frame["qid"]
        asked = self._golds[self._golds["qid"].isin(qids.unique())]
        gold = pairs_in((qids, frame["docno"]), (asked["qid"], asked["docno"]))
        golds: dict[str, list[frozenset[str]]] = {}
        store = self._store()
        if store is not None:
            rows = store.rows(asked["docno"])
            for qid, text in zip(asked["qid"][rows >= 0], store.texts(rows[rows >= 0]), strict=True):
                golds.setdefault(qid, []).append(self._grams(text))
        else:
            for qid, code in zip(qids[gold], codes[gold], strict=True):
                golds.setdefault(qid, []).append(grams[code])
        keep = ~gold
        for row, (qid, code) in enumerate(zip(qids, codes, strict=True)):
            if keep[row] and any(self._alike(grams[code], other) for other in golds.get(qid, ())):
                keep[row] = False
        return keep

    def _grams(self, text: str) -> frozenset[str]:
        words = normalise(text).split()
        if not words:
            return frozenset()
        return frozenset(" ".join(words[at : at + self.ngram]) for at in range(max(1, len(words) - self.ngram + 1)))

    def _alike(self, left: frozenset[str], right: frozenset[str]) -> bool:
        small, large = sorted((len(left), len(right)))
        if small < self.threshold * large or large == 0:  # sets of such sizes cannot be that alike
            return False
        shared = len(left & right)
        return shared >= self.threshold * (small + large - shared)
