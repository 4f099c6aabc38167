"""CONQRR: rewards by hand, the loss and its probabilities against brute force, a reward that rises, exact resuming."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from ir_measures import RR
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch.rewriting.generation import encoded
from pt_convsearch.training.rewriter_conqrr import RewardTrainer
from pt_convsearch.training.rewriter_reward import Reward, advantages, merged, self_critical_loss

from ..rewriting.conftest import WORDS, said, tiny_gpt2, tiny_t5
from .test_rewriter import OPTIONS, CrashAfter, same_weights


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> cs.BM25Index:
    folder = tmp_path_factory.mktemp("index") / "words"
    return cs.BM25Index(folder).index(
        [{"docno": word, "text": f"{word} w{(at + 1) % 60}"} for at, word in enumerate(WORDS)]
    )


def world(size: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The history names a subject and a bystander, gold rewrites either; the subject's passage is relevant."""
    draw = random.Random(seed)
    rows, golds = [], []
    for number in range(size):
        subject, bystander = draw.choice(WORDS[:8]), draw.choice(WORDS[20:28])
        history = [said("user", f"{subject} {bystander}"), said("assistant", "w57")]
        rows.append((f"c{number}_2", "w59", history, draw.choice([subject, bystander])))
        golds.append((f"c{number}_2", subject, 1))
    return pd.DataFrame(rows, columns=["qid", "query", "qhistory", "qrewrite"]), pd.DataFrame(
        golds, columns=["qid", "docno", "label"]
    )


def test_rewards_by_hand(index: cs.BM25Index) -> None:
    topics = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["x", "y", "z"], "qhistory": [[said("user", "w")]] * 3})
    qrels = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["w5", "w5", "w5"], "label": [1, 1, 1]})
    judge = Reward(index.bm25(num_results=10), qrels, RR)
    # "w5" is in w4's passage and in w5's, in the order of the collection; "w5 w6" puts w5's passage first; "w9"
    # misses it
    assert judge(topics, ["w5", "w5 w6", "w9"]).tolist() == [0.5, 1.0, 0.0]
    assert judge(topics, ["", "  ", "w5 w6"]).tolist() == [0.0, 0.0, 1.0]


def test_equal_rewrites_are_searched_for_once(index: cs.BM25Index) -> None:
    seen: list[int] = []
    watched = pt.apply.generic(lambda frame: seen.append(len(frame)) or frame) >> index.bm25(num_results=10)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["x", "y"], "qhistory": [[said("user", "w")]] * 2})
    judge = Reward(watched, pd.DataFrame({"qid": ["1", "2"], "docno": ["w5", "w6"], "label": [1, 1]}), "RR")
    judge(topics, ["w5", "w5"])
    judge(topics, ["w5", "w6 w7"])
    assert seen == [2, 1]


def test_several_rewrites_of_a_question(index: cs.BM25Index) -> None:
    """To the pipeline a qid names one query: rewrites of one question go into runs of their own."""
    topics = pd.DataFrame({"qid": list("1121"), "query": list("xxyx"), "qhistory": [[said("user", "w")]] * 4})
    seen: list[list[tuple[str, str]]] = []

    class Watched(pt.Transformer):
        def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
            seen.append(list(zip(inp["qid"], inp["query"], strict=True)))
            return index.bm25(num_results=10).transform(inp)

    judge = Reward(Watched(), pd.DataFrame({"qid": ["1", "2"], "docno": ["w5", "w6"], "label": [1, 1]}), RR)
    # "w5" is in w4's passage before it is in w5's; "w6 w7" is w6's
    assert judge(topics, ["w5", "w5 w6", "w6 w7", "w5"]).tolist() == [0.5, 1.0, 1.0, 0.5]
    assert seen == [[("1", "w5"), ("2", "w6 w7")], [("1", "w5 w6")]]


def test_the_loss_by_hand() -> None:
    log_p = torch.tensor([-2.0, -1.0, -3.0], requires_grad=True)
    greedy = np.array([0.5, 0.5, 0.5])
    loss = self_critical_loss(log_p, advantages(np.array([[1.0], [0.25], [0.5]]), greedy).ravel())
    assert loss.item() == pytest.approx((0.5 * 2.0 - 0.25 * 1.0 + 0.0) / 3)
    loss.backward()
    assert log_p.grad is not None
    # a step against the gradient makes the better draw likelier, the worse one less likely, the equal one neither
    assert np.sign(-log_p.grad.numpy()).tolist() == [1, -1, 0]


