"""DiSCo: a query encoder for conversations, sparse or dense, taught by the scores of their rewrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from transformers import set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.dense import BiEncoder, SparseEncoder
from pt_convsearch.forming import REWRITE, X
from pt_convsearch.negatives import TrainingPairs

from .distillation import check_distillation, run_distillation, student_of
from .distillation_data import conversations
from .distillation_losses import DiSCoLoss
from .options import default_scale, resolve_precision


def train_disco(
    topics: pd.DataFrame,
    teacher: SparseEncoder | BiEncoder,
    *,
    pairs: TrainingPairs | _files.PathLike,
    out: _files.PathLike,
    index: Any = None,
    dev: tuple[Any, Any, Any] | None = None,
    form: Any = X,
    rewrite: Any = REWRITE,
    num_negatives: int = 16,
    temperature: float = 1.0,
    l1_weight: float = 0.0,
    scale: float | None = None,
    seed: int = 1,
    epochs: int = 5,
    max_steps: int | None = None,
    batch_size: int = 10,
    learning_rate: float = 2e-5,
    warmup: float = 0.01,
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
) -> Any:
    """Teach a copy of an ad hoc encoder's query tower to score passages as the teacher scores them for the rewrite.

    The loss is the Kullback-Leibler divergence between two distributions over a question's gold passage and mined
    negatives: the teacher's, by the rewrite, and the student's, by the conversation. It asks less than ConvDR, whose
    student must find the rewrite's very vector. Passages stay the teacher's: none is trained, and an index of the
    teacher is searched as it is. A killed run goes on from its last whole checkpoint, on a CPU to exactly the weights
    of an uninterrupted one.

    Args:
        topics: the topics frame: qid, query, qhistory, and ``qrewrite``; questions without a rewrite or without a place
            in ``pairs`` are left out.
        teacher: the ad hoc encoder: a :class:`~pt_convsearch.dense.SparseEncoder` (SPLADE, as in the paper), or a
            :class:`~pt_convsearch.dense.BiEncoder`.
        pairs: what ``cs.training_pairs`` mined for these questions in the same form.
        out: the folder to write. It holds the query tower alone: ``teacher.with_query_model(out)`` opens it.
        index: the teacher's index, where the passages of ``pairs`` are read; None: they are encoded, once.
        dev: (topics, qrels, corpus) or, where nothing shall be encoded, (topics, qrels, the teacher's index).
        form: what the student reads.
        rewrite: what the teacher reads: the gold rewrite, or any stage that writes the query (``cs.Rewriter``,
            ``cs.LLMRewriter``); several in a list are several teachers, whose scores are averaged.
        num_negatives: negatives per question, drawn anew in every epoch.
        temperature: scores are divided by it.
        l1_weight: the factor on the L1 norm of the student's vectors, for shorter queries.
        scale: the factor on similarities; None: 20 for cosine, 1 for dot product.
        seed, epochs, max_steps, batch_size, learning_rate, warmup, weight_decay, max_grad_norm: as in ``cs.train``.
        max_query_length: tokens of a conversation, cut on the left so that the current question stays.
        metric, eval_every, patience, precision, num_workers, trainer_options, callbacks, overwrite, verbose: as in
            ``cs.train``.

    Returns:
        the teacher with the student as its query tower; the dev curve is ``<out>/dev_curve.jsonl``, the settings
        ``<out>/training.json``.

    Raises:
        ValueError: no question has both a rewrite and a pair, options that contradict each other, pairs formed
            otherwise, an index of another encoder, or ``out`` was trained otherwise.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> teacher = cs.SparseEncoder("naver/splade-cocondenser-ensembledistil")                   # doctest: +SKIP
        >>> index = cs.ImpactIndex("passages.impacts", teacher).index(corpus)                       # doctest: +SKIP
        >>> student = cs.train_disco(topics, teacher, pairs=pairs, index=index, out="disco")        # doctest: +SKIP
        >>> cs.form(cs.X) >> cs.ImpactIndex("passages.impacts", student).retriever()                # doctest: +SKIP

    Source: Lupart, Aliannejadi, Kanoulas: DiSCo (SIGIR 2025); the defaults are those of their published code.
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    if not isinstance(teacher, SparseEncoder | BiEncoder):
        raise TypeError(f"teacher is {teacher!r}: give a cs.SparseEncoder or a cs.BiEncoder")
    if temperature <= 0:
        raise ValueError(f"temperature={temperature}: a number above 0")
    opened = check_distillation(locals())
    if opened is None:
        raise ValueError("pairs=None: scores of passages are distilled; mine them by cs.training_pairs(…)")
    said = conversations(topics, form, rewrite, opened)
    said = said.take(said.known & (said.pair_rows >= 0) & (_pool_sizes(opened)[said.pair_rows] > 0))
    if not said.texts:
        raise ValueError(f"none of the {len(topics)} questions has a rewrite (qrewrite) and a place in {opened!r}")
    set_seed(seed)
    similarity = teacher.identity()["similarity"]
    student = student_of(teacher, max_query_length)
    scale = default_scale(similarity) if scale is None else scale
    settings = {
        "num_negatives": num_negatives, "temperature": temperature, "l1_weight": l1_weight, "scale": scale,
        "seed": seed, "epochs": epochs if max_steps is None else None, "max_steps": max_steps,
        "batch_size": batch_size, "learning_rate": learning_rate, "warmup": warmup, "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm, "eval_every": eval_every, "patience": patience,
        "precision": resolve_precision(precision, student[0]),
    }  # fmt: skip

    def loss(model: Any) -> DiSCoLoss:
        return DiSCoLoss(
            model, temperature=temperature, l1_weight=l1_weight, scale=scale, normalize=similarity == "cosine"
        )

    return run_distillation(
        task="disco", title="Conversational query encoder (DiSCo)",
        what="Scores passages for a conversation as its teacher, an ad hoc encoder, scores them for the rewritten "
        "question. The passages' tower is the teacher's.",
        said=said, teacher=teacher, pairs=opened, index=index, dev=dev, form=form, loss=loss, tell_scores=True,
        settings=settings, student=student, out=out, metric=metric, num_workers=num_workers,
        options=trainer_options or {}, callbacks=callbacks, overwrite=overwrite, verbose=verbose,
    )  # fmt: skip


def _pool_sizes(pairs: TrainingPairs) -> np.ndarray:
    """How many negatives each question can be given."""
    return pairs.frame()["negatives"].map(len).to_numpy()
