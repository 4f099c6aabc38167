"""One call from gold rewrites to a rewriter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.forming import Parts, X
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.rewriting import Rewriter, term_overlap
from pt_convsearch.rewriting.generation import Decoding, encoded, generate
from pt_convsearch.rewriting.models import SETTINGS, Generator

from .rewriter_models import starting_generator
from .rewriter_run import RunOptions, run_training, with_rewrites, write_rewriter_card
from .runs import finished


def train_rewriter(
    topics: pd.DataFrame,
    *,
    init: Any,
    out: _files.PathLike,
    dev: pd.DataFrame | None = None,
    parts: Parts = X,
    sep: str = " ||| ",
    prefix: str = "",
    suffix: str | None = None,
    first_turns: bool = False,
    seed: int = 1,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 32,
    learning_rate: float = 1e-4,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    max_input_length: int = 512,
    max_target_length: int = 64,
    metric: str = "loss",
    eval_every: int | None = None,
    patience: int | None = None,
    precision: str = "auto",
    device: str | None = None,
    tokenizer: Any = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> Rewriter:
    """Train a model to write the gold rewrite of a question from the conversation before it.

    Questions without a gold rewrite are left out and counted in the log. Inputs are made as :class:`Rewriter` makes
    them (its settings are written beside the model), so q_t is never cut. While it runs, checkpoints lie in
    ``<out>.training``; called again after a kill it goes on from the last whole one, on a CPU to exactly the weights of
    an uninterrupted run; called again when ``out`` is finished it opens that.

    Args:
        topics: query, qhistory and ``qrewrite``: CANARD, QReCC, CAsT, or your own.
        init: a folder, a name on the hub ("t5-base", "gpt2"), or a transformers model: an encoder-decoder or a causal
            model; of an encoder ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2") an encoder-decoder is
            made, warm-started from it on both sides. Weights of a model that do not require gradients stay as they
            are: freezing the lower layers makes training cheaper.
        out: the folder to write: ``cs.Rewriter(out)`` opens it.
        dev: questions with gold rewrites to select the checkpoint by; None: the last one is kept.
        parts, sep, prefix: what the model reads, as in :class:`Rewriter`.
        suffix: text after the input; None: " =>" for causal models, else "".
        first_turns: learn from first turns as well.
        seed: of the order and the dropout.
        epochs: passes over the questions.
        max_steps: optimiser steps, instead of ``epochs``.
        batch_size: questions per step.
        learning_rate: its peak; linear decay after a warm-up.
        warmup: the share of the steps in which it rises.
        weight_decay: AdamW's.
        max_grad_norm: gradients are clipped to this norm.
        max_input_length: tokens of an input.
        max_target_length: tokens of a rewrite; longer ones are cut.
        metric: the dev measure: "loss", or "f1", the term overlap of greedily written rewrites with the gold ones.
        eval_every: steps from one checkpoint, and dev measure, to the next; None: once an epoch.
        patience: stop after so many dev measures without a better one; None: never.
        precision: "auto": bfloat16 autocast where the processor has it; "bf16", "fp32".
        device: "cpu" to leave a GPU alone.
        tokenizer: of a model that does not bring one.
        trainer_options: any of ``Seq2SeqTrainingArguments``, last word over the above.
        callbacks: more callbacks of the trainer.
        overwrite: train anew whatever ``out`` or an earlier run holds.
        verbose: show a progress bar.

    Returns:
        the rewriter; the curve is ``<out>/dev_curve.jsonl``, the settings ``<out>/training.json``, the card README.md.

    Raises:
        ValueError: no question has a gold rewrite, options contradict each other, or ``out`` holds a model that was
            trained otherwise.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> rewriter = cs.train_rewriter(train_topics, init="t5-base", dev=dev_topics, out="t5-qrecc")
        >>> pipeline = rewriter >> index.bm25(num_results=100)

    Source: T5 fine-tuned on CANARD (Lin et al., 2020); Kim & Kim (2022) mine with such rewrites (CQR negatives).
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    run = RunOptions.of(locals())
    if metric not in ("loss", "f1"):
        raise ValueError(f"metric={metric!r}: 'loss' or 'f1'")
    topics = with_rewrites(topics, first_turns=first_turns)
    dev = None if dev is None else with_rewrites(dev, first_turns=first_turns, name="dev topics")
    set_seed(seed)
    generator = starting_generator(init, tokenizer)
    suffix = suffix if suffix is not None else "" if generator.seq2seq else " =>"
    inputs: dict[str, Any] = {
        "parts": parts.tables, "sep": sep, "prefix": prefix, "suffix": suffix, "max_input_length": max_input_length,
    }  # fmt: skip
    columns = ["qid", "query", "qhistory", "qrewrite"]
    settings: dict[str, Any] = {
        "task": "rewriter", "init": generator.identity(), "data": digest(topics[columns]),
        "dev": None if dev is None else digest(dev[columns]), "metric": metric if dev is not None else None,
        **{name: digest(value) if name == "parts" else value for name, value in inputs.items()},
        "max_target_length": max_target_length, **run.settings(),
    }  # fmt: skip
    frozen = [name for name, weights in generator.model.named_parameters() if not weights.requires_grad]
    settings |= {"frozen": digest(frozen)} if frozen else {}
    target = Path(out)
    if overwrite or not finished(target, settings):
        reader = Rewriter(
            generator.model, tokenizer=generator.tokenizer, parts=parts, sep=sep, prefix=prefix, suffix=suffix,
            max_input_length=max_input_length, max_new_tokens=max_target_length, first_turns=True, device=device,
        )  # fmt: skip
        rows = training_rows(reader, topics, max_target_length)
        dev_rows = None if dev is None else training_rows(reader, dev, max_target_length)

        def write(folder: Path, best: Mapping[str, Any] | None) -> None:
            write_generator(folder, generator, inputs)
            write_rewriter_card(
                folder, title="Conversational query rewriter", init=str(init)[:200], settings=settings, best=best,
                opens=f'rewriter = pt_convsearch.Rewriter("{target.name}")', tags="query-rewriting",
                what="Writes, for a question and the conversation before it, the question that stands alone.",
                counts={"questions with a gold rewrite": len(topics), "dev questions": 0 if dev is None else len(dev)},
            )  # fmt: skip

        more: dict[str, Any] = {"generator": generator, "golds": None}
        if dev is not None and metric == "f1":
            more["golds"] = (
                reader.inputs(dev)["query"].tolist(),
                dev["qrewrite"].tolist(),
                max_input_length,
                max_target_length,
            )
        run_training(
            RewriteTrainer, generator.model, rows, dev_rows, DataCollatorForSeq2Seq(generator.tokenizer), settings,
            run, target=target, greater_is_better=metric == "f1", write=write, more=more,
        )  # fmt: skip
    return Rewriter(str(target), max_new_tokens=max_target_length, device=device)


