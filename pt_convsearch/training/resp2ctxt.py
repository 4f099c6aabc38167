"""One call from dialogues to a model that predicts the context of a response."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, set_seed

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.expansion import Resp2Ctxt
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.rewriting.models import Generator
from pt_convsearch.topics import Task, responses

from .rewriter_models import starting_generator
from .rewriter_run import RunOptions, run_training, write_rewriter_card
from .runs import finished

logger = logging.getLogger(__name__)

Dialogues = Task | pd.DataFrame | Iterable[Any] | str | os.PathLike[str] | Any
TARGETS = ("context", "last_utterance")
#: tokens of a target in the paper
_TARGET_LENGTH = {"context": 400, "last_utterance": 100}


def train_resp2ctxt(
    dialogues: Dialogues,
    target: Literal["context", "last_utterance"] = "context",
    *,
    init: Any = "t5-base",
    out: _files.PathLike,
    dev: Dialogues | None = None,
    user: Any = None,
    sep: str = " ",
    seed: int = 1,
    epochs: int = 2,
    max_steps: int | None = None,
    batch_size: int = 5,
    learning_rate: float = 2e-5,
    warmup: float = 0.0,
    weight_decay: float = 0.01,
    max_grad_norm: float = 1.0,
    max_source_length: int = 100,
    max_target_length: int | None = None,
    eval_every: int | None = None,
    patience: int | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    device: str | None = None,
    tokenizer: Any = None,
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Sequence[Any] = (),
    overwrite: bool = False,
    verbose: bool = False,
) -> Resp2Ctxt:
    """Train a sequence-to-sequence model to predict the context of a response (resp2ctxt), or its last utterance
    (resp2ctxt_lu).

    Every response of the dialogues is a source, what was said before it the target. The last utterance is taken from
    the list of utterances, never by splitting a text. A response or target without text is left out and counted in
    the log. Lengths and hyper-parameters are those of the paper. Sources are cut on the right, targets on the left:
    what was said last is what the response answers.

    While it runs, checkpoints lie in ``<out>.training``; called again after a kill it goes on from the last whole
    one, on a CPU to exactly the weights of an uninterrupted run; called again when ``out`` is finished it opens that.

    Args:
        dialogues: as ``cs.topics.responses`` takes them; or the task it returns, a data set of dialogues
            (``cs.dataset("irc/train")``), or a topics frame with query, qhistory and ``answer``. Give training
            dialogues only.
        target: "context": the whole of it; "last_utterance".
        init: a folder, a name on the hub, or a transformers model (a copy is trained): an encoder-decoder; of an
            encoder ("sentence-transformers/all-MiniLM-L6-v2") an encoder-decoder is made, warm-started from it on
            both sides.
        out: the folder to write: ``cs.Resp2Ctxt(out)`` opens it.
        dev: dialogues to select the checkpoint by its loss on; None: the last one is kept, as in the paper.
        user: who asks, as in ``cs.topics.responses``.
        sep: what stands between the utterances of a target.
        max_source_length: tokens of a response.
        max_target_length: tokens of a target; None: 400 of a context, 100 of a last utterance.
        seed, epochs, max_steps, batch_size, learning_rate, warmup, weight_decay, max_grad_norm: of AdamW with linear
            decay, as in :func:`train_rewriter`.
        eval_every, patience, precision, device, tokenizer, trainer_options, callbacks, overwrite, verbose: as in
            :func:`train_rewriter`.

    Returns:
        the expander with the lengths of this training; the curve of losses is ``<out>/dev_curve.jsonl``, the settings
        ``<out>/training.json``.

    Raises:
        ValueError: no response to learn from, options out of range, a model that is no encoder-decoder, or ``out``
            holds a model that was trained otherwise.
        OSError: the model is not found.
        ImportError: ``accelerate`` is missing.

    Example:
        >>> expander = cs.train_resp2ctxt("dialogues.jsonl", target="context", init="t5-base", out="resp2ctxt")

    Source: Penha and Hauff (full-rank retrieval of responses for dialogues): resp2ctxt, resp2ctxt_lu.
    """
    require("accelerate", step="training", install="pt-convsearch[train]")
    if target not in TARGETS:
        raise ValueError(f"target={target!r}: 'context' or 'last_utterance'")
    target_length = _TARGET_LENGTH[target] if max_target_length is None else max_target_length
    run = RunOptions.of({**locals(), "max_target_length": target_length, "max_length": max_source_length})
    pairs = source_target_pairs(dialogues, target, user=user, sep=sep)
    dev_pairs = None if dev is None else source_target_pairs(dev, target, user=user, sep=sep, name="dev")
    set_seed(seed)
    generator = starting_generator(init, tokenizer)
    if not generator.seq2seq:
        raise ValueError(f"init={str(init)[:100]!r} is no encoder-decoder: give one such as T5 or BART, or an encoder")
    settings: dict[str, Any] = {
        "task": "resp2ctxt", "target": target, "init": generator.identity(), "data": digest(pairs),
        "dev": None if dev_pairs is None else digest(dev_pairs), "metric": None if dev is None else "loss",
        "max_source_length": max_source_length, "max_target_length": target_length, **run.settings(),
    }  # fmt: skip
    folder = Path(out)
    if overwrite or not finished(folder, settings):
        rows = training_rows(generator, pairs, max_source_length, target_length)
        dev_rows = None if dev_pairs is None else training_rows(generator, dev_pairs, max_source_length, target_length)
        named = init if isinstance(init, str | os.PathLike) else type(init).__name__

        def write(temporary: Path, best: Mapping[str, Any] | None) -> None:
            generator.model.save_pretrained(temporary)
            generator.tokenizer.save_pretrained(temporary)
            write_rewriter_card(
                temporary, title="Contexts of responses (resp2ctxt)", init=str(named), settings=settings, best=best,
                opens=f'expander = pt_convsearch.Resp2Ctxt("{folder.name}")', tags="document-expansion",
                what="Writes, for a response, a context that it might answer: documents are expanded by it.",
                counts={"responses": len(pairs), "dev responses": 0 if dev_pairs is None else len(dev_pairs)},
            )  # fmt: skip

        run_training(
            Seq2SeqTrainer, generator.model, rows, dev_rows,
            DataCollatorForSeq2Seq(generator.tokenizer, model=generator.model), settings, run, target=folder,
            greater_is_better=False, write=write, more={"processing_class": generator.tokenizer},
        )  # fmt: skip
    return Resp2Ctxt(str(folder), device=device)


def source_target_pairs(
    dialogues: Dialogues, target: str, *, user: Any = None, sep: str = " ", name: str = "dialogues"
) -> list[tuple[str, str]]:
    """The response and what it answers, for each response of the dialogues.

    Raises:
        ValueError: there is none, or a frame without answers.
    """
    as_task = getattr(dialogues, "task", None)
    if not isinstance(dialogues, pd.DataFrame) and callable(as_task):
        dialogues = as_task()
    if isinstance(dialogues, Task):
        topics = dialogues.topics
    elif isinstance(dialogues, pd.DataFrame) and "qhistory" in dialogues.columns:
        topics = dialogues
    else:
        topics = responses(dialogues, user=user).topics
    missing = [column for column in ("query", "qhistory", "answer") if column not in topics.columns]
    if missing:
        raise ValueError(f"{name} have no column {missing[0]!r}: give dialogues, or what cs.topics.responses returns")
    pairs = []
    for answer, query, history in zip(topics["answer"], topics["query"], topics["qhistory"], strict=True):
        said = [query] if target == "last_utterance" else [*(message["content"] for message in history), query]
        text = sep.join(part for part in said if part.strip())
        if isinstance(answer, str) and answer.strip() and text:
            pairs.append((answer, text))
    if not pairs:
        raise ValueError(f"none of the {len(topics)} responses of {name} has a text and a context to learn from")
    logger.info("%s: %d of %d responses are used", name, len(pairs), len(topics))
    return pairs


def training_rows(
    generator: Generator, pairs: Sequence[tuple[str, str]], max_source_length: int, max_target_length: int
) -> list[dict[str, list[int]]]:
    """Token ids: sources cut on the right, targets on the left, with the end of the text at theirs."""
    tokenizer, config = generator.tokenizer, generator.model.generation_config
    sources = tokenizer([source for source, _ in pairs], truncation=True, max_length=max_source_length)["input_ids"]
    targets = tokenizer([text for _, text in pairs], add_special_tokens=False, verbose=False)["input_ids"]
    ends = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
    end = ends[0] if isinstance(ends, list | tuple) else ends
    first = [] if config.forced_bos_token_id is None else [config.forced_bos_token_id]
    room = max(0, max_target_length - 1 - len(first))
    return [
        {
            "input_ids": source,
            "attention_mask": [1] * len(source),
            "labels": [*first, *target[max(0, len(target) - room) :], end],
        }
        for source, target in zip(sources, targets, strict=True)
    ]
