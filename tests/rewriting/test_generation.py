"""Draws follow the model's distribution; beams carry the probability of their texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from pt_convsearch.rewriting.generation import Decoding, generate
from pt_convsearch.rewriting.models import load_generator

from .conftest import tiny_t5


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """A model of eight words whose first token is far from evenly distributed, and that distribution for one input."""
    folder = tmp_path_factory.mktemp("sharp")
    generator = load_generator(tiny_t5(folder, words=[f"w{number}" for number in range(8)]), device="cpu")
    with torch.no_grad():
        for parameter in generator.model.lm_head.parameters():
            parameter.mul_(0.7)
    ids = generator.tokenizer(["w1 w2"], return_tensors="pt")
    with torch.inference_mode():
        logits = generator.model(**ids, decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
    return generator, torch.softmax(logits.float(), dim=-1).numpy()


def first_words(generator, decoding: Decoding, n: int = 3000) -> np.ndarray:  # type: ignore[no-untyped-def]
    """How often each token comes first among n draws."""
    from pt_convsearch.rewriting.generation import encoded, sequences_of

    counts = np.zeros(len(generator.tokenizer))
    options = {**vars(decoding), "max_new_tokens": 1, "num_rewrites": n}
    sequences, _ = sequences_of(generator, encoded(generator, ["w1 w2"], 64), ["w1 w2"], Decoding(**options))
    for token, count in Counter(sequences[:, 1].tolist()).items():
        counts[token] = count / n
    return counts


def test_draws_follow_the_distribution(sharp) -> None:  # type: ignore[no-untyped-def]
    generator, expected = sharp
    found = first_words(generator, Decoding(sample=True))
    assert np.abs(found - expected).max() < 4 * np.sqrt(0.25 / 3000)


def test_temperature_sharpens(sharp) -> None:  # type: ignore[no-untyped-def]
    generator, expected = sharp
    found = first_words(generator, Decoding(sample=True, temperature=0.5))
    assert np.abs(found - expected**2 / (expected**2).sum()).max() < 4 * np.sqrt(0.25 / 3000)


def test_top_k_and_top_p_leave_the_tail_out(sharp) -> None:  # type: ignore[no-untyped-def]
    generator, expected = sharp
    order = np.argsort(-expected)
    assert set(np.flatnonzero(first_words(generator, Decoding(sample=True, top_k=2)))) == set(order[:2])
    kept = int((np.cumsum(expected[order]) < 0.6).sum()) + 1
    assert 1 < kept < len(expected)
    found = first_words(generator, Decoding(sample=True, top_p=0.6))
    assert set(np.flatnonzero(found)) == set(order[:kept])


def test_beams_are_weighed_by_their_probability(sharp) -> None:  # type: ignore[no-untyped-def]
    generator, _ = sharp
    written = generate(
        generator, ["w1 w2"], Decoding(num_beams=4, num_rewrites=2, max_new_tokens=3), max_input_length=64, batch_size=1
    )[0]
    scores = []
    for text, _weight in written:
        ids = generator.tokenizer([text], return_tensors="pt")["input_ids"]
        labels = ids[:, :-1] if len(text.split()) == 3 else ids  # cut at three tokens: no end
        with torch.inference_mode():
            inputs = generator.tokenizer(["w1 w2"], return_tensors="pt")
            logits = generator.model(**inputs, labels=labels).logits[0].float()
        log_p = torch.log_softmax(logits, -1).gather(-1, labels[0].unsqueeze(-1)).sum().item()
        scores.append(log_p / labels.shape[1])
    weights = np.exp(scores) / np.exp(scores).sum()
    assert [weight for _, weight in written] == pytest.approx(weights.tolist(), abs=1e-3)


def test_the_longest_inputs_come_first_in_batches_of_like_length(t5: str) -> None:
    generator = load_generator(t5, device="cpu")
    texts = [" ".join(["w1"] * length) for length in (1, 5, 2, 9, 5)]
    seen: list[list[int]] = []
    generate(
        generator, texts, Decoding(num_beams=1, max_new_tokens=2), max_input_length=64, batch_size=2,
        done=lambda rows, _: seen.append(rows),
    )  # fmt: skip
    assert seen == [[3, 1], [4, 2], [0]]


def test_positions_of_a_padded_causal_input_do_not_move(gpt2: str) -> None:
    generator = load_generator(gpt2, device="cpu")
    texts = ["w1", "w2 w3 w4 w5 w6 w7 w8"]
    decoding = Decoding(num_beams=1, max_new_tokens=5)
    together = generate(generator, texts, decoding, max_input_length=40, batch_size=2)
    assert together == [generate(generator, [text], decoding, max_input_length=40, batch_size=1)[0] for text in texts]


def test_a_folder_of_a_model_is_not_written_to(t5: str) -> None:
    before = sorted(Path(t5).iterdir())
    load_generator(t5, device="cpu").identity()
    assert sorted(Path(t5).iterdir()) == before