class RewriteTrainer(Seq2SeqTrainer):
    """The trainer of transformers, with the term overlap of what is written as a dev measure.

    A causal model reads positions as it does when it writes (padding on the left counts for nothing), and says its
    scores of the vocabulary for the rewrites alone: those of the inputs, several times as many, are not learnt from.
    """

    def __init__(
        self, *, generator: Generator, golds: tuple[list[str], list[str], int, int] | None, **options: Any
    ) -> None:
        self.generator = generator
        self.golds = golds
        super().__init__(processing_class=generator.tokenizer, **options)
        self._takes = set(inspect.signature(generator.model.forward).parameters)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not self.generator.seq2seq:
            inputs = {**inputs}
            if "position_ids" in self._takes:
                inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=-1) - 1).clamp(min=0)
            if "logits_to_keep" in self._takes:
                learnt = (inputs["labels"] != -100).any(dim=0).nonzero()
                width = min(inputs["labels"].shape[1], inputs["labels"].shape[1] - int(learnt[0]) + 1)
                inputs["labels"], inputs["logits_to_keep"] = inputs["labels"][:, -width:], width
        return super().compute_loss(model, inputs, *args, **kwargs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        out = super().evaluation_loop(*args, **kwargs)
        if self.golds is not None:
            texts, golds, max_input, max_target = self.golds
            self.generator.model.eval()
            written = generate(
                self.generator, texts, Decoding(num_beams=1, max_new_tokens=max_target), max_input_length=max_input,
                batch_size=self.args.per_device_eval_batch_size,
            )  # fmt: skip
            found = [some[0][0] if some else "" for some in written]
            assert out.metrics is not None
            out.metrics["eval_f1"] = float(term_overlap(found, golds)["f1"].mean())
        return out


def training_rows(reader: Rewriter, topics: pd.DataFrame, max_target_length: int) -> list[dict[str, list[int]]]:
    """Token ids of inputs and of gold rewrites: of a causal model one sequence, whose first part is not learnt."""
    generator, limit = reader.generator(), reader._settings()["max_input_length"]
    tokenizer = generator.tokenizer
    sources = encoded(generator, reader.inputs(topics)["query"].tolist(), limit)["input_ids"]
    rewrites = topics["qrewrite"].tolist()
    rows = []
    if generator.seq2seq:
        targets = tokenizer(text_target=rewrites, truncation=True, max_length=max_target_length)["input_ids"]
        for source, target in zip(sources, targets, strict=True):
            rows.append(
                {"input_ids": source, "attention_mask": [1] * len(source), "labels": _started(target, generator)}
            )
        return rows
    targets = tokenizer([f" {rewrite}" for rewrite in rewrites], add_special_tokens=False)["input_ids"]
    for source, target in zip(sources, targets, strict=True):
        end = [*target[: max_target_length - 1], tokenizer.eos_token_id]
        rows.append({
            "input_ids": [*source, *end], "attention_mask": [1] * (len(source) + len(end)),
            "labels": [-100] * len(source) + end,
        })  # fmt: skip
    return rows


def _started(target: list[int], generator: Generator) -> list[int]:
    """A target without the token that the decoder starts with by itself (BERT's tokenizer puts [CLS] in front)."""
    start = generator.model.config.decoder_start_token_id
    return target[1:] if len(target) > 1 and target[0] == start else target


def write_generator(folder: Path, generator: Generator, inputs: Mapping[str, Any]) -> None:
    """Write the model with its tokenizer and how its inputs are made."""
    generator.model.save_pretrained(folder)
    generator.tokenizer.save_pretrained(folder)
    _files.write_json(folder / SETTINGS, dict(inputs))
