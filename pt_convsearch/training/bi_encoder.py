"""One call from a mined set to a bi-encoder."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import differing, digest

if TYPE_CHECKING:
    import pyterrier as pt
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import BiEncoder

    from .selection import DevRetrieval
    from .trainer import PairsTrainer

logger = logging.getLogger(__name__)
_SETTINGS = "training.json"
_CURVE = "dev_curve.jsonl"


def train(
    pairs: TrainingPairs | _files.PathLike,
    *,
    init: Any,
    out: _files.PathLike,
    dev: tuple[Any, ...] | None = None,
    form: Any = None,
    seed: int = 1,
    num_negatives: int | None = None,
    epochs: int = 3,
    max_steps: int | None = None,
    batch_size: int = 32,
    mini_batch_size: int | None = None,
    learning_rate: float = 3e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    max_grad_norm: float = 2.0,
    similarity: Literal["dot", "cosine"] | None = None,
    scale: float | None = None,
    towers: int = 1,
    pooling: Literal["cls", "mean"] | None = None,
    max_query_length: int = 128,
    max_passage_length: int = 384,
    mask_history: float = 0.0,
    metric: Any = "R@5",
    eval_every: int | None = None,
    patience: int | None = None,
    refresh: Callable[[BiEncoder], pt.Transformer] | None = None,
    refresh_every: int | None = None,
    loss: Callable[[SentenceTransformer], Any] | None = None,
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto",
    device: str | None = None,
    num_workers: int = 0,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> BiEncoder:
    """Train a bi-encoder on a mined set, and keep the checkpoint that retrieves best on a dev collection.

    The loss is the negative log likelihood of the positive among all passages of the batch: its own hard negatives,
    drawn anew in every epoch, and the passages of all other questions. Whatever is a gold of the question by judgment
    or by text is masked, whoever's positive or negative it is. AdamW, linear decay after a warm-up of a tenth of the
    steps, clipped gradients. Kim & Kim (2022) trained two towers of BERT with ``epochs=10, batch_size=256`` (OR-QuAC:
    128), ``learning_rate=3e-5, max_grad_norm=2.0, similarity="dot", scale=1, num_negatives=1, metric="R@5"``.

    While it runs, checkpoints lie in ``<out>.training``, each renamed into place when it is whole. Called again after
    a kill it goes on from the last one, on a CPU to exactly the weights of an uninterrupted run; called again when
    ``out`` is finished it opens that. Under ``accelerate launch`` or ``torchrun`` each process trains on its own
    batches of ``batch_size`` questions, which compete with the passages of all processes.

    Args:
        pairs: what ``cs.training_pairs`` returned, or its folder.
        init: a name on the hub, a folder, or a SentenceTransformer (trained in place); a pair of them for two towers.
        out: the folder to write: ``cs.BiEncoder(out)`` and ``SentenceTransformer(out)`` open it.
        dev: (topics, qrels, corpus) of a small dev collection; a frame of qid and docno as a fourth ranks these
            candidates only.
        form: the form of the dev questions; by default that of the training set.
        seed: of the order, the draws and the dropout.
        num_negatives: hard negatives per question; by default as mined.
        epochs: passes over the questions.
        max_steps: optimiser steps, instead of ``epochs``.
        batch_size: questions per step (and process).
        mini_batch_size: texts in the model at a time, for large batches in little memory (cached gradients, about a
            third slower); None: all at once.
        learning_rate: its peak.
        warmup: the share of the steps in which it rises.
        weight_decay: AdamW's, on all but biases and norms.
        max_grad_norm: gradients are clipped to this norm; 0: not at all.
        similarity: "dot" or "cosine"; None: as the model says, dot product for a plain checkpoint.
        scale: the factor on the similarity, 1 / temperature; None: 20 for cosine, 1 for dot product.
        towers: 1: queries and passages share the weights; 2: two towers that start alike.
        pooling: "cls" or "mean" for a plain checkpoint, which does not say (mean if None).
        max_query_length: tokens of a query, cut on the left so that the current question stays.
        max_passage_length: tokens of a passage, cut on the right.
        mask_history: the chance that a question is trained without its history, drawn anew in every epoch.
        metric: the dev measure to select by: "R@5", "RR", "AP" …
        eval_every: steps from one checkpoint, and dev measure, to the next; None: once an epoch.
        patience: stop after so many dev measures without a better one; None: never.
        refresh: makes a miner from the encoder in training, ``lambda encoder: cs.form(cs.X) >> …``; needs
            ``refresh_every``, and ``pairs`` that were made in this process.
        refresh_every: steps from one mining to the next (ANCE).
        loss: makes another loss from the model; it is given the columns query, positive, negative_1 … and the keys as
            labels.
        precision: "auto": bfloat16 where the processor has it, float16 on other GPUs; float32 elsewhere.
        device: "cpu" to leave a GPU alone; else where there is one.
        num_workers: processes that make batches; 0 is right for most.
        trainer_options: any of ``SentenceTransformerTrainingArguments``, last word over the above.
        callbacks: more callbacks of the trainer.
        overwrite: train anew whatever ``out`` or an earlier run holds.
        verbose: show a progress bar.

    Returns:
        the encoder, for pipelines; the dev curve is ``<out>/dev_curve.jsonl``, the settings ``<out>/training.json``.

    Raises:
        ValueError: options that contradict each other, or ``out`` holds a model that was trained otherwise.
        ImportError: ``accelerate`` or ``datasets`` is missing.

    Example:
        >>> model = cs.train(pairs, init="bert-base-uncased", dev=(topics, qrels, corpus), out="dpr")    # doctest: +SKIP
        >>> cs.form(cs.X) >> cs.DenseIndex("passages.flex", model).retriever()                       # doctest: +SKIP
    """
    for module in ("accelerate", "datasets"):
        require(module, step="training", install="pt-convsearch[train]")
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    num_negatives = pairs.num_negatives if num_negatives is None else num_negatives
    _check(pairs, locals())
    from transformers import set_seed

    from .quiet import quiet
    from .towers import sides, starting_model

    set_seed(seed)
    model = starting_model(init, towers=towers, pooling=pooling, similarity=similarity, device=device)
    query, passage = sides(model, max_query_length, max_passage_length)
    scale = scale if scale is not None else (20.0 if model.similarity_fn_name == "cosine" else 1.0)
    resolved = _precision(precision, model)
    evaluator = _evaluator(dev, form, pairs, model.similarity_fn_name, query.max_length, passage.max_length, metric)
    from pt_convsearch.dense.weights import tower_hash

    settings: dict[str, Any] = {
        "pairs": pairs.fingerprint, "init": tower_hash(model), "dev": _dev_digest(evaluator), "metric": str(metric) if dev else None,
        "seed": seed, "num_negatives": num_negatives, "epochs": epochs if max_steps is None else None, "max_steps": max_steps,
        "batch_size": batch_size, "mini_batch_size": mini_batch_size, "learning_rate": learning_rate, "warmup": warmup,
        "weight_decay": weight_decay, "max_grad_norm": max_grad_norm, "similarity": model.similarity_fn_name, "scale": scale,
        "towers": towers, "max_query_length": query.max_length, "max_passage_length": passage.max_length,
        "mask_history": mask_history, "eval_every": eval_every, "patience": patience, "refresh_every": refresh_every,
        "refresh": None if refresh is None else digest(refresh), "loss": None if loss is None else digest(loss), "precision": resolved,
        "processes": _processes(), "trainer_options": {name: str(value) for name, value in (trainer_options or {}).items()},
    }  # fmt: skip
    target, work = Path(out), Path(f"{os.fspath(out)}.training")
    if not overwrite and _finished(target, settings):
        return _opened(target, settings)
    resume = _prepare(work, settings, overwrite)
    trainer = _trainer(
        model, pairs, settings, query, passage, work, evaluator=evaluator, loss=loss, refresh=refresh, device=device,
        num_workers=num_workers, options=trainer_options or {}, callbacks=callbacks, verbose=verbose, resume=resume,
    )  # fmt: skip
    with quiet():
        trainer.train(resume_from_checkpoint=resume)
        if trainer.is_world_process_zero():
            _keep(trainer, model, target, work, settings, pairs, init)
    trainer.accelerator.wait_for_everyone()
    return _opened(target, settings)


def _check(pairs: TrainingPairs, given: dict[str, Any]) -> None:
    for name in ("batch_size", "epochs"):
        if given[name] < 1:
            raise ValueError(f"{name}={given[name]}: give at least 1")
    for name in ("max_steps", "mini_batch_size", "eval_every", "patience", "refresh_every"):
        if given[name] is not None and given[name] < 1:
            raise ValueError(f"{name}={given[name]}: give at least 1, or None")
    if given["num_negatives"] < 0:
        raise ValueError(f"num_negatives={given['num_negatives']}: give 0 or more")
    if given["num_negatives"] and pairs.settings["negatives"] is None:
        raise ValueError(
            f"num_negatives={given['num_negatives']}, but {pairs!r} was made without a miner: give negatives= there"
        )
    if not 0 <= given["warmup"] <= 1:
        raise ValueError(f"warmup={given['warmup']}: a share of the steps lies in [0, 1]")
    if not 0 <= given["mask_history"] <= 1:
        raise ValueError(f"mask_history={given['mask_history']}: a chance lies in [0, 1]")
    if given["mask_history"] and not pairs.can_mask_history():
        raise ValueError(
            "mask_history: some questions have no form without their history; make the pairs with a form of parts that holds cs.CURRENT"
        )
    if (given["refresh"] is None) != (given["refresh_every"] is None):
        raise ValueError(
            "refresh and refresh_every go together: a miner, and how many steps from one mining to the next"
        )
    if given["refresh"] is not None and given["num_workers"]:
        raise ValueError("num_workers: with refresh, batches must be made in this process: num_workers=0")
    if given["patience"] is not None and given["dev"] is None:
        raise ValueError("patience: stopping early needs a dev collection, dev=(topics, qrels, corpus)")
    if given["batch_size"] == 1 and not given["num_negatives"]:
        raise ValueError("batch_size=1 without hard negatives: a question would have nothing to tell its positive from")


def _precision(precision: str, model: SentenceTransformer) -> str:
    from pt_convsearch.dense.encoding import has_bf16

    if precision not in ("auto", "bf16", "fp16", "fp32"):
        raise ValueError(f"precision={precision!r}: 'auto', 'bf16', 'fp16' or 'fp32'")
    if precision == "fp16" and model.device.type != "cuda":
        raise ValueError(f"precision='fp16' needs a GPU, and the model is on {model.device}: 'bf16' or 'fp32'")
    if precision != "auto":
        return precision
    return "bf16" if has_bf16(model.device) else "fp16" if model.device.type == "cuda" else "fp32"


def _evaluator(
    dev: Any, form: Any, pairs: TrainingPairs, similarity: Any, query_length: int, passage_length: int, metric: Any
) -> DevRetrieval | None:
    if dev is None:
        return None
    from .selection import dev_retrieval

    if form is None and pairs.form is None:
        raise ValueError(
            f"form: {pairs!r} was opened from disk; say how dev questions are formed, form={pairs.settings['form']}"
        )
    former = pairs.form
    if form is not None:
        from pt_convsearch.negatives.training_pairs import _former

        former = _former(form)

    def encoder(model: Any) -> BiEncoder:
        return _encoder(model, similarity, query_length, passage_length)

    return dev_retrieval(
        dev, former, encoder=encoder, metric=metric, text_field=pairs.settings["text_field"],
        title_field=pairs.settings["title_field"],
    )  # fmt: skip


def _encoder(model: Any, similarity: Any, query_length: int, passage_length: int) -> BiEncoder:
    from pt_convsearch.dense import BiEncoder

    return BiEncoder(model, similarity=similarity, max_query_length=query_length, max_passage_length=passage_length)


def _dev_digest(evaluator: DevRetrieval | None) -> str | None:
    if evaluator is None:
        return None
    judged = evaluator.judgments
    golds = [judged.qids, judged.docnos, judged.query, judged.doc, judged.label]
    return digest([evaluator.topics[["qid", "query"]], golds, evaluator.corpus.fingerprint, evaluator.candidates])


def _processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _finished(target: Path, settings: dict[str, Any]) -> bool:
    """Whether ``target`` is this very model; another model there is an error."""
    if not target.exists():
        return False
    known = target / _SETTINGS
    if not known.is_file():
        raise FileExistsError(f"{target} exists and is no model of cs.train: choose another folder")
    different = differing(json.loads(known.read_text(encoding="utf-8")), settings)
    if different:
        raise ValueError(
            f"{target} was trained with other settings ({', '.join(different)}): choose another folder, or overwrite=True"
        )
    logger.info("%s is finished: nothing is trained", target)
    return True


def _prepare(work: Path, settings: dict[str, Any], overwrite: bool) -> str | None:
    """The checkpoint to go on from, in the folder of an unfinished run with the same settings; None to begin."""
    from accelerate import PartialState

    from .trainer import checkpoints

    state = PartialState() if _processes() > 1 else None
    if state is None or state.is_main_process:
        known = work / _SETTINGS
        same = known.is_file() and json.loads(known.read_text(encoding="utf-8")) == settings
        if work.exists() and (overwrite or not same):
            logger.info("%s is of another training: beginning anew", work)
            shutil.rmtree(work)
        for partial in work.glob("checkpoint-*.partial"):
            shutil.rmtree(partial)
        _files.write_json(known, settings)
    if state is not None:
        state.wait_for_everyone()
    found = checkpoints(work)
    if not found:
        return None
    logger.info("%s: going on after step %d", work, found[-1][0])
    return str(found[-1][1])


def _trainer(
    model: SentenceTransformer,
    pairs: TrainingPairs,
    settings: dict[str, Any],
    query: Any,
    passage: Any,
    work: Path,
    *,
    evaluator: DevRetrieval | None,
    loss: Callable[[SentenceTransformer], Any] | None,
    refresh: Callable[[BiEncoder], pt.Transformer] | None,
    device: str | None,
    num_workers: int,
    options: Mapping[str, Any],
    callbacks: Sequence[Any],
    verbose: bool,
    resume: str | None,
) -> PairsTrainer:
    from transformers import EarlyStoppingCallback, PrinterCallback

    from .data import Collator, EpochBatches, Examples
    from .refresh import Refresh
    from .trainer import Curve, PairsTrainer

    examples = Examples(
        pairs, num_negatives=settings["num_negatives"], seed=settings["seed"], mask_history=settings["mask_history"]
    )
    accumulate = int(options.get("gradient_accumulation_steps", 1))
    batches = EpochBatches(
        len(pairs), settings["batch_size"], seed=settings["seed"], processes=settings["processes"],
        refresh_every=settings["refresh_every"] or 0, accumulate=accumulate,
    )  # fmt: skip
    if len(batches) == 0:
        raise ValueError(
            f"batch_size={settings['batch_size']} for {settings['processes']} processes is more than the {len(pairs)} questions of {pairs!r}"
        )
    args = _arguments(
        settings, batches, work, evaluator, device, num_workers, options, verbose, on_gpu=model.device.type == "cuda"
    )
    before = None
    if evaluator is not None and settings["processes"] == 1:
        before = _before(evaluator, model, work, resume)
    extra: list[Any] = [Curve(work / _CURVE, before), *callbacks]
    if settings["patience"] is not None:
        extra.append(EarlyStoppingCallback(early_stopping_patience=settings["patience"]))
    if refresh is not None:

        def encoder(current: Any) -> BiEncoder:
            return _encoder(current, settings["similarity"], query.max_length, passage.max_length)

        extra.append(Refresh(examples, refresh, every=settings["refresh_every"], folder=work, encoder=encoder))
    trainer = PairsTrainer(
        batches=batches,
        model=model,
        args=args,
        train_dataset=examples,
        loss=_loss(settings) if loss is None else loss,
        evaluator=evaluator,
        data_collator=Collator(model, query, passage, num_negatives=settings["num_negatives"]),
        callbacks=extra,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _arguments(
    settings: dict[str, Any],
    batches: Any,
    work: Path,
    evaluator: DevRetrieval | None,
    device: str | None,
    num_workers: int,
    options: Mapping[str, Any],
    verbose: bool,
    *,
    on_gpu: bool,
) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    per_epoch = math.ceil(len(batches) / (batches.processes * batches.accumulate))
    steps = settings["max_steps"] or settings["epochs"] * per_epoch
    every = min(settings["eval_every"] or per_epoch, steps)
    given: dict[str, Any] = {
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
        "eval_strategy": "no" if evaluator is None else "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": evaluator is not None,
        "metric_for_best_model": None if evaluator is None else f"eval_{evaluator.metric}",
        "greater_is_better": True,
        "report_to": "none",
        "disable_tqdm": not verbose,
        "dataloader_num_workers": num_workers,
        "dataloader_pin_memory": on_gpu,
        "ddp_find_unused_parameters": True,
    }
    return SentenceTransformerTrainingArguments(**{**given, **options})


def warmup_steps(steps: int, share: float) -> int:
    """How many steps the learning rate rises: the share of the true number of steps, rounded up.

    >>> warmup_steps(95, 0.1)
    10
    """
    return math.ceil(steps * share - 1e-9)


def _loss(settings: dict[str, Any]) -> Callable[[Any], Any]:
    from sentence_transformers.util import cos_sim, dot_score

    from .losses import CachedMaskedMultipleNegativesRankingLoss, MaskedMultipleNegativesRankingLoss

    options: dict[str, Any] = {
        "scale": settings["scale"],
        "similarity_fct": cos_sim if settings["similarity"] == "cosine" else dot_score,
        "gather_across_devices": settings["processes"] > 1,
    }
    small = settings["mini_batch_size"]
    if small is None:
        return lambda model: MaskedMultipleNegativesRankingLoss(model, **options)
    return lambda model: CachedMaskedMultipleNegativesRankingLoss(model, mini_batch_size=small, **options)


def _before(
    evaluator: DevRetrieval, model: SentenceTransformer, work: Path, resume: str | None
) -> dict[str, float] | None:
    """The dev measure before training: measured once, and read back when a run goes on."""
    path = work / "before.json"
    if resume is not None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    before = evaluator(model)
    _files.write_json(path, before)
    return before


def _keep(
    trainer: PairsTrainer,
    model: SentenceTransformer,
    target: Path,
    work: Path,
    settings: dict[str, Any],
    pairs: TrainingPairs,
    init: Any,
) -> None:
    """Write the model with its card, settings and curve under ``target``, and remove what only a resumed run would
    need."""
    from .card import write_card
    from .trainer import write_curve

    before = work / "before.json"
    measured = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else None
    best = None
    if trainer.state.best_metric is not None:
        best = {str(settings["metric"]): trainer.state.best_metric, "at step": trainer.state.best_global_step}
    _set_lengths(model, settings)
    with _files.written(target) as temporary:
        model.save_pretrained(str(temporary), create_model_card=False)
        write_card(
            temporary, init=init if isinstance(init, str) else repr(init)[:200], pairs=pairs, settings=settings, best=best,
            steps=trainer.state.global_step, name=target.name,
        )  # fmt: skip
        write_curve(temporary / _CURVE, trainer.state, measured)
        _files.write_json(temporary / _SETTINGS, settings)
    shutil.rmtree(work, ignore_errors=True)


def _set_lengths(model: SentenceTransformer, settings: dict[str, Any]) -> None:
    """Tell sentence-transformers, too, how long queries and passages are."""
    from pt_convsearch.dense.encoding import text_module

    query, passage = text_module(model, "query"), text_module(model, "document")
    if hasattr(query, "query_length"):
        query.query_length = settings["max_query_length"]
    if hasattr(passage, "document_length"):
        passage.document_length = settings["max_passage_length"]
    if query is not None and query is not passage:
        query.tokenizer.truncation_side = "left"


def _opened(target: Path, settings: dict[str, Any]) -> BiEncoder:
    from pt_convsearch.dense import BiEncoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return BiEncoder(
            str(target), similarity=settings["similarity"], max_query_length=settings["max_query_length"],
            max_passage_length=settings["max_passage_length"],
        )  # fmt: skip
