"""Parts of a conversation, and the algebra that combines them.

What a part chooses depends on three things only: who says a message, how many turns before the current one it lies,
and whether it is the conversation's first question. A part is stored as just that table, so two expressions that
choose the same messages of every conversation are the same object in all but name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from pt_convsearch.topics.messages import USER, Message

#: choice by distance in turns, 0 the current turn; the last entry holds for every greater distance
Table = tuple[bool, ...]

_HINT = "a choice of parts is not a transformer: make a query former of it with cs.form({0!r})"


class Parts:
    """A choice of parts of a conversation: combine with ``|`` (or), ``&`` (and), ``-`` (without), ``~`` (all the rest).

    Messages are said in the order of the conversation, whatever the order of the expression, and once each. Equality,
    hash and print follow what is chosen, not how it was written.

    Example:
        >>> import pt_convsearch as cs
        >>> cs.X & ~cs.CURRENT == cs.X - cs.CURRENT
        True
        >>> cs.CURRENT | cs.FIRST_QUESTION
        FIRST_QUESTION | CURRENT
    """

    __slots__ = ("answers", "firsts", "questions", "rewrite")
    answers: Table
    questions: Table
    firsts: Table
    rewrite: bool

    def __init__(self, answers: Table, questions: Table, firsts: Table, rewrite: bool = False) -> None:
        # no answer belongs to the current turn, so what is said about one chooses nothing
        object.__setattr__(self, "answers", _trimmed((False, *answers[1:]) if len(answers) > 1 else (False, *answers)))
        object.__setattr__(self, "questions", _trimmed(questions))
        object.__setattr__(self, "firsts", _trimmed(firsts))
        object.__setattr__(self, "rewrite", rewrite)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a choice of parts does not change: combine it into a new one")

    def _combined(self, other: object, how: Callable[[bool, bool], bool]) -> Parts:
        if not isinstance(other, Parts):
            return NotImplemented
        return Parts(
            _merged(self.answers, other.answers, how),
            _merged(self.questions, other.questions, how),
            _merged(self.firsts, other.firsts, how),
            how(self.rewrite, other.rewrite),
        )

    def __or__(self, other: Parts) -> Parts:
        return self._combined(other, operator.or_)

    def __and__(self, other: Parts) -> Parts:
        return self._combined(other, operator.and_)

    def __sub__(self, other: Parts) -> Parts:
        return self._combined(other, lambda one, another: one and not another)

    def __invert__(self) -> Parts:
        """All that was said apart from these parts: ``X - parts``. The rewrite was not said, so it is never in it."""
        return X - self

    @property
    def needs_history(self) -> bool:
        """Whether the choice can depend on earlier messages; the current question alone and the rewrite do not."""
        return bool((self & X) - CURRENT) or self.questions != self.firsts

    @property
    def tables(self) -> tuple[Table, Table, Table, bool]:
        """Choice of answers, of questions but the first, of the first question, and of the rewrite."""
        return self.answers, self.questions, self.firsts, self.rewrite

    def choose(self, history: list[Message]) -> tuple[list[int], bool]:
        """What is chosen of a conversation.

        Args:
            history: all earlier messages, oldest first, each a user's or an assistant's.

        Returns:
            the chosen indexes into ``history``, ascending, and whether the current question is chosen.
        """
        answers, questions, firsts = self.answers, self.questions, self.firsts
        most_answers, most_questions = len(answers) - 1, len(questions) - 1
        chosen = []
        turn, first = 1, -1
        for at in range(len(history) - 1, -1, -1):
            if history[at]["role"] == USER:
                first = at
                if questions[turn if turn < most_questions else most_questions]:
                    chosen.append(at)
                turn += 1
            elif answers[turn if turn < most_answers else most_answers]:
                chosen.append(at)
        chosen.reverse()
        if first < 0:
            return chosen, firsts[0]
        distance = turn - 1
        is_chosen = questions[min(distance, most_questions)]
        if firsts[min(distance, len(firsts) - 1)] != is_chosen:
            chosen = [at for at in chosen if at != first] if is_chosen else sorted([*chosen, first])
        return chosen, questions[0]

    def __eq__(self, other: object) -> bool:
        return self.tables == other.tables if isinstance(other, Parts) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.tables)

    def __repr__(self) -> str:
        from pt_convsearch.forming.printing import printed

        return printed(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Parts, self.tables

    def __bool__(self) -> bool:
        """Whether anything can be chosen: ``X - X`` is False."""
        return self.rewrite or any(self.answers) or any(self.questions) or any(self.firsts)

    def _not_a_transformer(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(_HINT.format(self))

    __rshift__ = __rrshift__ = __call__ = transform = transform_iter = search = _not_a_transformer


def _trimmed(table: Table) -> Table:
    end = len(table)
    while end > 1 and table[end - 1] == table[end - 2]:
        end -= 1
    return tuple(bool(value) for value in table[:end])


def _merged(one: Table, other: Table, how: Callable[[bool, bool], bool]) -> Table:
    length = max(len(one), len(other))
    one, other = one + one[-1:] * (length - len(one)), other + other[-1:] * (length - len(other))
    return tuple(map(how, one, other))


_ALL, _NONE, _NOW = (True,), (False,), (True, False)

#: X_t: all that was said, the current question included
X = Parts(_ALL, _ALL, _ALL)
#: q_t, the current question; in a dialogue, the last utterance
CURRENT = Parts(_NONE, _NOW, _NOW)
#: q_1; at a first turn the current question
FIRST_QUESTION = Parts(_NONE, _NONE, _ALL)
#: Q_t: the user's messages, the current question included
QUESTIONS = Parts(_NONE, _ALL, _ALL)
#: the assistant's messages
ANSWERS = Parts(_ALL, _NONE, _NONE)
#: q'_t, the column ``qrewrite``; it stands where the current question stands, after it where both are chosen
REWRITE = Parts(_NONE, _NONE, _NONE, True)


def last(k: int) -> Parts:
    """The last ``k`` turns before the current question: their questions and what was answered to them.

    Args:
        k: how many; 0 chooses nothing.

    Raises:
        ValueError: ``k`` is no whole number from 0 on.

    Example:
        >>> import pt_convsearch as cs
        >>> cs.form(cs.last(1) | cs.CURRENT)         # q_{t-1} a_{t-1} q_t
        form(last(1) | CURRENT)
    """
    if isinstance(k, bool) or not hasattr(k, "__index__") or operator.index(k) < 0:
        raise ValueError(f"last({k!r}): give a whole number of turns, 0 or more")
    turns = (False, *[True] * operator.index(k), False)
    return Parts(turns, turns, turns)


#: a_{t-1}: what was answered to the question before; nothing where it had no answer
LAST_ANSWER = ANSWERS & last(1)
#: q_{t-1}
LAST_QUESTION = QUESTIONS & last(1)
#: the last utterance of a dialogue's context, the same as the current question
LAST_UTTERANCE = CURRENT
