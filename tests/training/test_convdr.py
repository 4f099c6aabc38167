"""ConvDR: the loss by hand, an index that is reused, a student that learns what its teacher says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch.training.distillation_losses import ConvDRLoss

from .conftest import Collection


class Fixed(torch.nn.Module):
    """A model that gives these vectors."""

    def __init__(self, vectors: list[list[float]]) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.tensor(vectors))

    def forward(self, features: Any) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": self.vectors}


LABELS = {
    "target": torch.tensor([[0.0, 0.0], [0.0, 1.0]]),
    "known": torch.tensor([True, True]),
    "allowed": torch.tensor([[True, True, False], [False, False, False]]),
    "candidates": torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [[0.0, 0.0]] * 3]),
}
CE = math.log(1 + math.exp(-1))  # the positive scores 1, the one negative 0; the third place is empty


@pytest.mark.parametrize(
    ("options", "known", "expected"),
    [
        ({}, [True, True], 0.5 + CE),  # (1 + 0) / 2 and (0 + 1) / 2
        ({"mse_weight": 3.0, "ranking_weight": 0.0}, [True, True], 1.5),
        ({"ranking_weight": 2.0}, [False, True], 0.5 + 2 * CE),
        ({}, [False, False], CE),
        ({"mse_weight": 0.0, "scale": 20.0}, [True, True], math.log(1 + math.exp(-20))),
        # vectors of length one: [1, 0] stays, [0, 2] becomes [0, 1], its target
        ({"normalize": True}, [True, True], 0.25 + CE),
    ],
)
def test_the_loss_by_hand(options: dict[str, Any], known: list[bool], expected: float) -> None:
    loss = ConvDRLoss(Fixed([[1.0, 0.0], [0.0, 2.0]]), **options)
    assert loss([{}], {**LABELS, "known": torch.tensor(known)}).item() == pytest.approx(expected, abs=1e-6)


def test_a_batch_that_teaches_nothing_has_a_gradient() -> None:
    model = Fixed([[1.0, 0.0]])
    loss = ConvDRLoss(model)([{}], {"target": torch.zeros(1, 2), "known": torch.tensor([False])})
    loss.backward()
    assert loss.item() == 0
    assert model.vectors.grad is not None
    assert not model.vectors.grad.any()


@pytest.fixture
def topics(collection: Collection) -> Any:
    """The first question has no rewrite."""
    return collection.topics.assign(qrewrite=[None, *collection.topics["query"][1:]])


@pytest.fixture
def teacher(tiny_bert: str) -> cs.BiEncoder:
    return cs.BiEncoder(tiny_bert, similarity="dot", bf16=False, device="cpu")


def distance(student: cs.BiEncoder, teacher: cs.BiEncoder, topics: Any) -> float:
    """The mean squared error of the questions that have a rewrite."""
    said = cs.form(cs.X)(topics[topics["qrewrite"].notna()].reset_index(drop=True))
    there = teacher.encode_queries(said["qrewrite"].tolist())
    return float(np.square(student.encode_queries(said["query"].tolist()) - there).mean())


def test_the_student_learns_what_the_teacher_says_and_no_passage_is_encoded(
    topics: Any, teacher: cs.BiEncoder, collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = cs.DenseIndex(tmp_path / "passages.flex", teacher).index(collection.corpus)
    pairs = cs.training_pairs(
        topics, collection.qrels, collection.corpus, form=cs.X, negatives=cs.RandomNegatives(collection.corpus),
        out=tmp_path / "pairs",
    )  # fmt: skip
    before = (tmp_path / "passages.flex" / "vecs.f4").read_bytes()

    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a passage was encoded")

    monkeypatch.setattr(cs.BiEncoder, "encode_docs", refused)
    student = cs.train_convdr(
        topics, teacher, pairs=pairs, index=index, dev=(topics, collection.qrels, index), out=tmp_path / "student",
        num_negatives=2, batch_size=8, epochs=6, learning_rate=3e-3, ranking_weight=0.05, metric="RR",
    )  # fmt: skip
    assert distance(student, teacher, topics) < 0.3 * distance(teacher, teacher, topics)
    searched = cs.DenseIndex(tmp_path / "passages.flex", student)
    results = (cs.form(cs.X) >> searched.retriever(num_results=5))(topics)
    assert len(results) == 5 * len(topics)
    # the same scores as the dot products of the student's questions and the teacher's passages
    formed = cs.form(cs.X)(topics)
    scores = student.encode_queries(formed["query"].tolist()) @ np.asarray(index.vectors).T
    best = results[results["rank"] == 0].set_index("qid")["score"]
    np.testing.assert_allclose(best[formed["qid"]].to_numpy(), scores.max(axis=1), rtol=1e-5)
    assert (tmp_path / "passages.flex" / "vecs.f4").read_bytes() == before

    identity, ours = teacher.identity(), student.identity()
    assert ours["passage_model"] == identity["passage_model"]
    assert ours["query_model"] != identity["query_model"]
    # a search by the teacher and one by the student are not the same stage
    assert searched.retriever() != cs.DenseIndex(tmp_path / "passages.flex", teacher).retriever()

    lines = (tmp_path / "student" / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()
    measured = [json.loads(line) for line in lines]
    curve = {line["step"]: line["RR"] for line in measured if "RR" in line}
    assert set(curve) == {0, 4, 8, 12, 16, 20, 24}
    card = (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    for line in ("- questions: 32", "- with a rewrite: 31", "library_name: sentence-transformers"):
        assert line in card
    kept = max(value for step, value in curve.items() if step)
    found = cs.Experiment([cs.form(cs.X) >> searched.retriever(num_results=100)], topics, collection.qrels, ["RR"])
    assert found["All"]["RR"].iloc[0] == pytest.approx(kept)


class Stop(TrainerCallback):
    """What a kill does, once a step is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def test_a_run_that_stopped_goes_on_to_the_same_weights(
    topics: Any, teacher: cs.BiEncoder, collection: Collection, tmp_path: Path
) -> None:
    pairs = cs.training_pairs(
        topics, collection.qrels, collection.corpus, form=cs.X, negatives=cs.RandomNegatives(collection.corpus),
        out=tmp_path / "pairs",
    )  # fmt: skip
    options: dict[str, Any] = {"pairs": pairs, "num_negatives": 2, "batch_size": 8, "epochs": 2, "eval_every": 3}
    dev = (topics, collection.qrels, collection.corpus)
    whole = cs.train_convdr(topics, teacher, out=tmp_path / "whole", dev=dev, **options)
    with pytest.raises(KeyboardInterrupt):
        cs.train_convdr(topics, teacher, out=tmp_path / "cut", dev=dev, callbacks=[Stop(5)], **options)
    assert not (tmp_path / "cut").exists()
    assert (tmp_path / "cut.training" / "checkpoint-3").is_dir()
    once = (topics, collection.qrels, iter(collection.corpus))  # a dev collection that can be read once only
    resumed = cs.train_convdr(topics, teacher, out=tmp_path / "cut", dev=once, **options)
    assert resumed.identity()["query_model"] == whole.identity()["query_model"]
    curves = [
        [json.loads(line) for line in (tmp_path / name / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("whole", "cut")
    ]
    assert curves[0] == curves[1]
    assert not (tmp_path / "cut.training").exists()
    # finished: opened, not trained; other settings are named
    again = cs.train_convdr(topics, teacher, out=tmp_path / "cut", dev=dev, callbacks=[Stop(0)], **options)
    assert again.identity() == resumed.identity()
    with pytest.raises(ValueError, match="seed"):
        cs.train_convdr(topics, teacher, out=tmp_path / "cut", dev=dev, seed=2, **options)


def test_two_towers_give_their_query_tower(topics: Any, tiny_bert: str, collection: Collection, tmp_path: Path) -> None:
    pairs = cs.training_pairs(*collection.all, form=cs.X, out=tmp_path / "pairs")
    teacher = cs.train(
        pairs, init=tiny_bert, towers=2, max_steps=2, batch_size=8, out=tmp_path / "dpr", device="cpu",
        learning_rate=1e-2, max_query_length=16, precision="fp32",
    )  # fmt: skip
    index = cs.DenseIndex(tmp_path / "x.flex", teacher).index(collection.corpus)
    student = cs.train_convdr(topics, teacher, max_steps=1, learning_rate=0.0, out=tmp_path / "student")
    texts = ["who w1", "hi a"]
    np.testing.assert_allclose(student.encode_queries(texts), teacher.encode_queries(texts), atol=1e-5)
    assert abs(teacher.encode_queries(texts) - teacher.encode_docs(texts)).max() > 1e-3
    assert teacher.max_query_length == 16
    assert student.max_query_length == 64  # as long as the model reads, not as the teacher was trained
    assert len(cs.DenseIndex(tmp_path / "x.flex", student).retriever(num_results=3)(topics)) == 3 * len(topics)
    assert len(index) == len(collection.corpus)


def test_without_pairs_only_rewrites_teach(topics: Any, teacher: cs.BiEncoder, tmp_path: Path) -> None:
    student = cs.train_convdr(topics, teacher, out=tmp_path / "student", max_steps=1, batch_size=8)
    assert json.loads((tmp_path / "student" / "training.json").read_text(encoding="utf-8"))["pairs"] is None
    assert "- questions: 31" in (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    assert "student" in repr(student)


def test_what_cannot_be_taught(
    topics: Any, teacher: cs.BiEncoder, collection: Collection, tiny_bert: str, tmp_path: Path
) -> None:
    out = tmp_path / "student"
    with pytest.raises(ValueError, match="qrewrite"):
        cs.train_convdr(topics.drop(columns="qrewrite"), teacher, out=out)
    with pytest.raises(ValueError, match="none of the 32 questions has a rewrite"):
        cs.train_convdr(topics.assign(qrewrite=None), teacher, out=out)
    with pytest.raises(TypeError, match="BiEncoder"):
        cs.train_convdr(topics, tiny_bert, out=out)  # type: ignore[arg-type]
    pairs = cs.training_pairs(
        *collection.all, form=cs.CURRENT, negatives=cs.RandomNegatives(collection.corpus), out=tmp_path / "pairs"
    )
    with pytest.raises(ValueError, match=r"32 questions .* read otherwise .*formed by CURRENT"):
        cs.train_convdr(topics, teacher, pairs=pairs, out=out)
    plain = cs.training_pairs(*collection.all, form=cs.X, out=tmp_path / "plain")
    with pytest.raises(ValueError, match="without a miner"):
        cs.train_convdr(topics, teacher, pairs=plain, out=out)
    other = cs.BiEncoder(tiny_bert, similarity="cosine", bf16=False, device="cpu")
    index = cs.DenseIndex(tmp_path / "other.flex", other).index(collection.corpus)
    with pytest.raises(ValueError, match="similarity"):
        cs.train_convdr(topics, teacher, dev=(topics, collection.qrels, index), out=out)
    with pytest.raises(TypeError, match="index"):
        cs.train_convdr(topics, teacher, index="passages.flex", out=out)  # type: ignore[arg-type]
    for wrong in ({"num_negatives": 0}, {"mse_weight": -1.0}, {"epochs": 0}, {"patience": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            cs.train_convdr(topics, teacher, out=out, **wrong)  # type: ignore[arg-type]
    short = cs.DenseIndex(tmp_path / "short.flex", teacher).index(collection.corpus[:3])
    mined = cs.training_pairs(
        *collection.all, form=cs.X, negatives=cs.RandomNegatives(collection.corpus), out=tmp_path / "mined"
    )
    with pytest.raises(ValueError, match="29 docnos are not in the index"):
        cs.train_convdr(topics, teacher, pairs=mined, index=short, out=out)
    assert not out.exists()
