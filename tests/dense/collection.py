"""A small collection with odd docnos, and one as long as one likes."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

CORPUS = [
    {"docno": "d1", "text": "who wrote dune ?"},
    {"docno": "d 2", "text": "paris is a capital of france"},
    {"docno": "日本-é", "text": "a cat and a dog"},
    {"docno": "x" * 300, "text": ""},
]
TOPICS = pd.DataFrame({"qid": ["1", "2"], "query": ["dune", "a dog"]})


def many(count: int) -> Iterator[dict[str, str]]:
    for number in range(count):
        yield {"docno": f"d{number}", "text": " ".join(f"w{(number * step) % 60}" for step in range(1, 2 + number % 7))}
