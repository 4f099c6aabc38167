"""MTRAG and MTRAG-UN as IBM publishes them."""

from __future__ import annotations

import json
import zipfile

import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.mtrag import read_tasks

pytestmark = pytest.mark.filterwarnings("ignore:.*histories hold their own question")


def test_retrieval_tasks(realdata):
    data = cs.dataset("mtrag", path=realdata / "mtrag" / "distributed")
    topics, qrels = data.get_topics(), data.get_qrels()
    assert (len(topics), topics["conversation_id"].nunique()) == (777, 110)
    assert set(qrels["qid"]) == set(topics["qid"])
    assert topics["qid"].str.contains("<::>", regex=False).all()
    texts = [*topics["query"], *topics["qrewrite"], *(m["content"] for history in topics["qhistory"] for m in history)]
    assert not [text for text in texts if "|user|" in text or text != text.strip()]
    assert (topics["qhistory"].map(len) == topics["turn_number"] - 1).all()
    row = topics.set_index("qid").loc["e9dd465e8dd63a80dda8f3ce9cba6848<::>2"]
    assert row["query"] == "Which is more important?"
    assert row["qrewrite"] == "Which one is more important, Market Cap or NAV?"
    assert row["qhistory"] == [{"role": "user", "content": "What's the difference between Market Cap and NAV?"}]


def test_one_domain_of_four(realdata):
    folder = realdata / "mtrag" / "distributed"
    counts = {
        domain: len(cs.dataset(f"mtrag/{domain}", path=folder).get_topics())
        for domain in ("clapnq", "cloud", "fiqa", "govt")
    }
    assert counts == {"clapnq": 208, "cloud": 188, "fiqa": 180, "govt": 201}
    data = cs.dataset("mtrag/fiqa", path=folder)
    assert len(data.get_qrels()) == 535  # 536 lines and a header less
    assert data.counts == {"turns": 180, "passages": 49607}


def test_un_tasks(realdata):
    data = cs.dataset("mtrag-un", path=realdata / "mtrag" / "distributed")
    topics, qrels = data.get_topics(), data.get_qrels()
    assert (len(topics), topics["conversation_id"].nunique()) == (507, 507)
    assert (len(qrels), qrels["qid"].nunique()) == (851, 332)
    assert set(qrels["qid"]) <= set(topics["qid"])
    assert topics["qdomain"].value_counts().to_dict() == {"govt": 157, "clapnq": 142, "cloud": 131, "fiqa": 77}
    assert topics["qanswerability"].value_counts().to_dict() == {
        "ANSWERABLE": 285,
        "UNANSWERABLE": 97,
        "UNDERSPECIFIED": 78,
        "PARTIAL": 47,
    }
    without = topics[~topics["qid"].isin(set(qrels["qid"]))]
    assert (without["qprovenance"].map(len) > 0).sum() == 45
    seventh = topics.iloc[0]
    assert seventh["turn_number"] == 7
    assert [message["role"] for message in seventh["qhistory"]] == ["user", "assistant"] * 6
    assert seventh["query"] == "I mean current EV's battery does not stand for a used car market...how do you think?"


def test_un_tasks_equal_the_small_copy(realdata):
    full = cs.dataset("mtrag-un", path=realdata / "mtrag" / "distributed").get_topics().set_index("qid")
    data = cs.dataset("mtrag-mini/un", path=realdata / "mtrag" / "mini")
    mini = data.get_topics().set_index("qid").loc[full.index]
    assert full["query"].tolist() == mini["query"].tolist()
    assert full["qhistory"].tolist() == mini["qhistory"].tolist()
    docnos = [one["docno"] for one in data.get_corpus_iter()]
    assert len(docnos) == len(set(docnos)) == 1712
    assert set(data.get_qrels()["docno"]) <= set(docnos)


def test_human_small_copy(realdata):
    data = cs.dataset("mtrag-mini/human", path=realdata / "mtrag" / "mini")
    topics = data.get_topics()
    assert topics["qtype"].value_counts().to_dict() == {
        "switch": 345,
        "no-switch": 260,
        "first": 110,
        "switch-back": 62,
    }
    assert data.get_qrels()["qid"].nunique() == 262
    assert data.get_qrels("all")["qid"].nunique() == 777
    published = json.loads((realdata / "mtrag" / "mini" / "human.question_types.json").read_text(encoding="utf-8"))
    assert data.get_question_types() == {qid: label for label, qids in published.items() for qid in qids}
    human = cs.dataset("mtrag", path=realdata / "mtrag" / "distributed").get_topics().set_index("qid")
    assert topics["query"].tolist() == human.loc[topics["qid"], "query"].tolist()


