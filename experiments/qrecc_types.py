"""Question types of QReCC's test questions, from the published labels: Table 2's counts of Kim & Kim (2022).

    python experiments/qrecc_types.py --data qrecc-labels --out out/qrecc-types

Reads the judgments and the published question types, and counts what is left once questions without a gold passage
are dropped: 267 first, 573 switch, 279 no-switch. Then derives the types that follow from the structure alone (first =
NQ or TREC and t = 1; switch and no-switch together = NQ or TREC, t > 1, the question and the one before it both with
gold), and compares: 852.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from _common import arguments, say

from pt_convsearch.datasets import formats
from pt_convsearch.evaluation.report import write_results


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder qrecc-labels", quick="nothing: this takes seconds")
    options = parser.parse_args(argv)
    counts = count(options.data)
    print(counts.to_string(index=False))
    rows = [(row.source, row.label, "questions", float(row.n), row.n) for row in counts.itertuples()]
    write_results(
        options.out,
        pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"]),
        settings={"data": "qrecc-labels: test_question_types.json, qrels.txt"},
    )
    say(f"written to {options.out}")


def count(folder: Path) -> pd.DataFrame:
    """Counts of the published types, with and without questions that have no gold, and of the structural rule."""
    published = formats.read_json(folder / "test_question_types.json")
    judgments = formats.read_json(folder / "qrels.txt")
    judged = {qid: {docno for docno in golds if docno} for qid, golds in judgments.items()}
    with_gold = {qid for qid, golds in judged.items() if golds}
    rows = []
    for label in ("trec", "nq", "quac", "first", "switch", "no-switch"):
        qids = published[label]
        rows.append(("published", label, len(qids)))
        rows.append(("with a gold passage", label, len(with_gold & set(qids))))
    rows += [("judgments", "questions", len(judged)), ("judgments", "with a gold passage", len(with_gold))]

    later = [qid for qid in [*published["trec"], *published["nq"]] if qid in with_gold and turn(qid) > 1]
    rows.append(("structure", "switch or no-switch", sum(before(qid) in with_gold for qid in later)))
    rows.append(("structure", "no gold before", sum(before(qid) not in with_gold for qid in later)))
    first = [qid for qid in [*published["trec"], *published["nq"]] if turn(qid) == 1]
    rows.append(("structure", "first", len(first)))
    rows.append(("structure", "first with a gold passage", len(with_gold & set(first))))
    return pd.DataFrame(rows, columns=["source", "label", "n"])


def turn(qid: str) -> int:
    """The turn number in a QReCC qid, "31_10" -> 10."""
    return int(qid.rpartition("_")[2])


def before(qid: str) -> str:
    """The qid of the turn before."""
    conversation, _, number = qid.rpartition("_")
    return f"{conversation}_{int(number) - 1}"


if __name__ == "__main__":
    main()
