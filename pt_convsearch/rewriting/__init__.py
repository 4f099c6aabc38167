"""Conversational query rewriting: from q_t and its history to a question that stands alone.

Sequence-to-sequence and causal models, large language models behind an endpoint, expansion by the collection's
statistics, term classification. Gold rewrites are ``cs.form(cs.REWRITE)``.

The names below are loaded when first used: those with a model of their own bring PyTorch, which is slow to import.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "HQE": "hqe",
    "BudgetExceeded": "endpoint",
    "EndpointError": "endpoint",
    "LLMRewriter": "llm_rewriter",
    "NthRewrite": "several",
    "QuReTeC": "quretec",
    "RewriteTerms": "several",
    "Rewriter": "rewriter",
    "term_overlap": "overlap",
}

__all__ = [
    "HQE",
    "BudgetExceeded",
    "EndpointError",
    "LLMRewriter",
    "NthRewrite",
    "QuReTeC",
    "RewriteTerms",
    "Rewriter",
    "term_overlap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
