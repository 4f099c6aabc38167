"""cs.scale.train: what two workers train together is what one process trains, and no kill changes it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch.scale.progress import show
from pt_convsearch.scale.training import warn_if_too_few, what_was_lost

from ..training.conftest import Collection, tiny_bert  # noqa: F401  (a fixture)


class KillOnce(TrainerCallback):
    """kill -9 of one worker before a step, the first time only."""

    def __init__(self, mark: Path, *, rank: int, step: int) -> None:
        self.mark, self.rank, self.step = mark, rank, step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step and int(os.environ["RANK"]) == self.rank and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="session")
def still_bert(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: F811
    """The tiny BERT without dropout: what it learns depends on batches alone."""
    from sentence_transformers import SentenceTransformer
    from transformers import BertModel

    bert = BertModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    bert.config.hidden_dropout_prob = bert.config.attention_probs_dropout_prob = 0.0
    folder = tmp_path_factory.mktemp("still")
    SentenceTransformer(tiny_bert).tokenizer.save_pretrained(folder)
    bert.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> cs.TrainingPairs:
    """32 questions; four in a row share a gold, so that masks reach over the workers."""
    collection = Collection(32)
    qrels = collection.qrels.assign(docno=[f"d{number // 4}" for number in range(32)])
    return cs.training_pairs(
        collection.topics, qrels, collection.corpus, form=cs.X, negatives=cs.RandomNegatives(collection.corpus),
        num_negatives=1, out=tmp_path_factory.mktemp("mined") / "pairs",
    )  # fmt: skip


OPTIONS: dict[str, Any] = {
    "precision": "fp32", "similarity": "cosine", "max_steps": 4, "eval_every": 1, "learning_rate": 0.05,
    "trainer_options": {"optim": "sgd"},
}  # fmt: skip


def losses(folder: Path) -> list[float]:
    lines = (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_two_workers_train_as_one_process_though_one_is_killed(
    ray_session: Any, pairs: cs.TrainingPairs, still_bert: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    cs.train(pairs, init=still_bert, out=tmp_path / "one", batch_size=8, device="cpu", **OPTIONS)
    alone, start = weights(tmp_path / "one"), weights(Path(still_bert))
    moved = max(np.abs(alone[name] - start[name]).max() for name in start)
    assert moved > 1e-3
    assert len(losses(tmp_path / "one")) == 4

    # two workers, half the batch each, cached gradients (the plain loss over processes: tests/training); the second is
    # lost after two steps, the same call goes on with the third
    folder = tmp_path / "cluster"
    kill = KillOnce(tmp_path / "killed", rank=1, step=2)
    own = {"batch_size": 4, "mini_batch_size": 3, "num_workers": 2, "callbacks": [kill]}
    options = {**OPTIONS, "init": still_bert, **own}
    lost = r"worker (1 was lost|0 lost touch with another) .*the same call goes on from there"
    with pytest.raises(RuntimeError, match=lost):
        cs.scale.train(pairs, out=folder / "two", max_failures=0, **options)
    assert [path.name for path in folder.iterdir()] == ["two.training"]
    assert (folder / "two.training" / "checkpoint-2").is_dir()
    model = cs.scale.train(pairs, out=folder / "two", **options)
    assert model.dimensions == 32
    assert [path.name for path in folder.iterdir()] == ["two"]
    assert json.loads((folder / "two" / "training.json").read_text(encoding="utf-8"))["processes"] == 2
    assert losses(folder / "two") == pytest.approx(losses(tmp_path / "one"), abs=2e-5)
    together = weights(folder / "two")
    assert max(np.abs(alone[name] - together[name]).max() for name in start) < moved * 1e-3


def test_options_are_checked_before_anything_starts(
    pairs: cs.TrainingPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"init": "x", "out": tmp_path / "m", "num_workers": 2}
    for name, value in (("num_workers", 0), ("threads", 0), ("max_failures", -1)):
        with pytest.raises(ValueError, match=name):
            cs.scale.train(pairs, **{**given, name: value})
    with pytest.raises(TypeError, match="no option 'learning_rat'"):
        cs.scale.train(pairs, **given, learning_rat=1)
    with pytest.raises(FileNotFoundError, match="holds no mined training set"):
        cs.scale.train(tmp_path / "none", **given)
    for name in ("pairs", "init", "out"):
        with pytest.raises(ValueError, match=r"s3:/+b/x is an address.*fsspec\.filesystem\('s3'\)\.put"):
            cs.scale.train(**{"pairs": pairs, **given, name: "s3://b/x"})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pt-convsearch\[ray\]"):
        cs.scale.train(pairs, **given)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_sent_is_named(ray_session: Any, pairs: cs.TrainingPairs, tmp_path: Path) -> None:
    collection = Collection(4)
    dev = (collection.topics, collection.qrels, (doc for doc in collection.corpus))
    with pytest.raises(TypeError, match=r"dev cannot be sent to the workers .*generator"):
        cs.scale.train(pairs, init="x", out=tmp_path / "m", num_workers=2, dev=dev)


def test_too_few_processors_are_told(ray_session: Any) -> None:
    with pytest.warns(UserWarning, match="9 workers need 9 CPUs, and the cluster has 2"):
        warn_if_too_few({"CPU": 2.0}, {"CPU": 1, "GPU": 0}, 9)


def test_an_error_of_the_training_is_not_the_loss_of_a_worker(ray_session: Any) -> None:
    from ray.exceptions import ActorDiedError
    from ray.train import WorkerGroupError

    gone = RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:1234")
    assert what_was_lost(WorkerGroupError("…", {0: gone, 1: ActorDiedError()})).startswith("worker 1 was lost")
    assert what_was_lost(WorkerGroupError("…", {0: gone})).startswith("worker 0 lost touch with another ([gloo")
    with pytest.raises(ValueError, match="batch_size") as raised:
        what_was_lost(WorkerGroupError("…", {0: gone, 1: ValueError("batch_size=9 …")}))
    assert raised.value.__notes__ == ["(raised in worker 1)"]


@pytest.mark.parametrize("lines", ['{"step": 0, "R@5": 0.25}\n{"step": 20, "loss": 1.5, "epoch": 0.1}\n', "", "{"])
def test_the_bar_shows_the_curve(lines: str, tmp_path: Path) -> None:
    bar = SimpleNamespace(n=7, set_postfix=lambda shown: setattr(bar, "shown", shown))
    (tmp_path / "curve").write_text(lines, encoding="utf-8")
    show(bar, tmp_path / "curve")
    if lines.endswith("}\n"):
        assert (bar.n, bar.shown) == (20, {"R@5": "0.25", "loss": "1.5"})
    else:
        assert bar.n == 7
