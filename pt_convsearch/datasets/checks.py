"""Look through a folder data set for what would spoil an experiment: before it is run, not after."""

from __future__ import annotations

import hashlib
import re
import warnings
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch._lines import open_data
from pt_convsearch.datasets.corpora import json_passages
from pt_convsearch.datasets.folder import DOCNO, TEXT, Folder, read_topics as read_folder_topics
from pt_convsearch.datasets.formats import read_qrels
from pt_convsearch.datasets.report import ERROR, NOTE, WARNING, Finding, Report

#: the length to which Terrier's default ``meta={"docno": 20}`` cuts
TERRIER_LENGTH = 20
_SPACE = re.compile(r"\s")
_CSV = re.compile(r"NA|N/A|NaN|nan|null|NULL|None|0[0-9]+|[0-9]+\.[0-9]+|[0-9]+[eE][0-9]+|.*[\"'].*")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
#: UTF-8 read as Windows-1252: "Ã©", "â€™"
_MOJIBAKE = re.compile(r"Ã[\u0080-\u00bf]|â€[\u0090-\u2122]|Â[\u00a0-\u00bf]")


def check(folder: str | Path, *, verbose: bool = False) -> Report:
    """Look through a folder data set (see :class:`~pt_convsearch.datasets.folder.Folder` for its layouts).

    Reported as errors: files that cannot be read (by file and line), judgments of questions or passages that are not
    there, passages whose id repeats, ids with white space (PISA cuts them). As warnings: empty questions and passages,
    passages of equal text, judged questions without a relevant passage, later turns without history, a question or
    answer in its own history, ids longer than Terrier's default of 20 characters, ids that readers of CSV damage
    ("NA", "007", quotes), broken or doubly encoded characters, a conversation in two splits. As notes: how many
    questions have no gold, byte order marks, Windows line ends.

    Args:
        folder: the folder.
        verbose: show progress over the passages.

    Returns:
        Report: true where there is no error; ``str`` of it is a table.

    Raises:
        FileNotFoundError: no such folder.

    Example:
        >>> import tempfile, pathlib
        >>> from pt_convsearch.datasets import check
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "topics.jsonl").write_text('{"qid": "c_1", "query": "Who?"}', encoding="utf-8")
        >>> _ = (folder / "corpus.jsonl").write_text('{"docno": "d1", "text": "He."}', encoding="utf-8")
        >>> _ = (folder / "qrels.txt").write_text("c_1 0 d2 1", encoding="utf-8")
        >>> print([finding.text for finding in check(folder).errors])
        ['judgments of passages that the corpus lacks']
    """
    data = Folder(folder)
    report = Report(data.path or Path(folder))
    splits = _splits(data)
    topics = _read_all(report, {split: partial(_topics_of, data, split) for split in splits})
    qrels = _read_all(report, _qrels_files(data, splits))
    _encodings(report, data, splits)
    questions = pd.concat(topics.values(), ignore_index=True) if topics else None
    judgments = pd.concat(qrels.values(), ignore_index=True) if qrels else None
    if questions is not None:
        _check_topics(report, topics, questions)
    if judgments is not None:
        _check_qrels(report, judgments, questions)
    _check_corpus(report, data, judgments, verbose=verbose)
    return report


def _topics_of(data: Folder, split: str | None) -> pd.DataFrame:
    return read_folder_topics(data._topics_file(split))


def _splits(data: Folder) -> list[str | None]:
    names = sorted({place.name.partition(".")[0] for place in data._folder.glob("*.topics.jsonl*")})
    return [*names] if names else [None]


def _qrels_files(data: Folder, splits: list[str | None]) -> dict[Any, Callable[[], pd.DataFrame]]:
    folder = data._folder / "qrels"
    if folder.is_dir():
        places = sorted(place for place in folder.iterdir() if place.is_file() and not place.name.startswith("."))
    else:
        found = []
        for split in splits:
            try:
                found.append(data._qrels_file(split)[0])
            except FileNotFoundError as error:
                return {None: _raising(error)}
        places = list(dict.fromkeys(found))
    return {place: partial(read_qrels, place) for place in places}


