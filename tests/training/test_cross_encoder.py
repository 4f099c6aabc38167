"""Training re-rankers: losses by hand, learning, selection, exact resuming."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs

torch = pytest.importorskip("torch")
QUICK: dict[str, Any] = {"batch_size": 4, "learning_rate": 2e-3, "max_length": 24, "device": "cpu", "precision": "fp32"}


class StopAfter:
    """Stops a training after a step, as a kill would: what is not on disk is lost."""

    def __new__(cls, step: int) -> Any:
        from transformers import TrainerCallback

        class Stop(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == step:
                    raise KeyboardInterrupt

        return Stop()


class Marked:
    """Each question has a passage that says "hi", and two that share its word and do not."""

    def __init__(self, size: int = 24) -> None:
        self.topics = pd.DataFrame(
            {"qid": [f"c{n}_1" for n in range(size)], "query": [f"who w{n}" for n in range(size)]}
        )
        self.topics["qhistory"] = [[] for _ in range(size)]
        texts = {"good": "w{n} hi w{m}", "bad": "w{n} b w{m}", "worse": "w{m} w{n} c"}
        self.corpus = [
            {"docno": f"{kind}{n}", "text": text.format(n=n, m=100 + 7 * n % 90)}
            for n in range(size)
            for kind, text in texts.items()
        ]
        self.qrels = pd.DataFrame({"qid": self.topics["qid"], "docno": [f"good{n}" for n in range(size)], "label": 1})

    @property
    def all(self) -> tuple[Any, ...]:
        return self.topics, self.qrels, self.corpus


@pytest.fixture
def collection() -> Marked:
    return Marked()


@pytest.fixture
def pairs(collection: Marked, tmp_path: Path) -> cs.TrainingPairs:
    return cs.training_pairs(
        *collection.all, form=cs.X, negatives=cs.RandomNegatives(collection.corpus, seed=1) >> Others(),
        num_negatives=2, out=tmp_path / "pairs",
    )  # fmt: skip


class Others(pt.Transformer):
    """Leaves out the passages of other questions that say "hi": they would be no negatives."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return inp[~inp["docno"].str.startswith("good")]


def candidates(collection: Any) -> pd.DataFrame:
    """The gold behind four others."""
    rows = [
        (qid, docno)
        for number, qid in enumerate(collection.topics["qid"])
        for docno in (f"bad{number}", f"worse{number}", f"bad{number // 2}", f"worse{number // 3}", f"good{number}")
    ]
    return pd.DataFrame(rows, columns=["qid", "docno"]).drop_duplicates(ignore_index=True)


@pytest.fixture
def dev(collection: Any) -> tuple[Any, ...]:
    return (*collection.all, candidates(collection))


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {
        f"{path.name} {name}": tensor
        for path in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_losses_by_hand() -> None:
    from pt_convsearch.training.ranking import group_loss

    scores, groups = torch.tensor([2.0, 1.0, 3.0, -1.0, 0.5]), torch.tensor([0, 0, 0, 1, 1])
    softmax = -math.log(math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(3)))
    softmax -= math.log(math.exp(-1) / (math.exp(-1) + math.exp(0.5)))
    assert float(group_loss(scores, groups, "softmax")) == pytest.approx(softmax / 2, abs=1e-6)
    # 1 - 2 + 1 = 0; 1 - 2 + 3 = 2; 1 + 1 + 0.5 = 2.5
    assert float(group_loss(scores, groups, "hinge")) == pytest.approx(4.5 / 3, abs=1e-6)
    logs = [math.log(1 + math.exp(-2)), math.log(1 + math.exp(1)), math.log(1 + math.exp(3))]
    logs += [math.log(1 + math.exp(1)), math.log(1 + math.exp(0.5))]
    assert float(group_loss(scores, groups, "bce")) == pytest.approx(sum(logs) / 5, abs=1e-6)


def test_softmax_of_large_scores_does_not_overflow() -> None:
    from pt_convsearch.training.ranking import group_loss

    scores = torch.tensor([1000.0, 999.0], requires_grad=True)
    loss = group_loss(scores, torch.tensor([0, 0]), "softmax")
    loss.backward()
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1)), abs=1e-5)
    assert scores.grad.tolist() == pytest.approx([-0.268941, 0.268941], abs=1e-5)


