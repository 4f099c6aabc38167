"""Evaluation over arrays beside ir_measures, in one run: seconds, ratio, and the largest difference of any value.

A random run and graded judgments; both get PyTerrier's frames (qid, docno, score, rank), best first, without ties.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import AP, RR, Measure, P, R, Success, nDCG

from pt_convsearch.measures import evaluate

SETS: dict[str, list[Measure]] = {
    "conversational search": [RR, R @ 5, R @ 10, R @ 100],
    "graded": [nDCG @ 3, nDCG @ 10, AP(rel=2), P @ 5, Success @ 10, RR @ 10],
}


def random_run(questions: int, depth: int, docs: int, judged: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A run of ``depth`` distinct documents per question, and ``judged`` judgments, half of them in the run."""
    random = np.random.default_rng(seed)
    names = np.array([f"clueweb22-en{number:09d}" for number in range(docs)], dtype=object)
    qids = np.array([f"{number // 6}_{number % 6 + 1}" for number in range(questions)], dtype=object)
    start, step = random.integers(docs, size=(questions, 1)), random.integers(1, docs // depth, size=(questions, 1))
    found = (start + step * np.arange(depth)) % docs
    scores = -np.sort(-random.random((questions, depth)), axis=1) - np.arange(depth)
    run = pd.DataFrame(
        {
            "qid": pd.array(np.repeat(qids, depth), dtype="str"),
            "docno": pd.array(names[found.ravel()], dtype="str"),
            "score": scores.ravel(),
            "rank": np.tile(np.arange(depth), questions),
        }
    )
    inside = found[np.arange(questions)[:, None], random.integers(depth, size=(questions, (judged + 1) // 2))]
    outside = random.integers(docs, size=(questions, judged // 2))
    golds = np.concatenate([inside, outside], axis=1)
    qrels = pd.DataFrame(
        {
            "qid": np.repeat(qids, golds.shape[1]),
            "docno": names[golds.ravel()],
            "label": random.integers(0, 4, size=golds.size),
        }
    )
    return run, qrels.drop_duplicates(["qid", "docno"]).reset_index(drop=True)


def by_ir_measures(run: pd.DataFrame, qrels: pd.DataFrame, measures: list[Measure]) -> pd.DataFrame:
    """Per-query values of ir_measures, from the same frames."""
    metrics = ir_measures.iter_calc(measures, pt.model.to_ir_measures(qrels), pt.model.to_ir_measures(run))
    rows = [(metric.query_id, str(metric.measure), metric.value) for metric in metrics]
    return pd.DataFrame(rows, columns=["qid", "measure", "value"]).pivot(index="qid", columns="measure", values="value")


def seconds(action: Callable[[], pd.DataFrame]) -> tuple[float, pd.DataFrame]:
    """How long it took, and what it gave."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--questions", type=int, default=16_451, help="questions (default: as many as QReCC's test turns)"
    )
    parser.add_argument("--depth", type=int, default=1000, help="results per question (default 1000)")
    parser.add_argument("--docs", type=int, default=1_000_000, help="documents in the collection (default 1,000,000)")
    parser.add_argument("--judged", type=int, default=2, help="judgments per question (default 2)")
    parser.add_argument(
        "--repeats", type=int, default=1, help="rounds, ours and theirs in turn; medians are shown (default 1)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures as CSV")
    arguments = parser.parse_args()
    run, qrels = random_run(arguments.questions, arguments.depth, arguments.docs, arguments.judged, arguments.seed)
    print(f"{arguments.questions:,} questions x {arguments.depth:,} results, {len(qrels):,} judgments")
    rows = []
    for name, measures in SETS.items():
        ours, theirs, difference = [], [], 0.0
        for _ in range(arguments.repeats):
            took, mine = seconds(lambda measures=measures: evaluate(run, qrels, measures))  # type: ignore[misc]
            ours.append(took)
            took, other = seconds(lambda measures=measures: by_ir_measures(run, qrels, measures))  # type: ignore[misc]
            theirs.append(took)
            difference = max(difference, float((mine - other.loc[mine.index, mine.columns]).abs().to_numpy().max()))
        row = {
            "measures": name,
            "ours_s": round(statistics.median(ours), 3),
            "ir_measures_s": round(statistics.median(theirs), 3),
            "ratio": round(statistics.median(theirs) / statistics.median(ours), 2),
            "max_abs_difference": difference,
        }
        rows.append(row)
        print(
            f"{name} ({', '.join(map(str, measures))}): ours {row['ours_s']} s, ir_measures {row['ir_measures_s']} s, "
            f"{row['ratio']} times as fast, largest difference {difference:.1e}"
        )
    if arguments.out:
        pd.DataFrame(rows).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
