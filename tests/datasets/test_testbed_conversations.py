"""The conversations of the testbed: history, labels, judgments, and what each dial does to them."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest

from pt_convsearch.datasets import dataset
from pt_convsearch.datasets.testbed.conversations import _REMOTE
from pt_convsearch.datasets.testbed.language import FACETS, SPLITS
from pt_convsearch.datasets.testbed.world import Region

COLUMNS = ["qid", "query", "qhistory", "qrewrite", "qtype", "conversation_id", "turn_number", "answer"]


@pytest.fixture(scope="module")
def data():
    return dataset("testbed", entities=120, conversations=150, seed=4)


@pytest.fixture(scope="module")
def topics(data):
    return data.get_topics()


@pytest.fixture(scope="module")
def golds(data):
    return data.get_qrels().groupby("qid")["docno"].apply(list).to_dict()


@cache
def region(shape, number):
    return Region(shape, number)


def entity_of(data, docno):
    number = int(docno[1:8])
    return region(data._shape, number // 10).entities[number % 10]


def moves(topics, golds):
    """(row, entity and position before, entity and position now) of every later turn."""
    facts = [(int(golds[qid][0][1:8]), int(golds[qid][0][9:])) for qid in topics["qid"]]
    for row, (before, now) in zip(list(topics.itertuples())[1:], itertools.pairwise(facts), strict=True):
        if row.turn_number > 1:
            yield row, before, now


def test_topics_frame(topics):
    assert list(topics.columns) == COLUMNS
    assert topics["qid"].is_unique
    assert topics["conversation_id"].nunique() == 150
    assert (topics["qid"] == topics["conversation_id"] + "_" + topics["turn_number"].astype(str)).all()
    assert set(topics["qtype"]) == {"first", "switch", "no-switch"}
    assert ((topics["turn_number"] == 1) == (topics["qtype"] == "first")).all()
    for column in ("query", "qrewrite", "answer"):
        assert (topics[column].str.len() > 5).all()
        assert not topics[column].str.contains("[{}]|  ").any()
        assert topics[column].str[0].str.isupper().mean() > 0.99


@pytest.mark.filterwarnings("error")
def test_validates_as_topics(topics):
    from pt_convsearch import topics as room

    checked = room.validate(topics)
    assert checked["qid"].tolist() == topics["qid"].tolist()


def test_history_is_what_was_said_before(topics, golds):
    for _, turns in topics.groupby("conversation_id", sort=False):
        assert turns["turn_number"].tolist() == list(range(1, len(turns) + 1))
        said = []
        for row in turns.itertuples():
            assert row.qhistory == said
            assert not {row.query, row.answer} & {message["content"] for message in said}
            said = [
                *said,
                {"role": "user", "content": row.query},
                {"role": "assistant", "content": row.answer, "docno": golds[row.qid][0]},
            ]


def test_no_question_is_asked_twice(topics, golds):
    for _, turns in topics.groupby("conversation_id"):
        asked = [golds[qid][0] for qid in turns["qid"]]
        assert len(set(asked)) == len(asked)


def test_history_of_one_row_is_not_that_of_another(topics):
    rows = topics.index[topics["turn_number"] > 1]
    topics.loc[rows[0], "qhistory"].append({"role": "user", "content": "more"})
    try:
        assert all(message["content"] != "more" for row in rows[1:] for message in topics.loc[row, "qhistory"])
    finally:
        topics.loc[rows[0], "qhistory"].pop()


@pytest.mark.parametrize("split", SPLITS)
def test_gold_passages_state_the_answer(split):
    data = dataset(f"testbed/{split}", entities=60, conversations=60, golds=1.5)
    texts = {passage["docno"]: passage["text"] for passage in data.get_corpus_iter()}
    topics, qrels = data.get_topics(), data.get_qrels()
    assert list(qrels.columns) == ["qid", "docno", "label"]
    assert set(qrels["qid"]) == set(topics["qid"])
    assert not qrels.duplicated(["qid", "docno"]).any()
    assert (qrels["label"] == 1).all()
    answers = topics.set_index("qid")["answer"]
    several = 0
    for qid, docnos in qrels.groupby("qid")["docno"]:
        entity = entity_of(data, docnos.iloc[0])
        value = entity.values[int(docnos.iloc[0][9:])]
        assert value.lower() in answers[qid].lower()
        several += len(docnos) > 1
        for docno in docnos:
            assert entity_of(data, docno).name == entity.name
            assert value.lower() in texts[docno].lower()
    assert several / topics.shape[0] == pytest.approx(0.5, abs=0.12)


def test_rewrites_stand_alone(data, topics, golds):
    for row in topics.itertuples():
        assert entity_of(data, golds[row.qid][0]).name.lower() in row.qrewrite.lower()
        assert row.qrewrite.endswith("?")


def test_labels_are_true_by_construction(data, topics, golds):
    seen = {"no-switch": 0, "remote": 0, "bridged": 0, "elsewhere": 0}
    for row, (entity, position), (new_entity, new_position) in moves(topics, golds):
        places = (new_position - position) % FACETS
        if row.qtype == "no-switch":
            assert entity == new_entity
            assert places in (1, 2, FACETS - 1, FACETS - 2)
            here = entity_of(data, golds[row.qid][0])
            assert set(here.scenes_of(position)) & set(here.scenes_of(new_position))
            seen["no-switch"] += 1
        elif entity == new_entity:
            assert _REMOTE <= places <= FACETS - _REMOTE
            seen["remote"] += 1
        else:
            seen["bridged" if entity // 10 == new_entity // 10 else "elsewhere"] += 1
    assert all(seen.values()), seen


def test_a_switch_to_another_entity_names_it(data, topics, golds):
    for row, (entity, _), (new_entity, _) in moves(topics, golds):
        if entity != new_entity:
            assert entity_of(data, golds[row.qid][0]).name.lower() in row.query.lower()


def test_bridging_passages_name_the_entity_that_is_left(data, topics, golds):
    texts = {passage["docno"]: passage["text"] for passage in data.get_corpus_iter()}
    bridged = [
        (row, entity)
        for row, (entity, _), (new_entity, _) in moves(topics, golds)
        if row.qtype == "switch" and entity != new_entity and entity // 10 == new_entity // 10
    ]
    named = [entity_of(data, f"e{entity:07d}_00").name in texts[golds[row.qid][0]] for row, entity in bridged]
    # the rest went "elsewhere" and happened to stay in the region
    assert sum(named) / len(named) > 0.8


def test_splits_share_no_entity_and_no_phrasing():
    entities, questions, answers = {}, {}, {}
    for split in SPLITS:
        data = dataset(f"testbed/{split}", entities=120, conversations=150, ambiguity=0)
        topics, qrels = data.get_topics(), data.get_qrels()
        entities[split] = {docno[:8] for docno in qrels["docno"]}
        first = qrels.drop_duplicates("qid").set_index("qid")["docno"]
        names = [entity_of(data, first[qid]) for qid in topics["qid"]]
        questions[split] = {
            rewrite.lower().replace(entity.name.lower(), "X")
            for rewrite, entity in zip(topics["qrewrite"], names, strict=True)
        }
        answers[split] = set()
        for answer, entity, qid in zip(topics["answer"], names, topics["qid"], strict=True):
            text = re.split(r"(?<=\.) (?=[A-Z])", answer)[0].lower()
            for part in (entity.values[int(first[qid][9:])], entity.name, entity.alias):
                text = text.replace(part.lower(), "X")
            answers[split].add(text)
    for one, two in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert not entities[one] & entities[two]
        assert not questions[one] & questions[two]
        assert not answers[one] & answers[two]
    assert len(questions["test"]) > 150
    assert len(questions["train"]) > 150


def test_qids_of_splits_do_not_collide():
    qids = [set(dataset(f"testbed/{split}", entities=30, conversations=20).get_topics()["qid"]) for split in SPLITS]
    assert len(set.union(*qids)) == sum(map(len, qids))


def rates(**dials):
    data = dataset("testbed", **{"entities": 120, "conversations": 150, **dials})
    topics, qrels = data.get_topics(), data.get_qrels()
    golds = qrels.groupby("qid")["docno"].apply(list).to_dict()
    later = list(moves(topics, golds))
    near = [((now[1] - before[1]) % FACETS == 1, row, now) for row, before, now in later if row.qtype == "no-switch"]
    names = [entity_of(data, golds[row.qid][0]).name for _, row, _ in near]
    return {
        "switch": sum(row.qtype == "switch" for row, _, _ in later) / len(later),
        "repeats": sum(ahead for ahead, _, _ in near) / len(near) if near else None,
        "named": sum(name in row.query for (_, row, _), name in zip(near, names, strict=True)) / max(1, len(near)),
    }


@pytest.mark.parametrize("rate", [0, 0.3, 1])
def test_switch_rate(rate):
    assert rates(switch_rate=rate)["switch"] == pytest.approx(rate, abs=0.06)


def test_switch_rates_of_training_and_test_are_apart():
    options = {"entities": 120, "conversations": 150, "switch_rate": 0.9, "train_switch_rate": 0}
    for split, rate in (("train", 0), ("dev", 0.9), ("test", 0.9)):
        topics = dataset(f"testbed/{split}", **options).get_topics()
        later = topics[topics["turn_number"] > 1]
        assert (later["qtype"] == "switch").mean() == pytest.approx(rate, abs=0.06)


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_shortcut_is_the_share_of_golds_that_repeat_the_answer(share):
    assert rates(shortcut=share)["repeats"] == pytest.approx(share, abs=0.07)


def test_repeating_passages_hold_the_value_of_the_answer_before():
    data = dataset("testbed", entities=60, conversations=60, shortcut=1, switch_rate=0)
    texts = {passage["docno"]: passage["text"].lower() for passage in data.get_corpus_iter()}
    topics, qrels = data.get_topics(), data.get_qrels()
    golds = qrels.groupby("qid")["docno"].apply(list).to_dict()
    for row, (_, position), _ in moves(topics, golds):
        value = entity_of(data, golds[row.qid][0]).values[position].lower()
        assert value in row.qhistory[-1]["content"].lower()
        assert all(value in texts[docno] for docno in golds[row.qid])


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_ambiguity_is_the_share_of_turns_that_do_not_name_the_entity(share):
    assert rates(ambiguity=share)["named"] == pytest.approx(1 - share, abs=0.07)


@pytest.mark.parametrize(("turns", "fewest", "most"), [(1, 1, 1), (16, 16, 16), ((2, 5), 2, 5)])
def test_turns(turns, fewest, most):
    topics = dataset("testbed", entities=120, conversations=40, turns=turns).get_topics()
    sizes = topics.groupby("conversation_id").size()
    assert (sizes.min(), sizes.max()) == (fewest, most)


def test_question_types(data, topics):
    assert data.get_question_types() == dict(zip(topics["qid"], topics["qtype"], strict=True))
