"""Generated texts by content, on disk: what was paid for once is not generated again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from pt_convsearch._files import PathLike

_LOOKUP = 500


class ExpansionCache:
    """An SQLite file of generated texts. A kill loses at most the batch that was being generated, and several
    processes may share the file.

    Args:
        path: the file; made where it is missing.
        settings: what generated texts depend on besides the source: model, lengths, seed. Texts of other settings
            live in the same file and are never given back.

    Raises:
        ValueError: the file is something else, or damaged.
    """

    def __init__(self, path: PathLike, settings: str) -> None:
        self.path = Path(path)
        self.settings = settings
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS expansions (settings TEXT, source BLOB, texts TEXT, "
                "PRIMARY KEY (settings, source)) WITHOUT ROWID"
            )

    def find(self, sources: Sequence[str]) -> dict[str, list[str]]:
        """What is known of some sources."""
        by_key = {_key(source): source for source in sources}
        keys = list(by_key)
        found: dict[str, list[str]] = {}
        with self._open() as connection:
            for start in range(0, len(keys), _LOOKUP):
                part = keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                rows = connection.execute(
                    f"SELECT source, texts FROM expansions WHERE settings = ? AND source IN ({marks})",
                    [self.settings, *part],
                )
                found.update((by_key[key], json.loads(texts)) for key, texts in rows)
        return found

    def add(self, expansions: Iterable[tuple[str, list[str]]]) -> None:
        """Keep generated texts by their source."""
        rows = [(self.settings, _key(source), json.dumps(texts, ensure_ascii=False)) for source, texts in expansions]
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO expansions VALUES (?, ?, ?)", rows)

    def _open(self) -> _Connection:
        return _Connection(self.path)


class _Connection:
    """A connection that commits when its block ends well, and is closed; a damaged file is named."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        self.connection = sqlite3.connect(self.path, timeout=60)
        return self.connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with closing(self.connection):
            if error is None:
                self.connection.commit()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise ValueError(
                f"{self.path} is no cache of expansions, or damaged ({error}): give another file, or remove it"
            ) from error


def _key(source: str) -> bytes:
    return hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
