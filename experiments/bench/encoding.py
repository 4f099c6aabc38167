"""Encoding: ours beside sentence-transformers' default, in turns, with the cosine between both.

Texts are random words, as long as passages (about 57 tokens) and as conversations (about 600, cut to the model's
maximum). Times are medians of interleaved runs, printed as ratios. --cpu-time counts the processor's time,
for a machine that others use too.

    python experiments/bench/encoding.py --passages 600 --conversations 60 --threads 1
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd

_TEXT = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so what up its
about into than them can only other time new some could these two may first then do any like my now over such
our man me even most made after also did many off before must well back through years much where your way down
should because long each just state people
"""
WORDS = _TEXT.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--passages", type=int, default=600)
    parser.add_argument("--conversations", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--out", type=Path, help="write kind,system,texts,seconds,speedup,cosine to this CSV file")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter

    import torch

    import pt_convsearch as cs

    torch.set_num_threads(arguments.threads)
    encoder = cs.BiEncoder(arguments.model, max_query_length=512, max_passage_length=512)
    exact = cs.BiEncoder(arguments.model, max_query_length=512, max_passage_length=512, bf16=False)
    model = encoder._load()[1]
    random = np.random.default_rng(arguments.seed)
    rows = []
    for kind, count, mean in (("passages", arguments.passages, 55), ("conversations", arguments.conversations, 600)):
        texts = [" ".join(random.choice(WORDS, max(3, int(random.gamma(4, mean / 4))))) for _ in range(count)]
        systems = {
            "sentence-transformers, default": lambda texts=texts: model.encode(texts, show_progress_bar=False),
            "pt_convsearch": lambda texts=texts: encoder.encode_docs(texts),
            "pt_convsearch, float32": lambda texts=texts: exact.encode_docs(texts),
        }
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        vectors: dict[str, np.ndarray] = {}
        for repeat in range(arguments.repeats + 1):
            for name, run in systems.items():
                start = clock()
                vectors[name] = run() if repeat else run()[:0]
                if repeat:
                    seconds[name].append(clock() - start)
        theirs = vectors["sentence-transformers, default"]
        slow = statistics.median(seconds["sentence-transformers, default"])
        for name, values in seconds.items():
            median, cosine = statistics.median(values), lowest_cosine(theirs, vectors[name])
            rows.append({
                "kind": kind, "system": name, "texts": count, "seconds": round(median, 3),
                "speedup": round(slow / median, 3), "lowest cosine": round(cosine, 6),
            })  # fmt: skip
    print(pd.DataFrame(rows).to_string(index=False))
    if arguments.out is not None:
        with arguments.out.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def lowest_cosine(one: np.ndarray, other: np.ndarray) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float((np.einsum("ij,ij->i", one, other) / lengths).min())


if __name__ == "__main__":
    main()
