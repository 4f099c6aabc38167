"""The notebooks as they are read on the web: with their outputs, from one run, and nothing of the machine in them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CODE = [
    "import os, sys, tempfile\nprint('bar', file=sys.stderr)\nprint(os.path.isdir(os.environ['CONVSEARCH_SHARED']))",
    "open(tempfile.mkdtemp() + '/index', 'w').close()\nopen('beside', 'w').close()\nos.path.abspath('beside')",
]


@pytest.fixture
def script() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "experiments"))
    yield importlib.import_module("run_notebooks")
    sys.path.remove(str(ROOT / "experiments"))
    for name in ("run_notebooks", "_common"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_of_one_run_and_hold_nothing_of_the_machine(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("text/html" in output.get("data", {}) for output in outputs)  # a table
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    texts = [
        json.dumps(
            [output.get("text"), [value for kind, value in output.get("data", {}).items() if "image" not in kind]]
        )
        for output in outputs
    ]
    assert not [text for text in texts if re.search(r"/(tmp|root|home|work)/|convsearch-\w{8}/", text)]
    assert re.search(r"run_notebooks.py` at commit [0-9a-f]{12}, ", "".join(notebook["cells"][-1]["source"]))


def test_a_run_keeps_what_is_shown_and_leaves_nothing(script: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CODE])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(made, path)
    for _ in range(2):  # the cell that says where the outputs come from is written once
        script.main([str(path)])
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [cell["cell_type"] for cell in cells] == ["code", "code", "markdown"]
        assert [[output.get("text") for output in cell["outputs"]] for cell in cells[:1]] == [[["False\n"]]]
        assert cells[1]["outputs"][0]["data"]["text/plain"] == ["'beside'"]
    assert [file.name for file in tmp_path.iterdir()] == ["one.ipynb"]


def test_a_notebook_that_fails_stays_as_it_was(script: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        script.main([str(path)])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bad.ipynb"]
