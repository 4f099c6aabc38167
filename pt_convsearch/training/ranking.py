"""Training what scores a question and a passage: batches of one positive and its negatives, losses over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from transformers import PrinterCallback, TrainingArguments
from transformers.trainer_callback import TrainerCallback

from pt_convsearch import _files
from pt_convsearch._process import quiet
from pt_convsearch.negatives import TrainingPairs

from .arguments import measured_before, one_gpu, steps_per_epoch, usual_arguments, usual_callbacks
from .building import epoch_batches
from .data import Example, Examples
from .options import processes
from .rewriter_run import place_of
from .runs import BEFORE, CURVE
from .trainer import WholeCheckpoints, write_curve

logger = logging.getLogger(__name__)

Loss = Literal["softmax", "bce", "hinge"]
#: (question, passage) rows to padded tensors
Reader = Callable[[Sequence[tuple[str, str]]], dict[str, Tensor]]


def group_loss(scores: Tensor, groups: Tensor, loss: Loss) -> Tensor:
    """The loss of scores in groups, the first of each group being that of the relevant passage.

    - "softmax": the negative log-probability of the relevant passage among its group (localized contrastive
      estimation);
    - "bce": binary cross-entropy of each passage for itself (monoBERT);
    - "hinge": max(0, 1 - s_relevant + s_other), for each other.

    >>> group_loss(torch.tensor([2.0, 1.0, 0.5]), torch.tensor([0, 0, 0]), "hinge")     # (1-2+1, 1-2+.5 -> 0) / 2
    tensor(0.)
    """
    first = torch.ones_like(groups, dtype=torch.bool)
    first[1:] = groups[1:] != groups[:-1]
    if loss == "bce":
        return nn.functional.binary_cross_entropy_with_logits(scores, first.to(scores.dtype))
    relevant = scores[first][groups]
    if loss == "hinge":
        others = torch.relu(1.0 - relevant + scores)[~first]
        return others.mean() if len(others) else scores.sum() * 0.0  # questions without a negative teach nothing
    largest = torch.full((int(groups[-1]) + 1,), float("-inf"), device=scores.device, dtype=scores.dtype)
    largest = largest.scatter_reduce(0, groups, scores.detach(), "amax")
    total = torch.zeros_like(largest).index_add(0, groups, torch.exp(scores - largest[groups]))
    return (torch.log(total) + (largest - scores[first])).mean()


class GroupCollator:
    """Questions with their passages to one padded batch of pairs; ``groups`` says whose each is."""

    def __init__(self, read: Reader) -> None:
        self.read = read

    def __call__(self, examples: list[Example]) -> dict[str, Any]:
        rows, groups = [], []
        for number, example in enumerate(examples):
            for passage in (example.positive, *example.negatives):
                rows.append((example.query, passage))
                groups.append(number)
        return {**self.read(rows), "groups": torch.tensor(groups)}


class RankTrainer(WholeCheckpoints):
    """Trains a module that gives scores of pairs, and measures it by ``measure``."""

    def __init__(
        self,
        *,
        loss: Loss,
        measure: Callable[[], dict[str, float]] | None,
        known: str | None = None,
        new_learning_rate: float | None = None,
        **options: Any,
    ) -> None:
        self.group_loss = loss
        self.measure = measure
        self.known = known
        self.new_learning_rate = new_learning_rate
        super().__init__(**options)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """AdamW; parameters outside of ``known`` start from nothing and have a learning rate of their own."""
        if self.optimizer is None and self.known is not None:
            model: Any = self.model
            decays = set(self.get_decay_parameter_names(model))
            groups = [
                {
                    "params": [
                        tensor
                        for name, tensor in model.named_parameters()
                        if tensor.requires_grad and (name in decays) == decay and name.startswith(self.known) == old
                    ],
                    "weight_decay": self.args.weight_decay if decay else 0.0,
                    "lr": self.args.learning_rate if old else self.new_learning_rate,
                }
                for decay in (True, False)
                for old in (True, False)
            ]
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, model)
            self.optimizer = kind(groups, **options)
        return super().create_optimizer(*args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        groups = inputs.pop("groups")
        loss = group_loss(model(**inputs).float(), groups, self.group_loss)
        return (loss, {}) if return_outputs else loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        assert self.measure is not None
        training = self.model.training  # type: ignore[union-attr]
        found = {f"eval_{name}": value for name, value in self.measure().items()}
        self.model.train(training)  # type: ignore[union-attr]
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


def fit(
    module: nn.Module,
    pairs: TrainingPairs,
    read: Reader,
    settings: dict[str, Any],
    work: Path,
    *,
    measure: Callable[[], dict[str, float]] | None,
    resume: str | None,
    device: str | None,
    options: Mapping[str, Any],
    callbacks: Sequence[TrainerCallback],
    verbose: bool,
    known: str | None = None,
) -> RankTrainer:
    """Train, or go on from ``resume``; afterwards ``module`` holds the weights that measured best (else the last).

    ``known`` is what the names of pretrained parameters begin with; the others have ``new_learning_rate``.
    """
    examples = Examples(
        pairs, num_negatives=settings["num_negatives"], seed=settings["seed"], mask_history=settings["mask_history"]
    )
    batches = epoch_batches(len(pairs), {**settings, "processes": 1}, options, what=repr(pairs))
    metric = None if measure is None else settings["metric"]
    given = usual_arguments(
        settings, steps_per_epoch(batches), work, metric=metric, device=place_of(device).type, verbose=verbose
    )
    arguments = one_gpu(TrainingArguments(**{**given, "remove_unused_columns": False, **options}))
    before = None if measure is None else measured_before(measure, work, resume)
    extra = [*usual_callbacks(settings, work, before, selecting=measure is not None), *callbacks]
    parts: dict[str, Any] = {
        "train_dataset": examples,
        "eval_dataset": None if measure is None else examples,  # never read: measured on the dev collection
        "data_collator": GroupCollator(read),
    }
    trainer = RankTrainer(
        loss=settings["loss"], measure=measure, known=known, new_learning_rate=settings.get("new_learning_rate"),
        batches=batches, model=module, args=arguments, callbacks=extra, **parts,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    with quiet():
        trainer.train(resume_from_checkpoint=resume)
    return trainer


def best_of(trainer: RankTrainer, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The dev measure of the checkpoint that is kept."""
    if trainer.state.best_metric is None:
        return None
    return {f"dev {settings['metric']}": trainer.state.best_metric, "at step": trainer.state.best_global_step}


def curve(trainer: RankTrainer, folder: Path, work: Path) -> None:
    """Write the curve beside a finished model."""
    write_curve(folder / CURVE, trainer.state, _files.json_or_none(work / BEFORE))


def check_loss(loss: str, num_negatives: int) -> None:
    """Refuse an unknown loss, a training without negatives, from which nothing is learnt, and several processes."""
    if loss not in get_args(Loss):
        raise ValueError(f"loss={loss!r}: one of {', '.join(get_args(Loss))}")
    if num_negatives < 1:
        raise ValueError("a re-ranker learns from negatives: give num_negatives, and pairs that were made with a miner")
    if processes() > 1:
        raise ValueError("re-rankers are trained by one process: start it without accelerate launch or torchrun")
