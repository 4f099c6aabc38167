"""What the history showed already, worked out by hand."""

from __future__ import annotations

import logging
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs

HISTORY = [
    {"role": "user", "content": "who ?"},
    {"role": "assistant", "content": "herbert", "docno": "a"},
    {"role": "user", "content": "when ?", "docno": None},
    {"role": "assistant", "content": "1965", "docno": ["c", "z"]},
]


def results(rows: list[tuple[str, str, float]], histories: dict[str, list], **columns: object) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["qid", "docno", "score"])
    frame["rank"] = frame.groupby("qid").cumcount()
    frame["query"] = "q"
    frame["qhistory"] = [histories[qid] for qid in frame["qid"]]
    return frame.assign(**columns)


ROWS = [("2", "a", 9.0), ("2", "b", 8.0), ("2", "c", 7.0), ("2", "d", -1.0), ("1", "a", 3.0), ("1", "c", 2.0)]
FOUND = results(ROWS, {"2": HISTORY, "1": []})


def test_what_was_shown_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        left = cs.DropSeen()(FOUND)
    assert left[["qid", "docno", "score", "rank"]].to_numpy().tolist() == [
        ["2", "b", 8.0, 0], ["2", "d", -1.0, 1], ["1", "a", 3.0, 0], ["1", "c", 2.0, 1],
    ]  # fmt: skip
    assert left.columns.tolist() == FOUND.columns.tolist()
    assert "2 of 6 results" in caplog.text


def test_demoted_below_all_others_in_rank_and_score() -> None:
    left = cs.DropSeen(demote=True)(FOUND)
    assert left[left.qid == "2"]["docno"].tolist() == ["b", "d", "a", "c"]
    # the lowest other score is -1: the first of the demoted gets -2, the next keeps its distance of 2
    assert left[left.qid == "2"]["score"].tolist() == [8.0, -1.0, -2.0, -4.0]
    assert left[left.qid == "2"]["rank"].tolist() == [0, 1, 2, 3]
    assert left[left.qid == "1"]["score"].tolist() == [3.0, 2.0]


def test_demoted_below_where_numbers_are_far_apart() -> None:
    """1e17 lies between 2**56 and 2**57, where numbers are 2**(56 - 52) = 16 apart, and a step of 1 is lost."""
    far = results([("1", "a", 1e17 + 32), ("1", "c", 1e17 + 16), ("1", "d", 1e17)], {"1": HISTORY})
    left = cs.DropSeen(demote=True)(far)
    assert left["docno"].tolist() == ["d", "a", "c"]
    assert left["score"].tolist() == [1e17, 1e17 - 16, 1e17 - 32]
    # a distance of 1e-20 is lost at -2; equal scores stay equal
    near = results([("1", "a", 2e-20), ("1", "c", 1e-20), ("1", "z", 1e-20), ("1", "d", -1.0)], {"1": HISTORY})
    scores = cs.DropSeen(demote=True)(near)["score"].tolist()
    assert scores == [-1.0, -2.0, np.nextafter(-2.0, -3.0), np.nextafter(-2.0, -3.0)]


@pytest.mark.parametrize("score", [np.inf, -np.inf, np.nan])
def test_scores_that_nothing_lies_below_are_named(score: float) -> None:
    for docno in ("a", "d"):
        rows = [("0", "x", 1.0), ("1", "a", 2.0), ("1", "d", 1.0)]
        found = results([(q, d, score if d == docno else s) for q, d, s in rows], {"0": [], "1": HISTORY})
        with pytest.raises(ValueError, match="score of qid '1' is NaN or infinite: demote=True"):
            cs.DropSeen(demote=True)(found)
        assert cs.DropSeen()(found)["docno"].tolist() == ["x", "d"]


def test_all_or_none_seen() -> None:
    both = results([("1", "a", 2.0), ("1", "c", 1.0)], {"1": HISTORY})
    assert cs.DropSeen()(both).empty
    demoted = cs.DropSeen(demote=True)(both)
    assert demoted["score"].tolist() == [2.0, 1.0]
    none = results([("1", "x", 2.0), ("1", "y", 1.0)], {"1": HISTORY})
    pd.testing.assert_frame_equal(cs.DropSeen()(none), none)


