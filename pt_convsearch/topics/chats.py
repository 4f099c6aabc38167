"""Topics from chat logs: lists of messages as chat models take them, ShareGPT, WildChat, LMSYS."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from pt_convsearch.topics.checks import has_value
from pt_convsearch.topics.files import records
from pt_convsearch.topics.messages import MessageReader, Roles
from pt_convsearch.topics.rows import Rows, further_columns

LISTS = ("messages", "conversation", "conversations")
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
        log: conversations, each a dict with ``messages``, ``conversation`` or ``conversations`` (a list of messages)
            and ``id`` or ``conversation_id`` (else a running number from 1), or just a list of messages; a frame of
            the same columns; or the path of a file of them (JSON Lines, JSON or parquet). Messages have role and
            content, from and value, or speaker and text.
        turns: "all", or "last" for each conversation's last user message: the question a live system must answer.
        roles: what else the log calls its speakers: ``{"bot": "assistant", "narrator": None}`` (None: left out).
        columns: fields of the conversations (language, source …) that become columns.

    Returns:
        a topics frame: qid ("{conversation}_{turn}"), query, qhistory, answer ('' where there is none; several
        assistant messages in a row, one a line), conversation_id, turn_number, and ``columns``.

    Raises:
        ValueError: another role, a message without role or a user message without text, an id used twice, a
            further column with the name of one that topics have; the message names the conversation or column.

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
    for number, conversation in enumerate(conversations(log), 1):
        name, messages, fields = _parts(conversation, number)
        said = reader.messages(messages, f"conversation {name!r}")
        count = sum(message["role"] == "user" for message in said)
        rows.add(name, said, extras={column: [fields.get(column)] * count for column in columns} if columns else None)
    reader.log()
    return rows.frame()


def conversations(log: Any) -> Iterator[Any]:
    """The conversations of a log, be it a list, a frame or a file."""
    if isinstance(log, str | os.PathLike):
        return records(log)
    if isinstance(log, pd.DataFrame):
        return iter(log.to_dict("records"))
    if isinstance(log, Mapping):
        raise ValueError("the log is one dict: give a list of conversations ([conversation] for one)")
    return iter(log)


def _parts(conversation: Any, number: int) -> tuple[Any, Any, Mapping[str, Any]]:
    if isinstance(conversation, Mapping):
        found = [field for field in LISTS if field in conversation]
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
