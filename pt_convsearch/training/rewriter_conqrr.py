"""Training a rewriter by what its rewrites find: self-critical, with any pipeline's measure as the reward (CONQRR)."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import RR
from transformers import Seq2SeqTrainer, set_seed
from transformers.trainer_utils import EvalLoopOutput

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.measures import Judgments
from pt_convsearch.negatives._fingerprint import digest, shown
from pt_convsearch.rewriting import Rewriter
from pt_convsearch.rewriting.generation import Decoding, encoded, sequences_of
from pt_convsearch.rewriting.models import Generator

from .rewriter import _started, write_generator
from .rewriter_reward import Reward, advantages, merged, self_critical_loss
from .rewriter_run import RunOptions, run_training, write_rewriter_card
from .runs import finished


def train_conqrr(
    rewriter: Rewriter | _files.PathLike,
    topics: pd.DataFrame,
    qrels: pd.DataFrame | Mapping[str, Mapping[str, int]],
    pipeline: pt.Transformer,
    *,
    out: _files.PathLike,
    reward: Any = RR,
    dev: tuple[pd.DataFrame, Any] | None = None,
    num_draws: int = 1,
    temperature: float = 1.0,
    baseline: str = "greedy",
    normalize: bool = False,
    penalty: float = 1.0,
    mle_weight: float = 0.0,
    first_turns: bool = False,
    seed: int = 1,
    epochs: int = 1,
    max_steps: int | None = None,
    batch_size: int = 16,
    learning_rate: float = 1e-5,
    warmup: float = 0.0,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    max_new_tokens: int = 64,
    eval_every: int | None = None,
    patience: int | None = None,
    precision: str = "auto",
    device: str | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> Rewriter:
    """Train a rewriter further, by the retrieval measure of what its rewrites find.

    For each question one rewrite is drawn from the model and one is written greedily; both are searched for; the
    drawn one becomes likelier by as much as it is better than the greedy one:
    ``loss = -(reward(drawn) - reward(greedy)) * log p(drawn)``. The retriever is not trained, and may be anything. The
    pipeline is run twice a step, with all questions of the batch at once. That is the paper's way. Of a small model
    nearly all draws are worse than the greedy rewrite, and it learns little but to be surer of itself. Many draws a
    step, each compared with the question's others (``batch_size=128, num_draws=8, baseline="others",
    normalize=True``), raised the reward of a small model on the testbed; trainings with 32 questions of 4 draws were
    not shown to (the page on rewriting). Draws depend on the seed, the step and the input alone, so that a run that was
    killed goes on to exactly the weights of an uninterrupted one (on a CPU).

    Args:
        rewriter: a :class:`Rewriter` or its folder: where training starts (from gold rewrites, by
            :func:`train_rewriter`), and how inputs are made. It is not changed.
        topics: query, qhistory; ``qrewrite`` where ``mle_weight`` is above 0. Questions without a relevant document
            are left out and counted in the log.
        qrels: qid, docno, label.
        pipeline: Q -> R, run on the topics with the rewrite as ``query``, e.g. ``index.bm25(num_results=100)``.
        out: the folder to write: ``cs.Rewriter(out)`` opens it.
        reward: a measure, e.g. ``RR``, ``R@10``, "nDCG@3".
        dev: (topics, qrels) to select the checkpoint by, the mean reward of greedy rewrites; None: the last one is
            kept.
        num_draws: rewrites drawn for each question, a step.
        temperature: what the scores of tokens are divided by before drawing; the gradient is that of what is drawn
            from.
        baseline: what a drawn rewrite has to be better than: "greedy", the greedy rewrite, or "others", the mean of the
            question's other draws (``num_draws`` of at least 2; nothing is written greedily).
        normalize: divide the advantages of a batch by their standard deviation.
        penalty: how much draws that are worse count, from 0 (learn only from better ones) to 1.
        mle_weight: the share of the usual loss on gold rewrites in the whole, from 0 to 1; it keeps the language. With
            1 nothing is drawn or rewarded: the control that says what the gold rewrites alone would have done.
        first_turns: train on first turns as well.
        seed: of order, draws and dropout.
        epochs: passes over the questions.
        max_steps: optimiser steps, instead of ``epochs``.
        batch_size, learning_rate, warmup, weight_decay, max_grad_norm: of AdamW with linear decay.
        max_new_tokens: of a rewrite.
        eval_every, patience, precision, device, trainer_options, callbacks, overwrite, verbose: as in
            :func:`train_rewriter`.

    Returns:
        the trained rewriter; ``<out>/dev_curve.jsonl`` holds the loss and the dev reward by step.

    Raises:
        ValueError: no judged question, options out of range, or ``out`` was trained otherwise.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> cs.train_conqrr("t5-qrecc", topics, qrels, index.bm25(), reward=RR, out="conqrr")  # doctest: +SKIP

    Source: Wu et al., "CONQRR: Conversational query rewriting for retrieval with reinforcement learning" (EMNLP 2022);
        self-critical training with a greedy baseline is Rennie et al.'s (CVPR 2017), the mean of the other draws as
        baseline Kool et al.'s (DeepRLStructPred at ICLR 2019).
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    run = RunOptions.of(locals())
    if not 0 <= mle_weight <= 1:
        raise ValueError(f"mle_weight={mle_weight}: a share lies in [0, 1]")
    if not 0 <= penalty <= 1:
        raise ValueError(f"penalty={penalty}: a weight lies in [0, 1]")
    _check_draws(num_draws, temperature, baseline)
    if not isinstance(pipeline, pt.Transformer):
        raise TypeError(f"pipeline is {pipeline!r}: give a transformer, Q -> R")
    named = rewriter if isinstance(rewriter, Rewriter) else Rewriter(rewriter, device=device)
    judge = Reward(pipeline, qrels, reward)
    topics = judge.judged(topics, first_turns=first_turns)
    if mle_weight and (
        "qrewrite" not in topics or not topics["qrewrite"].map(lambda text: isinstance(text, str)).all()
    ):
        raise ValueError("mle_weight above 0 learns from gold rewrites as well: some questions have no qrewrite")
    dev_judge = None if dev is None else Reward(pipeline, dev[1], reward)
    dev_topics = (
        None
        if dev is None or dev_judge is None
        else dev_judge.judged(dev[0], first_turns=first_turns, name="dev topics")
    )
    set_seed(seed)
    generator = _copied(named)
    inputs = {**named._settings()}
    settings: dict[str, Any] = {
        "task": "conqrr", "init": generator.identity(), "inputs": digest({**inputs, "parts": inputs["parts"].tables}),
        "data": digest(topics[["qid", "query", "qhistory"]]), "qrels": digest(_sorted(judge.judgments)),
        "pipeline": shown(pipeline), "retrieval": digest(pipeline), "reward": judge.name,
        "dev": None if dev_topics is None or dev_judge is None
        else digest([dev_topics[["qid", "query", "qhistory"]], _sorted(dev_judge.judgments)]),
        "metric": "reward" if dev is not None else None, "mle_weight": mle_weight, "max_new_tokens": max_new_tokens,
        "num_draws": num_draws, "temperature": temperature, "baseline": baseline, "normalize": normalize,
        "penalty": penalty, **run.settings(),
    }  # fmt: skip
    target = Path(out)
    if overwrite or not finished(target, settings):

        def write(folder: Path, best: Mapping[str, Any] | None) -> None:
            write_generator(folder, generator, {**inputs, "parts": inputs["parts"].tables})
            start = os.fspath(rewriter) if not isinstance(rewriter, Rewriter) else repr(rewriter)
            write_rewriter_card(
                folder, title="Conversational query rewriter, trained by reward", init=start, settings=settings,
                best=best,
                opens=f'rewriter = pt_convsearch.Rewriter("{target.name}")', tags="query-rewriting",
                what="Writes, for a question and the conversation before it, a query that finds what it asks for.",
                counts={"questions": len(topics), "dev questions": 0 if dev_topics is None else len(dev_topics)},
            )  # fmt: skip

        run_training(
            RewardTrainer, generator.model, _rows(named, topics),
            None if dev_topics is None else _rows(named, dev_topics), _collate,
            settings, run, target=target, greater_is_better=True, write=write,
            more={
                "generator": generator, "judge": judge, "topics": topics, "dev_judge": dev_judge,
                "dev_topics": dev_topics,
                "max_new_tokens": max_new_tokens, "max_input_length": inputs["max_input_length"],
                "mle_weight": mle_weight, "draw_seed": seed, "num_draws": num_draws, "temperature": temperature,
                "baseline": baseline, "normalize": normalize, "penalty": penalty,
            },
        )  # fmt: skip
    return Rewriter(str(target), max_new_tokens=max_new_tokens, device=device)


