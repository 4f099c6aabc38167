"""experiments/dl_hard.py --systems: pipelines from a collection to the table, fine-tuned and over documents."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest


def test_systems_are_run_and_scored(dl_hard, realdata, tmp_path, capsys):
    """Two passages a question, made up: the pipeline from a collection to the table."""
    data = dl_hard.cs.dataset("dl-hard/passage", path=realdata / "dl-hard")
    topics, qrels = data.get_topics(), data.get_qrels()
    texts = dict(zip(topics["qid"], topics["query"], strict=True))
    best = qrels.sort_values("label").groupby("qid").last()
    with (tmp_path / "corpus.jsonl").open("w", encoding="utf-8") as handle:
        for qid, row in best.iterrows():
            handle.write(json.dumps({"docno": row["docno"], "title": "", "text": texts[qid]}) + "\n")
    out = tmp_path / "out"
    given = ["--task", "passage", "--data", str(realdata / "dl-hard"), "--corpus", str(tmp_path / "corpus.jsonl")]
    assert dl_hard.main([*given, "--systems", "all", "--out", str(out)]) == 0
    table = pd.read_csv(out / "results.csv").set_index(["system", "group", "measure"])["value"]
    # each question's best passage is its own words: RR from grade 2 is 1 but for the one question without such a grade
    assert table["BM25", "All", "RR(rel=2)"] == pytest.approx(49 / 50, abs=0.011)
    assert {path.name for path in (out / "runs").iterdir()} == {"BM25.run", "BM25+RM3.run"}
    with pytest.raises(SystemExit, match="no system 'BM25\\+T5'"):
        dl_hard.main([*given, "--systems", "BM25+T5", "--out", str(out)])
    with pytest.raises(SystemExit, match="--model GPT=x"):
        dl_hard.main([*given, "--systems", "all", "--model", "GPT=x", "--out", str(out)])


@pytest.mark.parametrize(("task", "name"), [("passage", "BERT"), ("doc", "BERT"), ("doc", "PARADE-BERT")])
def test_fine_tuned_over_the_folds(dl_hard, realdata, tmp_path, monkeypatch, capsys, task, name):
    """Two folds of the five, one step, a tiny BERT: what is trained, selected and written."""
    from tests.reranking.conftest import write_bert

    systems = sys.modules["_dl_hard_systems"]
    data = dl_hard.cs.dataset(f"dl-hard/{task}", path=realdata / "dl-hard")
    folds = data.folds()
    kept = {number: folds[number] for number in (1, 2, 3)}
    topics, qrels = data.get_topics(), data.get_qrels()
    topics = topics[topics["fold"] <= 3].reset_index(drop=True)
    qrels = qrels[qrels["qid"].isin(topics["qid"])]
    texts = dict(zip(topics["qid"], topics["query"], strict=True))
    docs = {row.docno: texts[row.qid] + f" w{row.label} w{n % 90}" for n, row in enumerate(qrels.itertuples())}
    index = dl_hard.cs.BM25Index(tmp_path / "i.bm25").index({"docno": d, "text": t} for d, t in docs.items())

    class Part:
        def get_topics(self):
            return topics

        def get_qrels(self):
            return qrels

        def folds(self):
            return kept

    args = dl_hard.parse(
        ["--task", task, "--systems", "BM25", "--max-steps", "1", "--depth", "10", "--out", str(tmp_path)]
    )
    (tmp_path / "runs").mkdir()
    init = write_bert(tmp_path / "bert", head=False)
    systems.fine_tuned(args, Part(), index, name, init, "BM25", tmp_path / "runs")
    suffix = "-MaxP" if task == "doc" and name == "BERT" else ""
    run = dl_hard.read_run(tmp_path / "runs" / f"BM25+{name}{suffix}.run")
    assert set(run["qid"]) == set(topics["qid"])
    assert run.groupby("qid").size().max() == 10
    assert set(run["docno"]) <= set(docs)
    shown = capsys.readouterr().out
    assert shown.count("rate 1e-05") == shown.count("rate 3e-05") == 3


def test_documents_of_passages_by_hand(dl_hard, tmp_path):
    """Four passages about one entity, one after the other, are a document; the fifth begins the next."""
    documents, parts = sys.modules["_dl_hard_documents"], sys.modules["_rewriting_parts"]
    passages = [{"docno": f"e1_{n:02}", "text": f"w{n}"} for n in range(6)] + [{"docno": "e2_00", "text": "w6"}]
    history = [{"role": "assistant", "content": "w0", "docno": "e1_00"}]
    topics = pd.DataFrame({"qid": ["1"], "query": ["w1"], "qhistory": [history]})
    qrels = pd.DataFrame({"qid": ["1", "1", "1"], "docno": ["e1_01", "e1_03", "e1_04"], "label": [1, 2, 1]})
    data = parts.Data("testbed", {"test": topics}, {"test": qrels}, lambda: iter(passages), True, False, topics)
    found = documents.of_documents(data)
    assert list(found.corpus()) == [
        {"docno": "e1_d0", "text": "w0 w1 w2 w3"},
        {"docno": "e1_d1", "text": "w4 w5"},
        {"docno": "e2_d0", "text": "w6"},
    ]  # fmt: skip
    # the best passage of a document is its label
    assert found.qrels["test"].values.tolist() == [["1", "e1_d0", 2], ["1", "e1_d1", 1]]
    assert found.topics["test"]["qhistory"][0] == [{"role": "assistant", "content": "w0"}]
    assert history[0]["docno"] == "e1_00"
    assert not found.seen


def test_conversations_with_passages_do_not_stand_in_for_documents(dl_hard, realdata, tmp_path):
    given = ["--task", "doc", "--systems", "all", "--stand-in", str(realdata / "qrecc-dev2k"), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="documents stand in with --stand-in testbed"):
        dl_hard.main(given)
