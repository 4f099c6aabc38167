"""Messages as people hold them, made into the one shape that ``qhistory`` holds: role and content, oldest first."""

from __future__ import annotations

import json
import logging
import warnings
from collections import Counter
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch.topics.checks import as_id, has_value, is_unicode

logger = logging.getLogger(__name__)

Message = dict[str, Any]
Roles = Mapping[str, str | None]

USER, ASSISTANT = "user", "assistant"
#: who speaks in the formats that are read as they are: OpenAI, ShareGPT, QReCC and MTRAG, Gemini
ROLES: dict[str, str | None] = {
    "user": USER, "human": USER,
    "assistant": ASSISTANT, "gpt": ASSISTANT, "chatgpt": ASSISTANT, "agent": ASSISTANT, "model": ASSISTANT,
    "system": None, "developer": None, "tool": None, "function": None,
}  # fmt: skip
ROLE_FIELDS = ("role", "from", "speaker")
CONTENT_FIELDS = ("content", "value", "text", "utterance")


class MessageReader:
    """Reads messages of one log and counts what it leaves out.

    Args:
        roles: what the log calls its speakers, beside the usual names: ``{"bot": "assistant", "narrator": None}``;
            None leaves the messages of that role out.
    """

    def __init__(self, roles: Roles | None = None) -> None:
        for name, role in (roles or {}).items():
            if role not in (USER, ASSISTANT, None):
                raise ValueError(f"roles[{name!r}] is {role!r}: a role becomes 'user', 'assistant' or None (left out)")
        self.roles = {**ROLES, **(roles or {})}
        self.left_out: Counter[str] = Counter()
        #: where messages of the assistant have no field of content at all, and no call of a tool in its place
        self.without_content: list[str] = []

    def messages(self, values: Any, where: str) -> list[Message]:
        """The messages of one conversation that its users saw; ``where`` names the conversation in errors."""
        if isinstance(values, str):
            try:
                values = json.loads(values)
            except json.JSONDecodeError as error:
                raise ValueError(f"the messages of {where} are a text that is not JSON ({error})") from error
        if not _is_list(values):
            raise ValueError(f"the messages of {where} are {_shown(values)}: give a list")
        found = (self.message(value, where, number) for number, value in enumerate(values, 1))
        return [message for message in found if message is not None]

    def message(self, value: Any, where: str, number: int) -> Message | None:
        """One message as role, content and docno (where it has one); None for one that is left out."""
        if not isinstance(value, Mapping):
            raise ValueError(
                f"message {number} of {where} is {_shown(value)}: a message is a dict with role and content "
                "(or from and value, speaker and text)"
            )
        said = self._role(value, where, number)
        role = self.roles[said]
        if role is None:
            self.left_out[said] += 1
            return None
        content = _content(value, where, number, role)
        if role == ASSISTANT and not content.strip():
            self.left_out["assistant without text"] += 1
            if not _has_content(value):
                self.without_content.append(f"message {number} of {where}")
            return None
        try:
            docnos = shown_docnos(value)
        except ValueError as error:
            raise ValueError(f"message {number} of {where}: {error}") from error
        if not docnos:
            return {"role": role, "content": content}
        return {"role": role, "content": content, "docno": docnos if len(docnos) > 1 else docnos[0]}

    def _role(self, value: Mapping[str, Any], where: str, number: int) -> str:
        said = next((value[field] for field in ROLE_FIELDS if has_value(value.get(field))), None)
        if not isinstance(said, str):
            raise ValueError(f"message {number} of {where} has no role (looked for {', '.join(ROLE_FIELDS)})")
        if said not in self.roles:
            if said.lower() not in self.roles:
                raise ValueError(
                    f"message {number} of {where} has the role {said!r}, which is neither a user's nor an assistant's: "
                    f"say what it is with roles={{{said!r}: 'user'}}, 'assistant' or None (left out)"
                )
            said = said.lower()
        return said

    def log(self) -> None:
        """Say in the log what was left out."""
        if self.left_out:
            counts = ", ".join(f"{count} {role}" for role, count in self.left_out.most_common())
            logger.info("messages left out: %s", counts)
        if self.without_content:
            warnings.warn(
                f"{len(self.without_content)} assistant messages have no content (looked for "
                f"{', '.join(CONTENT_FIELDS)}) and count as no answer, first {self.without_content[0]}: if the text "
                "is in a field of another name, rename it before",
                stacklevel=3,
            )


def is_later(history: list[Message]) -> bool:
    """Whether something was asked before: a turn that an assistant's greeting alone goes before is a first one."""
    return any(message["role"] == USER for message in history)


