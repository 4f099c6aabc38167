"""The headerless TSV of response ranking: ``label \\t u1 … un \\t response``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.dialogues import ResponseDataset
from pt_convsearch.datasets.formats import iter_tsv
from pt_convsearch.datasets.instances import candidates_frame, instance_task
from pt_convsearch.datasets.rows import unquoted
from pt_convsearch.topics import Task

_HEADER = ("context", "response")
_SEPARATOR = re.compile(r"\[(?:UTTERANCE|TURN)_SEP\]")


def read_response_tsv(path: PathLike, *, quoting: str = "none") -> Iterator[dict[str, Any]]:
    """The instances of a response-ranking file, streamed: one per context, with its true response and given negatives.

    A line is ``label \\t u1 \\t … \\t un \\t candidate``; label 1 marks the true response, 0 a negative. Lines that
    follow each other with the same context belong to one instance, as MANtIS, MSDialog and the Ubuntu IRC dialogues
    have them. The two columns ``context, response`` that transformer_rankers makes of such files are read as well.

    Args:
        path: the file, plain or compressed.
        quoting: ``"csv"`` where the file was written by Python's csv module (MANtIS: a cell with a double quote
            stands in double quotes, its own quotes doubled); ``"none"``: every cell byte for byte.

    Yields:
        dialogue_id (running number of the instance, from 0), utterances (the context: dicts of speaker and text;
        speakers alternate, the last is ``user``), response, and negatives (list of str, empty where the file has
        none). ``line`` is the first line of the instance.

    Raises:
        ValueError: a label other than 0 and 1, or a line without context; named by file and line. Two true responses
            to one context are two instances.

    Source: read_crr_tsv_as_df of Guzpenha/transformer_rankers, and what Penha & Hauff say of their data.
    """
    if quoting not in ("none", "csv"):
        raise ValueError(f"quoting={quoting!r}: it is 'none' or 'csv'")
    if _is_frame(path):
        yield from _frame_instances(path)
        return
    count = 0
    context: list[str] | None = None
    truths: list[tuple[int, str]] = []
    negatives: list[str] = []
    for number, cells in iter_tsv(path):
        label = cells[0].strip()
        if label not in ("0", "1"):
            raise ValueError(f"{path}, line {number}: label {cells[0]!r:.40} where 0 or 1 is due (there is no header)")
        if len(cells) < 3:
            raise ValueError(
                f"{path}, line {number}: {len(cells)} cells where label, at least one utterance, response are due"
            )
        if quoting == "csv":
            cells = [unquoted(cell) for cell in cells]
        if cells[1:-1] != context:
            yield from _instances(context, truths, negatives, count)
            count += len(truths)
            context, truths, negatives = cells[1:-1], [], []
        if label == "1":
            truths.append((number, cells[-1]))
        else:
            negatives.append(cells[-1])
    yield from _instances(context, truths, negatives, count)


def _instances(
    context: list[str] | None, truths: list[tuple[int, str]], negatives: list[str], first: int
) -> Iterator[dict[str, Any]]:
    for place, (line, response) in enumerate(truths):
        texts = context or []
        yield {
            "dialogue_id": str(first + place),
            "line": line,
            "utterances": [
                {"speaker": "user" if (len(texts) - 1 - n) % 2 == 0 else "agent", "text": text}
                for n, text in enumerate(texts)
            ],
            "response": response,
            "negatives": list(negatives),
        }


def _is_frame(path: PathLike) -> bool:
    return next((cells == list(_HEADER) for _, cells in iter_tsv(path)), False)


def _frame_instances(path: PathLike) -> Iterator[dict[str, Any]]:
    """The two columns that transformer_rankers writes with pandas: the context with separators in it, and the
    response."""
    for count, (number, cells) in enumerate(iter_tsv(path, columns=2), -1):
        if count >= 0:
            context, response = map(unquoted, cells)
            texts = [text.strip() for text in _SEPARATOR.split(context)]
            yield from _instances([text for text in texts if text], [(number, response)], [], count)


def tsv_candidates(instances: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The true response of each instance (docno is the qid) and its negatives: qid, docno, text, label."""
    rows: list[tuple[str, str, str, int]] = []
    for instance in instances:
        qid = instance["dialogue_id"]
        rows.append((qid, qid, instance["response"], 1))
        rows += [(qid, f"{qid}:n{n}", text, 0) for n, text in enumerate(instance["negatives"], 1)]
    return candidates_frame(rows)


class ResponseTSV(ResponseDataset):
    """A file ``label, u1 … un, response`` of your own: ``cs.dataset("tsv:my/test.tsv")``.

    Args:
        name: ``"tsv:FILE"``.
        quoting: as for :func:`read_response_tsv`.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.
    """

    def __init__(self, name: str, *, quoting: str = "none", **options: Any):
        super().__init__(name, **options)
        self.tsv_file, self.quoting, self.split = Path(name.partition(":")[2]).expanduser(), quoting, ""

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        return read_response_tsv(self.tsv_file, quoting=self.quoting)

    def candidates(self) -> pd.DataFrame:
        return tsv_candidates(self.get_dialogues())

    def _own_task(self) -> Task:
        return instance_task(self.get_dialogues(), self.duplicates, user="user")


@register("tsv")
def _make(rest: str, **options: Any) -> ResponseTSV:
    return ResponseTSV(f"tsv:{rest}", **options)


_make.names = (":FILE",)  # type: ignore[attr-defined]
