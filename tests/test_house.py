"""The house: imports point one way, importing is light, the public names are there and documented."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pt_convsearch as cs

ROOT = Path(cs.__file__).parent
PROJECT = ROOT.parent / "pyproject.toml"
HEAVY = ("torch", "transformers", "sentence_transformers", "numba", "faiss", "ray", "matplotlib", "scipy")


def test_imports_point_one_way() -> None:
    """The contract of import-linter in pyproject.toml: a room imports from those below it."""
    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [lint, "--no-cache", "--config", PROJECT], cwd=ROOT.parent, capture_output=True, text=True, encoding="utf-8"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_contract_knows_every_room() -> None:
    (contract,) = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    there = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set(contract["layers"]) == {name for name in there if not name.startswith("_")} | {"__main__"}


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


@pytest.mark.parametrize("room", sorted({*cs._ROOMS} - {"session"}))  # a room of one file
def test_names_of_rooms_are_there(room: str) -> None:
    package = importlib.import_module(f"{cs.__name__}.{room}")
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        cs.no_such_name  # noqa: B018
