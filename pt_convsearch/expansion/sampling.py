"""Sampling from a sequence-to-sequence model in batches, with texts that do not depend on the batch.

Two things make it so. The numbers that are drawn for a text come from a generator of its own, seeded with the seed, the
text and the number of the sample. And what the model computes for a row depends on this row alone: sources are
padded to a length that follows from their own (never to that of their neighbours), and rows are filled up to a
multiple of sixteen, since the kernels of matrix products treat a handful of rows otherwise than many.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache

from pt_convsearch.rewriting.models import Generator

#: sources are padded to multiples of it
_BUCKET = 8
#: rows are filled up to multiples of it
_ROWS = 16


@dataclass(frozen=True)
class Sampling:
    """How texts are generated.

    Attributes:
        num_samples: texts per source.
        top_k: the most likely tokens that are drawn from; None: all.
        seed: another seed draws others.
        max_source_length: tokens of a source, special tokens included, cut on the right.
        max_new_tokens: tokens of a generated text, the end included.
    """

    num_samples: int
    top_k: int | None
    seed: int
    max_source_length: int
    max_new_tokens: int


def generate(
    generator: Generator, texts: Sequence[str], how: Sampling, *, batch_size: int
) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Generate for each text, batch after batch, texts of similar length together.

    Args:
        generator: the model and its tokenizer.
        texts: the sources.
        how: the settings.
        batch_size: sources per batch.

    Yields:
        positions in ``texts``, and for each of them its ``num_samples`` generated texts.
    """
    if not texts:
        return
    model, tokenizer = generator.model, generator.tokenizer
    encoded = tokenizer(list(texts), truncation=False, padding=False, add_special_tokens=True, verbose=False)[
        "input_ids"
    ]
    ids = [_cut(tokenizer, row, text, how.max_source_length) for row, text in zip(encoded, texts, strict=True)]
    buckets = np.array([-(-max(1, len(row)) // _BUCKET) * _BUCKET for row in ids])
    order = np.argsort(-buckets, kind="stable")
    start = 0
    while start < len(order):
        bucket = buckets[order[start]]
        rows = order[start : start + batch_size]
        rows = rows[buckets[rows] == bucket]
        start += len(rows)
        sources = _padded([ids[row] for row in rows], int(bucket), tokenizer.pad_token_id or 0)
        draws = np.stack([_uniform(how, texts[row], sample) for row in rows for sample in range(how.num_samples)])
        tokens = _decode(model, sources, draws, how, fill=batch_size if model.device.type != "cpu" else None)
        said = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        said = [" ".join(text.split()) for text in said]
        step = how.num_samples
        yield rows.tolist(), [said[at : at + step] for at in range(0, len(said), step)]


def _cut(tokenizer: Any, ids: list[int], text: str, limit: int) -> list[int]:
    if len(ids) <= limit:
        return ids
    return tokenizer(text, truncation=True, max_length=limit, add_special_tokens=True, verbose=False)["input_ids"]


def _padded(rows: list[list[int]], length: int, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.full((len(rows), length), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[at, : max(1, len(row))] = 1
    return ids, mask


def _uniform(how: Sampling, text: str, sample: int) -> np.ndarray:
    """One number in [0, 1) for each step, a function of seed, text and sample."""
    said = f"{how.seed}\0{sample}\0{text}".encode("utf-8", "surrogatepass")
    key = int.from_bytes(hashlib.blake2b(said, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key)).random(how.max_new_tokens)


@torch.inference_mode()
def _decode(
    model: Any, sources: tuple[torch.Tensor, torch.Tensor], draws: np.ndarray, how: Sampling, *, fill: int | None
) -> list[list[int]]:
    """Token ids of each row of ``draws``; sources come ``num_samples`` rows each.

    Args:
        model: the model.
        sources: ids and mask, one row per source.
        draws: numbers in [0, 1), a row per generated text, a column per step.
        how: the settings.
        fill: sources that every batch is filled up to, and stays at until all its rows are done (on a GPU, whose
            kernels follow the shape); None: rows that are done leave.
    """
    device = model.device
    start, ends, forced = _special(model)
    ids, mask = (part.to(device) for part in sources)
    count = len(draws)
    size = fill if fill is not None else -(-len(ids) // _ROWS) * _ROWS
    places = torch.tensor([*range(len(ids)), *[0] * (size - len(ids))], device=device)
    encoder_mask = mask[places]
    hidden = model.get_encoder()(input_ids=ids[places], attention_mask=encoder_mask, return_dict=True)[0]
    # rows: each source num_samples times, then copies of the first up to the full number
    wanted = size * how.num_samples if fill is not None else _filled(count)
    of_source = torch.arange(count, device=device) // how.num_samples
    of_source = torch.cat([of_source, torch.zeros(wanted - count, dtype=torch.long, device=device)])
    hidden, encoder_mask = hidden[of_source], encoder_mask[of_source]
    row_of = np.concatenate([np.arange(count), np.full(wanted - count, -1)])
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    last = torch.full((wanted, 1), start, dtype=torch.long, device=device)
    said: list[list[int]] = [[] for _ in range(count)]
    numbers = torch.from_numpy(draws).to(device)
    for step in range(how.max_new_tokens):
        logits = model(
            encoder_outputs=(hidden,), attention_mask=encoder_mask, decoder_input_ids=last, use_cache=True,
            **{keyword: cache},
        ).logits[:, -1]  # fmt: skip
        drawn = numbers[torch.from_numpy(np.maximum(row_of, 0)).to(device), step]
        chosen = _choose(logits, drawn, how.top_k) if step or forced is None else torch.full_like(last[:, 0], forced)
        tokens = chosen.tolist()
        for at, (row, token) in enumerate(zip(row_of.tolist(), tokens, strict=True)):
            if row < 0:
                continue
            if token in ends:
                row_of[at] = -1
            else:
                said[row].append(token)
        active = np.flatnonzero(row_of >= 0)
        if len(active) == 0:
            break
        last = chosen[:, None]
        if fill is None and _filled(len(active)) < len(row_of):
            rows = np.concatenate([active, np.full(_filled(len(active)) - len(active), active[0])])
            kept = torch.from_numpy(rows).to(device)
            row_of = np.where(np.arange(len(rows)) < len(active), row_of[rows], -1)
            hidden, encoder_mask, last = hidden[kept], encoder_mask[kept], last[kept]
            cache.batch_select_indices(kept)
    return said


def _filled(count: int) -> int:
    return -(-count // _ROWS) * _ROWS


def _choose(logits: torch.Tensor, drawn: torch.Tensor, top_k: int | None) -> torch.Tensor:
    """Draw a token of each row by one number in [0, 1): the inverse of the cumulated chances, the likeliest first."""
    size = logits.shape[-1] if top_k is None else min(top_k, logits.shape[-1])
    best, tokens = logits.float().topk(size, dim=-1)
    cumulated = best.double().softmax(dim=-1).cumsum(dim=-1)
    place = (cumulated <= drawn[:, None]).sum(dim=-1).clamp(max=size - 1)
    return tokens.gather(-1, place[:, None])[:, 0]


def _special(model: Any) -> tuple[int, set[int], int | None]:
    """The token that decoding starts from, those that end it, and one that comes first."""
    config = model.generation_config
    start = config.decoder_start_token_id
    if start is None:
        start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        start = config.bos_token_id
    if start is None:
        raise ValueError(
            "the model does not say what decoding starts from: set model.generation_config.decoder_start_token_id"
        )
    ends = config.eos_token_id if config.eos_token_id is not None else getattr(model.config, "eos_token_id", None)
    if ends is None:
        raise ValueError("the model does not say which token ends a text: set model.generation_config.eos_token_id")
    return (
        int(start),
        {int(end) for end in (ends if isinstance(ends, list | tuple) else [ends])},
        config.forced_bos_token_id,
    )
