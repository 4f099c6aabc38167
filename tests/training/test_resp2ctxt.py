"""From dialogues to an expander: what is learnt from what, cut where, resumed how; and separators as tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pt_convsearch as cs
from pt_convsearch.rewriting.models import load_generator
from pt_convsearch.training.resp2ctxt import source_target_pairs, training_rows
from tests.tiny_seq2seq import tiny_t5

WORDS = ["my", "wifi", "is", "down", "which", "card", "broadcom", "try", "reboot", "printer", "ink", "[U]", "hello"]


def dialogue(name: str, *texts: str) -> dict[str, Any]:
    return {"dialogue_id": name, "utterances": [{"speaker": "ab"[n % 2], "text": text} for n, text in enumerate(texts)]}


DIALOGUES = [
    dialogue("d", "my wifi is down", "which card", "broadcom [U] card", "try reboot"),
    dialogue("e", "hello", " ", "printer", "ink"),
]


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_t5(tmp_path_factory.mktemp("t5"), WORDS, scale=1.0)


def test_sources_and_targets() -> None:
    """A context is all that was said before, the last utterance is one message whatever stands in it."""
    assert source_target_pairs(DIALOGUES, "context") == [
        ("which card", "my wifi is down"),
        ("try reboot", "my wifi is down which card broadcom [U] card"),
        ("ink", "hello printer"),
    ]
    last = source_target_pairs(DIALOGUES, "last_utterance")
    assert last == [("which card", "my wifi is down"), ("try reboot", "broadcom [U] card"), ("ink", "printer")]
    task = cs.topics.responses(DIALOGUES)
    assert source_target_pairs(task, "last_utterance") == source_target_pairs(task.topics, "last_utterance") == last
    with pytest.raises(ValueError, match="answer"):
        source_target_pairs(task.topics.drop(columns="answer"), "context")
    with pytest.raises(ValueError, match="none of the"):
        source_target_pairs([dialogue("x", "hello", "")], "context")


def test_targets_keep_their_end(t5: str) -> None:
    """Sources lose their end, targets their beginning; the end of a text is always learnt."""
    generator = load_generator(t5)
    ids = generator.tokenizer.convert_tokens_to_ids
    row = training_rows(generator, [("my wifi is down", "which card broadcom try")], 3, 3)[0]
    assert row["input_ids"] == [*ids(["my", "wifi"]), 1]
    assert row["labels"] == [*ids(["broadcom", "try"]), 1]
    whole = training_rows(generator, [("my wifi", "which card")], 10, 10)[0]
    assert whole["labels"] == [*ids(["which", "card"]), 1]
    assert training_rows(generator, [("my", "which card")], 10, 1)[0]["labels"] == [1]


def test_it_learns_and_says_how(t5: str, tmp_path: Path) -> None:
    many = [dialogue(f"d{n}", "my wifi is down", "try reboot") for n in range(6)]
    many += [dialogue(f"e{n}", "printer ink", "hello") for n in range(6)]
    options: dict[str, Any] = {"init": t5, "out": tmp_path / "m", "batch_size": 12, "max_steps": 60, "device": "cpu"}
    options |= {"learning_rate": 2e-2, "precision": "fp32"}
    expander = cs.train_resp2ctxt(many, **options)
    said = expander.expand(["try reboot", "hello"])
    assert "my wifi is down" in said[0]
    assert "printer ink" in said[1]
    settings = json.loads((tmp_path / "m" / "training.json").read_text(encoding="utf-8"))
    assert settings["max_source_length"] == 100
    assert settings["max_target_length"] == 400
    assert (tmp_path / "m" / "README.md").is_file()
    assert not (tmp_path / "m.training").exists()
    stamp = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    assert cs.train_resp2ctxt(many, **options) == expander
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(ValueError, match="seed"):
        cs.train_resp2ctxt(many, **options, seed=2)


def test_defaults_of_the_paper() -> None:
    import inspect

    usual = {name: p.default for name, p in inspect.signature(cs.train_resp2ctxt).parameters.items()}
    paper = {"init": "t5-base", "epochs": 2, "batch_size": 5, "learning_rate": 2e-5, "weight_decay": 0.01}
    assert {name: usual[name] for name in paper} == paper
    assert usual["max_source_length"] == 100


def test_wrong_options(t5: str, tmp_path: Path) -> None:
    for options in ({"target": "answer"}, {"epochs": 0}, {"batch_size": 0}, {"max_target_length": 0}, {"patience": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            cs.train_resp2ctxt(DIALOGUES, init=t5, out=tmp_path / "m", **options)


def test_killed_and_resumed_gives_the_same_weights(t5: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    code = """
import os, sys, pt_convsearch as cs
from transformers import TrainerCallback
from tests.training.test_resp2ctxt import DIALOGUES
class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 3: os._exit(9)
cs.train_resp2ctxt(DIALOGUES, init=sys.argv[1], out=sys.argv[2], batch_size=2, max_steps=4, eval_every=2, device="cpu",
                   precision="fp32", callbacks=[Kill()])
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([".", *sys.path])}
    command = [sys.executable, "-c", code, t5, str(tmp_path / "killed")]
    done = subprocess.run(command, check=False, env=environment, cwd=Path(__file__).parents[2], capture_output=True)
    assert done.returncode == 9, done.stderr[-2000:]
    assert not (tmp_path / "killed").exists()
    options: dict[str, Any] = {"init": t5, "batch_size": 2, "max_steps": 4, "eval_every": 2, "device": "cpu"}
    options["precision"] = "fp32"
    cs.train_resp2ctxt(DIALOGUES, out=tmp_path / "killed", **options)
    cs.train_resp2ctxt(DIALOGUES, out=tmp_path / "whole", **options)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert all((one[name] == other[name]).all() for name in one)