def test_advantages_by_hand() -> None:
    drawn = np.array([[1.0, 0.0, 0.5], [0.2, 0.2, 0.2]])
    assert advantages(drawn, np.array([0.5, 0.0])) == pytest.approx(np.array([[0.5, -0.5, 0.0], [0.2, 0.2, 0.2]]))
    # each against the mean of the other two: 1 - 0.25, 0 - 0.75, 0.5 - 0.5
    others = advantages(drawn)
    assert others == pytest.approx(np.array([[0.75, -0.75, 0.0], [0.0, 0.0, 0.0]]))
    # the standard deviation over the six: sqrt((2 * 0.5625) / 6)
    assert advantages(drawn, normalize=True) == pytest.approx(others / (2 * 0.5625 / 6) ** 0.5)
    assert advantages(drawn, penalty=0.2) == pytest.approx(np.array([[0.75, -0.15, 0.0], [0.0, 0.0, 0.0]]))
    # nothing to tell apart: no division by 0
    assert advantages(np.full((2, 2), 0.3), normalize=True).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_equal_draws_count_as_often_as_they_were_drawn(kind: str, tmp_path: Path) -> None:
    """The loss and its gradient are those of all draws, though equal ones are gone through once."""
    trainer = untrained(kind, tmp_path)
    model, texts = trainer.generator.model.eval(), ["w1 w2 w3 w4", "w5"]
    each, drawn = [0, 0, 0, 1, 1, 1], [[7, 8, 1], [9, 1], [7, 8, 1], [8, 1], [9, 1], [8, 1]]
    advantage = np.array([0.5, -0.75, 0.5, 0.25, 0.0, -0.25])
    losses, slopes = [], []
    for rows, ids, weights in [(each, drawn, advantage), merged(each, drawn, advantage)]:
        model.zero_grad()
        loss = self_critical_loss(trainer._log_probabilities(model, texts, ids, each=rows), weights, draws=6)
        loss.backward()
        losses.append(loss.item())
        slopes.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(*slopes, strict=True))
    assert any(slope.abs().max() > 1e-3 for slope in slopes[0])
    # a training's loss is the mean over all six draws, not over the two that are left
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    trainer.topics, trainer.mle_weight, trainer.num_draws, trainer.temperature = pd.DataFrame(index=[0, 1]), 0.0, 3, 1.0
    trainer._drawn = lambda texts, topics: (drawn, advantage)  # type: ignore[method-assign]
    assert trainer.compute_loss(model, {"rows": [0, 1], "texts": texts}).item() == pytest.approx(losses[0], abs=1e-4)
    # of the second input nothing is left: .25 and -.25 for the same text, and 0
    assert merged(each, drawn, advantage)[:2] == ([0, 0], [[7, 8, 1], [9, 1]])


def test_a_batch_without_a_difference_changes_nothing(tmp_path: Path, index: cs.BM25Index) -> None:
    """Where all rewards are alike there is nothing to learn, and nothing breaks."""
    train, golds = world(8, 1)
    start = tiny_t5(tmp_path / "t5")
    nothing = index.bm25(num_results=10) >> pt.apply.generic(lambda frame: frame.head(0))
    cs.train_conqrr(
        start, train, golds, nothing, out=tmp_path / "o", max_steps=1, max_new_tokens=3, num_draws=2,
        baseline="others", normalize=True, **OPTIONS,
    )  # fmt: skip
    assert same_weights(Path(start), tmp_path / "o")


def test_the_gradient_is_that_of_the_tempered_distribution(tmp_path: Path) -> None:
    """Of one token: d(-A log softmax(z / T)[y]) / dz = A (softmax(z / T) - 1[y]) / T."""
    generator = cs.Rewriter(tiny_t5(tmp_path / "m"), max_new_tokens=6, device="cpu").generator()
    trainer = RewardTrainer.__new__(RewardTrainer)
    trainer.generator, trainer.max_input_length = generator, 40
    scores = torch.tensor([[[1.0, 2.0, 0.0]]], requires_grad=True)
    model = type("Scores", (), {"__call__": lambda self, **inputs: type("Out", (), {"logits": scores})()})()
    log_p = trainer._log_probabilities(model, ["w1"], [[1]], temperature=0.5)
    e = np.exp([2.0, 4.0, 0.0])
    assert log_p.item() == pytest.approx(np.log(e[1] / e.sum()))
    self_critical_loss(log_p, [0.75]).backward()
    assert scores.grad is not None
    assert scores.grad[0, 0].numpy() == pytest.approx(0.75 * (e / e.sum() - [0, 1, 0]) / 0.5, abs=1e-6)


