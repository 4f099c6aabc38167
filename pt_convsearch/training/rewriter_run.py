"""What the trainings of rewriters have in common: the questions that count, the trainer, an outcome that is whole."""

from __future__ import annotations

import json
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import PrinterCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from pt_convsearch import _files
from pt_convsearch._process import quiet
from pt_convsearch.dense.encoding import has_bf16
from pt_convsearch.topics.checks import check_queries

from .arguments import usual_arguments, usual_callbacks
from .runs import CURVE, SETTINGS, prepare
from .trainer import write_curve

logger = logging.getLogger(__name__)


@contextmanager
def silent() -> Iterator[None]:
    """No progress bars, and no remarks of transformers on what is meant here: weights that are new or tied, padding."""
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with quiet(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def with_rewrites(topics: pd.DataFrame, *, first_turns: bool, name: str = "topics") -> pd.DataFrame:
    """The questions that have a gold rewrite, and a history unless ``first_turns``; how many are left out is logged.

    Raises:
        ValueError: none is left, or a column is missing.
    """
    missing = [column for column in ("query", "qhistory", "qrewrite") if column not in topics.columns]
    if missing:
        raise ValueError(
            f"{name} have no column {missing[0]!r}: gold rewrites (qrewrite) are learnt from query and qhistory"
        )
    topics = check_queries(topics)
    kept = [
        isinstance(rewrite, str) and bool(rewrite.strip()) and bool(query.strip()) and (first_turns or len(history) > 0)
        for rewrite, query, history in zip(topics["qrewrite"], topics["query"], topics["qhistory"], strict=True)
    ]
    if not any(kept):
        raise ValueError(
            f"none of the {len(topics)} {name} has a gold rewrite (qrewrite) and a history: "
            "there is nothing to learn from"
        )
    logger.info("%s: %d of %d questions have a gold rewrite and are used", name, sum(kept), len(topics))
    return topics[kept].reset_index(drop=True)


def check_numbers(given: Mapping[str, Any]) -> None:
    """Refuse options that no training can have."""
    for name in ("epochs", "batch_size", "max_input_length", "max_target_length", "max_length"):
        if name in given and given[name] < 1:
            raise ValueError(f"{name}={given[name]}: give at least 1")
    for name in ("max_steps", "eval_every", "patience"):
        if given[name] is not None and given[name] < 1:
            raise ValueError(f"{name}={given[name]}: give at least 1, or None")
    if not 0 <= given["warmup"] <= 1:
        raise ValueError(f"warmup={given['warmup']}: a share of the steps lies in [0, 1]")
    if given["patience"] is not None and given["dev"] is None:
        raise ValueError("patience: stopping early needs dev questions, dev=")


def place_of(device: str | None) -> torch.device:
    """Where a training runs: on a GPU where there is one, unless ``device`` says "cpu"."""
    if device == "cpu":
        return torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")


def precision_of(precision: str, device: str | None) -> str:
    """ "auto" resolved: bfloat16 where the processor has it, else float32."""
    if precision not in ("auto", "bf16", "fp32"):
        raise ValueError(f"precision={precision!r}: 'auto', 'bf16' or 'fp32'")
    return ("bf16" if has_bf16(place_of(device)) else "fp32") if precision == "auto" else precision


@dataclass(frozen=True)
class RunOptions:
    """The options that these trainings have in common; what each means is said at :func:`train_rewriter`."""

    seed: int
    epochs: int
    max_steps: int | None
    batch_size: int
    learning_rate: float
    warmup: float
    weight_decay: float
    max_grad_norm: float
    eval_every: int | None
    patience: int | None
    precision: str
    device: str | None
    trainer_options: Mapping[str, Any] | None
    callbacks: Sequence[Any]
    overwrite: bool
    verbose: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """From the arguments of a training (its ``locals()``), ``dev`` among them.

        Raises:
            ValueError: the first option that no training can have.
        """
        check_numbers(given)
        own = {field.name: given[field.name] for field in fields(cls)}
        return cls(**{**own, "precision": precision_of(given["precision"], given["device"])})

    def settings(self) -> dict[str, Any]:
        """What the weights depend on: part of the settings of a training."""
        told = ("seed", "max_steps", "batch_size", "learning_rate", "warmup", "weight_decay", "max_grad_norm",
                "eval_every", "patience", "precision")  # fmt: skip
        return {
            "epochs": self.epochs if self.max_steps is None else None,
            **{name: getattr(self, name) for name in told},
            "trainer_options": {name: str(value) for name, value in (self.trainer_options or {}).items()},
        }


def run_training(
    trainer_class: type[Seq2SeqTrainer],
    model: Any,
    train_rows: Sequence[dict[str, Any]],
    dev_rows: Sequence[dict[str, Any]] | None,
    collator: Any,
    settings: dict[str, Any],
    run: RunOptions,
    *,
    target: Path,
    greater_is_better: bool,
    write: Callable[[Path, Any], None],
    more: Mapping[str, Any],
) -> None:
    """Train, go on where an earlier run was killed, and write what the best checkpoint holds under ``target``.

    Args:
        trainer_class: the trainer.
        model: trained in place.
        train_rows, dev_rows: what the collator makes batches of.
        collator: rows to tensors.
        settings: of the training; a run with other settings is begun anew.
        run: the options that all trainings have.
        target: the folder of the finished model; an unfinished one lies in ``<target>.training``.
        greater_is_better: whether the dev measure ``settings["metric"]`` is one.
        write: writes the model into a folder, given the folder and the best dev measure (or None).
        more: further arguments of the trainer class.
    """
    work, options = target.with_name(f"{target.name}.training"), run.trainer_options or {}
    _drop_torn(work)
    resume = prepare(work, settings, run.overwrite)
    per_epoch = math.ceil(len(train_rows) / (run.batch_size * int(options.get("gradient_accumulation_steps", 1))))
    metric = None if dev_rows is None else settings["metric"]
    arguments = usual_arguments(
        vars(run), per_epoch, work, metric=metric, device=place_of(run.device).type, verbose=run.verbose
    )
    arguments |= {
        "per_device_eval_batch_size": run.batch_size,
        "save_total_limit": 2,
        "greater_is_better": greater_is_better,
        "remove_unused_columns": False,
        **options,
    }
    extra = [*usual_callbacks(vars(run), work, None, selecting=False), *run.callbacks]
    parts: dict[str, Any] = {"train_dataset": train_rows, "eval_dataset": dev_rows, "data_collator": collator}
    args = Seq2SeqTrainingArguments(**arguments)
    trainer = trainer_class(model=model, args=args, callbacks=extra, **parts, **more)
    trainer.remove_callback(PrinterCallback)
    with silent():
        trainer.train(resume_from_checkpoint=resume)
        if trainer.is_world_process_zero():
            best = None
            if trainer.state.best_metric is not None:
                best = {
                    f"dev {settings['metric']}": trainer.state.best_metric,
                    "at step": trainer.state.best_global_step,
                }
            with _files.written(target) as temporary:
                temporary.mkdir()
                write(temporary, best)
                write_curve(temporary / CURVE, trainer.state, None)
                _files.write_json(temporary / SETTINGS, settings)
            shutil.rmtree(work, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()


def _drop_torn(work: Path) -> None:
    """Remove checkpoints that a kill left without their last file, or with half of it."""
    for folder in work.glob("checkpoint-*"):
        try:
            json.loads((folder / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            logger.info("%s was left by a run that did not finish: removed", folder)
            shutil.rmtree(folder, ignore_errors=True)


def write_rewriter_card(
    folder: Path, *, title: str, opens: str, what: str, init: str, counts: Mapping[str, Any],
    settings: Mapping[str, Any],
    best: Mapping[str, Any] | None, tags: str, library: str = "transformers",
) -> None:  # fmt: skip
    """Write ``README.md``: what the model does, what it was trained on, how, how well it did, how to load it."""
    lines = [
        "---", f"library_name: {library}", f"tags: [{tags}, conversational-search, pyterrier, pt_convsearch]", "---",
        "",
        f"# {title}", "", what, "", "```python", opens, "```", "", f"Trained by pt_convsearch from {init}.", "",
        "## Data", "",
        *(f"- {name}: {value}" for name, value in counts.items()), "", "## Training", "",
        *(f"- {name}: {json.dumps(value, default=str)}" for name, value in settings.items()), "", "## Scores", "",
    ]  # fmt: skip
    lines += (
        [f"- {name}: {value}" for name, value in best.items()]
        if best
        else ["No dev questions were given: the last step is kept."]
    )
    with _files.writing_text(folder / "README.md") as handle:
        handle.write("\n".join(lines) + "\n")
