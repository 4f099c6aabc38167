"""The sequence-to-sequence model: loaded whole or not at all, and known by its content."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

#: what a training of this package leaves beside the weights
SETTINGS = "training.json"


def load(model: Any, *, precision: str, device: str | None) -> tuple[Any, Any]:
    """Model and tokenizer, ready to generate.

    Args:
        model: a folder or name, or a pair of model and tokenizer (of which nothing is changed).
        precision: "auto", "bf16" or "fp32".
        device: where to put a model that is loaded; None: a GPU where there is one.

    Raises:
        OSError: there is no such model.
        ValueError: the checkpoint is no sequence-to-sequence model, or lacks weights, which would be random.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    if isinstance(model, tuple):
        loaded, tokenizer = model
        wanted = dtype_of(precision, next(loaded.parameters()).device)
        if precision != "auto" and next(loaded.parameters()).dtype != wanted:
            raise ValueError(
                f"precision={precision!r}, but the model given is {next(loaded.parameters()).dtype}: leave it out"
            )
        return loaded, tokenizer
    name = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else str(model)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        loaded, found = AutoModelForSeq2SeqLM.from_pretrained(
            name, dtype=dtype_of(precision, place), output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(name)
    except ValueError as error:
        raise ValueError(
            f"{name!r} is no sequence-to-sequence model ({str(error).splitlines()[0]}): resp2ctxt needs one such as T5 "
            "or BART, or what cs.train_resp2ctxt writes"
        ) from error
    except OSError as error:
        raise OSError(
            f"no model can be loaded from {name!r} ({str(error).splitlines()[0]}): give a folder on disk, "
            "or a name on the Hugging Face hub where it can be reached"
        ) from error
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
    missing = sorted(found["missing_keys"])
    if missing:
        raise ValueError(
            f"{name!r} lacks {len(missing)} of the model's weights ({missing[0]} …), which would be random: "
            "its configuration does not fit its weights"
        )
    loaded.to(place)
    loaded.eval()
    return loaded, tokenizer


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """bfloat16 where it was asked for, or with "auto" where the processor has it; else float32."""
    import torch

    from pt_convsearch.dense.encoding import has_bf16

    bf16 = precision == "bf16" or (precision == "auto" and has_bf16(device))
    return torch.bfloat16 if bf16 else torch.float32


def trained_lengths(model: Any) -> tuple[int | None, int | None]:
    """The lengths of source and target that a folder of this package says it was trained with."""
    path = None if isinstance(model, tuple) else Path(model).expanduser() / SETTINGS
    if path is None or not path.is_file():
        return None, None
    said = json.loads(path.read_text(encoding="utf-8"))
    return said.get("max_source_length"), said.get("max_target_length")


def identity(model: Any, tokenizer: Any) -> str:
    """SHA-256 over weights, configuration and vocabulary, in hexadecimal: the same wherever the model lies."""
    import torch

    digest = hashlib.sha256()
    state = model.state_dict()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    ids = {
        name: getattr(model.generation_config, name, None)
        for name in ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id")
    }
    rules = (
        json.loads(tokenizer.backend_tokenizer.to_str())
        if getattr(tokenizer, "is_fast", False)
        else tokenizer.get_vocab()
    )
    rules = {key: value for key, value in rules.items() if key not in ("truncation", "padding")}
    digest.update(json.dumps([ids, rules], sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
