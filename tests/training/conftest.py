"""A tiny BERT with random weights, and small collections whose answers can be learnt by word overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

WORDS = [f"w{number}" for number in range(200)]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a plain BERT checkpoint: 2 layers, 32 dimensions, one word a token."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "who", "hi", "a", "b", "c"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, initializer_range=0.1,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


class Collection:
    """Passage i is about word i; question i asks for it after some history."""

    def __init__(self, size: int, first: int = 0) -> None:
        self.topics = pd.DataFrame(
            {
                "qid": [f"c{number}_1" for number in range(size)],
                "query": [f"who {WORDS[first + number]}" for number in range(size)],
                "qhistory": [[{"role": "user", "content": "hi a"}, {"role": "assistant", "content": "b"}]] * size,
            }
        )
        self.corpus: list[dict[str, Any]] = [
            {"docno": f"d{number}", "text": f"{WORDS[first + number]} {WORDS[(first + 7 * number) % 200]}"}
            for number in range(size)
        ]
        self.qrels = pd.DataFrame(
            {"qid": self.topics.qid, "docno": [f"d{number}" for number in range(size)], "label": 1}
        )

    @property
    def all(self) -> tuple[pd.DataFrame, pd.DataFrame, list[dict[str, Any]]]:
        return self.topics, self.qrels, self.corpus


@pytest.fixture
def collection() -> Collection:
    return Collection(32)


@pytest.fixture
def pairs(collection: Collection, tmp_path: Path) -> Any:
    """A mined set of 32 questions with random negatives, two drawn an epoch."""
    import pt_convsearch as cs

    return cs.training_pairs(
        *collection.all,
        form=cs.X,
        negatives=cs.RandomNegatives(collection.corpus),
        num_negatives=2,
        out=tmp_path / "pairs",
    )
