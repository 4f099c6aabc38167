"""One call from a mined set to a cross-encoder."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from transformers import set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.dense.encoding import longest, text_module
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.reranking import CrossEncoder
from pt_convsearch.reranking.cross_encoder import load_cross_encoder, model_hash
from pt_convsearch.reranking.reading import encode_pairs

from .options import check_options
from .ranking import Loss, best_of, check_loss, curve, fit
from .ranking_dev import DevReranking, measured
from .rewriter_run import place_of, precision_of, silent, write_rewriter_card
from .runs import SETTINGS, finished, prepare

if TYPE_CHECKING:
    import sentence_transformers


def train_cross_encoder(
    pairs: TrainingPairs | _files.PathLike,
    *,
    init: Any,
    out: _files.PathLike,
    dev: tuple[Any, ...] | None = None,
    form: Any = None,
    seed: int = 1,
    loss: Loss = "softmax",
    num_negatives: int | None = None,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 8,
    learning_rate: float = 2e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    max_grad_norm: float = 1.0,
    max_length: int = 512,
    max_query_length: int | None = None,
    mask_history: float = 0.0,
    separators: Sequence[str] = (),
    metric: Any = "nDCG@10",
    eval_every: int | None = None,
    patience: int | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    device: str | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> CrossEncoder:
    """Train a cross-encoder on a mined set, and keep the checkpoint that re-ranks best on a dev collection.

    Each question comes with a positive and ``num_negatives`` negatives, drawn anew from the pool in every epoch. AdamW,
    linear decay after a warm-up. While it runs, checkpoints lie in ``<out>.training``, each renamed into place when it
    is whole; called again after a kill it goes on from the last one, on a CPU to exactly the weights of an
    uninterrupted run; called again when ``out`` is finished it opens that.

    Args:
        pairs: what ``cs.training_pairs`` returned (from topics, judgments, a corpus and a miner), or its folder.
        init: a name on the hub, a folder or a ``sentence_transformers.CrossEncoder`` (a copy is trained); of a plain
            encoder ("bert-base-uncased", "google/electra-base-discriminator") the scoring layer is new.
        out: the folder to write: ``cs.CrossEncoder(out)`` and sentence-transformers' CrossEncoder open it.
        dev: (topics, qrels, corpus, candidates): what is re-ranked, as a frame of qid and docno or as the pipeline that
            finds it. None: the last checkpoint is kept.
        form: the form of the dev questions; by default that of the training set.
        seed: of the order, the draws, the new layer and the dropout.
        loss: "softmax": the positive against its negatives (localized contrastive estimation); "bce": each passage for
            itself (monoBERT); "hinge": positive and negative at least 1 apart.
        num_negatives: negatives per question; by default as mined.
        epochs: passes over the questions.
        max_steps: optimiser steps, instead of ``epochs``.
        batch_size: questions per step; each has 1 + num_negatives passages.
        learning_rate, warmup, weight_decay, max_grad_norm: of AdamW; the share of the steps in which the rate rises.
        max_length: tokens of question and passage together.
        max_query_length: tokens of the question, cut on the left; None: what the passage leaves, at least half.
        mask_history: the chance that a question is trained without its history.
        separators: tokens such as ("[U]", "[T]") that the tokenizer is to learn; see ``cs.with_separators``.
        metric: the dev measure to select by.
        eval_every: steps from one checkpoint, and dev measure, to the next; None: once an epoch.
        patience: stop after so many dev measures without a better one; None: never.
        precision: "auto": bfloat16 where the processor has it, else float32.
        device: "cpu" to leave a GPU alone.
        trainer_options: any of ``transformers.TrainingArguments``, last word over the above.
        callbacks: more callbacks of the trainer.
        overwrite: train anew whatever ``out`` or an earlier run holds.
        verbose: show a progress bar.

    Returns:
        the stage; the curve is ``<out>/dev_curve.jsonl``, the settings ``<out>/training.json``, the card README.md.

    Raises:
        ValueError: options that contradict each other, no negatives, or ``out`` holds a model that was trained
            otherwise.
        TypeError: ``dev`` has no candidates.
        ImportError: ``accelerate`` or ``datasets`` is missing.

    Example:
        >>> dev = (dev_topics, dev_qrels, corpus, cs.form(cs.X) >> bm25 % 50)
        >>> reranker = cs.train_cross_encoder(pairs, init="bert-base-uncased", dev=dev, out="cross-encoder")

    Source: Nogueira and Cho (2019) for "bce"; Gao, Dai and Callan, "Rethink training of BERT rerankers in multi-stage
        retrieval pipeline" (ECIR 2021) for "softmax".
    """
    for module in ("accelerate", "datasets"):
        require(module, step="training", install="pt-convsearch[train]")
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    settings: dict[str, Any] = {
        "task": "cross-encoder", "seed": seed, "loss": loss,
        "num_negatives": pairs.num_negatives if num_negatives is None else num_negatives,
        "epochs": epochs, "max_steps": max_steps, "batch_size": batch_size, "learning_rate": learning_rate,
        "warmup": warmup, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm, "mask_history": mask_history,
        "eval_every": eval_every, "patience": patience, "max_query_length": max_query_length,
    }  # fmt: skip
    check_loss(loss, settings["num_negatives"])
    nothing: dict[str, Any] = {"mini_batch_size": None, "refresh_every": None}
    check_options(pairs, settings | nothing, refresh=False, dev=dev is not None, num_workers=0)
    evaluator = None if dev is None else DevReranking(dev, form, pairs, metric)
    set_seed(seed)
    model = starting_cross_encoder(init, place_of(device), loss, separators)
    module = text_module(model, "query")  # type: ignore[arg-type]
    if module is None:
        raise ValueError(f"init={str(init)[:100]!r} has no fast tokenizer: its inputs cannot be cut")
    limit = min(max_length, longest(module) or max_length)
    settings |= {
        "max_length": limit,
        "precision": precision_of(precision, device),
        "metric": None if evaluator is None else evaluator.metric,
        "pairs": pairs.fingerprint,
        "init": model_hash(model),
        "dev": None if evaluator is None else evaluator.digest(),
        "epochs": epochs if max_steps is None else None,
        "trainer_options": {name: str(value) for name, value in (trainer_options or {}).items()},
    }
    target = Path(out)
    if overwrite or not finished(target, settings):
        work = target.with_name(f"{target.name}.training")
        with _files.alone(work):
            resume = prepare(work, settings, overwrite)

            def read(rows: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
                features, _ = encode_pairs(module.tokenizer, rows, limit, max_query_length)
                return dict(module.tokenizer.pad(features, padding=True, return_tensors="pt"))

            in_training = CrossEncoder(model, max_length=limit, max_query_length=max_query_length)
            trainer = fit(
                Scores(module.model), pairs, read, settings, work, measure=measured(evaluator, lambda: in_training),
                resume=resume, device=device, options=trainer_options or {}, callbacks=callbacks, verbose=verbose,
            )  # fmt: skip
            model.max_seq_length = limit
            with _files.written(target) as temporary:
                model.save_pretrained(str(temporary), create_model_card=False)
                named = init if isinstance(init, str | os.PathLike) else type(init).__name__
                write_rewriter_card(
                    temporary, title="Cross-encoder for conversational search", init=str(named), settings=settings,
                    best=best_of(trainer, settings), tags="sentence-transformers, cross-encoder, text-ranking",
                    opens=f'stage = pt_convsearch.CrossEncoder("{target.name}", max_length={limit}, '
                    f"max_query_length={max_query_length})",
                    what="Scores a question and a passage; questions are cut on the left, passages on the right.",
                    counts={"form": pairs.settings["form"], "negatives": pairs.settings["negatives"], **pairs.counts},
                )  # fmt: skip
                curve(trainer, temporary, work)
                _files.write_json(temporary / SETTINGS, settings)
            shutil.rmtree(work, ignore_errors=True)
    return CrossEncoder(str(target), max_length=limit, max_query_length=max_query_length, device=device)


class Scores(nn.Module):
    """A classifier as a module that gives one score a pair: its logit, or of two logits the difference."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, **given).logits
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def starting_cross_encoder(
    init: Any, place: torch.device, loss: str, separators: Sequence[str]
) -> sentence_transformers.CrossEncoder:
    """The model to be trained: a copy of one that is given, a cross-encoder, or a plain encoder with a new layer."""
    from sentence_transformers import CrossEncoder as Model

    from pt_convsearch.dense.towers import resolve

    from .separators import learn_tokens

    if isinstance(init, Model):
        model = copy.deepcopy(init)
    else:
        try:
            model = load_cross_encoder(init, place)
        except ValueError:
            folder, local = resolve(init)
            with silent():
                model = Model(folder, num_labels=1, device=str(place), local_files_only=local)
    if model.num_labels > 2:
        raise ValueError(f"init={str(init)[:100]!r} has {model.num_labels} labels: a re-ranker has one or two")
    if separators:
        learn_tokens(text_module(model, "query"), separators)
    if model.num_labels == 1:
        # probabilities where the loss makes them, else logits, which rank the same and are never equal
        model.activation_fn = nn.Sigmoid() if loss == "bce" else nn.Identity()
    return model
