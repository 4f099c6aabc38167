"""Collections full of ties, a tiny encoder, and one small Ray for all tests of this folder."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # else whatever else runs on the machine starves the workers

WORDS = [f"w{number}" for number in range(25)]


def tied_docs(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Short texts of few words: many documents have the same score."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    return [
        {"docno": f"d{number}", "text": " ".join(draw.choices(WORDS, weights, k=draw.choice([0, 1, 2, 2, 3, 8])))}
        for number in range(count)
    ]


def some_topics(count: int = 30, seed: int = 2) -> pd.DataFrame:
    draw = random.Random(seed)
    lengths = [draw.choice([1, 2, 5, 80]) for _ in range(count)]
    queries = [" ".join(draw.choices([*WORDS, "unknown"], k=length)) for length in lengths]
    queries[0], queries[1] = "", "unknown"
    return pd.DataFrame({"qid": [f"q{number}" for number in range(count)], "query": queries, "kept": [[1]] * count})


def tied_vectors(count: int, dimensions: int = 6, seed: int = 3) -> np.ndarray:
    """Small whole numbers: many equal dot products."""
    return np.random.default_rng(seed).integers(-2, 3, size=(count, dimensions)).astype(np.float32)


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Any]:
    """Ray on this machine: two processors, a small object store, no dashboard, no reports."""
    ray = pytest.importorskip("ray", reason="pip install 'pt-convsearch[ray]'")
    from pt_convsearch.scale import connect

    if ray.is_initialized():
        ray.shutdown()
    connect(num_cpus=2, object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random BERT of two small layers, mean pooling, as a bi-encoder in float32."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer

    import pt_convsearch as cs

    folder: Path = tmp_path_factory.mktemp("tiny") / "bert"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    SentenceTransformer(str(folder), device="cpu").save(str(folder.parent / "st"))
    return cs.BiEncoder(folder.parent / "st", bf16=False)
