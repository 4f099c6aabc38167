"""Real QReCC conversations, their answers as the collection: figures that other software gave, and a plain count."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.cli import main
from pt_convsearch.evaluation.oracle import ConversationOracle
from tests.conftest import SHARED

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MEASURES = [R @ 1, R @ 10, RR]


@pytest.fixture(scope="module")
def folder(realdata: Path) -> Path:
    return realdata / "qrecc-dev2k"


@pytest.fixture(scope="module")
def data(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = cs.dataset(f"folder:{folder}", split="test")
        return loaded.get_topics(), loaded.get_qrels(), list(loaded.get_corpus_iter())


@pytest.fixture(scope="module")
def script() -> Any:
    sys.path.insert(0, str(EXPERIMENTS))
    try:
        yield importlib.import_module("qrecc_answers")
    finally:
        sys.path.remove(str(EXPERIMENTS))


def test_the_oracle_is_that_of_the_data_s_notes(data: Any) -> None:
    """MRR .438 and R@1 .196 on t > 1 (670); .694 and .503 without the seen answers, .513 where three or more are left,
    questions whose answer had been given before keep it there."""
    topics, qrels, _ = data
    oracle = ConversationOracle(topics, qrels)
    later = topics["turn_number"] > 1
    found = oracle.expected(topics[later], qrels, MEASURES)
    assert len(found) == 670
    assert found.mean().round(3).to_dict() == {"R@1": 0.196, "R@10": 1.0, "RR": 0.438}
    golds = qrels.set_index("qid")["docno"].to_dict()
    unmarked = topics[later].copy()
    unmarked["qhistory"] = [
        [message for message in history if message.get("docno") != golds.get(qid)]
        for qid, history in zip(unmarked["qid"], unmarked["qhistory"], strict=True)
    ]
    unseen = oracle.expected(unmarked, qrels, MEASURES, drop_seen=True)
    assert unseen["RR"].mean() == pytest.approx(0.694, abs=0.001)
    assert unseen["R@1"].mean() == pytest.approx(0.503, abs=0.001)
    left = unseen["R@1"] <= 1 / 3 + 1e-9
    assert left.sum() == 345
    assert unseen.loc[left, "RR"].mean() == pytest.approx(0.513, abs=0.001)
    assert (unseen["R@1"] == 1.0).mean() == pytest.approx(0.26, abs=0.01)


def test_the_oracle_is_a_plain_count(data: Any) -> None:
    """Without our code: H_n / n for n answers of the conversation, from the files' own docnos."""
    topics, qrels, _ = data
    golds = qrels.set_index("qid")["docno"].to_dict()
    answers: dict[str, set[str]] = {}
    for row in topics.itertuples():
        known = answers.setdefault(row.conversation_id, set())
        known |= {golds[row.qid]} if row.qid in golds else set()
        known |= {message["docno"] for message in row.qhistory if "docno" in message}
    by_hand = [
        np.mean([1 / rank for rank in range(1, len(answers[row.conversation_id]) + 1)])
        for row in topics.itertuples()
        if row.qid in golds
    ]
    found = ConversationOracle(topics, qrels).expected(topics, qrels, [RR])["RR"]
    assert found.to_numpy() == pytest.approx(np.array(by_hand))


