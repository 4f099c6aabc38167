"""Runs and judgments as integer codes, and the one tie rule that every measure sees."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pt_convsearch.topics.checks import as_ids, first_three

Ties = Literal["rank", "trec_eval"]
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Judgments:
    """Judgments as codes: row i says that document ``docnos[doc[i]]`` has ``label[i]`` for question
    ``qids[query[i]]``."""

    qids: pd.Index
    docnos: pd.Index
    query: np.ndarray
    doc: np.ndarray
    label: np.ndarray

    def of(self, qids: pd.Index) -> Judgments:
        """The judgments of these questions only, in the order of ``qids``; the unjudged among them are left out."""
        if qids.has_duplicates:
            repeated = qids[qids.duplicated()].unique()
            raise ValueError(f"{len(repeated)} qids are asked for more than once ({first_three(repeated)})")
        place = self.qids.get_indexer(qids)  # keeps its table: isin would make one of all judged qids for every call
        qids, place = qids[place >= 0], place[place >= 0]
        codes = np.full(len(self.qids), -1)
        codes[place] = np.arange(len(qids))
        code = codes[self.query]
        kept = code >= 0
        return Judgments(qids, self.docnos, code[kept], self.doc[kept], self.label[kept])


@dataclass(frozen=True)
class Ranking:
    """A run in the order of the tie rule: row i is ``docno[i]`` at ``position[i]`` (from 0) of ``qids[query[i]]``.

    Questions are codes, but documents stay strings: a run names millions of them, and few are judged.
    """

    qids: pd.Index
    query: np.ndarray
    docno: pa.LargeStringArray
    position: np.ndarray


def judgments(qrels: pd.DataFrame | Mapping[str, Mapping[str, int]] | Judgments) -> Judgments:
    """Check judgments and code them.

    Args:
        qrels: columns qid, docno, label; or ``{qid: {docno: label}}``; or what this function returned. An empty docno
            is no judgment, as in QReCC's ``{"": 1}``; a row that repeats another is merged into it.

    Raises:
        ValueError: a column is missing, a label is no whole number, or two rows contradict each other.
    """
    if isinstance(qrels, Mapping):
        rows = [(qid, docno, label) for qid, labels in qrels.items() for docno, label in labels.items()]
        qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    if isinstance(qrels, Judgments):
        return qrels
    if not isinstance(qrels, pd.DataFrame):
        raise TypeError(f"qrels are a frame of qid, docno, label (or a mapping), not {type(qrels).__name__}")
    missing = [column for column in ("qid", "docno", "label") if column not in qrels.columns]
    if missing:
        raise ValueError(
            f"qrels lack the columns {missing} (found {list(qrels.columns)}): judgments are qid, docno, label"
        )
    named = (qrels["docno"] != "").to_numpy(dtype=bool, na_value=True)
    query, qids = coded(qrels["qid"][named], "qid")
    doc, docnos = coded(qrels["docno"][named], "docno")
    label = _labels(qrels["label"][named])
    key = query * max(len(docnos), 1) + doc
    order = np.argsort(key, kind="stable")
    repeated = np.flatnonzero(key[order][1:] == key[order][:-1])
    if len(repeated):
        first, second = order[repeated], order[repeated + 1]
        contradicting = first[label[first] != label[second]]
        if len(contradicting):
            named_pairs = first_three(f"{qids[query[row]]} {docnos[doc[row]]}" for row in contradicting)
            raise ValueError(
                f"{len(contradicting)} judgments contradict another of the same question and document ({named_pairs}): "
                "keep one label"
            )
        kept = np.ones(len(key), dtype=bool)
        kept[second] = False
        query, doc, label = query[kept], doc[kept], label[kept]
    return Judgments(qids, docnos, query, doc, label)


def _labels(values: pd.Series) -> np.ndarray:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    if wrong.any():
        raise ValueError(
            f"qrels: label {first_three(values[wrong])} is no whole number: relevance is judged in grades 0, 1, 2 …"
        )
    return numbers.astype(np.int64)


def coded(values: pd.Series, column: str) -> tuple[np.ndarray, pd.Index]:
    """Integer codes of a column of ids, and the ids as str; only the distinct ids are looked at one by one.

    Raises:
        ValueError: a missing, empty or otherwise impossible id; the message names the column.
    """
    codes, distinct = pd.factorize(values)
    if len(codes) and codes.min() < 0:
        raise ValueError(f"column {column!r} holds a missing id (None or NaN): give every row an id")
    ids = pd.Index(as_ids(pd.Series(distinct), column))
    if not ids.is_unique:  # 1 and "1" in one column
        again, ids = pd.factorize(ids)
        codes = again[codes]
    return codes.astype(np.int64, copy=False), pd.Index(ids)


def ranking(run: pd.DataFrame, *, ties: Ties = "rank") -> Ranking:
    """Order a run by the tie rule and code it.

    Args:
        run: qid, docno and ``rank`` or ``score`` (or both).
        ties: "rank": by the ``rank`` column, where there is none by score, highest first; rows that are still equal
            keep their order by score, then as they stand. "trec_eval": by score in single precision, then by docno,
            highest first.

    Returns:
        the ranking; a document found twice for one question is kept where it stands best, with a warning and the count.

    Raises:
        ValueError: a column is missing, or a score or rank is NaN; the message names the qids.
    """
    if ties not in ("rank", "trec_eval"):
        raise ValueError(f"ties={ties!r}: 'rank' (by the rank column) or 'trec_eval' (by score, then docno)")
    if not isinstance(run, pd.DataFrame):
        raise TypeError(f"a run is a frame of qid, docno, score, rank, not {type(run).__name__}")
    missing = [column for column in ("qid", "docno") if column not in run.columns]
    by_rank = ties == "rank" and "rank" in run.columns
    if not by_rank and "score" not in run.columns:
        missing.append("score")
    if missing:
        raise ValueError(
            f"the run lacks the columns {missing} (found {list(run.columns)}): results are qid, docno, score, rank"
        )
    query, qids = coded(run["qid"], "qid")
    docno = _strings(run["docno"], "docno")
    score = _numbers(run, "score", query, qids) if "score" in run.columns else None
    rank = _numbers(run, "rank", query, qids) if by_rank else None
    if ties == "trec_eval":
        assert score is not None
        alphabetical = pc.rank(docno, sort_keys="descending", tiebreaker="dense").to_numpy()
        order: np.ndarray | None = np.lexsort((alphabetical, -score.astype(np.float32), query))
    else:
        order = _order(query, rank, score)
    if order is not None:
        query, docno = query[order], docno.take(pa.array(order))
    repeats = _repeats(query, docno)
    if len(repeats):
        named = first_three(f"{qids[query[row]]} {docno[int(row)].as_py()}" for row in repeats[:4])
        warnings.warn(
            f"{len(repeats)} rows of the run repeat a document of their question (qid docno: {named}): the best stays",
            stacklevel=3,
        )
        kept = np.delete(np.arange(len(query)), repeats)
        query, docno = query[kept], docno.take(pa.array(kept))
    starts = _starts(query)
    return Ranking(qids, query, docno, np.arange(len(query)) - np.repeat(starts, np.diff(np.r_[starts, len(query)])))


def _strings(values: pd.Series, column: str) -> pa.LargeStringArray:
    """A column of ids as an Arrow array; the buffers of a string column are shared, not copied."""
    if isinstance(values.dtype, pd.StringDtype):
        strings = pa.array(values)
        strings = strings.combine_chunks() if isinstance(strings, pa.ChunkedArray) else strings
        if strings.null_count == 0 and not pc.any(pc.equal(strings, "")).as_py():
            return strings.cast(pa.large_string())
    codes, ids = coded(values, column)
    return pa.array(ids.to_numpy(dtype=object), type=pa.large_string()).take(pa.array(codes))


def _starts(group: np.ndarray) -> np.ndarray:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(group) else np.empty(0, dtype=np.int64)


def _numbers(run: pd.DataFrame, column: str, query: np.ndarray, qids: pd.Index) -> np.ndarray:
    try:
        numbers = run[column].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {column!r} of the run holds what is no number: {error}") from error
    wrong = np.isnan(numbers)
    if wrong.any():
        named = first_three(qids[np.unique(query[wrong])])
        raise ValueError(
            f"{int(wrong.sum())} rows of the run have no {column} (NaN): qid {named}; mend the system that made them"
        )
    return numbers


def _order(query: np.ndarray, rank: np.ndarray | None, score: np.ndarray | None) -> np.ndarray | None:
    """The order by (query, rank, score falling, row), or None where the rows stand so already."""
    if len(query) < 2:
        return None
    same = query[1:] == query[:-1]
    grouped = bool((query[1:] >= query[:-1]).all())
    keys: list[np.ndarray] = [-score] if score is not None else []
    keys += [rank] if rank is not None else []
    rising = keys[-1][1:] > keys[-1][:-1] if rank is not None else keys[-1][1:] >= keys[-1][:-1]
    if grouped and bool((rising | ~same).all()):
        return None
    return np.lexsort([*keys, query])


def _repeats(query: np.ndarray, docno: pa.LargeStringArray) -> np.ndarray:
    """Rows whose document stands further up for the same question.

    Documents are coded in blocks of whole questions: small tables stay in the processor's cache, a large one does not.
    """
    starts = np.r_[_starts(query), len(query)]
    repeats: list[np.ndarray] = []
    begin = 0
    while begin < len(query):
        end = int(starts[min(np.searchsorted(starts, begin + _BLOCK), len(starts) - 1)])
        codes = docno.slice(begin, end - begin).dictionary_encode().indices.to_numpy()
        key = query[begin:end] * (end - begin) + codes
        ordered = np.sort(key)
        if (ordered[1:] == ordered[:-1]).any():
            first = np.unique(key, return_index=True)[1]
            repeats.append(begin + np.delete(np.arange(end - begin), first))
        begin = end
    return np.concatenate(repeats) if repeats else np.empty(0, dtype=np.int64)
