"""DiSCo: the loss by hand, scores that are learnt by a sparse student, an index that is reused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import pt_convsearch as cs
from pt_convsearch.training.distillation_data import Passages, conversations, targets
from pt_convsearch.training.distillation_losses import DiSCoLoss

from .conftest import Collection
from .test_convdr import Fixed, Stop

#: the teacher's scores ln 3 and 0: probabilities 3/4 and 1/4; the third place is empty
LABELS = {
    "scores": torch.tensor([[math.log(3), 0.0, 99.0]]),
    "allowed": torch.tensor([[True, True, False]]),
    "candidates": torch.tensor([[[1.0, 0.0], [1.0, 0.0], [7.0, 7.0]]]),
}
EVEN = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)  # the student scores both alike


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [
        ([1.0, 0.0], {}, EVEN),
        ([1.0, -3.0], {"l1_weight": 0.5}, EVEN + 0.5 * 4),
        # temperature 1/2: probabilities of ln 9 and 0, 9/10 and 1/10
        ([1.0, 0.0], {"temperature": 0.5}, 0.9 * math.log(1.8) + 0.1 * math.log(0.2)),
        ([1.0, 0.0], {"scale": 2.0}, 0.9 * math.log(1.8) + 0.1 * math.log(0.2)),
    ],
)
def test_the_loss_by_hand(query: list[float], options: dict[str, Any], expected: float) -> None:
    loss = DiSCoLoss(Fixed([query]), **options)([{}], LABELS)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_who_scores_as_the_teacher_loses_nothing() -> None:
    model = Fixed([[math.log(3), 5.0]])  # the second passage has no say in that direction
    labels = {**LABELS, "candidates": torch.tensor([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])}
    loss = DiSCoLoss(model)([{}], labels)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    assert model.vectors.grad is not None
    assert model.vectors.grad.abs().max().item() == pytest.approx(0.0, abs=1e-6)


@pytest.fixture(scope="module")
def masked(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A masked language model on top of the tiny BERT."""
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("masked")
    torch.manual_seed(1)
    config = BertConfig.from_pretrained(tiny_bert)
    config.initializer_range = 0.4
    BertForMaskedLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def teacher(masked: str) -> cs.SparseEncoder:
    return cs.SparseEncoder(masked, bf16=False, device="cpu")


@pytest.fixture
def topics(collection: Collection) -> Any:
    return collection.topics.assign(qrewrite=[None, *collection.topics["query"][1:]])


@pytest.fixture
def pairs(topics: Any, collection: Collection, tmp_path: Path) -> cs.TrainingPairs:
    return cs.training_pairs(
        topics, collection.qrels, collection.corpus, form=cs.X, negatives=cs.RandomNegatives(collection.corpus),
        out=tmp_path / "pairs",
    )  # fmt: skip


def divergence(student: Any, teacher: Any, topics: Any, corpus: list[dict[str, Any]]) -> float:
    """The mean divergence of the student's distribution over all passages from the teacher's."""
    kept = topics[topics["qrewrite"].notna()].reset_index(drop=True)
    passages = teacher.encode_docs([passage["text"] for passage in corpus])
    logs = [
        torch.log_softmax(torch.tensor(np.asarray((encoder.encode_queries(texts) @ passages.T).todense())), dim=1)
        for encoder, texts in (
            (teacher, kept["qrewrite"].tolist()), (student, cs.form(cs.X)(kept)["query"].tolist())
        )
    ]  # fmt: skip
    return float((logs[0].exp() * (logs[0] - logs[1])).sum(dim=1).mean())


