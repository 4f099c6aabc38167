"""CQE: weights worked out by hand on an encoder whose norms are known, and the hybrid."""

from __future__ import annotations

import pickle
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.dense.cqe import _words

#: what a layer norm makes of these has a first component of 1, √2 and √3; it is the only one that is let through
ONE, TWO, THREE = [1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 0.0, 0.0], [3.0, -1.0, -1.0, -1.0]
PIECES = {"who": ONE, "wro": ONE, "##te": TWO, "dune": TWO, "herbert": THREE, "|": THREE, "?": THREE, "[CLS]": THREE}
CORPUS = [
    {"docno": "d1", "text": "Herbert wrote Dune."},
    {"docno": "d2", "text": "Who is Dune?"},
    {"docno": "d3", "text": "Paris"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT without layers: the vector of a token is that of its piece."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("norms")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[piece for piece in PIECES if piece != "[CLS]"]]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    model = BertModel(
        BertConfig(
            vocab_size=len(vocabulary), hidden_size=4, num_hidden_layers=0, num_attention_heads=1, intermediate_size=4,
            max_position_embeddings=32,
        ), add_pooling_layer=False,
    )  # fmt: skip
    embeddings = model.embeddings
    with torch.no_grad():
        for weight in (embeddings.position_embeddings.weight, embeddings.token_type_embeddings.weight):
            weight.zero_()
        for place, piece in enumerate(vocabulary):
            embeddings.word_embeddings.weight[place] = torch.tensor(PIECES.get(piece, ONE))
        embeddings.LayerNorm.weight.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
        embeddings.LayerNorm.bias.zero_()
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def encoder(folder: str) -> cs.BiEncoder:
    return cs.BiEncoder(folder, similarity="dot", bf16=False, device="cpu")


@pytest.fixture
def index(tmp_path: Path) -> cs.BM25Index:
    return cs.BM25Index(tmp_path / "x.bm25").index(CORPUS)


TOPICS = pd.DataFrame(
    {
        "qid": ["1_2", "2_1"],
        "query": ["Wrote Dune?", "who"],
        "qhistory": [
            [{"role": "user", "content": "Herbert Dune who"}, {"role": "assistant", "content": "Paris"}], []
        ],
    }
)  # fmt: skip
FORMED = cs.form(cs.QUESTIONS, sep=" | ")  # 'Herbert Dune who | Wrote Dune?'


def test_weights_by_hand(encoder: cs.BiEncoder, index: cs.BM25Index) -> None:
    topics = FORMED(TOPICS)
    found = cs.CQE(encoder, index, threshold=1.2, relative=False)(topics)
    # of the history, "who" is too short; "wrote" weighs as much as its longer piece, neither '?' nor '|' is a word;
    # "dune" was said twice
    expected = {"herbert": sqrt(3), "dune": 2 * sqrt(2), "wrote": sqrt(2)}
    assert found["query_toks"][0] == pytest.approx(expected, rel=1e-5)
    assert found["query_toks"][1] == pytest.approx({"who": 1.0}, rel=1e-5)  # a first turn is all question
    mean = (3 * sqrt(3) + 3 * sqrt(2) + 2) / 8  # herbert | ?, dune ##te dune, who wro
    relative = cs.CQE(encoder, index, threshold=1.2)(topics)["query_toks"][0]
    assert relative == pytest.approx({term: weight / mean for term, weight in expected.items()}, rel=1e-5)
    strict = cs.CQE(encoder, index, threshold=5.0, relative=False)(topics)["query_toks"][0]
    assert strict == pytest.approx({"dune": sqrt(2), "wrote": sqrt(2)}, rel=1e-5)
    # the dense query is the encoder's: the mean over [CLS], the pieces and [SEP]
    np.testing.assert_allclose(found["query_vec"][0], [(mean * 8 + sqrt(3) + 1) / 10, 0, 0, 0], rtol=1e-5)
    vectors = encoder.encode_queries(topics["query"].tolist())
    np.testing.assert_allclose(np.stack(found["query_vec"]), vectors, rtol=1e-5)


def test_norms_are_shown(encoder: cs.BiEncoder, index: cs.BM25Index) -> None:
    shown = cs.CQE(encoder, index).norms(FORMED(TOPICS.head(1)))
    assert shown["word"].tolist() == ["Herbert", "Dune", "who", "Wrote", "Dune?"]
    assert shown["question"].tolist() == [False, False, False, True, True]
    assert shown["norm"].tolist() == pytest.approx([sqrt(3), sqrt(2), 1, sqrt(2), sqrt(2)], rel=1e-5)
    assert shown["terms"].tolist() == [["herbert"], ["dune"], ["who"], ["wrote"], ["dune"]]


def test_what_is_cut_has_no_weight(folder: str, index: cs.BM25Index) -> None:
    short = cs.BiEncoder(folder, similarity="dot", bf16=False, device="cpu", max_query_length=6)
    found = cs.CQE(short, index, threshold=0.0, relative=False)(FORMED(TOPICS))["query_toks"][0]
    assert found == pytest.approx({"wrote": sqrt(2), "dune": sqrt(2)}, rel=1e-5)  # [CLS] wro ##te dune ? [SEP]
    prompted = cs.BiEncoder(folder, similarity="dot", bf16=False, device="cpu", query_prompt="who who ")
    found = cs.CQE(prompted, index, threshold=0.0, relative=False)(FORMED(TOPICS))["query_toks"][1]
    assert found == pytest.approx({"who": 1.0}, rel=1e-5)  # the prompt's words are no terms


def test_the_hybrid(encoder: cs.BiEncoder, index: cs.BM25Index, tmp_path: Path) -> None:
    dense = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    cqe = FORMED >> cs.CQE(encoder, index, threshold=1.2)
    queries = cqe(TOPICS)
    by_vector, by_terms = dense.retriever(num_results=10)(queries), index.bm25(num_results=10)(queries)
    assert set(by_terms["docno"]) == {"d1", "d2"}
    hybrid = (cqe >> (dense.retriever(num_results=10) + 0.1 * index.bm25(num_results=10)))(TOPICS)
    scores = {(row.qid, row.docno): row.score for row in by_vector.itertuples()}
    for row in by_terms.itertuples():
        scores[row.qid, row.docno] += 0.1 * row.score
    assert {(row.qid, row.docno): row.score for row in hybrid.itertuples()} == pytest.approx(scores)
    assert hybrid["qhistory"].map(type).eq(list).all()
    # BM25 of the weighted terms, by hand from the index's own weights
    columns = index.term_ids(list(queries["query_toks"][0]))
    expected = index.vectors(["d1"])[:, columns].toarray()[0] @ list(queries["query_toks"][0].values())
    assert by_terms.set_index(["qid", "docno"])["score"]["1_2", "d1"] == pytest.approx(expected, rel=1e-5)


def test_frames(encoder: cs.BiEncoder, index: cs.BM25Index) -> None:
    stage = cs.CQE(encoder, index, threshold=1.2)
    topics = FORMED(TOPICS)
    found = stage(topics)
    assert list(found.columns) == [*topics.columns, "query_vec", "query_toks"]
    single = pd.concat([stage(topics.iloc[[place]]) for place in range(2)], ignore_index=True)
    assert single["query_toks"].tolist() == [pytest.approx(toks) for toks in found["query_toks"]]
    empty = stage(topics.head(0))
    assert list(empty.columns) == list(found.columns)
    blank = stage(pd.DataFrame({"qid": ["1"], "query": ["  "]}))
    assert blank["query_toks"][0] == {}
    assert not blank["query_vec"][0].any()
    with pytest.raises(ValueError, match="qid '1'"):
        stage(pd.DataFrame({"qid": ["1"], "query": [None]}))
    assert pickle.loads(pickle.dumps(stage)) == stage
    assert stage != cs.CQE(encoder, index, threshold=1.3)
    assert "threshold=1.2" in repr(stage)
    # without a former the query is the current question; a form without it has only history
    assert stage(TOPICS[["qid", "query"]])["query_toks"][0].keys() == {"wrote", "dune"}
    without = cs.form(cs.QUESTIONS - cs.CURRENT)(TOPICS)
    assert stage(without)["query_toks"][0].keys() == {"herbert", "dune"}
    cut = cs.form(cs.CURRENT, max_tokens=1)(TOPICS)  # 'Dune?'
    assert cs.CQE(encoder, index, threshold=9.0)(cut)["query_toks"][0].keys() == {"dune"}


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("U.S.A", [(0, 1, 2.0), (1, 2, 9.0), (2, 3, 3.0), (3, 4, 9.0), (4, 5, 1.0)], [(0, 5, 3.0, ["u.s.a"])]),
        ("don't", [(0, 3, 1.0), (3, 4, 9.0), (4, 5, 2.0)], [(0, 5, 2.0, ["don't"])]),
        ("wi-fi", [(0, 2, 1.0), (2, 3, 9.0), (3, 5, 2.0)], [(0, 2, 1.0, ["wi"]), (3, 5, 2.0, ["fi"])]),
        ("東京 ?", [(0, 1, 1.0), (1, 2, 4.0), (3, 4, 9.0)], [(0, 2, 4.0, ["東", "京"])]),
        ("the dune", [(0, 3, 1.0), (4, 8, 2.0)], [(4, 8, 2.0, ["dune"])]),  # a stop word is no term
        ("unfinished dune", [(4, 10, 3.0), (11, 15, 2.0)], [(4, 10, 3.0, ["nish"]), (11, 15, 2.0, ["dune"])]),  # cut
        ("", [], []),
    ],
)
def test_pieces_to_words(text: str, pieces: Any, expected: Any) -> None:
    from pt_convsearch.lexical import Analyzer

    assert _words(text, pieces, Analyzer()) == expected


def test_what_is_refused(encoder: cs.BiEncoder, index: cs.BM25Index) -> None:
    with pytest.raises(TypeError, match="BiEncoder"):
        cs.CQE("model", index)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="analyze"):
        cs.CQE(encoder, "words")
