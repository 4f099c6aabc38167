"""Towers of published architectures on tiny checkpoints: OR-QuAC's ALBERT, Dragon-multiturn's two encoders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.dense.published import PUBLISHED

from .conftest import WORDS, sizes, tiny_tokenizer

TEXTS = ["who wrote dune ?", "a cat and a dog", "paris"]
CORPUS = [{"docno": f"d{place}", "text": text} for place, text in enumerate(TEXTS)]


def albert_config(seed: int) -> Any:
    from transformers import AlbertConfig

    return AlbertConfig(**sizes(seed), embedding_size=16, initializer_range=0.5)


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory) -> str:
    from transformers import AlbertModel

    folder = tmp_path_factory.mktemp("albert")
    AlbertModel(albert_config(5)).save_pretrained(folder)
    tiny_tokenizer(folder)
    return str(folder)


def pooled(model: Any, folder: Path | str, texts: list[str]) -> np.ndarray:
    """ALBERT's pooled output, one text at a time."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        rows = [model.eval()(**tokenizer(text, return_tensors="pt")).pooler_output[0] for text in texts]
    return torch.stack(rows).numpy()


def test_towers_project_the_pooled_output(albert: str, tmp_path: Path) -> None:
    from transformers import AlbertModel

    query, passage = cs.dense.albert_towers(albert, dimensions=8, seed=3, device="cpu")
    expected = pooled(AlbertModel.from_pretrained(albert), albert, TEXTS)
    for tower in (query, passage):
        projection: Any = tower[3]
        weight = projection.linear.weight.detach().numpy()
        found = tower.encode(TEXTS, show_progress_bar=False)
        assert found.shape == (3, 8)
        np.testing.assert_allclose(found, expected @ weight.T, atol=1e-5)
    again, _ = cs.dense.albert_towers(albert, dimensions=8, seed=3, device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), query.encode(TEXTS))
    assert abs(query.encode(TEXTS) - passage.encode(TEXTS)).max() > 1e-3
    encoder = cs.BiEncoder(query_model=query, passage_model=passage, bf16=False)
    assert encoder.similarity == "dot"
    results = (
        cs.DenseIndex(tmp_path / "x.flex", encoder)
        .index(CORPUS)
        .retriever()(pd.DataFrame({"qid": ["1"], "query": ["dune"]}))
    )
    assert len(results) == 3


def test_towers_that_pool_by_the_mean(albert: str) -> None:
    """tanh(W mean + b) times the projection, from the last layer's vectors, one text at a time."""
    import torch
    from transformers import AlbertModel, AutoTokenizer

    query, _ = cs.dense.albert_towers(albert, dimensions=8, pooling="mean", device="cpu")
    model, tokenizer = AlbertModel.from_pretrained(albert).eval(), AutoTokenizer.from_pretrained(albert)
    projection: Any = query[3]
    with torch.no_grad():
        for text, found in zip(TEXTS, query.encode(TEXTS, show_progress_bar=False), strict=True):
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            expected = torch.tanh(model.pooler.weight @ mean + model.pooler.bias) @ projection.linear.weight.cpu().T
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="'cls' or 'mean'"):
        cs.dense.albert_towers(albert, pooling="max")


def test_towers_are_trained(albert: str, tmp_path: Path) -> None:
    topics = pd.DataFrame({"qid": ["1", "2", "3"], "query": TEXTS, "qhistory": [[]] * 3})
    qrels = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["d0", "d1", "d2"], "label": 1})
    pairs = cs.training_pairs(topics, qrels, CORPUS, form=cs.X, out=tmp_path / "pairs")
    towers = cs.dense.albert_towers(albert, dimensions=8, device="cpu")
    model = cs.train(pairs, init=towers, out=tmp_path / "orquac", max_steps=2, batch_size=3, device="cpu")
    opened = cs.BiEncoder(tmp_path / "orquac", bf16=False, device="cpu")
    assert opened.identity()["dimensions"] == 8
    assert opened.similarity == "dot"
    assert opened.identity()["query_model"] == model.identity()["query_model"]
    assert abs(opened.encode_queries(TEXTS) - opened.encode_docs(TEXTS)).max() > 1e-3


