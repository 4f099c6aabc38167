"""Dense retrieval: a bi-encoder of one tower or two, the index that belongs to it, exact or approximate search.

    encoder = cs.BiEncoder("sentence-transformers/all-MiniLM-L6-v2")
    dense = cs.DenseIndex("passages.flex", encoder).index(corpus).retriever(num_results=100)

The names below are loaded when first used: PyTorch and FAISS take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "CQE": "cqe",
    "BiEncoder": "encoder",
    "DenseIndex": "index",
    "DenseRetriever": "retriever",
    "SparseEncoder": "sparse_encoder",
    "albert_towers": "albert",
    "minilm_path": "minilm",
    "orquac_encoder": "albert",
    "published_encoder": "published",
}

__all__ = [
    "CQE", "BiEncoder", "DenseIndex", "DenseRetriever", "SparseEncoder", "albert_towers", "minilm_path",
    "orquac_encoder", "published_encoder",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
