"""Results to results: cross-encoders and T5, passages of documents, PARADE, fusion, leaving out what was seen.

The names below are loaded when first used: PyTorch takes seconds to import, and fusion does not need it.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "AggregatePassages": "passages",
    "CrossEncoder": "cross_encoder",
    "DropSeen": "drop_seen",
    "DuoT5": "duo_t5",
    "MonoT5": "mono_t5",
    "PARADE": "parade",
    "SlidingWindow": "passages",
    "Speakers": "speakers",
    "PUBLISHED_MODELS": "systems",
    "baselines": "systems",
    "first_p": "passages",
    "interpolate": "fusion",
    "max_p": "passages",
    "rrf": "fusion",
    "sum_p": "passages",
}

__all__ = [
    "PARADE", "PUBLISHED_MODELS", "AggregatePassages", "CrossEncoder", "DropSeen", "DuoT5", "MonoT5", "SlidingWindow",
    "Speakers", "baselines", "first_p", "interpolate", "max_p", "rrf", "sum_p",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
