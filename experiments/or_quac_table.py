"""What BM25 needs of a conversation: OR-QuAC's table of Kim & Kim (2022), for any data set.

    python experiments/or_quac_table.py --dataset or-quac --out out/or_quac
    python experiments/or_quac_table.py --dataset testbed --quick --out out/or_quac_testbed

BM25 (k1 0.9, b 0.4) on the first question q_1, the current one q_t, all earlier questions Q_{t-1}, all questions Q_t,
and with the answers X_t and X_t\\q_t; MRR, R@5, R@10 and R@100 over all questions and by type, where there are types.
OR-QuAC's distributor replaced the first question of every conversation by its rewrite. Tests are against Q_t, Holm
over the forms. Writes results.csv, results.json and table.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from _common import BEGAN, say, temporary
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation.report import long_table, write_results

FORMS = {
    "q_1": cs.FIRST_QUESTION,
    "q_t": cs.CURRENT,
    "Q_{t-1}": cs.QUESTIONS - cs.CURRENT,
    "Q_t": cs.QUESTIONS,
    "X_t\\q_t": cs.X - cs.CURRENT,
    "X_t": cs.X,
    "rewrite": cs.REWRITE,
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="or-quac", metavar="NAME", help="or-quac (default), testbed, folder:DIR …")
    parser.add_argument("--split", default="test", choices=("train", "dev", "test"))
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the files go")
    parser.add_argument("--index", type=Path, metavar="DIR", help="where the index is kept; by default it is not")
    parser.add_argument("--k1", type=float, default=0.9)
    parser.add_argument("--b", type=float, default=0.4)
    parser.add_argument("--quick", action="store_true", help="the first 200 questions")
    options = parser.parse_args(argv)

    folder = options.dataset.startswith("folder:")
    data = (
        cs.dataset(options.dataset, split=options.split) if folder else cs.dataset(f"{options.dataset}/{options.split}")
    )
    topics, qrels = data.get_topics(), data.get_qrels()
    topics = topics[topics["qid"].isin(qrels["qid"])].reset_index(drop=True)
    topics = topics.head(200) if options.quick else topics
    with temporary() as scratch:
        path = options.index or Path(scratch) / "passages.bm25"
        index = cs.BM25Index(path) if path.is_dir() else cs.BM25Index(path).index(data.get_corpus_iter())
        say(f"{len(index):,} passages, {len(topics):,} questions")
        bm25 = index.bm25(num_results=100, k1=options.k1, b=options.b)
        rewrites = "qrewrite" in topics and topics["qrewrite"].notna().all()
        systems = {name: cs.form(parts) >> bm25 for name, parts in FORMS.items() if parts != cs.REWRITE or rewrites}
        table = cs.Experiment(
            systems, topics, qrels, [RR, R @ 5, R @ 10, R @ 100], by=_by(topics), baseline="Q_t", correction="holm"
        )
    write_results(
        options.out,
        long_table(table),
        settings={"dataset": options.dataset, "split": options.split, "k1": options.k1, "b": options.b,
                  "quick": options.quick, "questions": len(topics), "passages": len(index)},
        timings={"total": time.perf_counter() - BEGAN},
        more={"tests": table.tests.to_dict("records")},
    )  # fmt: skip
    text = cs.render(table)
    (options.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    say(f"written to {options.out}")


def _by(topics):  # type: ignore[no-untyped-def]
    """Question types where they are known, and t > 1 where turns are numbered."""
    labelled = ["qtype"] if "qtype" in topics and topics["qtype"].notna().any() else []
    later = [{"t > 1": (topics["turn_number"] > 1).to_numpy()}] if "turn_number" in topics else []
    return [*labelled, *later] or None


if __name__ == "__main__":
    main()
