"""Workers, machines and drivers that are lost: right results or one error that says where.

The tests marked slow (``CONVSEARCH_SLOW=1``) start clusters of several nodes and kill at random moments: ``faults.py``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.scale import ShardedIndex, encode

from .conftest import some_topics, tied_docs
from .jobs import JOBS


class DyingEncoder(cs.BiEncoder):
    """Ends its process at its second block, once."""

    def __init__(self, *arguments, mark: str, **options) -> None:
        super().__init__(*arguments, **options)
        self.mark = mark
        self.calls = 0

    def encode_docs(self, texts, batch_size=None):
        self.calls += 1
        if self.calls == 2 and not Path(self.mark).exists():
            Path(self.mark).write_text("", encoding="utf-8")
            os._exit(1)
        return super().encode_docs(texts, batch_size=batch_size)


def test_a_lost_encoder_does_its_block_again(ray_session, tmp_path, tiny_encoder, monkeypatch):
    monkeypatch.setattr("pt_convsearch.scale.encoding.BLOCK", 32)
    monkeypatch.setattr("pt_convsearch.dense.building.BLOCK", 32)
    docs = tied_docs(150)
    dying = DyingEncoder(tiny_encoder._options["model"], bf16=False, mark=str(tmp_path / "died"))
    found = encode(docs, dying, tmp_path / "x", num_workers=1)
    assert (tmp_path / "died").exists()
    one = cs.DenseIndex(tmp_path / "one", tiny_encoder).index(docs)
    assert np.abs(np.asarray(found.vectors) - np.asarray(one.vectors)).max() < 1e-6
    assert list(found.docnos().fwd[np.arange(150)]) == [doc["docno"] for doc in docs]


def test_shards_on_ray(ray_session, tmp_path):
    docs = tied_docs(120)
    one = cs.BM25Index(tmp_path / "one").index(docs)
    topics = some_topics(12)
    expected = one.bm25(num_results=9)(topics)
    index = ShardedIndex(tmp_path / "x", passages_per_shard=60, engine="ray", num_workers=1).index(docs)
    retriever = index.bm25(num_results=9)
    pd.testing.assert_frame_equal(retriever(topics), expected)
    for number in (0, 1):
        ray_session.kill(index.serving._actors[number], no_restart=False)
        pd.testing.assert_frame_equal(retriever(topics), expected)
    # gone for good, as when the process ends that had started it: started again by who still searches
    ray_session.kill(index.serving._actors[0])
    pd.testing.assert_frame_equal(retriever(topics), expected)
    pipeline = retriever >> index.text_loader()
    pd.testing.assert_frame_equal(pipeline(topics), (one.bm25(num_results=9) >> one.text_loader())(topics))
    # a shard that is cut while the index is closed: it is named, and the other shards go on answering afterwards
    index.close()
    path = tmp_path / "x" / "shard-00001" / "postings.docs.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    broken = ShardedIndex(tmp_path / "x", engine="ray")
    with pytest.raises(ValueError, match=r"shard-00001 is damaged: postings\.docs\.npy holds"):
        broken.bm25()(topics)
    path.write_bytes(content)
    pd.testing.assert_frame_equal(broken.bm25(num_results=9)(topics), expected)
    broken.close()


@pytest.mark.parametrize("name", ["build", "rows"])
def test_a_killed_program_is_started_again(ray_session, tmp_path, name):
    """One trial of ``faults.py driver``, on the Ray of the other tests: its workers outlive the program."""
    job = JOBS[name](tmp_path)
    job.prepare()
    wanted = random.Random(name).randrange(1, job.total // 2)
    address = ray_session.get_runtime_context().gcs_address
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.scale.jobs", name, str(tmp_path)], cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE, env={**os.environ, "RAY_ADDRESS": address},
    )  # fmt: skip
    while process.poll() is None and job.done() < wanted:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    job.run()
    assert job.same()
    assert job.leftovers() == []


@pytest.mark.slow
@pytest.mark.skipif("CONVSEARCH_SLOW" not in os.environ, reason="set CONVSEARCH_SLOW=1: many minutes")
@pytest.mark.parametrize("job", ["encode", "build", "search", "rows", "train"])
@pytest.mark.parametrize("what", ["worker", "node", "driver"])
def test_kills_at_random_moments(what, job, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale.faults", what, job, "--folder", str(tmp_path), "--times", "2"],
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


class SlowRay:
    """A Ray whose processes are not there in time, the first times."""

    def __init__(self, times: int, message: str = "The current node timed out during startup. …") -> None:
        self.times, self.message = times, message
        self.calls: list[str] = []

    def is_initialized(self):
        return False

    def init(self, **options):
        self.calls.append("init")
        if self.calls.count("init") <= self.times:
            raise Exception(self.message)

    def shutdown(self):
        self.calls.append("shutdown")

    def cluster_resources(self):
        return {}


def test_a_ray_that_starts_slowly_is_tried_again(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def connected(slow):
        monkeypatch.setattr("pt_convsearch.scale.cluster.ray_module", lambda _: slow)
        return cs.scale.connect()

    slow = SlowRay(2)
    assert connected(slow) is slow
    assert slow.calls == ["init", "shutdown", "init", "shutdown", "init"]
    with pytest.raises(RuntimeError, match="tried 3 times: the machine is too busy.*RAY_ADDRESS"):
        connected(SlowRay(3))
    with pytest.raises(Exception, match="no such option"):  # anything else is told at once
        connected(other := SlowRay(1, "no such option"))
    assert other.calls == ["init"]
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a cluster that was started elsewhere is not started again
    with pytest.raises(Exception, match="timed out"):
        connected(far := SlowRay(1))
    assert far.calls == ["init"]
