"""The folder of an index: what its pt_meta.json must say, and what may be overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from .. import _files


class Kind(NamedTuple):
    """A kind of index.

    Args:
        type, format: of the PyTerrier artifact.
        version: of the format.
        name: for messages: "BM25 index".
        owner: the class that builds and opens it.
    """

    type: str
    format: str
    version: int
    name: str
    owner: str

    def at(self, path: Path) -> bool:
        """Does the folder hold an index of this kind, of whatever version?"""
        meta = _files.json_or_none(path / "pt_meta.json")
        return isinstance(meta, dict) and (meta.get("type"), meta.get("format")) == (self.type, self.format)

    def meta(self, path: Path) -> dict[str, Any]:
        """pt_meta.json, checked.

        Raises:
            FileNotFoundError: there is no index at the path.
            ValueError: the folder holds something else, another version of the format, or a damaged file.
        """
        meta_path = path / "pt_meta.json"
        if not path.exists():
            raise FileNotFoundError(
                f"there is no index at {path}: build one by {self.owner}({str(path)!r}).index(docs)"
            )
        if not meta_path.exists():
            raise ValueError(f"{path} is no {self.name}: it holds no pt_meta.json")
        try:
            meta = json.loads(meta_path.read_text(encoding="utf-8"))
            found = (meta.get("type"), meta.get("format"))
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{meta_path} is damaged ({error}): build the index anew") from error
        if found != (self.type, self.format):
            raise ValueError(f"{path} holds a {found[0]}.{found[1]}, not a {self.type}.{self.format}")
        if meta.get("format_version") != self.version:
            raise ValueError(
                f"the index at {path} has version {meta.get('format_version')} of the format, this library reads "
                f"{self.version}: index the collection again with overwrite=True"
            )
        return meta

    def contents(self, path: Path) -> dict[str, Any]:
        """The metadata but for what another build from the same collection would change."""
        return {name: value for name, value in self.meta(path).items() if name != "build"}

    def make_room(self, path: Path, *, overwrite: bool) -> None:
        """Refuse to build where something is that must not be replaced; clear what a killed run left.

        Raises:
            FileExistsError: an index is there and ``overwrite`` was not given, or something that is no such index.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            if not overwrite:
                raise FileExistsError(
                    f"{path} exists: open it by {self.owner}(path), or give overwrite=True to replace it"
                )
            if not self.at(path):
                raise FileExistsError(
                    f"{path} holds something that is no {self.name}: it is not overwritten, remove it"
                )
        _files.clear_unfinished(path)
