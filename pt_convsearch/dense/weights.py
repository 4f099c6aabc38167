"""The identity of a tower: a hash of what its vectors depend on, whichever file or object it came from."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

#: parts of a transformer's configuration that change no vector
_VOLATILE = frozenset({
    "transformers_version", "architectures", "dtype", "torch_dtype", "_name_or_path", "use_cache",
    "gradient_checkpointing", "initializer_range", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "classifier_dropout",
})  # fmt: skip


def tower_hash(tower: Any) -> str:
    """SHA-256 over the parameters, the modules' settings and the tokenizer, in hexadecimal.

    Two towers of equal content are equal, whether they were loaded from two folders or built in memory. It is
    computed once per state of the weights: an optimiser's step is noticed.
    """
    state = {name: tensor for name, tensor in tower.state_dict().items() if ".pooler." not in name}
    version = tuple((tensor.data_ptr(), tensor._version) for tensor in state.values())
    known = getattr(tower, "_convsearch_hash", None)
    if known is not None and known[0] == version:
        return known[1]
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor))
    digest.update(json.dumps(_settings(tower), sort_keys=True, default=str).encode())
    object.__setattr__(tower, "_convsearch_hash", (version, digest.hexdigest()))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    import torch

    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _settings(tower: SentenceTransformer) -> list[Any]:
    from sentence_transformers.base.modules import Transformer

    settings: list[Any] = []
    for name, module in tower.named_modules():
        if not hasattr(module, "get_config_dict"):
            continue
        kind = type(module).__name__
        if isinstance(module, Transformer):
            config = {key: value for key, value in module.config.to_diff_dict().items() if key not in _VOLATILE}
            settings.append([name, kind, config, _tokenizer(module.tokenizer)])
        else:
            settings.append([name, kind, module.get_config_dict()])
    return settings


def _tokenizer(tokenizer: Any) -> Any:
    """The tokenizer's rules and vocabulary, without what each call sets (truncation, padding)."""
    if tokenizer is None:
        return None
    if not getattr(tokenizer, "is_fast", False):
        return tokenizer.get_vocab()
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    return {key: value for key, value in rules.items() if key not in ("truncation", "padding")}