def test_bm25_is_what_terrier_gave(data: Any, tmp_path: Path) -> None:
    """With Terrier's stop words; its tokenizer, its idf and its treatment of repeated words differ, a little."""
    jars = sorted((SHARED / "jars").glob("*.jar"))
    words = [
        zipfile.ZipFile(jar).read("stopword-list.txt")
        for jar in jars
        if "stopword-list.txt" in zipfile.ZipFile(jar).namelist()
    ]
    if not words:
        pytest.skip("Terrier's jars are not there, and so its stop words")
    topics, qrels, corpus = data
    index = cs.BM25Index(tmp_path / "a.bm25", stemmer=None, stopwords=words[0].decode("utf-8").split()).index(corpus)
    bm25 = index.bm25(num_results=120, k1=0.82, b=0.68)
    published = {
        "X_t": (cs.X, 0.779, 0.220),
        "X_t\\q_t": (cs.X - cs.CURRENT, 0.764, 0.210),
        "q_t": (cs.CURRENT, 0.242, 0.147),
        "Q_t": (cs.QUESTIONS, 0.607, 0.299),
        "a_{t-1}": (cs.LAST_ANSWER, 0.604, 0.206),
    }
    systems = {name: cs.form(parts) >> bm25 for name, (parts, _, _) in published.items()}
    systems |= {f"{name}, unseen": systems[name] >> cs.DropSeen() for name in ("X_t", "X_t\\q_t")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = cs.Experiment(systems, topics, qrels, MEASURES, by={"t > 1": topics["turn_number"] > 1})["t > 1"]
        rewritten = topics[topics["qrewrite"].notna() & (topics["turn_number"] > 1)]
        rewrite = cs.Experiment({"rewrite": cs.form(cs.REWRITE) >> bm25}, rewritten, qrels, MEASURES)["All"]
    assert table["n"].tolist() == [670] * 7
    for name, (_, recall, mrr) in published.items():
        assert table.loc[name, "R@10"] == pytest.approx(recall, abs=0.01), name
        assert table.loc[name, "RR"] == pytest.approx(mrr, abs=0.01), name
    assert table.loc["X_t, unseen", ["R@10", "RR"]].tolist() == pytest.approx([0.794, 0.556], abs=0.01)
    assert table.loc["X_t\\q_t, unseen", ["R@10", "RR"]].tolist() == pytest.approx([0.782, 0.533], abs=0.01)
    assert rewrite["n"].tolist() == [241]
    assert rewrite.loc["rewrite", ["R@10", "RR"]].tolist() == pytest.approx([0.788, 0.427], abs=0.01)


def test_the_command_on_a_topics_file(folder: Path, tmp_path: Path) -> None:
    """The collection is the split's own answers here (846), so levels are higher than with all 3,944."""
    log = str(folder / "test.topics.jsonl")
    assert main(["answers", log, "--out", str(tmp_path), "--no-dense", "--quiet", "--by", "qtype"]) == 0
    found = pd.read_csv(tmp_path / "results.csv").set_index(["system", "group", "measure"])["value"]
    assert found["conversation oracle", "t > 1", "RR"] == pytest.approx(0.438, abs=0.001)
    assert found["BM25, unseen X_t", "t > 1", "RR"] < found["conversation oracle, unseen", "t > 1", "RR"]
    retention = found["BM25: X_t against X_t\\q_t", "t > 1", "retention"]
    assert 0.9 < retention < 1.05
    assert found["BM25 X_t", "switch", "R@10"] >= 0


@pytest.fixture(scope="module")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight conversations a split, with their answers as the collection."""
    target = tmp_path_factory.mktemp("small")
    docnos: set[str] = set()
    for split in ("train", "dev", "test"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            topics = cs.dataset(f"folder:{folder}", split=split).get_topics()
        chosen = topics[topics["conversation_id"].isin(topics["conversation_id"].unique()[:8])].copy()
        chosen["qrewrite"] = chosen["qrewrite"].astype(object).where(chosen["qrewrite"].notna(), None)
        chosen.to_json(target / f"{split}.topics.jsonl", orient="records", lines=True)
        docnos |= {message["docno"] for history in chosen["qhistory"] for message in history if "docno" in message}
    loaded = cs.dataset(f"folder:{folder}", split="test")
    qrels = cs.datasets.formats.read_qrels(loaded.file("qrels"))
    kept = set()
    for split in ("train", "dev", "test"):
        kept |= {
            json.loads(line)["qid"]
            for line in (target / f"{split}.topics.jsonl").read_text(encoding="utf-8").splitlines()
        }
    qrels = qrels[qrels["qid"].isin(kept)]
    docnos |= set(qrels["docno"])
    with (target / "corpus.jsonl").open("w", encoding="utf-8") as handle:
        for document in loaded.get_corpus_iter():
            if document["docno"] in docnos:
                handle.write(json.dumps(document) + "\n")
    with (target / "qrels.txt").open("w", encoding="utf-8") as handle:
        handle.writelines(f"{row.qid} 0 {row.docno} {row.label}\n" for row in qrels.itertuples())
    return target


def test_the_table_resumes_row_by_row(
    script: Any, small: Path, tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(small), "--out", str(tmp_path), "--layers", "1", "--steps", "2", "--seeds", "1"]
    names = "BM25;in-batch;model negatives;CQR negatives;seen 1 : shortcut 3"
    script.main([*options, "--rows", names])
    rows = sorted(path.name for path in (tmp_path / "rows").iterdir())
    assert len(rows) == 5
    assert not list((tmp_path / "models").iterdir())
    before = {name: (tmp_path / "rows" / name / "row.json").stat().st_mtime_ns for name in rows}
    results = pd.read_csv(tmp_path / "results.csv")
    assert {"oracle", "BM25", "in-batch", "model negatives"} <= set(results["system"])
    assert "not run here" in set(results.loc[results["system"] == "random negatives", "form"])
    assert results.loc[results["system"] == "in-batch", "max_steps"].eq(2).all()
    capsys.readouterr()

    script.main([*options, "--rows", names])
    assert capsys.readouterr().err.count("done before") == 5
    assert {name: (tmp_path / "rows" / name / "row.json").stat().st_mtime_ns for name in rows} == before
    again = pd.read_csv(tmp_path / "results.csv")
    pd.testing.assert_frame_equal(again, results)

    options[options.index("--steps") + 1] = "3"
    script.main([*options, "--rows", "in-batch"])
    assert "other settings" in capsys.readouterr().err
    changed = {name for name in rows if (tmp_path / "rows" / name / "row.json").stat().st_mtime_ns != before[name]}
    assert changed == {"in-batch.seed1"}


def test_steps_are_fixed_on_dev(script: Any, small: Path, tmp_path: Path, minilm: str) -> None:
    script.main(
        [
            "--data",
            str(small),
            "--out",
            str(tmp_path),
            "--layers",
            "1",
            "--epochs",
            "1",
            "--seeds",
            "1",
            "--rows",
            "in-batch",
        ]
    )
    fixed = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    measured = [point for point in fixed["dev curve"] if point.get("step") and "RR" in point]
    assert fixed["steps"] == max(measured, key=lambda point: point["RR"])["step"]
    row = json.loads((tmp_path / "rows" / "in-batch.seed1" / "row.json").read_text(encoding="utf-8"))
    assert row["settings"]["max_steps"] == fixed["steps"]


def test_seen_answers(script: Any) -> None:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"]})
    topics["qhistory"] = [
        [],
        [
            {"role": "assistant", "content": "x", "docno": "d1"},
            {"role": "user", "content": "y"},
            {"role": "assistant", "content": "z", "docno": "d2"},
            {"role": "assistant", "content": "x", "docno": "d1"},
        ],
    ]
    found = script.SeenAnswers()(topics)
    assert found[["qid", "docno", "rank"]].to_numpy().tolist() == [["2", "d1", 0], ["2", "d2", 1]]
    assert len(script.SeenAnswers()(topics[:0])) == 0
