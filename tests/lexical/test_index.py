"""Building, opening, refusing, storing: what an index promises of its collection."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.lexical import building, storage

from .reference import Reference, zipf_collection

DOCS = [
    {"docno": "d1", "title": "Dune", "text": "Frank Herbert wrote it."},
    {"docno": "d2", "text": "When was it published? In 1965."},
    {"docno": "d3", "title": None, "text": ""},
]
ODD_DOCNOS = [
    '"Heroes"_(album)',
    "a,b",
    "NA",
    "nan",
    "007",
    "7",
    "http://x/y?a=1,2%203_p0",
    "clueweb22-en0004-50-00170:0",
    "東京",
    "\U0001f642",
    "x" * 500,
]


def test_what_came_in_is_stored(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(iter(DOCS))
    assert len(index) == index.num_docs == 3
    assert index.docnos() == ["d1", "d2", "d3"]
    assert index.texts(["d3", "d1"]) == ["", "Frank Herbert wrote it."]
    assert index.texts(["d2", "d1"], "title") == ["", "Dune"]
    # dune frank herbert wrote (it is a stop word) | when publish 1965 (was, it, in are stop words)
    assert index.average_length == pytest.approx(7 / 3)
    assert index.terms(index.term_ids(["publish", "dune"])) == ["publish", "dune"]
    assert index.term_ids(["it", "published", "dune"]).tolist()[:2] == [-1, -1]
    assert index.df(["dune", "publish", "nowhere"]).tolist() == [1, 1, 0]
    assert index.analyze("Who published Dune?") == ["who", "publish", "dune"]
    assert index.meta["num_tokens"] == 7
    assert index.meta["num_postings"] == 7
    assert (index.path / "pt_meta.json").read_text(encoding="utf-8").count("convsearch_bm25") == 1
    assert not list(tmp_path.glob("*.tmp-*"))


def test_only_plain_files(tmp_path):
    cs.BM25Index(tmp_path / "i").index(DOCS).bm25().search("dune")
    kinds = {path.suffix for path in (tmp_path / "i").rglob("*") if path.is_file()}
    assert kinds == {".npy", ".json"}
    for path in (tmp_path / "i").rglob("*.npy"):
        np.load(path, allow_pickle=False)


def test_docnos_byte_for_byte(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(
        {"docno": docno, "text": f"word {i}"} for i, docno in enumerate(ODD_DOCNOS)
    )
    found = index.bm25().search("word")
    assert sorted(found["docno"]) == sorted(ODD_DOCNOS)
    loaded = index.text_loader()(found)
    assert dict(zip(loaded["docno"], loaded["text"], strict=True)) == {
        docno: f"word {i}" for i, docno in enumerate(ODD_DOCNOS)
    }


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ([{"docno": "http://x/y?a=1,2 3_p0", "text": "x"}], "white space"),
        ([{"docno": "a\tb", "text": "x"}], "white space"),
        ([{"docno": " a", "text": "x"}], "white space"),
        ([{"docno": "a\u00a0b", "text": "x"}], "white space"),
        ([{"docno": "", "text": "x"}], "empty"),
        ([{"docno": "a", "text": "x"}, {"text": "y"}], "document 1 .*docno"),
        ([{"docno": 7.5, "text": "x"}], "fraction"),
        ([{"docno": "a"}], "'a' has no text"),
        ([{"docno": "a", "text": None}], "'a' has no text"),
        ([{"docno": "a", "text": float("nan")}], "'a' has no text"),
        ([{"docno": "a\ud800", "text": "x"}], "Unicode"),
        ([{"docno": d, "text": "x"} for d in "abcaab"], r"'a', 'a', 'b'"),
    ],
)
def test_documents_that_are_refused(tmp_path, docs, message):
    with pytest.raises(ValueError, match=message):
        cs.BM25Index(tmp_path / "i").index(docs)
    assert not list(tmp_path.iterdir())


def test_no_dicts(tmp_path):
    with pytest.raises(TypeError, match="dicts"):
        cs.BM25Index(tmp_path / "i").index(["text"])
    with pytest.raises(TypeError, match="batch"):
        cs.BM25Index(tmp_path / "i").index(DOCS, batch=3)


def test_repeated_docnos_far_apart_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BATCH_TOKENS", 16)
    docs = [{"docno": f"d{i % 50}", "text": "some words"} for i in range(52)]
    with pytest.raises(ValueError, match=r"'d0', 'd1'; 2 such"):
        cs.BM25Index(tmp_path / "i").index(docs)


def test_checksums_that_meet_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.zlib, "crc32", lambda data: len(data))
    docs = [{"docno": f"d{i}", "text": f"w{i} x{i % 3}"} for i in range(300)]
    index = cs.BM25Index(tmp_path / "i").index(docs)
    assert index.doc_ids([f"d{i}" for i in range(300)]).tolist() == list(range(300))
    assert index.bm25().search("w217")["docno"].tolist() == ["d217"]
    assert index.term_ids(["w999", "zz"]).tolist() == [-1, -1]
    with pytest.raises(ValueError, match=r"'d7'; 1 such"):
        monkeypatch.setattr(building, "BATCH_TOKENS", 16)
        cs.BM25Index(tmp_path / "j").index([*docs, docs[7]])


def test_lone_surrogates_in_texts_do_no_harm(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index([{"docno": "a", "text": "half \ud83d emoji"}])
    assert index.bm25().search("half")["docno"].tolist() == ["a"]
    assert index.texts(["a"]) == ["half ? emoji"]


@pytest.mark.parametrize(
    ("batch", "merge", "chunks"), [(50, 10**9, 10**9), (10**9, 30, 10**9), (64, 17, 40), (1, 1, 1)]
)
def test_runs_and_merges_change_nothing(tmp_path, monkeypatch, batch, merge, chunks):
    docs = zipf_collection(120, 60, seed=4)
    docs["long"] = ["t1"] * 70_000 + ["t2"]  # more than 16 bits hold
    stream = [{"docno": docno, "text": " ".join(terms)} for docno, terms in docs.items()]
    whole = cs.BM25Index(tmp_path / "whole", stemmer=None).index(stream)
    for name, value in (("BATCH_TOKENS", batch), ("MERGE_POSTINGS", merge), ("CHUNK_CACHE", chunks)):
        monkeypatch.setattr(building, name, value)
    parts = cs.BM25Index(tmp_path / "parts", stemmer=None).index(stream)
    files = sorted(path.relative_to(whole.path) for path in whole.path.rglob("*.npy"))
    assert files == sorted(path.relative_to(parts.path) for path in parts.path.rglob("*.npy"))
    for name in files:
        np.testing.assert_array_equal(np.load(whole.path / name), np.load(parts.path / name), err_msg=str(name))
    assert whole.fingerprint == parts.fingerprint
    # the inverted and the forward index say what the documents say
    starts, terms, tfs = parts._reading.forward(parts.doc_ids(["long", "d5"]))
    counts = dict(zip(parts.terms(terms[: starts[1]]), tfs[: starts[1]].tolist(), strict=True))
    assert counts == {"t1": 70_000, "t2": 1}
    assert dict(zip(parts.terms(terms[starts[1] :]), tfs[starts[1] :].tolist(), strict=True)) == Counter(docs["d5"])


def test_vectors_are_bm25_weights(tmp_path):
    docs = zipf_collection(60, 50, seed=8)
    index = cs.BM25Index(tmp_path / "i", stemmer=None).index({"docno": d, "text": " ".join(t)} for d, t in docs.items())
    reference = Reference(docs, k1=1.1, b=0.3)
    vectors = index.vectors(["d7", "d3", "d7"], k1=1.1, b=0.3)
    assert vectors.shape == (3, index.meta["num_terms"])
    for row, docno in enumerate(["d7", "d3", "d7"]):
        for term in {"t0", "t9", "t33"}:
            column = int(index.term_ids([term])[0])
            assert vectors[row, column] == pytest.approx(reference.weight(term, docno), rel=1e-6)
    assert (index.vectors() != index.vectors(index.docnos())).nnz == 0
    with pytest.raises(ValueError, match="nowhere"):
        index.vectors(["nowhere"])


def test_text_loader(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)
    results = pd.DataFrame(
        {"qid": ["1", "1"], "docno": ["d2", "d1"], "qhistory": [[1], []], "text": ["stale", "stale"]}
    )
    loaded = index.text_loader()(results)
    assert loaded["text"].tolist() == ["When was it published? In 1965.", "Frank Herbert wrote it."]
    assert loaded.columns.tolist() == results.columns.tolist()
    assert results["text"].tolist() == ["stale", "stale"]
    assert index.text_loader(["title", "text"])(results)["title"].tolist() == ["", "Dune"]
    assert index.text_loader("title")(results)["title"].tolist() == ["", "Dune"]
    empty = index.text_loader()(results.head(0))
    assert empty["text"].dtype == "str"
    with pytest.raises(ValueError, match=r"1 docnos.*'d9'"):
        index.text_loader()(pd.DataFrame({"docno": ["d1", "d9"]}))
    with pytest.raises(ValueError, match=r"'title', 'text', not 'body'"):
        index.text_loader("body")(results)
    with pytest.raises(pt.validate.InputValidationError):
        index.text_loader()(pd.DataFrame({"qid": ["1"]}))
    assert index.text_loader() == cs.BM25Index(tmp_path / "i").text_loader()
    bare = cs.BM25Index(tmp_path / "bare", store_text=False).index(DOCS)
    with pytest.raises(ValueError, match="store_text=False"):
        bare.text_loader()(results)


def test_fields(tmp_path):
    assert len(cs.BM25Index(tmp_path / "a").index(DOCS).bm25().search("dune")) == 1
    assert len(cs.BM25Index(tmp_path / "b", text_field="text").index(DOCS).bm25().search("dune")) == 0
    body = cs.BM25Index(tmp_path / "c", text_field="body").index([{"docno": "x", "body": "dune"}])
    assert body.text_loader()(pd.DataFrame({"docno": ["x"]}))["body"].tolist() == ["dune"]


def test_frames_are_collections_too(tmp_path):
    assert cs.BM25Index(tmp_path / "i").index(pd.DataFrame(DOCS)).docnos() == ["d1", "d2", "d3"]


def test_indexing_pipeline_streams(tmp_path):
    expand = pt.apply.generic(lambda frame: frame.assign(text=frame["text"] + " expansion"))
    index = (expand >> cs.BM25Index(tmp_path / "i")).index(iter(DOCS))
    assert index.bm25().search("expansion")["docno"].tolist() == ["d3", "d2", "d1"]  # by length


def test_fingerprint_is_of_docnos_texts_and_order(tmp_path):
    seen = set()
    variants = [
        DOCS,
        DOCS[::-1],
        DOCS[:2],
        [{**DOCS[0], "text": "Frank Herbert wrote it!"}, *DOCS[1:]],
        [{**DOCS[0], "docno": "d0"}, *DOCS[1:]],
    ]
    for i, docs in enumerate(variants):
        seen.add(cs.BM25Index(tmp_path / str(i)).index(docs).fingerprint)
    assert len(seen) == len(variants)
    assert cs.BM25Index(tmp_path / "again", stemmer=None).index(DOCS).fingerprint in seen
    # bytes that move from one document to the next make another collection
    a = cs.BM25Index(tmp_path / "a").index([{"docno": "1", "text": "ab"}, {"docno": "2", "text": "c"}])
    b = cs.BM25Index(tmp_path / "b").index([{"docno": "1", "text": "a"}, {"docno": "2", "text": "bc"}])
    assert a.fingerprint != b.fingerprint


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_a_missing_title_is_no_title(tmp_path, missing):
    index = cs.BM25Index(tmp_path / "i").index([{"docno": "d1", "title": missing, "text": "sand"}])
    assert index.texts(["d1"], "title") == [""]
    with pytest.raises(ValueError, match="'d1' has no text in 'text'"):
        cs.BM25Index(tmp_path / "j").index([{"docno": "d1", "text": missing}])
