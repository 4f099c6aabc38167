"""The sequence-to-sequence model that writes contexts, and the lengths that it was trained with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pt_convsearch import _files
from pt_convsearch.rewriting.models import Generator, load_generator

#: what a training of this package leaves beside the weights
SETTINGS = "training.json"


def load(model: Any, *, tokenizer: Any, precision: str, device: str | None) -> Generator:
    """Load the model.

    Args:
        model: a folder, a name on the hub, or a transformers model (which stays as it is).
        tokenizer: its tokenizer, where the model does not bring one.
        precision: "auto": bfloat16 where the processor has it, a CPU included; "bf16", "fp32".
        device: None: a GPU where there is one.

    Raises:
        ValueError: no sequence-to-sequence model, or one that lacks weights.
        OSError: the model is not found.
    """
    import torch

    from pt_convsearch.dense.encoding import has_bf16

    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if precision == "auto":
        precision = "bf16" if has_bf16(place) else "fp32"
    if isinstance(model, str | os.PathLike):
        folder = Path(model).expanduser()
        model = str(folder) if folder.is_dir() else str(model)
    generator = load_generator(model, tokenizer=tokenizer, device=device, precision=precision)
    if not generator.seq2seq:
        raise ValueError(
            f"{model if isinstance(model, str) else type(model).__name__} is no encoder-decoder: resp2ctxt needs one "
            "such as T5 or BART, or what cs.train_resp2ctxt writes"
        )
    return generator


def trained_lengths(model: Any) -> tuple[int | None, int | None]:
    """The lengths of source and target that a folder of ``cs.train_resp2ctxt`` says it was trained with."""
    name = model if isinstance(model, str | os.PathLike) else getattr(model, "name_or_path", "")
    said = _files.read_settings(Path(name).expanduser() / SETTINGS) if name else {}
    return said.get("max_source_length"), said.get("max_target_length")
