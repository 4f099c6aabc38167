"""One call from a mined set of documents to PARADE."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.dense.encoding import positions
from pt_convsearch.dense.towers import resolve
from pt_convsearch.dense.weights import tower_hash
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.reranking import PARADE
from pt_convsearch.reranking.parade import Aggregator, encode_documents
from pt_convsearch.reranking.parade_model import ParadeNetwork, parade_features, without_pooler
from pt_convsearch.reranking.reranker import check_sizes

from .options import check_options
from .ranking import Loss, best_of, check_loss, curve, fit
from .ranking_dev import DevReranking, measured
from .rewriter_run import place_of, precision_of, silent, write_rewriter_card
from .runs import SETTINGS, finished, prepare


def train_parade(
    pairs: TrainingPairs | _files.PathLike,
    *,
    init: _files.PathLike,
    out: _files.PathLike,
    aggregator: Aggregator = "transformer",
    dev: tuple[Any, ...] | None = None,
    form: Any = None,
    seed: int = 1,
    loss: Loss = "hinge",
    num_negatives: int | None = None,
    passage_length: int = 225,
    stride: int = 200,
    max_passages: int = 16,
    max_length: int = 256,
    max_query_length: int | None = None,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 8,
    learning_rate: float = 2e-5,
    new_learning_rate: float = 1e-3,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    max_grad_norm: float = 1.0,
    metric: Any = "nDCG@10",
    eval_every: int | None = None,
    patience: int | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    device: str | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> PARADE:
    """Train PARADE on a mined set of whole documents, and keep the checkpoint that re-ranks best on a dev collection.

    Resuming, seeds, dev selection, curve and card are those of ``cs.train_cross_encoder``.

    Args:
        pairs: what ``cs.training_pairs`` returned for a corpus of documents, or its folder.
        init: the encoder of passages: a name on the hub ("bert-base-uncased", "google/electra-base-discriminator"), a
            folder, or a PARADE model, which is trained further.
        out: the folder to write: ``cs.PARADE(out)`` opens it.
        aggregator: "transformer", "attn", "avg" or "max"; see :class:`PARADE`.
        dev, form, seed, num_negatives, epochs, max_steps, batch_size, metric, eval_every, patience, precision, device,
            trainer_options, callbacks, overwrite, verbose: as in ``cs.train_cross_encoder``.
        loss: "hinge", as the published code has it, "softmax" or "bce"; see ``cs.train_cross_encoder``.
        passage_length, stride, max_passages: of the windows, in words; 225, 200 and 16 as in the paper.
        max_length: tokens of question and passage together.
        max_query_length: tokens of the question; None: what the passage leaves, at least half.
        learning_rate: of the encoder.
        new_learning_rate: of aggregator and scoring layer, which start from nothing.
        warmup, weight_decay, max_grad_norm: of AdamW.

    Returns:
        the stage.

    Raises:
        ValueError: options that contradict each other, no negatives, or ``out`` holds a model that was trained
            otherwise.
        TypeError: ``dev`` has no candidates.
        OSError: the encoder is not found.

    Example:
        >>> dev = (dev_topics, dev_qrels, documents, bm25 % 50)
        >>> parade = cs.train_parade(pairs, init="google/electra-base-discriminator", dev=dev, out="parade")

    Source: Li, Yates, MacAvaney, He and Sun, "PARADE" (2020), Sections 3 and 4.
    """
    for module in ("accelerate", "datasets"):
        require(module, step="training", install="pt-convsearch[train]")
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    check_sizes(
        passage_length=passage_length, stride=stride, max_passages=max_passages, max_length=max_length,
        max_query_length=max_query_length,
    )  # fmt: skip
    if stride > passage_length:
        raise ValueError(f"stride={stride} is more than passage_length={passage_length}: words would be lost")
    reading = {
        "passage_length": passage_length, "stride": stride, "max_passages": max_passages, "max_length": max_length,
        "max_query_length": max_query_length,
    }  # fmt: skip
    settings: dict[str, Any] = {
        "task": "parade", "aggregator": aggregator, **reading, "seed": seed, "loss": loss,
        "num_negatives": pairs.num_negatives if num_negatives is None else num_negatives,
        "epochs": epochs, "max_steps": max_steps, "batch_size": batch_size, "learning_rate": learning_rate,
        "new_learning_rate": new_learning_rate, "warmup": warmup, "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm, "mask_history": 0.0, "eval_every": eval_every, "patience": patience,
    }  # fmt: skip
    check_loss(loss, settings["num_negatives"])
    nothing: dict[str, Any] = {"mini_batch_size": None, "refresh_every": None}
    check_options(pairs, settings | nothing, refresh=False, dev=dev is not None, num_workers=0)
    evaluator = None if dev is None else DevReranking(dev, form, pairs, metric)
    set_seed(seed)
    network, tokenizer = starting_parade(init, aggregator, max_passages, place_of(device))
    limit = positions(network.encoder.config) or max_length
    reading["max_length"] = settings["max_length"] = min(max_length, limit)
    settings |= {
        "precision": precision_of(precision, device),
        "metric": None if evaluator is None else evaluator.metric,
        "pairs": pairs.fingerprint,
        "init": tower_hash(network),
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
                # titles are in the text already: TrainingPairs puts them there
                features, _ = encode_documents(tokenizer, [(query, "", text) for query, text in rows], reading)
                places = [(row, place) for row, own in enumerate(features["input_ids"]) for place in range(len(own))]
                found = np.array(places, dtype=np.int64)
                return {
                    **parade_features(features, tokenizer, places),
                    "documents": torch.from_numpy(found[:, 0].copy()),
                    "places": torch.from_numpy(found[:, 1].copy()),
                    "count": torch.tensor(len(rows)),
                }

            in_training = PARADE._of(network, tokenizer, reading)
            trainer = fit(
                network, pairs, read, settings, work, measure=measured(evaluator, lambda: in_training),
                resume=resume, device=device, options=trainer_options or {}, callbacks=callbacks, verbose=verbose,
                known="encoder.",
            )  # fmt: skip
            with _files.written(target) as temporary:
                temporary.mkdir()
                network.save(temporary, tokenizer, reading)
                write_rewriter_card(
                    temporary, title=f"PARADE ({aggregator}) for conversational search", init=str(os.fspath(init)),
                    settings=settings, best=best_of(trainer, settings), tags="parade, text-ranking",
                    opens=f'stage = pt_convsearch.PARADE("{target.name}")',
                    what="Scores a question and a document by the representations of the document's passages.",
                    counts={"form": pairs.settings["form"], "negatives": pairs.settings["negatives"], **pairs.counts},
                )  # fmt: skip
                curve(trainer, temporary, work)
                _files.write_json(temporary / SETTINGS, settings)
            shutil.rmtree(work, ignore_errors=True)
    return PARADE(str(target), device=device)


def starting_parade(
    init: _files.PathLike, aggregator: Aggregator, max_passages: int, place: torch.device
) -> tuple[ParadeNetwork, Any]:
    """The network to be trained, with its tokenizer: a new aggregator over an encoder, or a PARADE model."""
    from pt_convsearch.reranking.parade import SETTINGS as PARADE_SETTINGS

    folder, _ = resolve(init)
    if (Path(folder) / PARADE_SETTINGS).is_file():
        network, tokenizer, settings = ParadeNetwork.load(folder, place)
        if (settings["aggregator"], settings["max_passages"]) != (aggregator, max_passages):
            raise ValueError(
                f"init={str(init)!r} has aggregator={settings['aggregator']!r}, max_passages={settings['max_passages']}"
            )
        return network, tokenizer
    with silent():
        encoder = AutoModel.from_pretrained(folder, **without_pooler(folder))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} is no fast tokenizer: its inputs cannot be cut")
    return ParadeNetwork(encoder, aggregator, max_passages).to(place), tokenizer
