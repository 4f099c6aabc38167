"""Separators of utterances as tokens of their own: what a model is to learn, it must first be able to read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

from .towers import starting_model


def with_separators(
    model: Any,
    tokens: Sequence[str] = ("[U]", "[T]"),
    *,
    pooling: Literal["cls", "mean"] | None = None,
    similarity: Literal["dot", "cosine"] | None = None,
    device: str | None = None,
) -> Any:
    """A copy of an encoder whose tokenizer knows the separators: the start of a fine-tuning on contexts joined by them.

    Without it a separator falls apart into pieces ("[", "u", "]"). The vector of a new token starts as the mean of all
    word vectors, so that it means nothing in particular until it is trained: a zero-shot encoder is better given plain
    text. The same model gives the same copy, so that ``cs.train`` recognises its own runs.

    Args:
        model: a folder, a name on the hub or a SentenceTransformer; of two towers each is given the tokens.
        tokens: the separators, as they stand in ``cs.form(cs.X, sep=("[U]", "[T]"))``.
        pooling: for a plain checkpoint, which does not say; None: mean.
        similarity: "dot" or "cosine"; None: as the model says.
        device: where to put it.

    Returns:
        a SentenceTransformer, for ``cs.train(…, init=…)``.

    Raises:
        ValueError: no tokens, or a model without a tokenizer that could learn them.

    Example:
        >>> start = cs.with_separators("sentence-transformers/all-MiniLM-L6-v2")
        >>> pairs = cs.training_pairs(topics, qrels, corpus, form=cs.form(cs.X, sep=("[U]", "[T]")))
        >>> model = cs.train(pairs, init=start, out="dialogues")

    Source: Penha and Hauff (full-rank retrieval of responses for dialogues): [U] after an utterance, [T] after a turn.
    """
    from pt_convsearch.dense.encoding import text_module

    wanted = [token.strip() for token in tokens]
    if not wanted or not all(wanted):
        raise ValueError(f"tokens={tokens!r}: give the separators, e.g. ('[U]', '[T]')")
    found = starting_model(model, towers=1, pooling=pooling, similarity=similarity, device=device)
    found = copy.deepcopy(found) if found is model else found
    modules = {id(module): module for task in ("query", "document") if (module := text_module(found, task)) is not None}
    if not modules:
        raise ValueError(
            f"{str(model)[:100]!r} reads texts in a way of its own, without a fast tokenizer: no token can be added"
        )
    for module in modules.values():
        learn_tokens(module, wanted)
    return found


def learn_tokens(module: Any, tokens: Sequence[str]) -> None:
    """Add tokens to the tokenizer and the embeddings of a sentence-transformers module, each as the mean of all."""
    import torch

    tokenizer, encoder = module.tokenizer, module.model
    new = [token for token in tokens if tokenizer.convert_tokens_to_ids(token) in (None, tokenizer.unk_token_id)]
    if not new:
        return
    tokenizer.add_special_tokens({"additional_special_tokens": new}, replace_extra_special_tokens=False)
    vectors = encoder.get_input_embeddings().weight
    mean = vectors.detach().float().mean(dim=0)
    encoder.resize_token_embeddings(max(len(tokenizer), len(vectors)), mean_resizing=False)
    rows = torch.tensor(tokenizer.convert_tokens_to_ids(new))
    with torch.no_grad():
        weight = encoder.get_input_embeddings().weight
        weight[rows.to(weight.device)] = mean.to(weight.dtype)
