"""Rare branches of encoders and dense indexes, each by the smallest input that reaches it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs

DOCS = [{"docno": "a", "text": "who wrote dune"}, {"docno": "b", "text": "the capital of france"}]
TOPICS = pd.DataFrame({"qid": ["1"], "query": ["dune"]})


@pytest.fixture
def encoder(tiny: Path) -> cs.BiEncoder:
    return cs.BiEncoder(tiny, bf16=False)


def test_options_that_do_not_go_together(tiny: Path, encoder: cs.BiEncoder, dpr: Callable, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="similarity='max': 'dot' or 'cosine'"):
        cs.BiEncoder(tiny, similarity="max")
    with pytest.raises(ValueError, match="pooling='max': 'cls' or 'mean'"):
        cs.BiEncoder(tiny, pooling="max")
    question, context = dpr()
    with pytest.raises(ValueError, match=r"pooling='mean', but DPR takes the vector of \[CLS\]"):
        cs.BiEncoder(query_model=question, passage_model=context, pooling="mean").encode_queries(["x"])
    with pytest.raises(ValueError, match="similarity='max': 'dot' or 'cosine'"):
        cs.DenseIndex(tmp_path / "x", similarity="max")
    with pytest.raises(ValueError, match="similarity='dot', but the encoder's is 'cosine': leave it out"):
        cs.DenseIndex(tmp_path / "x", encoder, similarity="dot")
    with pytest.raises(ValueError, match="num_results=0: at least 1"):
        cs.DenseIndex(tmp_path / "x", encoder).scorer(num_results=0)
    assert encoder != 3


def test_separators_that_are_no_tokens_are_warned_of(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    """[SEP] is a token of BERT, [U] is not; nothing is said of plain blanks."""
    topics = cs.topics.from_messages([[{"role": "user", "content": text} for text in ("dune", "who")]])
    search = cs.DenseIndex(tmp_path / "x", encoder).index(DOCS).retriever(num_results=1)
    with pytest.warns(UserWarning, match=r"the separators \[U\] are no tokens of the encoder"):
        (cs.form(cs.X, sep=" [U] ") >> search)(topics)
    for sep in (" [SEP] ", " "):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            (cs.form(cs.X, sep=sep) >> search)(topics)


def test_another_query_tower_searches_the_same_passages(encoder: cs.BiEncoder, bert: Callable, tmp_path: Path) -> None:
    student = encoder.with_query_model(bert(1), max_query_length=8)
    assert student.max_query_length == 8
    texts = ["who wrote dune"]
    assert np.array_equal(student.encode_docs(texts), encoder.encode_docs(texts))
    assert not np.allclose(student.encode_queries(texts), encoder.encode_queries(texts))
    assert np.array_equal(student.encode_queries_torch(texts).numpy(), student.encode_queries(texts))
    index = cs.DenseIndex(tmp_path / "x", encoder).index(DOCS)
    found = cs.DenseIndex(tmp_path / "x", student).retriever(num_results=2)(TOPICS)
    scores = student.encode_queries(["dune"]) @ np.asarray(index.vectors).T
    assert found["score"].tolist() == pytest.approx(sorted(scores[0].tolist(), reverse=True), abs=1e-5)


def test_vectors_that_are_there_are_not_computed(encoder: cs.BiEncoder) -> None:
    """A scorer takes query_vec and doc_vec as they are: dot products by hand."""
    frame = pd.DataFrame(
        {"qid": ["1", "1"], "docno": ["a", "b"], "query_vec": [np.array([1.0, 2.0])] * 2,
         "doc_vec": [np.array([3.0, 1.0]), np.array([0.0, 4.0])]}
    )  # fmt: skip
    assert encoder.scorer()(frame)["score"].tolist() == [8.0, 5.0]


def test_an_index_is_a_stage_of_both_kinds(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x", encoder).index(DOCS)
    results = index.transform(TOPICS)
    assert sorted(results["docno"]) == ["a", "b"]
    assert index.transform(results)["score"].tolist() == pytest.approx(results["score"].tolist())
    assert index != 3
    assert len(index.numbers_of([])) == 0
    cut = index.vec_loader().fuse_rank_cutoff(1)
    assert cut(results)["docno"].tolist() == results["docno"].tolist()[:1]


def test_what_is_no_index_of_these_files(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    path = tmp_path / "x"
    cs.DenseIndex(path, encoder).index(DOCS)
    cs.DenseIndex(tmp_path / "one", encoder).index(DOCS[:1])
    docnos, meta = path / "docnos.npids", path / "pt_meta.json"
    kept = docnos.read_bytes()
    docnos.write_bytes((tmp_path / "one" / "docnos.npids").read_bytes())
    with pytest.raises(ValueError, match="holds 1 docnos, not 2: the index is damaged"):
        cs.DenseIndex(path, encoder).docnos()
    docnos.write_bytes(kept)
    content = json.loads(meta.read_text(encoding="utf-8"))
    meta.write_text(json.dumps({**content, "format": "other"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"holds a dense_index\.other, not a dense index"):
        cs.DenseIndex(path, encoder)


def test_a_faiss_index_of_other_vectors_is_built_anew(
    encoder: cs.BiEncoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = cs.DenseIndex(tmp_path / "x", encoder).index(DOCS)
    expected = index.retriever(num_results=2)(TOPICS)
    found = index.retriever(num_results=2, exact=False, faiss="SQfp16")(TOPICS)
    assert found["docno"].tolist() == expected["docno"].tolist()
    other = cs.DenseIndex(tmp_path / "one", encoder).index(DOCS[:1])
    other.retriever(exact=False, faiss="SQfp16")(TOPICS)
    (ours,), (theirs,) = (list((tmp_path / name).glob("faiss-*")) for name in ("x", "one"))
    ours.write_bytes(theirs.read_bytes())
    with caplog.at_level(logging.WARNING):
        again = cs.DenseIndex(tmp_path / "x", encoder).retriever(num_results=2, exact=False, faiss="SQfp16")(TOPICS)
    assert again["docno"].tolist() == expected["docno"].tolist()
    assert "is of other vectors: built anew" in caplog.text


def test_vectors_of_two_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pt_convsearch.dense.building.BLOCK", 1)
    docs = [{"docno": "a", "doc_vec": [1.0, 2.0]}, {"docno": "b", "doc_vec": [1.0]}]
    with pytest.raises(ValueError, match="doc_vec of 2 and of 1 dimensions in one collection"):
        cs.DenseIndex(tmp_path / "x", similarity="dot").index(docs)