def test_draws_are_compared_with_each_other(
    tmp_path: Path, index: cs.BM25Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four draws a question, each rewarded for its own question, and no greedy rewrite."""
    train, golds = world(8, 1)
    asked: list[tuple[list[str], list[str]]] = []
    judged = Reward.__call__
    monkeypatch.setattr(
        Reward, "__call__",
        lambda self, topics, rewrites: asked.append((topics["qid"].tolist(), list(rewrites)))
        or judged(self, topics, rewrites),
    )  # fmt: skip
    cs.train_conqrr(
        tiny_t5(tmp_path / "t5"), train, golds, index.bm25(num_results=10), out=tmp_path / "o", max_steps=1,
        max_new_tokens=3, num_draws=4, baseline="others", temperature=0.7, normalize=True,
        **{**OPTIONS, "batch_size": 2},
    )  # fmt: skip
    ((qids, rewrites),) = asked
    assert len(rewrites) == 8
    assert [qids[at] for at in (0, 4)] != [qids[0], qids[0]]
    assert qids == [qids[0]] * 4 + [qids[4]] * 4
    assert len(set(rewrites[:4])) > 1
    curve = (tmp_path / "o" / "dev_curve.jsonl").read_text(encoding="utf-8")
    assert '"drawn_reward"' in curve
    assert "greedy_reward" not in curve


def test_options_of_draws_that_contradict(tmp_path: Path, index: cs.BM25Index) -> None:
    train, golds = world(6, 1)
    start, pipeline = tiny_t5(tmp_path / "t5"), index.bm25(num_results=10)
    for wrong, why in [({"baseline": "others"}, "num_draws=2"), ({"baseline": "mean"}, "'greedy' or 'others'"),
                        ({"temperature": 0.0}, "temperature"), ({"num_draws": 0}, "at least 1"),
                       ({"penalty": -1.0}, r"\[0, 1\]")]:  # fmt: skip
        with pytest.raises(ValueError, match=why):
            cs.train_conqrr(start, train, golds, pipeline, out=tmp_path / "o", **wrong)


def test_a_control_learns_from_gold_rewrites_alone(tmp_path: Path) -> None:
    """mle_weight=1: nothing is drawn or searched for, and the first loss is the mean of the gold rewrites' tokens."""
    train, golds = world(8, 1)
    start = tiny_t5(tmp_path / "t5")
    losses: list[float] = []

    class Losses(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            losses.extend([logs["loss"]] if "loss" in logs else [])

    nothing = pt.apply.generic(lambda frame: pytest.fail("searched"), transform_outputs=lambda columns: columns)
    cs.train_conqrr(
        start, train, golds, nothing, out=tmp_path / "o", max_steps=1, max_new_tokens=3, mle_weight=1.0,
        callbacks=[Losses()], **{**OPTIONS, "batch_size": 8},
    )  # fmt: skip
    rewriter = cs.Rewriter(start, max_new_tokens=3, device="cpu")
    generator, total, count = rewriter.generator(), 0.0, 0
    for text, gold in zip(rewriter.inputs(train)["query"], train["qrewrite"], strict=True):
        source = torch.tensor(encoded(generator, [text], rewriter.max_input_length)["input_ids"])
        target = generator.tokenizer(text_target=gold)["input_ids"]
        with torch.no_grad():
            scores = generator.model(input_ids=source, decoder_input_ids=torch.tensor([[0, *target[:-1]]])).logits[0]
        total -= torch.log_softmax(scores, -1)[range(len(target)), target].sum().item()
        count += len(target)
    assert losses == [pytest.approx(total / count, abs=1e-3)]
    assert "drawn_reward" not in (tmp_path / "o" / "dev_curve.jsonl").read_text(encoding="utf-8")


def untrained(kind: str, tmp_path: Path) -> RewardTrainer:
    """A trainer that knows its model and nothing else."""
    model = tiny_t5(tmp_path / "m") if kind == "t5" else tiny_gpt2(tmp_path / "m")
    trainer = RewardTrainer.__new__(RewardTrainer)
    trainer.generator = cs.Rewriter(model, max_new_tokens=6, device="cpu").generator()
    trainer.max_input_length = 40
    return trainer


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_inputs_are_read_once_for_all_that_is_written_for_them(kind: str, tmp_path: Path) -> None:
    trainer = untrained(kind, tmp_path)
    generator = trainer.generator
    texts, written, each = ["w1 w2 w3 w4", "w5"], [[7, 8, 1], [9, 1], [8, 1]], [1, 0, 1]
    with torch.no_grad():
        found = trainer._log_probabilities(generator.model, texts, written, each=each, read=trainer._read(texts))
        for row, ids, value in zip(each, written, found, strict=True):
            (alone,) = trainer._log_probabilities(generator.model, [texts[row]], [ids])
            assert value.item() == pytest.approx(alone.item(), abs=1e-4)


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_log_probabilities_against_brute_force(kind: str, tmp_path: Path) -> None:
    trainer = untrained(kind, tmp_path)
    generator = trainer.generator
    texts, written = ["w1 w2 w3 w4", "w5"], [[7, 8, 1], [9, 1]]
    with torch.no_grad():
        found = trainer._log_probabilities(generator.model, texts, written)
    for text, ids, value in zip(texts, written, found.tolist(), strict=True):
        source = encoded(generator, [text], 40)["input_ids"][0]
        total = 0.0
        for at, token in enumerate(ids):
            with torch.no_grad():
                if generator.seq2seq:
                    so_far = torch.tensor([[0, *ids[:at]]])
                    logits = generator.model(input_ids=torch.tensor([source]), decoder_input_ids=so_far).logits[0, -1]
                else:
                    logits = generator.model(input_ids=torch.tensor([[*source, *ids[:at]]])).logits[0, -1]
            total += torch.log_softmax(logits, -1)[token].item()
        assert value == pytest.approx(total, abs=1e-4)


def test_training_by_reward_raises_the_reward(tmp_path: Path, index: cs.BM25Index) -> None:
    (train, golds), (dev, dev_golds) = world(300, 1), world(100, 2)
    start = cs.train_rewriter(
        train,
        init=tiny_gpt2(tmp_path / "gpt2"),
        out=tmp_path / "start",
        epochs=10,
        suffix=" go",
        max_target_length=4,
        **OPTIONS,
    )
    pipeline = index.bm25(num_results=10)
    judge = Reward(pipeline, dev_golds, RR)
    before = cs.Rewriter(str(tmp_path / "start"), num_beams=1, max_new_tokens=4, device="cpu")
    trained = cs.train_conqrr(
        start, train, golds, pipeline, out=tmp_path / "conqrr", dev=(dev, dev_golds), max_steps=80, eval_every=40,
        max_new_tokens=4,
        **{**OPTIONS, "learning_rate": 2e-3},
    )  # fmt: skip
    trained.num_beams = 1
    gain = judge(dev, trained(dev)["query"].tolist()).mean() - judge(dev, before(dev)["query"].tolist()).mean()
    assert gain > 0.1
    # the start was not touched, and its way of making inputs is kept
    assert before == cs.Rewriter(str(tmp_path / "start"), num_beams=1, max_new_tokens=4, device="cpu")
    assert trained.inputs(dev)["query"][0] == before.inputs(dev)["query"][0]
    assert '"greedy_reward"' in (tmp_path / "conqrr" / "dev_curve.jsonl").read_text(encoding="utf-8")


def test_resumed_exactly(tmp_path: Path, index: cs.BM25Index) -> None:
    train, golds = world(40, 1)
    options: dict[str, Any] = {
        **OPTIONS,
        "batch_size": 8,
        "max_steps": 4,
        "eval_every": 2,
        "max_new_tokens": 3,
        "mle_weight": 0.2,
    }
    start = tiny_t5(tmp_path / "t5")
    cs.train_conqrr(start, train, golds, index.bm25(num_results=10), out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        cs.train_conqrr(
            start, train, golds, index.bm25(num_results=10), out=tmp_path / "cut", callbacks=[CrashAfter(3)], **options
        )
    cs.train_conqrr(start, train, golds, index.bm25(num_results=10), out=tmp_path / "cut", **options)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert not same_weights(tmp_path / "whole", Path(start))


def test_what_cannot_be_rewarded(tmp_path: Path, index: cs.BM25Index, caplog: pytest.LogCaptureFixture) -> None:
    train, golds = world(6, 1)
    start, pipeline = tiny_t5(tmp_path / "t5"), index.bm25(num_results=10)
    with pytest.raises(ValueError, match="none of the 6 topics has a relevant document"):
        cs.train_conqrr(start, train, golds.assign(label=0), pipeline, out=tmp_path / "o", max_new_tokens=3)
    with pytest.raises(ValueError, match="qrewrite"):
        cs.train_conqrr(
            start, train.assign(qrewrite=None), golds, pipeline, out=tmp_path / "o", mle_weight=0.5, max_new_tokens=3
        )
    with pytest.raises(ValueError, match="one measure"):
        cs.train_conqrr(start, train, golds, pipeline, out=tmp_path / "o", reward=["RR", "R@5"])
    with pytest.raises(TypeError, match="transformer"):
        cs.train_conqrr(start, train, golds, "bm25", out=tmp_path / "o")  # type: ignore[arg-type]
    with caplog.at_level("INFO"):
        cs.train_conqrr(
            start, train, golds.head(4), pipeline, out=tmp_path / "o", max_steps=1, max_new_tokens=3, **OPTIONS
        )
    assert "4 of 6 questions have a relevant document" in caplog.text
