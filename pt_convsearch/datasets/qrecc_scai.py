"""Runs in the form of the SCAI-QReCC shared task (2021)."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from pt_convsearch._files import PathLike, write_json
from pt_convsearch.datasets.formats import field, read_records


def read_scai_run(path: PathLike) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a system answered, rewrote and retrieved.

    Args:
        path: a JSON list of {Conversation_no, Turn_no, Model_rewrite, Model_passages: {id: score}, Model_answer};
            what begins with Model_ may be missing.

    Returns:
        two frames: the results (qid, docno, rank from 0 by falling score, score), and the turns (qid, qrewrite, answer:
        missing where the run has none).

    Raises:
        ValueError: no such file, a turn twice, or a score that is no finite number; named by file and line.
    """
    results, turns = [], []
    seen: dict[str, int] = {}
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        qid = f"{field(item, 'Conversation_no', (int, str), where)}_{field(item, 'Turn_no', int, where)}"
        if seen.setdefault(qid, line) != line:
            raise ValueError(f"{where}: turn {qid!r} stands in line {seen[qid]} already")
        passages = field(item, "Model_passages", dict, where, {})
        for docno, score in passages.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise ValueError(f"{where}: score {score!r} of {docno!r} is no finite number")
        best = sorted(passages.items(), key=lambda pair: -pair[1])
        results += [(qid, docno, rank, float(score)) for rank, (docno, score) in enumerate(best)]
        rewrite, answer = (field(item, name, str, where, None) for name in ("Model_rewrite", "Model_answer"))
        turns.append((qid, rewrite, answer))
    return (
        pd.DataFrame(results, columns=["qid", "docno", "rank", "score"]).astype(
            {"qid": str, "docno": str, "rank": "int64", "score": "float64"}
        ),
        pd.DataFrame(
            {
                name: pd.Series([turn[at] for turn in turns], dtype=str)
                for at, name in enumerate(("qid", "qrewrite", "answer"))
            }
        ),
    )


def write_scai_run(topics: pd.DataFrame, results: pd.DataFrame, path: PathLike, *, depth: int = 100) -> None:
    """Write results as a run of the shared task.

    Args:
        topics: qid, conversation_id, turn_number (all turns are written), and where there is one, qrewrite.
        results: qid, docno, score, rank.
        path: the file.
        depth: how many passages a turn are written.
    """
    top = results[results["rank"] < results["rank"].min() + depth] if len(results) else results
    found = {qid: dict(zip(rows["docno"], map(float, rows["score"]), strict=True)) for qid, rows in top.groupby("qid")}
    run = []
    for row in topics.to_dict("records"):
        number = str(row["conversation_id"])
        turn = {
            "Conversation_no": int(number) if number.isdecimal() else number,
            "Turn_no": int(row["turn_number"]),
            "Model_passages": found.get(row["qid"], {}),
        }
        if isinstance(row.get("qrewrite"), str):
            turn["Model_rewrite"] = row["qrewrite"]
        run.append(turn)
    write_json(Path(path), run)
