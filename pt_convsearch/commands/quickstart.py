"""``quickstart``: the shortcut made visible on the embedded testbed, in a few minutes and without a network."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt_convsearch._files import check_folder, written

if TYPE_CHECKING:
    from pt_convsearch.evaluation.study import Engine


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "quickstart",
        help="build the testbed, search it with and without the question, print the table",
        description="Builds the embedded testbed, indexes it with BM25 and, where pt-convsearch[minilm] is there, "
        "with all-MiniLM-L6-v2, searches with X_t, X_t\\q_t, q_t and other forms, prints the table by question type "
        "and the shortcut dependence, and writes results.csv, results.json and shortcut.png.",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where results.csv … go")
    parser.add_argument("--size", type=int, default=150, metavar="N", help="test conversations (default 150)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the testbed and of the control (default 1)")
    parser.add_argument("--no-dense", action="store_true", help="leave the dense rows out")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; prints the table to stdout and progress to stderr."""
    from ir_measures import RR, R

    import pt_convsearch as cs
    from pt_convsearch.evaluation import plots
    from pt_convsearch.evaluation.study import shortcut_study

    def say(text: str) -> None:
        if not arguments.quiet:
            print(f"[{time.perf_counter() - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    check_folder(arguments.out, "--out")
    if arguments.size < 1:
        raise ValueError(f"--size {arguments.size} conversations: give at least 1")
    began = time.perf_counter()
    timings: dict[str, float] = {}
    options: dict[str, Any] = {"conversations": arguments.size, "seed": arguments.seed}
    data = cs.dataset("testbed", **options)
    topics, qrels = data.get_topics(), data.get_qrels()
    passages = sum(1 for _ in data.get_corpus_iter())
    say(f"testbed: {arguments.size:,} conversations, {len(topics):,} questions, {passages:,} passages")
    timings["testbed"] = time.perf_counter() - began

    with tempfile.TemporaryDirectory(prefix="convsearch-") as folder:
        engines = [_bm25(Path(folder), data, timings)]
        say("indexed with BM25")
        missing = None
        if not arguments.no_dense:
            try:
                engines.append(_dense(Path(folder), data, timings, verbose=not arguments.quiet))
                say("encoded with all-MiniLM-L6-v2")
            except ImportError as error:
                missing = str(error)
        control = "swapped" if arguments.size > 1 else None  # a question of another conversation, if there is one
        study = shortcut_study(
            engines, topics, qrels, [RR, R @ 5, R @ 10, R @ 100], control=control, seed=arguments.seed, on_step=say
        )
    timings["total"] = time.perf_counter() - began

    settings = {"data": "convsearch:testbed", "passages": passages, "questions": len(topics), **options}
    study.write(arguments.out, settings=settings, timings=timings)
    shown = [f"{engine.name} {form}" for engine in engines for form in ("X_t", "X_t\\q_t", "q_t")]
    figure = plots.bars(study.table.loc[shown], measure=R @ 10)
    with written(arguments.out / "shortcut.png") as temporary:
        figure.savefig(temporary, dpi=150, format="png")

    print(cs.render(study.table, "text"))
    print()
    print("Shortcut dependence: does the retriever need the question at all?")
    print(cs.render(study.dependence_table(), "text"))
    if missing:
        print(f"\nThe dense rows are left out. {missing}")
    print(f"\nWritten to {arguments.out}: {', '.join(sorted(path.name for path in arguments.out.glob('*.*')))}")
    say("done")
    return 0


def _bm25(folder: Path, data: Any, timings: dict[str, float]) -> Engine:
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import Engine

    start = time.perf_counter()
    index = cs.BM25Index(folder / "passages.bm25").index(data.get_corpus_iter())
    timings["index BM25"] = time.perf_counter() - start
    return Engine("BM25", index.bm25(num_results=100))


def _dense(folder: Path, data: Any, timings: dict[str, float], *, verbose: bool) -> Engine:
    import pt_convsearch as cs
    from pt_convsearch.dense import minilm_path
    from pt_convsearch.evaluation.study import dense_engine

    start = time.perf_counter()
    encoder = cs.BiEncoder(minilm_path(), verbose=verbose)
    index = cs.DenseIndex(folder / "passages.flex", encoder).index(data.get_corpus_iter())
    timings["index dense"] = time.perf_counter() - start
    return dense_engine("MiniLM", index.retriever(num_results=100), encoder)
