"""The impact index: dot products by brute force, what is stored, what is refused."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.lexical import building

DOCS = [
    {"docno": "a", "toks": {"dune": 2.0, "book": 0.5}},
    {"docno": "b", "toks": {}},
    {"docno": "c", "toks": {"book": 1.5, "##s": 0.25, "[CLS]": 0.125}},
]


def frame(*queries: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame({"qid": [str(place) for place in range(len(queries))], "query_toks": list(queries)})


def brute_force(docs: list[dict[str, Any]], query: dict[str, float], k: int) -> list[tuple[str, float]]:
    scores = [
        (doc["docno"], math.fsum(weight * doc["toks"].get(term, 0.0) for term, weight in query.items())) for doc in docs
    ]
    ranked = sorted(enumerate(scores), key=lambda item: (-item[1][1], item[0]))
    return [(docno, score) for _, (docno, score) in ranked if score > 0][:k]


def test_by_hand(tmp_path):
    index = cs.ImpactIndex(tmp_path / "i").index(DOCS)
    queries = frame({"dune": 1.0, "book": 2.0, "film": 9.0}, {"film": 1.0}, {}, {"##s": 4.0, "dune": 0.25, "book": 0.0})
    results = index.retriever(num_results=2)(queries)
    assert results[["qid", "docno", "score", "rank"]].values.tolist() == [
        ["0", "a", 3.0, 0], ["0", "c", 3.0, 1],  # 2 + 2 * .5 and 2 * 1.5: the tie in the order of the collection
        ["3", "c", 1.0, 0], ["3", "a", 0.5, 1],
    ]  # fmt: skip
    assert results.dtypes.astype(str)[["docno", "score", "rank"]].tolist() == ["str", "float64", "int64"]
    assert index.retriever(num_results=1)(queries)["docno"].tolist() == ["a", "c"]
    assert (index.retriever() % 1).compile().num_results == 1


@pytest.mark.parametrize(("batch", "merge"), [(building.BATCH_TOKENS, building.MERGE_POSTINGS), (64, 50)])
def test_scores_are_dot_products(tmp_path, monkeypatch, batch, merge):
    monkeypatch.setattr(building, "BATCH_TOKENS", batch)
    monkeypatch.setattr(building, "MERGE_POSTINGS", merge)
    generator = np.random.default_rng(5)

    def drawn(most: int, size: int) -> dict[str, float]:
        terms = generator.choice(most, size, replace=False).tolist()
        return {f"t{term}": float(weight) for term, weight in zip(terms, generator.exponential(1, size), strict=True)}

    docs: list[dict[str, Any]] = [{"docno": f"d{number}", "toks": drawn(90, 20)} for number in range(300)]
    index = cs.ImpactIndex(tmp_path / "i").index(iter(docs))
    queries = [drawn(95, 30) for _ in range(40)]
    results = index.retriever(num_results=25, threads=2)(frame(*queries))
    for place, query in enumerate(queries):
        own = results[results["qid"] == str(place)]
        expected = brute_force(docs, query, 25)
        np.testing.assert_allclose(own["score"], [score for _, score in expected], rtol=1e-5)
        found = dict(zip(own["docno"], own["score"], strict=True))
        everything = dict(brute_force(docs, query, len(docs)))
        for docno, score in found.items():  # near ties may change places
            assert everything[docno] == pytest.approx(score, rel=1e-5)
    # the forward index says what the documents say
    terms = index.terms()
    for doc, row in zip(docs, index.vectors().toarray(), strict=True):
        assert {term: weight for term, weight in zip(terms, row, strict=True) if weight} == pytest.approx(doc["toks"])
    assert index.vectors(["d7", "d3", "d7"]).toarray().tolist() == index.vectors().toarray()[[7, 3, 7]].tolist()


#: eighths: their sums of products are exact in float32
weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 64).map(lambda n: n / 8), max_size=6)


@settings(max_examples=40, deadline=None)
@given(docs=st.lists(weights, max_size=8), query=weights, k=st.integers(1, 9))
def test_any_collection(tmp_path_factory, docs, query, k):
    path = tmp_path_factory.mktemp("impacts") / "i"
    docs = [{"docno": str(number), "toks": toks} for number, toks in enumerate(docs)]
    results = cs.ImpactIndex(path).index(docs).retriever(num_results=k)(frame(query))
    assert list(zip(results["docno"], results["score"], strict=True)) == brute_force(docs, query, k)


def test_frames_and_columns(tmp_path):
    index = cs.ImpactIndex(tmp_path / "i").index(pd.DataFrame(DOCS))
    assert (len(index), index.docnos()) == (3, ["a", "b", "c"])
    queries = frame({"dune": 1.0}).assign(query="Dune?", qhistory=[[{"role": "user", "content": "hi"}]])
    results = index.retriever()(queries)
    assert list(results.columns) == ["qid", "query_toks", "query", "qhistory", "docno", "score", "rank"]
    empty = index.retriever()(queries.head(0))
    assert list(empty.columns) == list(results.columns)
    assert empty.dtypes.astype(str)["docno"] == "str"
    nothing = cs.ImpactIndex(tmp_path / "none").index([])
    assert len(nothing) == 0 and nothing.terms() == []  # noqa: PT018
    assert len(nothing.retriever()(queries)) == 0


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        ({"docno": "x"}, r"'x' has no weights \(toks is None\)"),
        ({"docno": "x", "toks": {"a": -1.0}}, "'x': weight -1.0 of 'a' is negative"),
        ({"docno": "x", "toks": {"a": math.nan}}, "weight nan of 'a'"),
        ({"docno": "x", "toks": {"a": 1e300}}, "no finite float32"),
        ({"docno": "x", "toks": {3: 1.0}}, "holds 3: 1.0"),
        ({"docno": "x", "toks": {"a": "much"}}, "holds 'a': 'much'"),
        ({"docno": "x y", "toks": {}}, "white space"),
        ({"toks": {}}, "document 1 of the collection"),
        ({"docno": "fine", "toks": {}}, "more than one document.*'fine'"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_documents_that_are_refused(tmp_path, doc, message):
    with pytest.raises(ValueError, match=message):
        cs.ImpactIndex(tmp_path / "i").index([{"docno": "fine", "toks": {"a": 1.0}}, doc])
    assert list(tmp_path.iterdir()) == []


def test_repeated_docnos_far_apart_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BATCH_TOKENS", 1)
    with pytest.raises(ValueError, match=r"'a'; 1 such"):
        cs.ImpactIndex(tmp_path / "i").index([*DOCS, DOCS[0]])


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (frame({"a": -1.0}), "qid '0': weight -1.0"),
        (pd.DataFrame({"qid": ["1"], "query": ["dune"]}), r"without an encoder.*query_encoder\(\) >>"),
        (pd.DataFrame({"qid": ["1"], "query_toks": [None]}), "query_toks of qid '1' is None"),
        (pd.DataFrame({"qid": ["1", "1"], "query_toks": [{}, {}]}), "more than one row"),
    ],
)
def test_queries_that_are_refused(tmp_path, queries, message):
    with pytest.raises(ValueError, match=message):
        cs.ImpactIndex(tmp_path / "i").index(DOCS).retriever()(queries)


def test_an_index_that_exists(tmp_path):
    index = cs.ImpactIndex(tmp_path / "i").index(DOCS)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        cs.ImpactIndex(tmp_path / "i").index(DOCS)
    opened = cs.ImpactIndex(tmp_path / "i")
    assert opened == index
    assert opened.retriever() == index.retriever()
    assert opened.retriever(num_results=3) != index.retriever()
    assert len({opened.retriever(), index.retriever()}) == 1
    copied = pickle.loads(pickle.dumps(opened.retriever(num_results=1)))
    assert copied(frame({"book": 1.0}))["docno"].tolist() == ["c"]
    before = index.fingerprint
    changed = cs.ImpactIndex(tmp_path / "i", overwrite=True).index(DOCS[:1])
    assert len(changed) == 1
    assert changed.fingerprint != before
    assert type(pt_load(tmp_path / "i")) is cs.ImpactIndex
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("", encoding="utf-8")
    with pytest.raises(FileExistsError, match="no impact index"):
        cs.ImpactIndex(tmp_path / "other", overwrite=True).index(DOCS)
    with pytest.raises(ValueError, match="holds a sparse_index.convsearch_bm25, not a"):
        cs.BM25Index(tmp_path / "bm25").index([{"docno": "a", "text": "b"}])
        cs.ImpactIndex(tmp_path / "bm25")
    with pytest.raises(FileNotFoundError, match="there is no index"):
        len(cs.ImpactIndex(tmp_path / "nowhere"))


def pt_load(path: Any) -> Any:
    import pyterrier as pt

    return pt.Artifact.load(str(path))


def test_a_file_that_is_cut_is_named(tmp_path):
    cs.ImpactIndex(tmp_path / "i").index(DOCS)
    path = tmp_path / "i" / "postings.weights.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"damaged.*postings\.weights"):
        cs.ImpactIndex(tmp_path / "i")
    meta = tmp_path / "i" / "pt_meta.json"
    older = {**json.loads(meta.read_text(encoding="utf-8")), "format_version": 99}
    meta.write_text(json.dumps(older), encoding="utf-8")
    with pytest.raises(ValueError, match="version 99"):
        cs.ImpactIndex(tmp_path / "i")


def test_an_iterator_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield DOCS[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        cs.ImpactIndex(tmp_path / "i").index(broken())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"num_results": 0}, {"num_results": 1.5}, {"threads": 0}])
def test_options_out_of_range(tmp_path, options):
    index = cs.ImpactIndex(tmp_path / "i").index(DOCS)
    with pytest.raises(ValueError, match=next(iter(options))):
        index.retriever(**options)