class RewardTrainer(Seq2SeqTrainer):
    """The trainer of transformers, with the self-critical loss, and the mean reward as its dev measure."""

    def __init__(
        self, *, generator: Generator, judge: Reward, topics: pd.DataFrame, dev_judge: Reward | None,
        dev_topics: pd.DataFrame | None, max_new_tokens: int, max_input_length: int, mle_weight: float, draw_seed: int,
        num_draws: int, temperature: float, baseline: str, normalize: bool, penalty: float,
        **options: Any,
    ) -> None:  # fmt: skip
        self.generator = generator
        self.judge, self.topics = judge, topics
        self.dev_judge, self.dev_topics = dev_judge, dev_topics
        self.max_new_tokens, self.max_input_length = max_new_tokens, max_input_length
        self.mle_weight = mle_weight
        self.draw_seed = draw_seed
        self.num_draws, self.temperature = num_draws, temperature
        self.baseline, self.normalize, self.penalty = baseline, normalize, penalty
        self._rewards: dict[str, list[float]] = {}
        super().__init__(processing_class=generator.tokenizer, **options)
        self.model_accepts_loss_kwargs = False

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        rows, texts = inputs["rows"], inputs["texts"]
        topics = self.topics.iloc[rows]
        rewarded = None if self.mle_weight == 1 else self._drawn(texts, topics)
        model.train()
        read = self._read(texts)
        loss = torch.zeros((), device=self.generator.model.device)
        if rewarded is not None:
            draws = len(rewarded[0])
            each, drawn, advantage = merged(np.repeat(np.arange(len(texts)), self.num_draws).tolist(), *rewarded)
            log_p = self._log_probabilities(model, texts, drawn, self.temperature, each=each, read=read)
            loss = (1 - self.mle_weight) * self_critical_loss(log_p, advantage, draws=draws)
        if self.mle_weight:
            gold: list[list[int]] = self._gold(topics["qrewrite"].tolist())
            tokens = sum(len(row) for row in gold)
            loss = loss - self.mle_weight * self._log_probabilities(model, texts, gold, read=read).sum() / tokens
        return (loss, None) if return_outputs else loss

    def _drawn(self, texts: list[str], topics: pd.DataFrame) -> tuple[list[list[int]], np.ndarray]:
        """Rewrites drawn for each input, one after the other, and by how much each is better than what it is compared
        with."""
        step = Decoding(
            num_rewrites=self.num_draws,
            num_beams=1,
            sample=True,
            temperature=self.temperature,
            max_new_tokens=self.max_new_tokens,
            seed=self.draw_seed * 1_000_003 + self.state.global_step,
        )
        drawn, drawn_texts = self._write(texts, step)
        each = np.repeat(np.arange(len(texts)), self.num_draws)
        rewards = self.judge(topics.iloc[each], drawn_texts).reshape(len(texts), self.num_draws)
        greedy = None
        if self.baseline == "greedy":
            greedy = self.judge(topics, self._write(texts, Decoding(1, 1, max_new_tokens=self.max_new_tokens))[1])
            self._rewards.setdefault("greedy", []).append(float(greedy.mean()))
        self._rewards.setdefault("drawn", []).append(float(rewards.mean()))
        return drawn, advantages(rewards, greedy, normalize=self.normalize, penalty=self.penalty).ravel()

    def _write(self, texts: list[str], decoding: Decoding) -> tuple[list[list[int]], list[str]]:
        """Token ids of the rewrites of each input, one after the other, up to and with the end, and their texts."""
        self.generator.model.eval()
        batch = encoded(self.generator, texts, self.max_input_length)
        sequences, _ = sequences_of(self.generator, batch, texts, decoding)
        if self.generator.seq2seq:
            sequences = sequences[:, 1:]
        ends = set(
            np.atleast_1d(
                self.generator.model.generation_config.eos_token_id or self.generator.tokenizer.eos_token_id
            ).tolist()
        )
        ids = [_up_to_end(row, ends) for row in sequences.tolist()]
        decoded = self.generator.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return ids, [" ".join(text.split()) for text in decoded]

    def _gold(self, rewrites: list[str]) -> list[list[int]]:
        tokenizer = self.generator.tokenizer
        if self.generator.seq2seq:
            targets = tokenizer(text_target=rewrites, truncation=True, max_length=self.max_new_tokens)["input_ids"]
            return [_started(target, self.generator) for target in targets]
        targets = tokenizer([f" {rewrite}" for rewrite in rewrites], add_special_tokens=False)["input_ids"]
        return [[*target[: self.max_new_tokens - 1], tokenizer.eos_token_id] for target in targets]

    def _read(self, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What the encoder makes of each input, with its mask: once for all that is written for it. None of a causal
        model, which has no encoder."""
        if not self.generator.seq2seq:
            return None
        sources = encoded(self.generator, texts, self.max_input_length)["input_ids"]
        inputs = self.generator.tokenizer.pad({"input_ids": sources}, padding=True, return_tensors="pt")
        inputs = inputs.to(self.generator.model.device)
        return self.generator.model.get_encoder()(**inputs).last_hidden_state, inputs["attention_mask"]

    def _log_probabilities(
        self, model: Any, texts: list[str], written: list[list[int]], temperature: float = 1.0,
        *, each: list[int] | None = None, read: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """The log probability of each sequence, given its input, when tokens are drawn at this temperature.

        Args:
            model: gives the scores.
            texts: inputs.
            written: token ids of the sequences.
            temperature: that they are drawn at.
            each: which input a sequence was written for; one for each by default.
            read: what :meth:`_read` made of the inputs.
        """
        device = self.generator.model.device
        each = list(range(len(texts))) if each is None else each
        read = self._read(texts) if read is None else read
        if read is not None:
            hidden, mask = read
            labels = _padded(written, -100, device)
            logits = model(encoder_outputs=(hidden[each],), attention_mask=mask[each], labels=labels).logits
        else:
            sources = encoded(self.generator, [texts[row] for row in each], self.max_input_length)["input_ids"]
            ids = _padded(
                [source + ids for source, ids in zip(sources, written, strict=True)],
                self.generator.tokenizer.pad_token_id,
                device,
            )
            mask = _padded(
                [[1] * (len(source) + len(ids)) for source, ids in zip(sources, written, strict=True)], 0, device
            )
            labels = _padded(
                [[-100] * len(source) + ids for source, ids in zip(sources, written, strict=True)], -100, device
            )[:, 1:]
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        said = labels != -100
        scores = torch.log_softmax(logits.float() / temperature, dim=-1)
        log_p = scores.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return (log_p * said).sum(dim=1)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs and self._rewards:
            means = {f"eval_{kind}_reward": float(np.mean(values)) for kind, values in self._rewards.items()}
            logs = {**logs, **means}  # named so that the curve keeps them
            self._rewards.clear()
        super().log(logs, *args, **kwargs)

    def evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        assert self.dev_judge is not None
        assert self.dev_topics is not None
        values = []
        for inputs in dataloader:
            _, found = self._write(inputs["texts"], Decoding(num_beams=1, max_new_tokens=self.max_new_tokens))
            values.append(self.dev_judge(self.dev_topics.iloc[inputs["rows"]], found))
        rewards = np.concatenate(values)
        return EvalLoopOutput(None, None, {"eval_reward": float(rewards.mean())}, len(rewards))  # type: ignore[arg-type]


def _check_draws(num_draws: int, temperature: float, baseline: str) -> None:
    Decoding(num_rewrites=num_draws, sample=True, temperature=temperature).checked()
    if baseline not in ("greedy", "others"):
        raise ValueError(f"baseline={baseline!r}: 'greedy' or 'others'")
    if baseline == "others" and num_draws < 2:
        raise ValueError("baseline='others' compares the draws of a question with each other: give num_draws=2 or more")


def _rows(rewriter: Rewriter, topics: pd.DataFrame) -> list[dict[str, Any]]:
    return [{"row": row, "text": text} for row, text in enumerate(rewriter.inputs(topics)["query"].tolist())]


def _collate(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {"rows": [row["row"] for row in rows], "texts": [row["text"] for row in rows]}


def _copied(rewriter: Rewriter) -> Generator:
    found = rewriter.generator()
    return Generator(copy.deepcopy(found.model).float(), found.tokenizer, found.seq2seq, found.trained_with)


def _up_to_end(ids: list[int], ends: set[int]) -> list[int]:
    for at, token in enumerate(ids):
        if token in ends:
            return ids[: at + 1]
    return ids


def _padded(rows: list[list[int]], value: int, device: Any) -> torch.Tensor:
    """Rows of one length, filled up on the right."""
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows], device=device)


def _sorted(judged: Judgments) -> list[tuple[str, str, int]]:
    return sorted(zip(judged.qids[judged.query], judged.docnos[judged.doc], judged.label.tolist(), strict=True))
