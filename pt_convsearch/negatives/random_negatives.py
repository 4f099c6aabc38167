"""Negatives that nobody searched for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch._results import results_frame
from pt_convsearch._stage import Stage
from pt_convsearch.topics.checks import as_ids, check_queries

from ._fingerprint import digest
from ._texts import Corpus, _documents


class RandomNegatives(Stage):
    """A retriever that draws passages at random: the weakest negatives, and the control for all others.

    The draw depends on the seed and the qid alone: batches, their order and other questions change nothing. No
    passage is drawn twice for a question. A question with an empty query gets none, as from every retriever of ours.

    Input: qid, query. Output: the topics' columns and docno, score (falling from ``num_results``), rank.

    Args:
        corpus: the passages, as in :func:`training_pairs`, or just their docnos.
        num_results: how many to draw for a question; fewer where the collection is smaller.
        seed: another seed draws others.

    Raises:
        ValueError: the corpus is empty, or ``num_results`` is below 1.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> draw = cs.RandomNegatives(["a", "b", "c"], num_results=2, seed=1)
        >>> len(draw(pd.DataFrame({"qid": ["1"], "query": ["anything"]})))
        2
    """

    def __init__(self, corpus: Corpus | Iterable[str], *, num_results: int = 100, seed: int = 1) -> None:
        if num_results < 1:
            raise ValueError(f"num_results={num_results}: give at least 1")
        self.corpus = corpus
        self.num_results = num_results
        self.seed = seed
        self._docnos = _docnos(corpus)
        if len(self._docnos) == 0:
            raise ValueError("the corpus is empty: there is nothing to draw from")

    def _identity(self) -> tuple[Any, ...]:
        return (self.num_results, self.seed, digest(self._docnos))

    def __repr__(self) -> str:
        return f"RandomNegatives(corpus[{len(self._docnos)}], num_results={self.num_results}, seed={self.seed})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "corpus": None}  # an iterator over the passages cannot travel, their docnos can

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        topics = check_queries(topics, context=self)
        size = min(self.num_results, len(self._docnos))
        drawn: list[np.ndarray] = []
        counts = []
        for qid, query in zip(topics["qid"], topics["query"], strict=True):
            counts.append(size if query.strip() else 0)
            if counts[-1]:
                digest = hashlib.blake2b(f"{self.seed} {qid}".encode(), digest_size=8).digest()
                generator = np.random.Generator(np.random.Philox(int.from_bytes(digest, "little")))
                drawn.append(generator.choice(len(self._docnos), size=size, replace=False))
        rows = np.concatenate(drawn) if drawn else np.zeros(0, dtype=np.int64)
        scores = np.tile(np.arange(size, 0, -1, dtype=np.float64), len(drawn))
        return results_frame(topics, counts, self._docnos[rows], scores)


def _docnos(corpus: Any) -> np.ndarray:
    if isinstance(corpus, pd.DataFrame):
        return as_ids(corpus["docno"], "docno").to_numpy(dtype=object)
    documents = corpus if isinstance(corpus, list | tuple | np.ndarray | pd.Series) else _documents(corpus)
    return np.array([one["docno"] if isinstance(one, dict) else str(one) for one in documents], dtype=object)
