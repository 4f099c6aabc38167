"""A training that is stopped, killed, run again, or run twice at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import pt_convsearch as cs

from .test_bi_encoder import HERE, OPTIONS, Watch, curve, same_weights, weights


def test_a_crash_and_a_half_written_checkpoint_change_nothing(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    options = {**OPTIONS, "init": tiny_bert, "max_steps": 6, "eval_every": 2, "dev": collection.all}
    cs.train(pairs, out=tmp_path / "whole", **options)
    # steps 2 and 4 leave checkpoints; an epoch has four steps, so step 5 stands in the second one
    with pytest.raises(KeyboardInterrupt):
        cs.train(pairs, out=tmp_path / "cut", callbacks=[Watch(crash_after=5)], **options)
    work = tmp_path / "cut.training"
    assert not (tmp_path / "cut").exists()
    (work / "checkpoint-5.partial" / "checkpoint-5").mkdir(parents=True)
    (work / "checkpoint-5").mkdir()  # and one that has no state
    watch = Watch()
    cs.train(pairs, out=tmp_path / "cut", callbacks=[watch], **options)
    assert watch.steps == 2
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert curve(tmp_path / "whole") == curve(tmp_path / "cut")


def test_a_killed_training_goes_on_to_the_same_weights(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "init": tiny_bert, "max_steps": 4, "eval_every": 2, "mini_batch_size": 3}
    options.pop("device")
    given = {"pairs": str(pairs.path), "out": str(tmp_path / "killed"), "kill_after": 3, **options}
    killed = subprocess.run([sys.executable, str(HERE / "run_training.py"), json.dumps(given)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "killed.training" / "checkpoint-2").is_dir()
    assert not (tmp_path / "killed").exists()
    for name in ("killed", "whole"):
        cs.train(pairs, out=tmp_path / name, device="cpu", **options)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_a_finished_training_is_not_done_again_and_never_mistaken(
    pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path
) -> None:
    options = {**OPTIONS, "init": tiny_bert, "max_steps": 2}
    cs.train(pairs, out=tmp_path / "m", **options)
    before = weights(tmp_path / "m")
    watch = Watch()
    cs.train(pairs, out=tmp_path / "m", callbacks=[watch], **options)
    assert watch.steps == 0
    for change in ({"seed": 2}, {"batch_size": 4}, {"num_negatives": 1}, {"scale": 10.0}, {"max_steps": 3}):
        with pytest.raises(ValueError, match=next(iter(change))):
            cs.train(pairs, out=tmp_path / "m", **{**options, **change})
    cs.train(pairs, out=tmp_path / "m", overwrite=True, **{**options, "seed": 2})
    after = weights(tmp_path / "m")
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="is not overwritten"):
            cs.train(pairs, out=tmp_path / "other", overwrite=overwrite, **options)
    assert (tmp_path / "other" / "thesis.tex").read_text(encoding="utf-8") == "years of work"
    (tmp_path / "empty").mkdir()
    cs.train(pairs, out=tmp_path / "empty", **options)


def test_patience_is_not_forgotten_by_a_kill(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "init": tiny_bert, "dev": collection.all, "max_steps": 40, "eval_every": 1, "patience": 3,
        **OPTIONS, "learning_rate": 1e-9,
    }  # fmt: skip
    cs.train(pairs, out=tmp_path / "whole", **given)
    assert list(curve(tmp_path / "whole")) == [0, 1, 2, 3, 4]  # the first is the best, three more are not better
    with pytest.raises(KeyboardInterrupt):
        cs.train(pairs, out=tmp_path / "m", callbacks=[Watch(crash_after=3)], **given)
    cs.train(pairs, out=tmp_path / "m", **given)
    assert curve(tmp_path / "m") == curve(tmp_path / "whole")
    assert same_weights(tmp_path / "m", tmp_path / "whole")


def test_settings_that_were_cut(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    (tmp_path / "m.training").mkdir()
    (tmp_path / "m.training" / "training.json").write_text("{", encoding="utf-8")
    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, **OPTIONS)
    (tmp_path / "m" / "training.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"training\.json is cut or changed"):
        cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, **OPTIONS)


def test_two_runs_do_not_train_into_one_folder(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    class Another(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            with pytest.raises(RuntimeError, match="written by another run"):
                cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, **OPTIONS)

    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, callbacks=[Another()], **OPTIONS)


def test_two_processes_train_as_one_of_twice_the_batch(collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    """Every question competes with the passages of both, masks included; without dropout the weights agree."""
    from transformers import BertModel

    bert = BertModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    bert.config.hidden_dropout_prob = bert.config.attention_probs_dropout_prob = 0.0
    still = tmp_path / "still"
    SentenceTransformer(tiny_bert).tokenizer.save_pretrained(still)
    bert.save_pretrained(still)
    # all questions of a half share a gold, so that masks reach over the processes
    qrels = collection.qrels.assign(docno=[f"d{number // 4}" for number in range(32)])
    pairs = cs.training_pairs(
        collection.topics, qrels, collection.corpus, form=cs.X, negatives=cs.RandomNegatives(collection.corpus),
        num_negatives=1, out=tmp_path / "pairs",
    )  # fmt: skip
    options = {
        **OPTIONS,
        "init": str(still),
        "max_steps": 3,
        "learning_rate": 0.05,
        "trainer_options": {"optim": "sgd"},
    }
    options.pop("device")
    given = {**options, "pairs": str(pairs.path), "out": str(tmp_path / "two"), "batch_size": 4}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    launch += ["--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [*launch, str(HERE / "run_training.py"), json.dumps(given)], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    cs.train(pairs, out=tmp_path / "one", device="cpu", **options)
    one, two, start = weights(tmp_path / "one"), weights(tmp_path / "two"), weights(still)
    moved = max(np.abs(one[name] - start[name]).max() for name in start)
    assert moved > 1e-3
    assert max(np.abs(one[name] - two[name]).max() for name in start) < moved * 1e-3
