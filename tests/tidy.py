"""What tests leave in the temporary folder is theirs alone: listed at the end by name of the test, and removed.

With CONVSEARCH_TIDY=1 a run in which something is left fails. Folders of processes that a test kills (the next such
process removes them), what libraries keep for themselves, and the folders of notebooks, into which their reader may
look, are no leftovers.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

_FINE = re.compile(
    r"pt_convsearch-[a-z]+\.held-.*|ray|torchinductor_.*|pymp-.*|hsperfdata_.*|(training|responses|reranking)-.*"
)
_BEFORE = os.environ.get("TMPDIR")
_LEFT: dict[str, str] = {}  # what appeared, and the test after which it was seen first


def pytest_configure(config: pytest.Config) -> None:
    # pytest's own folders stay where they are: it keeps those of the last runs
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # short: the sockets of Ray lie below
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="cs-")


def pytest_runtest_logfinish(nodeid: str) -> None:
    for name in _left():
        _LEFT.setdefault(name, nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if os.environ.get("CONVSEARCH_TIDY") and _left() and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = _left()
    if left:
        terminalreporter.section("left in the temporary folder", red=True)
    for name in left:
        terminalreporter.line(f"{name}, first seen after {_LEFT.get(name, 'the last test')}")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    tempfile.tempdir = None
    os.environ.pop("TMPDIR")
    if _BEFORE is not None:
        os.environ["TMPDIR"] = _BEFORE


def _left() -> list[str]:
    return sorted(path.name for path in Path(tempfile.gettempdir()).iterdir() if not _FINE.fullmatch(path.name))
