"""Separator tokens that an encoder cannot read."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from .encoder import BiEncoder

#: what looks like a token of its own: [U], [SEP], <sep>
_MARK = re.compile(r"\[\w+\]|<[\w/|]+>")


def warn_of_separators(frame: pd.DataFrame, encoder: BiEncoder) -> None:
    """Warn where queries are joined by tokens ("[U]", "[T]") that the encoder's tokenizer takes to pieces: to a model
    that was not trained on them they mean nothing."""
    if "qsep" not in frame.columns or len(frame) == 0:
        return
    said: set[str] = set()
    for value in frame["qsep"]:
        said.update([value] if isinstance(value, str) else value if isinstance(value, list | tuple) else ())
    marks = sorted({mark for token in said for mark in _MARK.findall(token)})
    tokenizer = getattr(encoder, "tokenizer", None) if marks else None
    if tokenizer is None:
        return
    broken = [mark for mark in marks if len(tokenizer.tokenize(mark)) != 1]
    if broken:
        warnings.warn(
            f"the separators {', '.join(broken)} are no tokens of the encoder and mean nothing to it without training: "
            "join zero-shot queries by plain blanks, or fine-tune from cs.with_separators(model)",
            stacklevel=4,
        )
