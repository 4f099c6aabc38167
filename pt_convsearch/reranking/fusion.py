"""Fusing the rankings of several pipelines run on the same topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt

from .._results import results_frame
from .._stage import Stage
from ..topics.checks import as_ids, check_queries, topic_columns


class _Fusion(Stage):
    """Runs each pipeline on the same input, adds up what each says of a passage, and ranks by the sum."""

    pipelines: tuple[pt.Transformer, ...]
    num_results: int

    def _check(self) -> None:
        if not self.pipelines:
            raise ValueError(f"{self.label}: no pipelines to fuse")
        for pipeline in self.pipelines:
            if not isinstance(pipeline, pt.Transformer):
                raise TypeError(f"{self.label}: {pipeline!r} is no transformer")
        if self.num_results < 1:
            raise ValueError(f"num_results={self.num_results}: at least 1")

    def _say(self, branch: int, found: pd.DataFrame) -> np.ndarray:
        """What a branch says of each row: rows hold ``query`` (a number), ``rank`` (from 0) and ``score``."""
        raise NotImplementedError

    def _base(self, branches: list[pd.DataFrame], queries: int) -> np.ndarray:
        """What every passage of a query has on top."""
        return np.zeros(queries)

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        topics = _topics(inp, self)
        place = {qid: row for row, qid in enumerate(topics["qid"])}
        branches = [_branch(pipeline.transform(inp), place, pipeline) for pipeline in self.pipelines]
        rows = pd.concat(
            [found[["query", "docno"]].assign(part=self._say(number, found)) for number, found in enumerate(branches)],
            ignore_index=True,
        )
        grouped = rows.groupby(["query", "docno"], sort=False)["part"]
        # rounded: sums of the same terms in another order tie
        fused = grouped.sum().rename("score").reset_index()
        fused["score"] += self._base(branches, len(topics))[fused["query"].to_numpy(dtype=np.int64)]
        order = np.lexsort((np.arange(len(fused)), -fused["score"].round(12).to_numpy(), fused["query"].to_numpy()))
        fused = fused.take(order)
        fused = fused[fused.groupby("query").cumcount() < self.num_results]
        counts = np.bincount(fused["query"].to_numpy(dtype=np.int64), minlength=len(topics))
        out = results_frame(topics, counts, fused["docno"].to_numpy(), fused["score"].to_numpy())
        return _with_passages(out, branches, topics, fused)

    def __repr__(self) -> str:
        options = [repr(pipeline) for pipeline in self.pipelines] + self._shown()
        return f"{self.label}({', '.join(options)})"

    def _shown(self) -> list[str]:
        raise NotImplementedError

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        return {"label": self.label, "help_url": None, "inner_pipelines_mode": "combine"}


class rrf(_Fusion):
    """Q -> R: reciprocal rank fusion of any number of pipelines.

    A passage's score is the sum of 1 / (k + rank) over the pipelines that found it, ranks counted from 1. Equal
    scores keep the order of the first pipeline that has them. The columns of the topics come back as they went in,
    whatever the pipelines did to them (a former's ``query``, for one); columns of passages (``text``) are kept where
    every pipeline has them.

    Args:
        *pipelines: Q -> R (or R -> R) transformers; all are run on the same input.
        k: the constant; 60 as in the paper.
        num_results: how many to keep per query.

    Raises:
        ValueError: no pipelines, or one that returns a qid that was not asked.

    Example:
        >>> hybrid = cs.rrf(cs.form(cs.REWRITE) >> bm25, cs.form(cs.X) >> dense)

    Source: Cormack, Clarke, Büttcher: Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
        Methods, SIGIR 2009.
    """

    label = "rrf"

    def __init__(self, *pipelines: pt.Transformer, k: float = 60, num_results: int = 1000) -> None:
        self.pipelines = pipelines
        self.k = k
        self.num_results = num_results
        self._check()
        if not 0 <= k < float("inf"):
            raise ValueError(f"k={k}: at least 0")

    def _say(self, branch: int, found: pd.DataFrame) -> np.ndarray:
        return 1.0 / (self.k + 1.0 + found["rank"].to_numpy(dtype=np.float64))

    def _shown(self) -> list[str]:
        return [f"k={self.k}"] * (self.k != 60) + [f"num_results={self.num_results}"] * (self.num_results != 1000)


class interpolate(_Fusion):
    """Q -> R: a weighted sum of the scores of any number of pipelines, each scaled to [0, 1] per query first.

    Where a pipeline gives all its passages one score, each has 1.

    Args:
        *pipelines: Q -> R (or R -> R) transformers; all are run on the same input.
        weights: one per pipeline; None: equal ones that sum to 1.
        scale: "minmax" per query, or None: the scores as they are.
        missing: what a passage has from a pipeline that did not find it: "zero", or "minimum": the lowest of what that
            pipeline found for the query. Dot products of a dense encoder begin far above 0, so with ``scale=None``
            they need the second.
        num_results: how many to keep per query.

    Raises:
        ValueError: no pipelines, or another number of weights than of pipelines.

    Example:
        >>> hybrid = cs.reranking.interpolate(bm25, dense, weights=[0.3, 0.7])
        >>> paper = cs.reranking.interpolate(dense, bm25, weights=[1, 0.1], scale=None, missing="minimum")

    Source: the second is the hybrid of Lin et al. (TCT-ColBERT, 2020; CQE, EMNLP 2021).
    """

    label = "interpolate"

    def __init__(
        self,
        *pipelines: pt.Transformer,
        weights: Sequence[float] | None = None,
        scale: Literal["minmax"] | None = "minmax",
        missing: Literal["zero", "minimum"] = "zero",
        num_results: int = 1000,
    ) -> None:
        self.pipelines = pipelines
        self.weights = None if weights is None else tuple(float(weight) for weight in weights)
        self.scale = scale
        self.missing = missing
        self.num_results = num_results
        self._check()
        if self.weights is not None and len(self.weights) != len(pipelines):
            raise ValueError(f"{len(self.weights)} weights for {len(pipelines)} pipelines")
        if scale not in ("minmax", None):
            raise ValueError(f"scale={scale!r}: 'minmax' or None")
        if missing not in ("zero", "minimum"):
            raise ValueError(f"missing={missing!r}: 'zero' or 'minimum'")

    def _say(self, branch: int, found: pd.DataFrame) -> np.ndarray:
        said = self._weighted(branch, found)
        if self.missing == "minimum" and len(found):
            said -= pd.Series(said).groupby(found["query"].to_numpy()).transform("min").to_numpy()
        return said

    def _base(self, branches: list[pd.DataFrame], queries: int) -> np.ndarray:
        """With ``missing="minimum"`` the sum of the lowest scores, above which passages count."""
        base = np.zeros(queries)
        if self.missing == "minimum":
            for number, found in enumerate(branches):
                lowest = pd.Series(self._weighted(number, found)).groupby(found["query"].to_numpy()).min()
                base[lowest.index.to_numpy(dtype=np.int64)] += lowest.to_numpy()
        return base

    def _weighted(self, branch: int, found: pd.DataFrame) -> np.ndarray:
        scores = found["score"].to_numpy(dtype=np.float64)
        if self.scale == "minmax" and len(found):
            groups = found.groupby("query")["score"]
            low, high = groups.transform("min").to_numpy(), groups.transform("max").to_numpy()
            scores = np.divide(scores - low, high - low, out=np.ones_like(scores), where=high > low)
        weight = 1.0 / len(self.pipelines) if self.weights is None else self.weights[branch]
        return weight * scores

    def _shown(self) -> list[str]:
        shown = [] if self.weights is None else [f"weights={list(self.weights)}"]
        shown += [f"scale={self.scale!r}"] * (self.scale != "minmax")
        shown += [f"missing={self.missing!r}"] * (self.missing != "zero")
        return shown + [f"num_results={self.num_results}"] * (self.num_results != 1000)


def _topics(inp: pd.DataFrame, stage: pt.Transformer) -> pd.DataFrame:
    """One row per query of the input, which may be a frame of results."""
    if "docno" not in inp.columns:
        return check_queries(inp, context=stage).reset_index(drop=True)
    pt.validate.result_frame(inp, ["query"], context=stage)
    return check_queries(inp[topic_columns(inp)][~inp["qid"].duplicated()], context=stage).reset_index(drop=True)


def _branch(found: pd.DataFrame, place: dict[str, int], pipeline: pt.Transformer) -> pd.DataFrame:
    """The rows of a branch with the number of their query, best first, a repeated passage once, ranks from 0 anew."""
    pt.validate.columns(found, includes=["qid", "docno", "score"])
    query = as_ids(found["qid"], "qid").map(place)
    if query.isna().any():
        raise ValueError(f"{pipeline!r} returned qid {found['qid'][query.isna()].iloc[0]!r}, which was not asked")
    found = found.assign(query=query.astype(np.int64), docno=found["docno"].astype("str"))
    by = found["rank"].to_numpy() if "rank" in found.columns else -found["score"].to_numpy(dtype=np.float64)
    found = found.take(np.lexsort((by, found["query"].to_numpy()))).reset_index(drop=True)
    found = found[~found[["query", "docno"]].duplicated()]
    return found.assign(rank=found.groupby("query").cumcount())


def _with_passages(
    out: pd.DataFrame, branches: list[pd.DataFrame], topics: pd.DataFrame, fused: pd.DataFrame
) -> pd.DataFrame:
    """``out`` with the columns of passages that all branches have, from the first branch that found the passage."""
    shared = [
        column
        for column in branches[0].columns
        if all(column in branch.columns for branch in branches)
        and column not in topics.columns
        and not column.startswith("q")
        and column not in ("docno", "score", "rank", "docid")
    ]
    if not shared:
        return out
    found = pd.concat([branch[["query", "docno", *shared]] for branch in branches], ignore_index=True)
    found = found[~found[["query", "docno"]].duplicated()].set_index(["query", "docno"])
    rows = found.index.get_indexer(pd.MultiIndex.from_frame(fused[["query", "docno"]]))
    return out.assign(**{column: found[column].array.take(rows) for column in shared})
