"""Rows of a topics frame, collected while a file is read: a repeated qid is named by both its lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from pt_convsearch._files import PathLike
from pt_convsearch.topics.messages import Message, clean_text
from pt_convsearch.topics.validation import validate

#: the order of the known columns; others follow
_ORDER = ("qid", "query", "qhistory", "qrewrite", "qtype", "conversation_id", "turn_number", "answer")


class TopicRows:
    """Collects rows and gives the validated topics frame."""

    def __init__(self, path: PathLike):
        self._path = path
        self._rows: list[dict[str, Any]] = []
        self._lines: dict[str, int] = {}

    def add(self, line: int, qid: str, query: str, history: list[Message], **columns: Any) -> None:
        """Add a question; a column that some rows lack is empty there.

        Raises:
            ValueError: the qid is empty or was there before; the message names both lines.
        """
        if not qid:
            raise ValueError(f"{self._path}, line {line}: an empty id")
        before = self._lines.setdefault(qid, line)
        if len(self._lines) == len(self._rows):
            raise ValueError(f"{self._path}, line {line}: question {qid!r} stands in line {before} already")
        row = {"qid": qid, "query": query, "qhistory": history, **columns}
        self._rows.append({name: clean_text(value) if isinstance(value, str) else value for name, value in row.items()})

    def __contains__(self, qid: str) -> bool:
        return qid in self._lines

    def __len__(self) -> int:
        return len(self._rows)

    def frame(self) -> pd.DataFrame:
        """The topics frame.

        Raises:
            ValueError: there is no row, or only some have a conversation_id or a turn_number.
        """
        if not self._rows:
            raise ValueError(f"{self._path}, line 1: no question in the file: it is empty or cut")
        for name in ("conversation_id", "turn_number"):
            lacking = [row["qid"] for row in self._rows if row.get(name) is None]
            if lacking and len(lacking) < len(self._rows):
                line = self._lines[lacking[0]]
                raise ValueError(f"{self._path}, line {line}: question {lacking[0]!r} has no {name}, and others have")
        names = [*_ORDER, *dict.fromkeys(name for row in self._rows for name in row if name not in _ORDER)]
        frame = pd.DataFrame(
            {
                name: column([row.get(name) for row in self._rows], empty="" if name == "answer" else None)
                for name in names
                if any(row.get(name) is not None for row in self._rows)
            }
        )
        if "answer" not in frame.columns:
            frame["answer"] = column([""] * len(frame))
        try:
            return validate(frame)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from error


def column(values: list[Any], *, empty: Any = None) -> pd.Series:
    """A column: text where all values are text or missing, else what pandas makes of it; lists stay lists."""
    values = [empty if value is None else value for value in values]
    if any(isinstance(value, list | dict) for value in values):
        return pd.Series(values, dtype=object)
    if all(value is None or isinstance(value, str) for value in values):
        return pd.Series(values, dtype=str)
    return pd.Series(values)


def said(role: str, content: str, docno: str | list[str] | None = None) -> Message:
    """A message of a history."""
    message: Message = {"role": role, "content": clean_text(content)}
    if docno:
        message["docno"] = docno
    return message


def alternating(texts: Iterable[str]) -> list[Message]:
    """A history out of question, answer, question, answer …; what is empty was not said."""
    return [said(("user", "assistant")[at % 2], text) for at, text in enumerate(texts) if text.strip()]


def qrels_frame(rows: Iterable[tuple[str, str, int]]) -> pd.DataFrame:
    """Judgments out of (qid, docno, label); a pair that stands twice is kept once, with its highest label."""
    labels: dict[tuple[str, str], int] = {}
    for qid, docno, label in rows:
        labels[qid, docno] = max(label, labels.get((qid, docno), label))
    return pd.DataFrame(
        {
            "qid": pd.Series([qid for qid, _ in labels], dtype=str),
            "docno": pd.Series([docno for _, docno in labels], dtype=str),
            "label": pd.Series(list(labels.values()), dtype="int64"),
        }
    )


def unquoted(cell: str) -> str:
    """A cell as csv wrote it: the quotes around it taken off, those in it said once.

    >>> unquoted('"He said ""no""."'), unquoted('"so" and "so"')
    ('He said "no".', '"so" and "so"')
    """
    if len(cell) >= 2 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', ""):
        return cell[1:-1].replace('""', '"')
    return cell
