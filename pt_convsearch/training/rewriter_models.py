"""Where the training of a rewriter starts: a generating model, or an encoder-decoder warm-started from an encoder."""

from __future__ import annotations

import copy
import os
from typing import Any

from pt_convsearch.dense.minilm import bundled
from pt_convsearch.rewriting.models import _GENERATES, Generator, load_weights, own_tokenizer

from .rewriter_run import silent


def starting_generator(init: Any, tokenizer: Any = None) -> Generator:
    """The model to be trained.

    Args:
        init: a folder, a name on the hub or a transformers model (a copy is trained). A folder or name of an encoder
            (BERT, MiniLM) gives an encoder-decoder both halves of which start as that encoder, with new weights only
            between them (Rothe et al., "Leveraging pre-trained checkpoints for sequence generation tasks", TACL 2020).
        tokenizer: of a model that does not bring one.

    Raises:
        OSError: the model is not found.
    """
    from transformers import AutoConfig, AutoTokenizer

    if isinstance(init, str | os.PathLike):
        name = os.fspath(init)
        name = str(bundled(name) or name)
        config = AutoConfig.from_pretrained(name)
        architectures = config.architectures or []
        generates = config.is_encoder_decoder or any(part in some for some in architectures for part in _GENERATES)
        tokenizer = tokenizer or AutoTokenizer.from_pretrained(name)
        with silent():
            model = load_weights(name) if generates else _warm_started(name, tokenizer)
    else:
        model = copy.deepcopy(init)
        tokenizer = tokenizer or AutoTokenizer.from_pretrained(init.name_or_path)
    seq2seq = bool(model.config.is_encoder_decoder)
    return Generator(model, own_tokenizer(tokenizer, seq2seq=seq2seq), seq2seq, {})


def _warm_started(name: str, tokenizer: Any) -> Any:
    from transformers import EncoderDecoderModel

    model: Any = EncoderDecoderModel.from_encoder_decoder_pretrained(name, name)
    start, end = tokenizer.cls_token_id or tokenizer.bos_token_id, tokenizer.sep_token_id or tokenizer.eos_token_id
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.eos_token_id, config.pad_token_id = start, end, tokenizer.pad_token_id
    model.config.vocab_size = model.config.decoder.vocab_size
    return model
