"""duoT5: two passages at a time."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from .._content_cache import Texts
from .._files import PathLike
from .reading import FIXED, PASSAGE, QUESTION, Piece
from .true_or_false import TrueOrFalse

Aggregation = Literal["sym-sum", "sym-log-sum", "sum", "log-sum", "binary"]


class DuoT5(TrueOrFalse):
    """Re-ranks the best few by a T5 that says which of two passages is more relevant, ``R -> R``.

    p_ij is the chance of "true" after ``Query: … Document0: i Document1: j Relevant:``, for all ordered pairs of the
    first ``depth`` passages of a query: depth * (depth - 1) inputs a query. What comes after them keeps its place below
    them. A passage's score is, over all j other than i,

    ============= =============================================
    "sym-sum"     the sum of p_ij + (1 - p_ji)
    "sym-log-sum" the sum of log p_ij + log(1 - p_ji)
    "sum"         the sum of p_ij
    "log-sum"     the sum of log p_ij
    "binary"      how many j it beats: p_ij > 0.5
    ============= =============================================

    (pyterrier_t5's DuoT5ReRanker adds log p_ij and 1 - log p_ji, which is none of these.)

    Args:
        model: a folder, a name on the hub ("castorini/duot5-base-msmarco", not in this package), or a model.
        aggregation: from the table.
        depth: how many of a query's passages are compared.
        tokenizer, form, words, max_length, max_query_length, batch_size, text_field, title_field, cache, bf16, device,
            verbose: as :class:`MonoT5`; the two passages share the length that the question leaves.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: an unknown aggregation, and what :class:`MonoT5` raises.

    Example:
        >>> mono, duo = cs.MonoT5("monot5"), cs.DuoT5("duot5", depth=20)
        >>> pipeline = cs.form(cs.X) >> bm25 % 100 >> index.text_loader() >> mono >> duo

    Source: Pradeep, Nogueira and Lin, "The Expando-Mono-Duo design pattern for text ranking" (2021), Section 3.3.
    """

    label = "duoT5"

    def __init__(
        self,
        model: Any,
        *,
        aggregation: Aggregation = "sym-sum",
        depth: int = 50,
        tokenizer: Any = None,
        form: Any = None,
        words: tuple[str, str] = ("true", "false"),
        max_length: int = 512,
        max_query_length: int | None = None,
        batch_size: int | None = None,
        text_field: str = "text",
        title_field: str | None = "title",
        cache: PathLike | None = None,
        bf16: bool | None = None,
        device: Any = None,
        verbose: bool = False,
    ) -> None:
        if aggregation not in get_args(Aggregation):
            raise ValueError(f"aggregation={aggregation!r}: one of {', '.join(get_args(Aggregation))}")
        if depth < 1:
            raise ValueError(f"depth={depth}: at least 1")
        self.aggregation = aggregation
        self.depth = depth
        super().__init__(
            model, tokenizer=tokenizer, form=form, words=words, max_length=max_length,
            max_query_length=max_query_length, batch_size=batch_size, text_field=text_field, title_field=title_field,
            cache=cache, bf16=bf16, device=device, verbose=verbose,
        )  # fmt: skip

    def _prompt(self, row: Texts) -> list[Piece]:
        question, first, second = row
        return [
            ("Query:", FIXED), (question, QUESTION), ("Document0:", FIXED), (first, PASSAGE),
            ("Document1:", FIXED), (second, PASSAGE + 1), ("Relevant:", FIXED),
        ]  # fmt: skip

    def _scorable(self, frame: pd.DataFrame, questions: list[str], passages: list[str]) -> np.ndarray:
        scorable = super()._scorable(frame, questions, passages)
        return scorable & (pd.Series(scorable).groupby(frame["qid"]).cumsum().to_numpy() <= self.depth)

    def _rows_scores(
        self, frame: pd.DataFrame, questions: list[str], passages: list[str], scorable: np.ndarray
    ) -> np.ndarray:
        rows = np.flatnonzero(scorable)
        queries = pd.factorize(frame["qid"].to_numpy()[rows])[0]
        groups = [rows[queries == number] for number in range(queries.max(initial=-1) + 1)]
        pairs = [(i, j) for group in groups for i in group for j in group if i != j]
        logs = self._scores([(questions[i], passages[i], passages[j]) for i, j in pairs])
        first = np.array([i for i, _ in pairs], dtype=np.int64)
        second = np.array([j for _, j in pairs], dtype=np.int64)
        self._check(logs, frame.iloc[first])
        won, lost = _votes(logs, self.aggregation)
        scores = np.bincount(first, won, minlength=len(frame)) + np.bincount(second, lost, minlength=len(frame))
        return scores[rows]

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self.aggregation, self.depth)

    def _shown(self) -> list[str]:
        shown = [f"aggregation={self.aggregation!r}"] if self.aggregation != "sym-sum" else []
        return shown + ([f"depth={self.depth}"] if self.depth != 50 else [])


def _votes(logs: np.ndarray, aggregation: str) -> tuple[np.ndarray, np.ndarray]:
    """What log p_ij says for i, and for j.

    >>> [part.round(4).tolist() for part in _votes(np.log([0.75]), "sym-sum")]
    [[0.75], [0.25]]
    """
    chance = np.exp(logs)
    nothing = np.zeros_like(chance)
    if aggregation == "sum":
        return chance, nothing
    if aggregation == "log-sum":
        return logs, nothing
    if aggregation == "binary":
        return (chance > 0.5).astype(np.float64), nothing
    if aggregation == "sym-sum":
        return chance, 1.0 - chance
    return logs, np.log(np.maximum(-np.expm1(logs), 1e-300))