def _raising(error: Exception) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        raise error

    return read


def _read_all(report: Report, readers: dict[Any, Callable[[], pd.DataFrame]]) -> dict[Any, pd.DataFrame]:
    """What can be read; what cannot is an error of the report."""
    frames = {}
    for key, read in readers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the report
            try:
                frames[key] = read()
            except (ValueError, FileNotFoundError) as error:
                report.add(ERROR, str(error))
    return frames


def _encodings(report: Report, data: Folder, splits: list[str | None]) -> None:
    finders: list[Callable[[], Path]] = [partial(data._topics_file, split) for split in splits]
    finders.append(partial(data.file, "qrels"))
    for find in finders:
        try:
            path = find()
            with open_data(path) as stream:
                start = stream.read(1 << 16)
        except (OSError, ValueError):
            continue
        report.add(NOTE, f"{path.name} begins with a byte order mark", int(start.startswith(b"\xef\xbb\xbf")))
        report.add(NOTE, f"{path.name} has Windows line ends", int(b"\r\n" in start))


def _check_topics(report: Report, topics: dict[Any, pd.DataFrame], questions: pd.DataFrame) -> None:
    report.counts["questions"] = len(questions)
    report.add(
        ERROR, "questions whose id stands in two splits", questions["qid"][questions["qid"].duplicated()].unique()
    )
    report.add(WARNING, "questions without words", questions["qid"][questions["query"].str.strip() == ""])
    _check_ids(report, questions["qid"], "questions")
    _check_texts(report, questions["qid"], questions["query"], "questions")
    if "turn_number" in questions:
        later = questions["turn_number"].fillna(1) > 1
        without = questions["qhistory"].map(len) == 0
        report.add(WARNING, "later turns without history", questions["qid"][later & without])
    if "conversation_id" in questions:
        seen: dict[str, Any] = {}
        both = {
            conversation
            for split, frame in topics.items()
            for conversation in frame.get("conversation_id", pd.Series(dtype=str)).dropna().unique()
            if seen.setdefault(conversation, split) != split
        }
        report.add(WARNING, "conversations that stand in two splits", sorted(both))
    said = [
        qid
        for qid, query, answer, history in zip(
            questions["qid"], questions["query"], questions["answer"], questions["qhistory"], strict=True
        )
        if any(message["content"] == (query if message["role"] == "user" else answer) != "" for message in history)
    ]
    report.add(WARNING, "questions that stand, or whose answer stands, in their own history", said)


def _check_qrels(report: Report, judgments: pd.DataFrame, questions: pd.DataFrame | None) -> None:
    report.counts["judgments"] = len(judgments)
    if questions is not None:
        judged = set(judgments["qid"])
        known = set(questions["qid"])
        report.add(ERROR, "judgments of questions that the topics lack", sorted(judged - known))
        without = [qid for qid in questions["qid"] if qid not in judged]
        report.add(NOTE, f"of {len(questions):,} questions have no gold: they are left out of means", without)
    best = judgments.groupby("qid", sort=False)["label"].max()
    report.add(WARNING, "questions with judgments but none relevant: they count 0", best.index[best <= 0])


