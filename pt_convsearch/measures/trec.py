"""TREC runs and judgments on disk, ids byte for byte: split at white space, no quotes, no NA, everything text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pandas as pd

from pt_convsearch._files import PathLike, open_text, writing_text
from pt_convsearch.topics.checks import as_ids, first_three

#: ASCII white space only, as trec_eval: an id may hold a no-break space
_WHITE = re.compile("[ \\t\\r\\n\\f\\v]+")


def read_run(path: PathLike) -> pd.DataFrame:
    """Read ``qid Q0 docno rank score tag`` (plain or .gz): qid, docno, rank, score, in the file's order.

    Raises:
        ValueError: a line that is no such row, named by file and line number.
    """
    rows = [(row[0], row[2], _integer(path, line, row[3]), _number(path, line, row[4])) for line, row in _rows(path, 6)]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "rank", "score"])
    return frame.astype({"qid": str, "docno": str, "rank": "int64", "score": "float64"})


def write_run(run: pd.DataFrame, path: PathLike, *, tag: str = "pt_convsearch") -> None:
    """Write qid, docno, rank, score as ``qid Q0 docno rank score tag`` (.gz by its name); scores keep every digit.

    Raises:
        ValueError: an id that holds white space, which this format cannot hold, or a missing column.
    """
    missing = [column for column in ("qid", "docno", "rank", "score") if column not in run.columns]
    if missing:
        raise ValueError(f"the run lacks the columns {missing}: a TREC file holds qid, docno, rank, score")
    qids, docnos = as_ids(run["qid"], "qid"), as_ids(run["docno"], "docno")
    for column, ids in (("qid", qids), ("docno", docnos)):
        broken = [value for value in ids.unique() if _WHITE.search(value)]
        if broken:
            raise ValueError(
                f"{column} {first_three(broken)} holds white space: a TREC run cannot hold it, save as parquet instead"
            )
    with writing_text(path) as handle:
        handle.writelines(
            f"{qid} Q0 {docno} {int(rank)} {float(score)!r} {tag}\n"
            for qid, docno, rank, score in zip(qids, docnos, run["rank"], run["score"], strict=True)
        )


def read_qrels(path: PathLike) -> pd.DataFrame:
    """Read ``qid iteration docno label`` (plain or .gz): qid, docno, label.

    Judgments in other forms (BEIR's, JSON, tabs between ids that hold blanks) are read by
    ``pt_convsearch.datasets.read_qrels``.

    Raises:
        ValueError: a line that is no such row, named by file and line number.
    """
    rows = [(row[0], row[2], _integer(path, line, row[3])) for line, row in _rows(path, 4)]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"]).astype({"qid": str, "docno": str, "label": "int64"})


def _rows(path: PathLike, width: int) -> Iterator[tuple[int, list[str]]]:
    with open_text(path) as handle:
        for line, text in enumerate(handle, 1):
            row = _WHITE.split(text.strip(" \t\r\n\f\v"))
            if row != [""] and len(row) != width:
                said = f"{path}, line {line}: {len(row)} fields where {width} are due: {text.strip()[:80]!r}"
                other = "; judgments in other forms are read by pt_convsearch.datasets.read_qrels"
                raise ValueError(said + (other if width == 4 else ""))
            if row != [""]:
                yield line, row


def _integer(path: PathLike, line: int, text: str) -> int:
    number = _number(path, line, text)
    if not number.is_integer():
        raise ValueError(f"{path}, line {line}: {text!r} is no whole number")
    return int(number)


def _number(path: PathLike, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {text!r} is no number") from error
