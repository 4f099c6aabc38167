"""From settings to the trainer of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt
from transformers import PrinterCallback

from pt_convsearch.negatives import TrainingPairs

from .arguments import measured_before, one_gpu, steps_per_epoch, usual_arguments, usual_callbacks
from .data import Collator, EpochBatches, Examples
from .refresh import Refresh
from .selection import DevRetrieval, encoder_of
from .trainer import PairsTrainer

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
    before = None
    if evaluator is not None and settings["processes"] == 1:
        before = measured_before(lambda: evaluator(model), work, resume)
    trainer = PairsTrainer(
        batches=batches,
        model=model,
        args=_arguments(model, settings, batches, work, evaluator, num_workers, options, verbose),
        train_dataset=examples,
        loss=loss,
        evaluator=evaluator,
        data_collator=collator,
        callbacks=[*usual_callbacks(settings, work, before, selecting=evaluator is not None), *callbacks],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(
    model: Any,
    settings: dict[str, Any],
    batches: EpochBatches,
    work: Path,
    evaluator: Any,
    num_workers: int,
    options: Mapping[str, Any],
    verbose: bool,
) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    metric = None if evaluator is None else evaluator.metric
    per_epoch = steps_per_epoch(batches)
    given = usual_arguments(settings, per_epoch, work, metric=metric, device=model.device.type, verbose=verbose)
    given |= {"dataloader_num_workers": num_workers, "ddp_find_unused_parameters": True}
    return one_gpu(SentenceTransformerTrainingArguments(**{**given, **options}))


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
