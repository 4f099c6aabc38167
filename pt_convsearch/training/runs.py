"""The folder of a training: finished, unfinished, or of another training."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt_convsearch import _files
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import differing

from .card import write_card
from .options import processes
from .selection import encoder_of
from .trainer import PairsTrainer, checkpoints, write_curve

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import BiEncoder

logger = logging.getLogger(__name__)
SETTINGS = "training.json"
CURVE = "dev_curve.jsonl"
BEFORE = "before.json"


def finished(target: Path, settings: dict[str, Any]) -> bool:
    """Whether ``target`` is this very model; another model there is an error."""
    _check_free(target)
    known = target / SETTINGS
    if not known.is_file():
        return False
    stored = _files.json_or_none(known)
    if not isinstance(stored, dict):
        raise ValueError(f"{known} is cut or changed: choose another folder, or overwrite=True")
    different = differing(stored, settings)
    if different:
        raise ValueError(
            f"{target} was trained with other settings ({', '.join(different)}): "
            "choose another folder, or overwrite=True"
        )
    logger.info("%s is finished: nothing is trained", target)
    return True


def _check_free(target: Path) -> None:
    _files.check_free(target, lambda folder: (folder / SETTINGS).is_file(), "model that was trained here")


def prepare(work: Path, settings: dict[str, Any], overwrite: bool, *, cpu: bool = False) -> str | None:
    """The checkpoint to go on from, in the folder of an unfinished run with the same settings; None to begin.

    Where several processes train (on the ``cpu`` or not, which decides how they talk), one of them prepares.

    Raises:
        FileExistsError: the folder of the model to be (``<out>`` of ``<out>.training``) holds something else.
    """
    from accelerate import PartialState

    _check_free(work.with_name(work.name.removesuffix(".training")))
    state = PartialState(cpu=cpu) if processes() > 1 else None
    if state is None or state.is_main_process:
        known = work / SETTINGS
        stored = _files.json_or_none(known)
        same = isinstance(stored, dict) and not differing(stored, settings)
        if work.exists() and any(work.iterdir()) and (overwrite or not same):
            logger.info("%s is of another training: beginning anew", work)
            _files.clear(work)
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


def keep(
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
    before = work / BEFORE
    measured = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else None
    best = None
    if trainer.state.best_metric is not None:
        best = {str(settings["metric"]): trainer.state.best_metric, "at step": trainer.state.best_global_step}
    _set_lengths(model, settings)
    with _files.written(target) as temporary:
        model.save_pretrained(str(temporary), create_model_card=False)
        write_card(
            temporary, init=str(init)[:200], pairs=pairs, settings=settings, best=best,
            steps=trainer.state.global_step, name=target.name,
        )  # fmt: skip
        write_curve(temporary / CURVE, trainer.state, measured)
        _files.write_json(temporary / SETTINGS, settings)
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


def opened(target: Path, settings: dict[str, Any]) -> BiEncoder:
    """The finished model, from its folder."""
    return encoder_of(str(target), settings["similarity"], settings["max_query_length"], settings["max_passage_length"])
