"""Scores of re-rankers by content, on disk: what was scored once is not scored again."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pt_convsearch._files import PathLike

_LOOKUP = 500
Texts = tuple[str, ...]


class ScoreCache:
    """An SQLite file of scores. A kill loses at most what was being scored, and several processes may share the file.

    Args:
        path: the file; it and its folder are made where they are missing.
        settings: what scores depend on besides the texts: the model, its lengths, its precision. Scores of other
            settings live in the same file and are never given back.

    Raises:
        ValueError: the file is something else, or damaged.
    """

    def __init__(self, path: PathLike, settings: str) -> None:
        self.path = Path(path)
        self.settings = settings
        if self.path.is_dir():
            raise IsADirectoryError(
                f"{self.path} is a folder: a cache is one file, such as {self.path / 'scores.sqlite'}"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS scores (settings TEXT, texts BLOB, score REAL, "
                "PRIMARY KEY (settings, texts)) WITHOUT ROWID"
            )

    def find(self, rows: Sequence[Texts]) -> dict[Texts, float]:
        """Those scores that are known."""
        by_key = {_key(row): row for row in rows}
        keys = list(by_key)
        found: dict[Texts, float] = {}
        with self._open() as connection:
            for start in range(0, len(keys), _LOOKUP):
                part = keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                query = f"SELECT texts, score FROM scores WHERE settings = ? AND texts IN ({marks})"
                found.update((by_key[key], score) for key, score in connection.execute(query, [self.settings, *part]))
        return found

    def add(self, scores: Iterable[tuple[Texts, float]]) -> None:
        """Keep scores; they are on disk when this returns."""
        rows = [(self.settings, _key(texts), score) for texts, score in scores]
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?)", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                yield connection
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is no cache of scores, or damaged ({error}): give another file, or remove it"
            ) from error


def _key(texts: Texts) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()
