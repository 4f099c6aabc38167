"""Batches of texts through a generating model: by length, by beam search, greedily, or by seeded sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pt_convsearch.rewriting.models import Generator
from pt_convsearch.rewriting.rewriting_stage import Written


@dataclass(frozen=True)
class Decoding:
    """How texts are written.

    Attributes:
        num_rewrites: how many for each input.
        num_beams: the width of the beam; 1: greedily. Of no account where ``sample``.
        sample: draw tokens in place of searching for the likeliest.
        temperature: what scores are divided by before drawing.
        top_k: draw from so many tokens; 0: from all.
        top_p: draw from the likeliest tokens that hold this much probability.
        max_new_tokens: of one text.
        seed: of the draws. A text's draws depend on the seed and the text alone, not on its batch.
    """

    num_rewrites: int = 1
    num_beams: int = 10
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int = 64
    seed: int = 1

    def checked(self) -> Decoding:
        """Itself.

        Raises:
            ValueError: an option out of range, or options that contradict each other.
        """
        for name in ("num_rewrites", "num_beams", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: give at least 1")
        if self.temperature <= 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"temperature={self.temperature}, top_k={self.top_k}, top_p={self.top_p}: above 0, "
                "from 0 on, and in (0, 1]"
            )
        if not self.sample and self.num_rewrites > self.num_beams:
            raise ValueError(
                f"num_rewrites={self.num_rewrites} of a beam of {self.num_beams}: give num_beams={self.num_rewrites} "
                "or more, or sample=True"
            )
        return self


def generate(
    generator: Generator,
    texts: Sequence[str],
    decoding: Decoding,
    *,
    max_input_length: int,
    batch_size: int,
    done: Callable[[list[int], list[Written]], None] | None = None,
) -> list[Written]:
    """Write for each text, the longest first.

    Args:
        generator: the model.
        texts: inputs as the model reads them.
        decoding: how.
        max_input_length: inputs are cut to so many tokens, as a last resort.
        batch_size: inputs at a time.
        done: is told the rows and texts of each batch when it is done.

    Returns:
        for each text what was written, the best first, equal ones merged: empty texts are left out.
    """
    tokens = encoded(generator, texts, max_input_length)
    lengths = np.array([len(ids) for ids in tokens["input_ids"]], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    written: list[Written] = [[] for _ in texts]
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size].tolist()
        batch = {name: [values[row] for row in rows] for name, values in tokens.items()}
        found = _batch(generator, batch, [texts[row] for row in rows], decoding)
        for row, some in zip(rows, found, strict=True):
            written[row] = some
        if done is not None:
            done(rows, found)
    return written


def encoded(generator: Generator, texts: Sequence[str], max_input_length: int) -> dict[str, list[list[int]]]:
    """Token ids and attention masks of inputs; those of a causal model stay open at the end."""
    ids = generator.tokenizer(list(texts), truncation=True, max_length=max_input_length, verbose=False)["input_ids"]
    end = generator.tokenizer.eos_token_id
    if not generator.seq2seq:
        ids = [row[:-1] if len(row) > 1 and row[-1] == end else row for row in ids]
    return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}


def _batch(generator: Generator, batch: dict[str, Any], texts: list[str], decoding: Decoding) -> list[Written]:
    import torch

    n = decoding.num_rewrites
    sequences, scores = sequences_of(generator, batch, texts, decoding)
    decoded = generator.tokenizer.batch_decode(sequences, skip_special_tokens=True)
    if scores is None:
        weights = np.full((len(texts), n), 1.0 / n)
    else:
        weights = torch.softmax(scores.float().view(len(texts), n), dim=1).cpu().numpy().astype(np.float64)
    return [_merged(decoded[at * n : (at + 1) * n], weights[at]) for at in range(len(texts))]


def sequences_of(generator: Generator, batch: dict[str, Any], texts: list[str], decoding: Decoding) -> tuple[Any, Any]:
    """Token ids that are written for a batch (inputs of causal models cut off), and scores of beams.

    Args:
        generator: the model.
        batch: input_ids and attention_mask as lists, not padded.
        texts: the inputs as texts: what the draws are seeded by.
        decoding: how.
    """
    import torch
    from transformers import LogitsProcessorList

    model, tokenizer, n = generator.model, generator.tokenizer, decoding.num_rewrites
    options: dict[str, Any] = {}
    inputs = tokenizer.pad(batch, padding=True, return_tensors="pt").to(model.device)
    if decoding.sample:
        # the draw is made in the scores: only the token that was drawn is left
        keys = [(text, number) for text in texts for number in range(n)]
        options["logits_processor"] = LogitsProcessorList([_Draw(decoding, keys)])
        inputs = _repeated(generator, inputs, n)
    elif decoding.num_beams > 1:
        options |= {"num_beams": decoding.num_beams, "num_return_sequences": n, "early_stopping": True}
    with torch.inference_mode():
        out = model.generate(
            **inputs, do_sample=False, **{"num_beams": 1, **options}, max_new_tokens=decoding.max_new_tokens,
            max_length=None,
            return_dict_in_generate=True, output_scores="num_beams" in options, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
    sequences = out.sequences if generator.seq2seq else out.sequences[:, inputs["input_ids"].shape[1] :]
    return sequences, out.get("sequences_scores")


def _repeated(generator: Generator, inputs: Any, n: int) -> dict[str, Any]:
    """Inputs, each ``n`` times, one after the other; read once where a model reads before it writes."""
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    found = {name: values.repeat_interleave(n, dim=0) for name, values in inputs.items()}
    if generator.seq2seq and n > 1:
        with torch.inference_mode():
            read = generator.model.get_encoder()(**inputs).last_hidden_state
        found["encoder_outputs"] = BaseModelOutput(last_hidden_state=read.repeat_interleave(n, dim=0))
    return found


class _Draw:
    """Draws a token from the model's distribution and leaves no other.

    Each sequence has a generator of its own, seeded by the seed, its input and its number, and asks it for one number a
    token: the token is the one in whose part of the summed probabilities the number lies.
    """

    def __init__(self, decoding: Decoding, keys: Sequence[tuple[str, int]]) -> None:
        self.decoding = decoding
        self.generators = [
            np.random.Generator(np.random.Philox(key=_key(decoding.seed, text, number))) for text, number in keys
        ]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        scores = scores.float() / self.decoding.temperature
        if 0 < self.decoding.top_k < scores.shape[-1]:
            least = torch.topk(scores, self.decoding.top_k).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.decoding.top_p < 1:
            ordered, places = torch.sort(scores, descending=True)
            before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
            before[:, 0] = 0
            outside = (before >= self.decoding.top_p).scatter(-1, places, before >= self.decoding.top_p)
            scores = scores.masked_fill(outside, -torch.inf)
        sums = torch.softmax(scores.double(), dim=-1).cumsum(dim=-1)
        numbers = torch.tensor([[generator.random()] for generator in self.generators], dtype=torch.float64)
        drawn = torch.searchsorted(sums, numbers.to(sums.device) * sums[:, -1:], right=True)
        drawn = drawn.clamp(max=scores.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _key(seed: int, text: str, number: int) -> int:
    return int.from_bytes(
        hashlib.sha256(f"{seed}\0{number}\0{text}".encode("utf-8", "surrogatepass")).digest()[:16], "big"
    )


def _merged(texts: Sequence[str], weights: np.ndarray) -> Written:
    """Texts in one line each, equal ones once with the sum of their weights, in the order given; no empty ones."""
    merged: dict[str, float] = {}
    for text, weight in zip(texts, weights.tolist(), strict=True):
        line = " ".join(text.split())
        if line:
            merged[line] = merged.get(line, 0.0) + weight
    total = sum(merged.values())
    return [(text, weight / total) for text, weight in merged.items()]