def test_the_rank_decides_the_order_not_the_row() -> None:
    shuffled = FOUND.sample(frac=1.0, random_state=3)
    left = cs.DropSeen()(shuffled)
    assert left[left.qid == "2"]["docno"].tolist() == ["b", "d"]
    without_rank = cs.DropSeen()(shuffled.drop(columns="rank"))
    assert without_rank[without_rank.qid == "2"]["docno"].tolist() == ["b", "d"]


def test_ids_of_other_types() -> None:
    found = results([("1", "7", 1.0), ("1", "8", 0.5)], {"1": [{"role": "assistant", "content": "x", "docno": 7}]})
    assert cs.DropSeen()(found)["docno"].tolist() == ["8"]
    kept = found.assign(qhistory=[np.array(history, dtype=object) for history in found["qhistory"]])
    assert cs.DropSeen()(kept)["docno"].tolist() == ["8"]


def test_histories_without_docnos_are_said() -> None:
    found = results([("1", "a", 1.0)], {"1": [{"role": "assistant", "content": "x"}]})
    with pytest.warns(UserWarning, match="carries a docno"):
        assert len(cs.DropSeen()(found)) == 1


def test_questions_alone_show_nothing_to_leave_out() -> None:
    found = results([("1", "a", 1.0)], {"1": [{"role": "user", "content": "x"}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cs.DropSeen()(found)) == 1


def test_what_is_no_history_is_named() -> None:
    with pytest.raises(ValueError, match="qhistory of qid '1'"):
        cs.DropSeen()(results([("1", "a", 1.0)], {"1": ["who ?"]}))
    with pytest.raises(ValueError, match="qhistory of qid '1'"):
        cs.DropSeen()(FOUND.head(1).assign(qid="1", qhistory=[float("nan")]))
    with pytest.raises(Exception, match="qhistory"):
        cs.DropSeen()(FOUND.drop(columns="qhistory"))


def test_empty_frames_and_identity() -> None:
    left = cs.DropSeen()(FOUND.head(0))
    assert left.columns.tolist() == FOUND.columns.tolist()
    assert left["rank"].dtype == np.int64
    assert cs.DropSeen(demote=True)(FOUND.head(0)).empty
    assert pickle.loads(pickle.dumps(cs.DropSeen(demote=True))) == cs.DropSeen(demote=True)
    assert cs.DropSeen() != cs.DropSeen(demote=True)
    assert repr(cs.DropSeen(demote=True)) == "DropSeen(demote=True)"


def test_one_query_at_a_time_and_together() -> None:
    whole = cs.DropSeen()(FOUND)
    single = pd.concat([cs.DropSeen()(FOUND[FOUND.qid == qid]) for qid in ("2", "1")], ignore_index=True)
    pd.testing.assert_frame_equal(whole, single)


def test_docnos_that_a_join_made_numbers() -> None:
    found = results([("1", "7", 2.0), ("1", "8", 1.0)], {"1": [{"role": "assistant", "content": "x", "docno": 7}]})
    assert cs.DropSeen()(found.assign(docno=[7.0, 8.0]))["docno"].tolist() == [8.0]


def test_a_docno_of_nothing_is_none() -> None:
    """An empty cell of a file, or a gap in a list, names no passage: not even the one called None."""
    history = [{"role": "assistant", "content": "x", "docno": docno} for docno in ("", float("nan"), ["a", None])]
    found = results([("1", "a", 3.0), ("1", "None", 2.0), ("1", "nan", 1.0)], {"1": history})
    assert cs.DropSeen()(found)["docno"].tolist() == ["None", "nan"]
    found["qhistory"] = [[{"role": "assistant", "content": "x", "docno": ""}]] * 3
    with pytest.warns(UserWarning, match="no message of any qhistory carries a docno"):
        assert len(cs.DropSeen()(found)) == 3
