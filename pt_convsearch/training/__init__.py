"""Trainers: a bi-encoder from a mined set, with false negatives masked, large batches in little memory, exact resuming.

The names (`__init__.pyi`) are loaded when first used: PyTorch and sentence-transformers take seconds to import.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
