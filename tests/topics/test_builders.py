"""Topics from dialogues, turns and frames: every shape that people hold, values by hand."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs

U, A = "user", "assistant"


def m(role: str, content, **more) -> dict:
    return {"role": role, "content": content, **more}




























# dialogues

DIALOGUE = {
    "dialogue_id": "d",
    "utterances": [
        {"speaker": "ann", "text": "u1"},
        {"speaker": "ann", "text": "u2"},
        {"speaker": "bob", "text": "u3"},
        {"speaker": "cat", "text": "u4"},
        {"speaker": "cat", "text": " "},
        {"speaker": "ann", "text": "u5"},
    ],
}


def test_dialogues() -> None:
    topics = cs.topics.from_dialogues([DIALOGUE])
    assert topics.qid.tolist() == ["d_1", "d_2", "d_3"]
    assert topics.answer.tolist() == ["", "u3\nu4", ""]
    assert topics.qhistory[2] == [m(U, "u1"), m(U, "u2"), m(A, "u3"), m(A, "u4")]


@pytest.mark.parametrize(
    ("user", "queries"),
    [
        ("cat", ["u4"]),
        (["bob", "cat"], ["u3", "u4"]),
        (lambda name: name != "ann", ["u3", "u4"]),
        (None, ["u1", "u2", "u5"]),
    ],
)
def test_who_is_the_user(user, queries: list[str]) -> None:
    assert cs.topics.from_dialogues([DIALOGUE], user=user)["query"].tolist() == queries


def test_dialogues_in_other_shapes() -> None:
    pairs = [("ann", "u1"), ("bob", "u2")]
    assert cs.topics.from_dialogues([pairs]).answer.tolist() == ["u2"]
    assert cs.topics.from_dialogues([["u1", "u2", "u3"]])["query"].tolist() == ["u1", "u3"]
    assert cs.topics.from_dialogues([{"id": 4, "turns": pairs}]).qid.tolist() == ["4_1"]
    for wrong in ([3], [{"speaker": "x"}], [("x", None)]):
        with pytest.raises(ValueError, match="utterance 1 of dialogue"):
            cs.topics.from_dialogues([wrong])
    with pytest.raises(ValueError, match=r"zoe.*ann"):
        cs.topics.from_dialogues([DIALOGUE], user="zoe")


# turns

CAST = [
    {
        "topic_number": 81,
        "turn_number": number,
        "raw_utterance": f"q{number}",
        "manual_rewritten_utterance": f"r{number}",
    }
    for number in (1, 10, 2, 9)
]


def test_turns_sort_as_numbers() -> None:
    topics = cs.topics.from_turns(CAST)
    assert topics.qid.tolist() == ["81_1", "81_2", "81_9", "81_10"]
    assert topics.turn_number.tolist() == [1, 2, 9, 10]
    assert topics.qrewrite.tolist() == ["r1", "r2", "r9", "r10"]
    assert topics.qhistory[3] == [m(U, "q1"), m(U, "q2"), m(U, "q9")]


def test_turns_nested_with_passages_and_docnos() -> None:
    nested = [
        {
            "number": 106,
            "title": "t",
            "turn": [
                {"number": 1, "raw_utterance": "q1", "passage": "p1", "canonical_result_id": "M_1", "passage_id": 7},
                {"number": 2, "raw_utterance": "q2", "manual_canonical_result_id": "M_2"},
                {"number": 3, "raw_utterance": "q3"},
            ],
        }
    ]
    topics = cs.topics.from_turns(nested, passages={"M_2": "p2"}, columns=["title"])
    assert topics.qid.tolist() == ["106_1", "106_2", "106_3"]
    assert topics.answer.tolist() == ["p1", "p2", ""]
    assert topics.qhistory[2] == [m(U, "q1"), m(A, "p1", docno="M_1-7"), m(U, "q2"), m(A, "p2", docno="M_2")]
    assert topics.title.tolist() == ["t"] * 3
    assert "qrewrite" not in topics.columns


def test_an_answer_that_is_a_number_is_named() -> None:
    first = {"topic": 1, "turn": 1, "query": "q", "answer": float("nan")}
    assert cs.topics.from_turns([first]).answer.tolist() == [""]
    for answer in (3.14, 3):
        with pytest.raises(ValueError, match=rf"turn 2 of conversation '1' has {answer} \(.*\) as its answer: give a"):
            cs.topics.from_turns([first, {"topic": 1, "turn": 2, "query": "q", "answer": answer}])


def test_turns_without_answers_or_with_gaps() -> None:
    frame = pd.DataFrame({"conversation_id": [1, 1], "turn": [1.0, 2.0], "query": ["a", "b"], "answer": ["x", None]})
    topics = cs.topics.from_turns(frame)
    assert topics.qid.tolist() == ["1_1", "1_2"]
    assert topics.answer.tolist() == ["x", ""]


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([{"turn": 1, "query": "q"}], "record 1"),
        ([{"topic": 1, "turn": "one", "query": "q"}], "'one'"),
        ([{"topic": 1, "turn": 1}], "turn 1 of conversation '1'"),
        ([{"topic": 1, "turn": 1, "query": "q"}] * 2, "more than one turn 1"),
    ],
)
def test_what_is_no_turn(records: list, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        cs.topics.from_turns(records)


# frames

SAME = [m(U, "a"), m(A, "b")]


@pytest.mark.parametrize(
    "history",
    [
        ["a", "b"],
        ("a", "b"),
        SAME,
        json.dumps(SAME),
        json.dumps(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        [m("system", "s"), *SAME],
    ],
)
def test_histories_in_a_frame_become_one_shape(history) -> None:
    frame = pd.DataFrame({"qid": [1], "query": ["q"], "said": [history], "extra": [[1, 2]]})
    topics = cs.topics.from_frame(frame, "said")
    assert topics.qhistory.tolist() == [SAME]
    assert topics.qid.tolist() == ["1"]
    assert topics.extra.tolist() == [[1, 2]]
    assert frame.columns.tolist() == ["qid", "query", "said", "extra"]


def test_strings_of_the_user_only_and_whole_conversations() -> None:
    frame = pd.DataFrame({"conversation_id": ["c"], "turn_number": [3], "chat": [["a", "b", "q"]]})
    assert cs.topics.from_frame(frame, "chat").qhistory.tolist() == [SAME]
    topics = cs.topics.from_frame(frame, "chat", strings="user")
    assert topics.qid.tolist() == ["c_3"]
    assert topics["query"].tolist() == ["q"]
    assert topics.qhistory.tolist() == [[m(U, "a"), m(U, "b")]]


@pytest.mark.parametrize("history", [None, float("nan"), 3, "{", '"a"', ["a", m(U, "b")], [3]])
def test_histories_that_are_none_name_the_qid(history) -> None:
    with pytest.raises(ValueError, match="said of qid '1'"):
        cs.topics.from_frame(pd.DataFrame({"qid": [1], "query": ["q"], "said": [history]}), "said")


def test_frames_that_lack_a_column() -> None:
    frame = pd.DataFrame({"qid": [1], "query": ["q"]})
    with pytest.raises(ValueError, match="'history'"):
        cs.topics.from_frame(frame, "history")
    with pytest.raises(ValueError, match="'qid'"):
        cs.topics.from_frame(pd.DataFrame({"query": ["q"], "h": [[]]}), "h")
    with pytest.raises(ValueError, match="end with a user"):
        cs.topics.from_frame(pd.DataFrame({"qid": [1], "h": [["a", "b"]]}), "h")
    with pytest.raises(ValueError, match="strings"):
        cs.topics.from_frame(pd.DataFrame({"qid": [1], "query": ["q"], "h": [[]]}), "h", strings="both")


def test_records_that_come_from_a_frame_lack_ids_and_texts_as_nan() -> None:
    said = {"role": "user", "content": "a"}
    log = pd.DataFrame({"id": ["x", None], "messages": [[said], [said]]})
    assert cs.topics.from_messages(log).qid.tolist() == ["x_1", "2_1"]
    dialogues = pd.DataFrame({"dialogue_id": ["x", None], "utterances": [[("ann", "hi")], None]})
    assert cs.topics.from_dialogues(dialogues).qid.tolist() == ["x_1"]
    turns = pd.DataFrame(
        {
            "topic_number": [1, 1, 1],
            "turn_number": [1.0, 2.0, 3.0],
            "raw_utterance": ["a", "b", "c"],
            "passage": ["p", "q", None],
            "canonical_result_id": ["D1", 12.0, None],
            "passage_id": [7.0, float("nan"), float("nan")],
            "tags": [np.array(["one", "two"])] * 3,
        }
    )
    history = cs.topics.from_turns(turns, columns=["tags"]).qhistory[2]
    assert [message.get("docno") for message in history] == [None, "D1-7", None, "12"]


def test_an_array_where_a_text_is_looked_for_is_no_comparison() -> None:
    turns = [{"topic": 1, "turn": 1, "query": "a", "passage": np.array(["p", "q"])}]
    assert cs.topics.from_turns(turns).answer.tolist() == [""]


@pytest.mark.parametrize("column", ["query", "conversation_id", "qrewrite"])
def test_a_field_never_takes_the_place_of_a_column_of_ours(column: str) -> None:
    chat = {"id": 1, "messages": [{"role": "user", "content": "a"}], "language": "en", column: "x"}
    with pytest.raises(ValueError, match=f"columns='{column}'"):
        cs.topics.from_messages([chat], columns=["language", column])
    with pytest.raises(ValueError, match=f"columns='{column}'"):
        cs.topics.from_turns([{"topic": 1, "turn": 1, "raw_utterance": "a"}], columns=[column])
    assert cs.topics.from_messages([chat], columns="language").language.tolist() == ["en"]


@pytest.mark.parametrize("dialogue", [None, 3, {"id": 1, "utterances": "text"}, {1: 2}])
def test_what_is_no_dialogue_is_said(dialogue) -> None:
    with pytest.raises(ValueError, match="dialogue 1"):
        cs.topics.from_dialogues([dialogue])


def test_infinity_is_no_number_of_a_turn() -> None:
    with pytest.raises(ValueError, match="inf as its number"):
        cs.topics.from_turns([{"topic": 1, "turn": float("inf"), "query": "a"}])


def test_the_docno_of_a_message_is_an_id() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "docno": 7.0}]
    last = {"role": "user", "content": "c"}
    assert cs.topics.from_messages([[*said, last]]).qhistory[1][1]["docno"] == "7"
    said[1]["docno"] = ""
    assert "docno" not in cs.topics.from_messages([[*said, last]]).qhistory[1][1]


def test_of_several_lists_the_one_that_is_there_counts() -> None:
    said = [{"role": "user", "content": "a"}]
    log = [{"id": "x", "messages": None, "conversation": said}, {"id": "y", "messages": said, "conversation": None}]
    assert cs.topics.from_messages(log).qid.tolist() == ["x_1", "y_1"]
    assert cs.topics.from_dialogues([{"utterances": None, "turns": [("ann", "hi")]}]).qid.tolist() == ["1_1"]


def test_an_answer_may_be_made_of_several_passages() -> None:
    def kept(docno) -> object:
        said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "docno": docno}]
        history = cs.topics.from_messages([[*said, {"role": "user", "content": "c"}]]).qhistory[1]
        frame = pd.DataFrame({"qid": ["1"], "query": ["c"], "qhistory": [said]})
        assert cs.topics.validate(frame).qhistory[0][1].get("docno") == history[1].get("docno")
        return history[1].get("docno")

    assert kept(["d1", 7]) == ["d1", "7"]
    assert kept(["d1", None, ""]) == kept(np.array(["d1"])) == "d1"
    assert all(kept(docno) is None for docno in ([], "", float("nan")))


def test_answers_in_a_field_of_another_name_are_told() -> None:
    """Without content, value, text or utterance; on purpose are an empty text and a call of a tool."""
    user, said = {"role": "user", "content": "a"}, {"role": "assistant"}
    log = [[user, {**said, "content": ""}], [user, {**said, "body": "b"}, user, {**said, "content": None}]]
    told = r"2 assistant messages have no content .*first message 2 of conversation 2"
    with pytest.warns(UserWarning, match=told):
        assert cs.topics.from_messages(log).answer.tolist() == ["", "", ""]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cs.topics.from_messages([[user, {**said, "content": None, "tool_calls": [1]}, {**said, "content": " "}]])
    frame = pd.DataFrame({"qid": ["q"], "query": ["x"], "qhistory": [[user, {**said, "body": "b"}]]})
    with pytest.warns(UserWarning, match=r"first message 2 of qhistory of qid 'q'"):
        cs.topics.validate(frame)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: cs.topics.from_messages([[{"messages": []}]]), "conversation 1 is a list of conversations"),
        (lambda: cs.topics.from_messages([{"id": True, "messages": []}]), "holds True, which is no id"),
        (lambda: cs.topics.from_messages([{"id": ("a",), "messages": []}]), r"\('a',\) \(tuple\): ids are str"),
        (lambda: cs.topics.from_frame(pd.DataFrame({"qid": ["1"], "x": [[]]}), "history"), "no column 'history'"),
        (
            lambda: cs.topics.from_turns([
                {"topic": 1, "turn": 1, "query": "a", "qid": "q"}, {"topic": 2, "turn": 1, "query": "b", "qid": "q"},
            ]),
            r"1 qids name more than one question \('q'\)",
        ),
    ],
)  # fmt: skip
def test_what_else_is_said(build, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build()
