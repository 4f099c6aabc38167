"""Refusals and rare branches of mining, each by the smallest input that reaches it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.negatives._texts import as_store

from .test_miners import Fixed
from .test_training_pairs import CORPUS, QRELS, TOPICS

FOUND = pd.DataFrame(
    {"qid": "1", "query": "x", "docno": ["a", "b"], "text": ["one", "two"], "rank": [0, 1], "score": [2.0, 1.0]}
)


SHORT = pt.apply.generic(lambda frame: frame.head(3))


def scored(values: list[float]) -> pt.Transformer:
    return pt.apply.generic(lambda frame: frame.head(len(values)).assign(score=values))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: cs.RandomNegatives(CORPUS, num_results=0), "num_results=0"),
        (lambda: cs.DropNearDuplicates(QRELS, threshold=0), "threshold=0: a likeness lies in"),
        (lambda: cs.DropNearDuplicates(QRELS, ngram=0), "ngram=0: an n-gram has at least one word"),
        (lambda: cs.annotation_sheet({}, "none.csv"), "no sampler was given"),
        (lambda: cs.CrossEncoderDenoise(scored([1.0, float("nan")]), threshold=1)(FOUND), "gives NaN for docno 'b'"),
        (lambda: cs.CrossEncoderDenoise(scored([1.0]), threshold=1)(FOUND), "lost 1 rows, e.g. qid '1', docno 'b'"),
        (lambda: cs.training_pairs(TOPICS, QRELS, CORPUS, form=SHORT, negatives=Fixed("c")), "form lost 1 questions"),
    ],
)
def test_refusals(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_what_stages_say_of_themselves(tmp_path: Path) -> None:
    assert repr(cs.DropAnswerContaining({"1": "x"}, min_words=2)) == "DropAnswerContaining(answers[1], min_words=2)"
    one, other = Fixed("c"), Fixed("d")
    assert cs.Mix({one: 1.0, other: 2.0}).subtransformers() == {"miners": [one, other]}
    pairs = cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=Fixed("c", "d"), out=tmp_path / "p")
    assert repr(pairs) == f"TrainingPairs({str(tmp_path / 'p')!r})"
    assert pairs.can_mask_history()
    with pytest.raises(ValueError, match="was opened from disk: call cs.training_pairs"):
        cs.TrainingPairs(tmp_path / "p").mined_again(Fixed("d"), out=tmp_path / "q")


def test_docnos_of_a_frame_are_drawn_from() -> None:
    """All of a collection that is no larger than what is asked for, ids as text."""
    miner = cs.RandomNegatives(pd.DataFrame({"docno": [1, 2, 3], "text": ["x", "y", "z"]}), num_results=9)
    assert sorted(miner(pd.DataFrame({"qid": ["1"], "query": ["q"]})).docno) == ["1", "2", "3"]


def test_a_small_collection_gives_every_text_once() -> None:
    """Five distinct texts among fifty passages, ten of them asked for: four other than the gold, no more."""
    corpus = [{"docno": f"d{at}", "text": f"text {at // 46 * (at - 45)}"} for at in range(50)]  # 46 of one text
    topics = pd.DataFrame({"qid": ["1"], "query": ["q"]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d0"], "label": [1]})
    found = cs.candidate_lists(topics, qrels, corpus, num_candidates=5)
    assert sorted(found.docno) == ["d0", "d46", "d47", "d48", "d49"]
    with pytest.raises(ValueError, match="num_candidates=6, but the collection has too few distinct texts"):
        cs.candidate_lists(topics, qrels, corpus, num_candidates=6)


def test_a_loader_that_refuses_what_it_does_not_know_is_asked_by_halves() -> None:
    asked: list[int] = []

    def load(frame: pd.DataFrame) -> pd.DataFrame:
        asked.append(len(frame))
        known = {"a": "one", "b": "two", "c": "three"}
        return frame.assign(text=[known[docno] for docno in frame["docno"]])

    store = as_store(pt.apply.generic(load))
    rows = store.rows(["a", "b", "gone", "c"])
    assert rows.tolist() == [0, 1, -1, 3]
    assert store.texts(rows[rows >= 0]) == ["one", "two", "three"]
    assert asked == [4, 2, 2, 1, 1]


def test_what_a_loader_says_of_docnos_it_refuses_is_told(caplog: pytest.LogCaptureFixture) -> None:
    calls = iter(range(100))

    def load(frame: pd.DataFrame) -> pd.DataFrame:
        if next(calls) > until:
            raise ValueError("token expired")
        known = {"a": "one", "b": "two", "c": "three"}
        return frame.assign(text=[known[docno] for docno in frame["docno"]])

    until = 99
    store = as_store(pt.apply.generic(load))
    with caplog.at_level(logging.WARNING):
        assert store.rows(["a", "gone", "lost", "b"]).tolist() == [0, -1, -1, 3]
    assert len(caplog.records) == 1
    assert "refused 2 of 4 docnos, which count as without text (first 'gone': KeyError: 'gone')" in caplog.text
    # nothing but docnos that are new to it, while it still gives what it gave: as before
    assert store.rows(["what", "ever", "c"]).tolist() == [-1, -1, 6]
    assert store.rows(["u", "v"]).tolist() == [-1, -1]
    until = 0
    refused = r"the text loader .* refused all of the 2 docnos .*\('x', 'y'\): ValueError: token expired; .* leave it"
    with pytest.raises(ValueError, match=refused) as caught:
        store.rows(["x", "y"])
    assert str(caught.value.__cause__) == "token expired"
    with pytest.raises(ValueError, match=refused):
        as_store(pt.apply.generic(load)).rows(["x", "y"])


def test_what_is_equal_has_one_digest() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert digest(ring) == digest(ring)  # and ends
    assert digest(pd.Series([1, 2])) == digest(pd.Index([1, 2])) == digest([1, 2]) != digest([2, 1])

    def closing() -> Any:
        def over() -> Any:
            return later

        found = digest(over)  # what it closes over is not there yet
        later = 3
        return found, digest(over)

    assert len(set(closing())) == 2


def test_a_killed_mining_says_what_it_found_and_mines_what_is_damaged_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(frame: pd.DataFrame) -> pd.DataFrame:
        # the control questions come first, several in one call; only a batch of the mining is one question
        if list(frame["qid"]) == ["2_1"] and not (tmp_path / "again").exists():
            raise RuntimeError("killed")
        return Fixed("c", "d").transform(frame)

    given = {"form": cs.X, "negatives": pt.apply.generic(failing), "batch_size": 1, "out": tmp_path / "p"}
    undisturbed = {**given, "negatives": Fixed("c", "d"), "out": tmp_path / "whole"}
    whole = cs.training_pairs(TOPICS, QRELS, CORPUS, **undisturbed)
    with pytest.raises(RuntimeError, match="killed"):
        cs.training_pairs(TOPICS, QRELS, CORPUS, **given)
    parts = sorted(tmp_path.rglob("*.parquet"))
    parts = [path for path in parts if "whole" not in str(path)]
    assert parts
    parts[0].write_bytes(parts[0].read_bytes()[:-20])
    (tmp_path / "again").touch()
    with caplog.at_level(logging.INFO):
        pairs = cs.training_pairs(TOPICS, QRELS, CORPUS, **given)
    assert f"going on after {len(parts)} finished batches" in caplog.text
    assert "is damaged" in caplog.text
    assert "mining this batch again" in caplog.text
    assert [list(pairs.sample(at, num_negatives=2, seed=1).negatives) for at in range(len(pairs))] == [
        list(whole.sample(at, num_negatives=2, seed=1).negatives) for at in range(len(whole))
    ]
    assert np.array_equal(pairs.passages()["docno"], whole.passages()["docno"])
