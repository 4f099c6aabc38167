"""Pairs a second of cs.train beside sentence-transformers' own trainer with MultipleNegativesRankingLoss, and memory
at a large batch.

    python experiments/bench/training.py --repeats 3 --steps 8 --out training.csv

Both train the same model on the same pairs of the testbed, with the same batch size, lengths and precision, in turns:
ours, theirs, ours …; the median of the ratios is what counts. What ours does beyond theirs: it draws negatives anew,
cuts queries on the left, and masks false negatives. The memory is the peak of a process of its own that trains two
steps at ``--large-batch`` with cached gradients.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pt_convsearch as cs
from pt_convsearch.negatives import TrainingPairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="name or folder of the model")
    parser.add_argument("--layers", type=int, default=2, help="keep only the first layers, 0: all")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--negatives", type=int, default=1, help="hard negatives per question")
    parser.add_argument("--max-length", type=int, default=96, help="tokens of a text, on both sides")
    parser.add_argument("--steps", type=int, default=6, help="steps timed per turn; one more warms up")
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32")
    parser.add_argument("--large-batch", type=int, default=256, help="questions of the memory run; 0: leave it out")
    parser.add_argument("--out", type=Path, help="a CSV file for the figures")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(json.dumps(large_batch(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(options, Path(folder))
        if options.large_batch:
            rows += memory(options, Path(folder))
    for row in rows:
        print(" ".join(f"{name}={value}" for name, value in row.items()))
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.DictWriter(handle, list(dict.fromkeys(name for row in rows for name in row)))
            writer.writeheader()
            writer.writerows(rows)


def mined(folder: Path, negatives: int) -> TrainingPairs:
    """Training pairs of the testbed, with random negatives: how they were found does not change how fast they train."""
    data = cs.dataset("testbed/train")
    corpus = list(data.get_corpus_iter())
    miner = cs.RandomNegatives(corpus, num_results=50)
    return cs.training_pairs(
        data.get_topics(),
        data.get_qrels(),
        corpus,
        form=cs.X,
        negatives=miner,
        num_negatives=negatives,
        out=folder / "pairs",
    )


def base_model(options: argparse.Namespace) -> Any:
    from pt_convsearch.training.towers import starting_model

    model = starting_model(options.model, towers=1, pooling=None, similarity="cosine", device=None)
    if options.layers:
        model[0].model.encoder.layer = model[0].model.encoder.layer[: options.layers]
        model[0].model.config.num_hidden_layers = options.layers
    model.max_seq_length = options.max_length
    return model


def clock() -> Any:
    """A callback that times the steps after the first."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                self.began = time.perf_counter()
            self.seconds = time.perf_counter() - self.began

    return Clock()


def compare(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    pairs = mined(folder, options.negatives)
    dataset = pairs.to_dataset()
    model = base_model(options)
    speeds: dict[str, list[float]] = {"cs.train": [], "sentence-transformers": []}
    for turn in range(options.repeats):
        for name, run in (("cs.train", ours), ("sentence-transformers", theirs)):
            seconds = run(copy.deepcopy(model), pairs, dataset, options, folder / f"{turn}-{run.__name__}")
            speeds[name].append(options.batch_size * options.steps / seconds)
    ratios = [left / right for left, right in zip(*speeds.values(), strict=True)]
    rows: list[dict[str, Any]] = [
        {"what": name, "pairs_per_second": round(statistics.median(values), 2)} for name, values in speeds.items()
    ]
    rows.append({"what": "ratio of pairs per second, ours to theirs", "median": round(statistics.median(ratios), 3),
                 "lowest": round(min(ratios), 3), "highest": round(max(ratios), 3)})  # fmt: skip
    return rows


def ours(model: Any, pairs: TrainingPairs, dataset: Any, options: argparse.Namespace, out: Path) -> float:
    timer = clock()
    cs.train(
        pairs, init=model, out=out, max_steps=options.steps + 1, batch_size=options.batch_size,
        precision=options.precision,
        max_query_length=options.max_length, max_passage_length=options.max_length, callbacks=[timer],
    )  # fmt: skip
    return timer.seconds


def theirs(model: Any, pairs: TrainingPairs, dataset: Any, options: argparse.Namespace, out: Path) -> float:
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import PrinterCallback

    timer = clock()
    args = SentenceTransformerTrainingArguments(
        output_dir=str(out), per_device_train_batch_size=options.batch_size, max_steps=options.steps + 1,
        learning_rate=3e-5, warmup_steps=1, max_grad_norm=2.0, bf16=options.precision == "bf16", save_strategy="no",
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=args, train_dataset=dataset, loss=MultipleNegativesRankingLoss(model), callbacks=[timer]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return timer.seconds


def memory(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Peak memory of a process that trains at the large batch."""
    command = [sys.executable, __file__, *sys.argv[1:], "--memory-of", str(folder / "pairs")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    return [json.loads(done.stdout.splitlines()[-1])]


def large_batch(options: argparse.Namespace) -> dict[str, Any]:
    pairs = TrainingPairs(options.memory_of)
    model = base_model(options)
    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        cs.train(
            pairs, init=model, out=Path(folder) / "model", max_steps=2, batch_size=options.large_batch,
            mini_batch_size=16,
            max_query_length=options.max_length, max_passage_length=options.max_length, precision=options.precision,
        )  # fmt: skip
    return {
        "what": f"peak memory at batch {options.large_batch}, mini-batches of 16",
        "MiB": peak(),
        "MiB before training": before,
    }


def peak() -> int:
    """The largest resident memory of this process so far, MiB."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage counts what the parent process had, too
        return int(status.read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) // 2**10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