def write_tasks(folder, questions, last, rewrite):
    places = []
    for name, rows in (("questions", questions), ("lastturn", last), ("rewrite", rewrite)):
        place = folder / f"{name}.jsonl"
        place.write_text("".join(json.dumps({"_id": qid, "text": text}) + "\n" for qid, text in rows), encoding="utf-8")
        places.append(place)
    return places


def test_files_are_joined_by_id_and_what_one_lacks_is_named(tmp_path):
    questions = [("c<::>1", "|user|: A?"), ("c<::>2", "|user|: A?\n|user|: B?")]
    places = write_tasks(
        tmp_path,
        questions,
        [("c<::>2", "|user|:  B? "), ("c<::>1", "|user|: A?")],
        [("c<::>2", "|user|: BB?"), ("d<::>1", "|user|: D?")],
    )
    with pytest.warns(
        UserWarning, match=r"rewrite\.jsonl has 1 of the 2 tasks of .*questions\.jsonl, and 1 others \('d<::>1'\)"
    ):
        topics = read_tasks(*places, domain="govt")
    assert topics["qrewrite"].isna().tolist() == [True, False]
    assert topics["qrewrite"][1] == "BB?"


@pytest.mark.parametrize(
    ("questions", "last", "message"),
    [
        ([("c<::>2", "|user|: A?")], [], r"questions\.jsonl, line 1: 1 questions are said at turn 2"),
        ([("c_1", "|user|: A?")], [], r"questions\.jsonl, line 1: id 'c_1' is not"),
        ([("c<::>1", "A?")], [], r"questions\.jsonl, line 1: the text does not begin with"),
        ([("c<::>1", "|user|: A?")], [("c<::>1", "|user|: B?")], r"line 1: 'c<::>1' ends with another question"),
        (
            [("c<::>1", "|user|: A?")] * 2,
            [("c<::>1", "|user|: A?")],
            r"line 2: question 'c<::>1' stands in line 1 already",
        ),
        ([("c<::>1", "|user|: A?")], [("c<::>1", "|user|: A?\n|user|: B?")], r"lastturn\.jsonl, line 1: 2 questions"),
    ],
)
def test_files_that_disagree_are_refused(tmp_path, questions, last, message):
    with pytest.raises(ValueError, match=message):
        read_tasks(*write_tasks(tmp_path, questions, last, []), domain="govt")


def test_conversations_come_from_the_generation_tasks(tmp_path, realdata):
    source = realdata / "mtrag" / "distributed" / "mtrag-human" / "retrieval_tasks" / "govt"
    topics = cs.dataset("mtrag/govt", path=source).get_topics()
    lines = []
    for row in topics.itertuples():
        said = [
            {"speaker": who, "text": text}
            for message in row.qhistory
            for who, text in (("user", message["content"]), ("agent", "Yes."))
        ]
        lines.append(
            {
                "task_id": row.qid,
                "input": [*said, {"speaker": "user", "text": row.query}],
                "targets": [{"speaker": "agent", "text": "No."}],
                "Collection": "mt-rag-govt-elser-512-100-20240611",
            }
        )
    (tmp_path / "reference.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    data = cs.dataset("mtrag/govt", path=source, files={"reference": tmp_path / "reference.jsonl"})
    full = data.get_topics("conversations")
    assert full["qhistory"].map(len).tolist() == (2 * (topics["turn_number"] - 1)).tolist()
    assert full["answer"].unique().tolist() == ["No."]
    (tmp_path / "reference.jsonl").write_text(json.dumps(lines[0]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="200 of 201 retrieval tasks are not in it"):
        data.get_topics("conversations")


def test_passages_of_one_domain_and_of_all(tmp_path):
    for domain in ("clapnq", "cloud", "fiqa", "govt"):
        with zipfile.ZipFile(tmp_path / f"{domain}.jsonl.zip", "w") as archive:
            archive.writestr(
                f"{domain}.jsonl", json.dumps({"_id": f"{domain}-0-9", "title": "T", "text": " a", "url": "u"})
            )
    assert [one["docno"] for one in cs.dataset("mtrag", path=tmp_path).get_corpus_iter()] == [
        "clapnq-0-9",
        "cloud-0-9",
        "fiqa-0-9",
        "govt-0-9",
    ]
    assert list(cs.dataset("mtrag-un/fiqa", path=tmp_path).get_corpus_iter()) == [
        {"docno": "fiqa-0-9", "text": " a", "title": "T"}
    ]
