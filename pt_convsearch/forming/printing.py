"""One canonical way to write a choice of parts: the shortest expression there is, the same for equal choices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

from pt_convsearch.forming import parts as of
from pt_convsearch.forming.parts import Parts

_OPERATORS: dict[str, Callable[[Parts, Parts], Parts]] = {"|": operator.or_, "-": operator.sub, "&": operator.and_}
#: expressions of more names than this are written out turn by turn
_LONGEST = 4


def printed(parts: Parts) -> str:
    """The expression; Python reads it back as an equal choice."""
    said = Parts(parts.answers, parts.questions, parts.firsts)
    if not parts.rewrite:
        return _expression(said)
    return f"{_bracketed(_expression(said), '|')} | REWRITE" if said else "REWRITE"


def _expression(parts: Parts) -> str:
    tables = (parts.answers, parts.questions, parts.firsts)
    # a choice can only change where one of its tables does
    steps = {at for table in tables for at in range(1, len(table) - 1) if table[at] != table[at + 1]}
    return _search(frozenset(steps)).shortest(parts) or _written_out(parts)


class _Search:
    """All choices of one name, of two, of three …, each with the first expression that makes it, as far as was asked.

    Only the names that matter take part: ``last(k)`` for the distances at which a choice changes.
    """

    def __init__(self, steps: frozenset[int]) -> None:
        names = {"X": of.X, "FIRST_QUESTION": of.FIRST_QUESTION, "QUESTIONS": of.QUESTIONS, "ANSWERS": of.ANSWERS}
        if 1 in steps:
            names |= {"LAST_QUESTION": of.LAST_QUESTION, "LAST_ANSWER": of.LAST_ANSWER}
        names |= {f"last({k})": of.last(k) for k in sorted(steps, reverse=True)}
        names["CURRENT"] = of.CURRENT
        self._found = {parts: name for name, parts in names.items()}
        self._levels = [[], list(self._found)]
        # many steps make many choices: then only expressions of three names are looked through
        self._longest = _LONGEST if len(steps) <= 2 else _LONGEST - 1

    def shortest(self, parts: Parts) -> str | None:
        while parts not in self._found and len(self._levels) <= self._longest:
            self._lengthen()
        return self._found.get(parts)

    def _lengthen(self) -> None:
        length, new = len(self._levels), []
        for right in range(1, length):
            for one in self._levels[length - right]:
                for other in self._levels[right]:
                    for sign, combine in _OPERATORS.items():
                        made = combine(one, other)
                        if made not in self._found:
                            left_text, right_text = self._found[one], self._found[other]
                            self._found[made] = (
                                f"{_bracketed(left_text, sign)} {sign} {_bracketed(right_text, sign, right=True)}"
                            )
                            new.append(made)
        self._levels.append(new)


_search = lru_cache(maxsize=64)(_Search)


def _bracketed(expression: str, sign: str, *, right: bool = False) -> str:
    signs = {other for other in _OPERATORS if f" {other} " in expression}
    # '|' and '&' may stand in a row without brackets, and so may '-' on the left
    plain = not signs or (signs == {sign} and (sign != "-" or not right))
    return expression if plain else f"({expression})"


def _written_out(parts: Parts) -> str:
    """Every run of turns of every kind of message, one after the other."""
    kinds = [("ANSWERS", parts.answers)]
    if parts.questions == parts.firsts:
        kinds += [("QUESTIONS", parts.questions)]
    else:
        kinds += [("(QUESTIONS - FIRST_QUESTION)", parts.questions), ("FIRST_QUESTION", parts.firsts)]
    pieces = [f"({kind} & {turns})" for kind, table in kinds for turns in _runs(table)]
    return " | ".join(pieces)


def _runs(table: tuple[bool, ...]) -> list[str]:
    found = ["CURRENT"] if table[0] and len(table) > 1 else []
    if len(table) == 1:
        return ["X"] if table[0] else []
    at = 1
    while at < len(table):
        if not table[at]:
            at += 1
            continue
        end = at
        while end < len(table) and table[end]:
            end += 1
        before = f" - last({at - 1})" if at > 1 else ""
        found.append(
            f"(X - CURRENT{before})"
            if end == len(table)
            else f"(last({end - 1}){before})"
            if before
            else f"last({end - 1})"
        )
        at = end
    return found
