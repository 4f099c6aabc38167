"""What the tests of an experiment share: the script, loaded as it is run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dl_hard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("experiment_dl_hard", ROOT / "experiments" / "dl_hard.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "experiments"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "experiments"))
    return module
