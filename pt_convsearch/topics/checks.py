"""Checks that every entry of the library shares: ids become str once, and what cannot be searched is named."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pyterrier as pt

#: of the topics frame, beside the columns that begin with q
_OF_TOPICS = ("conversation_id", "turn_number", "answer")


def as_ids(values: pd.Series, column: str) -> pd.Series:
    """Ids as str: 3 and 3.0 become "3", "007" and "NA" stay as they are.

    Raises:
        ValueError: a missing or empty id, a fraction, half of a surrogate pair, or a value that is no id at all; the
            message names the column and the row (from 1).
    """
    if len(values) == 0:
        return values.astype(object).astype(str)
    if isinstance(values.dtype, pd.StringDtype) and not values.hasnans and bool((values != "").all()):
        return values
    found = []
    for row, value in enumerate(values, 1):
        try:
            found.append(as_id(value, column))
        except ValueError as error:
            raise ValueError(f"{error} (row {row})") from error
    return pd.Series(found, index=values.index, name=values.name, dtype=str)


def as_id(value: Any, column: str) -> str:
    """One id as str, by the rules of :func:`as_ids`."""
    if isinstance(value, str):
        if value == "":
            raise ValueError(f"column {column!r} holds an empty id: give every row an id")
        if not is_unicode(value):
            raise ValueError(
                f"column {column!r} holds the id {value!a}, which is no valid Unicode (half of a surrogate pair): "
                "replace it"
            )
        return value
    if isinstance(value, bool) or value is None or value is pd.NA:
        raise ValueError(f"column {column!r} holds {value!r}, which is no id: give every row a str or an int")
    if isinstance(value, float) or (hasattr(value, "dtype") and value.dtype.kind == "f"):
        if math.isnan(value):
            raise ValueError(f"column {column!r} holds a missing id (NaN): give every row an id")
        if math.isinf(value):
            raise ValueError(f"column {column!r} holds {value!r}, which is no id: give every row a str or an int")
        if value != int(value):
            raise ValueError(f"column {column!r} holds {value!r}: a fraction is no id")
        return str(int(value))
    if isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu"):
        return str(int(value))
    raise ValueError(f"column {column!r} holds {value!r} ({type(value).__name__}): ids are str or int")


def is_unicode(text: str) -> bool:
    """Whether a text can be written: it holds no half of a surrogate pair (a broken emoji)."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_value(value: Any) -> bool:
    """Whether there is a value: not None, not NaN (records that come from a frame)."""
    return not (value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)))


def first_three(values: Any) -> str:
    """'a', 'b', 'c' … for a message."""
    values = list(values)
    return ", ".join(repr(value) for value in values[:3]) + (" …" if len(values) > 3 else "")


def topic_columns(frame: pd.DataFrame) -> list[str]:
    """The columns of a frame of results that belong to its topics: those that begin with q, and what a topics frame
    has beside them."""
    return [name for name in frame.columns if str(name).startswith("q") or name in _OF_TOPICS]


def check_queries(frame: pd.DataFrame, *, context: pt.Transformer | None = None) -> pd.DataFrame:
    """The frame of queries that a stage was given, with qid as str; the frame itself is never changed.

    Raises:
        pt.validate.InputValidationError: ``qid`` or ``query`` is missing.
        ValueError: a qid that is repeated or no id, or a query that is None, NaN or no str; the message names the
            qids.
    """
    pt.validate.query_frame(frame, ["query"], context=context)
    qids = as_ids(frame["qid"], "qid")
    if qids.duplicated().any():
        repeated = qids[qids.duplicated()].unique()
        raise ValueError(
            f"{len(repeated)} qids stand in more than one row ({first_three(repeated)}): a qid names one question"
        )
    wrong = [not isinstance(query, str) for query in frame["query"]]
    if any(wrong):
        named = first_three(qids[wrong])
        raise ValueError(f"query of qid {named} is None, NaN or no text: give a str ('' for a question without words)")
    if len(frame) == 0 and not isinstance(frame["query"].dtype, pd.StringDtype):
        return frame.assign(qid=qids, query=frame["query"].astype(object).astype(str))  # [] makes a column of floats
    return frame if qids is frame["qid"] else frame.assign(qid=qids)
