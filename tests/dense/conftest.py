"""Tiny random checkpoints of the architectures that people have, made once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_TEXT = """
[PAD] [UNK] [CLS] [SEP] [MASK] . ? , : who wrote dune when was it published did he write sequels frank herbert
in a the of and to is paris france capital first second third cat dog bird query passage title text one two
three four five
"""
WORDS = _TEXT.split()
WORDS += [f"w{number}" for number in range(60)]
WORDS += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]


def tiny_tokenizer(folder: Path, kind: str = "BertTokenizerFast", max_length: int = 64) -> None:
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = getattr(transformers, kind)(str(vocabulary), model_max_length=max_length)
    tokenizer.save_pretrained(folder)


def sizes(seed: int) -> dict[str, int]:
    import torch

    torch.manual_seed(seed)
    return {
        "vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 48, "max_position_embeddings": 64,
    }  # fmt: skip


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A plain BERT checkpoint, by seed."""
    made: dict[int, Path] = {}

    def make(seed: int = 0) -> Path:
        if seed not in made:
            from transformers import BertConfig, BertModel

            folder = tmp_path_factory.mktemp(f"bert{seed}")
            # large weights: small random ones give vectors that hardly differ
            BertModel(BertConfig(**sizes(seed), initializer_range=0.5)).save_pretrained(folder)
            tiny_tokenizer(folder)
            made[seed] = folder
        return made[seed]

    return make


@pytest.fixture(scope="session")
def tiny(bert: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers folder: tiny BERT, mean pooling, cosine."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path_factory.mktemp("tiny")
    SentenceTransformer(str(bert(0)), device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="session")
def dpr(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """DPR's question and context encoders, by projection size."""
    made: dict[int, tuple[Path, Path]] = {}

    def make(projection: int = 0) -> tuple[Path, Path]:
        if projection not in made:
            import transformers

            folders = []
            for seed, name in enumerate(("Question", "Context")):
                folder = tmp_path_factory.mktemp(f"dpr{name}{projection}")
                config = transformers.DPRConfig(**sizes(seed + 7), projection_dim=projection, initializer_range=0.5)
                getattr(transformers, f"DPR{name}Encoder")(config).eval().save_pretrained(folder)
                tiny_tokenizer(folder)
                folders.append(folder)
            made[projection] = (folders[0], folders[1])
        return made[projection]

    return make
