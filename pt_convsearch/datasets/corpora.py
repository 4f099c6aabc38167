"""Passages out of files too large to hold: JSON Lines, one file or many, compressed or in an archive, as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pt_convsearch.datasets.archives import members
from pt_convsearch.datasets.lines import decoded, iter_lines
from pt_convsearch.topics.messages import clean_text

Passage = dict[str, Any]
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_LINES = (".jsonl", ".json", ".txt", ".tsv", ".jsonl.gz", ".jsonl.bz2", ".json.gz", ".txt.gz", ".tsv.gz", ".jsonl.xz")


def stream_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (file and line, text) of each line of a file, of all files below a folder, or of all members of an archive.

    Files come in the order of their names, members in the archive's. Nothing but the line at hand is held.

    Raises:
        ValueError: no UTF-8, a cut or damaged file, or nothing to read; named by file and line.
    """
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file() and one.name.lower().endswith(_LINES))
        if not files:
            raise ValueError(f"{path}: no file of passages (.jsonl) lies in it")
        for one in files:
            for number, line in iter_lines(one):
                yield f"{one}, line {number}", line
    elif path.name.lower().endswith(_ARCHIVES):
        some = False
        for name, stream in members(path):
            if name.lower().endswith(_LINES[:4]) and not name.startswith("__MACOSX/"):
                some = True
                for number, line in decoded(stream, f"{path}!{name}"):
                    yield f"{path}!{name}, line {number}", line
        if not some:
            raise ValueError(f"{path}: no file of passages (.jsonl) is in it")
    else:
        for number, line in iter_lines(path):
            yield f"{path}, line {number}", line


def stream_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file and line, object) of JSON Lines; blank lines are skipped. As :func:`stream_lines`.

    Raises:
        ValueError: a line that is no JSON object, besides what :func:`stream_lines` raises.
    """
    for where, line in stream_lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise ValueError(f"{where}: a JSON object is due, not {type(value).__name__}")
        yield where, value


def json_passages(
    path: Path, *, docno: tuple[str, ...], text: tuple[str, ...], title: str | None = "title"
) -> Iterator[Passage]:
    """Yield docno, text and (where there is one) title of passages in JSON Lines.

    Args:
        path: file, folder or archive.
        docno: names that the id may have.
        text: names that the text may have.
        title: the name of the title.

    Raises:
        ValueError: a passage without id or text, besides what :func:`stream_json` raises.
    """
    for where, value in stream_json(path):
        content = _first(value, text, where)
        if not isinstance(content, str):
            raise ValueError(f"{where}: the text of a passage is {content!r:.60}")
        passage = {"docno": passage_id(value, docno, where), "text": clean_text(content)}
        if title and isinstance(value.get(title), str):
            passage["title"] = clean_text(value[title])
        yield passage


def passage_id(value: dict[str, Any], names: tuple[str, ...], where: str) -> str:
    """The id of a passage as str, byte for byte.

    Raises:
        ValueError: there is none.
    """
    found = _first(value, names, where)
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise ValueError(f"{where}: {found!r:.60} is no id of a passage")
    return str(found)


def _first(value: dict[str, Any], names: tuple[str, ...], where: str) -> Any:
    for name in names:
        if value.get(name) is not None:
            return value[name]
    raise ValueError(f"{where}: no field {' or '.join(map(repr, names))}, only {', '.join(map(repr, list(value)[:8]))}")


def counted(
    passages: Iterable[Passage], *, verbose: bool, total: int | None = None, name: str = ""
) -> Iterator[Passage]:
    """The same passages, with a progress bar where ``verbose``."""
    from tqdm.auto import tqdm

    return iter(tqdm(passages, desc=name, total=total, unit="p", disable=not verbose))
