"""Results to results: cross-encoders and T5, passages of documents, PARADE, fusion, leaving out what was seen.

The names (`__init__.pyi`) are loaded when first used: PyTorch takes seconds to import, and fusion does not need it.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
