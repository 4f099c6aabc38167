"""Random negatives, mixes and draws."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.negatives.sampling import draw, order, uniform

TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["x", "", "y"], "tags": [["a"], [], ["b"]]})
DOCNOS = [f"d{number}" for number in range(50)]


class Fixed(pt.Transformer):
    """Finds the same passages for every question."""

    def __init__(self, *docnos: str) -> None:
        self.docnos = docnos

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        rows = topics.loc[topics.index.repeat(len(self.docnos))].reset_index(drop=True)
        places = np.tile(np.arange(len(self.docnos)), len(topics))
        return rows.assign(docno=[self.docnos[place] for place in places], score=-places.astype(float), rank=places)

    def __repr__(self) -> str:
        return f"Fixed{self.docnos}"


def test_docnos_that_a_join_made_numbers() -> None:
    corpus = pd.DataFrame({"docno": [1.0, 2.0], "text": ["a", "b"]})
    assert sorted(cs.RandomNegatives(corpus)(TOPICS[:1])["docno"]) == ["1", "2"]


def test_random_negatives_depend_on_seed_and_qid_alone() -> None:
    stage = cs.RandomNegatives(DOCNOS, num_results=5, seed=1)
    together = stage(TOPICS)
    assert together["qid"].tolist() == ["1"] * 5 + ["3"] * 5  # an empty query finds nothing
    assert together["tags"].tolist() == [["a"]] * 5 + [["b"]] * 5
    assert together["rank"].tolist() == [0, 1, 2, 3, 4] * 2
    assert together["score"].is_monotonic_decreasing or together["score"].tolist() == [5.0, 4.0, 3.0, 2.0, 1.0] * 2
    alone = pd.concat([stage(TOPICS.iloc[[2]]), stage(TOPICS.iloc[[0]])]).sort_values(
        ["qid", "rank"], ignore_index=True
    )
    pd.testing.assert_frame_equal(together, alone)
    assert together["docno"].groupby(together["qid"]).nunique().tolist() == [5, 5]
    assert cs.RandomNegatives(DOCNOS, num_results=5, seed=2)(TOPICS)["docno"].tolist() != together["docno"].tolist()
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage
    pd.testing.assert_frame_equal(again(TOPICS), together)


def test_random_negatives_of_a_small_or_empty_collection() -> None:
    assert len(cs.RandomNegatives(["a", "b"], num_results=10)(TOPICS)) == 4
    with pytest.raises(ValueError, match="empty"):
        cs.RandomNegatives([])
    empty = cs.RandomNegatives(DOCNOS)(TOPICS.iloc[:0])
    assert {"qid", "query", "docno", "score", "rank"} <= set(empty.columns)
    assert empty["score"].dtype == np.float64


def test_a_mix_shares_the_draws_by_weight() -> None:
    mix = cs.Mix({Fixed("a", "b", "c"): 3, Fixed("c", "d"): 1})
    found = mix(TOPICS.iloc[:1])
    # 3/3 for a, b and c; 1/2 for c and d: c has both
    assert dict(zip(found["docno"], found["weight"], strict=True)) == {"a": 1.0, "b": 1.0, "c": 1.5, "d": 0.5}
    # c stands first in the second list, and after that list's rank 0 comes rank 1 of both
    assert found["docno"].tolist() == ["a", "c", "b", "d"]
    assert found["source"].tolist() == ["0", "1+0", "0", "1"]


def test_a_mix_of_nothing_and_of_one_empty_miner() -> None:
    assert len(cs.Mix([Fixed(), Fixed()])(TOPICS)) == 0
    found = cs.Mix([Fixed(), Fixed("a", "b")], names=["none", "two"])(TOPICS.iloc[:1])
    assert found["docno"].tolist() == ["a", "b"]
    assert found["source"].tolist() == ["two", "two"]
    for wrong in ({}, {Fixed("a"): 0}):
        with pytest.raises(ValueError):
            cs.Mix(wrong)
    with pytest.raises(ValueError, match="names"):
        cs.Mix([Fixed("a")], names=["x", "y"])


@given(st.integers(0, 2**63), st.integers(0, 10**6), st.integers(0, 10**7), st.integers(0, 60), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_draws_are_without_repetition_and_never_more_than_there_are(
    seed: int, epoch: int, row: int, size: int, count: int
) -> None:
    def places_of(count: int) -> list[int]:
        return draw(seed, epoch, np.array([row]), np.array([size]), count)[0].tolist()

    places = places_of(count)
    assert len(places) == min(size, count)
    assert len(set(places)) == len(places)
    assert all(0 <= place < size for place in places)
    assert places_of(count) == places
    assert places_of(count + 5)[: len(places)] == places  # drawing more keeps what was drawn
    # who else is in the batch, and how large their pools are, changes nothing
    others = draw(seed, epoch, np.array([row + 1, row, row + 2]), np.array([size + 9, size, 0]), count)
    assert others[1].tolist() == places


def test_draws_are_even_and_follow_weights() -> None:
    rows, five, two = np.arange(50), np.full(50, 5), np.full(50, 2)
    first = np.concatenate([place for epoch in range(40) for place in draw(1, epoch, rows, five, 1)])
    shares = np.bincount(first, minlength=5) / len(first)
    assert np.abs(shares - 0.2).max() < 0.04  # 4.5 standard errors of 2,000 draws
    weights = np.tile([3.0, 1.0], (50, 1))
    heavy = np.mean([place[0] == 0 for epoch in range(40) for place in draw(1, epoch, rows, two, 1, weights)])
    assert abs(heavy - 0.75) < 0.04
    # seed, epoch and row each change the draw
    keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
    drawn = {tuple(draw(seed, epoch, np.array([row]), np.array([50]), 5)[0]) for seed, epoch, row in keys}
    assert len(drawn) == 4


def test_uniform_numbers_are_uniform() -> None:
    values = np.concatenate([uniform(1, epoch, np.array([3]), np.arange(1000))[0] for epoch in range(10)])
    assert values.min() > 0
    assert values.max() < 1
    assert np.abs(np.histogram(values, bins=10, range=(0, 1))[0] / 10_000 - 0.1).max() < 0.015


def test_orders_are_permutations_that_change_with_the_epoch() -> None:
    assert sorted(order(1, 0, 20).tolist()) == list(range(20))
    assert order(1, 0, 20).tolist() == order(1, 0, 20).tolist()
    assert order(1, 0, 20).tolist() != order(1, 1, 20).tolist() != order(2, 1, 20).tolist()
