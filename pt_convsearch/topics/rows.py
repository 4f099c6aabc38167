"""From conversations to rows: each user message becomes a topic with all earlier messages as its history."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pt_convsearch.topics.checks import as_id, first_three
from pt_convsearch.topics.messages import USER, Message, clean_value

logger = logging.getLogger(__name__)


#: what the builders fill in themselves
_OWN = ("qid", "query", "qhistory", "qrewrite", "answer", "conversation_id", "turn_number")


def further_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """The fields that a user wants as columns beside the topics' own.

    Raises:
        ValueError: one of them has the name of a column that the topics have already.
    """
    named = (columns,) if isinstance(columns, str) else tuple(columns)
    taken = [column for column in named if column in _OWN]
    if taken:
        raise ValueError(
            f"columns={first_three(taken)}: the topics have such a column of their own; rename the field first"
        )
    return named


class RunningNumber(int):
    """What names a conversation without an id: its place in the log, from 1."""


class Rows:
    """Collects the topics of many conversations.

    A conversation's rows share its message dicts: a history costs one list of references, whatever the texts' length.

    Args:
        turns: "all", or "last" for the last user message of each conversation only.
    """

    def __init__(self, turns: str = "all") -> None:
        if turns not in ("all", "last"):
            raise ValueError(f"turns is {turns!r}: give 'all' or 'last' (the last user message of each conversation)")
        self._last = turns == "last"
        self._conversations: dict[str, int] = {}
        self._opened = 0
        self._numbered: set[str] = set()
        self._without_question = 0
        self._qids: list[str] = []
        self._queries: list[str] = []
        self._histories: list[list[Message]] = []
        self._answers: list[str] = []
        self._conversation_ids: list[str] = []
        self._turns: list[int] = []
        self._extras: dict[str, list[Any]] = {}

    def add(
        self,
        conversation_id: Any,
        messages: list[Message],
        *,
        qids: Sequence[str] | None = None,
        turn_numbers: Sequence[int] | None = None,
        extras: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Add a conversation; ``qids``, ``turn_numbers`` and ``extras`` hold one value per user message."""
        name = self.open(conversation_id)
        asked = [at for at, message in enumerate(messages) if message["role"] == USER]
        if not asked:
            self._without_question += 1
            return
        ends = [*asked[1:], len(messages)]
        for number in range(len(asked) - 1 if self._last else 0, len(asked)):
            at, end = asked[number], ends[number]
            turn = number + 1 if turn_numbers is None else turn_numbers[number]
            qid = f"{name}_{turn}" if qids is None else qids[number]
            self.add_topic(name, turn, qid, messages[at]["content"], messages[:at], joined(messages[at + 1 : end]))
            for column, values in (extras or {}).items():
                self._extras.setdefault(column, []).append(values[number])

    def open(self, conversation_id: Any) -> str:
        """Begin a conversation: its id as str; one that comes twice is refused by :meth:`frame`."""
        self._opened += 1
        try:
            name = as_id(conversation_id, "conversation_id")
        except ValueError as error:
            raise ValueError(f"conversation {self._opened}: {error}") from error
        if isinstance(conversation_id, RunningNumber):
            self._numbered.add(name)
        self._conversations[name] = self._conversations.get(name, 0) + 1
        return name

    def add_topic(self, name: str, turn: int, qid: str, query: str, history: list[Message], answer: str) -> None:
        """Add one row of a conversation that is open."""
        self._qids.append(qid)
        self._queries.append(query)
        self._histories.append(history)
        self._answers.append(answer)
        self._conversation_ids.append(name)
        self._turns.append(turn)

    def frame(self) -> pd.DataFrame:
        """The topics frame.

        Raises:
            ValueError: a conversation id or a qid that is used twice.
        """
        repeated = [name for name, count in self._conversations.items() if count > 1]
        if repeated:
            raise ValueError(
                f"{len(repeated)} conversation ids are used more than once ({first_three(repeated)}): "
                f"give each conversation its own id{self._by_position(repeated)}"
            )
        if self._without_question:
            logger.info("%d conversations without a user message give no topic", self._without_question)
        frame = pd.DataFrame(
            {
                "qid": pd.Series(self._qids, dtype="str"),
                "query": pd.Series(self._queries, dtype="str"),
                "qhistory": pd.Series(self._histories, dtype=object),
                "answer": pd.Series(self._answers, dtype="str"),
                "conversation_id": pd.Series(self._conversation_ids, dtype="str"),
                "turn_number": pd.Series(self._turns, dtype="int64"),
                **{column: pd.Series(list(map(clean_value, values))) for column, values in self._extras.items()},
            }
        )
        if frame["qid"].duplicated().any():
            twice = frame["qid"][frame["qid"].duplicated()].unique()
            raise ValueError(f"{len(twice)} qids name more than one question ({first_three(twice)})")
        return frame

    def _by_position(self, repeated: list[str]) -> str:
        numbered = [name for name in repeated if name in self._numbered]
        if not numbered:
            return ""
        return f" ({first_three(numbered)}: given by position, from 1, where a conversation has no id of its own)"


def joined(answers: Sequence[Message]) -> str:
    """What was answered: the assistant messages up to the next question, one a line; '' where there are none."""
    if len(answers) == 1:
        return answers[0]["content"]
    return "\n".join(message["content"] for message in answers)
