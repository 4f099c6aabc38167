"""The frame as it should be, or an error that names what is wrong."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

import pt_convsearch as cs


def frame(**columns) -> pd.DataFrame:
    return pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"], "qhistory": [[], ["a", "x"]], **columns})


def test_types_are_set_and_the_rest_is_kept() -> None:
    given = frame(qid=[1.0, 2.0], turn_number=[1.0, 2.0], conversation_id=[7, 7], note=[[1], {"k": 2}]).set_index(
        pd.Index([5, 3])
    )
    topics = cs.topics.validate(given)
    assert topics.qid.tolist() == ["1", "2"]
    assert topics.conversation_id.tolist() == ["7", "7"]
    assert topics.turn_number.dtype == "int64"
    assert topics.note.tolist() == [[1], {"k": 2}]
    assert topics.index.tolist() == [0, 1]
    assert topics.qhistory[1] == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}]
    assert given.qid.tolist() == [1.0, 2.0]
    pd.testing.assert_frame_equal(cs.topics.validate(topics), topics)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"qid": ["1", "1"]}, "'1'"),
        ({"qid": ["1", None]}, "qid"),
        ({"qid": ["1", 2.5]}, "2.5"),
        ({"qid": ["1", ""]}, "empty"),
        ({"query": ["a", None]}, "'2'"),
        ({"query": ["a", float("nan")]}, "'2'"),
        ({"query": ["a", 3]}, "'2'"),
        ({"qhistory": [[], None]}, "qhistory of qid '2'"),
        ({"qhistory": [[], [{"role": "user"}]]}, "qhistory of qid '2'"),
        ({"turn_number": [1, 1.5]}, "turn_number of qid '2'"),
        ({"turn_number": [1, None]}, "turn_number of qid '2'"),
        ({"qrewrite": ["x", 3]}, "qrewrite of qid '2'"),
        ({"conversation_id": ["c", None]}, "conversation_id"),
    ],
)
def test_what_is_wrong_is_named(columns: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        cs.topics.validate(frame(**columns))


def test_repeated_qids_are_counted() -> None:
    twice = pd.concat([frame(), frame(), frame()])
    with pytest.raises(ValueError, match=r"2 qids.*'1', '2'"):
        cs.topics.validate(twice)


def test_columns_that_are_missing() -> None:
    with pytest.raises(KeyError, match="query"):
        cs.topics.validate(frame().drop(columns="query"))
    with pytest.raises((KeyError, ValueError), match=r"qhistory.*cs\.topics\.from_messages"):
        cs.topics.validate(frame().drop(columns="qhistory"))
    with pytest.raises(TypeError, match="from_messages"):
        cs.topics.validate([{"qid": "1"}])


@pytest.mark.parametrize(
    ("history", "answer", "warns"),
    [
        (["b"], "", True),
        (["b", "x", "y", "z"], "", True),
        (["x", "the answer"], "the answer", True),
        (["x", "b"], "", True),  # the last message, whoever said it
        (["x", "y"], "z", False),
        (["the answer", "y"], "the answer", False),
        (["x", "b", "z", "y"], "", False),
        ([], "", False),
    ],
)
def test_suspicious_histories_are_a_warning(history: list, answer: str, warns: bool) -> None:
    topics = frame(qhistory=[[], history], answer=["", answer])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cs.topics.validate(topics)
    assert [str(warning.message)[:35] for warning in caught] == (
        ["1 of 2 histories hold their own que"] if warns else []
    )
    assert all("'2'" in str(warning.message) for warning in caught)


def test_empty_frames_have_types() -> None:
    empty = cs.topics.validate(frame(turn_number=[1, 2]).head(0))
    full = cs.topics.validate(frame(turn_number=[1, 2]))
    assert empty.dtypes.tolist() == full.dtypes.tolist()


def test_infinity_is_no_id() -> None:
    with pytest.raises(ValueError, match="'qid' holds inf"):
        cs.topics.validate(pd.DataFrame({"qid": [1.0, float("inf")], "query": "a", "qhistory": [[], []]}))
