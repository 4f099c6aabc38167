"""What every lexical engine reads from a frame of queries: texts without separators, or weighted terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from ..topics.checks import check_queries, has_value


def lexical_queries(
    inp: pd.DataFrame, *, context: pt.Transformer | None = None
) -> tuple[pd.DataFrame, list[str | dict[str, float]]]:
    """Check a frame of queries and read them.

    Args:
        inp: ``qid`` and ``query`` or ``query_toks`` (or both: ``query_toks`` wins); ``qsep`` optional.
        context: the transformer that was given the frame, for messages.

    Returns:
        the frame with qid as str, and per row its text with the separators of ``qsep`` replaced by blanks, or its
        weights.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: a repeated qid, a query that is no text, a weight that is negative or not finite; qids are named.
    """
    texts: list[str | dict[str, float]]
    if "query_toks" in inp.columns:
        filler = inp if "query" in inp.columns else inp.assign(query="")
        frame = check_queries(filler, context=context)
        texts = [_weights(value, qid) for value, qid in zip(frame["query_toks"], frame["qid"], strict=True)]
        return (frame if filler is inp else frame.drop(columns="query")), texts
    frame = check_queries(inp, context=context)
    texts = frame["query"].tolist()
    if "qsep" in frame.columns:
        texts = [without_separators(text, sep) for text, sep in zip(frame["query"], frame["qsep"], strict=True)]
    return frame, texts


def check_options(num_results: Any, k1: Any, b: Any) -> None:
    """Refuse, by name, what no BM25 retriever can do.

    Raises:
        ValueError: the first option that is out of range or no number.
    """
    for name, value in (("num_results", num_results), ("k1", k1), ("b", b)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ValueError(f"{name}={value!r} is no number")
    if num_results < 1 or int(num_results) != num_results:
        raise ValueError(f"num_results={num_results!r}: a whole number from 1 on")
    if not (math.isfinite(k1) and k1 >= 0):
        raise ValueError(f"k1={k1!r}: a number from 0 on")
    if not 0 <= b <= 1:
        raise ValueError(f"b={b!r}: a number from 0 to 1")


def without_separators(text: str, separators: Any) -> str:
    """The text with each separator (a str or a list of them; None, NaN and NA are none) replaced by a blank.

    >>> without_separators("Who? [SEP] A sep is a mark.", " [SEP] ")
    'Who? A sep is a mark.'
    """
    if isinstance(separators, str):
        separators = [separators]
    elif not has_value(separators):
        return text
    elif isinstance(separators, bool | int | float | dict):
        raise ValueError(f"qsep is {separators!r}: give a str, a list of them, or None")
    for separator in separators:
        if separator.strip():
            text = text.replace(separator, " ")
    return text


def _weights(value: Any, qid: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ValueError(f"query_toks of qid {qid!r} is {value!r}: give a dict of term -> weight, {{}} for no terms")
    for term, weight in value.items():
        if not isinstance(term, str) or not isinstance(weight, int | float | np.number):
            raise ValueError(f"query_toks of qid {qid!r} holds {term!r}: {weight!r}: terms are str, weights numbers")
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"query_toks of qid {qid!r}: weight {weight!r} of {term!r} is negative or not finite")
    return value
