"""The sparse encoder against the model's own definition, and searched by the impact index."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs

from .conftest import WORDS, sizes, tiny_tokenizer

TEXTS = ["who wrote dune ?", "a cat and a dog", "", "paris is a capital of france", "who wrote dune ?", " "]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plain checkpoint of a masked language model."""
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("masked")
    BertForMaskedLM(BertConfig(**sizes(3), initializer_range=0.5)).save_pretrained(folder)
    tiny_tokenizer(folder)
    return str(folder)


@pytest.fixture(scope="module")
def encoder(masked: str) -> cs.SparseEncoder:
    return cs.SparseEncoder(masked, bf16=False, device="cpu")


def reference(masked: str, text: str) -> np.ndarray:
    """SPLADE v2: the maximum over tokens of log(1 + relu(logit))."""
    import torch
    from transformers import AutoTokenizer, BertForMaskedLM

    model = BertForMaskedLM.from_pretrained(masked).eval()
    with torch.no_grad():
        logits = model(**AutoTokenizer.from_pretrained(masked)(text, return_tensors="pt")).logits[0]
    return torch.log1p(torch.relu(logits)).max(dim=0).values.numpy()


def test_weights_are_those_of_the_paper(encoder: cs.SparseEncoder, masked: str) -> None:
    found = encoder.encode_queries(TEXTS)
    assert found.shape == (6, len(WORDS))
    for row, text in enumerate(TEXTS):
        expected = reference(masked, text) if text.strip() else np.zeros(len(WORDS))
        np.testing.assert_allclose(found[row].toarray()[0], expected, atol=1e-4)
    assert (encoder.encode_docs(TEXTS) != found).nnz == 0  # one model for both sides
    assert encoder.encode_queries([]).shape == (0, len(WORDS))
    dicts = encoder.dicts(found)
    assert dicts[2] == dicts[5] == {}
    row = found[0].toarray()[0]
    assert dicts[0] == pytest.approx({WORDS[term]: row[term] for term in np.flatnonzero(row)})
    assert list(dicts[0].values()) == sorted(dicts[0].values(), reverse=True)


def test_queries_are_cut_on_the_left_and_terms_are_pruned(masked: str) -> None:
    short = cs.SparseEncoder(masked, max_query_length=4, max_passage_length=4, bf16=False, device="cpu")
    long = "who wrote dune cat dog"
    np.testing.assert_allclose(short.encode_queries([long]).toarray()[0], reference(masked, "cat dog"), atol=1e-4)
    np.testing.assert_allclose(short.encode_docs([long]).toarray()[0], reference(masked, "who wrote"), atol=1e-4)
    assert short.cut == {"query": 1, "passage": 1}
    pruned = cs.SparseEncoder(masked, max_query_terms=3, max_passage_terms=5, bf16=False, device="cpu")
    whole = reference(masked, long)
    kept = pruned.encode_queries([long]).toarray()[0]
    assert sorted(kept[kept > 0], reverse=True) == pytest.approx(sorted(whole, reverse=True)[:3], abs=1e-4)
    assert pruned.encode_docs([long]).nnz == 5


def test_scores_are_dot_products(encoder: cs.SparseEncoder, tmp_path: Path) -> None:
    corpus = [
        {"docno": "d1", "title": "dune", "text": "frank herbert wrote dune"},
        {"docno": "d2", "text": "paris"},
        {"docno": "d3", "text": ""},
        {"docno": "d4", "text": "cat dog bird"},
    ]
    index = cs.ImpactIndex(tmp_path / "i", encoder).index(corpus)
    passages = encoder.encode_docs(["dune frank herbert wrote dune", "paris", "", "cat dog bird"])
    topics = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["who wrote dune", "", "paris"], "turn": [1, 2, 3]})
    results = index.retriever()(topics)
    expected = (encoder.encode_queries(topics["query"].tolist()) @ passages.T).toarray()
    assert results.groupby("qid").size().to_dict() == {"1": 3, "3": 3}
    for qid, docno, score in results[["qid", "docno", "score"]].itertuples(index=False):
        place = ["d1", "d2", "d3", "d4"].index(docno)
        assert score == pytest.approx(expected[int(qid) - 1, place], rel=1e-5)
    assert "query_toks" not in results.columns
    # in two stages, and one question at a time: the same
    staged = encoder.query_encoder() >> index.retriever()
    pd.testing.assert_frame_equal(staged(topics).drop(columns="query_toks"), results)
    single = pd.concat([index.retriever()(topics.iloc[[place]]) for place in range(3)], ignore_index=True)
    assert single["docno"].tolist() == results["docno"].tolist()
    np.testing.assert_allclose(single["score"], results["score"], rtol=1e-5)
    # through the document stage
    other = cs.ImpactIndex(tmp_path / "other")
    (encoder.doc_encoder() >> other).index(corpus)
    np.testing.assert_allclose(staged(topics)["score"], (encoder >> other.retriever())(topics)["score"], rtol=1e-5)


