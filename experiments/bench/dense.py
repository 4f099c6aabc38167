"""Exact dense search: ours beside one FAISS call and pyterrier_dr's retrievers, in turns.

All search the same random vectors for the same queries; ours counts from query vectors to the finished frame. Times are
medians of interleaved runs, printed as ratios to FAISS's FlatIP in one call.

    python experiments/bench/dense.py --docs 200000 --queries 512 --threads 1
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=int, default=200_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time instead of the clock's")
    parser.add_argument("--out", type=Path, help="write system,queries,docs,k,seconds,ratio to this CSV file")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter

    with tempfile.TemporaryDirectory() as folder:
        systems = prepared(Path(folder), arguments)
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for repeat in range(arguments.repeats + 1):
            for name, run in systems.items():
                start = clock()
                run()
                if repeat:  # the first round reads the files and compiles
                    seconds[name].append(clock() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        {
            "system": name, "queries": arguments.queries, "docs": arguments.docs, "k": arguments.k,
            "seconds": round(value, 4), "ratio": round(value / medians["faiss FlatIP, one call"], 3),
        }
        for name, value in medians.items()
    ]  # fmt: skip
    print(pd.DataFrame(rows).to_string(index=False))
    if arguments.out is not None:
        with arguments.out.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def prepared(folder: Path, arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; building is not."""
    import faiss
    import torch
    from npids import Lookup

    import pt_convsearch as cs

    random = np.random.default_rng(arguments.seed)
    vectors = random.normal(size=(arguments.docs, arguments.dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = random.normal(size=(arguments.queries, arguments.dimensions)).astype(np.float32)
    records = ({"docno": f"d{number}", "doc_vec": vector} for number, vector in enumerate(vectors))
    index = cs.DenseIndex(folder / "x.flex").index(records)
    assert len(Lookup(folder / "x.flex" / "docnos.npids")) == arguments.docs
    faiss.omp_set_num_threads(arguments.threads)
    torch.set_num_threads(arguments.threads)
    flat = faiss.IndexFlatIP(arguments.dimensions)
    flat.add(vectors)
    topics = pd.DataFrame({
        "qid": [str(row) for row in range(len(queries))],
        "query": [f"question {row}" for row in range(len(queries))],
        "query_vec": list(queries),
    })  # fmt: skip
    ours = index.retriever(num_results=arguments.k, threads=arguments.threads)
    theirs = index.np_retriever(num_results=arguments.k)
    their_faiss = index.faiss_flat_retriever()
    return {
        "faiss FlatIP, one call": lambda: flat.search(queries, arguments.k),
        "pt_convsearch": lambda: ours(topics),
        "pyterrier_dr np": lambda: theirs(topics),
        "pyterrier_dr faiss_flat (k = 1000)": lambda: their_faiss(topics),
    }


if __name__ == "__main__":
    main()
