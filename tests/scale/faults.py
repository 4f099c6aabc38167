"""Kill what can be killed, at random moments, and compare with an undisturbed run.

    python tests/scale/faults.py encode --folder /tmp/faults --times 10   # a process that encodes
    python tests/scale/faults.py build --folder /tmp/faults --times 10    # one that builds BM25 shards
    python tests/scale/faults.py search --folder /tmp/faults --times 10   # one that serves a shard
    python tests/scale/faults.py rows --folder /tmp/faults --times 10     # one that runs a pipeline on some rows
    python tests/scale/faults.py train --folder /tmp/faults --times 10    # one of two that train
    python tests/scale/faults.py node --folder /tmp/faults --times 10     # a node of a cluster of three, while encoding
    python tests/scale/faults.py driver --folder /tmp/faults --times 10   # the process that called; started again

Prints a line per round; the exit status is 1 where a result differed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")
BLOCK = 64
PASSAGES = 2000

#: one round: what was killed, and whether the result is that of an undisturbed run
Round = Callable[[random.Random], tuple[str, bool]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*CASES, "driven"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import pt_convsearch.dense.building
    import pt_convsearch.scale.encoding

    pt_convsearch.dense.building.BLOCK = BLOCK  # many small blocks: kills fall between and within them
    pt_convsearch.scale.encoding.BLOCK = BLOCK
    if arguments.case == "driven":  # the driver that is killed
        start_ray()
        encoded(arguments.folder)
        return
    one_round = CASES[arguments.case](arguments.folder)
    draw = random.Random(arguments.seed)
    wrong = 0
    for number in range(arguments.times):
        remove(arguments.folder / "x")
        what, same = one_round(draw)
        wrong += not same
        said = "as if nothing had happened" if same else "DIFFERS"
        print(f"{arguments.case} {number}: {what}: {said}", flush=True)  # noqa: T201
    sys.exit(bool(wrong))


def documents() -> list[dict[str, Any]]:
    from tests.scale.conftest import tied_docs

    return tied_docs(PASSAGES)


def encoder(folder: Path) -> Any:
    import pt_convsearch as cs

    model = folder / "model" / "st"
    if not model.exists():
        from tests.scale.conftest import tiny_encoder

        class Factory:
            @staticmethod
            def mktemp(_: str) -> Path:
                (folder / "model").mkdir(exist_ok=True)
                return folder / "model"

        tiny_encoder.__wrapped__(Factory)
    return cs.BiEncoder(model, bf16=False)


def reference(folder: Path) -> Any:
    import pt_convsearch as cs

    index = cs.DenseIndex(folder / "one", encoder(folder), overwrite=True)
    return index.index(documents())


def start_ray() -> Any:
    """Ray gives itself 30 seconds to start: not enough where much else runs."""
    import ray

    import pt_convsearch as cs

    for left in range(9, -1, -1):
        try:
            return cs.scale.connect(num_cpus=2, object_store_memory=100_000_000)
        except Exception:
            ray.shutdown()
            if not left:
                raise
    return None


def encoded(folder: Path) -> None:
    import pt_convsearch as cs

    cs.scale.encode(documents(), encoder(folder), folder / "x", num_workers=2)


def compare(folder: Path, expected: Any) -> bool:
    import pt_convsearch as cs

    found = cs.DenseIndex(folder / "x", encoder(folder))
    numbers = np.arange(PASSAGES)
    return (
        len(found) == PASSAGES
        and list(found.docnos().fwd[numbers]) == [doc["docno"] for doc in documents()]
        and bool(np.abs(np.asarray(found.vectors) - np.asarray(expected.vectors)).max() < 1e-6)
        and found.meta["convsearch"]["collection"] == expected.meta["convsearch"]["collection"]
    )


def remove(path: Path) -> None:
    for name in (path, path.with_name(path.name + ".building"), path.with_name(path.name + ".training")):
        shutil.rmtree(name, ignore_errors=True)


@contextlib.contextmanager
def killing(name: str, draw: random.Random, ready: Callable[[], bool]) -> Iterator[list[int]]:
    """While the block runs, once it is ready, kill -9 one of our Ray workers whose title says ``name``."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.02):
            if ready():
                found = worker_processes(name)
                if found:
                    killed.append(draw.choice(found))
                    os.kill(killed[0], signal.SIGKILL)
                    return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def after(seconds: float) -> Callable[[], bool]:
    start = time.monotonic()
    return lambda: time.monotonic() - start >= seconds


