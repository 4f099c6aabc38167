"""One call from a mined set to a bi-encoder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import digest

from .options import check_options, default_scale, processes, resolve_precision

if TYPE_CHECKING:
    import pyterrier as pt
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import BiEncoder


def train(
    pairs: TrainingPairs | _files.PathLike,
    *,
    init: Any,
    out: _files.PathLike,
    dev: tuple[Any, ...] | None = None,
    form: Any = None,
    seed: int = 1,
    num_negatives: int | None = None,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 32,
    mini_batch_size: int | None = None,
    learning_rate: float = 3e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    max_grad_norm: float = 2.0,
    similarity: Literal["dot", "cosine"] | None = None,
    scale: float | None = None,
    towers: int = 1,
    pooling: Literal["cls", "mean"] | None = None,
    max_query_length: int = 128,
    max_passage_length: int = 384,
    mask_history: float = 0.0,
    metric: Any = "R@5",
    eval_every: int | None = None,
    patience: int | None = None,
    refresh: Callable[[BiEncoder], pt.Transformer] | None = None,
    refresh_every: int | None = None,
    loss: Callable[[SentenceTransformer], Any] | None = None,
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto",
    device: str | None = None,
    num_workers: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> BiEncoder:
    """Train a bi-encoder on a mined set, and keep the checkpoint that retrieves best on a dev collection.

    The loss is the negative log likelihood of the positive among all passages of the batch: its own hard negatives,
    drawn anew in every epoch, and the passages of all other questions. Whatever is a gold of the question by judgment
    or by text is masked, whoever's positive or negative it is. AdamW, linear decay after a warm-up of a tenth of the
    steps, clipped gradients. Kim & Kim (2022) trained two towers of BERT with ``epochs=10, batch_size=256`` (OR-QuAC:
    128), ``learning_rate=3e-5, max_grad_norm=2.0, similarity="dot", scale=1, num_negatives=1, metric="R@5"``.

    While it runs, checkpoints lie in ``<out>.training``, each renamed into place when it is whole. Called again after
    a kill it goes on from the last one, on a CPU to exactly the weights of an uninterrupted run; called again when
    ``out`` is finished it opens that. Under ``accelerate launch`` or ``torchrun`` each process trains on its own
    batches of ``batch_size`` questions, which compete with the passages of all processes.

    Args:
        pairs: what ``cs.training_pairs`` returned, or its folder.
        init: a name on the hub, a folder, or a SentenceTransformer (a copy is trained); a pair of them for two towers.
        out: the folder to write: ``cs.BiEncoder(out)`` and ``SentenceTransformer(out)`` open it.
        dev: (topics, qrels, corpus) of a small dev collection; a frame of qid and docno as a fourth ranks these
            candidates only.
        form: the form of the dev questions; by default that of the training set.
        seed: of the order, the draws and the dropout.
        num_negatives: hard negatives per question; by default as mined.
        epochs: passes over the questions.
        max_steps: optimiser steps, instead of ``epochs``.
        batch_size: questions per step (and process).
        mini_batch_size: texts in the model at a time, for large batches in little memory (cached gradients, about a
            third slower); None: all at once.
        learning_rate: its peak.
        warmup: the share of the steps in which it rises.
        weight_decay: AdamW's, on all but biases and norms.
        max_grad_norm: gradients are clipped to this norm; 0: not at all.
        similarity: "dot" or "cosine"; None: as the model says, dot product for a plain checkpoint.
        scale: the factor on the similarity, 1 / temperature; None: 20 for cosine, 1 for dot product.
        towers: 1: queries and passages share the weights; 2: two towers that start alike.
        pooling: "cls" or "mean" for a plain checkpoint, which does not say (mean if None).
        max_query_length: tokens of a query, cut on the left so that the current question stays.
        max_passage_length: tokens of a passage, cut on the right.
        mask_history: the chance that a question is trained without its history, drawn anew in every epoch.
        metric: the dev measure to select by: "R@5", "RR", "AP" …
        eval_every: steps from one checkpoint, and dev measure, to the next; None: once an epoch.
        patience: stop after so many dev measures without a better one; None: never.
        refresh: makes a miner from the encoder in training, ``lambda encoder: cs.form(cs.X) >> …``; needs
            ``refresh_every``, and ``pairs`` that were made in this process.
        refresh_every: steps from one mining to the next (ANCE).
        loss: makes another loss from the model; it is given the columns query, positive, negative_1 … and the keys as
            labels.
        precision: "auto": bfloat16 where the processor has it, float16 on other GPUs; float32 elsewhere.
        device: "cpu" to leave a GPU alone; else where there is one.
        num_workers: processes that make batches; 0 is right for most.
        trainer_options: any of ``SentenceTransformerTrainingArguments``, last word over the above.
        callbacks: more callbacks of the trainer.
        overwrite: train anew whatever ``out`` or an earlier run holds.
        verbose: show a progress bar.

    Returns:
        the encoder, for pipelines; the dev curve is ``<out>/dev_curve.jsonl``, the settings ``<out>/training.json``.

    Raises:
        ValueError: options that contradict each other, or ``out`` holds a model that was trained otherwise.
        ImportError: ``accelerate`` or ``datasets`` is missing.

    Example:
        >>> model = cs.train(pairs, init="bert-base-uncased", dev=(topics, qrels, corpus), out="dpr")
        >>> index = cs.DenseIndex("dpr.flex", model).index(corpus)
        >>> pipeline = cs.form(cs.X) >> index.retriever()
    """
    for module in ("accelerate", "datasets"):
        require(module, step="training", install="pt-convsearch[train]")
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    settings: dict[str, Any] = {
        "seed": seed,
        "num_negatives": pairs.num_negatives if num_negatives is None else num_negatives,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "mini_batch_size": mini_batch_size,
        "learning_rate": learning_rate,
        "warmup": warmup,
        "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
        "towers": towers,
        "mask_history": mask_history,
        "eval_every": eval_every,
        "patience": patience,
        "refresh_every": refresh_every,
    }
    check_options(pairs, settings, refresh=refresh is not None, dev=dev is not None, num_workers=num_workers)
    from transformers import set_seed

    from pt_convsearch._process import quiet
    from pt_convsearch.dense.weights import tower_hash

    from .building import make_trainer
    from .runs import finished, keep, opened, prepare
    from .selection import dev_digest, dev_evaluator
    from .towers import sides, starting_model

    set_seed(seed)
    model = starting_model(init, towers=towers, pooling=pooling, similarity=similarity, device=device)
    query, passage = sides(model, max_query_length, max_passage_length)
    compared = model.similarity_fn_name
    evaluator = dev_evaluator(dev, form, pairs, compared, query.max_length, passage.max_length, metric)
    settings |= {
        "similarity": compared,
        "scale": scale if scale is not None else default_scale(compared),
        "precision": resolve_precision(precision, model),
        "max_query_length": query.max_length,
        "max_passage_length": passage.max_length,
        "metric": None if evaluator is None else evaluator.metric,
        "processes": processes(),
        "pairs": pairs.fingerprint,
        "init": tower_hash(model),
        "dev": dev_digest(evaluator),
        "refresh": None if refresh is None else digest(refresh),
        "loss": None if loss is None else digest(loss),
        "epochs": epochs if max_steps is None else None,
        "trainer_options": {name: str(value) for name, value in (trainer_options or {}).items()},
    }
    target = Path(out)
    work = target.with_name(f"{target.name}.training")
    if not overwrite and finished(target, settings):
        return opened(target, settings)
    alone = _files.alone(work) if processes() == 1 else contextlib.nullcontext()
    with alone:
        resume = prepare(work, settings, overwrite, cpu=model.device.type == "cpu")
        with quiet():
            trainer = make_trainer(
                model,
                pairs,
                settings,
                (query, passage),
                work,
                evaluator=evaluator,
                loss=loss,
                refresh=refresh,
                num_workers=num_workers,
                options=trainer_options or {},
                callbacks=callbacks,
                verbose=verbose,
                resume=resume,
            )
            trainer.train(resume_from_checkpoint=resume)
            if trainer.is_world_process_zero():
                keep(trainer, model, target, work, settings, pairs, init)
        trainer.accelerator.wait_for_everyone()
    return opened(target, settings)
