"""How many topics a second the query formers make, beside the BM25 search that follows them.

    python experiments/bench/forming.py --topics 100000 --turns 10 --tokenizer PATH --out forming.csv

Every topic has a history of its own (no two topics share a message), which is the worst case: rows of one conversation
share their messages, and each distinct message is tokenised once. Runs are interleaved; the median of each is shown.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import tempfile
import time
from pathlib import Path

import pandas as pd

import pt_convsearch as cs

FORMS = {
    "X": cs.X,
    "X - CURRENT": cs.X - cs.CURRENT,
    "CURRENT": cs.CURRENT,
    "FIRST_QUESTION | CURRENT": cs.FIRST_QUESTION | cs.CURRENT,
    "QUESTIONS": cs.QUESTIONS,
    "LAST_ANSWER": cs.LAST_ANSWER,
    "last(2) | CURRENT": cs.last(2) | cs.CURRENT,
}


def made_topics(topics: int, turns: int, words: tuple[int, int], seed: int) -> pd.DataFrame:
    """Topics at the last of ``turns`` turns, with made-up words in Zipf-like proportions."""
    draw = random.Random(seed)
    lexicon = ["".join(draw.choices("abcdefghiklmnoprstuw", k=draw.randint(2, 9))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(lexicon) + 1)]
    pool = draw.choices(lexicon, weights, k=1_000_000)

    def said(length: int) -> str:
        start = draw.randrange(len(pool) - length)
        return " ".join(pool[start : start + length])

    log = (
        {
            "id": f"c{number}",
            "messages": [
                {"role": role, "content": said(length)}
                for turn in range(turns)
                for role, length in (("user", words[0]), ("assistant", words[1]))
                if role == "user" or turn < turns - 1
            ],
        }
        for number in range(topics)
    )
    return cs.topics.from_messages(log, turns="last")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=5_000, help="how many topics (default 5000)")
    parser.add_argument("--turns", type=int, default=10, help="turns of each conversation (default 10)")
    parser.add_argument(
        "--words", type=int, nargs=2, default=(7, 30), metavar=("Q", "A"), help="words of a question and of an answer"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="the budget (default 128)")
    parser.add_argument(
        "--tokenizer", help="name or path of a Hugging Face tokenizer; without it the budget counts words"
    )
    parser.add_argument(
        "--docs", type=int, default=50_000, help="documents of the BM25 index searched for comparison; 0: none"
    )
    parser.add_argument("--searched", type=int, default=200, help="how many topics are searched for comparison")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to write the figures as CSV")
    options = parser.parse_args()

    topics = made_topics(options.topics, options.turns, tuple(options.words), options.seed)
    budget = {"max_tokens": options.max_tokens, "tokenizer": options.tokenizer}
    formers = {name: cs.form(parts) for name, parts in FORMS.items()}
    formers |= {
        f"{name}, {options.max_tokens} tokens": cs.form(parts, sep=" [SEP] ", **budget) for name, parts in FORMS.items()
    }
    stages = {name: (former, topics) for name, former in formers.items()}
    with tempfile.TemporaryDirectory() as folder:
        if options.docs:
            answers = made_topics(
                options.docs // (options.turns - 1) + 1, options.turns, tuple(options.words), options.seed + 1
            )
            texts = [
                message["content"]
                for history in answers["qhistory"]
                for message in history
                if message["role"] == "assistant"
            ]
            corpus = [{"docno": str(number), "text": text} for number, text in enumerate(texts[: options.docs])]
            index = cs.BM25Index(Path(folder) / "index").index(corpus)
            stages["BM25 on X"] = (index.bm25(num_results=100), cs.form(cs.X)(topics.head(options.searched)))
        seconds: dict[str, list[float]] = {name: [] for name in stages}
        for stage, frame in stages.values():
            stage(frame.head(20))  # compile, load
        for _ in range(options.repeats):
            for name, (stage, frame) in stages.items():
                start = time.perf_counter()
                stage(frame)
                seconds[name].append((time.perf_counter() - start) / len(frame))

    per_topic = {name: statistics.median(runs) for name, runs in seconds.items()}
    searching = per_topic.get("BM25 on X")
    rows = []
    for name, cost in per_topic.items():
        rows.append([name, round(1 / cost), round(cost * 1e6, 1), round(cost / searching, 4) if searching else ""])
        share = f"{cost / searching:10.1%} of a search" if searching else ""
        print(f"{name:40} {1 / cost:10,.0f} topics/s {cost * 1e6:10.1f} µs a topic {share}")
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["stage", "topics_per_second", "microseconds_per_topic", "share_of_a_search"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