def test_an_encoder_becomes_an_encoder_decoder(tiny_bert: str, tmp_path: Path) -> None:
    dialogues = [dialogue("d", "w1 w2", "w3 w4")]
    expander = cs.train_resp2ctxt(
        dialogues, "last_utterance", init=tiny_bert, out=tmp_path / "m", max_steps=40, learning_rate=1e-2, batch_size=4,
        max_source_length=16, max_target_length=8, precision="fp32",
    )  # fmt: skip
    assert "w1 w2" in expander.expand(["w3 w4"])[0]


# separators


def test_separators_become_tokens(tiny_bert: str) -> None:
    import torch

    from pt_convsearch.dense.weights import tower_hash

    before = cs.BiEncoder(tiny_bert)._load()[0]
    model = cs.with_separators(tiny_bert)
    tokenizer = model[0].tokenizer
    assert tokenizer.tokenize("w1 [U] w2 [T] who") == ["w1", "[U]", "w2", "[T]", "who"]
    old, new = (one[0].model.get_input_embeddings().weight for one in (before, model))
    assert torch.equal(new[: len(old)], old)
    assert torch.allclose(new[len(old) :], old.mean(dim=0).expand(2, -1), atol=1e-6)
    assert tower_hash(cs.with_separators(tiny_bert)) == tower_hash(model)
    again = cs.with_separators(model)
    assert again is not model
    assert tower_hash(again) == tower_hash(model)
    with pytest.raises(ValueError, match="tokens"):
        cs.with_separators(tiny_bert, ())


def test_zero_shot_separators_are_warned_of(tiny_bert: str) -> None:
    topics = cs.topics.from_messages([[{"role": "user", "content": "w1"}, {"role": "user", "content": "w2"}]])
    form = cs.form(cs.X, sep=("[U]", "[T]"))
    with pytest.warns(UserWarning, match=r"\[T\], \[U\].*with_separators"):
        (form >> cs.BiEncoder(tiny_bert).query_encoder())(topics)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (form >> cs.BiEncoder(cs.with_separators(tiny_bert)).query_encoder())(topics)
        (cs.form(cs.X) >> cs.BiEncoder(tiny_bert).query_encoder())(topics)


def test_intermediate_training_then_fine_tuning(tiny_bert: str, pairs: Any, collection: Any, tmp_path: Path) -> None:
    """Two calls of one trainer; the second starts from the first, separators included, and selects by MAP over 10."""
    start = cs.with_separators(tiny_bert)
    short: dict[str, Any] = {"max_steps": 2, "batch_size": 8, "precision": "fp32", "similarity": "dot", "scale": 20.0}
    cs.train(pairs, init=start, out=tmp_path / "intermediate", **short)
    candidates = cs.candidate_lists(collection.topics, collection.qrels, collection.corpus)
    assert candidates.groupby("qid").size().unique().tolist() == [10]
    own = cs.training_pairs(
        *collection.all, form=cs.form(cs.X, sep=("[U]", "[T]")), negatives=cs.RandomNegatives(collection.corpus)
    )
    model = cs.train(
        own, init=str(tmp_path / "intermediate"), out=tmp_path / "dialogues", metric="AP", eval_every=1,
        dev=(*collection.all, candidates[["qid", "docno"]]), **short,
    )  # fmt: skip
    assert "[U]" in model.tokenizer.get_vocab()
    assert model.similarity == "dot"
    curve = [json.loads(line) for line in (tmp_path / "dialogues" / "dev_curve.jsonl").read_text("utf-8").splitlines()]
    assert {entry["step"] for entry in curve if "AP" in entry} == {0, 1, 2}
