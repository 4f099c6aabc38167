"""The conversation oracle: its expectation against every order there is, and by hand."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from ir_measures import RR, P, R, Success, nDCG

import pt_convsearch as cs
from pt_convsearch.evaluation.oracle import ConversationOracle, with_row


def answer(docno: str | None) -> dict[str, str]:
    return {"role": "assistant", "content": f"said {docno}", **({"docno": docno} if docno else {})}


@pytest.fixture
def topics() -> pd.DataFrame:
    """c1 gives a, b, a (again) and, in a history alone, h; c2 gives z only, its second question has no answer."""
    return pd.DataFrame(
        {
            "qid": ["c1_1", "c1_2", "c1_3", "c2_1", "c2_2"],
            "query": ["one", "two", "three", "four", "five"],
            "qhistory": [
                [],
                [answer("a"), answer("h")],
                [answer("a"), answer("h"), answer("b")],
                [],
                [answer("z"), answer(None)],
            ],
            "conversation_id": ["c1", "c1", "c1", "c2", "c2"],
        }
    )


@pytest.fixture
def qrels() -> pd.DataFrame:
    return pd.DataFrame({"qid": ["c1_1", "c1_2", "c1_3", "c2_1"], "docno": ["a", "b", "a", "z"], "label": 1})


def test_by_hand(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    oracle = ConversationOracle(topics, qrels)
    # c1 has a, b, h: (1 + 1/2 + 1/3) / 3 = 11/18; c2 has z
    found = oracle.expected(topics, qrels, [RR, R @ 1, R @ 10])
    assert found.index.tolist() == ["c1_1", "c1_2", "c1_3", "c2_1"]
    assert found["RR"].tolist() == pytest.approx([11 / 18] * 3 + [1.0])
    assert found["R@1"].tolist() == pytest.approx([1 / 3] * 3 + [1.0])
    assert found["R@10"].tolist() == [1.0] * 4
    # c1_2 has seen a and h, so b alone is left; c1_3's answer a was given before
    unseen = oracle.expected(topics, qrels, [RR], drop_seen=True)
    assert unseen["RR"].tolist() == pytest.approx([11 / 18, 1.0, 0.0, 1.0])


@pytest.mark.parametrize("golds", [["a"], ["a", "c"], ["a", "b", "c"], ["a", "elsewhere"]])
@pytest.mark.parametrize("measure", [RR, RR @ 2, R @ 1, R @ 3, Success @ 2, P @ 2, P @ 7])
def test_against_every_order(golds: list[str], measure) -> None:
    docnos = list("abcde")
    topics = pd.DataFrame({"qid": ["q"], "query": ["x"], "conversation_id": "c"})
    topics["qhistory"] = [[answer(docno) for docno in docnos]]
    qrels = pd.DataFrame({"qid": "q", "docno": golds, "label": 1})
    judged = qrels if "elsewhere" not in golds else qrels.assign(qid=["q", "q"])
    oracle = ConversationOracle(topics, judged[judged["docno"] != "elsewhere"])
    values = []
    for order in itertools.permutations(docnos):
        run = pd.DataFrame({"qid": "q", "docno": order, "score": -np.arange(5.0), "rank": range(5)})
        values.append(cs.measures.evaluate(run, judged, [measure]).iloc[0, 0])
    assert oracle.expected(topics, judged, [measure]).iloc[0, 0] == pytest.approx(np.mean(values))


def test_runs_are_orders_of_the_conversation(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    oracle = ConversationOracle(topics, qrels, seed=3)
    found = oracle(topics)
    assert found.groupby("qid")["docno"].agg(set).to_dict() == {
        "c1_1": {"a", "b", "h"},
        "c1_2": {"a", "b", "h"},
        "c1_3": {"a", "b", "h"},
        "c2_1": {"z"},
        "c2_2": {"z"},
    }
    assert found[found["qid"] == "c1_1"]["rank"].tolist() == [0, 1, 2]
    one_by_one = pd.concat([oracle(topics.iloc[[at]]) for at in reversed(range(5))])
    merged = found.merge(one_by_one, on=["qid", "docno"])
    assert (merged["rank_x"] == merged["rank_y"]).all()
    assert len(merged) == len(found)


def test_the_mean_of_many_seeds_comes_near(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    means = []
    for seed in range(300):
        run = ConversationOracle(topics, qrels, seed=seed)(topics[:1])
        means.append(cs.measures.evaluate(run, qrels[:1], [RR]).iloc[0, 0])
    # standard deviation of RR over three ranks is 0.28, so of this mean 0.016
    assert np.mean(means) == pytest.approx(11 / 18, abs=0.07)


def test_drop_seen_is_the_stage(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    oracle = ConversationOracle(topics, qrels)
    found = (oracle >> cs.DropSeen())(topics)
    assert found[["qid", "docno"]].to_numpy().tolist()[-2:] == [["c1_2", "b"], ["c2_1", "z"]]
    assert "c1_3" not in set(found["qid"])


def test_strangers_and_empty_frames(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    oracle = ConversationOracle(topics, qrels)
    stranger = topics.iloc[[0]].assign(conversation_id="c9")
    assert len(oracle(stranger)) == 0
    assert oracle.expected(stranger, qrels, [RR])["RR"].tolist() == [0.0]
    empty = oracle(topics[:0])
    assert list(empty.columns) == [*topics.columns, "docno", "score", "rank"]
    assert empty["score"].dtype == "float64"
    with pytest.raises(ValueError, match="conversation_id"):
        ConversationOracle(topics.drop(columns="conversation_id"), qrels)
    with pytest.raises(ValueError, match=r"nDCG@3.*seeds"):
        oracle.expected(topics, qrels, [nDCG @ 3])


def test_identity(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    one, other = ConversationOracle(topics, qrels), ConversationOracle(topics.copy(), qrels.copy())
    assert one == other
    assert hash(one) == hash(other)
    assert one != ConversationOracle(topics, qrels, seed=1)
    assert one != ConversationOracle(topics[:3], qrels)
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one) == "ConversationOracle(2 conversations)"


def test_a_row_of_its_own_in_the_table(topics: pd.DataFrame, qrels: pd.DataFrame) -> None:
    by = {"c1": topics["conversation_id"] == "c1"}
    oracle = ConversationOracle(topics, qrels)
    table = cs.Experiment({"run": oracle}, topics, qrels, [RR, R @ 1], by=by)
    whole = with_row(table, "expected", oracle.expected(topics, qrels, [RR, R @ 1]), topics, by)
    assert whole.index.tolist() == ["expected", "run"]
    assert whole.loc["expected", ("c1", "RR")] == pytest.approx(11 / 18)
    assert whole.loc["expected", ("All", "RR")] == pytest.approx((3 * 11 / 18 + 1) / 4)
    assert whole["c1"]["n"].tolist() == [3, 3]
    assert whole.loc["run"].tolist() == table.loc["run"].tolist()
    assert "expected" in cs.render(whole, "text")
    with pytest.raises(ValueError, match="run"):
        with_row(table, "run", oracle.expected(topics, qrels, [RR]), topics, by)


def test_answers_made_of_several_passages() -> None:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": "x", "conversation_id": "c"})
    topics["qhistory"] = [[], [{"role": "assistant", "content": "x", "docno": ["a", "b"]}]]
    qrels = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "d"], "label": 1})
    oracle = ConversationOracle(topics, qrels)
    assert sorted(oracle(topics[1:])["docno"]) == ["a", "b", "d"]
    # question 1 has two golds among three: first at rank 1 (2/3) or 2 (1/3); question 2 has one, and is left alone
    assert oracle.expected(topics, qrels, [RR])["RR"].tolist() == pytest.approx([5 / 6, 11 / 18])
    assert oracle.expected(topics, qrels, [RR], drop_seen=True)["RR"].tolist() == pytest.approx([5 / 6, 1.0])
    left = cs.DropSeen()(oracle(topics))
    assert left.loc[left["qid"] == "2", "docno"].tolist() == ["d"]
