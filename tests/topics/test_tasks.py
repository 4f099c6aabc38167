"""Answers and responses as collections."""

from __future__ import annotations

import gzip
import json
import warnings

import pandas as pd
import pytest

import pt_convsearch as cs

U, A = "user", "assistant"

pytestmark = pytest.mark.filterwarnings("ignore:.*hold their own question", "ignore:.*end with their own question")


def chat(name: str, *texts: str) -> dict:
    return {"id": name, "messages": [{"role": (U, A)[at % 2], "content": text} for at, text in enumerate(texts)]}


LOG = [chat("a", "q1", "Yes.", "q2", "No.", "q3"), chat("b", "q4", "Yes.", "q5", "Maybe.", "q6", "Yes.")]


def docnos(history: list[dict]) -> list[str]:
    return [message["docno"] for message in history if message["role"] == A]


def test_equal_answers_are_one_document() -> None:
    task = cs.topics.answers(cs.topics.from_messages(LOG))
    assert task.corpus == [
        {"docno": "a_1", "text": "Yes."},
        {"docno": "a_2", "text": "No."},
        {"docno": "b_2", "text": "Maybe."},
    ]
    assert task.qrels.values.tolist() == [
        ["a_1", "a_1", 1],
        ["a_2", "a_2", 1],
        ["b_1", "a_1", 1],
        ["b_2", "b_2", 1],
        ["b_3", "a_1", 1],
    ]
    assert [docnos(history) for history in task.topics.qhistory] == [
        [],
        ["a_1"],
        ["a_1", "a_2"],
        [],
        ["a_1"],
        ["a_1", "b_2"],
    ]


def test_answers_with_ids_of_their_own() -> None:
    task = cs.topics.answers(cs.topics.from_messages(LOG), "own-id")
    assert [document["docno"] for document in task.corpus] == ["a_1", "a_2", "b_1", "b_2", "b_3"]
    assert (task.qrels.qid == task.qrels.docno).all()
    assert [docnos(history) for history in task.topics.qhistory] == [
        [],
        ["a_1"],
        ["a_1", "a_2"],
        [],
        ["b_1"],
        ["b_1", "b_2"],
    ]


@pytest.mark.parametrize("duplicates", ["equal-text", "own-id"])
def test_the_order_of_rows_does_not_matter_nor_are_frames_changed(duplicates: str) -> None:
    topics = cs.topics.from_messages(LOG)
    before = json.dumps(topics.to_dict("records"))
    task = cs.topics.answers(topics.iloc[::-1], duplicates)
    assert json.dumps(topics.to_dict("records")) == before
    text = {document["docno"]: document["text"] for document in task.corpus}
    for history in task.topics.qhistory:
        assert all(text[message["docno"]] == message["content"] for message in history if message["role"] == A)


def log(rows: list[tuple[str, str, str, list[str]]], **columns: object) -> pd.DataFrame:
    """Rows of qid, query, answer, and a history in which user and assistant alternate."""
    frame = pd.DataFrame([row[:3] for row in rows], columns=["qid", "query", "answer"])
    frame["qhistory"] = [chat("", *row[3])["messages"] for row in rows]
    return frame.assign(**columns)


def test_answers_of_a_window_are_those_of_their_turns() -> None:
    """Histories of two turns at most. At a_4 the "Yes." of a_1 is gone: that of a_3 is meant, at a_5 those of a_3 and
    a_4; at a_6 the question tells; at a_7, of other words, the nearest before."""
    rows = [
        ("a_1", "q1", "Yes.", []),
        ("a_2", "q2", "No.", ["q1", "Yes."]),
        ("a_3", "q3", "Yes.", ["q1", "Yes.", "q2", "No."]),
        ("a_4", "q4", "Yes.", ["q2", "No.", "q3", "Yes."]),
        ("a_5", "q5", "Well.", ["q3", "Yes.", "q4", "Yes."]),
        ("a_6", "q6", "So.", ["q1", "Yes."]),
        ("a_7", "q7", "Oh.", ["other words", "Yes.", "q5", "Never."]),
        ("b_1", "q5", "Never.", []),
    ]
    task = cs.topics.answers(log(rows, conversation_id=["a"] * 7 + ["b"]), "own-id")
    assert [docnos(history) for history in task.topics.qhistory] == [
        [], ["a_1"], ["a_1", "a_2"], ["a_2", "a_3"], ["a_3", "a_4"], ["a_1"], ["a_4", "a_7:h4"], [],
    ]  # fmt: skip
    # the "Never." of b is another conversation's
    assert [document["docno"] for document in task.corpus] == [*(row[0] for row in rows), "a_7:h4"]
    # turns count, where they are told, whatever the order of the rows
    numbered = log(rows[:5], conversation_id="a", turn_number=range(1, 6)).iloc[::-1]
    assert [docnos(history) for history in cs.topics.answers(numbered, "own-id").topics.qhistory] == [
        ["a_3", "a_4"], ["a_2", "a_3"], ["a_1", "a_2"], ["a_1"], [],
    ]  # fmt: skip


