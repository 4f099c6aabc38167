"""Several rewrites of a question: the n-th, all as weighted terms, fused by reciprocal ranks."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs


@pytest.fixture
def rewritten() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "qid": ["1", "2"],
            "query": ["dune author", "emma"],
            "qrewrites": [["dune author", "dune writer dune"], ["emma"]],
            "qrewrite_weights": [[0.75, 0.25], [1.0]],
        }
    )


@pytest.fixture
def index(tmp_path: Path) -> cs.BM25Index:
    texts = {"d1": "dune author", "d2": "writer", "d3": "emma"}
    return cs.BM25Index(tmp_path / "i").index([{"docno": docno, "text": text} for docno, text in texts.items()])


def test_the_nth_rewrite_or_nothing(rewritten: pd.DataFrame) -> None:
    out = cs.NthRewrite(1)(rewritten.assign(query_toks=[{}, {}]))
    assert out["query"].tolist() == ["dune writer dune", ""]
    assert "query_toks" not in out.columns
    assert cs.NthRewrite(1) == cs.NthRewrite(1) != cs.NthRewrite(2)
    with pytest.raises(ValueError, match="n=-1"):
        cs.NthRewrite(-1)
    with pytest.raises(pt.validate.InputValidationError):
        cs.NthRewrite(0)(rewritten.drop(columns="qrewrites"))
    assert cs.NthRewrite(0)(rewritten.iloc[:0])["query"].tolist() == []


def test_fused_by_reciprocal_ranks(rewritten: pd.DataFrame, index: cs.BM25Index) -> None:
    found = cs.rrf(*(cs.NthRewrite(n) >> index.bm25() for n in range(2)))(rewritten)
    scores = found.set_index(["qid", "docno"])["score"].to_dict()
    # rewrite 0 finds d1; rewrite 1 finds d1 (dune twice: 2 x .98) above or below d2; both within two ranks
    assert scores["1", "d1"] == pytest.approx(1 / 61 + 1 / 61)
    assert scores["1", "d2"] == pytest.approx(1 / 62)
    assert scores["2", "d3"] == pytest.approx(1 / 61)
    assert found[found.qid == "1"]["query"].unique().tolist() == ["dune author"]


def test_weighted_terms_by_hand(rewritten: pd.DataFrame, index: cs.BM25Index) -> None:
    toks = cs.RewriteTerms(index)(rewritten)["query_toks"].tolist()
    assert toks[0] == pytest.approx({"dune": 0.75 + 2 * 0.25, "author": 0.75, "writer": 0.25})
    assert toks[1] == {"emma": 1.0}
    equal = cs.RewriteTerms(index, weights="equal")(rewritten.drop(columns="qrewrite_weights"))["query_toks"][0]
    assert equal == pytest.approx({"dune": 0.5 + 1.0, "author": 0.5, "writer": 0.5})
    found = (cs.RewriteTerms(index) >> index.bm25())(rewritten)
    assert found[found.qid == "1"]["docno"].tolist() == ["d1", "d2"]
    with pytest.raises(pt.validate.InputValidationError):
        cs.RewriteTerms(index)(rewritten.drop(columns="qrewrite_weights"))
    with pytest.raises(ValueError, match="weights"):
        cs.RewriteTerms(index, weights="some")  # type: ignore[arg-type]
    assert cs.RewriteTerms(index)(rewritten.iloc[:0])["query_toks"].dtype == object
    none = rewritten.assign(qrewrites=[[], ["emma"]], qrewrite_weights=[[], [1.0]])
    for weights in ("model", "equal"):
        assert cs.RewriteTerms(index, weights=weights)(none)["query_toks"].tolist() == [{}, {"emma": 1.0}]
