"""Several rewrites of one question: one of them as the query, or all of them as weighted terms."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pandas as pd
import pyterrier as pt

from pt_convsearch._stage import Stage
from pt_convsearch.lexical import BM25Index
from pt_convsearch.topics.checks import check_queries


class NthRewrite(Stage):
    """The n-th of a question's rewrites becomes the query (Q -> Q); an empty query, which finds nothing, where there
    are fewer.

    Input columns: ``qid``, ``query``, ``qrewrites`` (from :class:`Rewriter` or :class:`LLMRewriter`). Output: the same,
    without ``query_toks`` and ``query_vec``.

    Args:
        n: which one, from 0.

    Raises:
        pt.validate.InputValidationError: ``qrewrites`` is missing.
        ValueError: ``n`` is below 0.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["a"], "qrewrites": [["a", "b"]]})
        >>> NthRewrite(1)(topics)["query"].tolist(), NthRewrite(2)(topics)["query"].tolist()
        (['b'], [''])

    Fusing the rankings of three rewrites by reciprocal ranks:
    ``rewriter >> cs.rrf(*(cs.NthRewrite(n) >> bm25 for n in range(3)))``.
    """

    def __init__(self, n: int) -> None:
        if n < 0:
            raise ValueError(f"n={n}: rewrites are counted from 0")
        self.n = n

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, ["query", "qrewrites"], context=self)
        frame = check_queries(inp, context=self)
        queries = [some[self.n] if self.n < len(some) else "" for some in frame["qrewrites"]]
        frame = frame.drop(columns=[column for column in ("query_toks", "query_vec") if column in frame.columns])
        return frame.assign(query=pd.Series(queries, index=frame.index, dtype="str"))


class RewriteTerms(Stage):
    """All rewrites of a question as one weighted query (Q -> Q): a term weighs what the rewrites that hold it weigh.

    Input columns: ``qid``, ``query``, ``qrewrites``; ``qrewrite_weights`` where weights are "model". Output: the same
    and ``query_toks`` (index term -> weight), which every lexical retriever of ours takes in place of ``query``. A term
    said twice in a rewrite counts twice.

    Args:
        index: where terms come from: its tokenizer, stop words and stemmer.
        weights: "model": as the rewriter says; "equal": all rewrites alike.

    Raises:
        pt.validate.InputValidationError: a column is missing.

    Example:
        ``cs.Rewriter(model, num_rewrites=5) >> cs.RewriteTerms(index) >> index.bm25()``
    """

    def __init__(self, index: BM25Index, *, weights: Literal["model", "equal"] = "model") -> None:
        if weights not in ("model", "equal"):
            raise ValueError(f"weights={weights!r}: 'model' or 'equal'")
        self.index = index
        self.weights = weights

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        needed = ["query", "qrewrites"] + (["qrewrite_weights"] if self.weights == "model" else [])
        pt.validate.query_frame(inp, needed, context=self)
        frame = check_queries(inp, context=self)
        weights: Any = frame["qrewrite_weights"] if self.weights == "model" else [None] * len(frame)
        toks = [self._terms(list(some), own) for some, own in zip(frame["qrewrites"], weights, strict=True)]
        return frame.assign(query_toks=pd.Series(toks, index=frame.index, dtype=object))

    def _terms(self, rewrites: list[str], weights: Any) -> dict[str, float]:
        shares = [1 / max(1, len(rewrites))] * len(rewrites) if weights is None else list(weights)
        total: Counter[str] = Counter()
        for rewrite, share in zip(rewrites, shares, strict=True):
            for term in self.index.analyze(rewrite):
                total[term] += share  # type: ignore[assignment]
        return {term: float(weight) for term, weight in total.items()}
