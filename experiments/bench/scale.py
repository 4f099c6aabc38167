"""What scale costs on this machine: encoding, BM25 and dense search by size, by workers and by number of shards.

Each step runs in a process of its own, so that its peak memory is its own. Passages are those of the testbed, streamed;
vectors are random. The figures go to a JSON file that ``python -m pt_convsearch scale plan --figures FILE`` reads.

    python experiments/bench/scale.py --passages 20000 40000 --encode 400 --out figures.json       # a few minutes
    python experiments/bench/scale.py --passages 1000000 2000000 --encode 50000 100000 --queries 500 --out figures.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="*", default=[20_000, 40_000], help="sizes for BM25")
    parser.add_argument("--vectors", type=int, nargs="*", help="sizes for dense search (default: those of --passages)")
    parser.add_argument("--encode", type=int, nargs="*", default=[], help="sizes for encoding (default: none)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="Ray workers for encoding")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--terms", type=int, default=470, help="terms of a BM25 query, repeats included")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--kinds", nargs="*", help="kinds of FAISS shards to measure the recall of (default: four)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="for the indexes (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, size, folder = json.loads(arguments.step)
        print("\n" + json.dumps(STEPS[step](size, Path(folder), arguments)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        runs: dict[str, list[dict[str, Any]]] = {}
        vectors = arguments.passages if arguments.vectors is None else arguments.vectors
        todo = [("bm25", size) for size in arguments.passages] + [("dense", size) for size in vectors]
        todo += [("encode", size) for size in arguments.encode]
        for step, size in todo:
            for name, rows in child(step, size, folder).items():
                runs.setdefault(name, []).extend(rows)
                print(f"\n{name}\n{pd.DataFrame(rows).to_string(index=False)}", flush=True)
    figures = {"machine": machine(), "when": time.strftime("%Y-%m-%d"), "runs": runs}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def child(step: str, size: int, folder: str) -> dict[str, list[dict[str, Any]]]:
    """Run a step in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--step", json.dumps([step, size, folder])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB"


def peak_mb() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


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


def queries(passages: Any, count: int, terms: int) -> pd.DataFrame:
    """Windows over the passages' text, as long as conversations."""
    words = " ".join(passage["text"] for passage in passages).split()
    random = np.random.default_rng(SEED)
    starts = random.integers(0, max(1, len(words) - terms), count)
    texts = [" ".join(words[start : start + terms]) for start in starts]
    return pd.DataFrame({"qid": [str(i) for i in range(count)], "query": texts})


def dense(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Exact search over random vectors in one index and in shards; recall of smaller kinds of shards."""
    import pt_convsearch as cs

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
    systems: dict[str, Any] = {
        "one index": cs.DenseIndex(folder / f"{size}.flex")
        .index(passages())
        .retriever(num_results=arguments.k, threads=1)
    }
    index: Any = None
    for shards in arguments.shards:
        index = cs.scale.ShardedIndex(
            folder / f"{size}-{shards}.vectors", similarity="dot", passages_per_shard=-(-size // shards), threads=1
        ).index(passages())
        systems[f"{shards} shards"] = index.retriever(num_results=arguments.k, threads=1)
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
            "peak_mb": peak_mb(),
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


def encode(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One and two Ray workers of one thread beside one and two plain processes of one thread."""
    import multiprocessing

    import pt_convsearch as cs

    encoder = cs.BiEncoder(arguments.model)
    data = cs.dataset("testbed", passages=size, seed=SEED)
    records = list(itertools.islice(data.get_corpus_iter(), size))
    cs.scale.connect(num_cpus=2)
    rows = []
    for workers in arguments.workers:
        context = multiprocessing.get_context("spawn")
        with context.Pool(workers, plain_start, (arguments.model,)) as pool:
            pool.map(plain_encode, [records[:8]] * workers)  # the models are loaded
            start = time.perf_counter()
            pool.map(plain_encode, [records[i::workers] for i in range(workers)])
            plain = time.perf_counter() - start
            pool.close()
            pool.join()
        worker_peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        start = time.perf_counter()
        cs.scale.encode(records[:8], encoder, folder / f"warm-{workers}.flex", num_workers=workers)
        started = time.perf_counter() - start
        start = time.perf_counter()
        cs.scale.encode(records, encoder, folder / f"{size}-{workers}.flex", num_workers=workers)
        seconds = time.perf_counter() - start
        rows.append({
            "what": encoder._shown_models().strip("'"), "passages": size, "workers": workers,
            "seconds": round(seconds, 2),
            "passages_per_s": round(size / seconds, 2), "seconds_to_start": round(started, 2),
            "plain_seconds": round(plain, 2),
            "speed_to_plain": round(plain / (seconds - started), 3) if seconds > 2 * started else None,
            "peak_mb": peak_mb(), "worker_peak_mb": round(worker_peak, 1),
        })  # fmt: skip
    return {"encode": rows}


_PLAIN: Any = None


def plain_start(model: str) -> None:
    global _PLAIN
    import torch

    import pt_convsearch as cs

    torch.set_num_threads(1)
    _PLAIN = cs.BiEncoder(model)


def plain_encode(records: list[dict[str, Any]]) -> int:
    return len(_PLAIN.encode_docs([record["text"] for record in records]))


STEPS = {"bm25": bm25, "dense": dense, "encode": encode}

if __name__ == "__main__":
    main()
