"""The passages of the testbed: what they state, what they depend on, and that they are streamed."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import re
import subprocess
import sys
import tracemalloc

import pyterrier as pt
import pytest

from pt_convsearch.datasets import dataset, names
from pt_convsearch.datasets.testbed.language import FACETS, capitalised, possessive
from pt_convsearch.datasets.testbed.world import Region

SMALL = {"entities": 30, "conversations": 12}


def corpus(**options):
    return list(dataset("testbed", **{**SMALL, **options}).get_corpus_iter())


def digest(data):
    whole = hashlib.sha256()
    for passage in data.get_corpus_iter():
        whole.update(repr(sorted(passage.items())).encode())
    whole.update(data.get_topics().to_json().encode())
    whole.update(data.get_qrels().to_json().encode())
    return whole.hexdigest()


def test_same_in_every_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_testbed_corpus import digest, SMALL\n"
        "from pt_convsearch.datasets import dataset; print(digest(dataset('testbed', seed=5, **SMALL)))"
    )
    here = os.path.dirname(__file__)  # noqa: PTH120
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code, here], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == digest(dataset("testbed", seed=5, **SMALL))


def test_seeds_give_other_worlds():
    one, two = ({passage["text"] for passage in corpus(seed=seed)} for seed in (1, 2))
    assert not one & two


def test_corpus_depends_on_the_seed_and_the_corpus_dials_only():
    plain = corpus()
    assert corpus(shortcut=0, ambiguity=0, switch_rate=0.9, train_switch_rate=0.5, turns=9) == plain
    assert list(dataset("testbed/train", entities=30).get_corpus_iter()) == plain
    assert corpus(entities=40)[: len(plain)] == plain


def test_corpus_dials_leave_the_facts_as_they_are():
    def values(**dials):
        shape = dataset("testbed", **dials)._shape
        return [(entity.name, entity.values, entity.scenes) for entity in Region(shape, 4).entities]

    assert values() == values(near_duplicates=2, golds=3) == values(near_duplicates=0, golds=1)


def test_size():
    data = dataset("testbed", entities=30, near_duplicates=0.5, golds=1.25)
    passages = list(data.get_corpus_iter())
    # 20 facts, 10 nearly stated, 5 stated again
    assert len(passages) == data.num_passages == 30 * 35
    assert len({passage["docno"] for passage in passages}) == len(passages)
    assert all(re.fullmatch(r"e\d{7}_\d{2}", passage["docno"]) for passage in passages)
    assert dataset("testbed", passages=1000, near_duplicates=0, golds=1).num_passages == 1000
    assert dataset("testbed", passages=1001, near_duplicates=0, golds=1).num_passages == 1200
    assert dataset("testbed", passages=1).num_entities == 30  # a region for each split
    assert dataset("testbed").num_passages <= 6000


def test_passages_are_about_forty_words():
    lengths = [len(passage["text"].split()) for passage in corpus()]
    assert 38 < sum(lengths) / len(lengths) < 50
    assert min(lengths) > 15
    assert max(lengths) < 90


def sentences(text):
    return [sentence.rstrip(".") for sentence in re.split(r"(?<=\.) ", text)]


@pytest.mark.parametrize("dials", [{}, {"golds": 2.5, "near_duplicates": 1.5}], ids=["default", "many"])
def test_a_fact_is_stated_by_its_golds_and_by_nothing_else(dials):
    data = dataset("testbed", entities=30, **dials)
    stated = {}
    golds = {}
    for number in range(3):
        for entity in Region(data._shape, number).entities:
            for position, facet in enumerate(entity.facets):
                fact = (entity.number, position)
                golds[fact] = set(entity.golds(position))
                for mention in (entity.name, entity.alias, entity.descriptor):
                    for says in facet.says:
                        text = says(n=mention, ns=possessive(mention), v=entity.values[position])
                        stated.setdefault(capitalised(text).rstrip("."), set()).add(fact)
    found = {fact: set() for fact in golds}
    for passage in data.get_corpus_iter():
        about = int(passage["docno"][1:8])
        for sentence in sentences(passage["text"]):
            for fact in stated.get(sentence, ()):
                # "the town" of one passage is not the town of another: its entity is the one that the passage is about
                if fact[0] == about:
                    found[fact].add(passage["docno"])
    assert found == golds
    counts = [len(docnos) for docnos in golds.values()]
    assert sum(counts) / len(counts) == pytest.approx(data.golds)


def test_a_value_returns_in_the_next_passage_and_nowhere_else_about_its_entity():
    data = dataset("testbed", entities=30)
    texts = {passage["docno"]: passage["text"].lower() for passage in data.get_corpus_iter()}
    for number in range(3):
        for entity in Region(data._shape, number).entities:
            of = [*range(FACETS), *entity.restated, *(position for position, _ in entity.near)]
            for position, value in enumerate(entity.values):
                word = re.compile(rf"(?<!\w){re.escape(value.lower())}(?!\w)")
                holding = {of[j] for j in range(len(of)) if word.search(texts[entity.docno(j)])}
                # a near duplicate of the fact itself holds another value
                assert holding == {position, (position + 1) % FACETS}
                first = FACETS + len(entity.restated)
                nearly = [entity.docno(first + j) for j, (at, _) in enumerate(entity.near) if at == position]
                assert not any(word.search(texts[docno]) for docno in nearly)


def test_every_passage_names_its_entity():
    data = dataset("testbed", entities=30)
    texts = {passage["docno"]: passage["text"].lower() for passage in data.get_corpus_iter()}
    full = 0
    for number in range(3):
        for entity in Region(data._shape, number).entities:
            for j in range(data._shape.passages):
                text = texts[entity.docno(j)]
                assert entity.name.lower() in text or entity.alias.lower() in text
                full += entity.name.lower() in text
    assert 0.7 < full / len(texts) < 1  # some by an alias only


def test_names_in_a_region_are_alike_but_not_the_same():
    data = dataset("testbed", entities=500, near_duplicates=0, golds=1)
    called = [entity.name for number in range(50) for entity in Region(data._shape, number).entities]
    assert len(set(called)) == len(called) == 500
    for number in range(50):
        people = [entity.name for entity in Region(data._shape, number).entities if entity.kind == "person"]
        assert people[0].split()[-1] == people[1].split()[-1]


def test_a_million_passages_are_streamed():
    data = dataset("testbed", passages=1_000_000, conversations=10)
    assert data.num_passages >= 1_000_000
    peaks = []
    for count in (1_000, 6_000):
        tracemalloc.start()
        seen = sum(1 for _ in itertools.islice(data.get_corpus_iter(), count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert seen == count
    assert peaks[1] < 1.5 * peaks[0] + 100_000
    topics, qrels = data.get_topics(), data.get_qrels()
    numbers = [int(docno[1:8]) for docno in qrels["docno"]]
    assert max(numbers) > 10_000  # far into the corpus
    # a passage is the same whether the stream came by or not
    region = numbers[0] // 10
    passages = {passage["docno"]: passage["text"] for passage in Region(data._shape, region).passages()}
    assert qrels["docno"][0] in passages
    assert topics["conversation_id"].nunique() == 10


def test_size_changes_no_passage():
    small = list(itertools.islice(dataset("testbed").get_corpus_iter(), 500))
    assert list(itertools.islice(dataset("testbed", passages=2_000_000).get_corpus_iter(), 500)) == small


def test_progress_changes_nothing(capsys):
    data = dataset("testbed", entities=30)
    assert list(data.get_corpus_iter(verbose=True)) == list(data.get_corpus_iter())
    assert "testbed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shortcut": 1.1}, ValueError, "shortcut=1.1 is out of range: it goes from 0 to 1"),
        ({"switch_rate": -0.1}, ValueError, "switch_rate=-0.1 is out of range: it goes from 0 to 1"),
        ({"train_switch_rate": 2}, ValueError, "train_switch_rate=2 is out of range"),
        ({"ambiguity": float("nan")}, ValueError, "ambiguity=nan is out of range"),
        ({"ambiguity": "high"}, TypeError, "ambiguity is a number from 0 to 1, not 'high'"),
        ({"near_duplicates": 5}, ValueError, "near_duplicates=5 is out of range: it goes from 0 to 4"),
        ({"golds": 0}, ValueError, "golds=0 is out of range: it goes from 1 to 4"),
        ({"turns": 0}, ValueError, "turns=0 is out of range: it goes from 1 to 16"),
        ({"turns": (6, 2)}, ValueError, "the fewest come first"),
        ({"turns": (1, 2, 3)}, ValueError, "fewest, most"),
        ({"seed": -1}, ValueError, "seed=-1 is out of range"),
        ({"seed": 1.0}, TypeError, "seed is a whole number"),
        ({"conversations": 0}, ValueError, "conversations=0 is out of range"),
        ({"conversations": True}, TypeError, "conversations is a whole number"),
        ({"passages": 4_000_001}, ValueError, "passages=4000001 is out of range: it goes from 1 to 4,000,000"),
        ({"entities": 300_000}, ValueError, "entities=300000 is out of range"),
        ({"entities": 30, "passages": 900}, ValueError, "not as both"),
        ({"switchrate": 0.1}, TypeError, "switchrate"),
    ],
)
def test_a_dial_out_of_range_is_named(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        dataset("testbed", **options)


def test_names_and_identity():
    assert {"testbed", "testbed/train", "testbed/dev"} <= set(names())
    data = pt.get_dataset("convsearch:testbed")
    assert repr(data) == "cs.dataset('testbed')"
    assert repr(dataset("testbed/dev", seed=2, shortcut=0.5)) == "cs.dataset('testbed/dev', shortcut=0.5, seed=2)"
    assert dataset("testbed/test", **SMALL).get_topics().equals(dataset("testbed", **SMALL).get_topics())
    with pytest.raises(KeyError, match="train, dev and test"):
        dataset("testbed/validation")
    with pytest.raises(ValueError, match="no variant 'text'"):
        data.get_topics("text")
    again = pickle.loads(pickle.dumps(dataset("testbed", seed=3, **SMALL)))
    assert digest(again) == digest(dataset("testbed", seed=3, **SMALL))
