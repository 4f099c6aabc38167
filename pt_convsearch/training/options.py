"""What a training may be asked for, and what stands for a default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pt_convsearch.negatives import TrainingPairs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def check_options(pairs: TrainingPairs, given: dict[str, Any], *, refresh: bool, dev: bool, num_workers: int) -> None:
    """Refuse, by name, what makes no sense or does not go together.

    Raises:
        ValueError: the first option that is wrong.
    """
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
            "mask_history: some questions have no form without their history; "
            "make the pairs with a form of parts that holds cs.CURRENT"
        )
    if refresh != (given["refresh_every"] is not None):
        raise ValueError(
            "refresh and refresh_every go together: a miner, and how many steps from one mining to the next"
        )
    if refresh and num_workers:
        raise ValueError("num_workers: with refresh, batches must be made in this process: num_workers=0")
    if given["patience"] is not None and not dev:
        raise ValueError("patience: stopping early needs a dev collection, dev=(topics, qrels, corpus)")
    if min(given["batch_size"], len(pairs)) == 1 and not given["num_negatives"]:
        reason = "batch_size=1" if given["batch_size"] == 1 else "a training set of one question"
        raise ValueError(f"{reason} without hard negatives: a question would have nothing to tell its positive from")


def default_scale(similarity: str) -> float:
    """20 for cosine (a temperature of .05, as sentence-transformers), 1 for dot products (as DPR)."""
    return 20.0 if similarity == "cosine" else 1.0


def resolve_precision(precision: str, model: SentenceTransformer) -> str:
    """What "auto" means where the model lies.

    Raises:
        ValueError: an unknown precision, or float16 without a GPU.
    """
    from pt_convsearch.dense.encoding import has_bf16

    if precision not in ("auto", "bf16", "fp16", "fp32"):
        raise ValueError(f"precision={precision!r}: 'auto', 'bf16', 'fp16' or 'fp32'")
    if precision == "fp16" and model.device.type != "cuda":
        raise ValueError(f"precision='fp16' needs a GPU, and the model is on {model.device}: 'bf16' or 'fp32'")
    if precision != "auto":
        return precision
    return "bf16" if has_bf16(model.device) else "fp16" if model.device.type == "cuda" else "fp32"


def processes() -> int:
    """How many processes train together, as torchrun and ``accelerate launch`` tell them."""
    return int(os.environ.get("WORLD_SIZE", "1"))
