"""The wheel: small, complete, and it works from where it is installed, not only from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pt_convsearch as cs

ROOT = Path(cs.__file__).parents[1]
pytest.importorskip("hatchling", reason="pip install 'pt-convsearch[dev]'")
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not a checkout")

#: what a user does first, from an installed package
SMOKE = """
import importlib.metadata, sys
from pathlib import Path
import pandas as pd
import pt_convsearch as cs

site = Path(sys.argv[1]).resolve()
assert Path(cs.__file__).resolve().is_relative_to(site), cs.__file__
assert importlib.metadata.version("pt-convsearch") == cs.__version__
topics = cs.topics.from_messages([{"id": "c1", "messages": [
    {"role": "user", "content": "Who wrote Dune?"}, {"role": "assistant", "content": "Frank Herbert."},
    {"role": "user", "content": "When?"}]}])
index = cs.BM25Index("passages.bm25").index([
    {"docno": "d1", "text": "Frank Herbert wrote Dune."}, {"docno": "d2", "text": "Foundation is by Isaac Asimov."}])
found = (cs.form(cs.X) >> index.bm25(num_results=10))(topics)
assert found["docno"].tolist() == ["d1", "d1"], found
import pyterrier as pt
assert len(pt.get_dataset("convsearch:testbed").get_topics()) > 0       # through the entry point
assert pt.Artifact.load("passages.bm25") == index                       # and through that of artifacts
print("all is well")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    (built,) = out.glob("*.whl")
    return built


def test_one_version_everywhere() -> None:
    assert f"\nversion: {cs.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changes.partition("\n## ")[2].split()[0] == cs.__version__


def test_what_is_in_it(wheel: Path) -> None:
    assert wheel.name == f"pt_convsearch-{cs.__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 5_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"pt_convsearch/py.typed", "pt_convsearch/pt_docs/index.rst", "pt_convsearch/cli.py"} <= names
    # every file of the package that git knows, and no other
    known = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "pt_convsearch"],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    if known.returncode == 0:
        assert {name for name in names if name.startswith("pt_convsearch/")} == set(known.stdout.split())


def test_it_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    (tmp_path / "smoke.py").write_text(SMOKE, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "smoke.py", str(site)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "all is well"
    help_ = subprocess.run(
        [sys.executable, "-m", "pt_convsearch", "--version"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert help_.stdout.strip() == f"pt_convsearch {cs.__version__}"