def test_it_learns_selects_saves_and_is_not_done_again(
    pairs: cs.TrainingPairs, dev: Any, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    out = tmp_path / "cross-encoder"
    options = {**QUICK, "init": tiny_bert, "out": out, "dev": dev, "epochs": 4, "metric": "RR", "num_negatives": 2}
    stage = cs.train_cross_encoder(pairs, **options)
    entries = curve(out)
    measured = {entry["step"]: entry["RR"] for entry in entries if "RR" in entry}
    assert list(measured) == [0, 6, 12, 18, 24]
    assert measured[0] < 0.9
    assert max(measured.values()) == 1.0
    assert json.loads((out / "training.json").read_text(encoding="utf-8"))["loss"] == "softmax"
    assert "dev RR" in (out / "README.md").read_text(encoding="utf-8")
    assert not (tmp_path / "cross-encoder.training").exists()

    frame = candidates(collection).merge(pd.DataFrame(collection.corpus), on="docno")
    frame = frame.merge(cs.form(cs.X)(collection.topics)[["qid", "query"]], on="qid")
    table = cs.Experiment(
        {"trained": stage(frame), "opened": cs.CrossEncoder(out)(frame)},
        collection.topics, collection.qrels, ["RR"],
    )  # fmt: skip
    assert table["All"]["RR"].tolist() == pytest.approx([max(measured.values())] * 2, abs=0.02)

    from sentence_transformers import CrossEncoder

    row = frame.iloc[0]
    theirs = float(CrossEncoder(str(out), device="cpu").predict([(row["query"], row["text"])])[0])
    assert stage(frame.head(1))["score"][0] == pytest.approx(theirs, abs=0.05)

    assert cs.CrossEncoder(out) == stage  # the lengths are those of the training
    assert cs.CrossEncoder(out, max_query_length=3) != stage
    before = weights(out)
    cs.train_cross_encoder(pairs, **{**options, "callbacks": [StopAfter(0)]})  # would stop at once
    assert same(weights(out), before)
    with pytest.raises(ValueError, match=r"other settings .*epochs"):
        cs.train_cross_encoder(pairs, **{**options, "epochs": 2})


@pytest.mark.parametrize("kind", ["cross_encoder", "parade"])
def test_a_stopped_training_goes_on_to_the_same_weights(
    pairs: cs.TrainingPairs, dev: Any, tiny_bert: str, tmp_path: Path, kind: str
) -> None:
    train = cs.train_cross_encoder if kind == "cross_encoder" else cs.train_parade
    options = {**QUICK, "init": tiny_bert, "dev": dev, "max_steps": 12, "eval_every": 3, "metric": "AP"}
    if kind == "parade":
        options |= {"passage_length": 2, "stride": 1, "max_passages": 2}
    train(pairs, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train(pairs, out=tmp_path / "stopped", callbacks=[StopAfter(7)], **options)
    assert not (tmp_path / "stopped").exists()
    train(pairs, out=tmp_path / "stopped", **options)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    train(pairs, out=tmp_path / "seed", **{**options, "seed": 2})
    assert not same(weights(tmp_path / "whole"), weights(tmp_path / "seed"))
    assert curve(tmp_path / "whole") == curve(tmp_path / "stopped")


@pytest.mark.parametrize("aggregator", ["transformer", "attn", "avg", "max"])
def test_parade_learns(
    pairs: cs.TrainingPairs, dev: Any, collection: Any, tiny_bert: str, tmp_path: Path, aggregator: Any
) -> None:
    out = tmp_path / "parade"
    stage = cs.train_parade(
        pairs, init=tiny_bert, out=out, aggregator=aggregator, dev=dev, metric="RR", epochs=5, loss="softmax",
        new_learning_rate=5e-3, passage_length=2, stride=1, max_passages=2, **{**QUICK, "learning_rate": 5e-3},
    )  # fmt: skip
    entries = curve(out)
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert losses[-1] < losses[0] / 2
    frame = candidates(collection).merge(pd.DataFrame(collection.corpus), on="docno")
    frame = frame.merge(cs.form(cs.X)(collection.topics)[["qid", "query"]], on="qid")
    best = max(entry["RR"] for entry in entries if "RR" in entry)
    assert best > 0.9
    table = cs.Experiment({"PARADE": stage(frame)}, collection.topics, collection.qrels, ["RR"])
    assert table["All"]["RR"].iloc[0] == pytest.approx(best, abs=0.05)
    assert json.loads((out / "parade.json").read_text(encoding="utf-8"))["aggregator"] == aggregator
    with pytest.raises(ValueError, match="init=.* has aggregator="):
        cs.train_parade(pairs, init=out, out=tmp_path / "more", aggregator="max" if aggregator != "max" else "avg")


def test_new_parameters_have_a_rate_of_their_own(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    rates: list[list[float]] = []

    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            rates.append([group["lr"] for group in optimizer.param_groups])

    options = {**QUICK, "learning_rate": 1e-3}
    cs.train_parade(pairs, init=tiny_bert, out=tmp_path / "p", max_steps=2, warmup=0, new_learning_rate=1e-2,
                    callbacks=[Watch()], **options)  # fmt: skip
    # after the first of two steps half of each rate is left
    assert rates[0] == pytest.approx([5e-4, 5e-3, 5e-4, 5e-3])


def test_going_on_from_a_cross_encoder_and_new_tokens(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    cs.train_cross_encoder(
        pairs, init=tiny_bert, out=first, max_steps=2, loss="bce", separators=("[U]", "[T]"), **QUICK
    )
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(first).tokenize("w1 [U] w2 [T]") == ["w1", "[U]", "w2", "[T]"]
    again = cs.train_cross_encoder(pairs, init=first, out=tmp_path / "again", max_steps=1, loss="bce",
                                   **{**QUICK, "learning_rate": 0.0})  # fmt: skip
    assert same(weights(first), weights(tmp_path / "again"))
    scores = again(pd.DataFrame({"qid": "1", "query": "w1", "docno": ["a"], "text": ["w1"]}))["score"]
    assert scores.between(0, 1).all()  # probabilities


def test_what_cannot_be_is_named(
    pairs: cs.TrainingPairs, collection: Any, dev: Any, tiny_bert: str, tmp_path: Path
) -> None:
    def train(**options: Any) -> None:
        cs.train_cross_encoder(pairs, **{**QUICK, "init": tiny_bert, "out": tmp_path / "x", "max_steps": 1, **options})

    with pytest.raises(ValueError, match="loss='mse'"):
        train(loss="mse")
    with pytest.raises(ValueError, match="learns from negatives"):
        train(num_negatives=0)
    with pytest.raises(TypeError, match="dev is .topics, qrels, corpus, candidates"):
        train(dev=collection.all)
    with pytest.raises(ValueError, match="candidate 'nowhere' is not in the dev corpus"):
        train(dev=(*collection.all, pd.DataFrame({"qid": ["c0_1"], "docno": ["nowhere"]})))
    with pytest.raises(ValueError, match="hold no judged question"):
        train(dev=(*collection.all, candidates(collection).assign(qid="z")))
    with pytest.raises(ValueError, match="was opened from disk"):
        cs.train_cross_encoder(pairs.path, init=tiny_bert, out=tmp_path / "y", dev=dev)
    with pytest.raises(ValueError, match="stride=9 is more than"):
        cs.train_parade(pairs, init=tiny_bert, out=tmp_path / "z", passage_length=3, stride=9)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("with_ranks", [False, True])
def test_a_model_that_tells_nothing_apart_is_not_the_best(pairs: cs.TrainingPairs, with_ranks: bool) -> None:
    """One score for all, the gold listed first of five: chance is left, unless a first stage ranked it first."""
    from pt_convsearch.training.ranking_dev import DevReranking

    number = 300
    topics = pd.DataFrame({"qid": [str(n) for n in range(number)], "query": "w1", "qhistory": [[]] * number})
    corpus = [{"docno": f"d{n}", "text": f"w{n}"} for n in range(number)]
    rows = [(str(n), f"d{(n + place) % number}", place) for n in range(number) for place in range(5)]
    candidates = pd.DataFrame(rows, columns=["qid", "docno", "rank"])
    qrels = candidates[candidates["rank"] == 0].assign(label=1)
    given = candidates if with_ranks else candidates.drop(columns="rank")
    dev = DevReranking((topics, qrels, corpus, given), cs.X, pairs, "RR")
    found = dev(pt.apply.generic(lambda frame: frame.assign(score=1.0)))["RR"]
    # the mean of 1, 1/2 … 1/5 is .457; four standard deviations of the mean of 300 are .067
    assert found == 1.0 if with_ranks else 0.39 < found < 0.53


def test_dev_candidates_from_a_pipeline(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    index = cs.BM25Index(tmp_path / "i.bm25", stemmer=None, stopwords=None).index(collection.corpus)
    first = cs.form(cs.CURRENT) >> index.bm25(num_results=3)
    cs.train_cross_encoder(
        pairs, init=tiny_bert, out=tmp_path / "m", dev=(*collection.all, first), max_steps=1, metric="R@3", **QUICK
    )
    entries = curve(tmp_path / "m")
    # BM25 finds every gold by its word, and re-ranking three of three loses none
    assert [entry["R@3"] for entry in entries if "R@3" in entry] == [1.0, 1.0]


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_questions_without_a_negative_teach_nothing(loss: Any) -> None:
    import torch

    from pt_convsearch.training.ranking import group_loss

    scores = torch.tensor([2.0, -1.0], requires_grad=True)
    found = group_loss(scores, torch.tensor([0, 1]), loss)
    found.backward()
    assert found.item() == pytest.approx(0.0, abs=1e-6)
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
