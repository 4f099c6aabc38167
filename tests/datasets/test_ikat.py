"""iKAT's files as published, and 2025's other names."""

from __future__ import annotations

import bz2
import json

import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.ikat import read_topics

pytestmark = pytest.mark.filterwarnings("ignore:.*histories hold their own question")


@pytest.mark.parametrize(
    ("year", "turns", "conversations"), [("2023", 332, 25), ("2023/train", 95, 11), ("2024", 218, 17)]
)
def test_counts_of_the_published_files(realdata, year, turns, conversations):
    data = cs.dataset(f"ikat/{year}", path=realdata / "ikat-topics")
    topics = data.get_topics()
    assert (len(topics), topics["conversation_id"].nunique()) == (turns, conversations)
    assert (data.counts["turns"], data.counts["conversations"]) == (turns, conversations)
    assert topics["qrewrite"].notna().all()
    assert (topics["qid"] == topics["conversation_id"] + "_" + topics["turn_number"].astype(str)).all()


def test_statements_stand_in_a_column(realdata):
    topics = cs.dataset("ikat/2023", path=realdata / "ikat-topics").get_topics().set_index("qid")
    first, second = topics.loc["9-1_1"], topics.loc["9-1_2"]
    assert len(first["qptkb"]) == 10
    assert first["qptkb"][4] == {"id": "5", "text": "I'm vegetarian."}
    assert first["qptkb_ids"] == ["5", "4", "2"]
    assert first["qprovenance"][0] == "clueweb22-en0035-25-01897:1"
    assert [message["role"] for message in second["qhistory"]] == ["user", "assistant"]
    assert "docno" not in second["qhistory"][1]  # the response was written from five passages
    numbers = cs.dataset("ikat/2024", path=realdata / "ikat-topics").get_topics()["conversation_id"].unique()
    assert numbers.tolist() == [str(number) for number in range(17)]  # integers in the file of that year


def test_resolved_utterances_as_queries(realdata):
    data = cs.dataset("ikat/2024", path=realdata / "ikat-topics")
    assert data.get_topics().set_index("qid").loc["0_2", "query"] == "Oh, do I need a visa?"
    resolved = data.get_topics("resolved").set_index("qid")
    assert resolved.loc["0_2", "query"] == "Oh, do I need a visa to visit Egypt as an American citizen?"
    assert resolved.loc["0_3", "qhistory"][2]["content"] == "Oh, do I need a visa?"


def test_judgments_of_statements(realdata):
    data = cs.dataset("ikat/2023", path=realdata / "ikat-topics")
    topics = data.get_topics().set_index("qid")
    # 1,030 lines: the last has no line end
    for variant, rows in (("ptkb-nist", 1030), ("ptkb-organisers", 1158)):
        qrels = data.get_qrels(variant)
        assert len(qrels) == rows
        ids = {(qid, one["id"]) for qid in qrels["qid"].unique() for one in topics.loc[qid, "qptkb"]}
        assert set(zip(qrels["qid"], qrels["docno"], strict=True)) <= ids
    with pytest.raises(NotImplementedError, match="no published judgments"):
        cs.dataset("ikat/2023/train").get_qrels()


TOPIC_2025 = {
    "number": "1-1",
    "title": "Acid reflux",
    "ptkb": ["I like pizza.", "I eat late."],
    "responses": [
        {
            "turn_id": 1,
            "user_utterance": "Food?",
            "resolved_utterance": "Food for reflux?",
            "response": "Fruit.",
            "relevant_ptkbs": ["I eat late."],
            "citations": ["clueweb22-en0022-52-08268:1"],
        },
        {
            "turn_id": 2,
            "user_utterance": "Yes.",
            "resolved_utterance": "Yes, reflux.",
            "response": "",
            "relevant_ptkbs": [],
            "citations": [],
        },
    ],
}


def test_names_of_2025(tmp_path):
    (tmp_path / "2025_test_topics.json").write_text(json.dumps([TOPIC_2025]), encoding="utf-8")
    topics = cs.dataset("ikat/2025", path=tmp_path).get_topics()
    assert topics["query"].tolist() == ["Food?", "Yes."]
    assert topics["qptkb_ids"].tolist() == [["2"], []]
    assert topics["qhistory"][1][1] == {
        "role": "assistant",
        "content": "Fruit.",
        "docno": "clueweb22-en0022-52-08268:1",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ptkb": ["a"]}, "names the statement 'I eat late.'"),
        ({"responses": None}, "no field 'responses'"),
        ({"responses": [{"turn_id": 1}]}, "no field 'user_utterance'"),
        ({"responses": [{"turn_id": "1", "user_utterance": "x"}]}, "'turn_id' holds '1'"),
        ({"ptkb": [1]}, "a statement that is no text"),
    ],
)
def test_what_is_no_topic_is_named(tmp_path, change, message):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{**TOPIC_2025, **change}]), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"t\.json, line 1 \(topic 1-1\).*{message}"):
        read_topics(path)


def test_passages_of_licensees(tmp_path):
    (tmp_path / "passages").mkdir()
    for number in range(2):
        line = json.dumps({"id": f"clueweb22-en0004-50-0017{number}:0", "contents": "text", "url": "u"})
        (tmp_path / "passages" / f"{number}.jsonl.bz2").write_bytes(bz2.compress(line.encode()))
    found = list(cs.dataset("ikat/2023", files={"corpus": tmp_path / "passages"}).get_corpus_iter())
    assert [one["docno"] for one in found] == ["clueweb22-en0004-50-00170:0", "clueweb22-en0004-50-00171:0"]
    with pytest.raises(FileNotFoundError, match="licence from CMU"):
        next(cs.dataset("ikat/2023", offline=True).get_corpus_iter())
