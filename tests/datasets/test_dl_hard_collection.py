"""DL-HARD: topics, judgments, folds, annotations, entity links, criteria, published runs and figures."""

from __future__ import annotations

import csv
import pickle
import shutil

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.dl_hard import ANNOTATIONS, automatic_hard


@pytest.fixture(scope="module")
def folder(realdata):
    return realdata / "dl-hard"


@pytest.fixture(params=["passage", "doc"])
def data(request, folder):
    return cs.dataset(f"dl-hard/{request.param}", path=folder)


def test_counts(data):
    topics, qrels = data.get_topics(), data.get_qrels()
    assert len(topics) == topics["qid"].nunique() == 50
    assert len(qrels) == data.counts["judgments"] == {"passage": 4256, "doc": 8544}[data.task]
    assert data.counts["turns"] == 50
    assert set(qrels["qid"]) == set(topics["qid"])
    assert [len(qids) for qids in data.folds().values()] == [10] * 5
    assert sorted(qid for qids in data.folds().values() for qid in qids) == sorted(topics["qid"])
    none_relevant = set(qrels["qid"]) - set(qrels["qid"][qrels["label"] >= 2])
    assert none_relevant == ({"588587"} if data.task == "passage" else {"801118", "166046"})


def test_topics_are_single_questions_with_columns_to_break_down_by(data):
    topics = data.get_topics()
    assert topics["qhistory"].tolist() == [[]] * 50
    first = topics.iloc[0]
    assert (first["qid"], first["query"], first["fold"]) == ("915593", "what types of food can you cook sous vide", 1)
    assert [first[column] for column in ANNOTATIONS] == ["list", "list", "food", "web passage"]
    for column in ANNOTATIONS:
        assert (topics[column] != "").all()
    cs.topics.validate(topics)


def test_a_fold_is_a_variant(data):
    topics, qrels = data.get_topics("fold3"), data.get_qrels("fold3")
    assert topics["qid"].tolist() == [qid for qid in data.get_topics()["qid"] if qid in data.folds()[3]]
    assert set(qrels["qid"]) == set(data.folds()[3])
    assert sum(len(data.get_qrels(f"fold{number}")) for number in range(1, 6)) == len(data.get_qrels())
    with pytest.raises(ValueError, match="fold6"):
        data.get_topics("fold6")


