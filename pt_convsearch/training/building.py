"""From settings to the trainer of sentence-transformers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt
from transformers import PrinterCallback

from pt_convsearch import _files
from pt_convsearch.negatives import TrainingPairs

from .data import Collator, EpochBatches, Examples
from .refresh import Refresh
from .runs import BEFORE, CURVE
from .selection import DevRetrieval, encoder_of
from .trainer import Curve, LastStep, PairsTrainer, Patience

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import BiEncoder


def make_trainer(
    model: SentenceTransformer,
    pairs: TrainingPairs,
    settings: dict[str, Any],
    sides: tuple[Any, Any],
    work: Path,
    *,
    evaluator: DevRetrieval | None,
    loss: Callable[[SentenceTransformer], Any] | None,
    refresh: Callable[[BiEncoder], pt.Transformer] | None,
    num_workers: int,
    options: Mapping[str, Any],
    callbacks: Sequence[Any],
    verbose: bool,
    resume: str | None,
) -> PairsTrainer:
    """The trainer, ready to train or to go on from ``resume``.

    Raises:
        ValueError: the batch of all processes is larger than the training set.
    """
    query, passage = sides
    examples = Examples(
        pairs, num_negatives=settings["num_negatives"], seed=settings["seed"], mask_history=settings["mask_history"]
    )
    batches = epoch_batches(len(pairs), settings, options, what=repr(pairs))
    extra = list(callbacks)
    if refresh is not None:

        def encoder(current: Any) -> BiEncoder:
            return encoder_of(current, settings["similarity"], query.max_length, passage.max_length)

        extra.append(Refresh(examples, refresh, every=settings["refresh_every"], folder=work, encoder=encoder))
    return assemble(
        model, examples, batches, Collator(model, query, passage, num_negatives=settings["num_negatives"]), settings,
        work, loss=default_loss(settings) if loss is None else loss, evaluator=evaluator, num_workers=num_workers,
        options=options, callbacks=extra, verbose=verbose, resume=resume,
    )  # fmt: skip


def epoch_batches(size: int, settings: Mapping[str, Any], options: Mapping[str, Any], *, what: str) -> EpochBatches:
    """The batches of a training set of ``size`` questions.

    Raises:
        ValueError: the batch of all processes is larger than the set, which is called ``what``.
    """
    batches = EpochBatches(
        size, settings["batch_size"], seed=settings["seed"], processes=settings["processes"],
        refresh_every=settings.get("refresh_every") or 0, accumulate=int(options.get("gradient_accumulation_steps", 1)),
    )  # fmt: skip
    if len(batches) == 0:
        raise ValueError(
            f"batch_size={settings['batch_size']} for {settings['processes']} processes is more than the "
            f"{size} questions of {what}"
        )
    return batches


def assemble(
    model: Any,
    examples: Any,
    batches: EpochBatches,
    collator: Any,
    settings: dict[str, Any],
    work: Path,
    *,
    loss: Callable[[Any], Any],
    evaluator: Any,
    num_workers: int,
    options: Mapping[str, Any],
    callbacks: Sequence[Any],
    verbose: bool,
    resume: str | None,
) -> PairsTrainer:
    """The trainer of whatever is trained: curve, selection on dev, patience, and checkpoints that are whole."""
    args = _arguments(model, settings, batches, work, evaluator, num_workers, options, verbose)
    before = None
    if evaluator is not None and settings["processes"] == 1:
        before = _before(evaluator, model, work, resume)
    extra: list[Any] = [Curve(work / CURVE, before), *callbacks]
    if evaluator is not None:
        extra.append(LastStep())
    if settings["patience"] is not None:
        extra.append(Patience(early_stopping_patience=settings["patience"]))
    trainer = PairsTrainer(
        batches=batches,
        model=model,
        args=args,
        train_dataset=examples,
        loss=loss,
        evaluator=evaluator,
        data_collator=collator,
        callbacks=extra,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(
    model: Any,
    settings: dict[str, Any],
    batches: Any,
    work: Path,
    evaluator: Any,
    num_workers: int,
    options: Mapping[str, Any],
    verbose: bool,
) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    per_epoch = math.ceil(len(batches) / (batches.processes * batches.accumulate))
    steps = settings["max_steps"] or settings["epochs"] * per_epoch
    every = min(settings["eval_every"] or per_epoch, steps)
    given: dict[str, Any] = {
        "output_dir": str(work),
        "per_device_train_batch_size": settings["batch_size"],
        "max_steps": steps,
        "learning_rate": settings["learning_rate"],
        "lr_scheduler_type": "linear",
        "warmup_steps": warmup_steps(steps, settings["warmup"]),
        "weight_decay": settings["weight_decay"],
        "max_grad_norm": settings["max_grad_norm"],
        "seed": settings["seed"],
        "bf16": settings["precision"] == "bf16",
        "fp16": settings["precision"] == "fp16",
        "use_cpu": model.device.type == "cpu",
        "logging_steps": max(1, min(10, every)),
        "eval_strategy": "no" if evaluator is None else "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": evaluator is not None,
        "metric_for_best_model": None if evaluator is None else f"eval_{evaluator.metric}",
        "greater_is_better": True,
        "report_to": "none",
        "disable_tqdm": not verbose,
        "dataloader_num_workers": num_workers,
        "dataloader_pin_memory": model.device.type == "cuda",
        "ddp_find_unused_parameters": True,
    }
    arguments = SentenceTransformerTrainingArguments(**{**given, **options})
    arguments._n_gpu = min(1, arguments.n_gpu)  # several GPUs take several processes, never threads of one
    return arguments


def warmup_steps(steps: int, share: float) -> int:
    """How many steps the learning rate rises: the share of the true number of steps, rounded up.

    >>> warmup_steps(95, 0.1)
    10
    """
    return math.ceil(steps * share - 1e-9)


def default_loss(settings: dict[str, Any]) -> Callable[[Any], Any]:
    from sentence_transformers.util import cos_sim, dot_score

    from .losses import CachedMaskedMultipleNegativesRankingLoss, MaskedMultipleNegativesRankingLoss

    options: dict[str, Any] = {
        "scale": settings["scale"],
        "similarity_fct": cos_sim if settings["similarity"] == "cosine" else dot_score,
        "gather_across_devices": settings["processes"] > 1,
    }
    small = settings["mini_batch_size"]
    if small is None:
        return lambda model: MaskedMultipleNegativesRankingLoss(model, **options)
    return lambda model: CachedMaskedMultipleNegativesRankingLoss(model, mini_batch_size=small, **options)


def _before(
    evaluator: Any, model: Any, work: Path, resume: str | None
) -> dict[str, float] | None:
    """The dev measure before training: measured once, and read back when a run goes on."""
    path = work / BEFORE
    if resume is not None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    before = evaluator(model)
    _files.write_json(path, before)
    return before
