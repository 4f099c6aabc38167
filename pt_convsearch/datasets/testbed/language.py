"""The facts and phrasing under ``facts/``, read once and made ready for filling in."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pt_convsearch.datasets.testbed.draws import pick

SPLITS = ("train", "dev", "test")
#: types of entities; all but people and birds share the facts of common.toml
TYPES = ("person", "town", "work", "company", "species", "festival", "product", "building")
FACETS = 20  # facts of each entity
_FOLDER = Path(__file__).parent / "facts"
_SLOT = re.compile(r"\{([^{}]+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")

Value = Callable[[Iterator[int]], str]
Format = Callable[..., str]


@dataclass(frozen=True)
class Facet:
    """One kind of fact: how its values look, and how it is asked for, stated, answered and nearly stated."""

    key: str
    kind: str
    value: Value
    questions: dict[str, list[Format]]
    short: dict[str, str]
    says: list[Format]
    answers: dict[str, list[Format]]
    near: Format


@dataclass(frozen=True)
class Prose:
    """The sentences around the facts, and how one split of the conversations puts its questions."""

    scenes: list[Format]
    scenes_naming: list[Format]
    links: list[Format]
    fillers: list[str]
    echo: dict[str, list[Format]]
    talk: dict[str, dict[str, list[Format]]]


def capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def possessive(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"


def lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


@cache
def _read(name: str) -> dict[str, Any]:
    with (_FOLDER / f"{name}.toml").open("rb") as handle:
        return tomllib.load(handle)


@cache
def words(name: str) -> tuple[str, ...]:
    return tuple(_read("words")[name])


def person(stream: Iterator[int]) -> str:
    given = words("woman") if next(stream) & 1 else words("man")
    return f"{pick(stream, given)} {surname(next(stream))}"


def surname(number: int) -> str:
    """The surname of a number; different ones for the numbers below NAMES."""
    return _syllables(number, words("name_end"))


def place(number: int) -> str:
    """The place name of a number; different ones for the numbers below NAMES."""
    return _syllables(number, words("place_end"))


def _syllables(number: int, ends: tuple[str, ...]) -> str:
    heads, middles = words("head"), words("middle")
    number, head = divmod(number, len(heads))
    number, middle = divmod(number, len(middles))
    return heads[head] + middles[middle] + ends[number % len(ends)]


#: how many place names there are, and how many surnames
NAMES = 48 * 24 * 36

_SPECIAL: dict[str, Value] = {
    "person": person,
    "place": lambda stream: place(next(stream)),
    # three eras, so that nobody dies before a debut and nothing is filmed before there was film
    "early": lambda stream: str(1703 + next(stream) % 147),
    "late": lambda stream: str(1850 + next(stream) % 55),
    "modern": lambda stream: str(1908 + next(stream) % 79),
    "root": lambda stream: "".join(pick(stream, words(part)) for part in ("head", "middle", "river_end")),
    "first": lambda stream: pick(stream, words("woman") if next(stream) & 1 else words("man")),
}


@cache
def _value(template: str) -> Value:
    """What draws a value such as "a {colour} {animal}"; the words of a list may be templates themselves."""
    parts = _SLOT.split(template)
    literals, slots = parts[::2], [_slot(name) for name in parts[1::2]]
    if not slots:
        return lambda stream: template
    if not any(literals) and len(slots) == 1:
        return slots[0]
    pattern = "%s".join(literal.replace("%", "%%") for literal in literals)
    if _ARTICLE.search(re.sub(r"\{[^{}]+\}", "o", template)) is None:
        return lambda stream: pattern % tuple([slot(stream) for slot in slots])
    return lambda stream: _ARTICLE.sub(r"\1n ", pattern % tuple([slot(stream) for slot in slots]))


def _slot(name: str) -> Value:
    if name in _SPECIAL:
        return _SPECIAL[name]
    if name.startswith("n:"):
        low, high = map(int, name[2:].split("-"))
        return lambda stream: str(low + next(stream) % (high - low + 1))
    options = words(name)
    if any("{" in option for option in options):
        inner = [_value(option) for option in options]
        return lambda stream: inner[next(stream) % len(inner)](stream)
    count = len(options)
    return lambda stream: options[next(stream) % count]


def _kind(template: str) -> str:
    kinds = {"{person}": "person", "{place}": "place", "{early}": "year", "{late}": "year", "{modern}": "year"}
    return kinds.get(template, "amount" if template.startswith(("{n:", "{number}")) else "thing")


def _facet(key: str, entry: dict[str, Any]) -> Facet:
    return Facet(
        key=key,
        kind=entry.get("kind") or _kind(entry["value"]),
        value=_value(entry["value"]),
        questions={split: [text.format for text in entry[split]] for split in SPLITS},
        short=dict(zip(SPLITS, entry["short"], strict=True)),
        says=[text.format for text in entry["says"]],
        answers={
            "train": [entry["answer"][0].format],
            "dev": [text.format for text in _read("prose")["dev"]["answer"]],
            "test": [entry["answer"][1].format],
        },
        near=entry["near"].format,
    )


@cache
def facets(kind: str) -> tuple[Facet, ...]:
    """The twenty facts of a type of entity."""
    entries = dict(_read(kind))
    if kind not in ("person", "species"):
        entries |= _read("common")
    return tuple(_facet(key, entry) for key, entry in entries.items())


@cache
def prose() -> Prose:
    raw = _read("prose")
    talk = {
        split: {name: [text.format for text in texts] for name, texts in raw[split].items() if name != "answer"}
        for split in SPLITS
    }
    return Prose(
        scenes=[text.format for text in raw["scenes"]],
        scenes_naming=[text.format for text in raw["scenes"] if "{o}" in text],
        links=[text.format for text in raw["links"]],
        fillers=raw["fillers"],
        echo={kind: [text.format for text in texts] for kind, texts in raw["echo"].items()},
        talk=talk,
    )
