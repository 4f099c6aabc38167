"""The topics frame as it should be, or an error that says what is wrong."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd

from pt_convsearch.topics.checks import as_ids, check_queries, first_three
from pt_convsearch.topics.messages import Message, MessageReader, as_history, clean_text

_TEXTS = ("query", "answer", "qrewrite", "qutterance")


def validate(topics: pd.DataFrame) -> pd.DataFrame:
    """The topics frame as it should be.

    Ids become str once (3 and 3.0 are "3"), texts pandas' str, ``turn_number`` int64, every history a list of
    messages (role "user" or "assistant", content, where known docno; oldest first, without q_t), the index a plain
    count. All other columns stay as they are. The frame that was given is not changed.

    Args:
        topics: a frame with qid, query and qhistory.

    Returns:
        the checked frame.

    Raises:
        pt.validate.InputValidationError: ``qid`` or ``query`` is missing.
        ValueError: ``qhistory`` is missing, a qid stands in more than one row or is no id, a query is None or NaN, or
            a history is none; the message names the column and the qid.

    Warns:
        UserWarning: a history holds its own question or answer; with the count and the first qids. It is never
            refused: people do repeat themselves.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> frame = pd.DataFrame({"qid": [7], "query": ["And then?"], "qhistory": [["Hi.", "Hello!"]]})
        >>> topics = cs.topics.validate(frame)
        >>> topics.qid[0], topics.qhistory[0]
        ('7', [{'role': 'user', 'content': 'Hi.'}, {'role': 'assistant', 'content': 'Hello!'}])
    """
    topics = checked(topics)
    warn_of_repeats(topics)
    return topics


def checked(topics: pd.DataFrame) -> pd.DataFrame:
    """What :func:`validate` gives, without its warning."""
    if not isinstance(topics, pd.DataFrame):
        raise TypeError(f"topics are a data frame, not {type(topics).__name__}: see cs.topics.from_messages")
    topics = check_queries(topics).reset_index(drop=True)
    if "qhistory" not in topics.columns:
        raise ValueError(MISSING)
    topics = topics.assign(qhistory=histories(topics["qhistory"], topics["qid"]))
    for column in _TEXTS:
        if column in topics.columns:
            topics[column] = _texts(topics[column], topics["qid"])
    if "conversation_id" in topics.columns:
        topics["conversation_id"] = as_ids(topics["conversation_id"], "conversation_id")
    if "turn_number" in topics.columns:
        topics["turn_number"] = turn_numbers(topics["turn_number"], topics["qid"])
    return topics


MISSING = (
    "topics have no column 'qhistory' (a list of earlier messages, [] at a first turn): "
    "build them with cs.topics.from_messages or another of cs.topics' builders"
)


def histories(column: pd.Series, qids: pd.Series, *, name: str = "qhistory", **options: Any) -> pd.Series:
    """A column of histories, each as a list of messages; errors name the qid."""
    reader = MessageReader(options.pop("roles", None))
    found = [
        as_history(value, f"{name} of qid {qid!r}", reader=reader, **options)
        for value, qid in zip(column.tolist(), qids.tolist(), strict=True)
    ]
    reader.log()
    return pd.Series(found, dtype=object, index=column.index)


def warn_of_repeats(topics: pd.DataFrame) -> None:
    """Warn where a history holds the question or the answer of its own row."""
    answers = topics["answer"].tolist() if "answer" in topics.columns else [None] * len(topics)
    found = [
        qid
        for qid, query, answer, history in zip(topics["qid"], topics["query"], answers, topics["qhistory"], strict=True)
        if _repeats(query, answer, history)
    ]
    if found:
        warnings.warn(
            f"{len(found)} of {len(topics)} histories hold their own question or answer (qid {first_three(found)}): "
            "qhistory ends before q_t. Nothing was changed: people do repeat themselves",
            stacklevel=3,
        )


def _repeats(query: str, answer: Any, history: list[Message]) -> bool:
    for message in history:
        said = message["content"]
        if said and (said == query if message["role"] == "user" else said == answer):
            return True
    return bool(query) and bool(history) and history[-1]["content"] == query


def _texts(column: pd.Series, qids: pd.Series) -> pd.Series:
    if isinstance(column.dtype, pd.StringDtype):
        return column
    missing = column.isna()
    wrong = [not gone and not isinstance(value, str) for value, gone in zip(column, missing, strict=True)]
    if any(wrong):
        raise ValueError(f"{column.name} of qid {first_three(qids[wrong])} is no text: give a str")
    column = column.where(~missing, None)
    try:
        return column.astype("str")
    except UnicodeEncodeError:
        return column.map(clean_text, na_action="ignore").astype("str")


def turn_numbers(column: pd.Series, qids: pd.Series) -> pd.Series:
    """Turn numbers as int64; what is no whole number is named by its qid."""
    if column.dtype == "int64":
        return column
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    wrong = numbers.isna() | (numbers % 1 != 0)
    if wrong.any():
        raise ValueError(f"turn_number of qid {first_three(qids[wrong])} is no whole number")
    return numbers.astype("int64")
