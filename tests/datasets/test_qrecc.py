"""QReCC: the published labels, and tiny files in the forms of Apple, the shared task and cs-shortcut."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.qrecc import qrels_of_turns, read_turns
from pt_convsearch.datasets.qrecc_scai import read_scai_run, write_scai_run

pytestmark = pytest.mark.filterwarnings("ignore:.*histories hold their own question")
URL = "http://web.archive.org/web/2020id_/https://x.org/a,b%20\"c'_p"
NAVER = [
    {"Conversation_no": 7, "Turn_no": n, "Question": q, "Truth_rewrite": r, "Truth_answer": a, "Truth_passages": p}
    for n, q, r, a, p in [
        (1, "Who wrote Dune?", "Who wrote Dune?", "Frank Herbert.", []),
        (2, "When?", "When did Frank Herbert write Dune?", "", [URL + "1", URL + "2"]),
        (3, "Sequels?", "", "Five.", None),
    ]
]


@pytest.fixture
def folder(tmp_path, realdata) -> Path:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.json").write_text(json.dumps(NAVER, indent=1), encoding="utf-8")
    for name in ("qrels.txt", "qrels_dev.txt", "test_question_types.json"):
        (tmp_path / name).symlink_to(realdata / "qrecc-labels" / name)
    return tmp_path


def test_published_judgments_have_the_counts_of_the_paper(folder, realdata):
    test, dev = (cs.dataset(f"qrecc/{split}", path=folder).get_qrels() for split in ("test", "dev"))
    assert (len(test), test["qid"].nunique(), test["docno"].nunique()) == (10507, 8209, 6762)
    assert (len(dev), dev["qid"].nunique(), dev["docno"].nunique()) == (6132, 5313, 3999)
    assert test["docno"].str.len().max() == 484
    assert dev["docno"].str.len().max() == 439
    assert test["docno"].str.contains("%", regex=False).sum() > 0
    derived = [
        line.split(" ")
        for line in (realdata / "qrecc-labels/qrels.test.trec.txt").read_text(encoding="utf-8").splitlines()
    ]
    assert set(test[["qid", "docno"]].itertuples(index=False, name=None)) == {(row[0], row[2]) for row in derived}


def test_dev_and_test_share_ids_that_the_split_tells_apart(folder):
    ids = {}
    for ways in ("plain", "split"):
        for split in ("test", "dev"):
            # questions without gold are in the files too: the shared ids are counted over all of them
            path = folder / {"test": "qrels.txt", "dev": "qrels_dev.txt"}[split]
            ids[ways, split] = set(json.loads(path.read_text(encoding="utf-8")))
    assert len(ids["plain", "test"] & ids["plain", "dev"]) == 2554
    named = [
        set(cs.dataset(f"qrecc/{split}", path=folder, ids="split").get_qrels()["qid"]) for split in ("test", "dev")
    ]
    assert not named[0] & named[1]
    topics = cs.dataset("qrecc/dev", path=folder, ids="split").get_topics()
    assert topics["qid"].tolist() == ["dev_7_1", "dev_7_2", "dev_7_3"]
    assert topics["conversation_id"].unique().tolist() == ["dev_7"]


def test_published_types(folder):
    data = cs.dataset("qrecc/test", path=folder)
    types = data.get_question_types()
    counts = {label: sum(value == label for value in types.values()) for label in ("first", "switch", "no-switch")}
    assert counts == {"first": 959, "switch": 573, "no-switch": 279}
    judged = set(data.get_qrels()["qid"])
    counts = {label: sum(value == label and qid in judged for qid, value in types.items()) for label in counts}
    assert counts == {"first": 267, "switch": 573, "no-switch": 279}
    with pytest.raises(NotImplementedError, match="only the test split"):
        cs.dataset("qrecc/dev", path=folder).get_question_types()


def test_trec_part_carries_source_and_types(realdata, folder):
    file = realdata / "qrecc-labels" / "qrecc-trec-part.questions.json"
    topics = cs.dataset("qrecc/test", path=folder, files={"test": file}).get_topics()
    assert len(topics) == 748
    assert topics["qsource"].unique().tolist() == ["trec"]
    assert topics["qtype"].value_counts().to_dict() == {"switch": 169, "first": 80, "no-switch": 14}


def test_history_is_raw_questions_and_gold_answers(folder):
    topics = cs.dataset("qrecc/test", path=folder).get_topics()
    assert topics["qid"].tolist() == ["7_1", "7_2", "7_3"]
    assert topics["qhistory"][2] == [
        {"role": "user", "content": "Who wrote Dune?"},
        {"role": "assistant", "content": "Frank Herbert."},
        {"role": "user", "content": "When?"},  # its answer is empty: nobody said anything
    ]
    assert topics["qrewrite"].isna().tolist() == [False, False, True]
    assert topics["answer"].tolist() == ["Frank Herbert.", "", "Five."]


def test_turns_without_gold_stay_as_questions_and_give_no_judgment(folder):
    """An empty list, two passages, and the key without a value: three questions, one of them judged."""
    data = cs.dataset("qrecc/train", path=folder)
    assert data.get_qrels().values.tolist() == [["7_2", URL + "1", 1], ["7_2", URL + "2", 1]]
    assert len(data.get_topics()) == 3
    assert cs.dataset("qrecc/test", path=folder).get_qrels("turns")["qid"].tolist() == ["7_2", "7_2"]


def test_without_the_types_the_topics_come_with_a_warning(folder):
    (folder / "test_question_types.json").unlink()
    with pytest.warns(UserWarning, match="no question types"):
        topics = cs.dataset("qrecc/test", path=folder).get_topics()
    assert "qtype" not in topics


def test_form_of_the_shared_task(tmp_path, realdata):
    with pytest.warns(UserWarning, match="69 of 95 turns come after turns that the file lacks"):
        topics = read_turns(realdata / "qrecc-labels" / "scai-qrecc21-sample.json")
    assert len(topics) == 95
    assert qrels_of_turns(realdata / "qrecc-labels" / "scai-qrecc21-sample.json")["qid"].nunique() == 53
    file = tmp_path / "scai-qrecc21-test-turns.json"
    file.write_text(
        json.dumps([{**turn, "Conversation_source": "nq", "Context": []} for turn in NAVER]), encoding="utf-8"
    )
    topics = read_turns(file)
    assert topics["qsource"].tolist() == ["nq"] * 3
    assert len(topics["qhistory"][2]) == 3  # an empty Context of a later turn is none: the turns before it say more


def test_form_of_apple_in_its_archive(tmp_path):
    turns = [
        {
            "Context": [],
            "Question": "Cars?",
            "Rewrite": "Cars?",
            "Answer": "Yes.",
            "Answer_URL": "u",
            "Conversation_no": 74,
            "Turn_no": 1,
            "Conversation_source": "trec",
        },
        {
            "Context": ["Cars?", "Yes."],
            "Question": "Tesla?",
            "Rewrite": "Tesla cars?",
            "Answer": "",
            "Answer_URL": "",
            "Conversation_no": 74,
            "Turn_no": 2,
            "Conversation_source": "trec",
        },
    ]
    with zipfile.ZipFile(tmp_path / "qrecc_data.zip", "w") as archive:
        archive.writestr("qrecc_data/qrecc_test.json", json.dumps(turns))
    with pytest.warns(UserWarning, match="no question types"):
        topics = cs.dataset("qrecc/test", path=tmp_path, form="apple").get_topics()
    assert topics["qid"].tolist() == ["74_1", "74_2"]
    assert topics["qhistory"][1] == [{"role": "user", "content": "Cars?"}, {"role": "assistant", "content": "Yes."}]
    assert topics["qrewrite"].tolist() == ["Cars?", "Tesla cars?"]
    assert topics["qsource"].tolist() == ["trec", "trec"]


def test_turns_are_sorted_as_numbers(tmp_path):
    turns = [{**NAVER[0], "Turn_no": n, "Question": f"q{n}"} for n in (10, 9, 1, 2, 3, 4, 5, 6, 7, 8)]
    (tmp_path / "t.json").write_text(json.dumps(turns), encoding="utf-8")
    topics = read_turns(tmp_path / "t.json").set_index("qid")
    assert [message["content"] for message in topics.loc["7_10", "qhistory"]][::2] == [f"q{n}" for n in range(1, 10)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Turn_no": "2"}, "'Turn_no' holds '2', where int is due"),
        ({"Turn_no": 0}, "counted from 1"),
        ({"Question": None}, "no field 'Question'"),
        ({"Truth_passages": "p1"}, "'Truth_passages' is no list of texts"),
        ({"Truth_answer": 7}, "'Truth_answer' holds 7"),
        ({"Turn_no": 1}, "'7_1' stands in line 1 already"),
    ],
)
def test_what_is_no_turn_is_named_by_file_and_line(tmp_path, change, message):
    path = tmp_path / "test.json"
    path.write_text(
        "[" + ",\n".join(json.dumps(turn) for turn in [NAVER[0], {**NAVER[1], **change}]) + "]", encoding="utf-8"
    )
    with pytest.raises(ValueError, match=rf"test\.json, line 2: .*{message}"):
        read_turns(path)


def passages(numbers) -> str:
    return "".join(
        json.dumps({"id": f"{URL}{n}", "contents": f"text é {n}"}, ensure_ascii=False) + "\n" for n in numbers
    )


def test_passages_as_published_unpacked_and_for_development(tmp_path):
    with zipfile.ZipFile(tmp_path / "passages.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("collection-paragraph/commoncrawl/0.jsonl", passages([1, 2]))
        archive.writestr("collection-paragraph/wayback/README", "not passages")
        archive.writestr("collection-paragraph/wayback/1.jsonl", passages([3]) + "\n")
    data = cs.dataset("qrecc/test", path=tmp_path)
    assert [one["docno"] for one in data.get_corpus_iter()] == [URL + "1", URL + "2", URL + "3"]
    assert next(data.get_corpus_iter()) == {"docno": URL + "1", "text": "text é 1"}
    with zipfile.ZipFile(tmp_path / "passages.zip") as archive:
        archive.extractall(tmp_path)
    (tmp_path / "passages.zip").unlink()
    assert len(list(data.get_corpus_iter())) == 3
    (tmp_path / "dev_blocks.jsonl").write_text(passages([4]), encoding="utf-8")
    with tarfile.open(tmp_path / "dev_blocks.jsonl.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "dev_blocks.jsonl", "dev_blocks.jsonl")
    for _ in range(2):  # unpacked, then from the archive
        assert [one["docno"] for one in cs.dataset("qrecc/dev", path=tmp_path, collection="dev").get_corpus_iter()] == [
            URL + "4"
        ]
        (tmp_path / "dev_blocks.jsonl").unlink(missing_ok=True)


def test_a_broken_passage_is_named_by_archive_member_and_line(tmp_path):
    with zipfile.ZipFile(tmp_path / "passages.zip", "w") as archive:
        archive.writestr("collection-paragraph/wayback/1.jsonl", passages([3]) + '{"id": "x"}\n')
    with pytest.raises(
        ValueError, match=r"passages\.zip!collection-paragraph/wayback/1\.jsonl, line 2: no field 'contents'"
    ):
        list(cs.dataset("qrecc/test", path=tmp_path).get_corpus_iter())


@pytest.mark.parametrize("options", [{"form": "x"}, {"ids": "x"}, {"collection": "x"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(ValueError, match="x"):
        cs.dataset("qrecc/test", **options)
    with pytest.raises(ValueError, match="dev split is cs-shortcut's own"):
        cs.dataset("qrecc/dev", form="scai")


def test_ground_truth_of_the_shared_task_has_no_questions(realdata):
    qrels = qrels_of_turns(realdata / "qrecc-labels" / "scai-ground-truth-format-example.json")
    page = (
        "http://web.archive.org/web/20150114053507id_/http://forums.studentdoctor.net:80/threads/pi-vs-pka.480670/_p5"
    )
    assert qrels.values.tolist() == [["2774_1", page, 1]]


def test_runs_of_the_shared_task(tmp_path, realdata):
    results, turns = read_scai_run(realdata / "qrecc-labels" / "scai-run-format-example.json")
    assert results.empty
    assert turns["qid"].tolist() == ["1_1", "2775_1"]
    assert turns["answer"][1] == " England was involved in the Thirty Years' War."
    topics = read_turns_of(tmp_path)
    given = pd.DataFrame({"qid": ["7_2"] * 3, "docno": ["a", "b", "c"], "rank": [0, 1, 2], "score": [3.0, 2.5, 1.0]})
    write_scai_run(topics, given, tmp_path / "run.json", depth=2)
    results, turns = read_scai_run(tmp_path / "run.json")
    assert results.values.tolist() == [["7_2", "a", 0, 3.0], ["7_2", "b", 1, 2.5]]
    assert turns["qid"].tolist() == ["7_1", "7_2", "7_3"]
    (tmp_path / "run.json").write_text(
        json.dumps([{"Conversation_no": 1, "Turn_no": 1, "Model_passages": {"a": "x"}}]), encoding="utf-8"
    )
    with pytest.raises(ValueError, match=r"run\.json, line 1: score 'x' of 'a'"):
        read_scai_run(tmp_path / "run.json")


def read_turns_of(folder: Path) -> pd.DataFrame:
    (folder / "turns.json").write_text(json.dumps(NAVER), encoding="utf-8")
    return read_turns(folder / "turns.json")