def test_an_index_knows_its_encoder(encoder: cs.SparseEncoder, masked: str, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    index = cs.ImpactIndex(tmp_path / "i", encoder).index([{"docno": "d", "text": "dune"}])
    assert cs.ImpactIndex(tmp_path / "i", cs.SparseEncoder(masked, bf16=True, device="cpu")) == index
    with pytest.raises(ValueError, match="max_passage_length"):
        cs.ImpactIndex(tmp_path / "i", cs.SparseEncoder(masked, max_passage_length=7))
    folder = tmp_path / "masked"
    BertForMaskedLM(BertConfig(**sizes(4), initializer_range=0.5)).save_pretrained(folder)
    tiny_tokenizer(folder)
    with pytest.raises(ValueError, match=r"query_model.*passage_model.*overwrite=True"):
        cs.ImpactIndex(tmp_path / "i", cs.SparseEncoder(folder))
    student = encoder.with_query_model(str(folder), max_query_length=9)
    searched = cs.ImpactIndex(tmp_path / "i", student)
    assert searched != index
    assert student.max_query_length == 9
    weights = student.encode_queries(["dune"]) @ encoder.encode_docs(["dune"]).T
    found = searched.retriever()(pd.DataFrame({"qid": ["1"], "query": ["dune"]}))
    assert found["score"].iloc[0] == pytest.approx(weights[0, 0], rel=1e-5)
    with pytest.raises(TypeError, match="SparseEncoder"):
        cs.ImpactIndex(tmp_path / "i", "splade")


def test_stages_and_identity(encoder: cs.SparseEncoder, masked: str) -> None:
    history: list[Any] = [[], [{"role": "user", "content": "a"}]]
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["dune", ""], "qhistory": history})
    encoded = encoder(topics)
    assert list(encoded.columns) == ["qid", "query", "qhistory", "query_toks"]
    assert encoded["query_toks"][1] == {}
    assert encoder(topics.head(0))["query_toks"].dtype == object
    docs = encoder(pd.DataFrame({"docno": ["a"], "text": ["dune"]}))
    assert docs["toks"][0] == encoded["query_toks"][0]
    again = pickle.loads(pickle.dumps(encoder))
    assert again == encoder
    assert hash(again) == hash(encoder)
    pd.testing.assert_frame_equal(again(topics), encoded)
    assert encoder != cs.SparseEncoder(masked, max_query_terms=2)
    assert repr(cs.SparseEncoder(masked, max_query_terms=2)) == f"SparseEncoder({masked!r}, max_query_terms=2)"
    formed = cs.form(cs.X)(encoded)  # a former drops what belonged to the old query
    assert "query_toks" not in formed.columns


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: cs.SparseEncoder(), ValueError, "no model"),
        (lambda path: cs.SparseEncoder(path, max_query_terms=0), ValueError, "max_query_terms=0"),
        (lambda path: cs.SparseEncoder(path)(pd.DataFrame({"qid": ["7"], "query": [None]})), ValueError, "qid '7'"),
        (lambda path: cs.SparseEncoder(path).doc_toks([{"docno": "x"}]), ValueError, "'x' has no text"),
        (lambda path: cs.SparseEncoder(path).encode_docs([3]), TypeError, "passage number 0 is 3"),
        (lambda path: cs.SparseEncoder("/no/such/folder"), OSError, "no folder"),
    ],
)
def test_what_is_refused(masked: str, make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(masked)


def test_a_dense_model_is_refused(tiny: Path, bert: Any) -> None:
    with pytest.raises((ValueError, OSError), match="vocabulary|sparse encoder"):
        cs.SparseEncoder(bert(0))


def test_queries_looked_up_by_token(masked: str, tmp_path: Path) -> None:
    """A model without inference for queries: weights by token, from a table (SPLADE-doc)."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    documents = [Transformer(masked, transformer_task="fill-mask"), SpladePooling("max")]
    table = SparseStaticEmbedding(tokenizer=documents[0].tokenizer, weight=torch.arange(float(len(WORDS))))
    router = Router.for_query_document(query_modules=[table], document_modules=documents)
    encoder = cs.SparseEncoder(SparseEncoder(modules=[router], device="cpu"), bf16=False)
    found = encoder.encode_queries(["dune cat dune", ""]).toarray()
    expected = {word: float(WORDS.index(word)) for word in ("dune", "cat")}
    assert {WORDS[term]: found[0, term] for term in np.flatnonzero(found[0]) if WORDS[term][0] != "["} == expected
    assert not found[1].any()
    np.testing.assert_allclose(encoder.encode_docs(["a cat"]).toarray()[0], reference(masked, "a cat"), atol=1e-4)
    index = cs.ImpactIndex(tmp_path / "i", encoder).index([{"docno": "d", "text": "a cat"}])
    weighed = [WORDS[term] for term in encoder.encode_docs(["a cat"]).indices if WORDS[term].isalpha()]
    query = " ".join(["dune", *weighed[:5]])
    score = index.retriever()(pd.DataFrame({"qid": ["1"], "query": [query]}))["score"].tolist()
    weights = encoder.encode_queries([query]) @ encoder.encode_docs(["a cat"]).T
    assert score == pytest.approx([weights[0, 0]], rel=1e-5)
