"""cs.scale.train: what two workers train together is what one process trains, and no kill changes it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch import _files
from pt_convsearch.scale.progress import show
from pt_convsearch.scale.training import _interrupted, in_turn, warn_if_too_few, what_was_lost

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
    lost = r"worker(s 0, 1 were| 1 was| 0 was) lost .*the same call|worker 0 lost touch with another .*the same call"
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
    from ray.train import ControllerError, WorkerGroupError

    gone = RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:1234")
    assert what_was_lost(WorkerGroupError("…", {0: gone, 1: ActorDiedError()})).startswith("worker 1 was lost")
    assert what_was_lost(WorkerGroupError("…", {0: gone})).startswith("worker 0 lost touch with another ([gloo")
    both = {0: ActorDiedError(), 1: ActorDiedError(), 2: gone}
    assert what_was_lost(WorkerGroupError("…", both)).startswith("workers 0, 1 were lost")
    # what the second says when the first, which keeps the list of all, is gone
    store = torch.distributed.DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed.")
    assert what_was_lost(WorkerGroupError("…", {1: store})).startswith("worker 1 lost touch with another (Failed")
    # beside a lost worker an error of the system is not the training's own
    odd = RuntimeError("unexpected pos 64 vs 0")
    assert what_was_lost(WorkerGroupError("…", {0: odd, 1: ActorDiedError()})).startswith("worker 1 was lost")
    with pytest.raises(RuntimeError, match="unexpected pos"):
        what_was_lost(WorkerGroupError("…", {0: odd}))
    with pytest.raises(ValueError, match="batch_size") as raised:
        what_was_lost(WorkerGroupError("…", {0: gone, 1: ValueError("batch_size=9 …")}))
    assert raised.value.__notes__ == ["(raised in worker 1)"]
    # a port that was free when it was chosen is taken when it is bound: nothing has been trained, it is tried again
    taken = torch.distributed.DistNetworkError("The server socket has failed to listen: EADDRINUSE")
    assert what_was_lost(ControllerError(taken)).startswith("the workers could not be started (The server socket")


def test_a_first_worker_waits_for_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that was lost may still be at it, in processes that Ray has not ended yet."""
    folder, order = tmp_path / "m.training", []
    entered, let_go = threading.Event(), threading.Event()

    def before() -> None:
        with in_turn(folder, hold=True):
            entered.set()
            let_go.wait(20)
            order.append("before")

    thread = threading.Thread(target=before)
    thread.start()
    assert entered.wait(20)
    threading.Timer(0.5, let_go.set).start()
    with in_turn(folder, hold=True):
        order.append("after")
        monkeypatch.setattr("pt_convsearch.scale.training.PATIENCE", 0.0)
        with pytest.raises(RuntimeError, match="being written by another run"), in_turn(folder, hold=True):
            raise AssertionError
    thread.join()
    assert order == ["before", "after"]
    with in_turn(folder, hold=False), _files.alone(folder):  # one worker alone: cs.train holds the folder itself
        pass


def test_the_handler_of_ctrl_c_is_the_users_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Train leaves one in place that ends the program with status 0, long after the training too."""
    mine = signal.getsignal(signal.SIGINT)
    with _interrupted():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is mine
    with pytest.raises(KeyboardInterrupt), _interrupted():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise SystemExit(0)
    assert signal.getsignal(signal.SIGINT) is mine


def test_a_lost_leader_is_a_loss_like_any_other(
    ray_session: Any, pairs: cs.TrainingPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.exceptions import ActorDiedError
    from ray.train.torch import TorchTrainer
    from ray.util import placement_group, placement_group_table, remove_placement_group

    tries = []
    mine = placement_group([{"memory": 1}])
    assert mine.wait(30)

    def fit(self: Any) -> None:
        # a leader reserves both processors, and dies with them: the next one must get them all the same
        assert placement_group([{"CPU": 1}, {"CPU": 1}]).wait(30)
        tries.append([path.name for path in (tmp_path / "m.ray").iterdir()])
        (tmp_path / "m.ray" / "run").mkdir()  # what Ray Train would go on from is not there the next time
        raise ActorDiedError

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    with pytest.raises(RuntimeError, match=r"process that leads the workers was lost .*the same call goes on"):
        cs.scale.train(pairs, init="x", out=tmp_path / "m", num_workers=2, max_failures=2)
    assert tries == [["seen"]] * 3
    assert not list(tmp_path.iterdir())
    assert placement_group_table(mine)["state"] == "CREATED"
    remove_placement_group(mine)


@pytest.mark.parametrize("lines", ['{"step": 0, "R@5": 0.25}\n{"step": 20, "loss": 1.5, "epoch": 0.1}\n', "", "{"])
def test_the_bar_shows_the_curve(lines: str, tmp_path: Path) -> None:
    bar = SimpleNamespace(n=7, set_postfix=lambda shown: setattr(bar, "shown", shown))
    (tmp_path / "curve").write_text(lines, encoding="utf-8")
    show(bar, tmp_path / "curve")
    if lines.endswith("}\n"):
        assert (bar.n, bar.shown) == (20, {"R@5": "0.25", "loss": "1.5"})
    else:
        assert bar.n == 7
