"""Question types: the rule by hand, the published lists, and QReCC's own counts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import pt_convsearch as cs


class Vectors:
    """An index of three passages over three terms."""

    rows = {"p": [1.0, 2.0, 0.0], "q": [0.0, 1.0, 1.0], "r": [0.0, 0.0, 3.0]}

    def vectors(self, docnos, *, k1, b):
        self.options = k1, b
        return scipy.sparse.csr_matrix(np.array([self.rows[docno] for docno in docnos]))


@pytest.fixture
def topics() -> pd.DataFrame:
    rows = [("a", 1), ("a", 2), ("a", 3), ("a", 10), ("a", 11), ("b", 2), ("b", 1), ("b", 3)]
    frame = pd.DataFrame(rows, columns=["conversation_id", "turn_number"])
    return frame.assign(qid=[f"{conversation}_{turn}" for conversation, turn in rows], query="x")


# p.q = 2, p.r = 0, q.r = 3; a_3 has two golds; the turn before a_10 is not there; b_1 is not judged
QRELS = {"a_1": {"p": 1}, "a_2": {"q": 1}, "a_3": {"p": 1, "r": 1}, "a_10": {"p": 1}, "a_11": {"r": 1, "p": 0},
         "b_2": {"p": 1}, "b_1": {"": 1}, "b_3": {"p": 1}}  # fmt: skip


def test_the_rule_by_hand(topics) -> None:
    types = cs.QuestionTypes(Vectors(), QRELS, threshold=2.5, k1=0.82, b=0.68)
    similarity = types.similarity(topics)
    assert types.index.options == (0.82, 0.68)
    # a_2: q.p; a_3: the larger of p.q and r.q; a_11: r.p, p being judged irrelevant; b_3: p.p
    expected = [np.nan, 2.0, 3.0, np.nan, 0.0, np.nan, np.nan, 5.0]
    np.testing.assert_array_equal(similarity, expected)
    labels = types(topics)["qtype"]
    assert labels.cat.categories.tolist() == ["first", "switch", "no-switch"]
    assert labels.astype(object).where(labels.notna(), None).tolist() == [
        "first", "switch", "no-switch", None, "switch", None, "first", "no-switch",
    ]  # fmt: skip
    # the threshold itself is on the side of no switch
    assert cs.QuestionTypes(Vectors(), QRELS, threshold=2.0)(topics)["qtype"][1] == "no-switch"


def test_the_order_of_rows_does_not_matter(topics) -> None:
    types = cs.QuestionTypes(Vectors(), QRELS, threshold=2.5)
    shuffled = types(topics.sample(frac=1, random_state=3)).sort_index()
    pd.testing.assert_series_equal(shuffled["qtype"], types(topics)["qtype"])


def test_grades_below_rel_are_no_gold(topics) -> None:
    graded = {qid: {docno: 2 * label for docno, label in judged.items()} for qid, judged in QRELS.items()}
    graded["a_2"] = {"q": 1}
    strict = cs.QuestionTypes(Vectors(), graded, threshold=2.5, rel=2)
    assert strict.comparable(topics).tolist() == [False] * 4 + [True, False, False, True]


def test_without_an_index_only_first_turns_are_labelled(topics) -> None:
    labels = cs.QuestionTypes()(topics)["qtype"]
    assert (labels == "first").tolist() == [True] + [False] * 5 + [True, False]
    assert labels.notna().sum() == 2


def test_what_is_missing_is_named(topics) -> None:
    with pytest.raises(ValueError, match="threshold"):
        cs.QuestionTypes(Vectors(), QRELS)
    with pytest.raises(ValueError, match="qrels"):
        cs.QuestionTypes(Vectors(), threshold=1.0)
    with pytest.raises(ValueError, match="index"):
        cs.QuestionTypes(threshold=1.0)
    with pytest.raises(ValueError, match="conversation_id"):
        cs.QuestionTypes()(topics.drop(columns="conversation_id"))
    with pytest.raises(ValueError, match="index"):
        cs.QuestionTypes(qrels=QRELS).similarity(topics)
    with pytest.raises(ValueError, match="qrels"):
        cs.QuestionTypes().comparable(topics)
    with pytest.raises(ValueError, match="share"):
        cs.QuestionTypes(qrels=QRELS).comparable(topics.assign(turn_number=2))


def test_lists(topics) -> None:
    types = cs.QuestionTypes.from_lists({"later": ["a_2"], "x": [], "first": ["b_1", "a_1"]}, labels=["first", "later"])
    labels = types(topics)["qtype"]
    assert labels.cat.categories.tolist() == ["first", "later"]
    assert labels.value_counts().to_dict() == {"first": 2, "later": 1}
    with pytest.raises(ValueError, match="two lists"):
        cs.QuestionTypes.from_lists({"first": ["q"], "switch": ["q"]}, labels=["first", "switch"])
    with pytest.raises(ValueError, match="'no-switch'"):
        cs.QuestionTypes.from_lists({"first": ["q"], "switch": []})


def qrecc(folder) -> tuple[pd.DataFrame, dict, dict]:
    qrels = json.loads((folder / "qrecc-labels" / "qrels.txt").read_text(encoding="utf-8"))
    lists = json.loads((folder / "qrecc-labels" / "test_question_types.json").read_text(encoding="utf-8"))
    topics = pd.DataFrame({"qid": list(qrels), "query": "x"})
    parts = topics["qid"].str.split("_")
    return topics.assign(conversation_id=parts.str[0], turn_number=parts.str[1].astype(int)), qrels, lists


def test_the_counts_of_qrecc(realdata) -> None:
    """Kim & Kim's test set: 8,209 of 16,451 turns have gold: first 267, switch 573, no-switch 279; 852 comparable."""
    topics, qrels, lists = qrecc(realdata)
    typed = cs.QuestionTypes.from_lists(lists)(topics)
    nothing = pd.DataFrame({"qid": ["1_1"], "docno": ["x"], "score": [1.0]})
    table = cs.Experiment({"nothing": nothing}, typed, qrels, ["RR"], by="qtype")
    assert table.questions["topics"] == 16451
    assert table.questions["unjudged"] == 8242
    sizes = {group: int(table[group]["n"].iloc[0]) for group in table.columns.get_level_values(0).unique()}
    assert sizes == {"All": 8209, "first": 267, "switch": 573, "no-switch": 279, "missing": 8209 - 1119}
    types = cs.QuestionTypes(qrels=qrels)
    short = topics["qid"].isin([*lists["nq"], *lists["trec"]])
    comparable = set(topics["qid"][types.comparable(topics) & short])
    assert comparable == {*lists["switch"], *lists["no-switch"]}
    assert len(comparable) == 852
    first = types(topics)["qtype"] == "first"
    assert set(topics["qid"][first & short]) == set(lists["first"])
    assert len(lists["first"]) == 959


@pytest.mark.parametrize("turn", [1.9, float("nan"), "first"])
def test_what_is_no_turn_is_no_first_one(turn) -> None:
    topics = pd.DataFrame({"qid": ["c_1"], "conversation_id": "c", "turn_number": [turn]})
    with pytest.raises(ValueError, match="turn_number of qid 'c_1'"):
        cs.QuestionTypes()(topics)
