"""Topics from chat logs: messages of two roles, in whatever shape they were kept."""

from __future__ import annotations

import json
import logging

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.topics.chats import is_message

from .test_builders import A, U, m

CHAT = [m("system", "Be kind."), m(U, "q1"), m(A, "a1"), m(U, "q2"), m(A, "a2", docno="d2"), m(A, "more"), m(U, "q3")]


def test_each_user_message_is_a_topic() -> None:
    topics = cs.topics.from_messages([{"id": "c", "messages": CHAT}])
    assert topics.columns.tolist() == ["qid", "query", "qhistory", "answer", "conversation_id", "turn_number"]
    assert topics.qid.tolist() == ["c_1", "c_2", "c_3"]
    assert topics["query"].tolist() == ["q1", "q2", "q3"]
    assert topics.answer.tolist() == ["a1", "a2\nmore", ""]
    assert topics.turn_number.tolist() == [1, 2, 3]
    assert topics.qhistory.tolist() == [
        [],
        [m(U, "q1"), m(A, "a1")],
        [m(U, "q1"), m(A, "a1"), m(U, "q2"), m(A, "a2", docno="d2"), m(A, "more")],
    ]


def test_last_turns() -> None:
    log = [CHAT, CHAT[:3], [m(A, "hello?")]]
    topics = cs.topics.from_messages(log, turns="last")
    assert topics.qid.tolist() == ["1_3", "2_1"]
    assert topics.answer.tolist() == ["", "a1"]
    with pytest.raises(ValueError, match="turns"):
        cs.topics.from_messages(log, turns="first")


@pytest.mark.parametrize(
    "conversation",
    [
        {"id": "c", "messages": [m(U, "q1"), m(A, "a1"), m(U, "q2")]},
        {"conversation_id": "c", "conversation": [m(U, "q1", language="English"), m(A, "a1", toxic=False), m(U, "q2")]},
        {
            "id": "c",
            "conversations": [
                {"from": "human", "value": "q1"},
                {"from": "gpt", "value": "a1"},
                {"from": "human", "value": "q2"},
            ],
        },
        {
            "id": "c",
            "messages": [
                {"speaker": "user", "text": "q1"},
                {"speaker": "agent", "text": "a1"},
                {"speaker": "user", "text": "q2"},
            ],
        },
        {"id": "c", "messages": json.dumps([m(U, "q1"), m(A, "a1"), m(U, "q2")])},
        {"id": "c", "messages": (m("User", "q1"), m("Assistant", "a1"), m("USER", "q2"))},
        {"id": "c", "messages": np.array([m(U, "q1"), m(A, "a1"), m(U, "q2")], dtype=object)},
        {
            "id": "c",
            "messages": [
                m(U, [{"type": "text", "text": "q1"}]),
                m(A, ["a1"]),
                m(U, [{"type": "image_url"}, {"type": "text", "text": "q2"}]),
            ],
        },
    ],
)
def test_shapes_of_a_conversation(conversation: dict) -> None:
    topics = cs.topics.from_messages([conversation])
    assert topics.qid.tolist() == ["c_1", "c_2"]
    assert topics["query"].tolist() == ["q1", "q2"]
    assert topics.qhistory[1] == [m(U, "q1"), m(A, "a1")]


