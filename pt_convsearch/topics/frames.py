"""Frames: topics from one that holds histories in a shape of its own, and frames from a stream of rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from pt_convsearch.topics.checks import as_ids
from pt_convsearch.topics.messages import Roles, clean_text
from pt_convsearch.topics.validation import histories, validate


def from_frame(
    frame: pd.DataFrame, history: str = "qhistory", *, strings: str = "alternate", roles: Roles | None = None
) -> pd.DataFrame:
    """Topics from a frame with one row per question and a column that holds what was said before.

    Args:
        frame: columns ``query``, ``history`` (see there), and ``qid`` or else ``conversation_id`` and
            ``turn_number``. Without ``query``, the last message of the history is the question (it must be the
            user's) and is taken out.
        history: the column of histories, oldest message first: lists of messages (role and content, from and value,
            speaker and text), lists of strings, or either as JSON text. It becomes ``qhistory``.
        strings: who says the strings of a list: "alternate" (the user first, then the assistant, and so on) or
            "user".
        roles: what else the frame calls its speakers, e.g. ``{"bot": "assistant"}``.

    Returns:
        a topics frame as :func:`validate` gives it, all other columns kept.

    Raises:
        ValueError: a column or an id is missing, or a history is none; the message names column and qid.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> frame = pd.DataFrame({"qid": ["c_2"], "query": ["When?"], "said": [["Who wrote Dune?", "Frank Herbert."]]})
        >>> cs.topics.from_frame(frame, "said").qhistory[0][1]
        {'role': 'assistant', 'content': 'Frank Herbert.'}
    """
    if strings not in ("alternate", "user"):
        raise ValueError(f"strings is {strings!r}: give 'alternate' or 'user'")
    if history not in frame.columns:
        raise ValueError(f"the frame has no column {history!r}; its columns are {', '.join(map(str, frame.columns))}")
    if history != "qhistory" and "qhistory" in frame.columns:
        raise ValueError(f"the frame has a column 'qhistory' beside {history!r}: drop the one that is not meant")
    frame = frame.rename(columns={history: "qhistory"})
    if "qid" not in frame.columns:
        if not {"conversation_id", "turn_number"} <= set(frame.columns):
            raise ValueError("the frame has no column 'qid', nor 'conversation_id' and 'turn_number' to make it from")
        conversations, turns = (
            as_ids(frame["conversation_id"], "conversation_id"),
            as_ids(frame["turn_number"], "turn_number"),
        )
        frame.insert(0, "qid", conversations + "_" + turns)
    qids = as_ids(frame["qid"], "qid")
    frame["qhistory"] = histories(frame["qhistory"], qids, name=history, strings=strings, roles=roles)
    if "query" not in frame.columns:
        for qid, messages in zip(qids, frame["qhistory"], strict=True):
            if not messages or messages[-1]["role"] != "user":
                raise ValueError(
                    f"{history} of qid {qid!r} does not end with a user's message, and there is no column 'query'"
                )
        frame.insert(1, "query", [messages[-1]["content"] for messages in frame["qhistory"]])
        frame["qhistory"] = pd.Series(
            [messages[:-1] for messages in frame["qhistory"]], dtype=object, index=frame.index
        )
    return validate(frame)


def frames_of(rows: Iterable[dict[str, Any]], size: int) -> Iterator[pd.DataFrame]:
    """Frames of ``size`` rows each, the last one of what is left.

    Half of a surrogate pair (a broken emoji), which pandas' strings cannot hold, becomes U+FFFD in a text.

    Raises:
        ValueError: an id (``qid``, ``docno``) that holds one.
    """
    stream = iter(rows)
    for block in iter(lambda: list(itertools.islice(stream, size)), []):
        try:
            yield pd.DataFrame(block)
        except UnicodeEncodeError:
            yield pd.DataFrame([{name: _clean(name, value) for name, value in row.items()} for row in block])


def _clean(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    clean = clean_text(value)
    if clean != value and name in ("qid", "docno"):
        raise ValueError(f"{name} {value!r} is no valid Unicode (a lone surrogate): replace it")
    return clean
