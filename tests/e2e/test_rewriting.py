"""The rewriting experiment in its quick form on the testbed: what must hold whatever the models learnt."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pt_convsearch as cs

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ROWS = "X_t;X_t\\q_t;q_t;gold rewrite;HQE;Rewriter;CONQRR's control;CONQRR"


@pytest.fixture(scope="module")
def script() -> Any:
    sys.path.insert(0, str(EXPERIMENTS))
    try:
        yield importlib.import_module("rewriting")
    finally:
        sys.path.remove(str(EXPERIMENTS))


@pytest.fixture(scope="module")
def run(script: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("rewriting")
    options = ["--dataset", "testbed", "--out", str(out), "--quick", "--no-dense", "--num-beams", "1", "--threads", "1"]
    script.main([*options, "--rows", ROWS])
    return out, options


def cells(out: Path) -> pd.Series:
    frame = pd.read_csv(out / "results.csv", keep_default_na=False, na_values=[""])
    return frame.set_index(["system", "answers", "group", "measure"]).sort_index()["value"]


def test_what_must_hold_of_any_rewriter(run: tuple[Path, list[str]]) -> None:
    found = cells(run[0])
    assert found["gold rewrite", "rewrite", "All", "ROUGE-1 f1"] == 1
    assert found["q_t", "rewrite", "All", "as q_t"] == 1
    # the history alone agrees with itself, whatever the question
    for against in ("unseen: X_t\\q_t", "unseen: swapped"):
        assert found["X_t\\q_t", against, "All", "overlap@10"] == 1
    assert pd.isna(found["X_t\\q_t", "all", "first", "RR"])
    # a first turn is left as it was said, by everyone
    assert found["Rewriter", "all", "first", "RR"] == found["q_t", "all", "first", "RR"]
    assert ("gold rewrite", "unseen: swapped", "All", "overlap@10") not in found.index
    # people's rewrites find more than the question alone, on data made so
    assert found["gold rewrite", "all", "t > 1", "RR"] > found["q_t", "all", "t > 1", "RR"]


def test_figures_against_a_plain_count(run: tuple[Path, list[str]]) -> None:
    """MRR and R@1 of q_t over the questions with a history, by loops over the ranking."""
    data = cs.dataset("testbed/train", conversations=90, train_switch_rate=0.15)
    topics, qrels = data.get_topics(), data.get_qrels()
    golds = qrels.groupby("qid")["docno"].agg(set).to_dict()
    tested = list(dict.fromkeys(topics["conversation_id"]))[70:]
    asked = topics[topics["conversation_id"].isin(tested) & (topics["turn_number"] > 1)]
    index = cs.BM25Index(run[0] / "again.bm25", overwrite=True).index(data.get_corpus_iter())
    ranked = index.bm25(num_results=110, k1=0.82, b=0.68)(asked).groupby("qid")["docno"].agg(list).to_dict()
    firsts = []
    for row in asked.itertuples():
        shown = {message.get("docno") for message in row.qhistory}
        ranking = [docno for docno in ranked.get(row.qid, []) if docno not in shown]
        firsts.append(next((at for at, docno in enumerate(ranking, 1) if docno in golds[row.qid]), None))
    found = cells(run[0])
    assert found["q_t", "unseen", "t > 1", "RR"] == pytest.approx(sum(1 / at for at in firsts if at) / len(firsts))


def test_rows_are_kept_and_others_are_not_claimed(
    script: Any, run: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, options = run
    before = cells(out)
    capsys.readouterr()
    script.main([*options, "--rows", ROWS])
    assert capsys.readouterr().err.count("done before") == 8
    pd.testing.assert_series_equal(cells(out), before)
    table = (out / "table.md").read_text(encoding="utf-8")
    assert "QuReTeC (not run here)" in table
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert results["not run"] == ["QuReTeC", "Rewriter, 5 fused"]


def test_the_curve_of_the_reward_begins_before_the_training(run: tuple[Path, list[str]]) -> None:
    curve = pd.read_csv(run[0] / "reward.csv")
    assert curve["step"].tolist() == [0, 1, 2, 3]
    assert curve["dev, control"][0] == curve["dev"][0]  # both begin with the same rewriter
    assert curve["dev"].notna().all()
    assert curve["dev"].between(0, 1).all()
    assert (run[0] / "reward.png").stat().st_size > 1000


def test_the_reward_s_share_of_a_rise_is_tested_against_a_control(run: tuple[Path, list[str]]) -> None:
    raised = pd.DataFrame(json.loads((run[0] / "results.json").read_text(encoding="utf-8"))["raised by reward"])
    assert list(zip(raised["from"][:3], raised["to"][:3], strict=True)) == [
        ("Rewriter", "CONQRR"), ("CONQRR's control", "CONQRR"), ("Rewriter", "CONQRR's control"),
    ]  # fmt: skip
    found, own = cells(run[0]), raised[raised["measure"] == "MRR"].set_index(["from", "to"])
    for (before, after), row in own.iterrows():
        values = [found[name, "unseen", "t > 1", "RR"] for name in (before, after)]
        assert [row["value from"], row["value to"]] == pytest.approx(values)
    rows = json.loads((run[0] / "results.json").read_text(encoding="utf-8"))["rows"]
    assert rows["CONQRR's control"]["reward"] == {**rows["CONQRR"]["reward"], "mle_weight": 1.0}


def test_conversations_that_were_tested_before_are_left_out(script: Any) -> None:
    read = script.Data.read
    options = argparse.Namespace(dataset="testbed", conversations="3,2,4", skip=0, quick=False)
    whole = read(options).whole["conversation_id"].unique()
    assert len(whole) == 4
    fresh = read(argparse.Namespace(**{**vars(options), "skip": 3}))
    assert fresh.whole["conversation_id"].unique()[0] == whole[3]  # 3 + 2 + 3 before it in both
    assert not set(whole[:3]) & set(fresh.whole["conversation_id"])
    assert set(fresh.topics) == {"train", "dev", "test"}


def test_models_of_another_run_are_taken(script: Any, run: tuple[Path, list[str]], tmp_path: Path) -> None:
    out, options = run
    options = [str(tmp_path) if option == str(out) else option for option in options]
    script.main([*options, "--rows", "Rewriter", "--models", str(out / "models")])
    measure = ("Rewriter", "rewrite", "All", "ROUGE-1 f1")
    assert cells(tmp_path)[measure] == cells(out)[measure]
    with pytest.raises(SystemExit, match="no 'quretec'"):
        script.main([*options, "--rows", "QuReTeC", "--models", str(out / "models")])


def test_the_small_model_s_tokenizer_gives_texts_back(script: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    topics = cs.dataset("testbed/train", conversations=5).get_topics()
    tokenizer = AutoTokenizer.from_pretrained(script.small_model(topics, tmp_path / "small"))
    for text in topics["qrewrite"]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert tokenizer.unk_token_id not in ids
