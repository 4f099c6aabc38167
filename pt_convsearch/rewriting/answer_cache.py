"""Answers of models on disk, one JSON line each: what was paid for once is not asked for again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pt_convsearch._files import PathLike

logger = logging.getLogger(__name__)


def content_key(*parts: Any) -> str:
    """A hash of anything that JSON can say, in hexadecimal.

    >>> content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class AnswerCache:
    """A file of JSON lines that only grows: ``{"key": …, …}``; of several lines with one key the last counts.

    Several processes may share the file: each line is appended by one write. A line that a kill cut short is passed
    over and its question asked again.

    Args:
        path: the file; it and its folder are made when the first answer is kept.
        key: the name of the field that answers are found by.
    """

    def __init__(self, path: PathLike, *, key: str = "key") -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(
                f"{self.path} is a folder: a cache is one file, such as {self.path / 'cache.jsonl'}"
            )
        self.key = key
        self._known: dict[str, dict[str, Any]] = {}
        self._read_to = 0
        self._lock = threading.Lock()

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The entries of those keys that are known."""
        with self._lock:
            self._refresh()
            return {key: self._known[key] for key in keys if key in self._known}

    def put(self, entries: Iterable[dict[str, Any]]) -> None:
        """Keep entries; they are on disk when this returns."""
        entries = list(entries)
        lines = "".join(json.dumps(entry, ensure_ascii=True, sort_keys=True) + "\n" for entry in entries)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                size = os.fstat(handle).st_size
                if size:  # a line that a kill cut short must not swallow the next one
                    with self.path.open("rb") as reading:
                        reading.seek(size - 1)
                        lines = ("" if reading.read(1) == b"\n" else "\n") + lines
                data = lines.encode("ascii")
                while data:
                    data = data[os.write(handle, data) :]
            finally:
                os.close(handle)
            self._known.update((entry[self.key], entry) for entry in entries if self.key in entry)

    def _refresh(self) -> None:
        """Read what was appended since, by whomever; a last line without its end may still be in the making."""
        if not self.path.is_file():
            return
        if self.path.stat().st_size < self._read_to:  # another file by now
            self._known.clear()
            self._read_to = 0
        damaged = 0
        with self.path.open("rb") as handle:
            handle.seek(self._read_to)
            for line in handle:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line.decode("utf-8-sig"))
                    self._known[entry[self.key]] = entry
                except (ValueError, KeyError, TypeError):
                    damaged += 1
        if damaged:
            logger.warning(
                "%s: %d lines are damaged (a killed run leaves such); their answers are asked anew", self.path, damaged
            )

    def __len__(self) -> int:
        with self._lock:
            self._refresh()
            return len(self._known)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "key": self.key}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], key=state["key"])  # type: ignore[misc]
