"""Lines of text out of any file: compression told by its content, UTF-8 checked line by line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pt_convsearch._files import PathLike

_COMPRESSED: tuple[tuple[re.Pattern[bytes], Any], ...] = (
    (re.compile(b"\x1f\x8b"), gzip.open),
    (re.compile(b"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.open),  # "BZh" alone may begin an id
    (re.compile(b"\xfd7zXZ\x00"), lzma.open),
)
#: of four bytes first: that of UTF-32 begins with that of UTF-16
_OTHER_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_SUFFIXES = (".gz", ".bz2", ".xz", ".zip", ".tgz")
#: what reading a cut or damaged file can raise
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)


@contextlib.contextmanager
def open_data(path: PathLike, *, member: str | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes as a stream, decompressed: gzip, bz2, xz and zip are told by their first bytes.

    Args:
        path: the file.
        member: which file of a zip; needed where it holds several.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the name says that it is compressed and the content does not, or a zip holds several files.
    """
    path = Path(path)
    with path.open("rb") as raw:
        start = raw.read(10)
        raw.seek(0)
        if start.startswith(b"PK\x03\x04"):
            try:
                archive = zipfile.ZipFile(raw)
            except zipfile.BadZipFile as error:
                raise ValueError(f"{path}, line 1: the file is cut or damaged ({error})") from error
            with archive, archive.open(_only_member(path, archive, member)) as stream:
                yield stream
            return
        for mark, opener in _COMPRESSED:
            if mark.match(start):
                with opener(raw, "rb") as stream:
                    yield stream
                return
        if path.suffix.lower() in _SUFFIXES:
            raise ValueError(f"{path}, line 1: not a {path.suffix} file (it begins with {start[:6]!r}): fetch it again")
        yield raw


def _only_member(path: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    files = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if member is not None:
        found = [name for name in files if name == member or name.endswith("/" + member)]
    else:
        found = files
    if len(found) != 1:
        held = ", ".join(files[:5])
        raise ValueError(f"{path} holds {len(files)} files ({held}): unpack it, and give the one that is meant")
    return found[0]


def iter_lines(path: PathLike) -> Iterator[tuple[int, str]]:
    """Yield (line number, line without its end) of a UTF-8 text file; a byte order mark is taken off.

    Raises:
        ValueError: no UTF-8, or a cut or damaged file; named by file and line.
    """
    with open_data(path) as stream:
        yield from decoded(stream, str(path))


def decoded(stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line without its end) of a stream of UTF-8 text; a byte order mark is taken off.

    Raises:
        ValueError: no UTF-8, or a cut or damaged stream; named by ``name`` and line.
    """
    number = 0
    try:
        for number, raw in enumerate(stream, 1):
            if number == 1:
                raw = _without_mark(name, raw)
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}, line {number}: not valid UTF-8 ({error}): save it as UTF-8") from error
            yield number, line.removesuffix("\n").removesuffix("\r")
    except DAMAGE as error:
        raise ValueError(f"{name}, after line {number}: the file is cut or damaged ({error})") from error


def read_text(path: PathLike) -> str:
    """The whole of a UTF-8 text file, "" of an empty one; a byte order mark is taken off.

    Raises:
        ValueError: no UTF-8, or a cut or damaged file; named by file and line.
    """
    try:
        with open_data(path) as stream:
            raw = stream.read()
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except DAMAGE as error:
        raise ValueError(f"{path}, line 1: the file is cut or damaged ({error})") from error
    raw = _without_mark(path, raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: not valid UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error


#: where the first four bytes are not NUL in UTF-16 and UTF-32 of ASCII, low byte first and last
_BARE = (b"\1\0\1\0", b"\0\1\0\1", b"\1\0\0\0", b"\0\0\0\1")


def _without_mark(path: PathLike, raw: bytes) -> bytes:
    for mark, encoding in _OTHER_MARKS:
        if raw.startswith(mark):
            raise ValueError(f"{path}, line 1: {encoding}, not UTF-8: save it as UTF-8")
    start = raw[:4]
    # two letters of ASCII, or one; a NUL alone may be the first letter of an id
    if bytes(map(bool, start)) in _BARE:
        raise ValueError(
            f"{path}, line 1: NUL bytes at the start ({start!r}): it looks like UTF-16 or UTF-32 without a byte order "
            "mark: save it as UTF-8"
        )
    return raw.removeprefix(b"\xef\xbb\xbf")
