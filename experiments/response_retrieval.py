"""Full-rank retrieval of responses: sparse, expanded and dense, and why harder negatives can hurt (Penha & Hauff).

    python experiments/response_retrieval.py --data irc-dialogues --out out/responses --quick
    python experiments/response_retrieval.py --data irc-dialogues --out out/responses --rows bm25,rm3,resp2ctxt
    python experiments/response_retrieval.py --data MANtIS --dataset mantis --split test --paper --out out/mantis

Given a dialogue so far, find the response that followed among all responses of the training split and of the one that
is searched. One row each, a row that is done is not run again, and the tables show the rows there are. Two judgments:
"own-id", relevant is the response that followed (R@k); "equal-text", every response of equal text is (Success@k, the
paper's). Beside full rank stands R_n@k: the response among n-1 random ones. Settings and checkpoints are chosen on
training dialogues that are held out, never on the split that is searched. ``--paper`` takes the paper's settings, for
a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
from _common import say
from _responses import ROWS, Bench
from ir_measures import AP, RR, R, Success
from tabulate import tabulate

import pt_convsearch as cs
from pt_convsearch._files import write_json, writing_text
from pt_convsearch.evaluation import superscripts
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.measures import read_run, write_run
from pt_convsearch.negatives._fingerprint import digest

#: what --quick and --paper set where the command line says nothing else; the full run of a small machine otherwise
DEFAULTS: dict[str, tuple[Any, Any, Any]] = {  # full, quick, paper
    "encoder": ("sentence-transformers/all-MiniLM-L6-v2",) * 2 + ("bert-base-uncased",),
    "layers": (3, 2, 0), "steps": (300, 20, 10_000), "batch_size": (16, 16, 5), "negatives": (2, 1, 10),
    "learning_rate": (1e-4, 1e-4, 2e-5), "eval_every": (50, 10, 100), "max_query_length": (128, 64, 384),
    "max_passage_length": (48, 32, 128), "seq2seq_init": (None, None, "t5-base"), "seq2seq_layers": (3, 2, 0),
    "seq2seq_steps": (1000, 30, None), "seq2seq_batch_size": (16, 16, 5), "seq2seq_learning_rate": (3e-4, 3e-4, 2e-5),
    "target_length": (96, 24, 400), "target_length_lu": (32, 16, 100), "query_characters": (None, None, 512),
    "train_contexts": (None, 800, None), "test_contexts": (None, 150, None), "held_out": (300, 60, 500),
    "similarity": (None, None, "dot"), "scale": (20.0, 20.0, 20.0), "depth": (1000, 100, 1000),
}  # fmt: skip


def main(argv: list[str] | None = None) -> None:
    options = parsed(argv)
    bench = loaded(options)
    say(f"{len(bench.topics):,} contexts, {len(bench.corpus):,} responses, {len(bench.train):,} contexts to train on")
    for name in options.rows:
        run_row(bench, name)
    write_tables(bench)


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="the folder of the collection's files")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--dataset", default="irc", help="irc, mantis, msdialog, udc … (as in cs.dataset)")
    parser.add_argument("--split", default="dev", help="what is searched; another name of the collection's own")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"which rows to run: {', '.join(ROWS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a cut of the data and few steps: minutes, not for claims")
    parser.add_argument("--paper", action="store_true", help="the paper's models and hyper-parameters (a GPU)")
    parser.add_argument("--external", type=Path, help="E5: responses of other conversations, JSON Lines of docno, text")
    parser.add_argument("--generator", help="the model that writes E6's negatives; by default one is trained")
    parser.add_argument("--init", help="start of the fine-tuning: what cs.train made of MS MARCO, say")
    parser.add_argument("--pooling", choices=["mean", "cls"], help="of an encoder that does not say")
    parser.add_argument("--num-candidates", type=int, default=10, help="n of R_n@k")
    for name, (full, quick, paper) in DEFAULTS.items():
        kind = next((type(value) for value in (full, quick, paper) if value is not None), int)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=f"{full}; quick: {quick}; paper: {paper}")
    options = parser.parse_args(argv)
    chosen = 2 if options.paper else 1 if options.quick else 0
    for name, values in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, values[chosen])
    options.rows = [name.strip() for name in options.rows.split(",") if name.strip()]
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"no row is called {unknown[0]!r}: {', '.join(ROWS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def loaded(options: argparse.Namespace) -> Bench:
    """The collection, its training contexts, and the dialogues among these that are held out."""
    given = {"path": options.data, "duplicates": "own-id"}
    # the collection as in the paper, duplicates across splits included; none of them is trained on
    data = cs.dataset(f"{options.dataset}/{options.split}", collection="train+split", leaks="keep", **given)
    training = cs.dataset(f"{options.dataset}/train", **given)
    topics, corpus = data.get_topics(), list(data.get_corpus_iter())
    task = training.task()
    order = task.topics["conversation_id"].map(lambda name: hashlib.blake2b(str(name).encode()).hexdigest())
    train = task.topics.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
    held = train["conversation_id"].isin(train["conversation_id"].iloc[: options.held_out])
    held_out, train = train[held].reset_index(drop=True), train[~held].reset_index(drop=True)
    train = train if options.train_contexts is None else train.iloc[: options.train_contexts].reset_index(drop=True)
    if options.test_contexts is not None:
        some = topics.sample(min(options.test_contexts, len(topics)), random_state=1)
        topics = some.sort_index().reset_index(drop=True)
        asked = set(data.get_qrels().query("qid in @topics.qid")["docno"]) | set(held_out["qid"]) | set(train["qid"])
        corpus = [document for document in corpus if document["docno"] in asked]
    kept = {document["docno"] for document in corpus} | set(train["qid"])
    qrels = data.get_qrels()
    qrels = qrels[qrels["qid"].isin(topics["qid"])].reset_index(drop=True)
    return Bench(
        options, topics, qrels, corpus, train, held_out, task.qrels, [d for d in task.corpus if d["docno"] in kept],
        cs.candidate_lists(topics, qrels, corpus, num_candidates=options.num_candidates, seed=1),
    )  # fmt: skip


def run_row(bench: Bench, name: str) -> None:
    """Run a row, unless its rankings are there and were made with the same settings."""
    settings = {key: value for key, value in vars(bench.options).items() if key not in ("rows", "out", "data")}
    settings = json.loads(json.dumps({**settings, "data": digest([bench.topics[["qid"]], bench.corpus])}, default=str))
    done = bench.out / "rows" / f"{name}.json"
    if done.is_file() and json.loads(done.read_text(encoding="utf-8"))["settings"] == settings:
        say(f"{name}: done before")
        return
    began = time.perf_counter()
    bench.notes = {}
    try:
        run, candidates = ROWS[name][0](bench)
    except FileNotFoundError as error:
        if name != "e5-bm25":
            raise
        say(f"{name}: not run, {error}")
        return
    for kind, ranking in (("runs", run), ("candidates", candidates)):
        write_run(ranking[["qid", "docno", "rank", "score"]], bench.out / kind / f"{name}.res.gz", tag=name)
    notes = {"settings": settings, "seconds": round(time.perf_counter() - began, 1), **bench.notes}
    write_json(done, notes)
    say(f"{name}: {bench.notes}")


def write_tables(bench: Bench) -> None:
    """The tables of the rows there are: full rank by both judgments, and the candidates."""
    out, title = bench.out, {name: text for name, (_, text) in ROWS.items()}
    there = [name for name in ROWS if (out / "rows" / f"{name}.json").is_file()]
    texts: dict[str, list[str]] = {}
    for document in bench.corpus:
        texts.setdefault(document["text"], []).append(document["docno"])
    text_of = {document["docno"]: document["text"] for document in bench.corpus}
    own = list(zip(bench.qrels["qid"], bench.qrels["docno"], strict=True))
    copies = [(qid, copied, 1) for qid, docno in own for copied in texts[text_of[docno]]]
    equal = pd.DataFrame(copies, columns=["qid", "docno", "label"])
    n = bench.options.num_candidates
    asked = [
        ("own-id", "runs", bench.qrels, {"R@1": R @ 1, "R@10": R @ 10, "RR": RR}),
        ("equal-text", "runs", equal, {"Success@1": Success @ 1, "Success@10": Success @ 10, "RR": RR}),
        ("candidates", "candidates", bench.qrels, {f"R_{n}@1": R @ 1, f"R_{n}@2": R @ 2, f"R_{n}@5": R @ 5, "MAP": AP}),
    ]
    rows, parts = [], []
    for judgment, kind, qrels, measures in asked:
        runs = {title[name]: read_run(out / kind / f"{name}.res.gz") for name in there}
        values = cs.Experiment(runs, bench.topics, qrels, list(measures.values()), perquery=True)
        named = {str(measure): name for name, measure in measures.items()}
        values["measure"] = values["measure"].map(named)
        table = values.pivot_table("value", "name", "measure", sort=False).round(3)
        table = superscripts(values) if len(runs) > 1 else table
        parts.append(f"### {judgment}\n\n{tabulate(table, headers='keys', tablefmt='pipe', disable_numparse=True)}\n")
        for (name, measure), value in values.groupby(["name", "measure"], sort=False)["value"]:
            rows.append((name, judgment, measure, float(value.mean()), len(value)))
    missing = [title[name] for name in ROWS if name not in there]
    note = (
        f"n = {len(bench.topics):,} contexts, {len(bench.corpus):,} responses, seed {bench.options.seed}; bi-encoders: "
        f"{bench.options.layers or 'all'} layers of {bench.options.encoder}. Letters: "
        "significantly better than these rows (paired t-test, 0.95, Bonferroni over all pairs of rows of a measure). "
        + (f"Not run here: {'; '.join(missing)}." if missing else "")
    )
    with writing_text(out / "tables.md") as handle:
        handle.write("\n".join([*parts, note, ""]))
    print("\n".join([*parts, note]))
    notes = {name: json.loads((out / "rows" / f"{name}.json").read_text(encoding="utf-8")) for name in there}
    seconds = {name: note["seconds"] for name, note in notes.items()}
    settings = {key: value for key, value in vars(bench.options).items() if key != "out"}
    frame = pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"])
    write_results(out, frame, settings={key: str(value) for key, value in settings.items()}, timings=seconds)
    write_sheet(bench)


def write_sheet(bench: Bench) -> None:
    """E1: the sheet on which negatives of each sampler are judged, once; and the rates, as far as it is filled."""
    samplers = {
        name: cs.TrainingPairs(bench.out / "pairs" / name)
        for name in ("random", "bm25-negatives", "dense-negatives", "e2-bm25", "e2-dense", "e6-generated")
        if (bench.out / "pairs" / name).is_dir()
    }
    sheet = bench.out / "e1-sheet.csv"
    if samplers and not sheet.exists():
        cs.annotation_sheet(samplers, sheet, num_items=50, seed=bench.options.seed)
    if sheet.exists():
        rates = cs.false_negative_rates(sheet)
        if rates["judged"].sum():
            print(rates.to_string(index=False))
        else:
            say(f"E1: fill in {sheet} and run again for the rates of false negatives")


if __name__ == "__main__":
    main()
