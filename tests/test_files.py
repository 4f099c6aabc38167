"""How files are written: whole or not at all, here and nowhere else, by one at a time."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import pt_convsearch as cs
from pt_convsearch import _files


def folder(path: Path, name: str) -> Path:
    path.mkdir()
    for number in range(3):
        (path / f"{name}-{number}").write_text(name, encoding="utf-8")
    return path


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_kill_leaves_one_folder_whole(tmp_path: Path, moment: int) -> None:
    """Killed at each of the two renames and in the middle of the removal: the old one or the new one, or none, never
    a part; and what is left beside it goes at the next try."""
    folder(tmp_path / "x", "old")
    code = f"""
import os, shutil, sys
from pathlib import Path
from pt_convsearch import _files
left = [{moment}]
def killing(real):
    def act(*arguments, **options):
        left[0] -= 1
        if not left[0]:
            if real is shutil.rmtree:
                next(Path(arguments[0]).iterdir()).unlink()
            os.kill(os.getpid(), 9)
        return real(*arguments, **options)
    return act
with _files.written({str(tmp_path / "x")!r}) as new:
    new.mkdir()
    for number in range(3):
        (new / f"new-{{number}}").touch()
    Path.replace, shutil.rmtree = killing(Path.replace), killing(shutil.rmtree)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    names = sorted(path.name for path in (tmp_path / "x").iterdir()) if (tmp_path / "x").exists() else None
    old, new = [[f"{name}-{number}" for number in range(3)] for name in ("old", "new")]
    assert names == {1: old, 2: None, 3: new}[moment]
    _files.clear_unfinished(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ([] if names is None else ["x"])


def test_a_folder_takes_the_place_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("file", encoding="utf-8")
    for name in ("one", "two"):
        with _files.written(tmp_path / "x") as temporary:
            folder(temporary, name)
            (tmp_path / "x").unlink() if (tmp_path / "x").is_file() else None
        assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [f"{name}-{number}" for number in range(3)]
    assert os.listdir(tmp_path) == ["x"]  # noqa: PTH208


@pytest.mark.parametrize("address", ["s3://b/x", Path("s3://b/x"), "gs://b", "memory://x", Path("/a/hdfs:/b")])
def test_an_address_is_no_folder(address: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (_files.written, _files.alone):
        with pytest.raises(ValueError, match=r"is an address, and this is .* folders only.*fsspec"), write(address):
            pass
    assert not list(tmp_path.iterdir())


def test_indexes_and_topics_refuse_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    docs = [{"docno": "d", "text": "x"}]
    topics = cs.topics.from_messages([[{"role": "user", "content": "x"}]])
    for write in (
        lambda: cs.BM25Index("s3://b/x").index(docs),
        lambda: cs.DenseIndex("s3://b/x").index([{"docno": "d", "doc_vec": [1.0]}]),
        lambda: cs.topics.write(topics, "s3://b/x.jsonl"),
    ):
        with pytest.raises(ValueError, match="is an address"):
            write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["x", "C:/x", "a:b/c", "/a b/c:d/e"])
def test_other_names_are_paths(path: str) -> None:
    assert _files.no_address(path) == Path(path)


def test_the_folder_of_another_run_is_not_written(tmp_path: Path) -> None:
    told = pytest.raises(RuntimeError, match="is being written by another run")
    with _files.alone(tmp_path / "work"), told, _files.alone(tmp_path / "work"):
        pass
    with _files.alone(tmp_path / "work"):
        pass
    shutil.rmtree(tmp_path / "work")


HOLD = """
import os, signal, sys, tempfile
from pt_convsearch import _files
tempfile.tempdir = sys.argv[1]
kept = _files.Scratch("some")
print(kept.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "killed" else sys.stdin.read()
"""


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def started(how: str) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", HOLD, str(tmp_path), how]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    killed, left = started("killed")
    killed.wait()
    living, used = started("lives")
    (tmp_path / "some-others").mkdir()
    for folder in (left, used):
        (folder / "file").touch()
    own = _files.Scratch("some")
    assert left.is_dir()  # a minute old at least: one that was just made may not be locked yet
    for folder in (left, used):
        os.utime(folder, (0, 0))
    other = _files.Scratch("some")
    assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted([used, own.path, other.path, tmp_path / "some-others"])
    living.communicate("")
    del own, other
    gc.collect()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "some-others"]
