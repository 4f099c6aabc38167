"""Kill what can be killed, at random moments, and compare with an undisturbed run.

    python -m tests.scale.faults worker encode --folder /tmp/faults --times 10   # a worker's process, kill -9
    python -m tests.scale.faults node build --folder /tmp/faults --times 10      # a machine of a cluster of three
    python -m tests.scale.faults driver rows --folder /tmp/faults --times 10     # the program that called; run again

The jobs are those of ``jobs.py``: encode, build (BM25 shards), search, rows (``on_ray`` with a checkpoint), train. The
cluster is Ray's ``cluster_utils.Cluster`` on this machine. Moments are drawn in turns by what is done already and by
the clock, over the time that an undisturbed run takes. A driver alone is killed, not the cluster, and the same program
is started at once: the workers of the first may still be at it. Prints a line per round; the exit status is 1 where a
result differed, or something was left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for name, value in {
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "1000",  # a lost machine is noticed soon
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "5",
}.items():
    os.environ.setdefault(name, value)
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.scale.jobs import JOBS, Job  # noqa: E402

MEMORY = 100_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted(KINDS))
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = arguments.folder / arguments.job
    folder.mkdir(parents=True, exist_ok=True)
    job = JOBS[arguments.job](folder)
    wrong = 0
    with cluster_of_three() as cluster:
        job.prepare()
        job.clean()
        trial = KINDS[arguments.what](cluster, job)
        draw = random.Random(arguments.seed)
        number = lost = 0
        while lost < arguments.times and number < 3 * arguments.times:
            job.clean()
            told = trial.round(draw, by_progress=number % 2 == 0)
            left, same = job.leftovers(), job.same()
            number, lost, wrong = number + 1, lost + trial.lost, wrong + (not same or bool(left))
            said = ("as if nothing had happened" if same else "DIFFERS") + (f", LEFT BEHIND {left}" if left else "")
            print(f"{arguments.what} {arguments.job} {number}: {told}: {said}", flush=True)  # noqa: T201
        print(f"{arguments.what} {arguments.job}: {lost} losses, {wrong} results were wrong", flush=True)  # noqa: T201
    sys.exit(bool(wrong))


@contextlib.contextmanager
def cluster_of_three() -> Iterator[Any]:
    """A cluster of three machines of one processor each, and this process connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": MEMORY, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **options}))
    for _ in range(2):
        patiently(lambda: cluster.add_node(num_cpus=1, object_store_memory=MEMORY))
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def patiently(start: Callable[[], Any]) -> Any:
    """Start something of Ray's, which gives its processes 30 seconds: again, on a busy machine."""
    for _ in range(5):
        with contextlib.suppress(Exception):
            return start()
    return start()


class Trial:
    """How something is lost while a job runs."""

    def __init__(self, cluster: Any, job: Job) -> None:
        self.cluster = cluster
        self.job = job
        #: whether something was lost in the last round
        self.lost = False
        self.warm_up()
        self.seconds = self.undisturbed()

    def warm_up(self) -> None:
        """The first run loads what later ones find loaded."""
        self.job.run()
        self.job.clean()

    def undisturbed(self) -> float:
        """Run the job once; the seconds that it took."""
        start = time.monotonic()
        self.job.run()
        return time.monotonic() - start

    def round(self, draw: random.Random, by_progress: bool) -> str:
        """Run the job and lose something meanwhile; says what was lost and when."""
        ready, when = self.moment(draw, by_progress)
        lost: list[str] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02) and not lost:
                if ready():
                    lost.extend(self.lose(draw))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            self.job.run()
        finally:
            over.set()
            thread.join()
        self.mend()
        self.lost = bool(lost)
        return f"{lost[0] if lost else 'nothing'} was lost {when}"

    def moment(self, draw: random.Random, by_progress: bool) -> tuple[Callable[[], bool], str]:
        if by_progress:
            wanted = draw.randrange(self.job.total + 1)
            return (lambda: self.job.done() >= wanted), f"with {wanted} of {self.job.total} done"
        seconds, start = draw.uniform(0, self.seconds), time.monotonic()
        return (lambda: time.monotonic() - start >= seconds), f"after {seconds:.1f} of {self.seconds:.1f} s"

    def lose(self, draw: random.Random) -> list[str]:
        """Lose it; [] where there is nothing yet."""
        raise NotImplementedError

    def mend(self) -> None:
        """Make the cluster whole again."""


class WorkerTrial(Trial):
    """A process of a Ray worker that does the job is killed."""

    def lose(self, draw: random.Random) -> list[str]:
        found = worker_processes(self.job.title)
        if found:
            os.kill(draw.choice(found), signal.SIGKILL)
        return ["a worker"] if found else []


class NodeTrial(Trial):
    """One of the machines that are not the head is taken away, with all that ran on it."""

    def lose(self, draw: random.Random) -> list[str]:
        nodes = sorted(self.cluster.worker_nodes, key=lambda node: node.node_id)
        self.cluster.remove_node(draw.choice(nodes), allow_graceful=False)
        return ["a machine"]

    def mend(self) -> None:
        while len(self.cluster.worker_nodes) < 2:
            patiently(lambda: self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY))
        self.cluster.wait_for_nodes()


class DriverTrial(Trial):
    """The calling program is killed, and at once started again."""

    def warm_up(self) -> None:
        """Each program is a new one."""

    def undisturbed(self) -> float:
        process = self.start()
        start = time.monotonic()
        self.finish(process)
        return time.monotonic() - start

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.scale.jobs", self.name, str(self.job.folder)], text=True, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "RAY_ADDRESS": self.cluster.address},
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # it has connected
        return process

    @property
    def name(self) -> str:
        return type(self.job).__name__.lower()

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}: {errors[-3000:]}")

    def round(self, draw: random.Random, by_progress: bool) -> str:
        process = self.start()
        ready, when = self.moment(draw, by_progress)
        while process.poll() is None and not ready():
            time.sleep(0.01)
        kept = self.job.done()
        process.kill()
        process.communicate()
        self.lost = bool(process.returncode)
        if not self.lost:
            return f"it had finished, drawn was {when}"
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the first program failed by itself, exit status {process.returncode}")
        self.finish(self.start())
        return f"it was killed {when} (it had kept {kept})"


KINDS: dict[str, Callable[[Any, Job], Trial]] = {"worker": WorkerTrial, "node": NodeTrial, "driver": DriverTrial}


def worker_processes(name: str) -> list[int]:
    """Processes of our own Ray workers whose title says ``name``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if title.startswith("ray::") and name in title and descends(int(entry.name)):
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


if __name__ == "__main__":
    main()
