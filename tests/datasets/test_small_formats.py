"""OR-QuAC, TopiOCQA, CANARD and QuAC, in tiny files of the form that their distributors publish."""

from __future__ import annotations

import gzip
import json
import zipfile

import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.topiocqa import read_segments

C = "C_69758fcdfc1f46baba0e92c0f3b0919c_1"


def lines(values) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def or_quac_turn(number, question, rewrite, history, answer):
    return {
        "qid": f"{C}_q#{number}",
        "question": question,
        "rewrite": rewrite,
        "history": history,
        "answer": {"text": answer, "answer_start": 0},
        "evidences": ["text"],
        "retrieval_labels": [1],
    }


@pytest.fixture
def or_quac(tmp_path):
    first = {"question": "When was Malayali born?", "answer": {"text": "CANNOTANSWER", "answer_start": 9}, "yesno": "x"}
    second = {"question": "Where?", "answer": {"text": "In Kerala.", "answer_start": 9}}
    turns = [
        or_quac_turn(0, "When was Malayali born?", "When was Malayali born?", [], "CANNOTANSWER"),
        or_quac_turn(1, "Where?", "Where was Malayali born?", [first], "In Kerala."),
        or_quac_turn(10, "Who?", "Who was Malayali?", [first, second], "A poet."),
    ]
    (tmp_path / "preprocessed").mkdir()
    (tmp_path / "preprocessed" / "dev.txt").write_text(lines(turns), encoding="utf-8")
    (tmp_path / "qrels.txt").write_text(
        json.dumps({f"{C}_q#0": {"p@1": 1}, "C_other_q#0": {"p@2": 1}}), encoding="utf-8"
    )
    blocks = [{"id": "1_0@3", "title": "Kerala", "text": "Kerala is …", "aid": "1", "bid": 0}]
    (tmp_path / "all_blocks.txt.gz").write_bytes(gzip.compress(lines(blocks).encode()))
    (tmp_path / "dev_blocks.txt").write_text(lines(blocks * 1), encoding="utf-8")
    return tmp_path


def test_or_quac(or_quac):
    data = cs.dataset("or-quac/dev", path=or_quac)
    topics = data.get_topics().set_index("qid")
    assert topics.index.tolist() == [f"{C}_q#0", f"{C}_q#1", f"{C}_q#10"]
    assert topics["conversation_id"].unique().tolist() == [C]
    assert topics["turn_number"].tolist() == [1, 2, 11]  # the number after the last '#', as a number
    assert topics["answer"].tolist() == ["", "In Kerala.", "A poet."]
    assert topics["qfirst_rewritten"].tolist() == [True, True, True]
    assert topics["qhistory"].iloc[2] == [
        {"role": "user", "content": "When was Malayali born?"},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "In Kerala."},
    ]
    questions = data.get_topics("questions")
    assert [message["role"] for message in questions["qhistory"][2]] == ["user", "user"]
    assert data.get_qrels().values.tolist() == [[f"{C}_q#0", "p@1", 1]]  # the other split's question is left out
    assert list(data.get_corpus_iter()) == [{"docno": "1_0@3", "text": "Kerala is …", "title": "Kerala"}]
    assert len(list(cs.dataset("or-quac/dev", path=or_quac, collection="dev").get_corpus_iter())) == 1
    assert (
        data.counts["turns"] + cs.dataset("or-quac/train").counts["turns"] + cs.dataset("or-quac/test").counts["turns"]
        == 40527
    )


