"""Text to vectors: cut on the chosen side, sorted by length, in small batches, in bfloat16 where there is hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

#: the feature that says where each token stands in the text, as Hugging Face names it
OFFSETS = "offset_mapping"
#: texts that are tokenised and sorted together
_WINDOW = 16_384
#: without a batch size: texts in a batch on a CPU, tokens in a batch (padding counted) elsewhere
_CPU_BATCH = 8
_GPU_TOKENS = 32_768


@dataclass(frozen=True)
class Side:
    """How one side of a bi-encoder reads its texts."""

    task: Literal["query", "document"]
    max_length: int
    truncation_side: Literal["left", "right"]
    prompt: str


@dataclass
class Encoded:
    """Vectors (float32, one row per text, in the order given) and how many texts were cut to the maximum length."""

    vectors: np.ndarray
    cut: int


#: the names of a side's prompt
QUERY, PASSAGE = ("query",), ("document", "passage", "corpus")


def prompt_of(tower: SentenceTransformer, names: Sequence[str]) -> str:
    """A model's own prompt: the first of these names that says something. sentence-transformers gives every model an
    empty "document", beside its "passage" if it has one."""
    return next((prompt for prompt in map(tower.prompts.get, names) if prompt), "")


def encode(
    tower: SentenceTransformer,
    texts: Sequence[str],
    side: Side,
    *,
    batch_size: int | None,
    bf16: bool,
    dimensions: int,
    progress: str | None = None,
) -> Encoded:
    """Encode each distinct text once.

    Args:
        tower: the model.
        texts: any number of texts.
        side: the role, the length, where to cut, the prompt.
        batch_size: texts in a batch; None: 8 on a CPU, as many as 32,768 tokens elsewhere.
        bf16: run the model under bfloat16 autocast.
        dimensions: the length of a vector, for no texts at all.
        progress: the label of a progress bar, or None.
    """
    from tqdm.auto import tqdm

    distinct = list(dict.fromkeys(texts))
    place = {text: row for row, text in enumerate(distinct)}
    vectors = np.empty((len(distinct), dimensions), dtype=np.float32)
    cut = np.zeros(len(distinct), dtype=bool)
    with tqdm(total=len(distinct), desc=progress, unit="text", disable=progress is None) as bar:
        for start in range(0, len(distinct), _WINDOW):
            window = distinct[start : start + _WINDOW]
            for rows, found, was_cut in encode_window(tower, window, side, batch_size, bf16):
                vectors[start + rows] = found
                cut[start + rows] = was_cut
                bar.update(len(rows))
    back = np.fromiter((place[text] for text in texts), dtype=np.int64, count=len(texts))
    if len(back) == len(distinct):
        return Encoded(vectors, int(cut.sum()))
    return Encoded(vectors[back], int(cut[back].sum()))


def encode_window(
    tower: SentenceTransformer, texts: list[str], side: Side, batch_size: int | None, bf16: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of texts with their vectors, and whether they were cut, batch by batch: the longest texts first."""
    if text_module(tower, side.task) is None:
        # no Hugging Face tokenizer to count with (static embeddings, chat templates): the model reads as it always does
        call = tower.encode_query if side.task == "query" else tower.encode_document
        found = call(texts, prompt=side.prompt or None, batch_size=batch_size or 32, show_progress_bar=False)
        yield np.arange(len(texts)), np.asarray(found, dtype=np.float32), np.zeros(len(texts), dtype=bool)
        return
    tokens = tokenize(text_module(tower, side.task).tokenizer, texts, side)
    for rows, outputs in forward_window(tower, tokens, side, batch_size, bf16):
        embedding = outputs["sentence_embedding"]
        if getattr(tower, "truncate_dim", None) is not None:
            embedding = embedding[:, : tower.truncate_dim]
        yield rows, embedding.float().cpu().numpy(), tokens[1][rows]


