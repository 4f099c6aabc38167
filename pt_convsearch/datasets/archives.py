"""Archives: members read or written out one by one, never a path outside the folder that was asked for."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from pt_convsearch._files import written
from pt_convsearch._lines import DAMAGE


def members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, stream) of each file in a zip or tar (plain, gzip, bz2, xz), in its order, as a stream.

    Raises:
        ValueError: no archive, a cut or damaged one, or a member whose path leads out of the archive.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for info in opened.infolist():
                    check_member(archive, info.filename)
                    if (info.external_attr >> 16) & 0o170000 == 0o120000:
                        raise ValueError(f"{archive}: member {info.filename!r} is a link: not read")
                    if not info.is_dir():
                        with opened.open(info) as stream:
                            yield info.filename, stream
            return
        with tarfile.open(archive, "r|*") as tar:
            for item in tar:
                check_member(archive, item.name)
                if item.issym() or item.islnk() or item.isdev():
                    raise ValueError(f"{archive}: member {item.name!r} is a link or a device: not read")
                stream_or_none = tar.extractfile(item) if item.isfile() else None
                if stream_or_none is not None:
                    yield item.name, stream_or_none
    except (FileNotFoundError, PermissionError):
        raise
    except (*DAMAGE, tarfile.TarError) as error:
        raise ValueError(f"{archive}: not an archive, or cut or damaged ({error}): fetch it again") from error


def check_member(archive: Path, name: str) -> None:
    """Refuse a member whose path is absolute or climbs out.

    Raises:
        ValueError: it does.
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if not name or "\x00" in name or posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise ValueError(f"{archive}: member {name!r} leads out of the archive: not unpacked")


def unpack(archive: Path, target: Path, *, member: str) -> Path:
    """Write one member out as ``target``, by way of a temporary name.

    Args:
        archive: a zip or tar.
        target: the file to write.
        member: its name in the archive, or the end of it after a ``/``.

    Raises:
        ValueError: no such member, several, or a damaged archive.
    """
    found = 0
    with contextlib.ExitStack() as stack:
        temporary: Path | None = None
        for name, stream in members(archive):
            if name == member or name.endswith("/" + member):
                found += 1
                if found > 1:
                    raise ValueError(f"{archive}: several members are called {member!r}: unpack it by hand")
                temporary = stack.enter_context(written(target))
                with temporary.open("wb") as handle:
                    shutil.copyfileobj(stream, handle, 1 << 20)
        if temporary is None:
            raise ValueError(f"{archive}: no member is called {member!r}")
    return target


def unpack_all(archive: Path, folder: Path) -> Path:
    """Write every member out below ``folder``, which appears only when all are there.

    Raises:
        ValueError: a damaged archive, or a member whose path leads out.
    """
    with written(folder) as temporary:
        temporary.mkdir(parents=True)
        for name, stream in members(archive):
            place = temporary / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as handle:
                shutil.copyfileobj(stream, handle, 1 << 20)
    return folder
