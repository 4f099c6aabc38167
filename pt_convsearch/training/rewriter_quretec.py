"""One call from gold rewrites to a term classifier (QuReTeC)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Seq2SeqTrainer,
    set_seed,
)

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.dense.encoding import positions
from pt_convsearch.dense.minilm import bundled
from pt_convsearch.dense.weights import tower_hash
from pt_convsearch.forming import Parts, X
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.rewriting import QuReTeC
from pt_convsearch.rewriting.quretec import SETTINGS, Reading, labels
from pt_convsearch.rewriting.rewriting_stage import Turn

from .rewriter_run import RunOptions, run_training, silent, with_rewrites, write_rewriter_card
from .runs import finished


def train_quretec(
    topics: pd.DataFrame,
    *,
    init: Any,
    out: _files.PathLike,
    dev: pd.DataFrame | None = None,
    parts: Parts = X,
    max_length: int = 300,
    seed: int = 1,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 16,
    learning_rate: float = 3e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    max_grad_norm: float = 1.0,
    metric: str = "f1",
    eval_every: int | None = None,
    patience: int | None = None,
    precision: str = "auto",
    device: str | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> QuReTeC:
    """Train a token classifier to say which words of the history the gold rewrite has and q_t has not.

    Questions without a gold rewrite or a history are left out and counted in the log. A killed run goes on from its
    last whole checkpoint, as in :func:`train_rewriter`.

    Args:
        topics: query, qhistory and ``qrewrite``.
        init: a folder or a name on the hub of an encoder ("bert-large-uncased" in the paper).
        out: the folder to write: ``cs.QuReTeC(out)`` opens it.
        dev: questions with gold rewrites to select the checkpoint by; None: the last one is kept.
        parts: whose words may be added.
        max_length: tokens the classifier reads.
        seed: of the order and the dropout.
        epochs, max_steps, batch_size, learning_rate, warmup, weight_decay, max_grad_norm: of AdamW with linear decay.
        metric: the dev measure: "f1" of the words that are to be added, or "loss".
        eval_every, patience, precision, device, trainer_options, callbacks, overwrite, verbose: as in
            :func:`train_rewriter`.

    Returns:
        the stage; the curve is ``<out>/dev_curve.jsonl``, the settings ``<out>/training.json``, the card README.md.

    Raises:
        ValueError: no question to learn from, options that contradict each other, or ``out`` was trained otherwise.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> quretec = cs.train_quretec(train_topics, init="bert-base-uncased", dev=dev_topics, out="quretec")

    Source: Voskarides et al. (SIGIR 2020); labels by distant supervision from rewrites, as there.
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    run = RunOptions.of(locals())
    if metric not in ("loss", "f1"):
        raise ValueError(f"metric={metric!r}: 'loss' or 'f1'")
    topics = with_rewrites(topics, first_turns=False)
    dev = None if dev is None else with_rewrites(dev, first_turns=False, name="dev topics")
    set_seed(seed)
    name = str(bundled(os.fspath(init)) or os.fspath(init))
    with silent():
        model = AutoModelForTokenClassification.from_pretrained(
            name, num_labels=2, id2label={0: "O", 1: "REL"}, label2id={"O": 0, "REL": 1}
        )
    tokenizer = AutoTokenizer.from_pretrained(name)
    columns = ["qid", "query", "qhistory", "qrewrite"]
    settings: dict[str, Any] = {
        "task": "quretec", "init": tower_hash(model), "data": digest(topics[columns]),
        "dev": None if dev is None else digest(dev[columns]), "metric": metric if dev is not None else None,
        "parts": digest(parts.tables), "max_length": max_length, **run.settings(),
    }  # fmt: skip
    target = Path(out)
    if overwrite or not finished(target, settings):
        limit = min(max_length, positions(model.config) or max_length)
        rows = [labelled(turn, rewrite, parts, tokenizer, limit) for turn, rewrite in _turns(topics)]
        dev_rows = (
            None if dev is None else [labelled(turn, rewrite, parts, tokenizer, limit) for turn, rewrite in _turns(dev)]
        )

        def write(folder: Path, best: Mapping[str, Any] | None) -> None:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            _files.write_json(folder / SETTINGS, {"parts": parts.tables, "max_length": limit})
            write_rewriter_card(
                folder, title="Query resolution by term classification", init=str(init)[:200], settings=settings,
                best=best,
                opens=f'stage = pt_convsearch.QuReTeC("{target.name}")', tags="token-classification",
                what="Says which words of a conversation are to be added to its current question.",
                counts={"questions with a gold rewrite": len(topics), "dev questions": 0 if dev is None else len(dev)},
            )  # fmt: skip

        run_training(
            Seq2SeqTrainer, model, rows, dev_rows, DataCollatorForTokenClassification(tokenizer), settings, run,
            target=target, greater_is_better=metric == "f1", write=write,
            more={"compute_metrics": _term_f1, "processing_class": tokenizer},
        )  # fmt: skip
    return QuReTeC(str(target), device=device)


def _turns(topics: pd.DataFrame) -> list[tuple[Turn, str]]:
    return [
        (Turn(qid, query, history), rewrite)
        for qid, query, history, rewrite in zip(
            topics["qid"], topics["query"], topics["qhistory"], topics["qrewrite"], strict=True
        )
    ]


def labelled(turn: Turn, rewrite: str, parts: Parts, tokenizer: Any, max_length: int) -> dict[str, list[int]]:
    """What the classifier reads of a question, with a label on the first piece of each word of the history."""
    reading = Reading.of(turn, parts, tokenizer, max_length)
    marks = [-100] * len(reading.input_ids)
    for place, label in zip(reading.first_pieces, labels(turn.question, reading.history, rewrite), strict=True):
        marks[place] = label
    return {"input_ids": reading.input_ids, "attention_mask": [1] * len(marks), "labels": marks}


def _term_f1(prediction: Any) -> dict[str, float]:
    """F1 of the words to be added, over all questions."""
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    wanted = np.asarray(prediction.label_ids)
    found = np.asarray(logits).argmax(axis=-1)
    right = float(((found == 1) & (wanted == 1)).sum())
    said, gold = float(((found == 1) & (wanted >= 0)).sum()), float((wanted == 1).sum())
    return {"f1": 2 * right / (said + gold) if said + gold else 1.0}
