"""The trainer of sentence-transformers, with our batches, and checkpoints that are whole or not there."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformerTrainer
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME

from pt_convsearch import _files

from .data import EpochBatches

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class WholeCheckpoints(Trainer):
    """A trainer on :class:`~pt_convsearch.training.data.Examples` whose checkpoints are whole or not there.

    A checkpoint is written as ``checkpoint-N.partial/`` and renamed when everything is in it.
    """

    def __init__(self, *, batches: EpochBatches, **options: Any) -> None:
        self.batches = batches
        self._partial: Path | None = None
        super().__init__(**options)
        self.add_callback(_Epochs(batches))

    def get_train_dataloader(self) -> DataLoader[Any]:
        self.accelerator.even_batches = False
        workers = self.args.dataloader_num_workers
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=False,
        )
        return self.accelerator.prepare(loader)

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self._partial is None else str(self._partial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(super()._get_output_dir(trial))
        name = f"checkpoint-{self.state.global_step}"
        self._partial = folder / f"{name}.partial"
        if self.is_world_process_zero():
            shutil.rmtree(self._partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        try:
            super()._save_checkpoint(model, trial)
        finally:
            partial, self._partial = self._partial, None
        if self.state.best_global_step:
            self.state.best_model_checkpoint = str(folder / f"checkpoint-{self.state.best_global_step}")
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            self.state.save_to_json(str(partial / name / TRAINER_STATE_NAME))
            shutil.rmtree(folder / name, ignore_errors=True)
            (partial / name).rename(folder / name)
            shutil.rmtree(partial, ignore_errors=True)
            self._drop_old(folder)
        self.accelerator.wait_for_everyone()

    def _drop_old(self, folder: Path) -> None:
        """Keep the newest checkpoint, to go on from, and the best one."""
        kept = {self.state.global_step, self.state.best_global_step}
        for step, path in checkpoints(folder):
            if step not in kept:
                shutil.rmtree(path, ignore_errors=True)


class PairsTrainer(WholeCheckpoints, SentenceTransformerTrainer):
    """The trainer of sentence-transformers on our batches."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """The card is written once, at the end, by :mod:`pt_convsearch.training.card`."""


class _Epochs(TrainerCallback):
    """Tells the batches which epoch begins."""

    def __init__(self, batches: EpochBatches) -> None:
        self.batches = batches

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        per_step = self.batches.processes * self.batches.accumulate
        self.batches.begin_epoch(state.global_step // -(-len(self.batches) // per_step))


class LastStep(TrainerCallback):
    """The last step is measured as well, when it does not fall on the beat."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_evaluate = True


class Patience(EarlyStoppingCallback):
    """Stops after so many dev measures without a better one, those before a kill counted: a checkpoint forgets them."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        sign = 1.0 if args.greater_is_better else -1.0
        best, self.early_stopping_patience_counter = -math.inf, 0
        for entry in state.log_history:
            if name in entry:
                better = sign * entry[name] > best
                best = max(best, sign * entry[name])
                self.early_stopping_patience_counter = 0 if better else self.early_stopping_patience_counter + 1


class Curve(TrainerCallback):
    """Keeps the training and dev curve as JSON Lines: step, epoch and loss or dev measure.

    It is written from the trainer's own history, which checkpoints hold, so a resumed run continues it without a seam.
    """

    def __init__(self, path: Path, before: dict[str, float] | None) -> None:
        self.path = path
        self.before = before

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            write_curve(self.path, state, self.before)


def write_curve(path: Path, state: TrainerState, before: dict[str, float] | None) -> None:
    """One line an entry of the history; the first is the dev measure before training, at step 0."""
    import json

    lines: list[dict[str, Any]] = [] if before is None else [{"step": 0, "epoch": 0.0, **before}]
    for entry in state.log_history:
        measured = {
            name.removeprefix("eval_"): value
            for name, value in entry.items()
            if name in ("loss", "learning_rate", "grad_norm")
            or (name.startswith("eval_") and not name.endswith(("_runtime", "_per_second")))
        }
        if measured:
            lines.append({"step": entry["step"], "epoch": round(entry.get("epoch", 0.0), 4), **measured})
    with _files.writing_text(path) as handle:
        handle.writelines(json.dumps(line) + "\n" for line in lines)


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Finished checkpoints by step; what a kill left half-written is not among them."""
    found = []
    for path in folder.glob("checkpoint-*"):
        match = _CHECKPOINT.fullmatch(path.name)
        if match and (path / TRAINER_STATE_NAME).is_file():
            found.append((int(match.group(1)), path))
    return sorted(found)