def test_what_only_windows_hold_is_one_document() -> None:
    """Said twice in one history it is two, of which the later is the one known already."""
    rows = [
        ("a_2", "q2", "B", ["q0", "Z", "q1", "A"]),
        ("a_3", "q3", "C", ["q1", "A", "q2", "B"]),
        ("a_4", "q4", "D", ["q1", "A", "q1", "A"]),
    ]
    task = cs.topics.answers(log(rows, conversation_id="a"), "own-id")
    assert [docnos(history) for history in task.topics.qhistory] == [
        ["a_2:h2", "a_2:h4"], ["a_2:h4", "a_2"], ["a_4:h2", "a_2:h4"],
    ]  # fmt: skip


def test_conversations_that_begin_alike_need_their_ids() -> None:
    rows = [
        ("a1", "hi", "hello", []),
        ("a2", "x", "A", ["hi", "hello"]),
        ("b1", "hi", "hello", []),
        ("b2", "y", "B", ["hi", "hello"]),
    ]
    with pytest.warns(UserWarning, match=r"history of 2 questions \('a2', 'b2'\).*column 'conversation_id'"):
        task = cs.topics.answers(log(rows), "own-id")
    assert [docnos(history) for history in task.topics.qhistory] == [[], ["a1"], [], ["b1"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cs.topics.answers(log(rows))
        for order in (slice(None), slice(None, None, -1)):
            told = log(rows, conversation_id=list("aabb")).iloc[order]
            found = cs.topics.answers(told, "own-id").topics.set_index("qid")["qhistory"].map(docnos)
            assert found.to_dict() == {"a1": [], "a2": ["a1"], "b1": [], "b2": ["b1"]}
    # "A" was said after q1 at a2, not at the beginning, as far as the window of a3 tells
    with pytest.warns(UserWarning, match=r"history of 1 questions \('a3'\)"):
        task = cs.topics.answers(log([("a2", "q2", "A", ["q1", "Z"]), ("a3", "q3", "B", ["q2", "A"])]), "own-id")
    assert docnos(task.topics.qhistory[1]) == ["a3:h2"]


def test_a_branch_shows_the_answers_of_its_trunk() -> None:
    """As in CAsT 2022, where a branch is a conversation that begins with the turns of another."""
    rows = [
        ("1_1", "q1", "A", []),
        ("1_2", "q2", "B", ["q1", "A"]),
        ("2_2", "q3", "C", ["q1", "A", "u", "Z"]),
        ("3_3", "q4", "D", ["q1", "A", "u", "Z", "q3", "C"]),
        ("4_1", "q1", "E", ["q2", "B"]),
    ]
    task = cs.topics.answers(log(rows, conversation_id=["1", "1", "2", "3", "4"]), "own-id")
    assert [docnos(history) for history in task.topics.qhistory] == [
        [], ["1_1"], ["1_1", "2_2:h4"], ["1_1", "2_2:h4", "2_2"], ["4_1:h2"],
    ]  # fmt: skip


def test_the_own_answer_is_never_in_the_history() -> None:
    task = cs.topics.answers(cs.topics.from_messages(LOG), "own-id")
    for qid, history in zip(task.topics.qid, task.topics.qhistory, strict=True):
        assert qid not in docnos(history)


def test_empty_answers_are_left_out_and_histories_may_hold_more() -> None:
    topics = pd.DataFrame(
        {
            "qid": ["x", "y"],
            "query": ["q3", "q1"],
            "answer": [None, " "],
            "qhistory": [
                [
                    {"role": U, "content": "q"},
                    {"role": A, "content": "one", "docno": "theirs"},
                    {"role": A, "content": "two"},
                ],
                [],
            ],
        }
    )
    task = cs.topics.answers(topics)
    assert task.corpus == [{"docno": "x:h2", "text": "one\ntwo"}]
    assert docnos(task.topics.qhistory[0]) == ["x:h2", "x:h2"]
    assert len(task.topics) == 2
    assert task.qrels.columns.tolist() == ["qid", "docno", "label"]
    assert len(task.qrels) == 0


def test_no_question_has_the_id_of_an_answer_of_a_history() -> None:
    history = [{"role": A, "content": "welcome"}]
    topics = pd.DataFrame(
        {"qid": ["1", "1:h1"], "query": ["q1", "q2"], "qhistory": [history, []], "answer": ["one", "two"]}
    )
    task = cs.topics.answers(topics)
    assert [document["docno"] for document in task.corpus] == ["1", "1:h1", "1:h1'"]
    assert docnos(task.topics.qhistory[0]) == ["1:h1'"]


def test_several_messages_are_one_answer() -> None:
    log = [
        {
            "id": "c",
            "messages": [
                {"role": U, "content": "q1"},
                {"role": A, "content": "one"},
                {"role": A, "content": "two"},
                {"role": U, "content": "q2"},
            ],
        }
    ]
    for duplicates in ("equal-text", "own-id"):
        task = cs.topics.answers(cs.topics.from_messages(log), duplicates)
        assert task.corpus == [{"docno": "c_1", "text": "one\ntwo"}]
        assert docnos(task.topics.qhistory[1]) == ["c_1", "c_1"]
    log[0]["messages"] += [{"role": A, "content": "three"}, {"role": U, "content": "q3"}]
    for duplicates in ("equal-text", "own-id"):
        task = cs.topics.answers(cs.topics.from_messages(log), duplicates)
        assert task.corpus == [{"docno": "c_1", "text": "one\ntwo"}, {"docno": "c_2", "text": "three"}]
        assert docnos(task.topics.qhistory[2]) == ["c_1", "c_1", "c_2"]
        assert repr(task) == "Task(3 topics, 2 documents, 2 judgments)"


def test_errors_of_answers() -> None:
    topics = cs.topics.from_messages(LOG)
    with pytest.raises(ValueError, match="answer"):
        cs.topics.answers(topics.drop(columns="answer"))
    with pytest.raises(ValueError, match="duplicates"):
        cs.topics.answers(topics, "merge")
    assert len(cs.topics.answers(topics.head(0)).corpus) == 0


# responses

DIALOGUES = [
    {
        "dialogue_id": "d",
        "utterances": [
            ("ann", "u1"),
            ("ann", "u2"),
            ("bob", "yes"),
            ("bob", "sure"),
            ("ann", "u3"),
            ("cat", ""),
            ("cat", "np"),
        ],
    },
    {"dialogue_id": "e", "utterances": [("ann", "v1"), ("bob", "np"), ("cat", "np"), ("ann", "v2")]},
    {"dialogue_id": "f", "utterances": [("ann", "alone")]},
]


def test_responses_with_ids_of_their_own() -> None:
    task = cs.topics.responses(DIALOGUES)
    assert task.corpus == [
        {"docno": "d_1", "text": "yes sure"},
        {"docno": "d_3", "text": "np"},
        {"docno": "e_1", "text": "np"},
        {"docno": "e_2", "text": "np"},
    ]
    assert task.qrels.values.tolist() == [[name, name, 1] for name in ("d_1", "d_3", "e_1", "e_2")]
    assert task.topics["query"].tolist() == ["u2", "u3", "v1", "np"]
    assert task.topics.answer.tolist() == ["yes sure", "np", "np", "np"]
    assert cs.form(cs.X, sep=("[U]", "[T]"))(task.topics)["query"][1] == "u1 [U] u2 [T] yes [U] sure [T] u3"
    assert docnos(task.topics.qhistory[1]) == ["d_1", "d_1"]


def test_responses_of_equal_text() -> None:
    task = cs.topics.responses(DIALOGUES, "equal-text")
    assert len(task.corpus) == 4
    relevant = task.qrels.groupby("qid").docno.apply(list).to_dict()
    same = ["d_3", "e_1", "e_2"]
    assert relevant == {"d_1": ["d_1"], "d_3": same, "e_1": same, "e_2": same}


def test_joined_turns_and_another_user() -> None:
    task = cs.topics.responses(DIALOGUES[:1], join_turns=True)
    assert task.topics["query"].tolist() == ["u1 u2", "u3"]
    assert [message["content"] for message in task.topics.qhistory[1]] == ["u1 u2", "yes sure"]
    task = cs.topics.responses(DIALOGUES[:1], user="bob")
    assert [document["text"] for document in task.corpus] == ["u3", "np"]
    with pytest.raises(ValueError, match="duplicates"):
        cs.topics.responses(DIALOGUES, "x")


# real data

RENAMED = {"history": "qhistory", "rewrite": "qrewrite", "turn": "turn_number"}


def test_a_user_who_speaks_nowhere_is_said() -> None:
    """Else every turn would be a response, and the user's own questions among them."""
    for user in ("nobody", ["x", "y"], lambda name: name == "nobody"):
        with pytest.raises(ValueError, match="speaks in none of the dialogues; speakers are ann, bob, cat"):
            cs.topics.responses(DIALOGUES, user=user)
    # one who speaks in some is enough
    assert cs.topics.responses(DIALOGUES, user="cat").topics["qid"].tolist()
    assert len(cs.topics.responses([], user="nobody").corpus) == 0


def test_qrecc(realdata) -> None:
    folder = realdata / "qrecc-dev2k"
    parts = [
        cs.topics.read(folder / f"{name}.topics.jsonl{end}", columns=RENAMED)
        for name, end in (("train", ".gz"), ("dev", ""), ("test", ""))
    ]
    assert [len(part) for part in parts] == [2971, 456, 927]
    topics = pd.concat(parts, ignore_index=True)
    assert topics.qrewrite.notna().sum() == 1564
    task = cs.topics.answers(topics)
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as handle:
        theirs = {record["text"]: record["docno"] for record in map(json.loads, handle)}
    assert len(task.corpus) == 3944
    assert {document["text"] for document in task.corpus} == set(theirs)
    assert len(task.qrels) == 4015
    # history messages point to the same documents as the published ones do
    text = {document["docno"]: document["text"] for document in task.corpus}
    ours = [[theirs[text[docno]] for docno in docnos(history)] for history in task.topics.qhistory]
    assert ours == [docnos(history) for history in topics.qhistory]
    assert len(cs.topics.answers(topics, "own-id").corpus) == 4015


def test_irc_instances_are_those_of_the_tsv(realdata) -> None:
    folder = realdata / "irc-dialogues"
    task = cs.topics.responses(folder / "dev.jsonl", join_turns=True)
    contexts = cs.form(cs.X, sep="\t")(task.topics)["query"]
    ours = [f"1\t{context}\t{answer}" for context, answer in zip(contexts, task.topics.answer, strict=True)]
    theirs = (folder / "dev.tsv").read_text(encoding="utf-8").split("\n")
    assert ours == theirs[:-1]
    assert len(ours) == 780


def test_mtrag_and_cast(realdata) -> None:
    human = cs.topics.read(realdata / "mtrag/mini/human.topics.jsonl", columns=RENAMED)
    assert (len(human), human.conversation_id.nunique()) == (777, 110)
    assert len(cs.topics.read(realdata / "mtrag/mini/un.topics.jsonl", columns=RENAMED)) == 507
    counts = {
        "2019/evaluation_topics_v1.0.json": (50, 479),
        "2020/2020_manual_evaluation_topics_v1.0.json": (25, 216),
        "2021/2021_manual_evaluation_topics_v1.0.json": (26, 239),
    }
    for name, (conversations, turns) in counts.items():
        topics = cs.topics.read(realdata / "cast" / name)
        assert (topics.conversation_id.nunique(), len(topics)) == (conversations, turns)
    assert len(topics.qhistory[5]) == 10
    mini = cs.topics.from_turns(realdata / "cast/cast21-mini/topics.jsonl")
    assert len(mini) == 239
