"""The parts algebra beside a brute-force reading of each part's definition."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.forming import parts as room

NAMES = {
    name: getattr(room, name)
    for name in (
        "X",
        "CURRENT",
        "FIRST_QUESTION",
        "QUESTIONS",
        "ANSWERS",
        "LAST_ANSWER",
        "LAST_QUESTION",
        "LAST_UTTERANCE",
    )
}
READ_BACK = {**NAMES, "last": room.last, "REWRITE": room.REWRITE}


def chosen(expression, roles: list[str]) -> set[int]:
    """Positions chosen, by the words of the definitions; the last position is the current question."""
    now = len(roles)
    said = [*roles, "user"]
    users = [at for at, role in enumerate(said) if role == "user"]
    kind, *rest = expression
    if kind == "name":
        answers = {at for at, role in enumerate(said) if role == "assistant"}
        before = [at for at in users if at != now]
        if rest[0] == "X":
            return set(range(now + 1))
        if rest[0] in ("CURRENT", "LAST_UTTERANCE"):
            return {now}
        if rest[0] == "FIRST_QUESTION":
            return {users[0]}
        if rest[0] == "QUESTIONS":
            return set(users)
        if rest[0] == "ANSWERS":
            return answers
        if rest[0] == "LAST_QUESTION":
            return set(before[-1:])
        assert rest[0] == "LAST_ANSWER"
        return {at for at in answers if not before or at > before[-1]}
    if kind == "last":
        # a turn begins with each user message; what an assistant says before the first one is a turn as well
        turns, current = [], []
        for at in range(now):
            if said[at] == "user" and current:
                turns.append(current)
                current = []
            current.append(at)
        turns += [current] if current else []
        return {at for turn in turns[len(turns) - min(rest[0], len(turns)) :] for at in turn}
    one = chosen(rest[0], roles)
    if kind == "~":
        return set(range(now + 1)) - one
    other = chosen(rest[1], roles)
    return {"|": one | other, "&": one & other, "-": one - other}[kind]


def built(expression):
    kind, *rest = expression
    if kind == "name":
        return NAMES[rest[0]]
    if kind == "last":
        return cs.last(rest[0])
    one = built(rest[0])
    if kind == "~":
        return ~one
    other = built(rest[1])
    return {"|": lambda: one | other, "&": lambda: one & other, "-": lambda: one - other}[kind]()


LEAVES = st.one_of(
    st.tuples(st.just("name"), st.sampled_from(sorted(NAMES))), st.tuples(st.just("last"), st.integers(0, 4))
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.tuples(st.just("~"), inner), st.tuples(st.sampled_from(["|", "&", "-"]), inner, inner)),
    max_leaves=6,
)
ROLES = st.lists(st.sampled_from(["user", "assistant"]), max_size=9)


def by_us(parts: cs.Parts, roles: list[str]) -> set[int]:
    places, current = parts.choose([{"role": role, "content": str(at)} for at, role in enumerate(roles)])
    assert places == sorted(set(places))
    return {*places, *([len(roles)] if current else [])}


@settings(max_examples=120, deadline=None)
@given(EXPRESSIONS, ROLES)
def test_an_expression_chooses_what_its_words_say(expression, roles: list[str]) -> None:
    assert by_us(built(expression), roles) == chosen(expression, roles)


ALL_ROLES = [
    [("user", "assistant")[int(bit)] for bit in format(number, f"0{length}b")] if length else []
    for length in range(8)
    for number in range(2**length)
]


@settings(max_examples=40, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
def test_equal_is_what_chooses_the_same_of_every_conversation(one, other) -> None:
    same = all(chosen(one, roles) == chosen(other, roles) for roles in ALL_ROLES)
    assert (built(one) == built(other)) == same
    assert (repr(built(one)) == repr(built(other))) == same
    if same:
        assert hash(built(one)) == hash(built(other))


@settings(max_examples=80, deadline=None)
@given(EXPRESSIONS, st.booleans())
def test_the_print_is_read_back_as_an_equal_choice(expression, rewrite: bool) -> None:
    parts = built(expression) | (cs.REWRITE if rewrite else cs.X - cs.X)
    assert eval(repr(parts), dict(READ_BACK)) == parts
    assert pickle.loads(pickle.dumps(parts)) == parts


@settings(max_examples=120, deadline=None)
@given(EXPRESSIONS, ROLES)
def test_what_needs_no_history_chooses_the_same_with_and_without(expression, roles: list[str]) -> None:
    parts = built(expression)
    if not parts.needs_history:
        assert by_us(parts, roles) == ({len(roles)} if 0 in by_us(parts, []) else set())


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (cs.X, "X"),
        (cs.X - cs.CURRENT, "X - CURRENT"),
        (~cs.CURRENT, "X - CURRENT"),
        (cs.CURRENT | cs.FIRST_QUESTION, "FIRST_QUESTION | CURRENT"),
        (cs.QUESTIONS - cs.CURRENT, "QUESTIONS - CURRENT"),
        (cs.ANSWERS & cs.last(1), "LAST_ANSWER"),
        (cs.last(1) | cs.CURRENT, "last(1) | CURRENT"),
        (cs.ANSWERS - cs.LAST_ANSWER, "ANSWERS - LAST_ANSWER"),
        (cs.X - cs.X, "X - X"),
        (cs.last(0), "X - X"),
        (cs.X | cs.CURRENT | cs.X, "X"),
        (cs.REWRITE, "REWRITE"),
        (cs.REWRITE | (cs.X - cs.CURRENT), "(X - CURRENT) | REWRITE"),
        (cs.last(5) - cs.last(2), "last(5) - last(2)"),
    ],
)
def test_prints(parts: cs.Parts, text: str) -> None:
    assert repr(parts) == text


def test_a_long_expression_is_written_out() -> None:
    parts = (
        (cs.QUESTIONS & cs.last(9)) - cs.last(7)
        | (cs.ANSWERS & (cs.last(5) - cs.last(3)))
        | cs.LAST_ANSWER
        | cs.FIRST_QUESTION
    )
    assert eval(repr(parts), dict(READ_BACK)) == parts


def test_the_rewrite_is_no_part_of_what_was_said() -> None:
    assert cs.X & cs.REWRITE == cs.X - cs.X
    assert cs.X - cs.REWRITE == cs.X
    assert ~cs.REWRITE == cs.X
    assert cs.REWRITE != cs.CURRENT
    assert not cs.REWRITE.needs_history


@pytest.mark.parametrize("k", [-1, 1.0, "2", None, True])
def test_last_takes_whole_numbers(k) -> None:
    with pytest.raises(ValueError, match="last"):
        cs.last(k)


def test_other_things_are_not_parts() -> None:
    with pytest.raises(TypeError):
        cs.X | {"role"}
    with pytest.raises(AttributeError):
        cs.X.rewrite = True


@pytest.mark.parametrize(
    "use", [lambda: cs.X >> cs.form(cs.X), lambda: cs.X([]), lambda: cs.X.transform([]), lambda: cs.X.search("a")]
)
def test_parts_are_no_transformer(use) -> None:
    with pytest.raises(TypeError, match=r"cs\.form\(X\)"):
        use()


@pytest.mark.parametrize("first", [cs.QUESTIONS, cs.FIRST_QUESTION])
def test_a_choice_that_has_no_short_name_is_written_out(first: cs.Parts) -> None:
    """Of every second turn another kind of message; with and without a word for the first question alone."""
    turns = [cs.last(2) - cs.last(1), cs.last(4) - cs.last(3), cs.last(6) - cs.last(5)]
    parts = (first & turns[0]) | (cs.QUESTIONS & turns[1]) | (cs.ANSWERS & turns[2])
    assert eval(repr(parts), dict(READ_BACK)) == parts
    assert repr(parts).count("last(") >= 5
