"""A live conversation, turn by turn."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyterrier as pt

from pt_convsearch import topics
from pt_convsearch.topics.messages import ASSISTANT, USER, Message, shown_docnos


class Session:
    """A conversation that goes on: each question is searched with the history so far.

    Args:
        pipeline: Q -> R, e.g. ``cs.form(cs.X) >> bm25``; it is given one topic at a time, with qid, query, qhistory,
            conversation_id and turn_number.
        conversation_id: the conversation's name; qids are ``{conversation_id}_{turn}``.

    One session may be used by several threads: a question waits until the one before it was searched. Copies are
    independent of each other. A question whose search fails leaves the conversation as it was.

    Example:
        >>> import pt_convsearch as cs
        >>> chat = cs.Session(cs.form(cs.X))             # any pipeline; here only the former, to see what is searched
        >>> _ = chat.ask("Who wrote Dune?")
        >>> chat.answer("Frank Herbert wrote it.", docno="d7")
        >>> chat.ask("When was it published?")["query"][0]
        'Who wrote Dune? Frank Herbert wrote it. When was it published?'
    """

    def __init__(self, pipeline: pt.Transformer, *, conversation_id: str = "session") -> None:
        if not isinstance(pipeline, pt.Transformer):
            raise TypeError(f"pipeline is a {type(pipeline).__name__}: give a transformer, e.g. cs.form(cs.X) >> bm25")
        self.pipeline = pipeline
        self.conversation_id = conversation_id
        self._messages: list[Message] = []
        self._columns: list[dict[str, Any]] = []  # of each question, what the caller added to its topic
        self._lock = threading.RLock()

    def ask(self, query: str, **columns: Any) -> pd.DataFrame:
        """Search with this question and the history so far.

        Args:
            query: the question as it is said.
            **columns: further columns of its topic, e.g. ``qrewrite="When was Dune published?"``.

        Returns:
            what the pipeline returns for this one topic.

        Raises:
            ValueError: the question is no text or has no words.
        """
        if not isinstance(query, str) or not query.strip():
            raise ValueError(f"a question is a text with words, not {query!r}")
        with self._lock:
            messages = [*self._messages, {"role": USER, "content": query}]
            asked = [*self._columns, columns]
            results = self.pipeline.transform(self._frame(messages, asked).tail(1).reset_index(drop=True))
            self._messages, self._columns = messages, asked
            return results

    def answer(self, text: str, docno: str | Sequence[str] | None = None) -> None:
        """Record what the assistant said.

        Args:
            text: the answer.
            docno: the passage it comes from, or the passages: ``cs.DropSeen()`` leaves them out from then on.

        Raises:
            ValueError: nothing was asked yet, or the answer is no text.
        """
        if not isinstance(text, str):
            raise ValueError(f"an answer is a text, not {text!r}")
        with self._lock:
            if not self._columns:
                raise ValueError("nothing was asked yet: ask(...) comes before answer(...)")
            message: Message = {"role": ASSISTANT, "content": text}
            shown = shown_docnos({"docno": docno})
            self._messages = [*self._messages, {**message, "docno": shown} if shown else message]

    def undo(self) -> None:
        """Take the last turn back: the last question and what was answered to it.

        Raises:
            ValueError: there is no turn to take back.
        """
        with self._lock:
            if not self._columns:
                raise ValueError("there is no turn to take back")
            last = max(place for place, message in enumerate(self._messages) if message["role"] == USER)
            self._messages, self._columns = self._messages[:last], self._columns[:-1]

    def copy(self) -> Session:
        """A branch: a session with the same past and a future of its own."""
        with self._lock:
            branch = Session(self.pipeline, conversation_id=self.conversation_id)
            branch._messages, branch._columns = list(self._messages), list(self._columns)
            return branch

    @property
    def topics(self) -> pd.DataFrame:
        """The topics frame so far, one row per question; it can be written, searched and judged like any other."""
        with self._lock:
            return self._frame(self._messages, self._columns)

    def _frame(self, messages: list[Message], columns: list[dict[str, Any]]) -> pd.DataFrame:
        frame = topics.from_messages([{"id": self.conversation_id, "messages": messages}])
        for name in dict.fromkeys(name for given in columns for name in given):
            frame[name] = pd.Series([given.get(name) for given in columns], index=frame.index, dtype=object)
        return frame

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Session({self.pipeline!r}, {len(self)} turns)"

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