def encode_case(folder: Path) -> Round:
    """Encode; kill an encoder's process meanwhile."""
    expected = reference(folder)
    start_ray()
    parts = -(-PASSAGES // BLOCK)

    def one_round(draw: random.Random) -> tuple[str, bool]:
        wanted = draw.randrange(parts)

        def ready() -> bool:
            return len(list((folder / "x.building").glob("part-*.json"))) >= wanted

        with killing("MapWorker", draw, ready) as killed:
            encoded(folder)
        return f"killed {len(killed)} encoder with {wanted} of {parts} parts", compare(folder, expected)

    return one_round


def build_case(folder: Path) -> Round:
    """Build BM25 shards on Ray; kill a process that builds one."""
    import pt_convsearch as cs
    from tests.scale.conftest import some_topics

    remove(folder / "one")
    topics = some_topics(50)
    expected = cs.BM25Index(folder / "one").index(documents()).bm25(num_results=20)(topics)
    start_ray()

    def one_round(draw: random.Random) -> tuple[str, bool]:
        wanted = draw.randrange(19)

        def ready() -> bool:
            return len(list((folder / "x.building" / "records").glob("shard-*.json"))) >= wanted

        with killing("_make_shard_from_spool", draw, ready) as killed:
            cs.scale.ShardedIndex(folder / "x", passages_per_shard=100, engine="ray", num_workers=2).index(documents())
        found = cs.scale.ShardedIndex(folder / "x", threads=1).bm25(num_results=20)(topics)
        return f"killed {len(killed)} builder with {wanted} of 20 shards", found.equals(expected)

    return one_round


def search_case(folder: Path) -> Round:
    """Search shards that actors serve, again and again; kill one of them."""
    import pt_convsearch as cs
    from tests.scale.conftest import some_topics

    remove(folder / "shards")
    index = cs.scale.ShardedIndex(folder / "shards", passages_per_shard=500, threads=1).index(documents())
    topics = some_topics(300)
    expected = index.bm25(num_results=20)(topics)
    start_ray()
    served = cs.scale.ShardedIndex(folder / "shards", engine="ray").bm25(num_results=20)
    served(topics)

    def one_round(draw: random.Random) -> tuple[str, bool]:
        seconds, searches, same = draw.uniform(0, 1), 0, True
        with killing("ShardActor", draw, after(seconds)) as killed:
            while not killed or searches < 3:
                same &= bool(served(topics).equals(expected))
                searches += 1
        same &= bool(served(topics).equals(expected))
        return f"killed {len(killed)} shard after {seconds:.2f} s, {searches} searches", same

    return one_round


def rows_case(folder: Path) -> Round:
    """A pipeline on two workers; kill one of them."""
    import pt_convsearch as cs
    from tests.scale.conftest import some_topics

    remove(folder / "one")
    pipeline = cs.BM25Index(folder / "one").index(documents()).bm25(num_results=20, threads=1)
    topics = some_topics(2000)
    expected = pipeline(topics)
    start_ray()

    def one_round(draw: random.Random) -> tuple[str, bool]:
        wanted = draw.randrange(150)
        kept = folder / "x"

        def ready() -> bool:
            return kept.exists() and len(list(kept.glob("*.parquet"))) >= wanted

        with killing("PipelineActor", draw, ready) as killed:
            found = cs.scale.on_ray(pipeline, num_workers=2, batch_size=10, checkpoint=kept)(topics)
        return f"killed {len(killed)} worker with {wanted} of 200 batches", found.equals(expected)

    return one_round


def train_case(folder: Path) -> Round:
    """Two workers train; kill one after some checkpoint. The weights are those of two undisturbed workers."""
    from safetensors.numpy import load_file

    import pt_convsearch as cs
    from tests.training.conftest import Collection

    encoder(folder)  # a tiny BERT
    collection = Collection(64)
    pairs = cs.training_pairs(
        *collection.all, form=cs.X, negatives=cs.RandomNegatives(collection.corpus), out=folder / "pairs"
    )
    steps, every = 40, 4
    start_ray()

    def trained(name: str) -> dict[str, Any]:
        cs.scale.train(
            pairs, init=folder / "model" / "bert", out=folder / name, num_workers=2, batch_size=4, max_steps=steps,
            eval_every=every, precision="fp32", mini_batch_size=3,
        )  # fmt: skip
        return load_file(folder / name / "model.safetensors")

    remove(folder / "undisturbed")
    expected = trained("undisturbed")

    def one_round(draw: random.Random) -> tuple[str, bool]:
        wanted = draw.randrange(0, steps, every)

        def ready() -> bool:
            done = [int(path.name.split("-")[1]) for path in (folder / "x.training").glob("checkpoint-*[0-9]")]
            return max(done, default=0) >= wanted

        with killing("RayTrainWorker", draw, ready) as killed:
            found = trained("x")
        same = all(np.array_equal(found[name], expected[name]) for name in expected)
        return f"killed {len(killed)} worker after step {wanted} of {steps}", same

    return one_round


def worker_processes(name: str) -> list[int]:
    """Processes of our own Ray workers whose title says ``name``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
                mine = f"{entry.stat().st_uid}" == str(os.getuid())
            except OSError:
                continue
            if title.startswith("ray::") and name in title and mine and descends(int(entry.name)):
                found.append(int(entry.name))
    return found


def descends(pid: int) -> bool:
    """Is the process below this one?"""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            return False
        pid = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
        if pid == os.getpid():
            return True
    return False


def node_case(folder: Path) -> Round:
    """Encode on a cluster of three nodes on this machine; take one away meanwhile."""
    import ray
    from ray.cluster_utils import Cluster

    expected = reference(folder)

    def one_round(draw: random.Random) -> tuple[str, bool]:
        options = {"object_store_memory": 100_000_000, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **options})
        nodes = [cluster.add_node(num_cpus=1, object_store_memory=100_000_000) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        seconds = draw.uniform(1, 8)

        def take() -> None:
            time.sleep(seconds)
            cluster.remove_node(nodes[draw.randrange(2)], allow_graceful=False)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            encoded(folder)
        finally:
            thread.join()
            ray.shutdown()
            cluster.shutdown()
        return f"a node was lost after {seconds:.1f} s", compare(folder, expected)

    return one_round


def driver_case(folder: Path) -> Round:
    """Encode in another process; kill it at a random part, start it again."""
    expected = reference(folder)
    command = [sys.executable, __file__, "driven", "--folder", str(folder)]
    parts = -(-PASSAGES // BLOCK)

    def one_round(draw: random.Random) -> tuple[str, bool]:
        wanted = draw.randrange(1, parts)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        kept = 0
        while process.poll() is None:
            kept = len(list((folder / "x.building").glob("part-*.json")))
            if kept >= wanted:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        process.wait()
        if not (folder / "x").exists():
            again = subprocess.run(command, capture_output=True, text=True)
            if again.returncode:
                raise RuntimeError(f"after {kept} parts: {again.stderr[-2000:]}")
        return f"killed with {kept} of {parts} parts", compare(folder, expected)

    return one_round


CASES: dict[str, Callable[[Path], Round]] = {
    "encode": encode_case, "build": build_case, "search": search_case, "rows": rows_case, "train": train_case,
    "node": node_case, "driver": driver_case,
}  # fmt: skip

if __name__ == "__main__":
    main()
