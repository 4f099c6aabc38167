"""Collections by name: ``pt.get_dataset("convsearch:NAME")`` or ``cs.dataset(NAME, **options)``."""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
