"""The same stages on many machines: encoding, searching and everything else, on Ray or on the threads of one machine.

    index = cs.scale.encode(corpus, encoder, "passages.flex")             # an actor pool encodes, one index comes out
    shards = cs.scale.ShardedIndex("passages.shards").index(corpus)       # BM25 in shards, exact
    bm25 = cs.scale.ShardedIndex("passages.shards", engine="ray").bm25()  # each shard served by an actor
    model = cs.scale.train(pairs, init=…, out="model", num_workers=8)     # one model, trained by eight workers
    mined = cs.scale.on_ray(cs.form(cs.X) >> bm25, num_workers=8)(topics) # rows spread over actors

Ray is optional (``pip install 'pt-convsearch[ray]'``): ``ShardedIndex`` works without it, in threads. The names
(`__init__.pyi`) are loaded when first used.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
