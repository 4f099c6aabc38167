"""Vectors of known passages: loading them, and scoring by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt

from .._results import ranked
from .._stage import Stage
from .stages import as_column
from .vectors import query_vectors

if TYPE_CHECKING:
    from .index import DenseIndex


class VecLoader(Stage):
    """Adds ``doc_vec`` (float32) to frames with ``docno``.

    Raises:
        ValueError: a docno that is not in the index, by name.

    Example:
        >>> with_vectors = bm25 >> dense_index.vec_loader()
    """

    def __init__(self, index: DenseIndex) -> None:
        self.index = index

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["docno"])
        vectors = self.index.vectors[self.index.numbers_of(inp["docno"])] if len(inp) else np.empty((0, 0))
        return inp.assign(doc_vec=as_column(vectors, inp.index))

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        return pt.RankCutoff(k) >> self

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}


class DenseScorer(Stage):
    """R -> R: scores rows of ``qid``, ``query`` (or ``query_vec``), ``docno`` by the index's vectors, and ranks anew.

    Args:
        index: the index.
        num_results: how many to keep per query; None: all.

    Raises:
        ValueError: a docno that is not in the index, by name.

    Example:
        >>> rescored = bm25 >> dense_index.scorer()
    """

    def __init__(self, index: DenseIndex, *, num_results: int | None = None) -> None:
        if num_results is not None and num_results < 1:
            raise ValueError(f"num_results={num_results}: at least 1")
        self.index = index
        self.num_results = num_results

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        with pt.validate.any(inp) as accepted:
            accepted.columns(includes=["qid", "docno", "query_vec"])
            accepted.columns(includes=["qid", "docno", "query"])
        if len(inp) == 0:
            return ranked(inp.assign(score=np.empty(0)))
        first = ~inp["qid"].duplicated()
        rows = pd.factorize(inp["qid"])[0]
        queries = query_vectors(self.index, inp[first])[rows]
        passages = self.index.vectors[self.index.numbers_of(inp["docno"])]
        out = ranked(inp.assign(score=np.einsum("ij,ij->i", queries, passages, dtype=np.float64)))
        return out if self.num_results is None else out[out["rank"] < self.num_results].reset_index(drop=True)

    def fuse_rank_cutoff(self, k: int) -> DenseScorer | None:
        return DenseScorer(self.index, num_results=k) if self.num_results is None or k < self.num_results else None

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}
