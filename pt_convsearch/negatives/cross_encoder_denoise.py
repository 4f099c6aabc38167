"""A better judge looks at what the retriever brought."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyterrier as pt

from ._texts import Corpus
from .filter import TextFilter


class CrossEncoderDenoise(TextFilter):
    """Drop negatives that a cross-encoder, or any other scorer, finds relevant.

    The denoising of RocketQA (Qu et al., 2021): what scores above ``threshold`` is likely an unjudged positive. The
    scorer sees the rows with their text; scores and ranks of retrieval are put back afterwards.

    Input: qid, query, docno (and text; and what the scorer and ``form`` read). Output: the same without those rows.

    Args:
        scorer: a transformer that scores rows of qid, query, docno, text.
        threshold: the highest score that a negative may have, in the scorer's own units.
        form: a former (``cs.form(cs.REWRITE)``) for the question that the scorer sees. Without it the scorer sees the
            query of the ranking, which after ``cs.form(cs.X - cs.CURRENT)`` is not the question.
        corpus: where the texts are, as in :func:`training_pairs`; by default the text column.
        text_field: the field, or column, of the text.

    Raises:
        ValueError: there are no texts, or the scorer loses rows or gives NaN.

    Example:
        >>> import pandas as pd, pyterrier as pt, pt_convsearch as cs
        >>> judge = pt.apply.doc_score(lambda row: float(row.query in row.text))
        >>> found = pd.DataFrame({"qid": "1", "query": "dune", "docno": ["a", "b"], "text": ["on dune", "else"],
        ...                       "rank": [0, 1], "score": [2., 1.]})
        >>> cs.CrossEncoderDenoise(judge, threshold=0.5)(found)[["docno", "rank", "score"]].values.tolist()
        [['b', 1, 1.0]]
    """

    needs = ("qid", "query", "docno")

    def __init__(
        self,
        scorer: pt.Transformer,
        *,
        threshold: float,
        form: pt.Transformer | None = None,
        corpus: Corpus | None = None,
        text_field: str = "text",
    ) -> None:
        self.scorer = scorer
        self.threshold = threshold
        self.form = form
        self.corpus = corpus
        self.text_field = text_field

    def __repr__(self) -> str:
        form = "" if self.form is None else f", form={self.form!r}"
        return f"CrossEncoderDenoise({self.scorer!r}, threshold={self.threshold}{form})"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        codes, texts = self._distinct_texts(frame)
        shown = frame.reset_index(drop=True)
        shown[self.text_field] = pd.array(texts, dtype="str").take(codes)
        if self.form is not None:
            questions = shown.drop(columns=["docno", "score", "rank", self.text_field], errors="ignore")
            questions = questions[~questions["qid"].duplicated()]
            formed = self.form.transform(questions)
            shown["query"] = shown["qid"].map(dict(zip(formed["qid"], formed["query"], strict=True)))
        scored = self.scorer.transform(shown)
        place = pd.MultiIndex.from_frame(scored[["qid", "docno"]])
        at = place.get_indexer(pd.MultiIndex.from_frame(shown[["qid", "docno"]]))
        if (at < 0).any():
            lost = shown[["qid", "docno"]].to_numpy()[at < 0][0]
            raise ValueError(
                f"the scorer {self.scorer!r} lost {int((at < 0).sum())} rows, e.g. qid {lost[0]!r}, docno {lost[1]!r}"
            )
        scores = scored["score"].to_numpy(dtype=np.float64)[at]
        if np.isnan(scores).any():
            raise ValueError(
                f"the scorer {self.scorer!r} gives NaN for docno {shown['docno'][int(np.isnan(scores).argmax())]!r}"
            )
        return scores <= self.threshold
