"""The losses against a block worked out by hand, the library's own loss, and each other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score

from pt_convsearch.training import CachedMaskedMultipleNegativesRankingLoss, MaskedMultipleNegativesRankingLoss
from pt_convsearch.training.losses import banned

# exp(score) of three questions (rows) against three positives and three hard negatives (columns)
WEIGHTS = torch.tensor([[4.0, 1, 2, 3, 6, 5], [2, 3, 1, 1, 4, 9], [1, 1, 5, 2, 2, 1]])
# columns 0 and 4 hold the same passage (key 10); key 21 is a second gold of question 1
KEYS = torch.tensor([[10, 20, 30], [40, 10, 21]])
GOLDS = torch.tensor([[10, 0], [20, 21], [30, 0]])
LABELS = {"candidates": KEYS, "golds": GOLDS}
# question 0: 4 of 4 + 1 + 2 + 3 + 5 (column 4 is its gold); question 1: 3 of 2 + 3 + 1 + 1 + 4 (column 5 is)
# question 2: 5 of 12
BY_HAND = (math.log(15 / 4) + math.log(11 / 3) + math.log(12 / 5)) / 3


def embeddings(weights: torch.Tensor = WEIGHTS) -> list[torch.Tensor]:
    """Vectors whose dot products are the logarithms of the weights."""
    passages = weights.log().T
    size = len(weights)
    return [torch.eye(size), *(passages[start : start + size] for start in range(0, len(passages), size))]


class Nothing(torch.nn.Module):
    """In place of a model where only vectors are used."""

    def __getitem__(self, place: int) -> torch.nn.Module:
        return self


def plain(**options: Any) -> MaskedMultipleNegativesRankingLoss:
    return MaskedMultipleNegativesRankingLoss(Nothing(), **options)


def test_a_3_by_6_block_by_hand() -> None:
    assert plain().compute_loss_from_embeddings(embeddings(), LABELS).item() == pytest.approx(BY_HAND, abs=1e-6)
    loss = CachedMaskedMultipleNegativesRankingLoss(Nothing(), mini_batch_size=2)
    reps = [[column[:2], column[2:]] for column in embeddings()]
    assert loss.calculate_loss(reps, LABELS).item() == pytest.approx(BY_HAND, abs=1e-6)


def test_a_scale_multiplies_the_similarity() -> None:
    # with scale 2 the weights are squared: 16/(16+1+4+9+25), 9/(4+9+1+1+16), 25/(1+1+25+4+4+1)
    by_hand = (math.log(55 / 16) + math.log(31 / 9) + math.log(36 / 25)) / 3
    assert plain(scale=2).compute_loss_from_embeddings(embeddings(), LABELS).item() == pytest.approx(by_hand, abs=1e-6)


def test_a_constant_encoder_gives_the_logarithm_of_the_number_allowed() -> None:
    same = [torch.ones(3, 4) for _ in range(3)]
    by_hand = (math.log(5) + math.log(5) + math.log(6)) / 3
    assert plain().compute_loss_from_embeddings(same, LABELS).item() == pytest.approx(by_hand, abs=1e-6)


def test_four_turns_with_one_gold_have_nothing_to_tell_it_from() -> None:
    labels = {"candidates": torch.full((1, 4), 7), "golds": torch.full((4, 1), 7)}
    same = [torch.ones(4, 4), torch.ones(4, 4)]
    assert plain().compute_loss_from_embeddings(same, labels).item() == pytest.approx(0.0, abs=1e-6)


def test_a_missing_negative_takes_no_part() -> None:
    labels = {"candidates": torch.tensor([[10, 20, 30], [40, 0, 21]]), "golds": torch.tensor([[10], [20], [30]])}
    # question 0 without column 4: 4/15; question 1: 3/(2+3+1+1+9); question 2 without column 4: 5/(1+1+5+2+1)
    by_hand = (math.log(15 / 4) + math.log(16 / 3) + math.log(10 / 5)) / 3
    assert plain().compute_loss_from_embeddings(embeddings(), labels).item() == pytest.approx(by_hand, abs=1e-6)


def test_without_labels_it_is_the_librarys_loss() -> None:
    torch.manual_seed(3)
    vectors = [torch.randn(5, 8) for _ in range(3)]
    for similarity in (dot_score, cos_sim):
        theirs = MultipleNegativesRankingLoss(Nothing(), scale=5.0, similarity_fct=similarity)
        ours = plain(scale=5.0, similarity_fct=similarity).compute_loss_from_embeddings(vectors, None)
        assert ours.item() == pytest.approx(theirs.compute_loss_from_embeddings(vectors, None).item(), abs=1e-5)


def test_masked_passages_get_no_gradient() -> None:
    vectors = [column.clone().requires_grad_() for column in embeddings()]
    labels = {"candidates": torch.tensor([[10, 20, 30], [40, 0, 21]]), "golds": GOLDS}
    plain().compute_loss_from_embeddings(vectors, labels).backward()
    assert vectors[2].grad is not None
    assert torch.count_nonzero(vectors[2].grad[1]) == 0  # the place without a passage
    assert torch.count_nonzero(vectors[2].grad[0]) > 0
    assert all(torch.isfinite(column.grad).all() for column in vectors if column.grad is not None)


def test_scores_are_computed_in_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = plain().compute_loss_from_embeddings([column * 1 for column in embeddings()], LABELS)
    assert loss.item() == pytest.approx(BY_HAND, abs=1e-6)


def test_the_cost_of_banned_keys_is_by_key_not_by_place() -> None:
    found = banned(torch.tensor([[7, 0], [8, 9]]), torch.tensor([7, 8, 9, 0, 7]))
    assert found.int().tolist() == [[1, 0, 0, 1, 1], [0, 1, 1, 1, 0]]


@pytest.mark.parametrize("mini_batch_size", [1, 3, 100])
def test_cached_gradients_are_those_of_the_plain_loss(tiny_bert: str, mini_batch_size: int) -> None:
    model = SentenceTransformer(tiny_bert, device="cpu").eval()
    texts = [["who w1 w2", "w3", "hi w4 w5 w6", "a b"], ["w1", "w3 w3", "w4", "b"], ["w9", "w1", "w8 w7 w7", "c"]]
    labels = {"candidates": torch.tensor([[1, 3, 4, 2], [9, 1, 8, 0]]), "golds": torch.tensor([[1], [3], [4], [2]])}

    def gradients(loss: torch.nn.Module) -> tuple[float, list[torch.Tensor]]:
        model.zero_grad()
        value = loss([model.preprocess(column) for column in texts], labels)
        value.backward()
        return value.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    value, expected = gradients(MaskedMultipleNegativesRankingLoss(model, scale=20.0, similarity_fct=cos_sim))
    cached, found = gradients(
        CachedMaskedMultipleNegativesRankingLoss(
            model, scale=20.0, similarity_fct=cos_sim, mini_batch_size=mini_batch_size
        )
    )
    assert cached == pytest.approx(value, abs=1e-5)
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, atol=2e-6, rtol=1e-4)
