"""Full-rank retrieval of responses: sparse, expanded and dense, and why harder negatives can hurt (Penha & Hauff).

    python experiments/response_retrieval.py --data irc-dialogues --out out/responses --quick
    python experiments/response_retrieval.py --data irc-dialogues --out out/responses --rows bm25,rm3,resp2ctxt
    python experiments/response_retrieval.py --data MANtIS --dataset mantis --split test --paper --out out/mantis

Given a dialogue so far, find the response that followed among all responses of the training split and of the one that
is searched. One row each and seed; a row that is done is not run again unless an option that it depends on changed, and
the tables show the rows there are, means over the seeds.  Two judgments:
"own-id", relevant is the response that followed (R@k); "equal-text", every response of equal text is (Success@k, the
paper's). Beside full rank stands R_n@k: the response among n-1 random ones. Settings and checkpoints are chosen on
training dialogues that are held out, never on the split that is searched. ``--paper`` takes the paper's settings, for
a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import traceback
from pathlib import Path
from typing import Any

import pandas as pd
from _common import say
from _response_bench import Bench, NotThere
from _response_tables import write_tables
from _responses import ROWS

import pt_convsearch as cs
from pt_convsearch.negatives._fingerprint import digest

#: what --quick and --paper set where the command line says nothing else; the full run of a small machine otherwise
DEFAULTS: dict[str, tuple[Any, Any, Any]] = {  # full, quick, paper
    "encoder": ("sentence-transformers/all-MiniLM-L6-v2",) * 2 + ("bert-base-uncased",),
    "layers": (0, 2, 0), "steps": (200, 20, 10_000), "batch_size": (16, 16, 5), "negatives": (1, 1, 10),
    "pool": (10, 10, 10), "reranked": (20, 10, 100),
    "learning_rate": (5e-5, 1e-4, 2e-5), "eval_every": (50, 10, 100), "max_query_length": (64, 64, 384),
    "max_passage_length": (32, 32, 128), "seq2seq_init": (None, None, "t5-base"), "seq2seq_layers": (2, 2, 0),
    "seq2seq_steps": (250, 30, None), "seq2seq_batch_size": (16, 16, 5), "seq2seq_learning_rate": (3e-4, 3e-4, 2e-5),
    "target_length": (16, 16, 400), "target_length_lu": (16, 16, 100), "query_characters": (None, None, 512),
    "train_contexts": (2000, 800, None), "test_contexts": (None, 150, None), "held_out": (100, 60, 500),
    "similarity": (None, None, "dot"), "scale": (20.0, 20.0, 20.0), "depth": (100, 100, 1000),
}  # fmt: skip


def main(argv: list[str] | None = None) -> None:
    options = parsed(argv)
    bench = loaded(options)
    say(f"{len(bench.topics):,} contexts, {len(bench.corpus):,} responses, {len(bench.train):,} contexts to train on")
    if options.dry_run:
        show_plan(bench)
        return
    failed = []
    for seed in options.seeds:
        for name in options.rows:
            if ROWS[name].seeded or seed == options.seeds[0]:
                try:
                    run_row(bench, name, seed)
                except Exception:  # the other rows are worth their hours
                    traceback.print_exc()
                    failed.append(f"{name}, seed {seed}")
    write_tables(bench)
    if failed:
        raise SystemExit(f"failed, see above: {'; '.join(failed)}")


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder of the collection's files")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--dataset", default="irc", help="irc, mantis, msdialog, udc, or another name of cs.dataset")
    parser.add_argument("--split", help="whose responses are searched for; dev of irc, test of the others")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"which rows to run: {', '.join(ROWS)}")
    parser.add_argument("--seeds", default="1", help="one or more, e.g. 1,2,3; rows without chance are run once")
    parser.add_argument("--quick", action="store_true", help="a cut of the data and few steps: minutes, not for claims")
    parser.add_argument("--paper", action="store_true", help="the paper's models and hyper-parameters (a GPU)")
    parser.add_argument("--external", help="E5: other responses, JSON Lines of docno, text; else the other utterances")
    parser.add_argument("--generator", help="the model that writes E6's negatives; by default one is trained")
    parser.add_argument("--init", help="start of the fine-tuning: what cs.train made of MS MARCO, say")
    parser.add_argument("--pooling", choices=["mean", "cls"], help="of an encoder that does not say")
    parser.add_argument("--num-candidates", type=int, default=10, help="n of R_n@k, where candidates are drawn")
    parser.add_argument(
        "--candidates", choices=["random", "given"], default="random",
        help="given: those that come with the contexts (DSTC8's hundred, say); they are put into the collection",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="read the data, say what would be run, and stop")
    for name, (full, quick, paper) in DEFAULTS.items():
        kind = next((type(value) for value in (full, quick, paper) if value is not None), int)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{full}; quick: {quick}; paper: {paper}")
    options = parser.parse_args(argv)
    chosen = 2 if options.paper else 1 if options.quick else 0
    for name, values in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, values[chosen])
    options.dataset = {"udc": "udc-dstc8"}.get(options.dataset, options.dataset)
    options.split = options.split or ("dev" if options.dataset == "irc" else "test")
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.rows = [name.strip() for name in options.rows.split(",") if name.strip()]
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"no row is called {unknown[0]!r}: {', '.join(ROWS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    return options


#: how the paper's code reads the collections
PAPER_DATA: dict[str, dict[str, str]] = {
    "mantis": {"mode": "paper"},
    "udc-dstc8": {"no_answer": "drop", "correct": "first"},
}


def loaded(options: argparse.Namespace) -> Bench:
    """The collection, its training contexts, and the dialogues among these that are held out."""
    given: dict[str, Any] = {"path": options.data, "duplicates": "own-id"}
    given |= PAPER_DATA.get(options.dataset, {}) if options.paper else {}
    # the collection as in the paper, duplicates across splits included; none of them is trained on
    data = cs.dataset(f"{options.dataset}/{options.split}", collection="train+split", leaks="keep", **given)
    training = cs.dataset(f"{options.dataset}/train", **given)
    topics, qrels, corpus = data.get_topics(), data.get_qrels(), list(data.get_corpus_iter())
    topics = topics[topics["qid"].isin(qrels["qid"])].reset_index(drop=True)
    task = training.task()
    dialogues = task.topics[task.topics["qid"].isin(task.qrels["qid"])]
    order = dialogues["conversation_id"].map(lambda name: hashlib.blake2b(str(name).encode()).hexdigest())
    dialogues = dialogues.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
    held = dialogues["conversation_id"].isin(dialogues["conversation_id"].drop_duplicates().iloc[: options.held_out])
    held_out, dialogues = dialogues[held].reset_index(drop=True), dialogues[~held].reset_index(drop=True)
    if not len(dialogues):
        raise SystemExit(f"all {len(held_out)} training contexts are held out: give a smaller --held-out")
    some = len(dialogues) if options.train_contexts is None else options.train_contexts
    train = dialogues.iloc[:some].reset_index(drop=True)
    if options.quick:
        dialogues = train
    if options.test_contexts is not None:
        sampled = topics.sample(min(options.test_contexts, len(topics)), random_state=1)
        topics = sampled.sort_index().reset_index(drop=True)
        asked = pd.concat([topics["qid"], held_out["qid"], train["qid"]])
        judged = pd.concat([qrels, task.qrels])
        kept = set(judged.loc[judged["qid"].isin(asked), "docno"])
        corpus = [document for document in corpus if document["docno"] in kept]
    qrels = qrels[qrels["qid"].isin(topics["qid"])].reset_index(drop=True)
    if options.candidates == "given":
        candidates = data.candidates()
        candidates = candidates[candidates["qid"].isin(topics["qid"])].reset_index(drop=True)
        options.num_candidates = int(candidates.groupby("qid").size().max())
        known = {document["docno"] for document in corpus}
        others = candidates[~candidates["docno"].isin(known)].drop_duplicates("docno")
        corpus += others[["docno", "text"]].to_dict("records")
    else:
        candidates = cs.candidate_lists(topics, qrels, corpus, num_candidates=options.num_candidates, seed=1)
    judged = task.qrels[task.qrels["qid"].isin(dialogues["qid"])]
    kept = {document["docno"] for document in corpus} | set(judged["docno"])
    return Bench(
        options, topics, qrels, corpus, dialogues, train, held_out, task.qrels,
        [document for document in task.corpus if document["docno"] in kept], candidates, ROWS,
        data=digest([topics[["qid", "query"]], corpus, held_out[["qid"]], train[["qid"]]]),
    )  # fmt: skip


def show_plan(bench: Bench) -> None:
    """What would be run, with all settings."""
    print(f"contexts {len(bench.topics)}, responses {len(bench.corpus)}, candidates {len(bench.candidates)}")
    print(f"training contexts {len(bench.train)} (of {len(bench.dialogues)}), held out {len(bench.held_out)}")
    for name in bench.options.rows:
        row = ROWS[name]
        print(f"{name}: {row.title}; seeds {bench.options.seeds if row.seeded else '-'}")
        for option, value in bench.settings(row, bench.options.seeds[0]).items():
            print(f"    {option}: {value}")


def run_row(bench: Bench, name: str, seed: int) -> None:
    """Run a row, unless its rankings are there and were made with the same settings."""
    row = ROWS[name]
    bench.seed, bench.notes = seed, {}

    def work() -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        began, processor = time.perf_counter(), time.process_time()
        run, candidates = row.work(bench)
        columns = ["qid", "docno", "rank", "score"]
        times = {"seconds": time.perf_counter() - began, "processor seconds": time.process_time() - processor}
        facts = {**{key: round(value, 1) for key, value in times.items()}, "notes": bench.notes}
        return facts, {"run": run[columns], "candidates": candidates[columns]}

    try:
        bench.rows.run(name, seed if row.seeded else 0, bench.settings(row, seed), work)
    except NotThere as error:
        say(f"{name}, seed {seed}: left out, {error}")


if __name__ == "__main__":
    main()
