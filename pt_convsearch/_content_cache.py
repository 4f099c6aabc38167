"""What a model made of texts, by their content, on disk: what was computed once is not computed again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ._files import PathLike

_LOOKUP = 500
Texts = tuple[str, ...]


class ContentCache:
    """An SQLite file of values (whatever JSON can say) by texts.

    A kill loses at most what was being computed, and several processes may share the file.

    Args:
        path: the file; it and its folder are made where they are missing.
        settings: what values depend on besides the texts: the model, its lengths, its precision. Values of other
            settings live in the same file and are never given back.
        what: the values, for the file's table and for messages: "scores", "expansions".

    Raises:
        IsADirectoryError: the path is a folder.
        ValueError: the file is something else, or damaged.
    """

    def __init__(self, path: PathLike, settings: str, *, what: str) -> None:
        self.path = Path(path)
        self.settings = settings
        self.what = what
        if self.path.is_dir():
            raise IsADirectoryError(
                f"{self.path} is a folder: a cache is one file, such as {self.path / f'{what}.sqlite'}"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {what} (settings TEXT, content BLOB, value TEXT, "
                "PRIMARY KEY (settings, content)) WITHOUT ROWID"
            )

    def find(self, rows: Sequence[Texts]) -> dict[Texts, Any]:
        """Those values that are known."""
        by_key = {_key(row): row for row in rows}
        keys = list(by_key)
        found: dict[Texts, Any] = {}
        with self._open() as connection:
            for start in range(0, len(keys), _LOOKUP):
                part = keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                query = f"SELECT content, value FROM {self.what} WHERE settings = ? AND content IN ({marks})"
                known = connection.execute(query, [self.settings, *part])
                found.update((by_key[key], json.loads(value)) for key, value in known)
        return found

    def add(self, values: Iterable[tuple[Texts, Any]]) -> None:
        """Keep values; they are on disk when this returns."""
        rows = [(self.settings, _key(texts), json.dumps(value, ensure_ascii=False)) for texts, value in values]
        with self._open() as connection:
            connection.executemany(f"INSERT OR REPLACE INTO {self.what} VALUES (?, ?, ?)", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                yield connection
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is no cache of {self.what}, or damaged ({error}): give another file, or remove it"
            ) from error


def _key(texts: Texts) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()
