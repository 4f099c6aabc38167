"""Documents as passages: windows of words, and what a document's passages say of it."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt

from .._results import ranked
from .._stage import Stage
from ..dense.encoder import titled
from ..topics.checks import as_ids, first_three
from .reranker import _former_order, check_sizes

#: what PyTerrier puts between a document's id and the number of its passage
MARK = "%p"
_WORD = re.compile(r"\S+")


def windows(text: str, length: int, stride: int, most: int | None = None) -> list[str]:
    """Windows of ``length`` words that begin every ``stride`` words; the last one ends with the text.

    A text of no more than ``length`` words is one window; white space inside a window stays. Where there are more than
    ``most`` windows, the first and the last stay, and of the others as many as there is room for, evenly spread.

    >>> windows("a b c d e f g", 4, 3)
    ['a b c d', 'd e f g']
    >>> windows("a b c d e f g h", 4, 3)
    ['a b c d', 'd e f g', 'g h']
    >>> windows("a b c d e f g h", 2, 2, most=3)
    ['a b', 'c d', 'g h']
    """
    words = [match.span() for match in _WORD.finditer(text)]
    if len(words) <= length:
        return [text.strip()]
    starts = list(range(0, len(words) - length + stride, stride))
    if most is not None and len(starts) > most:
        starts = [starts[place] for place in spread(len(starts), most)]
    return [text[words[start][0] : words[min(start + length, len(words)) - 1][1]] for start in starts]


def spread(size: int, most: int) -> list[int]:
    """``most`` of ``size`` places, the first and the last among them, evenly spread.

    >>> spread(10, 4)
    [0, 3, 6, 9]
    """
    return sorted({int(place) for place in np.linspace(0, size - 1, most)}) if size > most else list(range(size))


class SlidingWindow(Stage):
    """Cuts documents into passages, ``R -> R``: a row per passage, its docno that of the document, "%p", and a number.

    The docnos are those of ``pt.text.sliding``, and PyTerrier's ``max_passage`` reads them. Unlike it, this stage
    keeps the end of a document (there, what does not fill a window is lost), takes short documents with a title, keeps
    all columns in empty frames too, and leaves white space alone.

    Input columns: docno, text (title where there is one). Output: the same, ``text`` being the passage's, after the
    title where there is one; ``score`` and ``rank`` are the document's.

    Args:
        length: words in a passage.
        stride: words from the start of one to the start of the next; None: half of ``length``, rounded up.
        max_passages: the most passages of a document: the first, the last, and others evenly spread; None: all.
        text_field: the column of the text.
        title_field: the column of the title, put before each passage; None: not read.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: an option below 1, a stride longer than a passage, or a text that is no str.

    Example:
        >>> import pandas as pd
        >>> found = pd.DataFrame({"qid": "1", "query": "x", "docno": ["d"], "text": ["a b c d e"], "title": ["T"]})
        >>> SlidingWindow(length=3, stride=2)(found)[["docno", "text"]].to_numpy().tolist()
        [['d%p0', 'T a b c'], ['d%p1', 'T c d e']]

    Source: Dai and Callan, "Deeper text understanding for IR with contextual neural language modeling" (SIGIR 2019).
    """

    def __init__(
        self,
        *,
        length: int = 150,
        stride: int | None = None,
        max_passages: int | None = None,
        text_field: str = "text",
        title_field: str | None = "title",
    ) -> None:
        self.length = length
        self.stride = stride
        self.max_passages = max_passages
        self.text_field = text_field
        self.title_field = title_field
        check_sizes(length=length, stride=stride, max_passages=max_passages)
        if stride is not None and stride > length:
            raise ValueError(f"stride={stride} is more than length={length}: words between passages would be lost")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["docno", self.text_field], context=self)
        docnos = as_ids(inp["docno"], "docno")
        texts = inp[self.text_field].tolist()
        wrong = np.array([not isinstance(text, str) for text in texts], dtype=bool)
        if wrong.any():
            raise ValueError(f"{self.text_field} of docno {first_three(docnos[wrong])} is None, NaN or no text")
        titles = inp[self.title_field].tolist() if self.title_field in inp.columns else None
        passages = [
            windows(text, self.length, self.stride or -(-self.length // 2), self.max_passages) for text in texts
        ]
        if titles is not None:
            passages = [titled([title] * len(own), own, " ") for title, own in zip(titles, passages, strict=True)]
        rows = np.repeat(np.arange(len(inp)), [len(own) for own in passages])
        names = [
            f"{docno}{MARK}{number}" for docno, own in zip(docnos, passages, strict=True) for number in range(len(own))
        ]
        out = inp.take(rows).reset_index(drop=True)
        # the title is in the text now: a re-ranker that reads titles must not read it twice
        out = out.drop(columns=[self.title_field], errors="ignore") if titles is not None else out
        return out.assign(
            docno=pd.array(names, dtype="str"),
            **{self.text_field: pd.array([passage for own in passages for passage in own], dtype="str")},
        )


Aggregation = Literal["max", "first", "sum", "mean"]


class AggregatePassages(Stage):
    """From passages to documents, ``R -> R``: the best, the first, the sum or the mean of a document's passage scores.

    Input columns: qid, docno (of a passage: "doc%p3"), score. Output: a row per document, ranked by its score, with the
    columns of its best passage (for "first", of its first). Equal scores: in the order of the former rank.

    Args:
        how: "max" (MaxP), "first" (FirstP), "sum" (SumP), "mean"; or a number k: the mean of the best k.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: ``how`` is none of these, a docno is no passage's, or a score is NaN.

    Example:
        >>> import pandas as pd
        >>> scored = pd.DataFrame({"qid": "1", "docno": ["a%p0", "a%p1", "b%p0"], "score": [1.0, 3.0, 3.5]})
        >>> AggregatePassages("sum")(scored)[["docno", "score"]].to_numpy().tolist()
        [['a', 4.0], ['b', 3.5]]

    Source: Dai and Callan (SIGIR 2019): MaxP, FirstP, SumP.
    """

    def __init__(self, how: Aggregation | int = "max") -> None:
        self.how = how
        if how not in ("max", "first", "sum", "mean") and not (isinstance(how, int) and how > 0):
            raise ValueError(f"how={how!r}: 'max', 'first', 'sum', 'mean', or of how many the mean is taken")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["qid", "docno", "score"], context=self)
        frame = inp.take(_former_order(inp)).reset_index(drop=True)
        parted = frame["docno"].astype("str").str.rsplit(MARK, n=1)
        wrong = np.array([len(parts) != 2 or not parts[1].isdigit() for parts in parted], dtype=bool)
        if wrong.any():
            raise ValueError(
                f"docno {first_three(frame['docno'][wrong].unique())} is no passage's: put a SlidingWindow before"
            )
        if frame["score"].isna().any():
            raise ValueError(f"score of docno {first_three(frame['docno'][frame['score'].isna()].unique())} is NaN")
        frame["docno"] = pd.array([parts[0] for parts in parted], dtype="str")
        number = np.array([int(parts[1]) for parts in parted], dtype=np.int64)
        document = frame.groupby(["qid", "docno"], sort=False).ngroup().to_numpy()
        scores = frame["score"].to_numpy(dtype=np.float64)
        place = np.lexsort((number, document) if self.how == "first" else (number, -scores, document))
        first = np.unique(document[place], return_index=True)[1]
        values = _values(scores, document, place, first, self.how)
        out = frame.take(place[first]).assign(score=values)
        return ranked(out.drop(columns="docid", errors="ignore"))


def _values(scores: np.ndarray, document: np.ndarray, place: np.ndarray, first: np.ndarray, how: Any) -> np.ndarray:
    if how in ("max", "first"):
        return scores[place[first]]
    counts = np.bincount(document) if len(document) else np.empty(0, dtype=np.int64)
    if how in ("sum", "mean"):
        sums = np.bincount(document, scores) if len(document) else np.empty(0)
        return sums if how == "sum" else sums / counts
    best = np.arange(len(place)) - np.repeat(first, counts) < how
    return np.bincount(document[place][best], scores[place][best]) / np.minimum(counts, how)


def max_p(scorer: pt.Transformer, *, length: int = 150, stride: int | None = None, **options: Any) -> pt.Transformer:
    """MaxP: a document's score is that of its best passage: ``SlidingWindow >> scorer >> AggregatePassages("max")``.

    Args:
        scorer: scores rows of query and text: :class:`CrossEncoder`, :class:`MonoT5`, any ``R -> R`` stage.
        length, stride: of the passages, in words; by default 150 and 75, as Dai and Callan have them.
        **options: of :class:`SlidingWindow`.

    Returns:
        a pipeline, ``R -> R`` on documents with their text.

    Example:
        >>> pipeline = bm25 % 100 >> index.text_loader(["title", "text"]) >> cs.reranking.max_p(electra)
    """
    return SlidingWindow(length=length, stride=stride, **options) >> scorer >> AggregatePassages("max")


def sum_p(scorer: pt.Transformer, *, length: int = 150, stride: int | None = None, **options: Any) -> pt.Transformer:
    """SumP: a document's score is the sum of its passages'; see :func:`max_p`.

    Sums need scores above 0 to mean anything: probabilities, not logits.
    """
    return SlidingWindow(length=length, stride=stride, **options) >> scorer >> AggregatePassages("sum")


def first_p(scorer: pt.Transformer, *, length: int = 150, **options: Any) -> pt.Transformer:
    """FirstP: a document's score is that of its first passage, the only one that is scored; see :func:`max_p`."""
    return (
        SlidingWindow(length=length, stride=length, max_passages=1, **options) >> scorer >> AggregatePassages("first")
    )
