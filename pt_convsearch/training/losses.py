"""In-batch contrastive losses that know which passages are no negatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import all_gather, all_gather_with_grad, dot_score, get_rank
from torch import Tensor


def banned(golds: Tensor, candidates: Tensor) -> Tensor:
    """Which candidates must not count as negatives of which question.

    Args:
        golds: keys of the golds of each question, (questions, most golds), 0 where a question has fewer.
        candidates: keys of the candidates, (candidates,); 0 for a place where there is no passage.

    Returns:
        bool, (questions, candidates): true where the candidate is a gold of the question, or no passage at all.

    Example:
        >>> banned(torch.tensor([[7, 0], [8, 9]]), torch.tensor([7, 8, 9, 0])).int().tolist()
        [[1, 0, 0, 1], [0, 1, 1, 1]]
    """
    found = (candidates == 0).expand(len(golds), -1).clone()
    for column in golds.T:
        found |= (column[:, None] == candidates[None, :]) & (column != 0)[:, None]
    return found


class _Block:
    """The questions of this process against the candidates of all: scores, the column of each positive, what is
    banned."""

    def __init__(self, queries: Tensor, docs: list[Tensor], labels: dict[str, Tensor] | None, loss: Any) -> None:
        offset, size = 0, len(queries)
        keys = None if labels is None else list(labels["candidates"])
        if loss.gather_across_devices:
            offset = get_rank() * size
            docs = [all_gather_with_grad(doc) for doc in docs]
            keys = None if keys is None else [all_gather(key) for key in keys]
        self.queries = queries
        self.docs = torch.cat(docs)
        self.positives = torch.arange(offset, offset + size, device=queries.device)
        self.golds = None if labels is None else labels["golds"]
        self.keys = None if keys is None else torch.cat(keys)
        self.scale, self.similarity = loss.scale, loss.similarity_fct

    def losses(self, rows: slice) -> Tensor:
        """Minus the log likelihood of the positive of each row, among the candidates that are allowed."""
        with torch.autocast(self.queries.device.type, enabled=False):  # dot products of whole vectors need float32
            scores = self.similarity(self.queries[rows].float(), self.docs.float()) * self.scale
        own = self.positives[rows]
        if self.golds is not None and self.keys is not None:
            mask = banned(self.golds[rows], self.keys)
            mask[torch.arange(len(own), device=own.device), own] = False
            scores = scores.masked_fill(mask, -torch.inf)
        return torch.nn.functional.cross_entropy(scores, own, reduction="none")


class MaskedMultipleNegativesRankingLoss(MultipleNegativesRankingLoss):
    """``MultipleNegativesRankingLoss`` of sentence-transformers, false negatives masked over the whole block.

    For a batch of B questions with n hard negatives each, the positive of a question competes with all B x (1 + n)
    passages of the batch (of all processes with ``gather_across_devices``) but those that are golds of the question,
    by judgment or by text, whoever's positive or hard negative they are. Without labels nothing is masked, and it is
    the library's loss. With an encoder that gives the same vector to every text it equals the mean logarithm of the
    number of candidates allowed.

    Args:
        model: the SentenceTransformer.
        scale: the factor on the similarity, 1 / temperature.
        similarity_fct: ``dot_score`` or ``cos_sim`` of ``sentence_transformers.util``.
        gather_across_devices: also compete with the passages of the other processes.

    Source: the negative log likelihood of DPR (Karpukhin et al., 2020), as in Kim & Kim (2022, Section 3).
    """

    def __init__(
        self,
        model: Any,
        scale: float = 1.0,
        similarity_fct: Callable[[Tensor, Tensor], Tensor] = dot_score,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(model, scale=scale, similarity_fct=similarity_fct, gather_across_devices=gather_across_devices)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Any) -> Tensor:
        block = _Block(embeddings[0], list(embeddings[1:]), labels, self)
        return block.losses(slice(None)).mean()


class CachedMaskedMultipleNegativesRankingLoss(CachedMultipleNegativesRankingLoss):
    """:class:`MaskedMultipleNegativesRankingLoss` with cached gradients (Gao et al., 2021): large batches in little
    memory.

    Gradients are those of the plain loss; only ``mini_batch_size`` texts are in the model at a time, each of them
    twice.

    Args:
        model: the SentenceTransformer.
        scale: the factor on the similarity, 1 / temperature.
        similarity_fct: ``dot_score`` or ``cos_sim`` of ``sentence_transformers.util``.
        mini_batch_size: texts that go through the model at a time.
        gather_across_devices: also compete with the passages of the other processes.
    """

    def __init__(
        self,
        model: Any,
        scale: float = 1.0,
        similarity_fct: Callable[[Tensor, Tensor], Tensor] = dot_score,
        mini_batch_size: int = 32,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(
            model,
            scale=scale,
            similarity_fct=similarity_fct,
            mini_batch_size=mini_batch_size,
            gather_across_devices=gather_across_devices,
        )

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        block = _Block(torch.cat(reps[0]), [torch.cat(column) for column in reps[1:]], labels, self)
        size = len(block.queries)
        total = block.queries.new_zeros((), dtype=torch.float32)
        for start in range(0, size, self.mini_batch_size):
            part = block.losses(slice(start, start + self.mini_batch_size)).sum() / size
            if with_backward:
                # the graph up to the vectors is shared by all parts
                part.backward(retain_graph=start + self.mini_batch_size < size)
                part = part.detach()
            total = total + part
        return total
