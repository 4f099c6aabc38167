"""Tiny models whose scores can be worked out, and frames to re-rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

WORDS = [f"w{number}" for number in range(100)]


def write_bert(folder: Path, *, labels: int = 1, seed: int = 0, head: bool = True) -> str:
    """A random BERT of one word a token, 64 positions; with a classifier unless ``head`` is False."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "user", "assistant", ":"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, initializer_range=0.3, num_labels=labels,
    )  # fmt: skip
    model: Any = BertForSequenceClassification(config) if head else BertModel(config, add_pooling_layer=False)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_bert(tmp_path_factory.mktemp("models") / "cross-encoder")


@pytest.fixture
def results() -> pd.DataFrame:
    """Two questions, three passages each, ranks as retrieved."""
    return pd.DataFrame(
        {
            "qid": ["q1"] * 3 + ["q2"] * 3,
            "query": ["w1 w2"] * 3 + ["w9"] * 3,
            "docno": ["a", "b", "c", "a", "b", "d"],
            "text": ["w3 w4 w5", "w1", "w2 w2 w7", "w3 w4 w5", "w1", "w50 w51"],
            "score": [3.0, 2.0, 1.0, 9.0, 8.0, 7.0],
            "rank": [0, 1, 2, 0, 1, 2],
            "qhistory": [[{"role": "user", "content": "w30"}, {"role": "assistant", "content": "w31"}]] * 6,
        }
    )