def test_a_sparse_student_learns_the_scores_and_no_passage_is_encoded(
    topics: Any, teacher: cs.SparseEncoder, pairs: cs.TrainingPairs, collection: Collection, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    index = cs.ImpactIndex(tmp_path / "passages", teacher).index(collection.corpus)
    before = divergence(teacher, teacher, topics, collection.corpus)
    with monkeypatch.context() as patched:

        def refused(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a passage was encoded")

        patched.setattr(cs.SparseEncoder, "encode_docs", refused)
        student = cs.train_disco(
            topics, teacher, pairs=pairs, index=index, dev=(topics, collection.qrels, index), out=tmp_path / "student",
            num_negatives=6, batch_size=8, epochs=5, learning_rate=3e-3, metric="RR",
        )  # fmt: skip
        searched = cs.ImpactIndex(tmp_path / "passages", student)
        results = (cs.form(cs.X) >> searched.retriever(num_results=5))(topics)
    assert isinstance(student, cs.SparseEncoder)
    assert divergence(student, teacher, topics, collection.corpus) < 0.5 * before
    assert student.identity()["passage_model"] == teacher.identity()["passage_model"]
    formed = cs.form(cs.X)(topics)
    scores = student.encode_queries(formed["query"].tolist()) @ teacher.encode_docs(
        [passage["text"] for passage in collection.corpus]
    ).T
    best = results[results["rank"] == 0].set_index("qid")["score"]
    np.testing.assert_allclose(best[formed["qid"]], scores.toarray().max(axis=1), rtol=1e-4)
    lines = (tmp_path / "student" / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()
    curve = {line["step"]: line["RR"] for line in map(json.loads, lines) if "RR" in line}
    assert set(curve) == {0, 4, 8, 12, 16, 20}  # 31 questions have a rewrite
    card = (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    assert "- questions: 31" in card


def test_a_run_that_stopped_goes_on_to_the_same_weights(
    topics: Any, teacher: cs.SparseEncoder, pairs: cs.TrainingPairs, collection: Collection, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "pairs": pairs, "num_negatives": 3, "batch_size": 8, "epochs": 2, "eval_every": 3, "l1_weight": 0.01,
        "dev": (topics, collection.qrels, collection.corpus), "learning_rate": 1e-3,
    }  # fmt: skip
    whole = cs.train_disco(topics, teacher, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        cs.train_disco(topics, teacher, out=tmp_path / "cut", callbacks=[Stop(5)], **options)
    resumed = cs.train_disco(topics, teacher, out=tmp_path / "cut", **options)
    assert resumed.identity() == whole.identity()
    assert resumed.identity()["query_model"] != teacher.identity()["query_model"]
    with pytest.raises(ValueError, match="l1_weight"):
        cs.train_disco(topics, teacher, out=tmp_path / "cut", **{**options, "l1_weight": 0.0})


def test_several_teachers_are_averaged(
    topics: Any, tiny_bert: str, pairs: cs.TrainingPairs, collection: Collection, tmp_path: Path
) -> None:
    dense = cs.BiEncoder(tiny_bert, similarity="dot", bf16=False, device="cpu")
    index = cs.DenseIndex(tmp_path / "x.flex", dense).index(collection.corpus)
    from pt_convsearch.dense.encoding import Side
    from pt_convsearch.training.distillation_data import Lesson, LessonCollator

    said = conversations(topics, cs.X, [cs.REWRITE, cs.form(cs.CURRENT)], pairs)
    assert said.known.tolist() == [False] + [True] * 31
    told = [targets(dense, texts) for texts in said.rewrites]
    assert not told[0][0].any()
    collator = LessonCollator(
        dense._load()[0], Side("query", 16, "left", ""), told, said.known, Passages(index, pairs, dense),
        num_negatives=2, tell_scores=True,
    )  # fmt: skip
    labels = collator([Lesson(3, "who w3", np.array([3, 4])), Lesson(5, "who w5", np.array([5, 1, 0]))])["label"]
    docnos = pairs.passages()["docno"].tolist()
    vectors = np.asarray(index.vectors)[index.numbers_of(pairs.passages()["docno"])]
    assert len(docnos) == 32
    both = [(told[0][row] + told[1][row]) / 2 for row in (3, 5)]
    expected = [[both[0] @ vectors[3], both[0] @ vectors[4], 0], [both[1] @ vectors[n] for n in (5, 1, 0)]]
    np.testing.assert_allclose(labels["scores"], expected, rtol=1e-5)
    assert labels["allowed"].tolist() == [[True, True, False], [True, True, True]]
    student = cs.train_disco(
        topics, dense, pairs=pairs, index=index, rewrite=[cs.REWRITE, cs.form(cs.CURRENT)], num_negatives=2,
        max_steps=2, out=tmp_path / "student",
    )  # fmt: skip
    assert isinstance(student, cs.BiEncoder)
    assert len(cs.DenseIndex(tmp_path / "x.flex", student).retriever(num_results=2)(topics)) == 64


def test_sparse_passages_are_those_of_the_teacher(
    teacher: cs.SparseEncoder, pairs: cs.TrainingPairs, collection: Collection, tmp_path: Path
) -> None:
    index = cs.ImpactIndex(tmp_path / "passages", teacher).index(collection.corpus)
    rows = np.array([4, 0, 31, 4])
    found = Passages(index, pairs, teacher).vectors(rows)
    expected = teacher.encode_docs([pairs.passages()["text"][row] for row in rows])
    assert scipy.sparse.issparse(found)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)
    texts = [None, "who w1", None, "who w2", "who w1"]
    np.testing.assert_allclose(
        targets(teacher, texts).toarray(),
        teacher.encode_queries(["", "who w1", "", "who w2", "who w1"]).toarray(),
    )


def test_what_cannot_be_taught(
    topics: Any, teacher: cs.SparseEncoder, pairs: cs.TrainingPairs, tmp_path: Path
) -> None:
    out = tmp_path / "student"
    with pytest.raises(ValueError, match="none of the 32 questions has a rewrite"):
        cs.train_disco(topics.assign(qrewrite=""), teacher, pairs=pairs, out=out)
    with pytest.raises(ValueError, match="pairs=None"):
        cs.train_disco(topics, teacher, pairs=None, out=out)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SparseEncoder"):
        cs.train_disco(topics, "splade", pairs=pairs, out=out)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="temperature"):
        cs.train_disco(topics, teacher, pairs=pairs, temperature=0.0, out=out)
    with pytest.raises(ValueError, match=r"rewrite=\[\]"):
        cs.train_disco(topics, teacher, pairs=pairs, rewrite=[], out=out)
