"""Passages out of files too large to hold: JSON Lines, one file or many, compressed or in an archive, as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pt_convsearch._lines import decoded, iter_lines
from pt_convsearch.datasets.archives import members
from pt_convsearch.topics.messages import clean_text

Passage = dict[str, Any]
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_LINES = (".jsonl", ".json", ".txt", ".tsv", ".jsonl.gz", ".jsonl.bz2", ".json.gz", ".txt.gz", ".tsv.gz", ".jsonl.xz")


def stream_lines(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line number, text) of each line of a file, of all files below a folder, or of an archive's members.

    Files come in the order of their names, members in the archive's. Nothing but the line at hand is held.

    Raises:
        ValueError: no UTF-8, a cut or damaged file, or nothing to read; named by file and line.
    """
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file() and one.name.lower().endswith(_LINES))
        if not files:
            raise ValueError(f"{path}: no file of passages (.jsonl) lies in it")
        for one in files:
            name = str(one)
            for number, line in iter_lines(one):
                yield name, number, line
    elif path.name.lower().endswith(_ARCHIVES):
        some = False
        for member, stream in members(path):
            if member.lower().endswith(_LINES[:4]) and not member.startswith("__MACOSX/"):
                some = True
                name = f"{path}!{member}"
                for number, line in decoded(stream, name):
                    yield name, number, line
        if not some:
            raise ValueError(f"{path}: no file of passages (.jsonl) is in it")
    else:
        name = str(path)
        for number, line in iter_lines(path):
            yield name, number, line


def json_passages(
    path: Path, *, docno: tuple[str, ...], text: tuple[str, ...], title: str | None = "title"
) -> Iterator[Passage]:
    """Yield docno, text and (where there is one) title of passages in JSON Lines; blank lines are skipped.

    Args:
        path: file, folder or archive.
        docno: names that the id may have; it is kept byte for byte.
        text: names that the text may have.
        title: the name of the title.

    Raises:
        ValueError: a line that is no JSON object, a passage without id or text, and what :func:`stream_lines` raises.
    """
    for name, number, line in stream_lines(path):
        if not line or line.isspace():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {number}: not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise ValueError(f"{name}, line {number}: a JSON object is due, not {type(value).__name__}")
        found, content = _first(value, docno), _first(value, text)
        if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
            raise ValueError(f"{name}, line {number}: {_lacks(value, found, docno)}")
        if not isinstance(content, str):
            raise ValueError(f"{name}, line {number}: {_lacks(value, content, text)}")
        passage = {"docno": str(found), "text": content}
        if title and isinstance(value.get(title), str):
            passage["title"] = value[title]
        if (
            "\\ud" in line or "\\uD" in line
        ):  # half of a surrogate pair, which no file can hold, comes as an escape only
            passage |= {name: clean_text(passage[name]) for name in passage if name != "docno"}
        yield passage


def _first(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in value and value[name] is not None:
            return value[name]
    return None


def _lacks(value: dict[str, Any], found: Any, names: tuple[str, ...]) -> str:
    wanted = " or ".join(map(repr, names))
    if found is None:
        return f"no field {wanted}, only {', '.join(map(repr, list(value)[:8]))}"
    return f"field {wanted} holds {found!r:.60}"


def counted(
    passages: Iterable[Passage], *, verbose: bool, total: int | None = None, name: str = ""
) -> Iterator[Passage]:
    """The same passages, with a progress bar where ``verbose``."""
    from tqdm.auto import tqdm

    return iter(tqdm(passages, desc=name, total=total, unit="p", disable=not verbose))
