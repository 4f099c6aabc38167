"""What a sharded index is made of, on disk: one JSON file that is written last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from ..topics.checks import first_three
from .storage import Storage

NAME, STATISTICS = "shards.json", "statistics"
FORMAT, FORMAT_VERSION = "convsearch_shards", 1
#: what the settings of each kind of index hold at least
SETTINGS = {
    "bm25": ("text_field", "store_text", "num_tokens"),
    "dense": ("similarity", "encoder", "vec_size", "max_norm"),
}


@dataclass(frozen=True)
class Shard:
    """One shard: the passages from ``first`` on, in the order of the collection.

    ``digest`` tells the passages (SHA-256), ``files`` the size and checksum of each file, ``counts`` what the index of
    the shard counted.
    """

    name: str
    num_docs: int
    digest: str
    files: dict[str, dict[str, Any]]
    counts: dict[str, Any] = field(default_factory=dict)
    first: int = 0

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Manifest:
    """All shards, what they were built with, and what is known of the whole."""

    kind: str
    build: str
    settings: dict[str, Any]
    shards: tuple[Shard, ...]
    statistics: dict[str, dict[str, Any]]

    @property
    def num_docs(self) -> int:
        return sum(shard.num_docs for shard in self.shards)

    def to_json(self) -> bytes:
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "num_docs": self.num_docs, **asdict(self)}
        return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def read_manifest(storage: Storage, build: str | None = None) -> Manifest:
    """The manifest of a sharded index; of one build of it where ``build`` is given.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, of another version, or of another build: the index was replaced.
    """
    try:
        content = json.loads(storage.read(NAME))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no sharded index at {storage.address}: build it with .index(passages)"
        ) from error
    except ValueError as error:
        raise _broken(storage, str(error)) from error
    if not isinstance(content, dict):
        raise _broken(storage, f"it holds a {type(content).__name__}, no object")
    if (content.get("format"), content.get("format_version")) != (FORMAT, FORMAT_VERSION):
        raise ValueError(
            f"{storage.address}/{NAME} is a {content.get('format')} of version {content.get('format_version')}, "
            f"not a {FORMAT} of version {FORMAT_VERSION}"
        )
    try:
        shards = tuple(Shard(**shard) for shard in content["shards"])
        found = Manifest(content["kind"], content["build"], content["settings"], shards, content["statistics"])
        known = found.num_docs == content["num_docs"] and found.kind in SETTINGS
        lacking = [name for name in SETTINGS[found.kind] if name not in found.settings] if known else ["num_docs"]
    except (KeyError, TypeError) as error:
        raise _broken(storage, f"{type(error).__name__}: {error}") from error
    if lacking:
        raise _broken(storage, f"{first_three(lacking)} is missing or wrong")
    if build is not None and found.build != build:
        raise ValueError(f"the index at {storage.address} was replaced while it was open: open it again")
    return found


def _broken(storage: Storage, why: str) -> ValueError:
    return ValueError(f"{storage.address}/{NAME} is damaged ({why}): restore it from a copy, or build the index anew")
