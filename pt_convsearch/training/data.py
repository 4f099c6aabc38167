"""From a mined set to batches: which question comes when, with which negatives, as which tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler

from pt_convsearch.dense.encoding import Side, text_module, tokenize
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives.sampling import order

Place = tuple[int, int, int]


@dataclass(frozen=True)
class Example:
    """A question with its texts and their keys; fewer negatives than asked for are fewer here as well."""

    query: str
    positive: str
    negatives: list[str]
    keys: np.ndarray
    golds: np.ndarray


class Examples(Dataset[Example]):
    """Questions by (generation, epoch, row): what a worker makes depends on these alone.

    Args:
        pairs: the mined set; after a refresh of the negatives another is appended.
        num_negatives: hard negatives of a question.
        seed: of the draws.
        mask_history: the chance that a question is trained without its history.
    """

    column_names = ("query", "positive", "negative")  # asked for by the trainer, which finds nothing to rename
    _sentence_transformers_preprocessed = True

    def __init__(self, pairs: TrainingPairs, *, num_negatives: int, seed: int, mask_history: float = 0.0) -> None:
        self.generations = [pairs]
        self.num_negatives = num_negatives
        self.seed = seed
        self.mask_history = mask_history

    def __len__(self) -> int:
        return len(self.generations[0])

    def __getitem__(self, place: Place) -> Example:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[Place]) -> list[Example]:
        generation, epoch = places[0][0], places[0][1]
        pairs = self.generations[min(generation, len(self.generations) - 1)]
        samples = pairs.samples(
            [row for _, _, row in places],
            epoch=epoch,
            num_negatives=self.num_negatives,
            seed=self.seed,
            mask_history=self.mask_history,
        )
        rows = [np.concatenate([[sample.positive], sample.negatives]).astype(np.int64) for sample in samples]
        texts = iter(pairs.texts(np.concatenate(rows)))
        keys = pairs.keys()
        examples = []
        for sample, own in zip(samples, rows, strict=True):
            positive, *negatives = (next(texts) for _ in own)
            examples.append(Example(sample.query, positive, negatives, keys[own], pairs.gold_keys(sample.row)))
        return examples


class EpochBatches(BatchSampler):
    """Batches of (generation, epoch, row): the order of an epoch is a function of the seed and the epoch.

    Over several processes each gets every n-th batch, and the last incomplete round is left out, so that all take
    the same number of steps.

    Args:
        size: questions.
        batch_size: questions per batch and process.
        seed: of the order.
        processes: how many train together.
        refresh_every: optimiser steps after which negatives are mined anew; a batch that may have been fetched before
            the mining was done still gets the old ones. 0: never.
        accumulate: batches per optimiser step.
    """

    def __init__(
        self, size: int, batch_size: int, *, seed: int, processes: int = 1, refresh_every: int = 0, accumulate: int = 1
    ) -> None:
        super().__init__(SequentialSampler(range(size)), batch_size, drop_last=processes > 1)
        self.size = size
        self.seed = seed
        self.processes = processes
        self.refresh_every = refresh_every
        self.accumulate = accumulate
        self._epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        """What comes next is the order of this epoch, from 0."""
        self._epoch = epoch

    def __len__(self) -> int:
        if self.processes == 1:
            return -(-self.size // self.batch_size)
        return self.size // (self.batch_size * self.processes) * self.processes

    def __iter__(self) -> Iterator[list[Any]]:
        rows = order(self.seed, self._epoch, self.size)
        per_step = self.processes * self.accumulate
        steps = -(-len(self) // per_step)
        for number in range(len(self)):
            step = self._epoch * steps + number // per_step
            generation = max(0, step - 1) // self.refresh_every if self.refresh_every else 0
            chosen = rows[number * self.batch_size : (number + 1) * self.batch_size]
            yield [(generation, self._epoch, int(row)) for row in chosen]


class Collator:
    """Texts to the columns that the losses of sentence-transformers read: query, positive, negative_1 … negative_n.

    Texts are cut exactly as :class:`~pt_convsearch.dense.BiEncoder` cuts them at search: queries on the left, so that
    the current question stays, passages on the right. The label holds the keys that masks are made of: ``candidates``
    (1 + n, B), 0 where a question has no such negative, and ``golds`` (B, most golds).
    """

    valid_label_columns = ("label",)

    def __init__(self, model: Any, query: Side, passage: Side, *, num_negatives: int) -> None:
        self.model = model
        self.query = query
        self.passage = passage
        self.num_negatives = num_negatives

    def __call__(self, examples: list[Example]) -> dict[str, Any]:
        batch = self._column("query", [example.query for example in examples], self.query)
        batch |= self._column("positive", [example.positive for example in examples], self.passage)
        keys = np.zeros((1 + self.num_negatives, len(examples)), dtype=np.int64)
        for column, example in enumerate(examples):
            keys[: len(example.keys), column] = example.keys
        for place in range(self.num_negatives):
            texts = [example.negatives[place] if place < len(example.negatives) else "" for example in examples]
            batch |= self._column(f"negative_{place + 1}", texts, self.passage)
        golds = np.zeros((len(examples), max(len(example.golds) for example in examples)), dtype=np.int64)
        for row, example in enumerate(examples):
            golds[row, : len(example.golds)] = example.golds
        batch["label"] = {"candidates": torch.from_numpy(keys), "golds": torch.from_numpy(golds)}
        return batch

    def _column(self, name: str, texts: list[str], side: Side) -> dict[str, Any]:
        module = text_module(self.model, side.task)
        if module is None:  # the model reads in a way of its own
            features = dict(self.model.preprocess(texts, prompt=side.prompt or None, task=side.task))
        else:
            encoded, _, prompt_length = tokenize(module.tokenizer, texts, side)
            features = dict(module.tokenizer.pad(encoded, padding=True, return_tensors="pt"))
            features["modality"] = "text"
            if prompt_length:
                features["prompt_length"] = prompt_length
        features["task"] = side.task
        return {f"{name}_{key}": value for key, value in features.items()}
