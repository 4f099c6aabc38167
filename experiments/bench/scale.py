"""What scale costs on this machine: encoding, BM25 and dense search by size, by workers and by number of shards.

Each step runs in a process of its own, so that its peak memory is its own. Passages are those of the testbed, streamed;
vectors are random. Seconds are the processor's, of all threads and processes that do the work, so that other work on
the machine does not count; what is compared is run in turns. The figures go to a JSON file that ``python -m
pt_convsearch scale plan --figures FILE`` reads; a file that is there keeps the figures of other steps and sizes.

    python experiments/bench/scale.py --passages 20000 40000 --encode 400 --out figures.json       # a few minutes
    python experiments/bench/scale.py --passages 1000000 2000000 --encode 50000 100000 --queries 500 --out figures.json
    python experiments/bench/scale.py --passages --vectors 500000 2000000 --kinds --queries 500 --out figures.json
    python experiments/bench/scale.py --passages --pisa 2000000 --stream 2000000 --queries 32 --out figures.json
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SEED = 1
#: what tells the rows of a step apart
_WHICH = ("passages", "system", "queries", "terms", "kind", "shards", "what", "workers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="*", default=[20_000, 40_000], help="sizes for BM25")
    parser.add_argument("--vectors", type=int, nargs="*", help="sizes for dense search (default: those of --passages)")
    parser.add_argument("--pisa", type=int, nargs="*", default=[], help="sizes for BM25 beside PISA (default: none)")
    parser.add_argument("--stream", type=int, nargs="*", default=[], help="sizes to stream into BM25 shards (none)")
    parser.add_argument("--encode", type=int, nargs="*", default=[], help="sizes for encoding (default: none)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="Ray workers for encoding")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--layers", type=int, help="of the model, the first ones alone")
    parser.add_argument("--random", type=int, metavar="DIM", help="a random BERT of two layers, DIM dimensions")
    parser.add_argument("--plain", type=int, nargs="*", help="sizes to encode by plain processes too (default: all)")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--terms", type=int, default=470, help="terms of a BM25 query, repeats included")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--kinds", nargs="*", help="kinds of FAISS shards to measure the recall of (default: four)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the indexes (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--note", default="", help="what is to be known of the machine, say that it had other work too")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, size, folder = json.loads(arguments.step)
        print("\n" + json.dumps(STEPS[step](size, Path(folder), arguments)))
        return
    vectors = arguments.passages if arguments.vectors is None else arguments.vectors
    sizes = {"bm25": arguments.passages, "dense": vectors, "pisa": arguments.pisa, "stream": arguments.stream}
    todo: list[tuple[str, Any]] = [(step, size) for step, of_step in sizes.items() for size in of_step]
    todo += [("encode", sorted(arguments.encode))] if arguments.encode else []
    for step, size in todo:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            figures = child(step, size, folder)
        for name, rows in figures.items():
            print(f"\n{name}\n{pd.DataFrame(rows).to_string(index=False)}", flush=True)
        if arguments.out is not None:
            keep(arguments.out, figures, arguments.note)


def keep(path: Path, figures: dict[str, list[dict[str, Any]]], note: str = "") -> None:
    """Put rows in the place of those of the same step, size and system; the others stay."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": {}}
    for name, rows in figures.items():
        new = {tuple(row.get(key) for key in _WHICH) for row in rows}
        old = [row for row in known["runs"].get(name, []) if tuple(row.get(key) for key in _WHICH) not in new]
        known["runs"][name] = sorted([*old, *rows], key=lambda row: row["passages"])
    said = machine() + (f"; {note}" if note else "")
    known = {"machine": said, "when": time.strftime("%Y-%m-%d"), "runs": known["runs"]}
    from pt_convsearch._files import writing_text

    with writing_text(path) as handle:  # rows of other runs are nowhere else
        handle.write(json.dumps(known, indent=1) + "\n")


