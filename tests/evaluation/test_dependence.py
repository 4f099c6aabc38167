"""Shortcut dependence by hand, the swapped control, what is left out."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation.swapping import swapped


def test_agreement_without_judgments_by_hand(topics, systems) -> None:
    # c1_2: b a / a; c1_3: c b a / b a; c2_2: e d / d
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, by="qtype", rbo_p=0.5)
    assert found.left_out == {"first turns": 2, "no results": 0}
    assert found.per_query["qid"].tolist() == ["c1_2", "c1_3", "c2_2"]
    assert found.per_query["overlap"].tolist() == pytest.approx([1 / 2, 2 / 3, 1 / 2])
    # [b a] against [a]: X_1 = 0, X_2 = 1: 1/2 p^2 + 1/2 p^2 = 1/4
    # [c b a] against [b a], s = 2, l = 3: X_1 = 0, X_2 = 1, X_3 = 2, beyond s: X_2 (3-2)/(2 3) p^3
    three = 1 / 2 / 4 + 2 / 3 / 8 + 1 / 6 / 8 + ((2 - 1) / 3 + 1 / 2) / 8
    assert found.per_query["rbo"].tolist() == pytest.approx([1 / 4, three, 1 / 4])
    assert found.summary["group"].tolist() == ["All", "no-switch", "switch", "missing"]  # no row for first turns
    assert found.summary["n"].tolist() == [3, 1, 1, 1]
    assert found.summary["overlap@10"].tolist() == pytest.approx([5 / 9, 1 / 2, 2 / 3, 1 / 2])
    assert "retention" not in found.summary


def test_only_later_turns_are_searched(topics, systems, words) -> None:
    cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, control="swapped", batch_size=2)
    assert words.calls == [2, 1] * 3


def test_retention_by_hand(topics, qrels, systems) -> None:
    # judged later turns: c1_2 (gold b: X_t finds it at 1, the history not) and c1_3 (gold b: at 2, and at 1)
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels, by="qtype")
    row = found.summary.iloc[0]
    assert row[["n", "n judged", "R@10 full", "R@10 without", "retention"]].tolist() == [3, 2, 1.0, 0.5, 0.5]
    assert found.summary["retention"].tolist()[1:3] == [0.0, 1.0]
    assert math.isnan(found.summary["retention"].tolist()[3])  # not judged
    other = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels, measure=RR, k=1)
    assert other.summary[["RR full", "RR without", "retention"]].iloc[0].tolist() == pytest.approx([0.75, 0.5, 2 / 3])
    assert other.summary["overlap@1"].tolist() == [0.0]
    nothing = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels.assign(docno="zzz"))
    assert nothing.summary["R@10 full"].tolist() == [0.0]
    assert nothing.summary["retention"].isna().all()


def test_equal_systems_depend_wholly_and_a_blind_one_not_at_all(topics, systems, former, words) -> None:
    same = cs.shortcut_dependence(systems["X_t"], former("all") >> words(), topics)
    assert same.summary[["overlap@10", "RBO"]].iloc[0].tolist() == pytest.approx([1.0, 1.0])
    apart = cs.shortcut_dependence(systems["q_t"], systems["X_t\\q_t"], topics)
    assert apart.summary[["overlap@10", "RBO"]].iloc[0].tolist() == [0.0, 0.0]


def test_a_wrong_question_changes_what_reads_it(topics, qrels, systems) -> None:
    blind = cs.shortcut_dependence(systems["X_t\\q_t"], systems["X_t\\q_t"], topics, qrels, control="swapped")
    assert blind.summary["overlap@10 swapped"].tolist() == [1.0]
    assert blind.summary["R@10 swapped"].tolist() == blind.summary["R@10 full"].tolist() == [0.5]
    reads = cs.shortcut_dependence(systems["q_t"], systems["X_t\\q_t"], topics, qrels, control="swapped")
    assert reads.summary["overlap@10 swapped"].tolist() == [0.0]
    assert reads.summary["R@10 swapped"].tolist() == [0.0]
    assert reads.summary["R@10 full"].tolist() == [0.5]  # gold b: q_t is b at c1_2, c at c1_3


def test_the_wrong_question_is_averaged_over_the_same_questions(systems) -> None:
    """a_2 says nothing: [] / []; with the question of b_2 [y] is found, which is no 0 of the control."""
    silent = pd.DataFrame({"qid": ["a_2", "b_2"], "query": ["", "y"], "conversation_id": ["a", "b"]})
    silent["qhistory"] = [[{"role": "user", "content": text}] for text in ("", "x")]
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], silent, control="swapped", rbo_p=0.5)
    assert found.left_out == {"first turns": 0, "no results": 1}
    # b_2: [y x] against [x] of the history, and against [x] of the history with the empty question of a_2
    row = found.summary.iloc[0]
    assert row[["n", "overlap@10", "overlap@10 swapped", "RBO", "RBO swapped"]].tolist() == [1, 0.5, 0.5, 0.25, 0.25]


def test_frames_of_results(topics, systems) -> None:
    full, without = systems["X_t"](topics), systems["X_t\\q_t"](topics)
    found = cs.shortcut_dependence(full, without, topics)
    assert found.summary["n"].tolist() == [3]
    none = cs.shortcut_dependence(full.head(0), without.head(0), topics)
    assert none.left_out == {"first turns": 2, "no results": 3}
    assert none.summary["n"].tolist() == [0]
    assert none.summary["overlap@10"].isna().all()
    one = cs.shortcut_dependence(full, without.head(0), topics)
    assert one.summary[["n", "overlap@10", "RBO"]].iloc[0].tolist() == [3, 0.0, 0.0]
    with pytest.raises(ValueError, match="give the pipeline"):
        cs.shortcut_dependence(full, without, topics, control="swapped")


def test_histories_in_any_shape(topics, systems) -> None:
    pair = systems["X_t"](topics), systems["X_t\\q_t"](topics)
    plain = cs.shortcut_dependence(*pair, topics)
    for shape in (json.dumps, lambda history: json.dumps([message["content"] for message in history])):
        found = cs.shortcut_dependence(*pair, topics.assign(qhistory=topics["qhistory"].map(shape)))
        assert found.left_out == {"first turns": 2, "no results": 0}  # "[]" is a first turn
        pd.testing.assert_frame_equal(found.summary, plain.summary)
    strings = topics.assign(qhistory=[[], ["a"], ["a", "b"], [], ["d"]])
    assert len(cs.shortcut_dependence(systems["X_t"], systems["q_t"], strings, control="swapped").per_query) == 3
    with pytest.raises(ValueError, match="'c1_1' is None"):
        cs.shortcut_dependence(*pair, topics.assign(qhistory=[None, *topics["qhistory"][1:]]))


def test_a_label_column_may_be_called_anything(topics, qrels, systems) -> None:
    topics = topics.assign(overlap=list("ppqqr"), full=list("ppqqr"))
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels, by="overlap")
    assert found.summary["group"].tolist() == ["All", "p", "q", "r"]
    assert found.per_query["topics.overlap"].tolist() == ["p", "q", "r"]
    assert found.per_query["overlap"].dtype == "float64"


def test_what_cannot_be_compared(topics, systems) -> None:
    pair = systems["X_t"], systems["X_t\\q_t"]
    with pytest.raises(ValueError, match="qhistory"):
        cs.shortcut_dependence(*pair, topics.drop(columns="qhistory"))
    with pytest.raises(ValueError, match="first turns"):
        cs.shortcut_dependence(*pair, topics[topics["turn_number"] == 1])
    with pytest.raises(ValueError, match="control='shuffled'"):
        cs.shortcut_dependence(*pair, topics, control="shuffled")
    with pytest.raises(ValueError, match="one measure"):
        cs.shortcut_dependence(*pair, topics, measure="recall_5,10")
    with pytest.raises(ValueError, match="belong to one"):
        cs.shortcut_dependence(*pair, topics[topics["conversation_id"] == "c1"], control="swapped")


def test_how_it_reads(topics, qrels, systems) -> None:
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels, by="qtype", control="swapped")
    text = repr(found)
    assert "2 first turns left out" in text
    assert "overlap@10" in text
    assert "–" in text  # the group that is not judged
    assert "<table" in found._repr_html_()
    long = found.long()
    assert long.columns.tolist() == ["group", "measure", "value", "n"]
    row = long[(long["group"] == "All") & (long["measure"] == "retention")].iloc[0]
    assert row[["value", "n"]].tolist() == [0.5, 2]
    row = long[(long["group"] == "All") & (long["measure"] == "RBO")].iloc[0]
    assert row["n"] == 3
    assert found.settings == {"k": 10, "rbo_p": 0.9, "measure": "R@10", "control": "swapped", "seed": 0}
    assert R @ 10 == R @ 10  # the default measure


def conversations(sizes: list[int], *, ids: bool = True) -> pd.DataFrame:
    rows = []
    for number, size in enumerate(sizes):
        for turn in range(1, size + 1):
            history = [{"role": "user", "content": f"q{number}.{before}"} for before in range(turn)]
            rows.append((f"{number}_{turn}", f"q{number}.{turn}", history, f"c{number}"))
    frame = pd.DataFrame(rows, columns=["qid", "query", "qhistory", "conversation_id"])
    return frame if ids else frame.drop(columns="conversation_id")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=8), st.integers(0, 50), st.booleans())
def test_swapped_questions_come_from_other_conversations(sizes, seed: int, ids: bool) -> None:
    topics = conversations(sizes, ids=ids)
    other = swapped(topics, seed=seed)
    mine = [query.split(".")[0] for query in topics["query"]]
    theirs = [query.split(".")[0] for query in other["query"]]
    if ids or 2 * max(sizes) <= sum(sizes):
        assert all(one != another for one, another in zip(mine, theirs, strict=True))
    if 2 * max(sizes) <= sum(sizes):  # each question is used once
        assert sorted(other["query"]) == sorted(topics["query"])
    assert other["qid"].tolist() == topics["qid"].tolist()
    assert other["qhistory"].tolist() == topics["qhistory"].tolist()
    assert swapped(topics, seed=seed)["query"].tolist() == other["query"].tolist()


def test_a_greeting_is_no_history() -> None:
    history = [{"role": "assistant", "content": "Hello!"}]
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"]})
    topics["qhistory"] = [history, [*history, {"role": "user", "content": "a"}]]
    run = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "d"], "score": [1.0, 1.0], "rank": [0, 0]})
    found = cs.shortcut_dependence(run, run, topics)
    assert (found.summary["n"].tolist(), found.left_out["first turns"]) == ([1], 1)
    with pytest.raises(ValueError, match="no question in qhistory"):
        cs.shortcut_dependence(run, run, topics[:1])


def test_swapping_depends_on_the_seed() -> None:
    topics = conversations([3] * 10)
    assert swapped(topics, seed=1)["query"].tolist() != swapped(topics, seed=2)["query"].tolist()


def test_swapping_takes_what_belongs_to_the_question_and_drops_what_was_computed() -> None:
    topics = conversations([1, 1]).assign(
        qutterance=["u0", "u1"],
        qrewrite=["r0", "r1"],
        query_0=["x", "x"],
        query_vec=[np.ones(2)] * 2,
        query_toks=[{}, {}],
    )
    other = swapped(topics)
    assert other["query"].tolist() == ["u1", "u0"]  # the utterance as it was said, not the formed query
    assert other["qrewrite"].tolist() == ["r1", "r0"]
    assert other.columns.tolist() == ["qid", "query", "qhistory", "conversation_id", "qrewrite"]


def test_without_ids_the_qid_is_not_taken_apart() -> None:
    """Equal prefixes of qids say nothing; equal first messages do, unless everybody starts alike."""
    topics = pd.DataFrame(
        {
            "qid": ["a_1", "a_2", "a_3", "a_4"],
            "query": ["w", "x", "y", "z"],
            "qhistory": [[{"role": "user", "content": text}] for text in ("one", "one", "two", "two")],
        }
    )
    for seed in range(5):
        assert set(swapped(topics, seed=seed)["query"][:2]) == {"y", "z"}
    topics["qhistory"] = [[{"role": "user", "content": "hi"}, {"role": "user", "content": text}] for text in "abcd"]
    other = swapped(topics)
    assert all(one != another for one, another in zip(other["query"], topics["query"], strict=True))


def test_without_ids_conversations_that_all_begin_alike_are_told_apart() -> None:
    """Everybody says hi; a later turn belongs to the earlier one whose history it goes on with."""
    rows = []
    for name in "abc":
        history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": f"hello {name}"}]
        rows.append((f"{name}2", history))
        rows.append((f"{name}3", [*history, {"role": "user", "content": f"{name}2"}]))
    topics = pd.DataFrame({"qid": list("123456"), "query": [q for q, _ in rows], "qhistory": [h for _, h in rows]})
    for seed in range(20):
        other = swapped(topics, seed=seed)["query"]
        assert all(one[0] != another[0] for one, another in zip(topics["query"], other, strict=True))
        assert sorted(other) == sorted(topics["query"])  # each once
    topics["qhistory"] = [[{"role": "user", "content": "hi"}]] * 6
    with pytest.raises(ValueError, match="conversation_id"):
        swapped(topics)
