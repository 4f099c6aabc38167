"""Kill what can be killed, at random moments, and compare with one machine.

    python tests/scale/faults.py worker --folder /tmp/faults --times 10   # an encoder's process
    python tests/scale/faults.py node --folder /tmp/faults --times 10   # a node of a cluster of three
    python tests/scale/faults.py driver --folder /tmp/faults --times 10   # the process that called; started again

Prints a line per round; the exit status is 1 where a result differed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
BLOCK = 64
PASSAGES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["worker", "node", "driver", "encode"])
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
    if arguments.case == "encode":  # the driver that is killed
        start_ray()
        encoded(arguments.folder, "x")
        return
    expected = reference(arguments.folder)
    draw = random.Random(arguments.seed)
    rounds = {"worker": worker_round, "node": node_round, "driver": driver_round}
    wrong = 0
    if arguments.case == "worker":
        start_ray()
    for number in range(arguments.times):
        remove(arguments.folder / "x")
        what = rounds[arguments.case](arguments.folder, draw)
        same = compare(arguments.folder, expected)
        wrong += not same
        said = "as on one machine" if same else "DIFFERS"
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
    import pt_convsearch as cs

    return cs.scale.connect(num_cpus=2, object_store_memory=100_000_000)


def encoded(folder: Path, name: str) -> None:
    import pt_convsearch as cs

    cs.scale.encode(documents(), encoder(folder), folder / name, num_workers=2)


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
    import shutil

    for name in (path, path.with_name(path.name + ".building")):
        shutil.rmtree(name, ignore_errors=True)


def worker_round(folder: Path, draw: random.Random) -> str:
    """Encode; kill an encoder's process meanwhile."""

    killed: list[int] = []

    def kill() -> None:
        time.sleep(draw.uniform(1, 6))
        for pid in worker_processes("MapWorker"):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return

    thread = threading.Thread(target=kill)
    thread.start()
    encoded(folder, "x")
    thread.join()
    return f"killed {len(killed)} encoder"


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


def node_round(folder: Path, draw: random.Random) -> str:
    """Encode on a cluster of three nodes on this machine; take one away meanwhile."""
    import ray
    from ray.cluster_utils import Cluster

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
        encoded(folder, "x")
    finally:
        thread.join()
        ray.shutdown()
        cluster.shutdown()
    return f"a node was lost after {seconds:.1f} s"


def driver_round(folder: Path, draw: random.Random) -> str:
    """Encode in another process; kill it at a random part, start it again."""
    command = [sys.executable, __file__, "encode", "--folder", str(folder)]
    wanted = draw.randrange(1, PASSAGES // BLOCK)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
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
    return f"killed with {kept} of {-(-PASSAGES // BLOCK)} parts"


if __name__ == "__main__":
    main()
