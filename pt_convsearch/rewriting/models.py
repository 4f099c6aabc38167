"""Generating models: an encoder-decoder or a causal model with its tokenizer, and the identity of what they write."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pt_convsearch import _files
from pt_convsearch._process import quiet
from pt_convsearch.dense.encoding import has_bf16
from pt_convsearch.dense.weights import _VOLATILE, _tokenizer, tower_hash
from pt_convsearch.forming import Parts
from pt_convsearch.rewriting.answer_cache import content_key

#: what ``cs.train_rewriter`` leaves in a model's folder: how its inputs were made
SETTINGS = "rewriter.json"
_GENERATES = ("ForConditionalGeneration", "EncoderDecoderModel", "ForCausalLM", "LMHeadModel", "ForSeq2SeqLM")


@dataclass
class Generator:
    """A model that writes text.

    Attributes:
        model: the transformers model, in evaluation mode.
        tokenizer: a fast tokenizer of its own, with a padding token, padded where the model needs it.
        seq2seq: whether it is an encoder-decoder (else causal: what it writes follows its input).
        trained_with: the settings that ``cs.train_rewriter`` left beside the model, {} otherwise.
    """

    model: Any
    tokenizer: Any
    seq2seq: bool
    trained_with: dict[str, Any]
    _described: str | None = field(default=None, repr=False)

    def identity(self) -> str:
        """A hash of what the texts depend on: weights, configuration, generation settings, tokenizer."""
        if self._described is None:
            configs = (self.model.config, self.model.generation_config)
            shown = [{k: v for k, v in config.to_diff_dict().items() if k not in _VOLATILE} for config in configs]
            self._described = content_key(json.loads(json.dumps([*shown, _tokenizer(self.tokenizer)], default=str)))
        return content_key(tower_hash(self.model), str(self.model.dtype), self._described)

    def longest(self) -> int | None:
        """The most tokens that the model's positions allow, None where they have no end."""
        config = getattr(self.model.config, "encoder", self.model.config)
        relative = hasattr(config, "relative_attention_num_buckets")
        said = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
        limits = [limit for limit in said if isinstance(limit, int) and limit > 0]
        return None if relative or not limits else min(limits)


def load_generator(model: Any, *, tokenizer: Any = None, device: Any = None, precision: str = "auto") -> Generator:
    """Load a generating model.

    Args:
        model: a folder, a name on the hub, or a transformers model.
        tokenizer: its tokenizer, where the model does not bring one.
        device: None: a GPU where there is one.
        precision: "auto" (bfloat16 weights on a GPU that has it, float32 elsewhere), "bf16", "fp32". A model that is
            given as an object stays as it is.

    Raises:
        ValueError: a model that cannot generate, weights that are missing, or a tokenizer that is not a fast one.
        OSError: the model is not found.
    """
    import torch
    from transformers import AutoTokenizer

    if precision not in ("auto", "bf16", "fp32"):
        raise ValueError(f"precision={precision!r}: 'auto', 'bf16' or 'fp32'")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    named = isinstance(model, str | os.PathLike)
    if named:
        name = os.fspath(model)
        with quiet():
            loaded = load_weights(name)
        bf16 = precision == "bf16" or (precision == "auto" and place.type == "cuda" and has_bf16(place))
        loaded = loaded.to(device=place, dtype=torch.bfloat16 if bf16 else torch.float32)
        tokenizer = (
            AutoTokenizer.from_pretrained(name if tokenizer is None else tokenizer)
            if not _is_tokenizer(tokenizer)
            else tokenizer
        )
    else:
        name = getattr(model, "name_or_path", "") or ""
        loaded = model if device is None else model.to(place)
        if tokenizer is None and not name:
            raise ValueError("a model without a name does not say what its tokenizer is: give tokenizer=")
        if not _is_tokenizer(tokenizer):
            tokenizer = AutoTokenizer.from_pretrained(tokenizer or name)
    seq2seq = bool(loaded.config.is_encoder_decoder)
    trained = _files.read_settings(Path(name) / SETTINGS) if name else {}
    return Generator(loaded.eval(), own_tokenizer(tokenizer, seq2seq=seq2seq), seq2seq, trained)


def load_weights(name: str) -> Any:
    """The generating model of a folder or hub name, every weight of it read from there."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.from_pretrained(name)
    architectures = getattr(config, "architectures", None) or []
    if architectures and not any(part in architecture for architecture in architectures for part in _GENERATES):
        raise ValueError(
            f"{name} is a {architectures[0]}, which writes no text: give an encoder-decoder (T5, BART …) or a causal "
            "model (GPT-2 …); cs.train_rewriter makes an encoder-decoder of an encoder"
        )
    kind: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model, found = kind.from_pretrained(name, output_loading_info=True)
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise ValueError(
            f"{name} lacks {len(missing)} weights of a {type(model).__name__} ({missing[0]} …): it would write noise"
        )
    return model


def own_tokenizer(tokenizer: Any, *, seq2seq: bool) -> Any:
    """A copy of a fast tokenizer that pads where the model needs it."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} is no fast tokenizer: a budget of tokens needs to know where each begins"
        )
    own = copy.deepcopy(tokenizer)
    own.padding_side = "right" if seq2seq else "left"
    if own.pad_token is None:
        own.pad_token = own.eos_token
    return own


def _is_tokenizer(value: Any) -> bool:
    return value is not None and not isinstance(value, str | os.PathLike)


def parts_from(tables: Any) -> Parts:
    """The choice of parts that a JSON file holds."""
    answers, questions, firsts, rewrite = tables
    return Parts(tuple(answers), tuple(questions), tuple(firsts), rewrite)
