"""What all re-rankers that read texts have in common: which texts, each pair once, in order of length, kept on disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._content_cache import ContentCache, Texts
from .._files import PathLike
from .._results import ranked
from .._stage import Stage
from ..dense.encoder import titled
from ..dense.encoding import _batches
from ..forming import Parts, form as make_form
from ..topics.checks import as_ids, first_three, topic_columns

logger = logging.getLogger(__name__)

#: texts that are tokenised and sorted together
_WINDOW = 2048
#: scores that are kept on disk together: what a kill may lose
_KEEP = 64


class Reranker(Stage):
    """Base of the re-rankers, ``R -> R``: every row gets a new score, and rows are ranked by it within their query.

    Equal scores stay in the order of the former rank. A passage without text, and every passage of a question without
    text, is not scored: such rows follow the others in their former order, their scores falling by 1 from the lowest.
    """

    form: Any
    text_field: str
    title_field: str | None
    batch_size: int | None
    cache: PathLike | None
    verbose: bool
    #: inputs that were longer than the maximum length, over the life of this object
    cut: int

    # -- what a subclass says

    def _encode(self, rows: Sequence[Texts]) -> tuple[dict[str, list[Any]], np.ndarray]:
        """Features of rows of texts, a list a row, and which rows were cut."""
        raise NotImplementedError

    def _forward(self, features: dict[str, list[Any]]) -> np.ndarray:
        """Scores of a batch (float64)."""
        raise NotImplementedError

    def _device_type(self) -> str:
        raise NotImplementedError

    def _settings_key(self) -> str:
        """What scores depend on besides the texts, as a hash."""
        raise NotImplementedError

    # -- the frame

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.result_frame(inp, ["query", self.text_field], context=self)
        if len(inp) == 0:
            return ranked(inp.assign(score=np.empty(0)))
        frame = inp.assign(qid=as_ids(inp["qid"], "qid"), docno=as_ids(inp["docno"], "docno"))
        frame = frame.take(_former_order(frame)).reset_index(drop=True)
        questions, passages = self._questions(frame), self._passages(frame)
        scorable = self._scorable(frame, questions, passages)
        scores = np.full(len(frame), np.nan)
        scores[scorable] = self._rows_scores(frame, questions, passages, scorable)
        if not scorable.all():
            logger.info("%d of %d rows are not scored: they come last", (~scorable).sum(), len(inp))
            scores = _after_the_others(scores, pd.factorize(frame["qid"])[0])
        return ranked(frame.assign(score=scores))

    def _scorable(self, frame: pd.DataFrame, questions: list[str], passages: list[str]) -> np.ndarray:
        return np.array([bool(q.strip()) and bool(p.strip()) for q, p in zip(questions, passages, strict=True)])

    def _rows_scores(
        self, frame: pd.DataFrame, questions: list[str], passages: list[str], scorable: np.ndarray
    ) -> np.ndarray:
        rows = [(questions[row], passages[row]) for row in np.flatnonzero(scorable)]
        scores = self._scores(rows)
        self._check(scores, frame[scorable])
        return scores

    def _check(self, scores: np.ndarray, frame: pd.DataFrame) -> None:
        wrong = ~np.isfinite(scores)
        if wrong.any():
            at = frame.iloc[int(wrong.argmax())]
            raise ValueError(
                f"{self!r} gives {scores[wrong][0]} for {int(wrong.sum())} rows (qid {at['qid']!r}, docno "
                f"{at['docno']!r}): the model is damaged, or overflows in its precision (bf16=False)"
            )

    def _questions(self, frame: pd.DataFrame) -> list[str]:
        """What is read as the question, a row of ``frame`` each."""
        if self.form is None:
            found = frame["query"]
        else:
            topics = frame[topic_columns(frame)][~frame["qid"].duplicated()].reset_index(drop=True)
            formed = self.form.transform(topics)
            found = frame["qid"].map(dict(zip(formed["qid"], formed["query"], strict=True)))
        wrong = np.array([not isinstance(query, str) for query in found])
        if wrong.any():
            raise ValueError(
                f"query of qid {first_three(frame['qid'][wrong].unique())} is None, NaN or no text: give a str"
            )
        return found.tolist()

    def _passages(self, frame: pd.DataFrame) -> list[str]:
        texts = frame[self.text_field].tolist()
        wrong = np.array([not isinstance(text, str) for text in texts])
        if wrong.any():
            raise ValueError(
                f"{self.text_field} of docno {first_three(frame['docno'][wrong].unique())} is None, NaN or no text: "
                "put a text loader before the re-ranker (index.text_loader()), '' for a passage without text"
            )
        titles = frame[self.title_field].tolist() if self.title_field in frame.columns else None
        return titled(titles, texts, " ")

    # -- scores

    def _scores(self, rows: Sequence[Texts]) -> np.ndarray:
        """Scores of rows of texts; each distinct one is computed once, and none that the cache has."""
        from tqdm.auto import tqdm

        distinct = list(dict.fromkeys(rows))
        cache = None if self.cache is None else ContentCache(self.cache, self._settings_key(), what="scores")
        known: dict[Texts, float] = {} if cache is None else cache.find(distinct)
        missing = [row for row in distinct if row not in known]
        if cache is not None:
            logger.info("%s: %d of %d scores are known", self.cache, len(distinct) - len(missing), len(distinct))
        pending: list[tuple[Texts, float]] = []
        try:
            with tqdm(total=len(missing), desc=type(self).__name__, unit="text", disable=not self.verbose) as bar:
                for start in range(0, len(missing), _WINDOW):
                    window = missing[start : start + _WINDOW]
                    for places, found in self._window_scores(window):
                        batch = [(window[place], float(score)) for place, score in zip(places, found, strict=True)]
                        known.update(batch)
                        pending += batch
                        bar.update(len(batch))
                        if cache is not None and len(pending) >= _KEEP:
                            _keep(cache, pending)
        finally:
            if cache is not None and pending:
                _keep(cache, pending)
        return np.array([known[row] for row in rows], dtype=np.float64)

    def _window_scores(self, rows: Sequence[Texts]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        features, was_cut = self._encode(rows)
        self.cut += int(was_cut.sum())
        if was_cut.any():
            logger.info("%s: %d of %d inputs were cut", type(self).__name__, was_cut.sum(), len(rows))
        lengths = np.array([_length(row) for row in features["input_ids"]])
        order = np.argsort(-lengths, kind="stable")
        for places in _batches(order, lengths, self.batch_size, self._device_type()):
            batch = {name: [values[place] for place in places] for name, values in features.items()}
            yield places, self._forward(batch)

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        return (self._settings_key(), self.form, self.text_field, self.title_field)

    def subtransformers(self) -> dict[str, Any]:
        return {}


def former(form: Any) -> Any:
    """``form`` as a transformer: a choice of parts becomes the form of these parts."""
    if form is None or isinstance(form, pt.Transformer):
        return form
    if isinstance(form, Parts) or callable(form):
        return make_form(form)
    raise TypeError(f"form={form!r}: give parts (cs.X) or a former (cs.form(…))")


def check_sizes(**sizes: int | None) -> None:
    """Refuse lengths and batch sizes below 1, by name."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}={size}: at least 1")


def _keep(cache: ContentCache, pending: list[tuple[Texts, float]]) -> None:
    cache.add((row, float(score)) for row, score in pending if np.isfinite(score))
    pending.clear()


def _length(row: Any) -> int:
    """Tokens of a row; of a document, those of its passages."""
    return sum(map(len, row)) if row and isinstance(row[0], list) else len(row)


def _former_order(frame: pd.DataFrame) -> np.ndarray:
    """Rows by query, in the order of the former rank (else score, else as given)."""
    queries = pd.factorize(frame["qid"])[0]
    if "rank" in frame.columns:
        return np.lexsort((frame["rank"].to_numpy(), queries))
    if "score" in frame.columns:
        return np.lexsort((-frame["score"].to_numpy(dtype=np.float64), queries))
    return np.lexsort((queries,))


def _after_the_others(scores: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Rows without a score (NaN) get scores that fall by 1 from the lowest of their query, in the order given."""
    frame = pd.DataFrame({"query": queries, "score": scores, "missing": np.isnan(scores)})
    groups = frame.groupby("query")
    lowest = groups["score"].transform("min").fillna(0.0)
    return np.where(frame["missing"], lowest - groups["missing"].cumsum(), scores)