def test_annotations_are_the_file_with_one_spelling_each(folder):
    annotations = cs.dataset("dl-hard/doc", path=folder).get_annotations()
    with (folder / "annotations.tsv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(annotations) == len(rows) == 400
    assert annotations["qid"].tolist() == [row[0] for row in rows]
    assert annotations["query"].tolist() == [row[1] for row in rows]
    assert (annotations["answer_type"] == "").sum() == (annotations["topic_domain"] == "").sum() == 144
    # 81 "factoid" and 2 "Factoid"; 37 "long answer" and 1 "Long answer"; 6 "map" and 3 "maps" among result types
    counts = annotations["answer_type"].value_counts()
    assert (counts["factoid"], counts["long answer"], counts["maps"]) == (83, 38, 7)
    results = annotations["result_type"].value_counts()
    assert (results["maps"], results["KG"], results["web passage"], results["web search"]) == (9, 33, 186, 99)
    assert not {"Factoid", "Long answer", "map"} & set(annotations["answer_type"]) | set(annotations["result_type"]) & {
        "map"
    }


def test_automatic_criteria_by_hand():
    annotations = pd.DataFrame(
        [
            ("description", "web search", True),  # nothing better than the result list
            ("description", "web passage", False),
            ("list", "web passage", True),  # added intents
            ("reason", "KG", True),
            ("quantity", "web search", False),  # excluded intents win
            ("weather", "weather", False),
            ("language", "web search", False),
            ("entity", "web short answer", False),
        ],
        columns=["query_intent", "result_type", "hard"],
    )
    assert automatic_hard(annotations).tolist() == annotations["hard"].tolist()
    wider = automatic_hard(annotations, result_types=("web search", "web passage"))
    assert wider.tolist() == [True, True, True, True, False, False, False, False]
    with pytest.raises(ValueError, match="query_intent"):
        automatic_hard(annotations[["result_type"]])


def test_automatic_criteria_on_the_file(folder):
    """Counted anew from the raw cells: 119 of 400, 34 of the 50."""
    data = cs.dataset("dl-hard/passage", path=folder)
    annotations = data.get_annotations()
    hard = set(annotations["qid"][automatic_hard(annotations)])
    expected = set()
    for line in (folder / "annotations.tsv").read_text(encoding="utf-8").splitlines():
        qid, _, intent, _, _, result = line.split("\t")
        if intent not in ("quantity", "weather", "language") and (
            result == "web search" or intent in ("list", "reason")
        ):
            expected.add(qid)
    assert hard == expected
    assert (len(hard), len(hard & set(data.get_topics()["qid"]))) == (119, 34)


def test_who_judged(folder):
    """As the README says: 25 new document judgments; of passages 27, and two that were added later."""
    for task, new in (("doc", 25), ("passage", 29)):
        data = cs.dataset(f"dl-hard/{task}", path=folder)
        who = pd.Series(data.judged_by())
        assert (who == "DL-HARD").sum() == new
        rows = data.get_qrels().groupby("qid").size()
        # those judged anew have a handful of judgments, NIST's have a pool
        assert rows[who[who == "DL-HARD"].index].max() <= 10 < 100 < rows[who[who == "NIST"].index].min()


def test_entity_links(folder):
    data = cs.dataset(
        "dl-hard/passage",
        path=folder,
        files={"linked-entities": folder / "entity_linker_results.dl-hard-subset.json"},
    )
    gold = data.get_entity_links()
    assert gold[gold["qid"] == "794429"][["year", "mention", "entity"]].values.tolist() == [
        ["2020", word, f"https://en.wikipedia.org/wiki/{word.title()}"] for word in ("sculpture", "shape", "space")
    ]
    genre = data.get_entity_links("genre")
    one = genre[genre["qid"] == "1108939"].iloc[0]
    assert (one["mention"], one["entity"]) == ("flow", "Hemodynamics")
    assert one["score"] == pytest.approx(-0.321284681558609)
    assert len(data.get_entity_links("elq")) > 0
    assert data.get_entity_links("rel")["qid"].unique().tolist() == ["315637"]
    judged = data.get_entity_judgments().set_index("qid")
    assert judged.loc["318362"].tolist() == ["2020", True, True]
    assert len(judged) == 374
    with pytest.raises(ValueError, match="linker"):
        data.get_entity_links("tagme")


def test_published_runs_and_figures(data, folder):
    published = data.published()
    with (folder / "published_numbers.tsv").open(encoding="utf-8") as handle:
        theirs = [row for row in csv.DictReader(handle, delimiter="\t") if row["task"] == data.task]
    assert published["system"].tolist() == [row["system"] for row in theirs]
    for ours, name in (("nDCG@10", "NDCG@10"), ("RR", "RR"), ("MAP", "MAP"), ("R@1000", "Recall@1000")):
        assert published[ours].tolist() == [float(row[name]) for row in theirs]
    for run in published["run"]:
        if (folder / "runs" / data.task / f"{run}.run.gz").exists():
            results = data.get_results(run)
            assert results.groupby("qid")["rank"].min().tolist() == [0] * 50  # files count from 0 or from 1
            assert len(results) == 5000
    with pytest.raises(ValueError, match=r"bm25\+rm3"):
        data.get_results("bm26")


def test_breakdown_by_an_annotation(folder):
    """The columns go into an experiment's by= as they are."""
    data = cs.dataset("dl-hard/passage", path=folder)
    table = cs.Experiment(
        {"bm25": pt.Transformer.from_df(data.get_results("bm25"))},
        data.get_topics(),
        data.get_qrels(),
        ["nDCG@10"],
        by="query_intent",
    )
    groups = table.columns.get_level_values(0).unique().tolist()
    assert groups[0] == "All"
    assert set(groups[1:]) == {"description", "list", "reason", "entity", "quantity", "verification", "attribute"}
    assert table["list"]["n"].tolist() == [17]


def test_same_topics_and_folds_as_ir_datasets(folder, monkeypatch):
    """ir_datasets holds the folds itself; topics and judgments come from a stand-in, since they would be fetched."""
    import ir_datasets
    from ir_datasets.formats import GenericQuery, TrecQrel

    files = cs.dataset("dl-hard/passage", path=folder)

    class Stand:
        def queries_iter(self):
            return [GenericQuery(qid, query) for qid, query in files.get_topics()[["qid", "query"]].values]

        def qrels_iter(self):
            return [TrecQrel(qid, docno, int(label), "0") for qid, docno, label in files.get_qrels().values]

    asked = []
    monkeypatch.setattr(ir_datasets, "load", lambda name: asked.append(name) or Stand())
    other = cs.dataset("dl-hard/passage", path=folder, via="ir_datasets")
    pd.testing.assert_frame_equal(other.get_topics(), files.get_topics())
    pd.testing.assert_frame_equal(other.get_qrels("fold1"), files.get_qrels("fold1"), check_dtype=False)
    assert set(asked) == {"msmarco-passage/trec-dl-hard"}
    assert {number: set(qids) for number, qids in other.folds().items()} == {
        number: set(qids) for number, qids in files.folds().items()
    }


def test_corpus_comes_from_ir_datasets(monkeypatch):
    import ir_datasets

    class Doc:
        doc_id, title, url, body = "D1", "A title", "http://x", "a body"

    class Stand:
        def docs_iter(self):
            yield Doc

    monkeypatch.setattr(ir_datasets, "load", lambda name: {"msmarco-document": Stand()}[name])
    assert list(cs.dataset("dl-hard/doc").get_corpus_iter()) == [
        {"docno": "D1", "text": "a body", "title": "A title", "url": "http://x"}
    ]


def test_names():
    data = pt.get_dataset("convsearch:dl-hard/passage")
    assert repr(data) == "cs.dataset('dl-hard/passage')"
    assert pickle.loads(pickle.dumps(data)).task == "passage"
    assert {"dl-hard/passage", "dl-hard/doc"} <= set(cs.datasets.names())
    for name in ("dl-hard", "dl-hard/documents"):
        with pytest.raises(KeyError, match="dl-hard/passage"):
            cs.dataset(name)
    with pytest.raises(ValueError, match="via"):
        cs.dataset("dl-hard/doc", via="web")


@pytest.fixture
def copy(folder, tmp_path):
    for name in ("topics.tsv", "folds.json", "annotations.tsv", "dl_hard-passage.qrels"):
        shutil.copy(folder / name, tmp_path / name)
    return tmp_path


def changed(path, change):
    text = path.read_text(encoding="utf-8")
    path.chmod(0o644)
    path.write_text(change(text), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("annotations.tsv", lambda text: text.replace("\tweb search\n", "\n", 1), r"annotations\.tsv, line 1: 5 tab"),
        ("annotations.tsv", lambda text: "".join(text.splitlines(keepends=True)[:200]), "no annotation of topic"),
        ("annotations.tsv", lambda text: text + text.splitlines()[0] + "\n", "50122 is annotated twice"),
        ("topics.tsv", lambda text: text.replace("\t", " ", 1), r"topics\.tsv, line 1"),
        ("folds.json", lambda text: text.replace("915593,", "", 1), "915593 is in no fold"),
        ("folds.json", lambda text: text[:200], r"folds\.json, line"),
        (
            "dl_hard-passage.qrels",
            lambda text: text.replace(" 0\n", " x\n", 1),
            r"dl_hard-passage\.qrels, line 1: label 'x'",
        ),
    ],
)
def test_altered_files_are_named(copy, name, change, message):
    changed(copy / name, change)
    # refused by its checksum, unless the user vouches for the file: then what is wrong with it is said
    with pytest.raises(ValueError, match="is not the file that was published"):
        data = cs.dataset("dl-hard/passage", path=copy)
        data.get_topics(), data.get_qrels()
    data = cs.dataset("dl-hard/passage", path=copy, verify=False)
    with pytest.raises(ValueError, match=message):
        data.get_topics(), data.get_qrels()


def test_windows_line_ends_change_nothing(copy, folder):
    for path in copy.iterdir():
        raw = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))
    data, original = cs.dataset("dl-hard/passage", path=copy), cs.dataset("dl-hard/passage", path=folder)
    pd.testing.assert_frame_equal(data.get_topics(), original.get_topics())
    pd.testing.assert_frame_equal(data.get_qrels(), original.get_qrels())


def test_missing_files_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"topics\.tsv.*grill-lab/DL-Hard"):
        cs.dataset("dl-hard/passage", path=tmp_path).get_topics()
