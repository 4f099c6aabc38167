"""The house: imports point one way, importing is light, the public names are there and documented."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pt_convsearch as cs

ROOT = Path(cs.__file__).parent
#: a room may import from those before it
ROOMS = (
    "topics", "measures", "forming", "lexical", "dense", "rewriting", "expansion", "reranking", "negatives",
    "training", "evaluation", "datasets", "scale", "session", "commands", "cli",
)  # fmt: skip
HEAVY = ("torch", "transformers", "sentence_transformers", "numba", "faiss", "ray", "matplotlib", "scipy")


def room_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> list[str]:
    """The rooms of this package that a file imports from, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == cs.__name__:
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{cs.__name__}."):
            found.append(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found += [alias.name.split(".")[1] for alias in node.names if alias.name.startswith(f"{cs.__name__}.")]
    return found


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports from {other}"
        for path in sorted(ROOT.rglob("*.py"))
        if room_of(path) in ROOMS
        for other in imported(path)
        if other in ROOMS and ROOMS.index(other) > ROOMS.index(room_of(path))
    ]
    assert wrong == []


def test_importing_loads_nothing_heavy_and_prints_nothing() -> None:
    code = f"import sys, pt_convsearch as cs; cs.X; cs.topics; print([m for m in {HEAVY!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert ran.stdout.strip() == "[]"
    assert ran.stderr == ""


@pytest.mark.parametrize("name", sorted(set(cs.__all__) - {"__version__"}))
def test_public_names_are_there_and_documented(name: str) -> None:
    value = getattr(cs, name)
    assert name in dir(cs)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        assert (inspect.getdoc(value) or "").strip()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        cs.no_such_name  # noqa: B018
