"""Conversational search for PyTerrier.

>>> import pt_convsearch as cs
>>> cs.form(cs.X - cs.CURRENT)          # the ablation X_t \\ q_t of Kim & Kim (2022)
form(X - CURRENT)

The public names stand in ``__init__.pyi``, which type checkers read,
too. They are loaded when first used, so that importing the package costs little more than importing PyTerrier.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__version__ = "0.1.0"

_ROOMS = (
    "datasets", "dense", "evaluation", "expansion", "forming", "lexical", "measures", "negatives", "reranking",
    "rewriting", "scale", "session", "topics", "training",
)  # fmt: skip

__getattr__, __dir__, _names = attach_stub(__name__, __file__)
# what ``import *`` brings: the names, and topics, the one room that is called by its name all the time
__all__ = ["__version__", "topics", *(name for name in _names if name not in _ROOMS)]
