"""Folders, local or at any address that fsspec knows (s3://, gs://, memory://)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from .._files import PathLike, Scratch, alone, clear, clear_unfinished, sha256, written

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})


@contextlib.contextmanager
def room_for(what: str) -> Iterator[None]:
    """Tell what found no room: the system's own error names neither the file nor what becomes of the rest.

    Raises:
        OSError: a full disk, a quota, a limit, or a file system that cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        why = f"{error.strerror}: {what} could not be written; what was finished before it is kept"
        raise OSError(error.errno, f"{why}: make room, and the same call goes on from there") from error


def is_remote(address: PathLike) -> bool:
    """Is it the address of another file system?

    >>> is_remote("s3://bucket/passages"), is_remote("C:/passages"), is_remote("file:///tmp/x")
    (True, False, False)
    """
    text = os.fspath(address)
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme not in ("file", "local")


class Storage:
    """A folder. Picklable: a worker opens it again.

    Args:
        address: a path, or an address of fsspec; the folder need not exist.
        options: what fsspec's file system takes (keys, endpoint); None: what its environment says.
        cache: where folders of another file system are kept once they were fetched; None:
            ~/.cache/pt_convsearch/shards.
    """

    def __init__(self, address: PathLike, options: dict[str, Any] | None = None, cache: PathLike | None = None) -> None:
        text = os.fspath(address)
        self.options = dict(options or {})
        self.remote = is_remote(text)
        self.address = (
            text.rstrip("/") if self.remote else str(Path(text.removeprefix("file://")).expanduser().absolute())
        )
        self.cache = Path(cache) if cache is not None else Path.home() / ".cache" / "pt_convsearch" / "shards"
        self._fs: Any = None

    @property
    def path(self) -> Path:
        """The folder, of a local one."""
        return Path(self.address)

    def child(self, name: str) -> Storage:
        """A folder below."""
        return Storage(self._at(name), self.options, self.cache)

    def beside(self, suffix: str) -> Storage:
        """The folder of the same name with something behind it."""
        return Storage(self.address + suffix, self.options, self.cache)

    def _at(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    @property
    def fs(self) -> Any:
        """fsspec's file system."""
        if self._fs is None:
            import fsspec

            try:
                self._fs = fsspec.core.url_to_fs(self.address, **{"use_listings_cache": False, **self.options})[0]
            except ImportError as error:
                raise ImportError(
                    f"{self.address}: {error} (or pip install 'fsspec[{self.address.partition(':')[0]}]')"
                ) from error
        return self._fs

    def exists(self, name: str = "") -> bool:
        return bool(self.fs.exists(self._at(name))) if self.remote else (self.path / name).exists()

    def names(self, name: str = "") -> list[str]:
        """What lies in the folder, sorted; temporary names are left out."""
        if self.remote:
            if not self.exists(name):
                return []
            found = [entry.rstrip("/").rpartition("/")[2] for entry in self.fs.ls(self._at(name), detail=False)]
        else:
            folder = self.path / name
            found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(entry for entry in found if entry and ".tmp-" not in entry)

    def size(self, name: str) -> int:
        return int(self.fs.size(self._at(name))) if self.remote else (self.path / name).stat().st_size

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self._at(name))) if self.remote else (self.path / name).read_bytes()

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Several files, fetched at the same time where the file system can."""
        if not self.remote or not names:
            return [self.read(name) for name in names]
        found = self.fs.cat([self._at(name) for name in names])
        by_name = {key.rstrip("/").rpartition("/")[2]: value for key, value in found.items()}
        return [bytes(by_name[name.rpartition("/")[2]]) for name in names]

    def open(self, name: str, mode: Literal["rb", "wb"]) -> IO[bytes]:
        """A file as a stream of bytes."""
        if self.remote:
            stream: IO[bytes] = self.fs.open(self._at(name), mode)
            return stream
        path = self.path / name
        if mode == "wb":
            path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode)

    def write(self, name: str, content: bytes) -> None:
        """Write a file in one step: it is there whole, or as it was."""
        if self.remote:
            self.fs.pipe_file(self._at(name), content)
            return
        with room_for(f"{self.address}/{name}"), written(self.path / name) as temporary:
            temporary.write_bytes(content)

    def remove(self, name: str = "") -> None:
        """Remove a file or a folder, if it is there."""
        if self.remote:
            with contextlib.suppress(FileNotFoundError):
                self.fs.rm(self._at(name), recursive=True)
            return
        path = self.path / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what killed processes left half-written in a local folder; live ones may be at work there."""
        if not self.remote:
            for left in self.path.glob("*.tmp-*-*"):
                clear_unfinished(self.path / left.name.rpartition(".tmp-")[0])

    def clear(self) -> None:
        """Remove all that is in the folder; a local one stays, as it may be held."""
        if self.remote:
            self.remove()
        elif self.path.is_dir():
            clear(self.path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A local folder, for this process alone (see :func:`pt_convsearch._files.alone`); what a killed one left
        there half-written goes."""
        if self.remote:
            yield
            return
        with alone(self.path):
            for path in self.path.rglob("*.tmp-*-*"):
                path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
            yield

    @contextlib.contextmanager
    def making(self, name: str) -> Iterator[Path]:
        """A path at which a folder may be made; it lies under ``name`` when the block ends well."""
        if not self.remote:
            with room_for(f"{self.address}/{name}"):
                self.path.mkdir(parents=True, exist_ok=True)
                yield self.path / name
            return
        scratch = Scratch("pt_convsearch-shard")
        folder = scratch.path / name
        yield folder
        self.remove(name)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.fs.put_file(str(path), self._at(f"{name}/{path.relative_to(folder).as_posix()}"))

    def local(self, name: str, files: dict[str, dict[str, Any]], *, build: str) -> Path:
        """A folder below as a local one: itself, or a copy in the cache, each file compared with its checksum.

        Args:
            name: the folder.
            files: its files, with their sizes and checksums.
            build: what tells this state of the folder from earlier ones.

        Raises:
            ValueError: a file is missing, cut or altered; the message names the folder and the file.
        """
        if not self.remote:
            check_sizes(self.path / name, files, f"{self.address}/{name}")
            return self.path / name
        # the checksums too: another encoder makes other vectors of the same passages, in files of the same size
        content = json.dumps(files, sort_keys=True)
        key = hashlib.sha256(f"{self.address}\n{build}\n{content}".encode()).hexdigest()[:16]
        folder = self.cache / key / name
        if folder.is_dir():
            try:
                check_sizes(folder, files, str(folder))
                return folder
            except ValueError:
                shutil.rmtree(folder, ignore_errors=True)
        temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        try:
            for file, known in files.items():
                target = temporary / file
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self.fs.get_file(self._at(f"{name}/{file}"), str(target))
                except FileNotFoundError as error:
                    raise damaged(f"{self.address}/{name}", f"{file} is missing") from error
                if sha256(target) != known["sha256"]:
                    raise damaged(f"{self.address}/{name}", f"{file} is not what was written (its checksum differs)")
            try:
                temporary.rename(folder)
            except OSError:  # another process was faster
                check_sizes(folder, files, str(folder))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    def __repr__(self) -> str:
        return f"Storage({self.address!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and checksum of each file below, caches aside."""
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.parent.name != "scores"
        and not path.name.startswith("faiss-")
        and ".tmp-" not in path.name
    }


def check_sizes(folder: Path, files: dict[str, dict[str, Any]], what: str) -> None:
    """Raises ValueError where a file is missing or has another size than written down."""
    for name, known in files.items():
        path = folder / name
        if not path.is_file():
            raise damaged(what, f"{name} is missing")
        if path.stat().st_size != known["bytes"]:
            raise damaged(what, f"{name} holds {path.stat().st_size} bytes, not {known['bytes']}")


def damaged(what: str, why: str) -> ValueError:
    return ValueError(
        f"shard {what} is damaged: {why}. Restore the file from a copy, or build the index anew with overwrite=True"
    )
