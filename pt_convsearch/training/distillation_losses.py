"""What a student of an ad hoc retriever is told: the rewrite's vector (ConvDR), or the rewrite's scores (DiSCo).

Passages are the teacher's and stand still: they come as vectors, in the labels of the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def candidate_scores(queries: Tensor, labels: dict[str, Tensor]) -> Tensor:
    """Dot products of questions with their own candidates.

    Args:
        queries: vectors, (questions, dimensions).
        labels: ``candidates``, (questions, candidates, dimensions); or, of sparse ones, ``terms`` and ``weights``,
            (questions, candidates, most terms), padded by weights of 0.

    Returns:
        (questions, candidates).

    Example:
        >>> query = torch.tensor([[1.0, 2.0, 0.0]])
        >>> candidate_scores(query, {"candidates": torch.tensor([[[1.0, 1.0, 0.0], [0.0, 0.0, 5.0]]])}).tolist()
        [[3.0, 0.0]]
        >>> terms, weights = torch.tensor([[[0, 1], [2, 0]]]), torch.tensor([[[1.0, 1.0], [5.0, 0.0]]])
        >>> candidate_scores(query, {"terms": terms, "weights": weights}).tolist()
        [[3.0, 0.0]]
    """
    if "candidates" in labels:
        return torch.einsum("bd,bcd->bc", queries, labels["candidates"])
    terms, weights = labels["terms"], labels["weights"]
    found = queries.gather(1, terms.flatten(1)).view(terms.shape)
    return (found * weights).sum(dim=2)


class _Distillation(nn.Module):
    def __init__(self, model: Any, *, scale: float, normalize: bool) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.normalize = normalize

    def _queries(self, features: Any) -> Tensor:
        vectors = self.model(next(iter(features)))["sentence_embedding"].float()
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def _logits(self, queries: Tensor, labels: dict[str, Tensor]) -> Tensor:
        """Scores of the candidates, the positive first; minus infinity where there is none."""
        with torch.autocast(queries.device.type, enabled=False):
            scores = candidate_scores(queries, labels) * self.scale
        return scores.masked_fill(~labels["allowed"], -torch.inf)


class ConvDRLoss(_Distillation):
    """Mean squared error to the teacher's vector of the rewrite, and cross-entropy of the positive passage.

    The error is the mean over dimensions and questions; the cross-entropy is over the positive and the question's own
    negatives. A question without a rewrite counts in the second only, one without candidates in the first only.

    Labels: ``target`` (questions, dimensions), ``known`` (questions,): whether there is a rewrite; with passages
    ``allowed`` (questions, 1 + negatives), the positive first, and the vectors of :func:`candidate_scores`.

    Args:
        model: the student.
        mse_weight: the factor on the error.
        ranking_weight: the factor on the cross-entropy.
        scale: the factor on similarities, 1 / temperature.
        normalize: vectors have length one (cosine).

    Source: Yu et al. (SIGIR 2021), equations 4 to 6; both weights are 1 there.
    """

    def __init__(
        self, model: Any, *, mse_weight: float = 1.0, ranking_weight: float = 1.0, scale: float = 1.0,
        normalize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, scale=scale, normalize=normalize)
        self.mse_weight = mse_weight
        self.ranking_weight = ranking_weight

    def forward(self, features: Any, labels: dict[str, Tensor]) -> Tensor:
        queries = self._queries(features)
        loss = queries.sum() * 0.0  # a batch that teaches nothing still has a gradient
        known = labels["known"]
        if self.mse_weight and known.any():
            loss = loss + self.mse_weight * (queries - labels["target"]).square().mean(dim=1)[known].mean()
        if self.ranking_weight and "allowed" in labels:
            ranked = labels["allowed"][:, 0] & labels["allowed"][:, 1:].any(dim=1)
            if ranked.any():
                logits = self._logits(queries, labels)[ranked]
                first = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
                loss = loss + self.ranking_weight * nn.functional.cross_entropy(logits, first)
        return loss


class DiSCoLoss(_Distillation):
    """Kullback-Leibler divergence of the student's distribution over the candidates from the teacher's.

    Only scores are distilled: the student's vector may lie anywhere where it scores passages as the rewrite does. With
    several rewritings the teacher is the mean of their scores.

    Labels: ``scores`` (questions, 1 + negatives), the teacher's; ``allowed`` and the vectors of
    :func:`candidate_scores`.

    Args:
        model: the student.
        temperature: scores are divided by it before both softmaxes.
        l1_weight: the factor on the mean L1 norm of the questions' vectors: fewer, smaller weights.
        scale: the factor on similarities; the teacher's ``scores`` come without.
        normalize: vectors have length one (cosine).

    Source: Lupart et al. (DiSCo, SIGIR 2025), section 3; 16 negatives and no L1 there.
    """

    def __init__(
        self, model: Any, *, temperature: float = 1.0, l1_weight: float = 0.0, scale: float = 1.0,
        normalize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, scale=scale, normalize=normalize)
        self.temperature = temperature
        self.l1_weight = l1_weight

    def forward(self, features: Any, labels: dict[str, Tensor]) -> Tensor:
        queries = self._queries(features)
        allowed = labels["allowed"]
        student = torch.log_softmax(self._logits(queries, labels) / self.temperature, dim=1)
        teacher = (labels["scores"] * self.scale / self.temperature).masked_fill(~allowed, -torch.inf)
        teacher = torch.log_softmax(teacher, dim=1)
        # where there is no candidate both are minus infinity, and it adds nothing
        parts = torch.where(allowed, teacher.exp() * (teacher - student), torch.zeros_like(student))
        loss = parts.sum(dim=1).mean()
        if self.l1_weight:
            loss = loss + self.l1_weight * queries.abs().sum(dim=1).mean()
        return loss
