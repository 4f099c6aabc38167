"""Examples in docstrings run in a folder of their own, on the desk that they find there (``tests/desk.py``)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.doctest import DoctestItem

from tests.desk import Desk

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(autouse=True)
def _on_the_desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    item: Any = request.node
    if not isinstance(item, DoctestItem):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("example")
        patch.chdir(place)
        patch.setattr(tempfile, "tempdir", str(place))  # tempfile.mkdtemp() of an example
        sources = [example.source for example in item.dtest.examples if not example.options]
        item.dtest.globs.update(request.getfixturevalue("desk").set_for(sources, place))
        yield
