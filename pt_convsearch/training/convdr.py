"""ConvDR: a query encoder for conversations, taught by an ad hoc encoder's vectors of their rewrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from transformers import set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.dense import BiEncoder, DenseIndex
from pt_convsearch.forming import REWRITE, X
from pt_convsearch.negatives import TrainingPairs

from .distillation import check_distillation, run_distillation, student_of
from .distillation_data import conversations
from .distillation_losses import ConvDRLoss
from .options import default_scale, resolve_precision


def train_convdr(
    topics: pd.DataFrame,
    teacher: BiEncoder,
    *,
    out: _files.PathLike,
    pairs: TrainingPairs | _files.PathLike | None = None,
    index: DenseIndex | None = None,
    dev: tuple[Any, Any, Any] | None = None,
    form: Any = X,
    rewrite: Any = REWRITE,
    mse_weight: float = 1.0,
    ranking_weight: float = 1.0,
    num_negatives: int = 9,
    scale: float | None = None,
    seed: int = 1,
    epochs: int = 1,
    max_steps: int | None = None,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup: float = 0.0,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    max_query_length: int = 256,
    metric: Any = "R@5",
    eval_every: int | None = None,
    patience: int | None = None,
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto",
    num_workers: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> BiEncoder:
    """Teach a copy of an ad hoc encoder's query tower to read a conversation as the teacher reads its rewrite.

    The loss is the mean squared error between the student's vector of the conversation and the teacher's of the
    rewrite, plus, with ``pairs``, the cross-entropy of the gold passage among mined negatives. Passages stay the
    teacher's: none is trained, an index of the teacher is searched as it is, and with ``index`` (and a dev index) none
    is encoded here either. Without ``pairs`` no judgment is needed. A killed run goes on from its last whole
    checkpoint, on a CPU to exactly the weights of an uninterrupted one.

    Args:
        topics: the topics frame: qid, query, qhistory, and ``qrewrite`` (a question without one is trained by the
            ranking alone, or not at all).
        teacher: the ad hoc encoder.
        out: the folder to write. It holds the query tower alone: ``teacher.with_query_model(out)`` opens it.
        pairs: what ``cs.training_pairs`` mined for these questions in the same form; None: no ranking loss.
        index: the teacher's index, where the passages of ``pairs`` are read; None: they are encoded, once.
        dev: (topics, qrels, corpus) or, where nothing shall be encoded, (topics, qrels, the teacher's index).
        form: what the student reads; ``cs.form(cs.QUESTIONS, …)`` for that of the paper.
        rewrite: what the teacher reads: the gold rewrite, or any stage that writes the query (``cs.Rewriter``).
        mse_weight: the factor on the error of vectors. It is a mean over dimensions, so it is small for vectors of
            length one: with a cosine encoder and ``pairs``, the number of dimensions is a fair weight.
        ranking_weight: the factor on the cross-entropy.
        num_negatives: negatives per question, drawn anew in every epoch.
        scale: the factor on similarities; None: 20 for cosine, 1 for dot product.
        seed, epochs, max_steps, batch_size, learning_rate, warmup, weight_decay, max_grad_norm: as in ``cs.train``.
        max_query_length: tokens of a conversation, cut on the left so that the current question stays (the paper's
            code cuts on the right and may lose it).
        metric, eval_every, patience, precision, num_workers, trainer_options, callbacks, overwrite, verbose: as in
            ``cs.train``.

    Returns:
        the teacher with the student as its query tower; the dev curve is ``<out>/dev_curve.jsonl``, the settings
        ``<out>/training.json``.

    Raises:
        ValueError: no question has a rewrite or a pair, options that contradict each other, pairs formed otherwise,
            an index of another encoder, or ``out`` was trained otherwise.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> teacher = cs.BiEncoder("castorini/ance-msmarco-passage")
        >>> student = cs.train_convdr(topics, teacher, out="convdr")
        >>> pipeline = cs.form(cs.X) >> cs.DenseIndex("passages.flex", student).retriever(num_results=100)

    Source: Yu et al., Few-shot conversational dense retrieval (SIGIR 2021); the defaults are those of their code.
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    if not isinstance(teacher, BiEncoder):
        raise TypeError(f"teacher is {teacher!r}: give a cs.BiEncoder (a sparse one is distilled by cs.train_disco)")
    pairs = check_distillation(locals())
    said = conversations(topics, form, rewrite, pairs)
    said = said.take(said.known | (said.pair_rows >= 0) if ranking_weight else said.known)
    if not said.texts:
        raise ValueError(f"none of the {len(topics)} questions has a rewrite (qrewrite), or a place in pairs")
    set_seed(seed)
    student = student_of(teacher, max_query_length)
    scale = default_scale(teacher.similarity) if scale is None else scale
    settings = {
        "mse_weight": mse_weight, "ranking_weight": ranking_weight if pairs is not None else None,
        "num_negatives": 0 if pairs is None else num_negatives, "scale": scale, "seed": seed,
        "epochs": epochs if max_steps is None else None, "max_steps": max_steps, "batch_size": batch_size,
        "learning_rate": learning_rate, "warmup": warmup, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm,
        "eval_every": eval_every, "patience": patience, "precision": resolve_precision(precision, student[0]),
    }  # fmt: skip

    def loss(model: Any) -> ConvDRLoss:
        return ConvDRLoss(
            model, mse_weight=mse_weight, ranking_weight=ranking_weight, scale=scale,
            normalize=teacher.similarity == "cosine",
        )  # fmt: skip

    return run_distillation(
        task="convdr", title="Conversational query encoder (ConvDR)",
        what="Reads a conversation as its teacher, an ad hoc encoder, reads the rewritten question. The passages' "
        "tower is the teacher's.",
        said=said, teacher=teacher, pairs=pairs, index=index, dev=dev, form=form, loss=loss, tell_scores=False,
        settings=settings, student=student, out=out, metric=metric, num_workers=num_workers,
        options=trainer_options or {}, callbacks=callbacks, overwrite=overwrite, verbose=verbose,
    )  # fmt: skip
