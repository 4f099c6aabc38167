"""train_rewriter and train_quretec on tiny models: they learn, resume exactly, leave a folder with its settings."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch.rewriting import term_overlap
from pt_convsearch.training.rewriter import training_rows

from ..rewriting.conftest import WORDS, said, tiny_gpt2, tiny_t5

OPTIONS: dict[str, Any] = {"device": "cpu", "precision": "fp32", "batch_size": 16, "learning_rate": 5e-3}


def world(size: int, seed: int) -> pd.DataFrame:
    """The rewrite is the history's first word, and the last of the question."""
    draw = random.Random(seed)
    rows = []
    for number in range(size):
        subject, asked = draw.choice(WORDS[:40]), draw.choice(WORDS[40:50])
        history = [said("user", f"{subject} w58"), said("assistant", "w57")]
        rows.append((f"c{number}_2", f"w59 {asked}", history, f"{subject} {asked}"))
    return pd.DataFrame(rows, columns=["qid", "query", "qhistory", "qrewrite"])


def tiny_bert(folder: Path) -> str:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, initializer_range=0.1,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


def same_weights(left: Path, right: Path) -> bool:
    one, two = load_file(left / "model.safetensors"), load_file(right / "model.safetensors")
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def curve_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()]


class CrashAfter(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def test_a_causal_model_learns_to_rewrite(tmp_path: Path) -> None:
    train, dev = world(400, 1), world(40, 2)
    init = tiny_gpt2(tmp_path / "gpt2")
    rewriter = cs.train_rewriter(
        train,
        init=init,
        out=tmp_path / "out",
        dev=dev,
        metric="f1",
        epochs=9,
        suffix=" go",
        max_target_length=8,
        **OPTIONS,
    )
    after = term_overlap(rewriter(dev)["query"], dev["qrewrite"])["f1"].mean()
    before = cs.Rewriter(init, suffix=" go", max_new_tokens=8, device="cpu")(dev)["query"]
    assert term_overlap(before, dev["qrewrite"])["f1"].mean() < 0.3 < 0.7 < after
    # the folder brings its settings, a card, and the curve, the best of which was kept
    assert cs.Rewriter(str(tmp_path / "out"), max_new_tokens=8).inputs(dev)["query"][0].endswith(" go")
    best = max(line["f1"] for line in curve_of(tmp_path / "out") if "f1" in line)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"dev f1: {best}" in card
    assert "400" in card
    assert not (tmp_path / "out.training").exists()


def test_the_loss_of_a_causal_model_against_one_sequence_at_a_time(tmp_path: Path) -> None:
    """The mean over all tokens of the rewrites, whatever is padded around them, inputs not learnt from."""
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

    from pt_convsearch.training.rewriter import RewriteTrainer

    rewriter = cs.Rewriter(tiny_gpt2(tmp_path / "gpt2"), max_new_tokens=8, device="cpu")
    generator = rewriter.generator()
    topics = world(3, 1)
    topics["query"] = ["w59", "w59 w41 w42 w43 w44", "w1 w2"]
    topics["qrewrite"] = ["w1", "w2 w3 w4", "w5 w6"]
    rows = training_rows(rewriter, topics, 8)
    args = Seq2SeqTrainingArguments(output_dir=str(tmp_path / "x"), use_cpu=True, report_to="none")
    trainer = RewriteTrainer(generator=generator, golds=None, model=generator.model, args=args)
    with torch.no_grad():
        loss = float(trainer.compute_loss(generator.model, dict(DataCollatorForSeq2Seq(generator.tokenizer)(rows))))
        total, count = 0.0, 0
        for row in rows:
            logits = generator.model(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
            for at, label in enumerate(row["labels"]):
                if label != -100:
                    total, count = total - float(logits[at - 1, label]), count + 1
    assert count == 3 + 6  # every word and the end of each rewrite
    assert loss == pytest.approx(total / count, abs=1e-4)


def test_frozen_weights_stay_and_are_told_apart(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    init = tiny_gpt2(tmp_path / "gpt2")
    model = AutoModelForCausalLM.from_pretrained(init)
    model.get_input_embeddings().requires_grad_(False)
    before = model.get_input_embeddings().weight.clone()
    options: dict[str, Any] = {**OPTIONS, "out": tmp_path / "out", "max_steps": 2, "max_target_length": 8}
    trained = cs.train_rewriter(world(30, 1), init=model, **options)
    after = trained.generator().model.get_input_embeddings().weight
    assert torch.equal(before, after)
    with pytest.raises(ValueError, match="frozen"):
        cs.train_rewriter(world(30, 1), init=init, **options)


def test_an_encoder_becomes_an_encoder_decoder(tmp_path: Path) -> None:
    train, dev = world(300, 1), world(20, 2)
    rewriter = cs.train_rewriter(
        train, init=tiny_bert(tmp_path / "bert"), out=tmp_path / "out", epochs=5, max_target_length=8, **OPTIONS
    )
    assert type(rewriter.generator().model).__name__ == "EncoderDecoderModel"
    found = rewriter(dev)["query"]
    assert term_overlap(found, dev["qrewrite"])["f1"].mean() > 0.5
    assert not found.str.contains(r"\[", regex=True).any()


@pytest.mark.parametrize("crash_after", [3, 6])
def test_a_resumed_training_gives_the_same_weights(tmp_path: Path, crash_after: int) -> None:
    options: dict[str, Any] = {
        **OPTIONS,
        "init": tiny_t5(tmp_path / "t5"),
        "dev": world(10, 2),
        "max_steps": 8,
        "eval_every": 2,
    }
    train = world(60, 1)
    cs.train_rewriter(train, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        cs.train_rewriter(train, out=tmp_path / "cut", callbacks=[CrashAfter(crash_after)], **options)
    assert not (tmp_path / "cut").exists()
    work = tmp_path / "cut.training"
    saved = max(work.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert saved.name == f"checkpoint-{crash_after - crash_after % 2}"
    (work / "checkpoint-99").mkdir()  # as a kill in the middle of writing leaves it
    (work / "checkpoint-98").mkdir()
    (work / "checkpoint-98" / "trainer_state.json").write_text('{"global_st', encoding="utf-8")
    cs.train_rewriter(train, out=tmp_path / "cut", **options)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert curve_of(tmp_path / "whole") == curve_of(tmp_path / "cut")


def test_a_killed_training_goes_on(tmp_path: Path) -> None:
    init = tiny_t5(tmp_path / "t5")
    cs.topics.write(world(60, 1), tmp_path / "topics.jsonl")
    script = (
        "import os, signal, sys, torch, pt_convsearch as cs\n"
        "from transformers import TrainerCallback\n"
        "class Kill(TrainerCallback):\n"
        "    def on_step_begin(self, args, state, control, **kwargs):\n"
        "        if state.global_step == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "torch.set_num_threads(1)\n"
        "cs.train_rewriter(cs.topics.read(sys.argv[1]), init=sys.argv[2], out=sys.argv[3], max_steps=4, "
        "eval_every=2, callbacks=[Kill()],\n"
        "                  device='cpu', precision='fp32', batch_size=16, learning_rate=5e-3)\n"
    )
    arguments = [str(tmp_path / "topics.jsonl"), init, str(tmp_path / "cut")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "cut.training" / "checkpoint-2").is_dir()
    topics = cs.topics.read(tmp_path / "topics.jsonl")
    for out in ("cut", "whole"):
        cs.train_rewriter(topics, init=init, out=tmp_path / out, max_steps=4, eval_every=2, **OPTIONS)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")


def test_a_finished_training_is_opened_and_another_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "init": tiny_t5(tmp_path / "t5"), "max_steps": 2, "out": tmp_path / "out"}
    train = world(30, 1)
    first = cs.train_rewriter(train, **options)
    written = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    assert cs.train_rewriter(train, **options) == first
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="seed"):
        cs.train_rewriter(train, **options, seed=2)
    with pytest.raises(ValueError, match="data"):
        cs.train_rewriter(train.assign(qrewrite=train["query"]), **options)
    other = cs.train_rewriter(train, **options, seed=2, overwrite=True)
    assert other != first


def test_questions_without_a_rewrite_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = world(6, 1)
    train.loc[0, "qrewrite"] = None
    train.loc[1, "qrewrite"] = " "
    train.at[2, "qhistory"] = []
    with caplog.at_level("INFO"):
        cs.train_rewriter(train, init=tiny_t5(tmp_path / "t5"), out=tmp_path / "out", max_steps=1, **OPTIONS)
    assert "3 of 6 questions have a gold rewrite" in caplog.text


@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        ({"qrewrite": None}, {}, "none of the 5 topics has a gold rewrite"),
        ({}, {"metric": "bleu"}, "metric"),
        ({}, {"batch_size": 0}, "batch_size"),
        ({}, {"patience": 2}, "patience"),
        ({}, {"warmup": 2}, "warmup"),
        ({}, {"precision": "int8"}, "precision"),
    ],
)
def test_impossible_trainings(tmp_path: Path, change: dict[str, Any], options: dict[str, Any], named: str) -> None:
    train = world(5, 1)
    for column, value in change.items():
        train[column] = value
    with pytest.raises(ValueError, match=named):
        cs.train_rewriter(train, **{**OPTIONS, "init": tiny_t5(tmp_path / "t5"), "out": tmp_path / "out", **options})
    with pytest.raises(ValueError, match="'qrewrite'"):
        cs.train_rewriter(train.drop(columns="qrewrite"), init="x", out=tmp_path / "out")


def test_a_term_classifier_learns_what_to_add(tmp_path: Path) -> None:
    train, dev = world(300, 1), world(40, 2)
    options: dict[str, Any] = {**OPTIONS, "init": tiny_bert(tmp_path / "bert"), "dev": dev, "epochs": 3}
    stage = cs.train_quretec(train, out=tmp_path / "out", **options)
    subjects = dev["qrewrite"].str.split().str[0]
    assert stage(dev)["query"].tolist() == (dev["query"] + " " + subjects).tolist()
    curve = (tmp_path / "out" / "dev_curve.jsonl").read_text(encoding="utf-8")
    assert '"f1": 1.0' in curve
    assert cs.QuReTeC(str(tmp_path / "out"))._settings() == (cs.X, 64)  # its positions
    assert cs.train_quretec(train, out=tmp_path / "out", **options) == stage


def test_a_resumed_classifier_has_the_same_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {**OPTIONS, "init": tiny_bert(tmp_path / "bert"), "max_steps": 4, "eval_every": 2}
    train = world(40, 1)
    cs.train_quretec(train, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        cs.train_quretec(train, out=tmp_path / "cut", callbacks=[CrashAfter(3)], **options)
    cs.train_quretec(train, out=tmp_path / "cut", **options)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
