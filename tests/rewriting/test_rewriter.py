"""cs.Rewriter: what it reads, what it leaves alone, equal results in batches and one by one, cache, identity."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.rewriting.models import load_generator

from .conftest import WORDS, said, tiny_gpt2, tiny_t5, word_tokenizer


def rewriter(model: Any, **options: Any) -> cs.Rewriter:
    return cs.Rewriter(model, **{"max_new_tokens": 6, "num_beams": 2, "device": "cpu", **options})


def test_the_input_is_the_conversation_with_q_t_last(t5: str, topics: pd.DataFrame) -> None:
    read = rewriter(t5).inputs(topics)["query"].tolist()
    assert read[0] == "w1 w2"
    assert read[2] == "w1 w2 ||| w3 w4 w5 ||| w6 ||| w7 ||| w8 w9"
    read = rewriter(t5, parts=cs.QUESTIONS, prefix="go ", suffix=" go", sep=" w0 ").inputs(topics)["query"].tolist()
    assert read[2] == "go w1 w2 w0 w6 w0 w8 w9 go"


def test_the_input_is_cut_but_never_the_question(t5: str, topics: pd.DataFrame) -> None:
    stage = rewriter(t5, max_input_length=8)  # 7 words and </s>
    assert stage.inputs(topics)["query"][2] == "w1 w2 ||| w7 ||| w8 w9"
    stage(topics)
    assert stage.counts["cut"] == 2  # a_2 has eight words, b_2 seven
    assert rewriter(t5, max_input_length=4).inputs(topics)["query"][2] == "w8 w9"


def test_columns(t5: str, topics: pd.DataFrame) -> None:
    before = topics.copy(deep=True)
    out = rewriter(t5)(topics.assign(query_toks=[{"x": 1.0}] * 4, query_vec=[[0.0]] * 4))
    pd.testing.assert_frame_equal(topics, before)
    assert out["query_0"].tolist() == out["qutterance"].tolist() == topics["query"].tolist()
    assert out["tags"].tolist() == topics["tags"].tolist()
    assert out["qrewrite"].tolist() == topics["qrewrite"].tolist()
    assert not {"query_toks", "query_vec", "qrewrites", "qcut", "qsep"} & set(out.columns)
    assert pt.rewrite.reset()(out)["query"].tolist() == topics["query"].tolist()


def test_a_rewriter_starts_from_the_question_as_it_was_said(t5: str, topics: pd.DataFrame) -> None:
    formed = cs.form(cs.X)(topics)
    assert rewriter(t5)(formed)["query"].tolist() == rewriter(t5)(topics)["query"].tolist()
    assert (rewriter(t5) >> cs.form(cs.CURRENT))(topics)["query"].tolist() == topics["query"].tolist()


def test_first_turns_stay_unless_asked_for(t5: str, topics: pd.DataFrame) -> None:
    assert rewriter(t5)(topics)["query"][0] == "w1 w2"
    assert rewriter(t5, first_turns=True)(topics)["query"][0] != "w1 w2"


def test_a_question_without_words_stays_empty(t5: str, topics: pd.DataFrame) -> None:
    topics.loc[1, "query"] = "  "
    assert rewriter(t5)(topics)["query"][1] == ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 1},
        {"num_rewrites": 2},
        {"sample": True, "seed": 7},
        {"sample": True, "num_rewrites": 3, "top_k": 9, "top_p": 0.9},
    ],
)
@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_one_by_one_and_in_batches_alike(
    kind: str, options: dict[str, Any], topics: pd.DataFrame, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    together = rewriter(model, **options)(topics)
    one = pd.concat([rewriter(model, **options)(topics.iloc[[at]]) for at in range(4)], ignore_index=True)
    shuffled = rewriter(model, batch_size=2, **options)(topics.iloc[::-1]).iloc[::-1].reset_index(drop=True)
    for other in (one, shuffled):
        assert other["query"].tolist() == together["query"].tolist()
        if "num_rewrites" in options:
            assert other["qrewrites"].tolist() == together["qrewrites"].tolist()


def test_draws_follow_the_seed(t5: str, topics: pd.DataFrame) -> None:
    found = [rewriter(t5, sample=True, seed=seed)(topics)["query"].tolist() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_several_rewrites(t5: str, topics: pd.DataFrame) -> None:
    out = rewriter(t5, num_beams=4, num_rewrites=3)(topics)
    assert out["qrewrites"][0] == ["w1 w2"]
    for query, some, weights in zip(out["query"], out["qrewrites"], out["qrewrite_weights"], strict=True):
        assert some[0] == query
        assert len(set(some)) == len(some) == len(weights) <= 3
        assert sum(weights) == pytest.approx(1)
        assert weights == sorted(weights, reverse=True)


def test_empty_frames(t5: str, topics: pd.DataFrame) -> None:
    for options in ({}, {"num_rewrites": 2}):
        empty = rewriter(t5, **options)(topics.iloc[:0])
        full = rewriter(t5, **options)(topics)
        assert empty.columns.tolist() == full.columns.tolist()
        assert len(empty) == 0
        assert empty.dtypes.tolist() == full.dtypes.tolist()


def test_nothing_written_falls_back_to_q_t_and_is_counted(
    tmp_path: Path, topics: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    import torch
    from transformers import T5ForConditionalGeneration

    folder = tiny_t5(tmp_path / "mute")
    model = T5ForConditionalGeneration.from_pretrained(folder)
    end = torch.zeros(len(WORDS) + 5)
    end[1] = 1000.0
    with torch.no_grad():  # a model that ends at once, whatever it reads
        model.lm_head = torch.nn.Linear(32, len(end))
        model.lm_head.weight.zero_()
        model.lm_head.bias.copy_(end)
    stage = rewriter(model, tokenizer=word_tokenizer(), num_beams=1)
    with caplog.at_level(logging.WARNING):
        out = stage(topics)
    assert out["query"].tolist() == topics["query"].tolist()
    assert stage.counts == {"rewritten": 0, "from cache": 0, "empty": 3, "cut": 0}
    assert "3 of 3 questions (qid 'a_2', 'a_3', 'b_2')" in caplog.text


def test_the_cache_answers_what_it_knows(
    t5: str, topics: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "cache.jsonl"
    first = rewriter(t5, cache=path, num_rewrites=2)(topics)
    again = rewriter(t5, cache=path, num_rewrites=2)
    monkeypatch.setattr("pt_convsearch.rewriting.rewriter.generate", lambda *_, **__: pytest.fail("asked the model"))
    pd.testing.assert_frame_equal(again(topics), first)
    assert again.counts["from cache"] == 3


@pytest.mark.parametrize(
    "change",
    [
        {"num_beams": 3},
        {"num_beams": 1},
        {"max_new_tokens": 5},
        {"sep": " w0 "},
        {"sample": True},
        {"max_input_length": 6},
    ],
)
def test_another_setting_misses_the_cache(
    t5: str, topics: pd.DataFrame, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "cache.jsonl"
    rewriter(t5, cache=path)(topics)
    changed = rewriter(t5, cache=path, **change)
    changed(topics)
    assert changed.counts["from cache"] == 0


def test_other_weights_in_the_same_folder_miss_the_cache(topics: pd.DataFrame, tmp_path: Path) -> None:
    model = tiny_t5(tmp_path / "model", seed=0)
    old = rewriter(model, cache=tmp_path / "cache.jsonl")
    old(topics)
    tiny_t5(tmp_path / "model", seed=5)
    new = rewriter(model, cache=tmp_path / "cache.jsonl")
    new(topics)
    assert new.counts["from cache"] == 0
    assert new != old


def test_a_killed_run_goes_on_from_the_cache(t5: str, tmp_path: Path) -> None:
    history = [said("user", "w1"), said("assistant", "w2")]
    many = pd.DataFrame(
        {"qid": [str(at) for at in range(40)], "query": [f"w{at + 3}" for at in range(40)], "qhistory": [history] * 40}
    )
    cs.topics.write(many, tmp_path / "topics.jsonl")
    script = (
        "import os, signal, sys, pt_convsearch as cs\n"
        "from pt_convsearch.rewriting import answer_cache\n"
        "put = answer_cache.AnswerCache.put\n"
        "calls = []\n"
        "def dying(self, entries):\n"
        "    put(self, entries); calls.append(1)\n"
        "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "answer_cache.AnswerCache.put = dying\n"
        "stage = cs.Rewriter(sys.argv[1], cache=sys.argv[2], batch_size=4, num_beams=2, "
        "max_new_tokens=6, device='cpu')\n"
        "stage(cs.topics.read(sys.argv[3]))\n"
    )
    arguments = [t5, str(tmp_path / "cache.jsonl"), str(tmp_path / "topics.jsonl")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    stage = rewriter(t5, cache=tmp_path / "cache.jsonl", batch_size=4)
    assert stage(many)["query"].tolist() == rewriter(t5)(many)["query"].tolist()
    assert stage.counts["from cache"] == 12


def test_identity(t5: str, tmp_path: Path) -> None:
    copy = tiny_t5(tmp_path / "copy")
    assert rewriter(t5) == rewriter(copy, batch_size=3, cache=tmp_path / "c.jsonl", verbose=False)
    assert hash(rewriter(t5)) == hash(rewriter(copy))
    assert rewriter(t5) != rewriter(tiny_t5(tmp_path / "other", seed=1))
    assert rewriter(t5) != rewriter(t5, num_beams=3)
    assert rewriter(t5) != rewriter(t5, parts=cs.QUESTIONS)
    assert repr(rewriter(t5, parts=cs.QUESTIONS)) == f"Rewriter({t5!r}, parts=QUESTIONS, num_beams=2, max_new_tokens=6)"


def test_pickled_by_name_or_whole(t5: str, topics: pd.DataFrame) -> None:
    named = rewriter(t5)
    found = pickle.dumps(named)
    assert len(found) < 20_000
    assert pickle.loads(found) == named
    whole = rewriter(load_generator(t5, device="cpu").model, tokenizer=word_tokenizer())
    assert pickle.loads(pickle.dumps(whole))(topics)["query"].tolist() == named(topics)["query"].tolist()


def test_any_script_goes_through(t5: str) -> None:
    history = [said("user", "沙丘是谁写的？"), said("assistant", "弗兰克·赫伯特 🙂")]
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["什么时候出版的？"], "qhistory": [history]})
    assert rewriter(t5)(topics)["query"][0]


def test_fifty_turns_of_long_answers_are_read_within_the_limit(t5: str) -> None:
    history = [said("user" if at % 2 == 0 else "assistant", " ".join(WORDS)) for at in range(100)]
    topics = pd.DataFrame({"qid": ["c_51"], "query": ["w3 w4"], "qhistory": [history]})
    stage = rewriter(t5)
    read = stage.inputs(topics)["query"][0]
    assert read.endswith(" ||| w3 w4")
    assert len(read.split()) <= 511
    stage(topics)
    assert stage.counts["cut"] == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_rewrites": 3}, "num_beams=3 or more, or sample=True"),
        ({"num_rewrites": 0}, "num_rewrites=0"),
        ({"temperature": 0.0}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"batch_size": 0}, "batch_size"),
        ({"precision": "int3"}, "precision"),
    ],
)
def test_impossible_options(t5: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        rewriter(t5, **options)


def test_histories_are_asked_for(t5: str, topics: pd.DataFrame) -> None:
    with pytest.raises(pt.validate.InputValidationError, match="cs.topics.from_messages"):
        rewriter(t5)(topics.drop(columns="qhistory"))
    with pytest.raises(ValueError, match="'a_2'"):
        rewriter(t5)(topics.assign(query=["w1", None, "w2", "w3"]))


def test_a_model_that_cannot_write_is_refused(tmp_path: Path, t5: str) -> None:
    from safetensors.torch import load_file, save_file
    from transformers import BertConfig, BertModel, T5EncoderModel

    encoder = BertModel(
        BertConfig(vocab_size=65, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    )
    encoder.save_pretrained(tmp_path / "bert")
    word_tokenizer().save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match=r"BertModel, which writes no text.*train_rewriter"):
        rewriter(str(tmp_path / "bert"))
    T5EncoderModel.from_pretrained(t5).save_pretrained(tmp_path / "half")
    word_tokenizer().save_pretrained(tmp_path / "half")
    with pytest.raises(ValueError, match="T5EncoderModel"):
        rewriter(str(tmp_path / "half"))
    broken = Path(tiny_t5(tmp_path / "broken")) / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(broken).items() if "decoder.block" not in name}
    save_file(weights, broken, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="would write noise"):
        rewriter(str(tmp_path / "broken"))
    with pytest.raises(OSError, match="nowhere"):
        rewriter(str(tmp_path / "nowhere"))
    (Path(tiny_t5(tmp_path / "cut")) / "rewriter.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rewriter\.json is damaged"):
        rewriter(str(tmp_path / "cut"))


def test_positions_limit_what_a_causal_model_reads(tmp_path: Path) -> None:
    model = tiny_gpt2(tmp_path / "gpt2")  # 64 positions
    history = [said("user", " ".join(WORDS))] * 3
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["w3 w4"], "qhistory": [history]})
    read = rewriter(model, max_new_tokens=10).inputs(topics)["query"][0]
    assert len(read.split()) <= 54
    assert read.endswith("w3 w4")
    with pytest.raises(ValueError, match="64 positions"):
        rewriter(model, max_new_tokens=64)


def test_in_a_pipeline_and_an_experiment(t5: str, topics: pd.DataFrame, tmp_path: Path) -> None:
    from ir_measures import RR

    index = cs.BM25Index(tmp_path / "index").index([{"docno": word, "text": word} for word in WORDS])
    qrels = pd.DataFrame({"qid": ["a_2", "a_3"], "docno": ["w1", "w8"], "label": [1, 1]})
    table = cs.Experiment(
        {"rewritten": rewriter(t5) >> index.bm25(), "q_t": index.bm25()}, topics, qrels, [RR], batch_size=1
    )
    assert table["All"].loc["q_t", "RR"] == pytest.approx((0 + 1) / 2)
    assert (rewriter(t5) >> index.bm25())(topics)["qid"].nunique() == 4
