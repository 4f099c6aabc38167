"""Shards searched as one index: the same frames, by comparison with one index and with values worked out by hand."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from pyterrier.measures import RR

import pt_convsearch as cs
from pt_convsearch.scale import ShardedIndex
from pt_convsearch.scale.dense_shard import DenseShard

from .conftest import some_topics, tied_docs, tied_vectors


@pytest.fixture(scope="module")
def bm25_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bm25")
    docs = tied_docs(500)
    one = cs.BM25Index(folder / "one").index(docs)
    return one, ShardedIndex(folder / "shards", passages_per_shard=90, threads=2).index(docs)


@pytest.fixture(scope="module")
def dense_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    docs = [{"docno": f"d{i}", "doc_vec": vector} for i, vector in enumerate(tied_vectors(400))]
    one = cs.DenseIndex(folder / "one").index(docs)
    return one, ShardedIndex(folder / "shards", similarity="dot", passages_per_shard=70).index(docs)


def vector_topics(count: int = 20) -> pd.DataFrame:
    return some_topics(count).assign(
        query=[f"q {i}" for i in range(count)], query_vec=list(tied_vectors(count, seed=9))
    )


@pytest.mark.parametrize("k", [1, 10, 100, 1000])
@pytest.mark.parametrize("idf", ["lucene", "robertson"])
def test_bm25_is_that_of_one_index(bm25_pair, k, idf):
    one, shards = bm25_pair
    assert shards.num_shards == 6
    topics = some_topics()
    expected = one.bm25(num_results=k, idf=idf, k1=1.2, b=0.75)(topics)
    assert expected.duplicated(["qid", "score"]).any() or k == 1  # there are ties
    found = shards.bm25(num_results=k, idf=idf, k1=1.2, b=0.75)(topics)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.text("ab c", max_size=8), min_size=1, max_size=30),
    st.integers(1, 12),
    st.text("abc ", max_size=12),
    st.integers(1, 40),
)
def test_any_cut_of_any_collection(tmp_path_factory, texts, size, query, k):
    folder = tmp_path_factory.mktemp("any")
    docs = [{"docno": f"d{i}", "text": text} for i, text in enumerate(texts)]
    options = {"stemmer": None, "stopwords": None}
    one = cs.BM25Index(folder / "one", **options).index(docs)
    shards = ShardedIndex(folder / "shards", passages_per_shard=size, threads=1, **options).index(docs)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": [query, "a b"]})
    pd.testing.assert_frame_equal(shards.bm25(num_results=k)(topics), one.bm25(num_results=k)(topics), check_exact=True)


def test_statistics_are_those_of_the_collection_not_of_the_shard(tmp_path):
    # "rare" is in one of four documents, though it is in each document of its shard
    docs = [{"docno": d, "text": t} for d, t in [("a", "rare"), ("b", "town town"), ("c", "town"), ("d", "town mayor")]]
    index = ShardedIndex(tmp_path / "x", passages_per_shard=1, threads=1).index(docs)
    found = index.bm25(k1=0.9, b=0.4).search("rare")
    idf = math.log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    score = idf * 1 / (1 + 0.9 * (1 - 0.4 + 0.4 * 1 / 1.5))  # average length: 6 terms in 4 documents
    assert found["docno"].tolist() == ["a"]
    assert found["score"].tolist() == pytest.approx([score], abs=1e-6)
    assert index.df(["town", "rare", "no"]).tolist() == [3, 1, 0]
    assert (index.num_docs, index.average_length) == (4, 1.5)


def test_pipelines_work_over_shards(bm25_pair):
    one, shards = bm25_pair
    topics = some_topics()

    def pipeline(index):
        return index.bm25(num_results=10) >> index.rm3() >> index.bm25(num_results=30) >> index.text_loader()

    pd.testing.assert_frame_equal(pipeline(shards)(topics), pipeline(one)(topics))
    assert shards.docnos() == one.docnos()
    assert shards.texts(["d499", "d0"]) == one.texts(["d499", "d0"])
    with pytest.raises(ValueError, match="'nowhere'"):
        shards.texts(["d1", "nowhere"])
    qrels = pd.DataFrame({"qid": ["q2"], "docno": ["d1"], "label": [1]})
    table = cs.Experiment({"one": one.bm25(), "shards": shards.bm25()}, topics, qrels, [RR])
    assert table.loc["one"].tolist() == table.loc["shards"].tolist()
    fused = (shards.bm25() % 3).compile()
    pd.testing.assert_frame_equal(fused(topics), one.bm25(num_results=3)(topics))


@pytest.mark.parametrize("k", [1, 7, 100, 1000])
def test_dense_is_that_of_one_index(dense_pair, k):
    one, shards = dense_pair
    topics = vector_topics()
    expected = one.retriever(num_results=k)(topics)
    assert expected.duplicated(["qid", "score"]).any() or k == 1
    pd.testing.assert_frame_equal(shards.retriever(num_results=k)(topics), expected)
    pd.testing.assert_frame_equal(shards.retriever(num_results=k, batch_size=3)(topics), expected)


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_dense_wherever_the_best_lie(tmp_path_factory, data):
    """Shards are asked for their share first: also where one has all the best, copies of them, or hardly anything."""
    count, size = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 120))
    vectors = tied_vectors(count, 3, seed=data.draw(st.integers(0, 9)))
    if data.draw(st.booleans()):
        vectors = vectors[np.argsort(-vectors[:, 0], kind="stable")]  # the best of the first query in a row
    folder = tmp_path_factory.mktemp("any")
    docs = [{"docno": f"d{i}", "doc_vec": vector} for i, vector in enumerate(vectors)]
    shards = ShardedIndex(folder / "x", similarity="dot", passages_per_shard=size).index(docs)
    queries = np.array([[1, 0, 0], [1, 1, 0], [-1, 0, 1], [0, 0, 0]], dtype=np.float32)
    topics = pd.DataFrame({"qid": list("1234"), "query_vec": list(queries)})
    k = data.draw(st.integers(1, 310))
    found = shards.retriever(num_results=k)(topics)
    for qid, query in zip("1234", queries, strict=True):
        scores = vectors @ query  # whole numbers: exact
        best = np.argsort(-scores, kind="stable")[:k]
        assert found.loc[found["qid"] == qid, "docno"].tolist() == [f"d{i}" for i in best]
        assert found.loc[found["qid"] == qid, "score"].tolist() == scores[best].tolist()


def test_shards_are_asked_for_their_share(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(4000, 8)).astype(np.float32)
    docs = [{"docno": f"d{i}", "doc_vec": vector} for i, vector in enumerate(vectors)]
    shards = ShardedIndex(tmp_path / "x", similarity="dot", passages_per_shard=500, threads=1).index(docs)
    topics = pd.DataFrame({"qid": ["1", "2"], "query_vec": list(rng.normal(size=(2, 8)).astype(np.float32))})
    asked = []
    candidates = DenseShard.candidates

    def noted(self, queries, wanted, threads):
        asked.append((len(queries), wanted))
        return candidates(self, queries, wanted, threads)

    monkeypatch.setattr(DenseShard, "candidates", noted)
    shards.retriever(num_results=100)(topics)
    # 100 and 16 for near-ties: an eighth of 116 is 14.5, and 4 standard deviations of 3.8, and 4: 34
    assert asked == [(2, 34)] * 8


def test_near_ties_over_shards_are_told_as_in_one_index(tmp_path):
    # equal up to float32's last digits, and copies of each other in different shards
    base = np.random.default_rng(0).normal(size=64)
    vectors = np.stack([base * (1 + step * 1e-8) for step in range(40)] + [base] * 20).astype(np.float32)
    docs = [{"docno": f"d{i}", "doc_vec": vector} for i, vector in enumerate(vectors)]
    topics = pd.DataFrame({"qid": ["1"], "query": ["x"], "query_vec": [base.astype(np.float32)]})
    one = cs.DenseIndex(tmp_path / "one").index(docs)
    shards = ShardedIndex(tmp_path / "x", similarity="dot", passages_per_shard=7).index(docs)
    for k in (1, 5, 30):
        expected = one.retriever(num_results=k)(topics)
        pd.testing.assert_frame_equal(shards.retriever(num_results=k)(topics), expected)


def test_dense_stages_and_smaller_kinds(dense_pair):
    one, shards = dense_pair
    topics = vector_topics()
    pipeline = one.retriever(num_results=5) >> one.vec_loader()
    found = (shards.retriever(num_results=5) >> shards.vec_loader())(topics)
    expected = pipeline(topics)
    assert np.array_equal(np.stack(found["doc_vec"].tolist()), np.stack(expected["doc_vec"].tolist()))
    rescored = (one.retriever(num_results=5) >> shards.scorer())(topics)
    assert rescored["score"].tolist() == pytest.approx(expected["score"].tolist())
    table = cs.scale.recall_of(shards, topics, ["Flat", "SQfp16"], num_results=1)
    assert table["kind"].tolist() == ["exact", "Flat", "SQfp16"]
    assert table["recall"].tolist()[:2] == [1.0, 1.0]  # small whole numbers are exact in half precision, too
    assert table["recall"].tolist()[2] == 1.0


def test_encoder_builds_and_encodes_queries(tmp_path, tiny_encoder, monkeypatch):
    monkeypatch.setattr("pt_convsearch.dense.building.BLOCK", 10)
    docs = [{"docno": f"d{i}", "text": f"w{i % 25} w{7 * i % 25} w{i // 25}"} for i in range(60)]  # no two alike
    one = cs.DenseIndex(tmp_path / "one", tiny_encoder).index(docs)
    shards = ShardedIndex(tmp_path / "x", tiny_encoder, passages_per_shard=25).index(docs)
    assert ShardedIndex(tmp_path / "x").encoder == tiny_encoder  # the index knows it
    assert [shard.num_docs for shard in shards.manifest.shards] == [30, 30]  # whole blocks
    topics = some_topics(8)
    expected, found = one.retriever(num_results=9)(topics), shards.retriever(num_results=9)(topics)
    pd.testing.assert_frame_equal(found, expected, atol=1e-5)
    other = cs.BiEncoder(tiny_encoder._options["model"], max_passage_length=5, bf16=False)
    with pytest.raises(ValueError, match="max_passage_length"):
        ShardedIndex(tmp_path / "x", other)


@pytest.mark.parametrize("docs", [[], [{"docno": "a", "text": ""}]])
def test_collections_of_nothing(tmp_path, docs):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=3).index(iter(docs))
    found = index.bm25()(some_topics(3))
    assert len(found) == 0
    assert found.columns.tolist() == ["qid", "query", "kept", "docno", "score", "rank"]
    assert len(index.bm25()(some_topics(3).head(0))) == 0
    assert len(index) == len(docs)


def test_scripts_and_odd_docnos(tmp_path):
    docs = [{"docno": f"東京/{i}-é", "title": "東京", "text": f"タワー ß {i} 😀"} for i in range(7)]
    options = {"tokenizer": "unicode", "stemmer": None, "stopwords": None}
    one = cs.BM25Index(tmp_path / "one", **options).index(docs)
    shards = ShardedIndex(tmp_path / "x", passages_per_shard=2, **options).index(docs)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["東京 ss 3", "😀"]})
    pd.testing.assert_frame_equal(shards.bm25()(topics), one.bm25()(topics))
    pipeline = shards.bm25() >> shards.text_loader(["title", "text"])
    assert pipeline(topics).iloc[0][["title", "text"]].tolist() == ["東京", "タワー ß 3 😀"]


def test_refusals(tmp_path, bm25_pair, dense_pair):
    docs = [{"docno": "a", "text": "x"}, {"docno": "b", "text": "y"}, {"docno": "a", "text": "z"}]
    with pytest.raises(ValueError, match="'a' came more than once"):
        ShardedIndex(tmp_path / "x", passages_per_shard=1).index(docs)
    assert not (tmp_path / "x").exists()
    with pytest.raises(FileNotFoundError, match="no sharded index"):
        ShardedIndex(tmp_path / "none").bm25().search("x")
    path = bm25_pair[1].path
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ShardedIndex(path).index(docs)
    with pytest.raises(ValueError, match="tokenizer='unicode' was given"):
        ShardedIndex(path, tokenizer="unicode")
    with pytest.raises(ValueError, match="similarity='cosine'"):
        ShardedIndex(dense_pair[1].path, similarity="cosine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("text", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        ShardedIndex(tmp_path / "mine", overwrite=True).index(docs)
    with pytest.raises(ValueError, match="engine='dask'"):
        ShardedIndex(tmp_path / "x", engine="dask")
    with pytest.raises(ValueError, match="passages_per_shard=0"):
        ShardedIndex(tmp_path / "x", passages_per_shard=0)


def test_identity(bm25_pair):
    shards = bm25_pair[1]
    again = ShardedIndex(shards.path)
    assert again == shards
    assert hash(again.bm25()) == hash(shards.bm25())
    assert again.bm25() == shards.bm25(threads=1)
    assert again.bm25(k1=2) != shards.bm25()
    copy = pickle.loads(pickle.dumps(shards.bm25(num_results=4)))
    assert copy == shards.bm25(num_results=4)
    pd.testing.assert_frame_equal(copy(some_topics()), shards.bm25(num_results=4)(some_topics()))
