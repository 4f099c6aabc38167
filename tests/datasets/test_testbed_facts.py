"""The facts and phrasing that the testbed is made from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pt_convsearch.datasets import testbed
from pt_convsearch.datasets.testbed.draws import draws, pick, shuffled
from pt_convsearch.datasets.testbed.language import FACETS, SPLITS, TYPES, facets, place, surname

FOLDER = Path(testbed.__file__).parent / "facts"
FILES = ("person", "species", "common", "town", "work", "company", "festival", "product", "building")
ENTRIES = {
    (name, key): entry
    for name in FILES
    for key, entry in tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")).items()
}
PROSE = tomllib.loads((FOLDER / "prose.toml").read_text(encoding="utf-8"))
ENTITY = {"x", "xo", "xs", "xat", "xin"}


def slots(text):
    return set(re.findall(r"\{(\w+)\}", text))


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_twenty_facts(kind):
    assert len(facets(kind)) == FACETS == 20
    assert len({facet.key for facet in facets(kind)}) == 20


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=["-".join(name) for name in ENTRIES])
def test_questions_name_the_entity_and_statements_the_value(entry):
    for split in SPLITS:
        for question in entry[split]:
            assert slots(question) & ENTITY
            assert slots(question) <= ENTITY
            assert question.endswith("?")
            assert question[0].isupper()
    assert len(entry["says"]) == len(set(entry["says"])) == 3
    for sentence in [*entry["says"], *entry["answer"], entry["near"]]:
        assert "v" in slots(sentence)
        assert slots(sentence) <= {"n", "ns", "v"}
        assert sentence.endswith(".")
    for sentence in [*entry["says"], entry["near"]]:
        assert slots(sentence) & {"n", "ns"}
    assert entry["near"] not in entry["says"]


def test_no_question_belongs_to_two_splits():
    for entry in ENTRIES.values():
        questions = [question for split in SPLITS for question in entry[split]]
        assert len(questions) == len(set(questions))
        assert len(entry["short"]) == len(set(entry["short"])) == 3
        assert entry["answer"][0] != entry["answer"][1]
    for part in ("first", "follow", "switch", "ellipsis", "extra"):
        own = [text for split in SPLITS for text in set(PROSE[split][part]) - {"{Q}"}]
        assert len(own) == len(set(own))


def test_articles_fit_the_word_that_follows():
    for kind in TYPES:
        for facet in facets(kind):
            stream = draws(3, 4)
            for _ in range(60):
                value = facet.value(stream)
                assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiouAEIOU]", value), value
                assert "{" not in value


def test_names_do_not_repeat():
    # 48 x 24 x 36 syllables
    assert len({place(number) for number in range(48 * 24 * 36)}) == 48 * 24 * 36
    assert len({surname(number) for number in range(48 * 24 * 36)}) == 48 * 24 * 36


def test_draws_are_the_raw_output_of_pcg64():
    import numpy as np

    expected = np.random.PCG64(np.random.SeedSequence((7, 1, 2))).random_raw(600).tolist()
    stream = draws(7, 1, 2)
    assert [next(stream) for _ in range(600)] == expected
    assert pick(iter([7]), "abc") == "b"
    assert sorted(shuffled(draws(1), 20)) == list(range(20))
