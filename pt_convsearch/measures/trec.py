"""Runs and judgments on disk: ids byte for byte, every fault named by file and line.

Files are UTF-8, with or without BOM, plain or compressed (gzip, bz2, xz, zip with one file in it; told by the content),
and read as a stream.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator

import pandas as pd

from pt_convsearch._files import PathLike, writing_text
from pt_convsearch._lines import iter_lines
from pt_convsearch._records import read_json
from pt_convsearch.topics.checks import as_ids, first_three

logger = logging.getLogger(__name__)
_BLANKS = re.compile(r"[ \t]+")  # not str.split(): an id may hold a no-break space
_WHITE = re.compile("[ \\t\\r\\n\\f\\v]")  # what trec_eval parts columns at
_JSON = re.compile(r"[ \t]*\{[ \t]*(?:\"|\}|$)")  # an id may begin with a brace
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0+)?")


def read_qrels(path: PathLike) -> pd.DataFrame:
    """Judgments: a frame of qid, docno (str, byte for byte) and label (int).

    Read are TREC's ``qid iteration docno label``, with blanks or tabs between (where tabs are, an id may hold blanks),
    with or without a fifth column; BEIR's ``query-id corpus-id score`` with that header; and JSON ``{qid: {docno:
    label}}``, in which the docno ``""`` (QReCC) means that the question has no judgment. A row said twice is kept once.

    Raises:
        ValueError: a line that is none of these, a row said twice with different labels, a cut or an empty file; named
            by file and line.
    """
    rows = _json_qrels(path) if _JSON.match(_first_line(path)) else _text_qrels(path)
    seen: dict[tuple[str, str], tuple[int, int]] = {}
    nothing = 0
    for number, qid, docno, label in rows:
        if docno == "":
            nothing += 1
            continue
        known = seen.setdefault((qid, docno), (label, number))
        if known[0] != label:
            raise ValueError(
                f"{path}, line {number}: {docno!r} has label {label} for {qid!r}, but {known[0]} in line {known[1]}"
            )
    if nothing:
        logger.info("%s: %d questions without any judgment", path, nothing)
    elif not seen:
        raise ValueError(f"{path}, line 1: no judgment in the file: it is empty or cut")
    return pd.DataFrame(
        {
            "qid": pd.Series([qid for qid, _ in seen], dtype=str),
            "docno": pd.Series([docno for _, docno in seen], dtype=str),
            "label": pd.Series([label for label, _ in seen.values()], dtype="int64"),
        }
    )


def read_run(path: PathLike, *, may_be_empty: bool = False) -> pd.DataFrame:
    """A run: a frame of qid, docno (str, byte for byte), rank (int), score (float) and tag (str, "" for none).

    The second column (``Q0``, ``0``) is not looked at. Ranks begin with 0, as everywhere in PyTerrier: those of a file
    whose lowest is 1 are lowered by 1. Rows are in the file's order. A docno named twice for a question is kept where
    it ranks best, with a warning.

    Args:
        path: the file.
        may_be_empty: let a file without any result be a run that found nothing.

    Raises:
        ValueError: a line without 5 or 6 columns, a rank that is no integer, a score that is no finite number, a cut
            or an empty file; named by file and line.
    """
    rows: dict[tuple[str, str], tuple[int, float, str]] = {}
    repeated = 0
    for number, line in iter_lines(path):
        if not line.strip(" \t"):
            continue
        fields = _split(line, (5, 6))
        if len(fields) not in (5, 6) or "" in fields[:5]:
            raise ValueError(
                f"{path}, line {number}: a run has 6 columns (qid Q0 docno rank score tag), here are {len(fields)}"
            )
        if not _INTEGER.fullmatch(fields[3]):
            raise ValueError(f"{path}, line {number}: rank {fields[3]!r} is no integer")
        try:
            score = float(fields[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ValueError(f"{path}, line {number}: score {fields[4]!r} is no finite number")
        rank = int(float(fields[3]))
        key, row = (fields[0], fields[2]), (rank, score, fields[5] if len(fields) == 6 else "")
        if key not in rows or rank < rows[key][0]:
            repeated += key in rows
            rows[key] = row
        else:
            repeated += 1
    if not rows and not may_be_empty:
        raise ValueError(f"{path}, line 1: no result in the file: it is empty or cut")
    if repeated:
        warnings.warn(
            f"{path}: {repeated} rows repeat a document of the same question; the best rank is kept", stacklevel=2
        )
    first = min((rank for rank, _, _ in rows.values()), default=0)
    return pd.DataFrame(
        {
            "qid": pd.Series([qid for qid, _ in rows], dtype=str),
            "docno": pd.Series([docno for _, docno in rows], dtype=str),
            "rank": pd.Series([rank - (first == 1) for rank, _, _ in rows.values()], dtype="int64"),
            "score": pd.Series([score for _, score, _ in rows.values()], dtype="float64"),
            "tag": pd.Series([tag for _, _, tag in rows.values()], dtype=str),
        }
    )


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


def _text_qrels(path: PathLike) -> Iterator[tuple[int, str, str, int]]:
    beir = False
    for number, line in iter_lines(path):
        if not line.strip(" \t"):
            continue
        if number == 1 and re.fullmatch(r"query[-_]id\s+corpus[-_]id\s+score\s*", line, re.IGNORECASE):
            beir = True
            continue
        fields = _split(line, (3,) if beir else (4, 5))
        if len(fields) not in ((3,) if beir else (4, 5)):
            wanted = "3 columns (query-id corpus-id score)" if beir else "4 columns (qid 0 docno label)"
            raise ValueError(f"{path}, line {number}: judgments have {wanted}, here are {len(fields)}")
        docno, label = fields[1:3] if beir else fields[2:4]
        if not _INTEGER.fullmatch(label):
            raise ValueError(f"{path}, line {number}: label {label!r} is no integer")
        if not fields[0] or not docno:
            raise ValueError(f"{path}, line {number}: an empty id")
        yield number, fields[0], docno, int(float(label))


def _json_qrels(path: PathLike) -> Iterator[tuple[int, str, str, int]]:
    value = read_json(path)
    for qid, labels in value.items():
        if not qid or not isinstance(labels, dict):
            raise ValueError(
                f"{path}, question {qid!r}: judgments are {{qid: {{docno: label}}}}, here is {labels!r:.60}"
            )
        for docno, label in labels.items():
            if not isinstance(label, int) or isinstance(label, bool):
                raise ValueError(f"{path}, question {qid!r}: label {label!r} of {docno!r} is no integer")
            yield 1, qid, docno, label


def _split(line: str, allowed: tuple[int, ...]) -> list[str]:
    """The fields of a line: between tabs where that gives the right number, else between blanks and tabs."""
    if "\t" in line:
        fields = [value.strip(" ") for value in line.rstrip(" \t").split("\t")]
        if len(fields) in allowed:
            return fields
    return _BLANKS.split(line.strip(" \t"))


def _first_line(path: PathLike) -> str:
    return next((line for _, line in iter_lines(path) if line.strip()), "")