def test_what_is_left_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = [
        [
            m("system", "s"),
            m("developer", "d"),
            m(U, "q"),
            m(A, None, tool_calls=[1]),
            m("tool", "t"),
            m("tool", "t"),
            m(A, ""),
            m(A, "a"),
        ],
        [m(A, "nobody asked")],
    ]
    with caplog.at_level(logging.INFO, "pt_convsearch"):
        topics = cs.topics.from_messages(log)
    assert topics.answer.tolist() == ["a"]
    for count in (
        "2 tool",
        "2 assistant without text",
        "1 system",
        "1 developer",
        "1 conversations without a user message",
    ):
        assert count in caplog.text


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ([{"id": "c9", "messages": [m("narrator", "x")]}], "narrator.*|c9.*narrator"),
        ([{"id": "c9", "messages": [m(U, None)]}], "c9"),
        ([{"id": "c9", "messages": [m(U, float("nan"))]}], "c9"),
        ([{"id": "c9", "messages": [m(U, 3)]}], "c9"),
        ([{"id": "c9", "messages": [m(U, 3.14)]}], r"message 1 of conversation 'c9' has 3\.14 \(float\) as content"),
        ([{"id": "c9", "messages": [m(U, "q"), m(A, 3)]}], r"message 2 of conversation 'c9' has 3 \(int\) as content"),
        ([{"id": "c9", "messages": [m(U, "q"), m(A, 3.14)]}], r"message 2 of conversation 'c9' has 3\.14 \(float\)"),
        ([{"id": "c9", "messages": [m(U, "q"), m(A, [2.5])]}], r"message 2 of conversation 'c9' has 2\.5 .* a part"),
        ([{"id": "c9", "messages": [m(A, [{"text": 7}])]}], r"message 1 of conversation 'c9' has 7 \(int\) as a part"),
        ([{"id": "c9", "messages": ["x"]}], "c9"),
        ([{"id": "c9", "messages": "{"}], "c9.*JSON"),
        ([{"id": "c9", "messages": 3}], "c9.*give a list"),
        ([{"id": "c9", "messages": [{"content": "x"}]}], "c9"),
        ([{"id": "c9", "text": "x"}], "messages"),
        (
            [{"id": "c9", "messages": []}, {"id": "c9", "messages": []}, {"id": "b", "messages": []}],
            "1 conversation ids.*c9",
        ),
        ({"id": "c9", "messages": []}, "one dict"),
        (["c9"], "conversation 1"),
    ],
)
def test_what_is_no_log(log, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        cs.topics.from_messages(log)


def test_single_messages_are_brought_together() -> None:
    messages = [
        {"conversation_id": "b", "role": "user", "content": "one", "lang": "de"},
        {"conversation_id": "a", "role": "user", "content": "two", "lang": "en"},
        {"conversation_id": "b", "role": "assistant", "content": "eins", "docno": "d1"},
        {"conversation_id": "b", "role": "user", "content": "three"},
    ]
    for log in (messages, iter(messages), pd.DataFrame(messages)):
        topics = cs.topics.from_messages(log, columns=["lang"])
        assert topics["qid"].tolist() == ["b_1", "b_2", "a_1"]
        assert topics["query"].tolist() == ["one", "three", "two"]
        assert topics["lang"].tolist() == ["de", "de", "en"]
        assert topics["qhistory"][1] == [
            {"role": "user", "content": "one"}, {"role": "assistant", "content": "eins", "docno": "d1"}
        ]  # fmt: skip
    with pytest.raises(ValueError, match="message 5 of the log: its conversation_id is a list, which is no id"):
        cs.topics.from_messages([*messages, {"conversation_id": ["a"], "role": "user", "content": "x"}])
    with pytest.raises(ValueError, match="message 5 of the log says no conversation_id"):
        cs.topics.from_messages([*messages, {"role": "user", "content": "whose?"}])


@pytest.mark.parametrize("role", ["role", "from", "speaker"])
@pytest.mark.parametrize("text", ["content", "value", "text", "utterance"])
def test_single_messages_under_any_names_of_their_fields(tmp_path, role: str, text: str) -> None:
    said = [("b", "user", "one"), ("a", "user", "two"), ("b", "assistant", "eins"), ("b", "user", "three")]
    log = [{"conversation_id": name, role: who, text: what} for name, who, what in said]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in log), encoding="utf-8")
    for topics in (cs.topics.from_messages(log), cs.topics.read(path)):
        assert topics["qid"].tolist() == ["b_1", "b_2", "a_1"]
        assert topics["query"].tolist() == ["one", "three", "two"]
        assert topics["answer"].tolist() == ["eins", "", ""]


