"""A passage that holds the answer is no negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ._texts import Corpus, normalise
from .filter import TextFilter


class DropAnswerContaining(TextFilter):
    """Drop negatives whose text contains an answer to the question, as open-domain QA does (Karpukhin et al., 2020).

    The words of the answer must stand in the passage as one run; case, punctuation and white space do not count. An
    empty answer matches nothing.

    Input: qid, docno, answer unless ``answers`` are given (and text). Output: the same without those rows.

    Args:
        answers: answers by qid, one or several; by default the ``answer`` column of the topics.
        min_words: shorter answers are not looked for: "yes" stands in many passages.
        corpus: where the texts are, as in :func:`training_pairs`; by default the text column.
        text_field: the field, or column, of the text.

    Raises:
        ValueError: there are no texts, or neither answers nor an ``answer`` column.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> found = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "text": ["By Frank Herbert.", "By Franklin"],
        ...                       "rank": [0, 1], "score": [2., 1.]})
        >>> cs.DropAnswerContaining({"1": ["Frank Herbert", "Herbert"]})(found).docno.tolist()
        ['b']
    """

    def __init__(
        self,
        answers: Mapping[str, str | Sequence[str]] | None = None,
        *,
        min_words: int = 1,
        corpus: Corpus | None = None,
        text_field: str = "text",
    ) -> None:
        self.answers = answers
        self.min_words = min_words
        self.corpus = corpus
        self.text_field = text_field

    def __repr__(self) -> str:
        given = [] if self.answers is None else [f"answers[{len(self.answers)}]"]
        if self.min_words != 1:
            given.append(f"min_words={self.min_words}")
        return f"DropAnswerContaining({', '.join(given)})"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        if self.answers is None and "answer" not in frame.columns:
            raise ValueError("DropAnswerContaining needs a column 'answer' in the topics, or answers={qid: answer}")
        codes, texts = self._distinct_texts(frame)
        passages = [f" {normalise(text)} " for text in texts]
        of_row, qids = pd.factorize(frame["qid"])
        if self.answers is None:
            first = np.unique(of_row, return_index=True)[1]
            answers = frame["answer"].to_numpy(dtype=object)[first].tolist()
        else:
            answers = [self.answers.get(qid, "") for qid in qids]
        needles = [self._needles(answer) for answer in answers]
        return np.array(
            [
                not any(needle in passages[code] for needle in needles[question])
                for code, question in zip(codes, of_row, strict=True)
            ],
            dtype=bool,
        )

    def _needles(self, answer: str | Sequence[str] | None) -> list[str]:
        every = [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, list | tuple | set) else []
        words = [normalise(one) for one in every if one]
        return [f" {one} " for one in words if one and len(one.split()) >= self.min_words]
