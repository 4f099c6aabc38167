"""Cutting a query to a number of tokens: what must stay, what goes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pt_convsearch.forming.separators import Separator, texts_between
from pt_convsearch.forming.tokens import Counter, counter, last_tokens, tail


class Said(NamedTuple):
    """What one query is made of, in the order of the conversation.

    Attributes:
        texts: the chosen messages.
        roles: who said each.
        first: where among them the first question is, -1 if nowhere.
        now: how many at the end are the current question and its rewrite.
        copies: how often each is said; None for once.
    """

    texts: list[str]
    roles: list[str]
    first: int = -1
    now: int = 0
    copies: list[int] | None = None


def joined(said: Said, sep: Separator) -> str:
    """The texts with separators between them."""
    texts, roles = said.texts, said.roles
    if said.copies is not None:
        texts = [text for text, copies in zip(texts, said.copies, strict=True) for _ in range(copies)]
        roles = [role for role, copies in zip(roles, said.copies, strict=True) for _ in range(copies)]
    if isinstance(sep, str):
        return sep.join(texts)
    same, change = texts_between(sep)
    pieces = texts[:1]
    for before, role, text in zip(roles, roles[1:], texts[1:], strict=False):
        pieces += (same if role == before else change, text)
    return "".join(pieces)


class Budget:
    """Holds queries to ``max_tokens``.

    Args:
        max_tokens: the most tokens a query may have, the encoder's special tokens counted.
        tokenizer: see :class:`~pt_convsearch.forming.former.Form`.
        sep: what stands between parts; its tokens count.
        mode: None (the current question, then the first one, then the newest), "tail" (the newest), or "paper".

    Raises:
        ValueError: the budget leaves no room beside the special tokens.
    """

    def __init__(self, max_tokens: int, tokenizer: Any, sep: Separator, mode: str | None) -> None:
        self._counter: Counter = counter(tokenizer)
        self._sep, self._mode = sep, mode
        self._room = max_tokens - self._counter.special
        if self._room < 1:
            raise ValueError(
                f"max_tokens={max_tokens} leaves no token for the query: the tokenizer adds "
                f"{self._counter.special} of its own"
            )
        between = set(texts_between(sep))
        # counted between words, since some tokenizers make no token of a space but one of a space alone
        alone, *pairs = self._counter.counts(["a", *[f"a{text}a" for text in sorted(between)]])
        self._gap = max(0, max(pairs) - 2 * alone)
        parted = all(text[:1].isspace() and text[-1:].isspace() for text in between)
        self._adds_up = self._counter.adds_up and parted
        self._known: dict[str, int] = {}

    def cut(self, rows: Sequence[Said]) -> tuple[list[str], list[int]]:
        """The texts of the queries, and how many characters of the chosen messages each has lost."""
        fitted = [self._fitted(said, self._room) for said in rows]
        if self._mode != "paper":
            unsure = [at for at, (_, _, sure) in enumerate(fitted) if not sure]
            room = dict.fromkeys(unsure, self._room)
            while unsure:
                counts = self._counter.counts([fitted[at][0] for at in unsure])
                over = {at: count for at, count in zip(unsure, counts, strict=True) if count > self._room}
                for at, count in over.items():
                    # by the excess, but never by more than in proportion: some tokenizers' offsets are only nearly
                    # right
                    nearer = max(room[at] - (count - self._room), room[at] * self._room // count)
                    room[at] = min(room[at] - 1, nearer)
                    fitted[at] = self._fitted(rows[at], room[at])
                unsure = list(over)
        self._known.clear()
        return [text for text, _, _ in fitted], [lost for _, lost, _ in fitted]

    def _count(self, text: str) -> int:
        # histories repeat: each distinct message is counted once
        count = self._known.get(text)
        if count is None:
            count = self._known[text] = self._counter.count(text)
        return count

    def _fitted(self, said: Said, room: int) -> tuple[str, int, bool]:
        """The query in ``room`` tokens, how many characters were lost, and whether its length is certain."""
        if not said.texts:
            return "", 0, True
        if self._mode == "paper":
            return self._as_in_the_paper(said)
        copies = said.copies or [1] * len(said.texts)
        kept: dict[int, str] = {}
        times = [0] * len(said.texts)
        left, sure = room, self._adds_up
        must, order = self._order(said, copies)
        for at, extra in order:
            gap = self._gap if kept else 0
            text = said.texts[at]
            if extra and kept.get(at) is not text:
                continue
            count = self._count(text)
            if gap + count <= left:
                kept[at] = text
                left -= gap + count
                times[at] += 1
                continue
            if extra:
                continue
            forced = at >= len(said.texts) - said.now and not kept
            text, count, inside = tail(text, left - gap, self._counter, forced=forced)
            if count:
                kept[at], times[at] = text, 1
                sure = sure and not inside
            if count or at not in must:
                break
        if not kept:
            # nothing but one endless word: its end says more than nothing
            at = order[0][0]
            text = said.texts[at].rstrip()
            text = last_tokens(text, room, self._counter)[0] if room > 0 else self._end(text)
            kept, times[at], sure = {at: text}, 1, False
        chosen = sorted(kept)
        query = Said(
            [kept[at] for at in chosen], [said.roles[at] for at in chosen], copies=[times[at] for at in chosen]
        )
        return joined(query, self._sep), sum(map(len, said.texts)) - sum(map(len, kept.values())), sure

    def _end(self, text: str) -> str:
        """The longest end of the last word that fits, where a word's tokens depend on what stands before it."""
        word = text.split()[-1]
        ends = [word[at:] for at in range(max(0, len(word) - 16 * self._room), len(word))]
        counts = self._counter.counts(ends)
        return next((end for end, count in zip(ends, counts, strict=True) if count <= self._room), "")

    def _order(self, said: Said, copies: Sequence[int]) -> tuple[list[int], list[tuple[int, bool]]]:
        """Which messages must stay, and in which order all get their tokens, with a mark on further copies."""
        places = range(len(said.texts))
        must = [] if self._mode == "tail" else [*places[len(places) - said.now :]]
        if self._mode != "tail" and said.first >= 0 and said.first not in must:
            must.append(said.first)
        rest = [at for at in reversed(places) if at not in must]
        order = [(at, False) for at in must]
        order += [(at, True) for at in must for _ in range(copies[at] - 1)]
        for at in rest:
            order += [(at, False), *[(at, True)] * (copies[at] - 1)]
        return must, order

    def _as_in_the_paper(self, said: Said) -> tuple[str, int, bool]:
        """q_1 whole, then the last tokens of all the rest as one list, cut anywhere."""
        copies = said.copies or [1] * len(said.texts)
        expanded = [
            (text, role) for text, role, n in zip(said.texts, said.roles, copies, strict=True) for _ in range(n)
        ]
        head, rest = (expanded[:1], expanded[1:]) if said.first == 0 else ([], expanded)
        left = self._room - sum(self._count(text) + self._gap for text, _ in head)
        if left <= 0:
            # without room for the rest, the slice of the published code counts from the other end: the query is too
            # long
            left += sum(self._count(text) for text, _ in rest) + self._gap * (len(rest) - 1)
        kept: list[tuple[str, str]] = []
        for text, role in reversed(rest):
            count = self._count(text)
            end = text if count <= left else last_tokens(text, left, self._counter)[0]
            if end:
                kept.append((end, role))
            left -= count + self._gap
            if left <= 0:
                break
        kept = head + kept[::-1]
        query = Said([text for text, _ in kept], [role for _, role in kept])
        lost = sum(len(text) for text, _ in expanded) - sum(map(len, query.texts))
        return joined(query, self._sep), lost, True
