"""Negatives mined anew with the model in training."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pt_convsearch.negatives import TrainingPairs

from .data import Examples

if TYPE_CHECKING:
    from pt_convsearch.dense import BiEncoder

logger = logging.getLogger(__name__)


class Refresh(TrainerCallback):
    """Every n steps, mine with the current model (ANCE, Xiong et al., 2021; Kim & Kim, 2022, mine once).

    Args:
        examples: what is trained on; a refreshed set is appended.
        miner: makes a pipeline from the encoder in training.
        every: optimiser steps.
        folder: where refreshed sets are kept while the training lasts.
        encoder: makes the PyTerrier encoder of a model.
    """

    def __init__(
        self,
        examples: Examples,
        miner: Callable[[BiEncoder], pt.Transformer],
        *,
        every: int,
        folder: Path,
        encoder: Callable[[Any], BiEncoder],
    ) -> None:
        self.examples = examples
        self.miner = miner
        self.every = every
        self.folder = folder
        self.encoder = encoder

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A resumed run takes up the sets that were mined before its checkpoint."""
        del self.examples.generations[1:]
        for generation in range(1, state.global_step // self.every + 1):
            self.examples.generations.append(TrainingPairs(self._path(generation)))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self.every or state.global_step >= state.max_steps:
            return
        generation = state.global_step // self.every
        if state.is_world_process_zero:
            model = kwargs["model"]
            training = model.training
            logger.info("step %d: mining negatives anew", state.global_step)
            shutil.rmtree(self._path(generation), ignore_errors=True)
            self.examples.generations[0].mined_again(self.miner(self.encoder(model)), out=self._path(generation))
            model.train(training)
        _wait()
        self.examples.generations.append(TrainingPairs(self._path(generation)))

    def _path(self, generation: int) -> Path:
        return self.folder / f"negatives-{generation}"


def _wait() -> None:
    from accelerate import PartialState

    PartialState().wait_for_everyone()