def test_or_quac_faults(or_quac):
    place = or_quac / "preprocessed" / "dev.txt"
    place.write_text(place.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev\.txt, line 3: not valid JSON"):
        cs.dataset("or-quac/dev", path=or_quac).get_topics()
    place.write_text(lines([{"qid": "C_1", "question": "a"}]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev\.txt, line 1: qid 'C_1' does not end with '#'"):
        cs.dataset("or-quac/dev", path=or_quac).get_topics()


def topiocqa_turn(conversation, number, question, answer, topic, section, context):
    return {
        "Conversation_no": conversation,
        "Turn_no": number,
        "Question": question,
        "Answer": answer,
        "Topic": topic,
        "Topic_section": section,
        "Rationale": "r",
        "is_nq": number == 1,
        "Context": context,
        "Additional_answers": [],
        "Gold_passage": {"id": f"wiki:{conversation}{number}", "title": topic, "text": "t"},
    }


TOPIOCQA = [
    topiocqa_turn(1, 1, "who?", "Zack", "RATM", "Intro", []),
    topiocqa_turn(1, 2, "when?", "1991", "RATM", "History", ["who?", "Zack"]),
    topiocqa_turn(1, 3, "its author?", "", "Dune", "Intro", ["who?", "Zack", "when?", "1991"]),
    topiocqa_turn(2, 1, "what?", "x", "Dune", "Intro", []),
]


def test_topiocqa(tmp_path):
    (tmp_path / "topiocqa_dev.json").write_text(json.dumps(TOPIOCQA), encoding="utf-8")
    data = cs.dataset("topiocqa/dev", path=tmp_path)
    topics = data.get_topics()
    assert topics["qid"].tolist() == ["dev-1-1", "dev-1-2", "dev-1-3", "dev-2-1"]
    assert topics["conversation_id"].tolist() == ["dev-1"] * 3 + ["dev-2"]
    assert topics["qtype"].tolist() == ["first", "no-switch", "switch", "first"]
    assert data.get_topics("sections")["qtype"].tolist() == ["first", "switch", "switch", "first"]
    assert topics["qsection"].tolist() == ["Intro", "History", "Intro", "Intro"]
    assert [message["content"] for message in topics["qhistory"][2]] == ["who?", "Zack", "when?", "1991"]
    assert data.get_qrels("turns").values.tolist()[0] == ["dev-1-1", "11", 1]
    (tmp_path / "topiocqa_dev.json").write_text(lines(TOPIOCQA), encoding="utf-8")  # JSON Lines, as on the hub
    assert data.get_topics().equals(topics)


def test_topiocqa_gold_passages(tmp_path):
    (tmp_path / "gold_passages_info" / "all_history").mkdir(parents=True)
    place = tmp_path / "gold_passages_info" / "all_history" / "dev.json"
    passage = {"title": "RATM [SEP] Intro", "text": "t", "passage_id": "7018"}
    turns = [
        {"conv_id": 1, "turn_id": 1, "question": "who?", "answers": ["Zack"], "positive_ctxs": [passage]},
        {
            "conv_id": 1,
            "turn_id": 2,
            "question": "who? [SEP] Zack [SEP] when?",
            "answers": [],
            "positive_ctxs": [{**passage, "passage_id": 9}],
        },
    ]
    place.write_text(json.dumps(turns), encoding="utf-8")
    data = cs.dataset("topiocqa/dev", path=tmp_path)
    assert data.get_qrels().values.tolist() == [["dev-1-1", "7018", 1], ["dev-1-2", "9", 1]]
    topics = data.get_topics("gold")
    assert topics["query"].tolist() == ["who?", "when?"]
    assert topics["qhistory"][1] == [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "Zack"}]
    assert topics["answer"].tolist() == ["Zack", ""]


def test_topiocqa_segments_are_unquoted_as_csv_writes_them(tmp_path):
    place = tmp_path / "full_wiki_segments.tsv"
    place.write_text('id\ttext\ttitle\n1\t"He said ""no""."\tDune [SEP] Intro\n2\ta "b" c\t"\n', encoding="utf-8")
    assert list(read_segments(place)) == [
        {"docno": "1", "text": 'He said "no".', "title": "Dune Intro"},
        {"docno": "2", "text": 'a "b" c', "title": '"'},
    ]
    place.write_text("id\ttext\ttitle\n1\tcut", encoding="utf-8")
    with pytest.raises(ValueError, match=r"full_wiki_segments\.tsv, line 2: 2 tab-separated fields"):
        list(read_segments(place))


def test_canard_in_its_archive(tmp_path):
    rows = [
        {
            "History": ["Malayali", "Language"],
            "QuAC_dialog_id": C,
            "Question": "What?",
            "Question_no": 1,
            "Rewrite": "What is Malayali?",
        },
        {
            "History": ["Malayali", "Language", "What?", "CANNOTANSWER"],
            "QuAC_dialog_id": C,
            "Question": "Who?",
            "Question_no": 2,
            "Rewrite": "Who speaks it?",
        },
        {
            "History": ["Malayali", "Language", "What?", "CANNOTANSWER", "Who?", "Millions."],
            "QuAC_dialog_id": C,
            "Question": "Where?",
            "Question_no": 3,
            "Rewrite": "Where?",
        },
    ]
    with zipfile.ZipFile(tmp_path / "CANARD_Release.zip", "w") as archive:
        archive.writestr("CANARD_Release/dev.json", json.dumps(rows))
        archive.writestr("__MACOSX/CANARD_Release/._dev.json", "junk")
    topics = cs.dataset("canard/dev", path=tmp_path).get_topics()
    assert topics["qid"].tolist() == [f"{C}_q#0", f"{C}_q#1", f"{C}_q#2"]
    assert topics["qrewrite"].tolist() == ["What is Malayali?", "Who speaks it?", "Where?"]
    # neither the page's title nor the section's is history
    assert [[message["content"] for message in history] for history in topics["qhistory"]] == [
        [],
        ["What?"],
        ["What?", "Who?", "Millions."],
    ]
    assert topics["answer"].tolist() == ["", "Millions.", ""]
    assert topics["qtitle"].unique().tolist() == ["Malayali"]
    bad = tmp_path / "dev.json"
    bad.write_text(json.dumps([{**rows[0], "History": ["Malayali", "Language", "What?"]}]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev\.json, line 1: 'History' is two titles and then"):
        cs.dataset("canard/dev", path=tmp_path).get_topics()


def test_quac(tmp_path):
    qas = [
        {
            "id": f"{C}_q#0",
            "question": "What?",
            "orig_answer": {"text": "CANNOTANSWER"},
            "answers": [],
            "followup": "y",
            "yesno": "x",
        },
        {
            "id": f"{C}_q#1",
            "question": "Who?",
            "orig_answer": {"text": "Millions."},
            "answers": [],
            "followup": "y",
            "yesno": "x",
        },
        {
            "id": f"{C}_q#2",
            "question": "Where?",
            "orig_answer": {"text": "There."},
            "answers": [],
            "followup": "y",
            "yesno": "x",
        },
    ]
    section = {
        "paragraphs": [{"id": C, "context": "…", "qas": qas}],
        "title": "Malayali",
        "section_title": "Language",
        "background": "…",
    }
    (tmp_path / "val_v0.2.json").write_text(json.dumps({"data": [section]}), encoding="utf-8")
    topics = cs.dataset("quac/val", path=tmp_path).get_topics()
    assert topics["answer"].tolist() == ["", "Millions.", "There."]
    assert [[message["content"] for message in history] for history in topics["qhistory"]] == [
        [],
        ["What?"],
        ["What?", "Who?", "Millions."],
    ]
    assert topics["qsection"].unique().tolist() == ["Language"]
    (tmp_path / "val_v0.2.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="an object with 'data' is due"):
        cs.dataset("quac/val", path=tmp_path).get_topics()
