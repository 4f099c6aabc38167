"""Conversational search for PyTerrier.

>>> import pt_convsearch as cs
>>> cs.form(cs.X - cs.CURRENT)          # the ablation X_t \\ q_t of Kim & Kim (2022)
form(X - CURRENT)

The names below are loaded when first used, so that importing the package costs little more than importing PyTerrier.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name -> the room it lives in
_ROOMS: dict[str, tuple[str, ...]] = {
    "forming": (
        "ANSWERS", "CURRENT", "FIRST_QUESTION", "LAST_ANSWER", "LAST_QUESTION", "LAST_UTTERANCE", "QUESTIONS",
        "REWRITE", "X", "Form", "Parts", "form", "last",
    ),
    "lexical": ("BM25Index", "ImpactIndex", "bm25"),
    "dense": ("CQE", "BiEncoder", "DenseIndex", "SparseEncoder"),
    "expansion": ("Resp2Ctxt", "expansion_summary", "expansion_terms"),
    "rewriting": ("HQE", "LLMRewriter", "NthRewrite", "QuReTeC", "Rewriter", "RewriteTerms"),
    "reranking": ("CrossEncoder", "DropSeen", "DuoT5", "MonoT5", "PARADE", "Speakers", "rrf"),
    "negatives": (
        "CrossEncoderDenoise", "DropAnswerContaining", "DropContextSubsets", "DropNearDuplicates", "DropPositives",
        "GeneratedNegatives", "Margin", "Mix", "RandomNegatives", "Ranks", "TrainingPairs", "annotation_sheet",
        "annotation_widget", "candidate_lists", "false_negative_rates", "training_pairs",
    ),
    "training": (
        "cross_validate", "train", "train_conqrr", "train_convdr", "train_cross_encoder", "train_disco",
        "train_parade", "train_quretec", "train_resp2ctxt", "train_rewriter", "with_separators",
    ),
    "evaluation": (
        "CostMeter", "Experiment", "QuestionTypes", "cost_table", "figures", "pairwise_tests", "plots",
        "render", "shortcut_dependence", "superscripts", "top_passages",
    ),
    "datasets": ("dataset",),
    "session": ("Session",),
}  # fmt: skip
_PACKAGES = ("topics", "measures", *_ROOMS, "scale")
_ORIGIN = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *sorted(_ORIGIN), "topics"]


def __getattr__(name: str) -> Any:
    if name in _ORIGIN:
        value = getattr(importlib.import_module(f"{__name__}.{_ORIGIN[name]}"), name)
    elif name in _PACKAGES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ORIGIN, *_PACKAGES})
