"""Conversational query rewriting: from q_t and its history to a question that stands alone.

Sequence-to-sequence and causal models, large language models behind an endpoint, expansion by the collection's
statistics, term classification. Gold rewrites are ``cs.form(cs.REWRITE)``.

The names (`__init__.pyi`) are loaded when first used: those with a model of their own bring PyTorch, which is slow to
import.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
