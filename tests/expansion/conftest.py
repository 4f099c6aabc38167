from __future__ import annotations

import pytest

from tests.tiny_seq2seq import tiny_t5

WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny T5 that knows w0 … w59."""
    return tiny_t5(tmp_path_factory.mktemp("t5"), WORDS)
