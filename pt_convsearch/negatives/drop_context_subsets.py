"""What the conversation already says is no negative."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ._texts import Corpus, normalise
from .filter import TextFilter


class DropContextSubsets(TextFilter):
    """Drop negatives whose text is part of the context: of the history or of the question.

    Penha & Hauff's experiment E3: a retriever that is given the whole context likes to bring back pieces of it. The
    words of the passage must stand in the context as one run; case, punctuation and white space do not count. A
    passage without any word is dropped as well.

    Input: qid, docno, query, qhistory (and text). Output: the same without those rows; ranks stay those of retrieval.

    Args:
        corpus: where the texts are, as in :func:`training_pairs`; by default the text column.
        text_field: the field, or column, of the text.

    Raises:
        ValueError: there are no texts.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> said = [{"role": "user", "content": "Who wrote Dune, and who filmed it?"}]
        >>> found = pd.DataFrame({"qid": "1", "query": "And when?", "qhistory": [said, said], "docno": ["a", "b"],
        ...     "rank": [0, 1], "score": [2., 1.], "text": ["who wrote dune?", "Who wrote it?"]})
        >>> cs.DropContextSubsets()(found).docno.tolist()
        ['b']
    """

    needs = ("qid", "docno", "query", "qhistory")

    def __init__(self, *, corpus: Corpus | None = None, text_field: str = "text") -> None:
        self.corpus = corpus
        self.text_field = text_field

    def __repr__(self) -> str:
        return "DropContextSubsets()"

    def _keep(self, frame: pd.DataFrame) -> np.ndarray:
        codes, texts = self._distinct_texts(frame)
        needles = [f" {words} " if words else "" for words in map(normalise, texts)]
        asked = "qutterance" if "qutterance" in frame.columns else "query"
        of_row = pd.factorize(frame["qid"])[0]
        first = np.unique(of_row, return_index=True)[1]
        histories = frame["qhistory"].to_numpy(dtype=object)[first]
        utterances = frame[asked].to_numpy(dtype=object)[first]
        contexts = [
            " ".join(["", *(normalise(said) for said in [*(m["content"] for m in history), utterance]), ""])
            for history, utterance in zip(histories, utterances, strict=True)
        ]
        return np.array(
            [needles[code] not in contexts[question] for code, question in zip(codes, of_row, strict=True)], dtype=bool
        )
