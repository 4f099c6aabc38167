"""The made-up world: regions of ten entities that know each other, and the passages about them.

Whatever there is about a region follows from (seed, number of the region, corpus dials), so that passage 900,000 needs
none of the 899,999 before it, and a corpus of any size is streamed. The facts of an entity lie on a circle: the passage
of a fact shares a scene with those one or two places away, and says the value of the fact before it again, without
stating that fact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pt_convsearch.datasets.testbed.draws import draws, pick, shuffled
from pt_convsearch.datasets.testbed.language import (
    FACETS,
    NAMES,
    Facet,
    Format,
    capitalised,
    facets,
    place,
    possessive,
    prose,
    surname,
    words,
)

ENTITIES = 10  # in a region
_LINKS = 7  # passages of an entity that name another entity of the region: every third fact
_SCENES = FACETS // 2
_LINKABLE = frozenset({"person", "place", "thing", "trade"})
_FACTS, _TEXTS = 1, 2  # streams of draws


@dataclass(frozen=True, slots=True)
class Shape:
    """What fixes the corpus beside its size: the seed and the corpus dials, as counts per entity."""

    seed: int
    restated: int  # passages that state a fact for another time
    near: int  # passages that nearly state one

    @property
    def passages(self) -> int:
        return FACETS + self.restated + self.near


@dataclass(slots=True)
class Entity:
    """A made-up person, place or thing: its names, and its facts in the order of the circle."""

    number: int
    kind: str
    name: str
    alias: str
    descriptor: str
    pronouns: tuple[str, str, str]
    facets: list[Facet] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    scenes: list[str] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)  # (place in the region, position of the fact named)
    restated: list[int] = field(default_factory=list)
    near: list[tuple[int, str]] = field(default_factory=list)  # (position, the value that is not the fact's)

    def scenes_of(self, position: int) -> tuple[str, str]:
        half, odd = divmod(position, 2)
        first, second = (half, half + 1) if odd else (half - 1, half)
        return self.scenes[first % _SCENES], self.scenes[second % _SCENES]

    def stated(self, position: int, again: int) -> Format:
        """How a fact is stated, for the first time or again: never twice in a row in the same words."""
        says = self.facets[position].says
        return says[(self.number + position + again) % len(says)]

    def docno(self, passage: int) -> str:
        return f"e{self.number:07d}_{passage:02d}"

    def golds(self, position: int) -> list[str]:
        """The docnos of all passages that state the fact at a position."""
        again = [FACETS + j for j, stated in enumerate(self.restated) if stated == position]
        return [self.docno(passage) for passage in (position, *again)]


def _fresh(stream: Iterator[int], facet: Facet, taken: list[str]) -> str:
    """A value of the facet that the entity has nowhere else."""
    value = facet.value(stream)
    while value in taken:
        value = facet.value(stream)
    return value


class Region:
    """Ten entities with names in common, and their passages.

    Args:
        shape: seed and corpus dials.
        number: which region, from 0.
    """

    def __init__(self, shape: Shape, number: int) -> None:
        self.shape, self.number = shape, number
        stream = draws(shape.seed, _FACTS, number)
        self.entities = self._named(stream)
        offsets = [1 + offset for offset in shuffled(stream, ENTITIES - 1)][:_LINKS]
        for entity in self.entities:
            known = facets(entity.kind)
            entity.facets = [known[index] for index in shuffled(stream, FACETS)]
            for facet in entity.facets:
                entity.values.append(_fresh(stream, facet, entity.values))
            nouns = shuffled(stream, len(words("scene_noun")))[:_SCENES]
            entity.scenes = [f"{pick(stream, words('scene_adj'))} {words('scene_noun')[noun]}" for noun in nouns]
        for place_of, entity in enumerate(self.entities):
            entity.links = [self._link(stream, (place_of + offset) % ENTITIES) for offset in offsets]
        # last, so that the dials behind these two change no fact
        for entity in self.entities:
            order = shuffled(stream, FACETS)
            entity.restated = [order[j % FACETS] for j in range(shape.restated)]
            order = shuffled(stream, FACETS)
            for position in (order[j % FACETS] for j in range(shape.near)):
                entity.near.append((position, _fresh(stream, entity.facets[position], entity.values)))

    def _link(self, stream: Iterator[int], other: int) -> tuple[int, int]:
        while True:
            position = next(stream) % FACETS
            if self.entities[other].facets[position].kind in _LINKABLE:
                return other, position

    def _named(self, stream: Iterator[int]) -> list[Entity]:
        # a stride with no factor in common with NAMES: no two regions share a root, and neighbours do not look alike
        first, second = ((2 * self.number + i) * 15013 + self.shape.seed * 977 for i in range(2))
        root1, root2 = place(first % NAMES), place(second % NAMES)
        family1, family2 = surname((first + NAMES // 3) % NAMES), surname((second + NAMES // 3) % NAMES)
        numbers = iter(range(ENTITIES * self.number, ENTITIES * (self.number + 1)))
        entities = []
        women = shuffled(stream, len(words("woman")))
        men = shuffled(stream, len(words("man")))
        for index, family in enumerate((family1, family1, family2)):
            if next(stream) & 1:
                given, pronouns = words("woman")[women[index]], ("she", "her", "her")
            else:
                given, pronouns = words("man")[men[index]], ("he", "him", "his")
            profession = f"the {pick(stream, words('profession'))}"
            entities.append(Entity(next(numbers), "person", f"{given} {family}", family, profession, pronouns))

        def thing(kind: str, name: str, alias: str, descriptor: str) -> None:
            entities.append(Entity(next(numbers), kind, name, alias, descriptor, ("it", "it", "its")))

        thing("town", root1, root1, "the town")
        noun = pick(stream, words("title_noun"))
        thing("work", f"The {noun} of {root2}", f"The {noun}", "the novel")
        for kind, root, names, descriptor in (
            ("company", root1, "works", "the company"),
            ("species", root2, "birdname", "the bird"),
            ("festival", root1, "fair", "the festival"),
            ("product", family2, "model", "the machine"),
            ("building", root2, "house", "the building"),
        ):
            noun = pick(stream, words(names))
            thing(kind, f"the {root} {noun}", f"the {noun}", descriptor)
        return entities

    def passages(self) -> Iterator[dict[str, str]]:
        """docno and text of every passage about the region's entities."""
        stream = draws(self.shape.seed, _TEXTS, self.number)
        for entity in self.entities:
            for passage in range(self.shape.passages):
                yield {"docno": entity.docno(passage), "text": self._text(stream, entity, passage)}

    def _text(self, stream: Iterator[int], entity: Entity, passage: int) -> str:
        around = prose()
        link: tuple[int, int] | None = None
        style = next(stream)
        if passage < FACETS:
            position, value = passage, entity.values[passage]
            statement = entity.stated(position, 0)
            if position % 3 == 0:
                link = entity.links[position // 3]
        elif passage < FACETS + self.shape.restated:
            again = passage - FACETS
            position = entity.restated[again]
            statement, value = entity.stated(position, 1 + again // FACETS), entity.values[position]
        else:
            position, value = entity.near[passage - FACETS - self.shape.restated]
            statement = entity.facets[position].near
        scene_a, scene_b = entity.scenes_of(position)
        # where the fact is told of the name, the scenes may say "it"; where of an alias or of "the town", they name it
        mention = style % 20
        scenes_first = style // 20 % 4 == 0
        if scenes_first:
            scenes, obj = pick(stream, around.scenes_naming), entity.name
            subject = entity.alias if mention < 12 else entity.descriptor
        elif mention < 9:
            subject = entity.name
            scenes, obj = pick(stream, around.scenes), entity.pronouns[1] if style // 80 % 2 else entity.alias
        else:
            subject = entity.alias if mention < 16 else entity.descriptor
            scenes, obj = pick(stream, around.scenes_naming), entity.name if style // 80 % 8 else entity.alias
        sentences = [
            capitalised(statement(n=subject, ns=possessive(subject), v=value)),
            capitalised(scenes(o=obj, a=scene_a, b=scene_b)),
        ]
        if scenes_first:
            sentences.reverse()
        before = (position - 1) % FACETS
        echo = pick(stream, around.echo[entity.facets[before].kind])
        sentences.append(capitalised(echo(v=entity.values[before])))
        if link is not None:
            other = self.entities[link[0]]
            sentences.append(pick(stream, around.links)(other=other.name, v=other.values[link[1]]))
        if link is None and style // 640 % 3:
            sentences.append(pick(stream, around.fillers))
        return " ".join(sentences)
