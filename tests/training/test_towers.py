"""How the model that is trained reads its two sides: as the encoder that it becomes will."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import pt_convsearch as cs
from pt_convsearch.training.towers import sides, starting_model


@pytest.mark.parametrize("towers", [1, 2])
def test_the_prompts_of_a_model_are_trained_with(tiny_bert: str, tmp_path: Path, towers: int) -> None:
    """As of E5: sentence-transformers puts an empty "document" beside the "passage" that the model has."""
    prompts = {"query": "a ", "passage": "b "}
    SentenceTransformer(tiny_bert, prompts=prompts, device="cpu").save(str(tmp_path / "e5"))
    model = starting_model(str(tmp_path / "e5"), towers=towers, pooling=None, similarity=None, device="cpu")
    assert [side.prompt for side in sides(model, 16, 16)] == ["a ", "b "]
    model.save(str(tmp_path / "trained"))
    identity = cs.BiEncoder(tmp_path / "trained").identity()
    assert (identity["query_prompt"], identity["passage_prompt"]) == ("a ", "b ")
