"""Optional dependencies: one line that says what is missing, for which step, and how to get it."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, *, step: str, install: str) -> ModuleType:
    """Import ``module`` or say what to install.

    Args:
        module: the module to import, e.g. ``"pyterrier_pisa"``.
        step: what needs it, for the message, e.g. ``"the PISA engine"``.
        install: what to give to ``pip install``, e.g. ``"pt-convsearch[pisa]"``.

    Raises:
        ImportError: if the module cannot be imported; the message names the step and the remedy.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{step} needs {module!r} ({error}): pip install '{install}'") from error
