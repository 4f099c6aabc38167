"""Readers of tab-separated values, JSON and JSON Lines: every fault named by file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch._lines import iter_lines, read_text

_REQUIRED: Any = object()
_NOT_BLANK = re.compile(r"[^ \t\r\n]")


def iter_tsv(path: PathLike, *, columns: int | tuple[int, ...] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of a tab-separated file without quoting; blank lines are skipped.

    Args:
        path: the file.
        columns: how many fields a line must have (or may have, as a tuple).

    Raises:
        ValueError: a line with another number of fields, or no UTF-8; named by file and line.
    """
    allowed = (columns,) if isinstance(columns, int) else columns
    for number, line in iter_lines(path):
        if line.strip(" \t"):
            fields = line.split("\t")
            if allowed and len(fields) not in allowed:
                wanted = " or ".join(map(str, allowed))
                raise ValueError(f"{path}, line {number}: {len(fields)} tab-separated fields where {wanted} are due")
            yield number, fields


def iter_jsonl(path: PathLike) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON Lines file; blank lines are skipped.

    Raises:
        ValueError: a line that is no JSON object, named by file and line.
    """
    for number, value in iter_json_lines(path):
        if not isinstance(value, dict):
            raise ValueError(f"{path}, line {number}: a JSON object is due, not {type(value).__name__}")
        yield number, value


def iter_json_lines(path: PathLike) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value) of a file that holds a JSON value on each line; blank lines are skipped.

    Raises:
        ValueError: a line that is no JSON, named by file and line.
    """
    for number, line in iter_lines(path):
        if line.strip():
            try:
                yield number, json.loads(line, object_pairs_hook=_no_twins)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: not valid JSON ({error})") from error


def read_json(path: PathLike) -> Any:
    """The value of a JSON file.

    Raises:
        ValueError: no JSON (cut, foreign, empty), or an object that names a key twice; named by file and line.
    """
    text = _not_empty(path)
    try:
        return json.loads(text, object_pairs_hook=_no_twins)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from error
    except _TwinError as error:
        raise ValueError(f"{path}, line {_line_of_twin(text, error.key)}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path}, line 1: not valid JSON (nested too deeply)") from error
    except ValueError as error:  # an integer of more digits than Python reads
        raise ValueError(f"{path}: not valid JSON ({error})") from error


def read_records(path: PathLike) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a file that is one JSON list of objects, one object, or JSON Lines.

    Raises:
        ValueError: no JSON, no list of objects, or an empty file; named by file and line.
    """
    text = _not_empty(path)
    start = _skip(text, 0)
    if text[start : start + 1] != "[":
        if text[start : start + 1] != "{":
            raise ValueError(f"{path}, line {text.count(chr(10), 0, start) + 1}: a JSON list of objects is due")
        if (whole := _one_object(text)) is not None:
            yield 1, whole
        else:
            yield from iter_jsonl(path)
        return
    decoder = json.JSONDecoder(object_pairs_hook=_no_twins)
    at, line, counted = start + 1, 1, 0
    while True:
        at = _skip(text, at)
        line += text.count("\n", counted, at)
        counted = at
        if text[at : at + 1] == "]" and at == _skip(text, start + 1):
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {line}: not valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise ValueError(f"{path}, line {line}: a JSON object is due, not {type(value).__name__}")
        yield line, value
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            where = line + text.count("\n", counted, at)
            raise ValueError(f"{path}, line {where}: not valid JSON (the list is cut or lacks a comma)")
        at += 1
    end = _skip(text, at + 1)
    if end < len(text):
        line = text.count("\n", 0, end) + 1
        raise ValueError(f"{path}, line {line}: not valid JSON (text after the end of the list)")


def field(item: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str, default: Any = _REQUIRED) -> Any:
    """``item[key]``, which must be of ``kind`` (an int passes for no bool).

    Args:
        item: an object of a JSON file.
        key: the name of the field.
        kind: what its value must be.
        where: file and line, for the message.
        default: what an absent field (or null) gives; without it the field must be there.

    Raises:
        ValueError: the field is absent, or of another kind.
    """
    value = item.get(key)
    if value is None:
        if default is not _REQUIRED:
            return default
        if key in item:
            raise ValueError(f"{where}: no field {key!r} with a value: it is null")
        raise ValueError(f"{where}: no field {key!r}, only {', '.join(map(repr, list(item)[:8]))}")
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(one.__name__ for one in kinds)
        raise ValueError(f"{where}: field {key!r} holds {value!r:.60}, where {wanted} is due")
    return value


def _not_empty(path: PathLike) -> str:
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path}, line 1: the file is empty")
    return text


def _one_object(text: str) -> dict[str, Any] | None:
    """The object where the text is one JSON object over several lines."""
    try:
        value: dict[str, Any] = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError):
        return None
    return value


def _skip(text: str, at: int) -> int:
    found = _NOT_BLANK.search(text, at)
    return found.start() if found else len(text)


class _TwinError(ValueError):
    def __init__(self, key: str):
        super().__init__(f"the key {key!r} stands twice in one object")
        self.key = key


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; a key that stands twice would otherwise lose its first value in silence."""
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [key for key, _ in pairs]
        raise _TwinError(next(key for key in names if names.count(key) > 1))
    return value


def _line_of_twin(text: str, key: str) -> int:
    places = [found.start() for found in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)]
    return text.count("\n", 0, places[-1]) + 1 if places else 1