def shown_docnos(message: Mapping[str, Any]) -> list[str]:
    """What a message shows: the docno that it carries, or the docnos (an answer may be made of several passages)."""
    carried = message.get("docno")
    several: list[Any] = list(carried) if isinstance(carried, list | tuple | set | np.ndarray) else [carried]
    return [as_id(docno, "docno") for docno in several if _is_docno(docno)]


def _is_docno(value: Any) -> bool:
    return has_value(value) and not (isinstance(value, str) and value == "")


def _content(value: Mapping[str, Any], where: str, number: int, role: str) -> str:
    content = next((value[field] for field in CONTENT_FIELDS if has_value(value.get(field))), None)
    if isinstance(content, str):
        return clean_text(content)
    if content is None:
        if role == ASSISTANT:
            return ""
        raise ValueError(
            f"message {number} of {where} is a user's and has no text (looked for {', '.join(CONTENT_FIELDS)}): "
            "give a str"
        )
    if not isinstance(content, list | tuple | np.ndarray):
        raise ValueError(f"message {number} of {where} has {_shown(content)} as content: give a str or a list of parts")
    joined = ""
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, Number) and has_value(text):
            raise ValueError(
                f"message {number} of {where} has {_shown(text)} as a part of its content: a part's text is a str"
            )
        if isinstance(text, str) and text:
            between = " " if joined and not joined[-1].isspace() and not text[0].isspace() else ""
            joined += between + clean_text(text)
    return joined


def _has_content(value: Mapping[str, Any]) -> bool:
    """Whether a message that says nothing is so on purpose: it holds an empty text, or calls a tool."""
    return any(has_value(value.get(field)) for field in (*CONTENT_FIELDS, "tool_calls", "function_call"))


def clean_text(text: str) -> str:
    """The text, a half of a surrogate pair (a broken emoji, which no file can hold) replaced by U+FFFD."""
    if is_unicode(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_value(value: Any) -> Any:
    """A value whose texts, also those in lists and dicts, are cleaned as by :func:`clean_text`.

    >>> clean_value(["a", {"b": "c" + chr(0xD83D)}]) == ["a", {"b": "c" + chr(0xFFFD)}]
    True
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_value(one) for one in value]
    if isinstance(value, dict):
        return {clean_value(name): clean_value(one) for name, one in value.items()}
    return value


def as_history(
    value: Any, where: str, *, strings: str = "alternate", reader: MessageReader | None = None
) -> list[Message]:
    """A history in any of its shapes as a list of messages.

    Args:
        value: a list of messages, a list of strings, or either as JSON text.
        where: what errors call it, e.g. ``"qhistory of qid '3_1'"``.
        strings: who says the strings: "alternate" (the user, the assistant, the user …) or "user" (all of them).
        reader: counts what is left out.

    Raises:
        ValueError: what is missing, or no history; the message names ``where``.
    """
    if type(value) is list and all(map(_is_plain, value)):
        return _in_unicode(value, where)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where} is a text that is not JSON ({error}): give a list of messages") from error
    if not _is_list(value):
        raise ValueError(f"{where} is {_shown(value)}: give a list of messages, [] for a first turn")
    values = list(value)
    if any(isinstance(item, str) for item in values):
        if not all(isinstance(item, str) for item in values):
            raise ValueError(f"{where} holds strings and other things: give strings only, or messages only")
        roles = [USER if strings == "user" or number % 2 == 0 else ASSISTANT for number in range(len(values))]
        return [
            {"role": role, "content": clean_text(text)}
            for role, text in zip(roles, values, strict=True)
            if role == USER or text.strip()
        ]
    if all(map(_is_plain, values)):
        return _in_unicode(values, where)
    return (reader or MessageReader()).messages(values, where)


def _is_plain(message: Any) -> bool:
    """Whether a message has the shape already; a docno that a file format filled with nothing is not plain."""
    if type(message) is not dict or message.get("role") not in (USER, ASSISTANT):
        return False
    if type(message.get("content")) is not str:
        return False
    docno = message.get("docno", "known")
    if type(docno) is list:
        return len(docno) > 1 and all(type(one) is str and one for one in docno)
    return type(docno) is str and docno != ""


def _in_unicode(messages: list[Message], where: str) -> list[Message]:
    """Plain messages as they are; where a text holds half of a surrogate pair, messages with the text cleaned."""
    for number, message in enumerate(messages, 1):
        if "docno" in message:
            try:
                shown_docnos(message)
            except ValueError as error:
                raise ValueError(f"message {number} of {where}: {error}") from error
    if all(is_unicode(message["content"]) for message in messages):
        return messages
    return [{**message, "content": clean_text(message["content"])} for message in messages]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray | pd.Series)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"