@pytest.mark.parametrize("kind", ["pytorch_model.bin", "model.safetensors"])
def test_a_checkpoint_of_orquac(tmp_path: Path, kind: str) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AlbertModel

    config = albert_config(6)
    parts: dict[str, Any] = {
        "query_encoder": AlbertModel(config), "query_proj": torch.nn.Linear(32, 8),
        "passage_encoder": AlbertModel(config), "passage_proj": torch.nn.Linear(32, 8),
    }  # fmt: skip
    weights = {
        f"{name}.{key}": value.clone() for name, part in parts.items() for key, value in part.state_dict().items()
    }
    weights["query_encoder.embeddings.position_ids"] = torch.arange(64)[None]  # as files of 2020 hold them
    known = {**config.to_dict(), "proj_size": 8, "architectures": ["AlbertForRetrieverOnlyPositivePassage"]}
    tiny_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(known), encoding="utf-8")
    if kind.endswith(".bin"):
        torch.save(weights, tmp_path / kind)
    else:
        save_file(weights, tmp_path / kind)
    encoder = cs.dense.orquac_encoder(tmp_path, bf16=False, device="cpu")
    for side, found in (("query", encoder.encode_queries(TEXTS)), ("passage", encoder.encode_docs(TEXTS))):
        projection = parts[f"{side}_proj"]
        with torch.no_grad():
            expected = projection(torch.tensor(pooled(parts[f"{side}_encoder"], tmp_path, TEXTS))).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (encoder.max_query_length, encoder.max_passage_length) == (64, 64)  # this one reads no more
    del weights["passage_proj.bias"]
    (tmp_path / kind).unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"passage's passage_proj\.bias"):
        cs.dense.orquac_encoder(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin is missing"):
        cs.dense.orquac_encoder(tmp_path)


def test_dragon_multiturn(bert: Callable[..., Path], tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer, BertModel

    encoder = cs.dense.published_encoder(
        "dragon-multiturn", query_model=bert(1), passage_model=bert(2), bf16=False, device="cpu"
    )
    log = [[
        {"role": "user", "content": "who wrote dune ?"}, {"role": "assistant", "content": "frank herbert ."},
        {"role": "user", "content": "when was it published ?"},
    ]]  # fmt: skip
    form = cs.form(cs.Speakers(cs.X, assistant="agent:"), sep="\n")
    topics = form(cs.topics.from_messages(log, turns="last"))
    # the format of the model card
    said = "user: who wrote dune ?\nagent: frank herbert .\nuser: when was it published ?"
    assert topics["query"].tolist() == [said]

    def card(folder: Path, text: str) -> np.ndarray:
        """How the model card encodes: the last hidden state of the first token."""
        with torch.no_grad():
            tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
            return BertModel.from_pretrained(folder).eval()(**tokens).last_hidden_state[0, 0].numpy()

    np.testing.assert_allclose(encoder.encode_queries([said])[0], card(bert(1), said), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs(TEXTS)[1], card(bert(2), TEXTS[1]), atol=1e-5)
    found = (form >> cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS).retriever())(topics)
    expected = card(bert(1), said) @ np.stack([card(bert(2), text) for text in TEXTS]).T
    assert found.set_index("docno")["score"].to_dict() == pytest.approx(
        dict(zip(["d0", "d1", "d2"], expected, strict=True)), rel=1e-4
    )


def test_names() -> None:
    with pytest.raises(ValueError, match="dragon-multiturn, dragon-plus"):
        cs.dense.published_encoder("dragon")
    with pytest.raises(OSError, match="no encoder can be loaded from 'nvidia/dragon-multiturn-query-encoder'"):
        cs.dense.published_encoder("dragon-multiturn")
    assert all(settings["similarity"] == "dot" for settings in PUBLISHED.values())
    assert len(WORDS) > 100


def test_no_pooler(tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=len(WORDS), dim=32, n_layers=1, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(tmp_path)
    tiny_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="has no pooler"):
        cs.dense.albert_towers(tmp_path)
