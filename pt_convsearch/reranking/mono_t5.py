"""monoT5: one passage at a time."""

from __future__ import annotations

from typing import Any

from .._content_cache import Texts
from .._files import PathLike
from .reading import FIXED, PASSAGE, QUESTION, Piece
from .true_or_false import TrueOrFalse


class MonoT5(TrueOrFalse):
    """Re-ranks by a T5 that says "true" or "false" of a question and a passage, ``R -> R``.

    The score is log(e^true / (e^true + e^false)), the two logits of the first token that the model would write after
    ``Query: … Document: … Relevant:``. It differs from pyterrier_t5's MonoT5ReRanker in what conversations need: a long
    question loses its beginning, not the passage; the prompt is always whole; each distinct pair is read once, in order
    of length; scores can be kept on disk; equal stages are equal.

    Columns, ties, and texts that are empty: as :class:`CrossEncoder`.

    Args:
        model: a folder, a name on the hub ("castorini/monot5-base-msmarco", not in this package), or a model.
        tokenizer: its tokenizer, where the model does not bring one.
        form: what is read as the question, as :class:`CrossEncoder`.
        words: the word for relevant and that for not relevant; mT5 of mMARCO: ("yes", "no").
        max_length: tokens of the whole prompt.
        max_query_length: tokens of the question; None: what the passage leaves, at least half.
        batch_size, text_field, title_field, cache, bf16, device, verbose: as :class:`CrossEncoder`.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: no encoder-decoder, words that its tokenizer does not tell apart, NaN scores, texts that are no str.
        OSError: the model is not found.

    Example:
        >>> mono = cs.MonoT5("castorini/monot5-base-msmarco", tokenizer="t5-base", form=cs.REWRITE)
        >>> pipeline = cs.form(cs.X) >> bm25 % 100 >> index.text_loader() >> mono

    Source: Nogueira, Jiang, Pradeep and Lin, "Document ranking with a pretrained sequence-to-sequence model" (Findings
        of EMNLP 2020).
    """

    label = "monoT5"

    def __init__(
        self,
        model: Any,
        *,
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
        super().__init__(
            model, tokenizer=tokenizer, form=form, words=words, max_length=max_length,
            max_query_length=max_query_length, batch_size=batch_size, text_field=text_field, title_field=title_field,
            cache=cache, bf16=bf16, device=device, verbose=verbose,
        )  # fmt: skip

    def _prompt(self, row: Texts) -> list[Piece]:
        question, passage = row
        return [
            ("Query:", FIXED), (question, QUESTION), ("Document:", FIXED), (passage, PASSAGE), ("Relevant:", FIXED),
        ]  # fmt: skip
