"""Writing files: UTF-8 always named, nothing half-written left behind, compression told by the name."""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import hashlib
import io
import json
import logging
import lzma
import os
import re
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

PathLike = str | os.PathLike[str]

logger = logging.getLogger(__name__)
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: the address of another file system, also one that has gone through Path; drives of Windows have one letter
_ADDRESS = re.compile(r"(?:^|/)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


@contextlib.contextmanager
def written(path: PathLike) -> Iterator[Path]:
    """Give a temporary name beside ``path``; rename it to ``path`` when the block ends well, remove it when it fails.

    The block may create a file or a directory under that name. A kill leaves ``path`` as it was.
    """
    path = no_address(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        put(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def check_folder(path: PathLike, option: str) -> None:
    """Said before the work begins: ``path`` is a folder or can become one.

    Raises:
        ValueError: it is a file, or lies below one.
    """
    path = Path(path)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"{option} {path}: {there} is a file: name a folder")


def no_address(path: PathLike) -> Path:
    """The path of a folder or file here.

    Raises:
        ValueError: it is the address of another file system, which would become a folder named ``s3:`` here.
    """
    found = _ADDRESS.match(os.fspath(path)) or _ADDRESS.search(Path(path).as_posix())
    if found is not None:
        raise ValueError(
            f"{path} is an address, and this is written to folders only: give a folder (a mounted one will do) and "
            f"copy it there, by fsspec.filesystem({found['scheme']!r}).put(folder, address, recursive=True). Addresses "
            "are taken by cs.scale.ShardedIndex, cs.scale.encode, and as a checkpoint by cs.scale.on_ray"
        )
    return Path(path)


def put(finished: PathLike, path: PathLike) -> None:
    """Rename to ``path`` in place of what is there; a folder is renamed away before it is removed.

    So a kill never leaves half a folder under ``path``: what it leaves beside it, :func:`clear_unfinished` removes.
    """
    path = Path(path)
    if not path.is_dir() or path.is_symlink():
        Path(finished).replace(path)
        return
    aside = path.with_name(f"{path.name}.tmp-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    path.replace(aside)
    Path(finished).replace(path)
    shutil.rmtree(aside)


def check_free(path: PathLike, holds: Callable[[Path], bool], what: str) -> None:
    """Refuse to write where something lies that is not ours to replace, whatever ``overwrite`` says.

    Args:
        path: the folder to write.
        holds: whether a folder holds what may be replaced.
        what: what that is called.

    Raises:
        FileExistsError: a file is there, or a folder with other things; an empty folder is free.
    """
    path = Path(path)
    if path.is_dir() and (not any(path.iterdir()) or holds(path)):
        return
    if path.exists():
        raise FileExistsError(f"{path} exists and is no {what}: it is not overwritten, choose another folder")


@contextlib.contextmanager
def alone(folder: PathLike) -> Iterator[None]:
    """Hold a working folder, made where it is missing: two that write there at once would spoil each other's files.

    A process that is killed lets go of it.

    Raises:
        RuntimeError: somebody else holds it.
    """
    folder = no_address(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder} is being written by another run: wait for it, or give another path") from None
        except OSError:  # a file system without locks
            logger.debug("%s cannot be locked", folder)
        yield
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # also where a forked worker still has the handle
    finally:
        os.close(handle)


def clear(folder: PathLike) -> None:
    """Remove everything in a folder, not the folder, which may be held (see :func:`alone`)."""
    for path in Path(folder).iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def clear_unfinished(path: PathLike) -> list[Path]:
    """Remove what killed processes left of ``path`` (see :func:`written`); those of live processes stay.

    Returns:
        what was removed; a warning in the log names it, so that a user knows that the work starts anew.
    """
    path = Path(path)
    removed = []
    for left in sorted(path.parent.glob(f"{glob.escape(path.name)}.tmp-*-*")):
        process = left.name[len(path.name) + 5 :].partition("-")[0]
        if not process.isdigit() or _alive(int(process)):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
        logger.warning("%s was left by a run that did not finish: removed, %s is made anew", left, path.name)
        removed.append(left)
    return removed


def _alive(process: int) -> bool:
    if os.name == "nt":  # there, signal 0 is no question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's process, or a system that does not tell
        return True
    return True


class Scratch:
    """A temporary folder that goes with this object, or with the process; not with a copy in another process.

    What a killed process left is removed by the next one that asks for a folder of this name: a folder that is in use
    is locked, which ends with the process.

    Args:
        name: what the folder's name begins with.
    """

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{name}.held-"))
        handle = _lock(self.path)
        weakref.finalize(self, _remove, self.path, handle, os.getpid())
        for left in self.path.parent.glob(f"{glob.escape(name)}.held-*"):
            with contextlib.suppress(OSError):
                # one that is younger may be about to be locked
                if time.time() - left.stat().st_mtime > 60 and (found := _lock(left)) is not None:
                    _remove(left, found, os.getpid())


def _lock(folder: Path) -> int | None:
    """The handle that locks a folder until it is closed; None where another has it, or locks are not known."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove(folder: Path, handle: int | None, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def writing_text(path: PathLike) -> Iterator[IO[str]]:
    """Open ``path`` for writing UTF-8 text with \\n line ends (.gz by its name), by way of a temporary name."""
    path = Path(path)
    with written(path) as temporary:
        opener = _OPENERS.get(path.suffix.lower())
        raw = temporary.open("wb") if opener is None else opener(temporary, "wb")
        with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as handle:
            yield handle


def write_json(path: PathLike, value: Any) -> None:
    """Write ``value`` as readable JSON, by way of a temporary name."""
    with writing_text(path) as handle:
        json.dump(value, handle, ensure_ascii=False, indent=2)
        handle.write("\n")


def json_or_none(path: PathLike) -> Any:
    """What a JSON file holds; None where it is missing or damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_settings(path: PathLike) -> dict[str, Any]:
    """What a training left beside the weights; empty where there is no such file.

    Raises:
        ValueError: the file is damaged: lengths and parts that a model was trained with are not guessed.
    """
    path = Path(path)
    if not path.is_file():
        return {}
    settings = json_or_none(path)
    if not isinstance(settings, dict):
        raise ValueError(
            f"{path} is damaged, it holds no JSON object: copy the model anew, or delete it (defaults then)"
        )
    return settings


def sha256(path: PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