def _check_corpus(report: Report, data: Folder, judgments: pd.DataFrame | None, *, verbose: bool) -> None:
    from tqdm.auto import tqdm

    try:
        path = data.file("corpus")
    except FileNotFoundError as error:
        report.add(ERROR, str(error))
        return
    wanted = set(judgments["docno"]) if judgments is not None else set()
    seen: set[str] = set()
    # eight bytes a passage instead of its id and text: millions fit
    ids, texts = array("Q"), array("Q")
    odd = _Odd()
    try:
        for passage in tqdm(json_passages(path, docno=DOCNO, text=TEXT), unit="p", disable=not verbose):
            docno, text = passage["docno"], passage["text"]
            ids.append(_hash(docno))
            if text.strip():
                texts.append(_hash(f"{passage.get('title', '')}\n{text}"))
            if docno in wanted:
                seen.add(docno)
            odd.look(docno, text)
    except (ValueError, OSError) as error:
        report.add(ERROR, str(error))
        report.add(NOTE, "the passages after that fault were not looked at")
        return
    report.counts["passages"] = len(ids)
    if not ids:
        report.add(ERROR, f"{path}, line 1: no passage in the file: it is empty")
    report.add(ERROR, "judgments of passages that the corpus lacks", sorted(wanted - seen))
    repeated = _repeated(ids)
    if len(repeated):
        twice = [one["docno"] for one in json_passages(path, docno=DOCNO, text=TEXT) if _hash(one["docno"]) in repeated]
        report.add(ERROR, "passages whose id repeats", dict.fromkeys(twice))
    again = len(texts) - len(np.unique(np.frombuffer(texts, dtype=np.uint64)))
    report.add(WARNING, "passages with the title and text of an earlier one", again)
    odd.add_to(report, "passages")


class _Odd:
    """Counts what is odd about ids and texts, and keeps three examples of each."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], list[Any]] = {}

    def look(self, docno: str, text: str) -> None:
        for level, what in _of_id(docno):
            self._keep(level, what, docno)
        for level, what in _of_text(text):
            self._keep(level, what, docno)

    def _keep(self, level: str, what: str, docno: str) -> None:
        entry = self.found.setdefault((level, what), [0, []])
        entry[0] += 1
        if len(entry[1]) < 3:
            entry[1].append(docno)

    def add_to(self, report: Report, kind: str) -> None:
        for (level, what), (count, examples) in self.found.items():
            shown = tuple(repr(value if len(value) <= 40 else value[:37] + "…") for value in examples)
            report.findings.append(Finding(level, f"{kind} {what}", count, shown))


def _check_ids(report: Report, ids: pd.Series, kind: str) -> None:
    odd = _Odd()
    for value in ids:
        for level, what in _of_id(value):
            if "Terrier" not in what:
                odd._keep(level, what, value)
    odd.add_to(report, kind)


def _check_texts(report: Report, ids: pd.Series, texts: pd.Series, kind: str) -> None:
    odd = _Odd()
    for value, text in zip(ids, texts, strict=True):
        for level, what in _of_text(text):
            if "without words" not in what:
                odd._keep(level, what, value)
    odd.add_to(report, kind)


def _of_id(value: str) -> list[tuple[str, str]]:
    found = []
    if _SPACE.search(value):
        found.append((ERROR, "whose id holds white space: PISA and run files cut it there"))
    if len(value) > TERRIER_LENGTH:
        found.append(
            (WARNING, f"whose id is longer than Terrier's default of {TERRIER_LENGTH}: give meta={{'docno': LENGTH}}")
        )
    if _CSV.fullmatch(value):
        found.append((WARNING, "whose id readers of CSV change (NA, numbers with zeros, quotes): read it as text"))
    return found


def _of_text(text: str) -> list[tuple[str, str]]:
    found = []
    if not text.strip():
        found.append((WARNING, "without words"))
    if not text.isascii() or not text.isprintable():
        if _CONTROL.search(text):
            found.append((WARNING, "with control characters or U+FFFD: read in a wrong encoding once?"))
        if _MOJIBAKE.search(text):
            found.append((WARNING, "that look as if UTF-8 had been read as Windows-1252 ('Ã©')"))
    return found


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _repeated(hashes: array[int]) -> set[int]:
    values, counts = np.unique(np.frombuffer(hashes, dtype=np.uint64), return_counts=True)
    return set(values[counts > 1].tolist())
