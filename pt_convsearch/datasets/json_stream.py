"""One huge JSON list or object, item by item: a dialogue corpus of gigabytes never lies in memory as a whole."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch._lines import DAMAGE, open_data

_CHUNK = 1 << 20
_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER_END = re.compile(r"[-+.eE0-9]*")
#: an error this near to the end of what was read may only mean that more has to be read
_MARGIN = 16
_WANT_MORE = ("Unterminated string", "Invalid control character")


def iter_json_items(path: PathLike) -> Iterator[tuple[int, str | None, Any]]:
    """Yield (line number, key, value) for each item of the list (key None) or object that a JSON file is.

    Only one item and a piece of the file are held at a time. Compressed files are read as a stream.

    Raises:
        ValueError: no JSON list or object, a cut or damaged file, no UTF-8, a key that stands twice in the outer
            object; named by file and line.
    """
    text = _Text(path)
    opening = text.next_character()
    if opening not in ("[", "{"):
        raise text.error(f"not a JSON list or object (it begins with {opening!r})" if opening else "the file is empty")
    closing = "]" if opening == "[" else "}"
    text.at += 1
    keys: set[str] = set()
    first = True
    while True:
        character = text.next_character()
        if character == closing and first:
            break
        line, key = text.line(), None
        if opening == "{":
            if character != '"':
                raise text.error("not valid JSON (a key in double quotes is due)")
            key = text.value()
            if key in keys:
                raise ValueError(f"{path}, line {line}: not valid JSON (the key {key!r} stands twice in one object)")
            keys.add(key)
            if text.next_character() != ":":
                raise text.error("not valid JSON (a colon is due after a key)")
            text.at += 1
            text.next_character()
        yield line, key, text.value()
        first = False
        character = text.next_character()
        if character == closing:
            break
        if character != ",":
            raise text.error(f"not valid JSON ({'the file is cut' if not character else 'a comma is due'})")
        text.at += 1
    text.at += 1
    if text.next_character():
        raise text.error("not valid JSON (text after the end)")


class _Text:
    """What was read of the file and not used up, with a place in it."""

    def __init__(self, path: PathLike):
        self.path = path
        # lines: the number of the line that the place `counted` is in
        self.buffer, self.at, self.lines, self.counted = "", 0, 1, 0
        self.pieces = self._read()
        self.ended = False

    def _read(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            with open_data(self.path) as stream:
                size = _CHUNK
                while raw := stream.read(size):
                    yield decoder.decode(raw)
                    # a long item is tried again with twice as much text each time: linear in all
                    size = max(_CHUNK, len(self.buffer) - self.at)
                yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            line = self.line() + self.buffer.count("\n", self.at) + error.object.count(b"\n", 0, error.start)
            raise ValueError(f"{self.path}, line {line}: not valid UTF-8 ({error.reason})") from error
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except DAMAGE as error:
            line = self.line() + self.buffer.count("\n", self.at)
            raise ValueError(f"{self.path}, after line {line}: the file is cut or damaged ({error})") from error

    def more(self) -> bool:
        """Read a further piece; False at the end of the file."""
        if self.ended:
            return False
        if self.at:
            self.line()
            self.buffer, self.at, self.counted = self.buffer[self.at :], 0, 0
        piece = next(self.pieces, None)
        if piece is None:
            self.ended = True
            return False
        self.buffer += piece
        return True

    def next_character(self) -> str:
        """The next character that is not blank, "" at the end of the file; the place is put on it."""
        while True:
            self.at = _BLANK.match(self.buffer, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self.more():
                return ""

    def value(self) -> Any:
        """The JSON value at the place, which is moved behind it."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith(_WANT_MORE) or error.pos >= len(self.buffer) - _MARGIN
                if cut and self.more():
                    continue
                line = self.line() + self.buffer.count("\n", self.at, error.pos)
                what = "the file is cut" if cut and self.ended and error.pos >= len(self.buffer) - 1 else error.msg
                raise ValueError(f"{self.path}, line {line}: not valid JSON ({what})") from error
            except RecursionError as error:
                raise self.error("not valid JSON (nested too deeply)") from error
            if _NUMBER_END.fullmatch(self.buffer, end) and self.more():
                continue  # a number may go on in the next piece
            self.at = end
            return value

    def line(self) -> int:
        self.lines += self.buffer.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.lines

    def error(self, what: str) -> ValueError:
        return ValueError(f"{self.path}, line {self.line()}: {what}")


_DECODER = json.JSONDecoder()
