"""Conversations over the world: what is asked next, how it is put, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pt_convsearch.datasets.testbed.draws import chance, draws, pick, uniform
from pt_convsearch.datasets.testbed.language import FACETS, SPLITS, Facet, capitalised, lowered, possessive, prose
from pt_convsearch.datasets.testbed.world import ENTITIES, Entity, Region

_TALK = 3  # stream of draws, beside those of the world
_BRIDGED, _ELSEWHERE = 0.45, 0.30  # of the switches; the rest goes to a remote fact of the same entity
_REMOTE = 5  # places on the circle between two facts that share nothing but their entity
_ELLIPSIS, _EXTRA = 0.35, 0.8


@dataclass(frozen=True)
class Course:
    """The dials of the conversations of one split."""

    seed: int
    split: str
    switch_rate: float
    shortcut: float
    ambiguity: float
    turns: tuple[int, int]


@dataclass
class _Turn:
    region: Region
    place: int
    position: int
    qtype: str
    named: bool  # the entity changes: it must be named

    @property
    def entity(self) -> Entity:
        return self.region.entities[self.place]

    @property
    def facet(self) -> Facet:
        return self.entity.facets[self.position]


def conversation(course: Course, number: int, anywhere: Callable[[Iterator[int]], Region]) -> Iterator[dict[str, Any]]:
    """The turns of one conversation: rows of the topics frame, and the docnos of their golds as ``golds``.

    Args:
        course: the dials.
        number: which conversation of the split, from 0.
        anywhere: draws a region of the split.
    """
    stream = draws(course.seed, _TALK, SPLITS.index(course.split), number)
    identity = f"{course.split}{number:04d}"
    history: list[dict[str, str]] = []
    turn = _Turn(anywhere(stream), next(stream) % ENTITIES, next(stream) % FACETS, "first", True)
    asked: set[tuple[int, int]] = set()
    low, high = course.turns
    for count in range(1, low + next(stream) % (high - low + 1) + 1):
        if count > 1:
            turn = _next(course, stream, turn, asked, anywhere)
        asked.add((turn.entity.number, turn.position))
        question, rewrite = _question(course, stream, turn)
        answer = _answer(course, stream, turn)
        said = {message["content"] for message in history}
        while question in said:  # "And the opponent?" of two entities
            question, rewrite = _question(course, stream, turn)
        while answer in said:
            answer = _answer(course, stream, turn)
        golds = turn.entity.golds(turn.position)
        yield {
            "qid": f"{identity}_{count}",
            "query": question,
            "qhistory": [dict(message) for message in history],
            "qrewrite": rewrite,
            "qtype": turn.qtype,
            "conversation_id": identity,
            "turn_number": count,
            "answer": answer,
            "golds": golds,
        }
        history.append({"role": "user", "content": question})
        history.append({"role": "assistant", "content": answer, "docno": golds[0]})


def _next(
    course: Course,
    stream: Iterator[int],
    turn: _Turn,
    asked: set[tuple[int, int]],
    anywhere: Callable[[Iterator[int]], Region],
) -> _Turn:
    entity = turn.entity

    def unasked(step: int) -> bool:
        return (entity.number, (turn.position + step) % FACETS) not in asked

    follow = [step for step in (1, 2, 2, -1, -2) if unasked(step)]
    if follow and not chance(stream, course.switch_rate):
        # the passage one place on says this answer again; those around it share a scene with this one, and no more.
        # One place back comes last: from there the place ahead has been asked for, and no answer could be said again.
        around = [step for step in follow if step in (2, -2)] or [step for step in follow if step == -1]
        repeats = 1 in follow and (chance(stream, course.shortcut) or not around)
        step = 1 if repeats else pick(stream, around)
        return _Turn(turn.region, turn.place, (turn.position + step) % FACETS, "no-switch", False)
    die = uniform(stream)
    if die < _BRIDGED:
        others = turn.region.entities
        bridges = [bridge for bridge in _bridges(turn) if (others[bridge[0]].number, bridge[1]) not in asked]
        # best one that speaks of a fact that the conversation has had
        known = [bridge for bridge in bridges if (entity.number, bridge[2]) in asked]
        if bridges:
            place, position, _ = pick(stream, known or bridges)
            return _Turn(turn.region, place, position, "switch", True)
    if die >= _BRIDGED + _ELSEWHERE:
        remote = [step for step in range(_REMOTE, FACETS - _REMOTE + 1) if unasked(step)]
        if remote:
            position = (turn.position + pick(stream, remote)) % FACETS
            return _Turn(turn.region, turn.place, position, "switch", False)
    while True:
        region = anywhere(stream)
        away = _Turn(region, next(stream) % ENTITIES, next(stream) % FACETS, "switch", True)
        if away.entity.number != entity.number and (away.entity.number, away.position) not in asked:
            return away


def _bridges(turn: _Turn) -> list[tuple[int, int, int]]:
    """(place, position, position named) of the passages about others that name this entity and one of its facts."""
    return [
        (place, 3 * index, link[1])
        for place, entity in enumerate(turn.region.entities)
        for index, link in enumerate(entity.links)
        if link[0] == turn.place
    ]


def _question(course: Course, stream: Iterator[int], turn: _Turn) -> tuple[str, str]:
    """The question as it is said, and the same as it would be said without a conversation."""
    talk, name = prose().talk[course.split], turn.entity.name
    subject, object_, owner = turn.entity.pronouns
    core = pick(stream, turn.facet.questions[course.split])
    rewrite = capitalised(core(x=name, xo=name, xs=possessive(name), xat=f"at {name}", xin=f"in {name}"))
    vague = capitalised(core(x=subject, xo=object_, xs=owner, xat="there", xin="there"))
    if turn.qtype == "first":
        said = pick(stream, talk["first"])(Q=rewrite, q=lowered(rewrite), x=name, P=vague)
        return capitalised(said), rewrite
    ambiguous = not turn.named and chance(stream, course.ambiguity)
    if ambiguous and chance(stream, _ELLIPSIS):
        return pick(stream, talk["ellipsis"])(short=turn.facet.short[course.split]), rewrite
    text = vague if ambiguous else rewrite
    said = pick(stream, talk["switch" if turn.qtype == "switch" else "follow"])(Q=text, q=lowered(text))
    return capitalised(said), rewrite


def _answer(course: Course, stream: Iterator[int], turn: _Turn) -> str:
    entity = turn.entity
    mention = next(stream) % 20
    if mention < 12:
        subject, owner = entity.name, possessive(entity.name)
    elif mention < 15:
        subject, owner = entity.alias, possessive(entity.alias)
    else:
        subject, _, owner = entity.pronouns
    text = pick(stream, turn.facet.answers[course.split])(n=subject, ns=owner, v=entity.values[turn.position])
    if not chance(stream, _EXTRA):
        return capitalised(text)
    scene_a, scene_b = entity.scenes_of(turn.position)
    extra = pick(stream, prose().talk[course.split]["extra"])(a=scene_a, b=scene_b)
    return f"{capitalised(text)} {capitalised(extra)}"