def child(step: str, size: Any, folder: str) -> dict[str, list[dict[str, Any]]]:
    """Run a step in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--step", json.dumps([step, size, folder])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB; seconds of the processor, not the clock"


def peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


class Memory(threading.Thread):
    """The most memory that this process had for itself, files that it mapped aside, looked at 20 times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.start()

    def run(self) -> None:
        while True:
            self.peak_mb()
            time.sleep(0.05)

    def peak_mb(self) -> float:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        self.peak = max(self.peak, int(status.partition("RssAnon:")[2].split()[0]) / 1024)
        return round(self.peak, 1)


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def interleaved(systems: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each, in turns, after one round that is not counted; the processor's time of all threads."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for repeat in range(repeats + 1):
        for name, run in systems.items():
            start = time.process_time()
            run()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def bm25(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One index, and the same passages in shards: building, bytes, memory, milliseconds per query."""
    import pt_convsearch as cs

    data = cs.dataset("testbed", passages=size, seed=SEED)
    topics = queries(itertools.islice(data.get_corpus_iter(), 5_000), arguments.queries, arguments.terms)
    start = time.process_time()
    one = cs.BM25Index(folder / f"{size}.bm25").index(itertools.islice(data.get_corpus_iter(), size))
    seconds = time.process_time() - start
    built_peak = peak_mb()
    systems: dict[str, Any] = {"one index": one.bm25(num_results=arguments.k, threads=1)}
    for shards in arguments.shards:
        index = cs.scale.ShardedIndex(
            folder / f"{size}-{shards}.shards", passages_per_shard=-(-size // shards), threads=1
        )
        index.index(itertools.islice(data.get_corpus_iter(), size))
        systems[f"{shards} shards"] = index.bm25(num_results=arguments.k, threads=1)
    expected = systems["one index"](topics)
    for retriever in systems.values():
        pd.testing.assert_frame_equal(expected, retriever(topics))
    medians = interleaved({name: (lambda r=r: r(topics)) for name, r in systems.items()}, arguments.repeats)
    rows = [
        {
            "passages": size, "system": name, "queries": len(topics), "terms": arguments.terms, "k": arguments.k,
            "ms_per_query": round(1000 * value / len(topics), 3), "to_one": round(value / medians["one index"], 3),
        }
        for name, value in medians.items()
    ]  # fmt: skip
    row = {
        "passages": size, "seconds": round(seconds, 2), "passages_per_s": round(size / seconds),
        "bytes": folder_bytes(folder / f"{size}.bm25"), "peak_mb": built_peak, "peak_mb_after_search": peak_mb(),
    }  # fmt: skip
    return {"bm25_index": [row], "bm25_search": rows[:1], "bm25_shards": rows}


def queries(passages: Any, count: int, terms: int, left_out: frozenset[str] = frozenset()) -> pd.DataFrame:
    """Windows over the passages' text, as long as conversations."""
    words = " ".join(passage["text"] for passage in passages).split()
    words = [word for word in words if word.lower() not in left_out] if left_out else words
    random = np.random.default_rng(SEED)
    starts = random.integers(0, max(1, len(words) - terms), count)
    texts = [" ".join(words[start : start + terms]) for start in starts]
    return pd.DataFrame({"qid": [str(i) for i in range(count)], "query": texts})


def dense(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Exact search over random vectors in one index and in shards; recall of smaller kinds of shards."""
    import pt_convsearch as cs

    memory = Memory()
    random = np.random.default_rng(SEED)

    def passages() -> Any:
        stream = np.random.default_rng(SEED + 1)
        for start in range(0, size, 10_000):
            block = stream.normal(size=(min(10_000, size - start), arguments.dim)).astype(np.float32)
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            yield from ({"docno": f"d{start + i}", "doc_vec": vector} for i, vector in enumerate(block))

    vectors = random.normal(size=(arguments.queries, arguments.dim)).astype(np.float32)
    qids = [str(i) for i in range(arguments.queries)]
    topics = pd.DataFrame({"qid": qids, "query": ["?"] * len(qids), "query_vec": list(vectors)})
    index: Any = None
    systems: dict[str, Any] = {}
    built = {}
    for shards in [0, *arguments.shards]:
        name = f"{shards} shards" if shards else "one index"
        index = cs.DenseIndex(folder / f"{size}.flex") if not shards else cs.scale.ShardedIndex(
            folder / f"{size}-{shards}.vectors", similarity="dot", passages_per_shard=-(-size // shards), threads=1
        )  # fmt: skip
        start = time.process_time()
        index.index(passages())
        built[name] = round(time.process_time() - start, 1)
        systems[name] = index.retriever(num_results=arguments.k, threads=1)
    expected = systems["one index"](topics)
    for retriever in systems.values():
        found = retriever(topics)
        assert found["docno"].tolist() == expected["docno"].tolist()
        assert np.allclose(found["score"], expected["score"], atol=1e-5)
    medians = interleaved({name: (lambda r=r: r(topics)) for name, r in systems.items()}, arguments.repeats)
    rows = [
        {
            "passages": size, "system": name, "dim": arguments.dim, "queries": len(topics), "k": arguments.k,
            "ms_per_query": round(1000 * value / len(topics), 3), "to_one": round(value / medians["one index"], 3),
            "peak_mb": peak_mb(), "peak_own_mb": memory.peak_mb(), "seconds_to_build": built.get(name),
        }
        for name, value in medians.items()
    ]  # fmt: skip
    lists = max(4, int(size**0.5) // 8)
    kinds = arguments.kinds
    if kinds is None:
        kinds = ["SQfp16", "SQ8", f"IVF{lists},Flat", f"IVF{lists},SQ8"]
    recall = cs.scale.recall_of(index, topics, kinds, num_results=10, nprobe=max(1, lists // 4)) if kinds else None
    figures = {"dense_search": rows[:1], "dense_shards": rows}
    if recall is not None:
        known = {"passages": size, "shards": arguments.shards[-1]}
        figures["dense_recall"] = [{**known, **row} for row in recall.to_dict("records")]
    return figures


def pisa(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """BM25 beside PISA's maxscore in turns, text in, frame out, with and without stop words in the query."""
    from pyterrier_pisa import PisaIndex

    import pt_convsearch as cs
    from pt_convsearch.lexical.analysis import LUCENE_STOPWORDS
    from pt_convsearch.lexical.pisa import quiet_stdout

    data = cs.dataset("testbed", passages=size, seed=SEED)
    corpus = lambda: itertools.islice(data.get_corpus_iter(), size)  # noqa: E731
    plain: dict[str, Any] = {"tokenizer": "lucene", "stemmer": None, "stopwords": None}
    ours = cs.BM25Index(folder / "ours", **plain).index(corpus())
    cs.lexical.build_pisa_index(corpus(), folder / "pisa", stemmer="none", stops="none")
    theirs = PisaIndex(str(folder / "pisa"), stemmer="none", stops="none")
    options: dict[str, Any] = {"k1": 0.9, "b": 0.4, "num_results": arguments.k}
    with quiet_stdout():
        other = theirs.bm25(query_algorithm="maxscore", query_weighted=True, **options)
    systems: dict[str, Any] = {"ours": ours.bm25(threads=1, **options), "PISA maxscore": other}
    robertson = ours.bm25(threads=1, idf="robertson", **options)
    rows = []
    for kind, left_out in (("all", frozenset()), ("nostop", LUCENE_STOPWORDS)):
        topics = queries(itertools.islice(corpus(), 5_000), arguments.queries, arguments.terms, left_out)
        found, expected = (dict(tuple(run(topics).groupby("qid")["docno"])) for run in (robertson, other))
        shared = [len({*found[qid].head(10)} & {*expected[qid]}) / 10 for qid in expected]
        runs = {name: functools.partial(run, topics) for name, run in systems.items()}
        medians = interleaved(runs, arguments.repeats)
        rows += [
            {
                "passages": size, "system": name, "kind": kind, "queries": len(topics), "terms": arguments.terms,
                "k": arguments.k, "ms_per_query": round(1000 * value / len(topics), 3),
                "to_ours": round(value / medians["ours"], 2), "top_10_shared": round(statistics.mean(shared), 4),
            }
            for name, value in medians.items()
        ]  # fmt: skip
    return {"bm25_pisa": rows}


def stream(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The memory of a process through which a collection streams into BM25 shards."""
    import pt_convsearch as cs

    memory = Memory()
    data = cs.dataset("testbed", passages=size, seed=SEED)
    shards = arguments.shards[-1]
    index = cs.scale.ShardedIndex(folder / "x.shards", passages_per_shard=-(-size // shards), threads=1)
    start = time.process_time()
    index.index(itertools.islice(data.get_corpus_iter(), size))
    row = {
        "passages": size, "shards": shards, "seconds": round(time.process_time() - start, 1),
        "bytes": folder_bytes(folder / "x.shards"), "peak_mb": peak_mb(), "peak_own_mb": memory.peak_mb(),
    }  # fmt: skip
    return {"bm25_stream": [row]}


def encode(sizes: list[int], folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    from scale_encoding import encode as measured

    return {"encode": measured(sizes, folder, arguments)}


STEPS = {"bm25": bm25, "dense": dense, "pisa": pisa, "stream": stream, "encode": encode}

if __name__ == "__main__":
    main()
