"""Trainers: a bi-encoder from a mined set, with false negatives masked, large batches in little memory, exact resuming.

The names below are loaded when first used: PyTorch and sentence-transformers take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "CachedMaskedMultipleNegativesRankingLoss": "losses",
    "MaskedMultipleNegativesRankingLoss": "losses",
    "CrossValidation": "folds",
    "cross_validate": "folds",
    "train": "bi_encoder",
    "train_conqrr": "rewriter_conqrr",
    "train_convdr": "convdr",
    "train_disco": "disco",
    "train_cross_encoder": "cross_encoder",
    "train_parade": "parade",
    "train_quretec": "rewriter_quretec",
    "train_resp2ctxt": "resp2ctxt",
    "train_rewriter": "rewriter",
    "with_separators": "separators",
}

__all__ = [
    "CachedMaskedMultipleNegativesRankingLoss", "CrossValidation", "MaskedMultipleNegativesRankingLoss",
    "cross_validate", "train", "train_conqrr", "train_convdr", "train_cross_encoder", "train_disco", "train_parade",
    "train_quretec", "train_resp2ctxt", "train_rewriter", "with_separators",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
