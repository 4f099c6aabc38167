"""Folders of one's own: our layout, BEIR's, the one with splits; and what a check says of them."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets import check

pytestmark = pytest.mark.filterwarnings("ignore:.*histories hold their own question")


def write(folder: Path, files: dict[str, object]) -> Path:
    for name, value in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(value, str | bytes):
            value = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in value)  # type: ignore[attr-defined]
        raw = value.encode("utf-8") if isinstance(value, str) else value
        place.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder


TOPICS = [
    {
        "qid": "c_1",
        "query": "Who wrote Dune?",
        "qhistory": [],
        "conversation_id": "c",
        "turn_number": 1,
        "answer": "Frank Herbert.",
    },
    {
        "qid": "c_2",
        "query": "When?",
        "qhistory": ["Who wrote Dune?", "Frank Herbert."],
        "conversation_id": "c",
        "turn_number": 2,
        "qrewrite": "When was Dune written?",
    },
]
CORPUS = [{"docno": "d1", "text": "Frank Herbert wrote Dune."}, {"docno": "NA", "text": "In 1965.", "title": "Dune"}]
QRELS = "c_1 0 d1 1\nc_2 0 NA 1\n"


def test_own_layout(tmp_path):
    write(tmp_path, {"topics.jsonl": TOPICS, "corpus.jsonl.gz": CORPUS, "qrels.txt": QRELS})
    data = pt.get_dataset(f"convsearch:folder:{tmp_path}")
    topics = data.get_topics()
    assert topics["qhistory"][1] == [
        {"role": "user", "content": "Who wrote Dune?"},
        {"role": "assistant", "content": "Frank Herbert."},
    ]
    assert topics["qrewrite"].isna().tolist() == [True, False]
    assert data.get_qrels()["docno"].tolist() == ["d1", "NA"]
    assert list(data.get_corpus_iter())[1] == {"docno": "NA", "text": "In 1965.", "title": "Dune"}
    assert list(data.get_corpus_iter()) == list(data.get_corpus_iter())  # a fresh iterator each time
    again = pickle.loads(pickle.dumps(data))
    assert again.get_topics().equals(topics)


def test_beir_layout(tmp_path):
    write(
        tmp_path,
        {
            "queries.jsonl": [
                {"_id": "007", "text": "Who?", "metadata": {"a": 1}},
                {"_id": "2", "text": "When?", "metadata": {}},
            ],
            "corpus.jsonl": [{"_id": "d1", "title": "", "text": "x", "metadata": {}}],
            "qrels/test.tsv": "query-id\tcorpus-id\tscore\n007\td1\t1\n",
            "qrels/dev.tsv": "query-id\tcorpus-id\tscore\n2\td1\t1\n",
        },
    )
    data = cs.dataset(f"folder:{tmp_path}", split="test")
    assert data.get_topics()["qid"].tolist() == ["007", "2"]
    assert data.get_topics()["qhistory"].tolist() == [[], []]
    assert data.get_qrels().values.tolist() == [["007", "d1", 1]]
    assert data.get_qrels("dev").values.tolist() == [["2", "d1", 1]]
    with pytest.raises(ValueError, match="has the splits dev, test: choose one with split="):
        cs.dataset(f"folder:{tmp_path}").get_qrels()


@pytest.mark.parametrize(("split", "turns"), [("train", 2971), ("dev", 456), ("test", 927)])
def test_layout_with_splits(realdata, split, turns):
    folder = realdata / "qrecc-dev2k"
    data = cs.dataset(f"folder:{folder}", split=split)
    topics, qrels = data.get_topics(), data.get_qrels()
    assert len(topics) == turns
    assert set(qrels["qid"]) <= set(topics["qid"])
    assert {"qsource", "qpage_type", "qtype"} & set(topics) == {"qsource", "qtype"}  # page_type is the type
    # what the agent says carries the docno of its answer, judged right for the turn before
    answered = topics[topics["qhistory"].map(len) > 0].iloc[0]
    assert {message["role"] for message in answered["qhistory"]} <= {"user", "assistant"}
    assert all("docno" in message for message in answered["qhistory"] if message["role"] == "assistant")


def test_layout_with_splits_in_all(realdata):
    folder = realdata / "qrecc-dev2k"
    frames = [cs.dataset(f"folder:{folder}", split=split) for split in ("train", "dev", "test")]
    assert sum(len(data.get_qrels()) for data in frames) == 4015
    assert sum(data.get_topics()["conversation_id"].nunique() for data in frames) == 986
    docnos = {one["docno"] for one in frames[0].get_corpus_iter()}
    assert len(docnos) == 3944
    with pytest.raises(ValueError, match="has the splits dev, test, train: choose one"):
        cs.dataset(f"folder:{folder}").get_topics()


@pytest.mark.parametrize(
    "changed",
    [
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        gzip.compress,  # without .gz in the name
        lambda raw: raw.rstrip(b"\n"),
        lambda raw: raw + b"\n \n",
    ],
    ids=["bom", "windows", "gzip", "no last line end", "blank lines"],
)
def test_files_as_other_programs_leave_them(tmp_path, changed):
    plain = write(tmp_path / "plain", {"topics.jsonl": TOPICS, "corpus.jsonl": CORPUS, "qrels.txt": QRELS})
    other = {path.name: changed(path.read_bytes()) for path in plain.iterdir()}
    ours, theirs = cs.dataset(f"folder:{plain}"), cs.dataset(f"folder:{write(tmp_path / 'other', other)}")
    assert theirs.get_topics().equals(ours.get_topics())
    assert theirs.get_qrels().equals(ours.get_qrels())
    assert list(theirs.get_corpus_iter()) == list(ours.get_corpus_iter())


def test_a_log_in_place_of_topics_is_told_how_it_becomes_topics(tmp_path):
    log = [{"id": "c", "messages": [{"role": "user", "content": "Who?"}]}]
    write(tmp_path, {"topics.jsonl": log, "corpus.jsonl": CORPUS, "qrels.txt": QRELS})
    with pytest.raises(ValueError, match=r"no field 'query' .*becomes topics by cs\.topics\.read"):
        cs.dataset(f"folder:{tmp_path}").get_topics()


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder"):
        cs.dataset(f"folder:{tmp_path / 'none'}")
    data = cs.dataset(f"folder:{tmp_path}")
    for method, name in (
        ("get_topics", "topics.jsonl"),
        ("get_qrels", "qrels.txt"),
        ("get_corpus_iter", "corpus.jsonl"),
    ):
        with pytest.raises(FileNotFoundError, match=name):
            getattr(data, method)()
    with pytest.raises(ValueError, match="files= takes topics, corpus, qrels"):
        cs.dataset(f"folder:{tmp_path}", files={"runs": "x"})
    with pytest.raises(ValueError, match="say which folder"):
        cs.dataset("folder")


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ({"query": "a"}, "no field 'qid'"),
        ({"qid": "1"}, "no field 'query'"),
        ({"qid": "1", "query": 7}, "'query' holds 7"),
        ({"qid": "", "query": "a"}, "an empty id"),
        ({"qid": "1", "query": "a", "turn": "x"}, "the turn is 'x'"),
        ({"qid": "1", "query": "a", "history": [{"speaker": "bot", "text": "x"}]}, "the role 'bot'"),
        ({"qid": True, "query": "a"}, "'qid' holds True"),
        ({"qid": "1", "query": "a", "turn": 2}, "question '0' has no turn_number"),
    ],
)
def test_what_is_no_topic_is_named_by_file_and_line(tmp_path, topic, message):
    write(tmp_path, {"topics.jsonl": [{"qid": "0", "query": "fine"}, topic]})
    with pytest.raises(ValueError, match=rf"topics\.jsonl, line [12].*{message}"):
        cs.dataset(f"folder:{tmp_path}").get_topics()


def test_ids_that_are_numbers_become_text_and_formed_columns_stay_out(tmp_path):
    write(
        tmp_path,
        {
            "topics.jsonl": [
                {"qid": 7, "query": "a", "qutterance": "b", "query_vec": [1.0], "source": "nq", "qtags": ["x"]}
            ]
        },
    )
    topics = cs.dataset(f"folder:{tmp_path}").get_topics()
    assert topics["qid"].tolist() == ["7"]
    assert set(topics.columns) == {"qid", "query", "qhistory", "answer", "qsource", "qtags"}


def found(report) -> set[tuple[str, int]]:
    return {(finding.text, finding.count) for finding in report.findings}


def test_a_folder_without_faults(tmp_path):
    report = check(
        write(
            tmp_path,
            {
                "topics.jsonl": TOPICS,
                "corpus.jsonl": [CORPUS[0], {"docno": "d2", "text": "x"}],
                "qrels.txt": "c_1 0 d1 1\nc_2 0 d2 1\n",
            },
        )
    )
    assert bool(report)
    assert report.findings == []
    assert report.counts == {"questions": 2, "judgments": 2, "passages": 2}


def test_a_check_finds_every_fault_and_counts_it(tmp_path):
    topics = [
        *TOPICS,
        {"qid": "c_3", "query": " ", "conversation_id": "c", "turn_number": 3},
        {"qid": "a b", "query": "When?", "qhistory": ["When?"], "conversation_id": "a", "turn_number": 2},
        {"qid": "d_1", "query": "caf\u00c3\u00a9\ufffd", "conversation_id": "d", "turn_number": 1},
    ]
    corpus = [
        *CORPUS,
        {"docno": "d1", "text": "again"},
        {"docno": "copy", "text": "In 1965.", "title": "Dune"},
        {"docno": "has blank", "text": ""},
        {"docno": "clueweb22-en0004-50-00170:0", "text": "bell \x07"},
    ]
    qrels = "c_1 0 d1 1\nc_2 0 d1 0\nc_9 0 d1 1\nc_1 0 nowhere 1\nc_1 0 NA 1\n"
    report = check(write(tmp_path, {"topics.jsonl": topics, "corpus.jsonl": corpus, "qrels.txt": qrels}))
    assert not report
    assert {
        ("judgments of questions that the topics lack", 1),
        ("judgments of passages that the corpus lacks", 1),
        ("passages whose id repeats", 1),
        ("passages whose id holds white space: PISA and run files cut it there", 1),
        ("questions whose id holds white space: PISA and run files cut it there", 1),
    } == {(finding.text, finding.count) for finding in report.errors}
    assert {
        ("questions without words", 1),
        ("later turns without history", 1),
        ("questions that stand, or whose answer stands, in their own history", 1),
        ("questions with judgments but none relevant: they count 0", 1),
        ("passages with the title and text of an earlier one", 1),
        ("passages without words", 1),
        ("passages whose id is longer than Terrier's default of 20: give meta={'docno': LENGTH}", 1),
        ("passages whose id readers of CSV change (NA, numbers with zeros, quotes): read it as text", 1),
        ("passages with control characters or U+FFFD: read in a wrong encoding once?", 1),
        ("questions with control characters or U+FFFD: read in a wrong encoding once?", 1),
        ("questions that look as if UTF-8 had been read as Windows-1252 ('Ã©')", 1),
    } == {(finding.text, finding.count) for finding in report.warnings}
    assert ("of 5 questions have no gold: they are left out of means", 3) in found(report)
    assert "'nowhere'" in str(report)


def test_a_check_goes_on_where_one_file_cannot_be_read(tmp_path):
    report = check(
        write(tmp_path, {"topics.jsonl": "{", "corpus.jsonl": [*CORPUS, {"docno": "x"}], "qrels.txt": "1 0 a\n"})
    )
    texts = [finding.text for finding in report.errors]
    assert len(texts) == 3
    assert any("topics.jsonl, line 1" in text for text in texts)
    assert any("qrels.txt, line 1" in text for text in texts)
    assert any("corpus.jsonl, line 3" in text for text in texts)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert len(check(empty).errors) == 3


def test_a_check_sees_byte_order_marks_line_ends_and_leaks_between_splits(tmp_path):
    write(
        tmp_path,
        {
            "train.topics.jsonl": "\ufeff" + json.dumps(TOPICS[0]) + "\r\n",
            "test.topics.jsonl": [TOPICS[1]],
            "corpus.jsonl": [CORPUS[0], {"docno": "d2", "text": "x"}],
            "qrels.txt": "c_1 0 d1 1\nc_2 0 d2 1\n",
        },
    )
    report = check(tmp_path)
    assert bool(report)
    assert found(report) == {
        ("train.topics.jsonl begins with a byte order mark", 1),
        ("train.topics.jsonl has Windows line ends", 1),
        ("conversations that stand in two splits", 1),
    }


def test_check_of_real_data(realdata):
    report = check(realdata / "qrecc-dev2k")
    assert bool(report)
    assert report.counts == {"questions": 4354, "judgments": 4015, "passages": 3944}
    assert ("of 4,354 questions have no gold: they are left out of means", 339) in found(report)


def test_numbers_and_further_fields(tmp_path):
    lines = [{"qid": 1, "query": "a", "turn": 2.0, "qtype": 3, "qlang": "fr", "lang": "en"}]
    (tmp_path / "topics.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    row = cs.dataset(f"folder:{tmp_path}").get_topics().iloc[0]
    assert (row["qid"], row["turn_number"], row["qtype"]) == ("1", 2, "3")
    assert row["qlang"] == "fr"  # whichever comes first in the file
