"""The pages of the documentation: their examples run, and the reference has every room."""

from __future__ import annotations

import doctest
import importlib
import re
import tempfile
from pathlib import Path

import pytest

import pt_convsearch as cs

PAGES = Path(cs.__file__).parent / "pt_docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: Path) -> str:
    """The interactive examples of a page, one after another, on their lines."""
    text = page.read_text(encoding="utf-8")
    kept = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        for i, line in enumerate(block[1].splitlines()):
            kept[start + i] = line
    return "\n".join(kept) + "\n"


WITH_EXAMPLES = [page for page in sorted(PAGES.rglob("*.md")) if ">>>" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_examples_of_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # tempfile.mkdtemp() of an example
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    shown: list[str] = []
    runner.run(test, out=shown.append)
    assert not runner.failures, "".join(shown)


def test_every_room_with_public_names_is_in_the_reference() -> None:
    listed = (PAGES / "reference" / "index.rst").read_text(encoding="utf-8").split()
    for room in cs._ROOMS:
        assert room in listed
        assert f"automodule:: pt_convsearch.{room}\n" in (PAGES / "reference" / f"{room}.rst").read_text("utf-8")


NAME = re.compile(r"\bcs((?:\.[A-Za-z_]\w*)+)")


@pytest.mark.parametrize("page", sorted(PAGES.rglob("*.md")), ids=lambda page: page.stem)
def test_what_pages_name_is_there(page: Path) -> None:
    for match in NAME.finditer(page.read_text(encoding="utf-8")):
        value: object = cs
        for part in match[1][1:].split("."):
            if part == "NAME":
                break
            value = getattr(value, part)


def test_pages_show_the_results_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PAGES.parents[1] / "experiments"))
    script = importlib.import_module("update_readme")
    marked = [page for page in sorted(PAGES.rglob("*.md")) if "<!-- table: " in page.read_text(encoding="utf-8")]
    assert marked
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert script.renewed(text) == text, f"{page.name} differs from experiments/results: run update_readme.py"


def test_a_figure_within_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(PAGES.parents[1] / "experiments"))
    script = importlib.import_module("update_readme")
    monkeypatch.setattr(script, "HERE", tmp_path)
    (tmp_path / "results" / "x").mkdir(parents=True)
    rows = "system,group,measure,value,n\nBM25,t > 1,R@10,0.5217,1669\nDPR,t > 1,R@10,,1669\n"
    (tmp_path / "results" / "x" / "results.csv").write_text(rows, encoding="utf-8")
    (tmp_path / "results" / "x" / "results.json").write_text(
        '{"environment": {"commit": "0123456789ab"}}', encoding="utf-8"
    )
    cells = {
        "x; BM25; t > 1; R@10": "R@10 0.522 (n 1,669, 0123456)",
        "x; DPR; t > 1; R@10": "not run here",  # no value
        "x; no such row; t > 1; R@10": "not run here",
        "no such folder; BM25; t > 1; R@10": "not run here",
    }
    before = "".join(f"| <!-- state: {cell} -->old<!-- /state --> |" for cell in cells)
    after = "".join(f"| <!-- state: {cell} -->{shown}<!-- /state --> |" for cell, shown in cells.items())
    assert script.renewed(before) == after
