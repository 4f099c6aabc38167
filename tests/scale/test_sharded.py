"""Shards searched as one index: the same frames, by comparison with one index and with values worked out by hand."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from pyterrier.measures import RR

import pt_convsearch as cs
from pt_convsearch.scale import ShardedIndex
from pt_convsearch.scale.building import _line, _read_spool
from pt_convsearch.scale.dense_shard import DenseShard
from pt_convsearch.scale.storage import Storage

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


class Killed(BaseException):
    """What a kill looks like to the code: nothing catches it."""


def stopping(docs, after):
    for number, doc in enumerate(docs):
        if number == after:
            raise Killed
        yield doc


def test_a_run_that_was_killed_is_taken_up(tmp_path, caplog):
    docs = tied_docs(100)
    with pytest.raises(Killed):
        ShardedIndex(tmp_path / "x", passages_per_shard=20).index(stopping(docs, 70))
    assert not (tmp_path / "x").exists()
    made = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "x.building").glob("shard-*/pt_meta.json")}
    records = sorted((tmp_path / "x.building" / "records").glob("shard-*.json"))
    assert [record.name for record in records] == ["shard-00000.json", "shard-00001.json", "shard-00002.json"]
    builds = [json.loads((tmp_path / f"x.building/{r.stem}/pt_meta.json").read_text())["build"] for r in records]
    with caplog.at_level("INFO"):
        index = ShardedIndex(tmp_path / "x", passages_per_shard=20).index(docs)
    assert "found 3 shards" in caplog.text
    kept = [json.loads((tmp_path / f"x/{r.stem}/pt_meta.json").read_text())["build"] for r in records]
    assert kept == builds
    assert made
    one = cs.BM25Index(tmp_path / "one").index(docs)
    pd.testing.assert_frame_equal(index.bm25()(some_topics()), one.bm25()(some_topics()))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "x"]


def test_passages_that_changed_meanwhile_are_indexed_anew(tmp_path):
    docs = tied_docs(60)
    with pytest.raises(Killed):
        ShardedIndex(tmp_path / "x", passages_per_shard=20).index(stopping(docs, 45))
    docs[25] = {"docno": "new", "text": "w1 novel"}
    index = ShardedIndex(tmp_path / "x", passages_per_shard=20).index(docs)
    assert index.bm25().search("novel")["docno"].tolist() == ["new"]
    assert index.docnos() == [doc["docno"] for doc in docs]


@pytest.mark.parametrize("damage", ["missing", "cut", "folder"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=30).index(tied_docs(90))
    shard = tmp_path / "x" / "shard-00001"
    if damage == "folder":
        shard.rename(tmp_path / "elsewhere")
    elif damage == "missing":
        (shard / "postings.docs.npy").unlink()
    else:
        with (shard / "postings.docs.npy").open("r+b") as file:
            file.truncate(100)
    with pytest.raises(ValueError, match="shard-00001 is damaged: "):
        ShardedIndex(index.path).bm25().search("w1")


def test_altered_bytes_are_found_by_verify(tmp_path):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=30).index(tied_docs(90))
    index.verify()
    path = tmp_path / "x" / "shard-00002" / "lengths.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard-00002 is damaged: lengths\.npy"):
        index.verify()


def test_overwrite_leaves_no_shard_of_before(tmp_path):
    ShardedIndex(tmp_path / "x", passages_per_shard=10).index(tied_docs(50))
    index = ShardedIndex(tmp_path / "x", passages_per_shard=10, overwrite=True).index(tied_docs(15))
    assert index.num_shards == 2
    assert sorted(path.name for path in Path(index.path).glob("shard-*")) == ["shard-00000", "shard-00001"]
    assert len(ShardedIndex(tmp_path / "x")) == 15


@pytest.mark.parametrize(
    "vector",
    [
        np.array([0.1, -2.5, 3e-30], dtype=np.float32),
        np.array([1 / 3, 2.0]),
        np.array([-128, 127], dtype=np.int8),
        torch.tensor([0.1, 7.0]),
        [0.1, 7.0],
    ],
    ids=["float32", "float64", "int8", "tensor", "list"],
)
def test_vectors_come_back_from_the_spool_as_they_went_in(vector: Any, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    doc = {"docno": "a\nb", "doc_vec": vector, "left": "out"}
    (tmp_path / "records").mkdir()
    line = _line(doc, ("docno", "doc_vec"))
    (tmp_path / "records" / "s.jsonl").write_bytes(line)
    (found,) = _read_spool(storage, "s")
    assert found.keys() == {"docno", "doc_vec"}
    assert found["docno"] == "a\nb"
    assert np.asarray(found["doc_vec"]).dtype == np.asarray(vector).dtype
    assert np.array_equal(np.asarray(found["doc_vec"]), np.asarray(vector))


def test_a_vector_in_the_spool_is_not_written_out_in_decimals() -> None:
    vector = np.full(768, 1 / 3, dtype=np.float32)  # 0.3333333432674408: 20 characters each
    assert len(_line({"docno": "d", "doc_vec": vector}, ("docno", "doc_vec"))) < 1.5 * vector.nbytes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "x"
    ShardedIndex(folder, passages_per_shard=4, threads=1).index(tied_docs(9)).verify()
    return folder


def test_verify_looks_at_the_statistics_of_the_whole_too(whole: Path) -> None:
    """A df that is off by one is another score for each of its documents, and no shard's file differs."""
    path = whole / "statistics" / "df.npy"
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
        with pytest.raises(ValueError, match=r"x/statistics is damaged: df\.npy is not what was written"):
            ShardedIndex(whole).verify()
        path.unlink()
        with pytest.raises(ValueError, match=r"x/statistics is damaged: df\.npy is missing"):
            ShardedIndex(whole).verify()
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("old", "new"),
    [("{", "[{"), ("{", ""), ('"shards"', '"sherds"'), ('"num_tokens"', '"tokens"'), ('"num_docs": 9', '"num_docs": 8'),
     ('"kind": "bm25"', '"kind": "bm52"'), ('"first"', '"last"')],
)  # fmt: skip
def test_a_list_of_shards_that_is_not_what_was_written_is_told(whole: Path, old: str, new: str) -> None:
    path = whole / "shards.json"
    content = path.read_text(encoding="utf-8")
    assert old in content
    try:
        path.write_text(content.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=r"x/shards\.json is damaged .*build the index anew"):
            ShardedIndex(whole).bm25()
        path.write_text("[]", encoding="utf-8")
        with pytest.raises(ValueError, match=r"x/shards\.json is damaged \(it holds a list"):
            ShardedIndex(whole)
    finally:
        path.write_text(content, encoding="utf-8")
