"""The same stages on many machines: encoding, searching and everything else, on Ray or on the threads of one machine.

    index = cs.scale.encode(corpus, encoder, "passages.flex")             # an actor pool encodes, one index comes out
    shards = cs.scale.ShardedIndex("passages.shards").index(corpus)       # BM25 in shards, exact
    bm25 = cs.scale.ShardedIndex("passages.shards", engine="ray").bm25()  # each shard served by an actor
    model = cs.scale.train(pairs, init=…, out="model", num_workers=8)     # one model, trained by eight workers
    mined = cs.scale.on_ray(cs.form(cs.X) >> bm25, num_workers=8)(topics) # rows spread over actors

Ray is optional (``pip install 'pt-convsearch[ray]'``): ``ShardedIndex`` works without it, in threads. The names below
are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "OnRay": "parallel",
    "Plan": "planning",
    "ShardedBM25Index": "sharded_bm25",
    "ShardedDenseIndex": "sharded_dense",
    "ShardedIndex": "sharded",
    "connect": "cluster",
    "encode": "encoding",
    "on_ray": "parallel",
    "plan": "planning",
    "recall_of": "recall",
    "train": "training",
}

__all__ = [
    "OnRay", "Plan", "ShardedBM25Index", "ShardedDenseIndex", "ShardedIndex", "connect", "encode", "on_ray", "plan",
    "recall_of", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