def test_records_of_other_shapes_are_no_single_messages() -> None:
    turns = {"conversation_id": 1, "turn": 1, "speaker": "user", "utterance": "q"}
    for record in (
        turns,
        {"conversation_id": 1, "turn_number": 1, "speaker": "u", "raw_utterance": "q", "text": "x"},
        {"conversation_id": 1, "from": "web", "text": "x", "dialogue": [{"speaker": "a", "text": "b"}]},
        {"conversation_id": 1, "from": "web", "text": "x", "utterances": ["b"]},
        {"role": "user", "text": "x"},
    ):
        assert not is_message(record)
    assert cs.topics.from_turns([turns]).qid.tolist() == ["1_1"]


def test_a_missing_value_beside_one_under_another_name() -> None:
    """A frame of logs with fields of two names holds NaN where a message has the other one."""
    nan = float("nan")
    chat = [{"role": nan, "speaker": "user", "content": nan, "text": "q"}, {"role": "assistant", "content": nan}]
    with pytest.warns(UserWarning, match="1 assistant messages have no content"):
        topics = cs.topics.from_messages([chat])
    assert topics["query"].tolist() == ["q"]
    assert topics["answer"].tolist() == [""]
    dialogue = [{"speaker": "ann", "text": nan, "utterance": "u1"}]
    assert cs.topics.from_dialogues([dialogue])["query"].tolist() == ["u1"]


def test_a_question_without_words_stays_a_question() -> None:
    image = [{"type": "image_url", "image_url": "x"}]
    topics = cs.topics.from_messages([[m(U, ""), m(A, "a1"), m(U, []), m(A, "a2"), m(U, image), m(A, "a3")]])
    assert topics["query"].tolist() == ["", "", ""]
    assert topics["answer"].tolist() == ["a1", "a2", "a3"]


def test_other_roles_can_be_named() -> None:
    log = [[m("narrator", "x"), m("visitor", "q"), m("bot", "a")]]
    topics = cs.topics.from_messages(log, roles={"narrator": None, "visitor": U, "bot": A})
    assert topics["query"].tolist() == ["q"]
    assert topics.answer.tolist() == ["a"]
    with pytest.raises(ValueError, match="roles"):
        cs.topics.from_messages(log, roles={"narrator": "system"})


def test_ids() -> None:
    chat = [m(U, "q")]
    log = [
        {"id": 7, "messages": chat},
        {"id": 8.0, "messages": chat},
        {"messages": chat},
        {"id": "NA", "messages": chat},
    ]
    assert cs.topics.from_messages(log).qid.tolist() == ["7_1", "8_1", "3_1", "NA_1"]


def test_fields_of_conversations_become_columns_and_frames_are_logs() -> None:
    log = pd.DataFrame(
        {"id": ["a", "b"], "language": ["en", "de"], "messages": [[m(U, "q1"), m(U, "q2")], [m(U, "q3")]]}
    )
    assert cs.topics.from_messages(log, columns=["language"]).language.tolist() == ["en", "en", "de"]


def test_an_empty_log_and_a_generator() -> None:
    empty = cs.topics.from_messages([])
    full = cs.topics.from_messages(chat for chat in [CHAT])
    assert empty.columns.tolist() == full.columns.tolist()
    assert empty.dtypes.tolist() == full.dtypes.tolist()


def test_half_an_emoji_is_replaced() -> None:
    topics = cs.topics.from_messages([[m(U, "ok \ud83d"), m(A, "\U0001f642"), m(U, "q")]])
    assert topics["query"].tolist() == ["ok \ufffd", "q"]
    assert topics.qhistory[1][1]["content"] == "\U0001f642"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from([U, A]), st.sampled_from(["x", "y", "z"])), max_size=8), max_size=4))
def test_rows_stand_alone(conversations: list) -> None:
    log = [[m(role, text) for role, text in conversation] for conversation in conversations]
    topics = cs.topics.from_messages(log)
    expected = [chat[:at] for chat in log for at, message in enumerate(chat) if message["role"] == U]
    assert topics.qhistory.tolist() == expected
    assert len(topics) == len(expected)
