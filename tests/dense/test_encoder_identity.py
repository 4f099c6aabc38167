"""When two encoders are one, and what a pickle and a repr keep."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import pt_convsearch as cs

from .test_encoder import TEXTS


def test_equal_content_is_one_encoder(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = cs.BiEncoder(tiny)
    shutil.copytree(tiny, tmp_path / "copy")
    SentenceTransformer(str(tiny), device="cpu").save(str(tmp_path / "saved"))
    others = [
        cs.BiEncoder(str(tmp_path / "copy"), batch_size=3, verbose=True, bf16=False),
        cs.BiEncoder(tmp_path / "saved"),
        cs.BiEncoder(SentenceTransformer(str(tiny), device="cpu")),
        pickle.loads(pickle.dumps(encoder)),
    ]
    for other in others:
        assert other == encoder
        assert hash(other) == hash(encoder)
    assert encoder.query_encoder() == cs.BiEncoder(tiny).query_encoder()


@pytest.mark.parametrize(
    "options",
    [
        {"max_query_length": 8}, {"max_passage_length": 8}, {"query_prompt": "query : "},
        {"passage_prompt": "title : "}, {"similarity": "dot"}, {"title_field": None},
    ],
)  # fmt: skip
def test_what_changes_vectors_makes_another_encoder(tiny: Path, options: dict) -> None:
    one, other = cs.BiEncoder(tiny), cs.BiEncoder(tiny, **options)
    assert one != other
    assert one.model_name != other.model_name
    assert one.query_encoder() != other.query_encoder()
    assert one.doc_encoder() != other.doc_encoder()


def test_other_weights_pooling_or_vocabulary_at_the_same_path(bert, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert(0), folder)
    first = cs.BiEncoder(folder)
    assert cs.BiEncoder(folder, pooling="cls") != first
    shutil.copy(bert(1) / "model.safetensors", folder / "model.safetensors")
    second = cs.BiEncoder(folder)
    assert second != first
    tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.replace('"dune"', '"dunes"'), encoding="utf-8")
    assert cs.BiEncoder(folder) != second


def test_a_step_of_training_makes_another_encoder(tiny: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny), device="cpu")
    encoder = cs.BiEncoder(model)
    before = encoder.identity()
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    assert encoder.identity()["query_model"] != before["query_model"]


def test_a_pickle_loads_its_model_when_it_encodes(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "model")
    encoder = cs.BiEncoder(tmp_path / "model", bf16=False)
    data = pickle.dumps(encoder)
    assert len(data) < 20_000  # the name travels, not the weights
    np.testing.assert_array_equal(pickle.loads(data).encode_queries(TEXTS), encoder.encode_queries(TEXTS))


def test_repr(tiny: Path) -> None:
    assert repr(cs.BiEncoder(str(tiny), max_query_length=32)) == f"BiEncoder({str(tiny)!r}, max_query_length=32)"
