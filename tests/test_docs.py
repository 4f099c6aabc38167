"""The pages of the documentation: their examples run, and the reference has every room."""

from __future__ import annotations

import doctest
import re
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
def test_examples_of_pages(page: Path) -> None:
    test = doctest.DocTestParser().get_doctest(examples(page), {}, page.name, str(page), 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    shown: list[str] = []
    runner.run(test, out=shown.append)
    assert not runner.failures, "".join(shown)


def test_every_room_with_public_names_is_in_the_reference() -> None:
    listed = (PAGES / "reference" / "index.rst").read_text(encoding="utf-8").split()
    for room in (*cs._ROOMS, "topics", "measures", "scale"):
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
