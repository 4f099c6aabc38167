"""Topics from chat logs: lists of messages as chat models take them, ShareGPT, WildChat, LMSYS."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch.topics.checks import has_value
from pt_convsearch.topics.files import Records, naming
from pt_convsearch.topics.messages import CONTENT_FIELDS, ROLE_FIELDS, MessageReader, Roles
from pt_convsearch.topics.rows import Rows, RunningNumber, further_columns

LISTS = ("messages", "conversation", "conversations")
#: lists that are messages in some logs and in others utterances or CAsT's turns: told by what they hold
SHARED_LISTS = ("turns", "turn", "dialogue", "dialog")
IDS = ("id", "conversation_id")


def from_messages(
    log: Iterable[Any] | pd.DataFrame | str | os.PathLike[str],
    turns: str = "all",
    *,
    roles: Roles | None = None,
    columns: Iterable[str] = (),
) -> pd.DataFrame:
    """Topics from a chat log: one row per user message.

    Messages of the roles system, developer, tool and function and assistant messages without text (tool calls) are
    left out and counted in the log; content given as a list of parts is joined from its text parts. A message's
    ``docno``, where it has one, is kept.

    Args:
        log: conversations, each a dict with ``messages``, ``conversation`` or ``conversations`` (a list of messages; or
            with ``turns``, ``dialogue`` or ``dialog``, where that is one) and ``id`` or ``conversation_id`` (else a
            running number from 1), or just a list of messages; or single messages with ``conversation_id`` (an export
            of a database), which are brought together in the order in which they come; a frame of the same columns; or
            the path of a file of them (JSON Lines, JSON or parquet), or of a folder of such files. Messages have role
            and content, from and value, or speaker and text (or utterance).
        turns: "all", or "last" for each conversation's last user message: the question a live system must answer.
        roles: what else the log calls its speakers: ``{"bot": "assistant", "narrator": None}`` (None: left out).
        columns: fields of the conversations (language, source …) that become columns.

    Returns:
        a topics frame: qid ("{conversation}_{turn}"), query, qhistory, answer ('' where there is none; several
        assistant messages in a row, one a line), conversation_id, turn_number, and ``columns``.

    Raises:
        ValueError: another role, a message without role, content that is a number, a user message whose content is
            missing (None, NaN; where it is '' or holds no text, as an image alone, it is a question: its query is ''),
            an id used twice, a further column with the name of one that topics have; the message names the
            conversation or column.

    Warns:
        UserWarning: messages of the assistant that have no field of content and call no tool; with the count and the
            first one.

    Example:
        >>> import pt_convsearch as cs
        >>> log = [{"id": "c1", "messages": [
        ...     {"role": "user", "content": "Who wrote Dune?"},
        ...     {"role": "assistant", "content": "Frank Herbert wrote it."},
        ...     {"role": "user", "content": "When was it published?"}]}]
        >>> topics = cs.topics.from_messages(log)
        >>> topics.qid.tolist(), topics.answer.tolist()
        (['c1_1', 'c1_2'], ['Frank Herbert wrote it.', ''])
        >>> len(topics.qhistory[1])
        2
    """
    reader, rows, columns = MessageReader(roles), Rows(turns), further_columns(columns)
    source = conversations(log)
    with naming(source):
        for number, conversation in enumerate(_together(source), 1):
            name, messages, fields = _parts(conversation, RunningNumber(number))
            said = reader.messages(messages, f"conversation {name!r}")
            count = sum(message["role"] == "user" for message in said)
            extras = {column: [fields.get(column)] * count for column in columns} if columns else None
            rows.add(name, said, extras=extras)
        reader.log()
        return rows.frame()


def conversations(log: Any) -> Iterator[Any]:
    """The conversations of a log, be it a list, a frame or a file."""
    if isinstance(log, str | os.PathLike):
        return Records(log)
    if isinstance(log, pd.DataFrame):
        return iter(log.to_dict("records"))
    if isinstance(log, Mapping):
        raise ValueError("the log is one dict: give a list of conversations ([conversation] for one)")
    return iter(log)


def holds(record: Any) -> str | None:
    """What a record that is a whole conversation holds: "messages", "utterances" or "turns"; None: it is none.

    >>> holds({"id": 1, "turns": [{"role": "user", "content": "Hi"}]}), holds({"turns": ["Hi", "Hello"]})
    ('messages', 'utterances')
    >>> holds({"number": 31, "turn": [{"number": 1, "raw_utterance": "Hi"}]}), holds({"query": "Hi"})
    ('turns', None)
    """
    if any(field in record for field in LISTS):
        return "messages"
    if "utterances" in record:
        return "utterances"
    field = next((field for field in SHARED_LISTS if field in record), None)
    if field is None:
        return None
    values = record[field]
    first = values[0] if isinstance(values, list | tuple | np.ndarray) and len(values) else None
    if isinstance(first, Mapping):
        if any(role in first for role in ("role", "from")) and any(text in first for text in CONTENT_FIELDS):
            return "messages"
        if "speaker" in first:
            return "utterances"
    elif first is not None:
        return "utterances"
    return "turns" if field in ("turns", "turn") else "utterances"


def is_message(fields: Collection[str]) -> bool:
    """Whether a record of these fields is a single message, and not a conversation.

    >>> is_message({"conversation_id", "speaker", "text"}), is_message({"speaker", "text"})
    (True, False)
    """
    if any(field in fields for field in LISTS):
        return False
    if any(role in fields and text in fields for role, text in (("role", "content"), ("from", "value"))):
        return True
    # other pairs are of many kinds of records: here they must name the conversation, and be no whole one nor a turn
    return (
        "conversation_id" in fields
        and any(role in fields for role in ROLE_FIELDS)
        and any(text in fields for text in CONTENT_FIELDS)
        and not any(field in fields for field in (*SHARED_LISTS, "utterances", "raw_utterance"))
    )


def _together(log: Iterator[Any]) -> Iterator[Any]:
    """A log as it is; one of single messages by conversation, whose further fields are those of its first message."""
    first = list(itertools.islice(log, 1))
    whole = itertools.chain(first, log)
    if not (first and isinstance(first[0], Mapping) and is_message(first[0])):
        return whole
    found: dict[Any, dict[str, Any]] = {}
    for number, message in enumerate(whole, 1):
        name = message.get("conversation_id") if isinstance(message, Mapping) else None
        if not has_value(name):
            raise ValueError(
                f"message {number} of the log says no conversation_id: records are single messages, and each must name "
                "its conversation (its field has another name? cs.topics.read(path, columns={'theirs': "
                "'conversation_id'}) renames it)"
            )
        if isinstance(name, list | dict):
            kind = type(name).__name__
            raise ValueError(f"message {number} of the log: its conversation_id is a {kind}, which is no id")
        found.setdefault(name, {**message, "id": name, "messages": []})["messages"].append(message)
    return iter(found.values())


def _parts(conversation: Any, number: int) -> tuple[Any, Any, Mapping[str, Any]]:
    if isinstance(conversation, Mapping):
        found = [field for field in LISTS if field in conversation]
        found = found or [field for field in SHARED_LISTS if field in conversation]
        if not found:
            raise ValueError(
                f"conversation {number} has none of {', '.join(LISTS)}: "
                f"its keys are {', '.join(map(str, conversation))}"
            )
        name = next((conversation[field] for field in IDS if has_value(conversation.get(field))), number)
        messages = next((conversation[field] for field in found if has_value(conversation[field])), ())
        return name, messages, conversation
    if isinstance(conversation, str) or not hasattr(conversation, "__iter__"):
        raise ValueError(
            f"conversation {number} is {type(conversation).__name__}: give a dict with messages, or a list of them"
        )
    messages = list(conversation)
    if messages and all(isinstance(message, Mapping) and "messages" in message for message in messages):
        raise ValueError(f"conversation {number} is a list of conversations: give one list of conversations")
    return number, messages, {}
