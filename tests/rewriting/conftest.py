"""Tiny generating models with random weights, one word a token, and a conversation to rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from .stub_server import Stub

WORDS = [f"w{number}" for number in range(60)]
MARKS = ["<pad>", "</s>", "<unk>", "|||", "go"]


def word_tokenizer(words: list[str] = WORDS, *, ends: bool = True) -> Any:
    """A fast tokenizer of whole words; with ``ends``, a text ends with </s>, as T5's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: at for at, word in enumerate([*MARKS, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    if ends:
        backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512,
    )  # fmt: skip


def tiny_t5(folder: Path, words: list[str] = WORDS, seed: int = 0, width: int = 32) -> str:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    tokenizer = word_tokenizer(words)
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=width // 2, d_ff=2 * width, num_layers=1, num_decoder_layers=1,
        num_heads=2,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tiny_gpt2(folder: Path, seed: int = 0, positions: int = 64) -> str:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = word_tokenizer(ends=False)
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, n_positions=positions,
        bos_token_id=1, eos_token_id=1,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_t5(tmp_path_factory.mktemp("tiny-t5"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_gpt2(tmp_path_factory.mktemp("tiny-gpt2"))


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.fixture
def topics() -> pd.DataFrame:
    """A conversation of three turns, and a second one."""
    history = [said("user", "w1 w2"), said("assistant", "w3 w4 w5"), said("user", "w6"), said("assistant", "w7")]
    return pd.DataFrame(
        {
            "qid": ["a_1", "a_2", "a_3", "b_2"],
            "query": ["w1 w2", "w6", "w8 w9", "w6"],
            "qhistory": [[], history[:2], history, [said("user", "w20 w21 w22"), said("assistant", "w23")]],
            "qrewrite": ["w1 w2", "w6 w1", "w8 w9 w3", "w6 w20"],
            "tags": [["x"], [], ["y", "z"], ["x"]],
        }
    )


@pytest.fixture
def stub() -> Iterator[Stub]:
    found = Stub()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def log() -> pd.DataFrame:
    history = [said("user", "Who wrote Dune?"), said("assistant", "Frank Herbert\nwrote it.")]
    return pd.DataFrame(
        {
            "qid": ["c_1", "c_2", "d_2"],
            "query": ["Who wrote Dune?", "When was it {history} published?", "And the film?"],
            "qhistory": [[], history, history],
            "tags": [["x"], [], ["y"]],
        }
    )