def forward_window(
    tower: SentenceTransformer, tokens: tuple[Any, np.ndarray, int], side: Side, batch_size: int | None, bf16: bool
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Rows of texts with all that the model says of them, batch by batch: the longest texts first.

    Args:
        tower: the model.
        tokens: what :func:`tokenize` gave.
        side, batch_size, bf16: as in :func:`encode`.
    """
    import torch

    features, _, prompt_length = tokens
    tokenizer = text_module(tower, side.task).tokenizer
    lengths = np.array([len(ids) for ids in features["input_ids"]])
    order = np.argsort(-lengths, kind="stable")
    device = next(tower.parameters()).device
    tower.eval()
    for rows in _batches(order, lengths, batch_size, device.type):
        batch = {name: [values[row] for row in rows] for name, values in features.items() if name != OFFSETS}
        tensors: dict[str, Any] = dict(tokenizer.pad(batch, padding=True, return_tensors="pt").to(device))
        tensors["modality"] = "text"
        if prompt_length:
            tensors["prompt_length"] = prompt_length
        with torch.inference_mode(), autocast(device, bf16):
            outputs = tower(tensors, task=side.task)
        yield rows, outputs


def _batches(order: np.ndarray, lengths: np.ndarray, batch_size: int | None, device: str) -> Iterator[np.ndarray]:
    """Rows of similar length, the longest first."""
    start = 0
    while start < len(order):
        size = batch_size or (
            _CPU_BATCH if device == "cpu" else max(1, _GPU_TOKENS // max(1, int(lengths[order[start]])))
        )
        yield order[start : start + size]
        start += size


def tokenize(
    tokenizer: Any, texts: Sequence[str], side: Side, *, offsets: bool = False
) -> tuple[dict[str, list[list[Any]]], np.ndarray, int]:
    """Token ids, at most ``side.max_length``: special tokens and prompt are kept, the text is cut on its side.

    Args:
        tokenizer: a fast one.
        texts: any number of texts.
        side: the length, where to cut, the prompt.
        offsets: also say, as the feature :data:`OFFSETS`, where in prompt and text each token stands.

    Returns:
        the features; which texts were cut; the length of the prompt with the special tokens before it, or 0.
    """
    encoded = tokenizer(
        [side.prompt + text for text in texts],
        add_special_tokens=True, truncation=False, padding=False, return_special_tokens_mask=True,
        return_offsets_mapping=bool(side.prompt) or offsets, verbose=False,
    )  # fmt: skip
    specials = encoded.pop("special_tokens_mask")
    places = encoded.pop(OFFSETS, None)
    features = {name: encoded[name] for name in encoded if name in (*tokenizer.model_input_names, "attention_mask")}
    if offsets:
        features[OFFSETS] = [list(row) for row in places]
    was_cut = np.zeros(len(texts), dtype=bool)
    prompt_length = 0
    for row, mask in enumerate(specials):
        length = len(mask)
        if length <= side.max_length and not (side.prompt and row == 0):
            continue
        head = _run(mask)
        tail = _run(mask[::-1]) if head < length else 0
        if side.prompt:
            end = len(side.prompt.rstrip())
            head += sum(1 for first, last in places[row][head : length - tail] if last <= end)
            prompt_length = prompt_length or head
        if length <= side.max_length:
            continue
        was_cut[row] = True
        room = max(side.max_length - head - tail, 0)
        if side.truncation_side == "left":
            kept = [*range(head), *range(length - tail - room, length)]
        else:
            kept = [*range(head + room), *range(length - tail, length)]
        for values in features.values():
            values[row] = [values[row][position] for position in kept]
    return features, was_cut, prompt_length


def _run(mask: Sequence[int]) -> int:
    """How many special tokens stand at the front."""
    for position, special in enumerate(mask):
        if not special:
            return position
    return len(mask)


def text_module(tower: SentenceTransformer, task: str) -> Any:
    """The transformer with a fast tokenizer that reads the texts of ``task``; None where there is none."""
    from sentence_transformers.base.modules import Router, Transformer

    module = tower[0]
    if isinstance(module, Router):
        route: Any = module.sub_modules[module._resolve_route(task=task, modality="text") or task]
        module = route[0]
    if (
        not isinstance(module, Transformer)
        or "message" in module.modality_config
        or "text" not in module.modality_config
    ):
        return None
    return module if getattr(module.tokenizer, "is_fast", False) else None


def longest(module: Any) -> int | None:
    """How many tokens the transformer takes at most, None where it does not say."""
    limit = module.max_seq_length
    if limit is not None and limit < 1_000_000:
        return int(limit)
    return positions(module.config)


#: encoders whose positions begin after that of the padding token: RoBERTa and its kin
_AFTER_PADDING = ("roberta", "camembert", "data2vec-text", "esm", "ibert", "longformer", "luke", "mpnet", "xmod")


def positions(config: Any) -> int | None:
    """How many tokens the positions of an encoder allow, None where its configuration does not say."""
    said = getattr(config, "max_position_embeddings", None)
    if said is None:
        return None
    after_padding = any(name in config.model_type for name in _AFTER_PADDING)
    return int(said) - (config.pad_token_id + 1 if after_padding else 0)


def has_bf16(device: torch.device) -> bool:
    """Whether the processor multiplies bfloat16 in hardware."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
        return any(check() for check in checks if check is not None)
    return False


def autocast(device: torch.device, bf16: bool) -> contextlib.AbstractContextManager[Any]:
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()
