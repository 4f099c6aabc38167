"""What all trainings have in common: how long they take, what the trainer is told, what is called while it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pt_convsearch import _files

from .data import EpochBatches
from .runs import BEFORE, CURVE
from .trainer import Curve, LastStep, Patience


def steps_per_epoch(batches: EpochBatches) -> int:
    """Optimiser steps of an epoch: a step takes a batch of each process, so often as gradients are accumulated."""
    return math.ceil(len(batches) / (batches.processes * batches.accumulate))


def usual_arguments(
    settings: Mapping[str, Any], per_epoch: int, work: Path, *, metric: str | None, device: str, verbose: bool
) -> dict[str, Any]:
    """What all trainers are told alike.

    Args:
        settings: batch_size, epochs, max_steps, eval_every, learning_rate, warmup, weight_decay, max_grad_norm, seed,
            precision.
        per_epoch: optimiser steps of an epoch.
        work: where checkpoints go.
        metric: the dev measure to select by, without "eval_"; None: nothing is selected.
        device: "cpu", "cuda" …
        verbose: show a progress bar.
    """
    steps = settings["max_steps"] or settings["epochs"] * per_epoch
    every = min(settings["eval_every"] or per_epoch, steps)
    return {
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
        "use_cpu": device == "cpu",
        "logging_steps": max(1, min(10, every)),
        "eval_strategy": "no" if metric is None else "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": metric is not None,
        "metric_for_best_model": None if metric is None else f"eval_{metric}",
        "greater_is_better": True,
        "report_to": "none",
        "disable_tqdm": not verbose,
        "dataloader_pin_memory": device == "cuda",
    }


def one_gpu(arguments: Any) -> Any:
    """Training arguments by which several GPUs take several processes, never threads of one."""
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def usual_callbacks(
    settings: Mapping[str, Any], work: Path, before: dict[str, float] | None, *, selecting: bool
) -> list[Any]:
    """The curve on disk, a dev measure at the last step, and patience where there is an end to it."""
    found: list[Any] = [Curve(work / CURVE, before)]
    if selecting:
        found.append(LastStep())
    if settings["patience"] is not None:
        found.append(Patience(early_stopping_patience=settings["patience"]))
    return found


def measured_before(measure: Callable[[], dict[str, float]], work: Path, resume: str | None) -> dict[str, float]:
    """The dev measure before training: measured once, and read back when a run goes on."""
    path = work / BEFORE
    if resume is not None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    before = measure()
    _files.write_json(path, before)
    return before


def warmup_steps(steps: int, share: float) -> int:
    """How many steps the learning rate rises: the share of the true number of steps, rounded up.

    >>> warmup_steps(95, 0.1)
    10
    """
    return math.ceil(steps * share - 1e-9)
