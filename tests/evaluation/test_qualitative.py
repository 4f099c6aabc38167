"""Examples: the best passage of each system beside the gold."""

from __future__ import annotations

import pandas as pd
import pytest

import pt_convsearch as cs

CORPUS = [{"docno": docno, "text": f"text of {docno}"} for docno in "abcde"]


def test_which_questions_are_shown(topics, qrels, systems) -> None:
    """Best of X_t \\ q_t: nothing, a, b, nothing; of X_t: a, b, c, d. Golds: a, b, b, d."""
    compared = {name: systems[name] for name in ("X_t\\q_t", "X_t")}

    def shown(which: str) -> list[str]:
        table = cs.top_passages(compared, topics, qrels, CORPUS, which=which)
        return list(dict.fromkeys(table["qid"]))

    assert shown("all") == shown("differ") == ["c1_1", "c1_2", "c1_3", "c2_1"]  # c2_2 has no gold
    assert shown("repaired") == ["c1_1", "c1_2", "c2_1"]
    assert shown("broken") == ["c1_3"]
    table = cs.top_passages(compared, topics, qrels, lambda: iter(CORPUS), max_characters=6, num_questions=2)
    assert table.astype(object).where(table.notna(), None).to_dict("records") == [
        {"qid": "c1_1", "question": "a", "last answer": None, "gold": "text…", "system": "X_t\\q_t", "docno": None,
         "text": None, "correct": False},
        {"qid": "c1_1", "question": "a", "last answer": None, "gold": "text…", "system": "X_t", "docno": "a",
         "text": "text…", "correct": True},
        {"qid": "c1_2", "question": "b", "last answer": None, "gold": "text…", "system": "X_t\\q_t", "docno": "a",
         "text": "text…", "correct": False},
        {"qid": "c1_2", "question": "b", "last answer": None, "gold": "text…", "system": "X_t", "docno": "b",
         "text": "text…", "correct": True},
    ]  # fmt: skip


def test_frames_of_results_and_the_last_answer(topics, qrels) -> None:
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "an answer"}]
    topics = topics.assign(qhistory=pd.Series([history] * 5))
    run = pd.DataFrame({"qid": ["c1_1", "c1_1", "zz"], "docno": ["e", "a", "b"], "score": [0.1, 0.9, 3.0]})
    table = cs.top_passages({"mine": run}, topics, qrels, CORPUS, which="all", num_questions=None)
    assert table["docno"].tolist()[:1] == ["a"]  # by score, where there is no rank
    assert table["last answer"].tolist() == ["an answer"] * 4
    assert table["correct"].tolist() == [True, False, False, False]
    empty = cs.top_passages({"mine": run}, topics, qrels, CORPUS, which="differ")
    assert empty.empty
    assert list(empty.columns) == list(table.columns)


def test_ids_of_a_frame_with_gaps() -> None:
    """A join with missing rows made numbers of the ids: 1.0 is "1"."""
    topics = pd.DataFrame({"qid": [1, 2], "query": ["a", "b"]})
    qrels = pd.DataFrame({"qid": [1.0, 2.0], "docno": [7.0, 8.0], "label": [1, 1]})
    run = pd.DataFrame({"qid": [1.0, 2.0], "docno": [7.0, 7.0], "rank": [0, 0]})
    corpus = [{"docno": 7, "text": "seven"}, {"docno": 8, "text": "eight"}]
    table = cs.top_passages({"mine": run}, topics, qrels, corpus, which="all")
    assert table[["qid", "docno", "text", "gold", "correct"]].to_numpy().tolist() == [
        ["1", "7", "seven", "seven", True], ["2", "7", "seven", "eight", False],
    ]  # fmt: skip


def test_bad_input(topics, qrels, systems) -> None:
    with pytest.raises(ValueError, match="systems"):
        cs.top_passages({}, topics, qrels, CORPUS)
    with pytest.raises(ValueError, match="which='best'"):
        cs.top_passages(systems, topics, qrels, CORPUS, which="best")
    with pytest.raises(ValueError, match="none of the topics"):
        cs.top_passages(systems, topics, qrels.assign(qid="0_" + qrels["qid"]), CORPUS)
