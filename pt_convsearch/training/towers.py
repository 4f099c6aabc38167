"""The model that is trained: one tower or two, from whatever it starts."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any, Literal

from pt_convsearch.dense.encoding import PASSAGE, QUERY, Side, longest, prompt_of, text_module
from pt_convsearch.dense.towers import load_tower

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Init = str | os.PathLike[str] | Any


def starting_model(
    init: Init | tuple[Init, Init],
    *,
    towers: int,
    pooling: Literal["cls", "mean"] | None,
    similarity: Literal["dot", "cosine"] | None,
    device: str | None,
) -> SentenceTransformer:
    """The model to train.

    Args:
        init: a name, folder or SentenceTransformer (of which a copy is trained); a pair: the query tower and the
            passage tower.
        towers: 1: both sides share the weights; 2: each has its own, both starting from ``init``.
        pooling: for a plain checkpoint, which does not say.
        similarity: how it will compare; None: as the model says; a plain checkpoint: dot product, as DPR.
        device: where to put it.

    Raises:
        ValueError: ``towers`` is neither 1 nor 2, or the towers differ in dimensions.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    if towers not in (1, 2):
        raise ValueError(f"towers={towers}: 1 (shared weights) or 2 (one for queries, one for passages)")
    if isinstance(init, tuple):
        query, passage = (
            load_tower(one, role=role, pooling=pooling, device=device)
            for one, role in zip(init, ("query", "passage"), strict=True)
        )
        query = copy.deepcopy(query) if query is init[0] else query
        passage = copy.deepcopy(passage) if passage is init[1] else passage
    else:
        query = passage = load_tower(init, role=None, pooling=pooling, device=device)
        if query is init:
            query = passage = copy.deepcopy(query)
        if towers == 1 or isinstance(query[0], Router):
            query.similarity_fn_name = similarity or _default(init, query)
            return query
        query = copy.deepcopy(passage)
    sizes = [tower.get_embedding_dimension() for tower in (query, passage)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"init: the query tower gives {sizes[0]} dimensions, the passage tower {sizes[1]}")
    modules: Any = [list(query.children()), list(passage.children())]
    router = Router.for_query_document(query_modules=modules[0], document_modules=modules[1])
    first = init[1] if isinstance(init, tuple) else init
    model = SentenceTransformer(
        modules=[router], device=str(passage.device), similarity_fn_name=similarity or _default(first, passage)
    )
    model.prompts = {**passage.prompts, **{name: text for name, text in query.prompts.items() if name == "query"}}
    return model


def _default(init: Init, model: SentenceTransformer) -> Any:
    """The similarity a model was made for; a checkpoint that was no retriever yet compares by dot product."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    if any(isinstance(module, Normalize) for module in model.modules()):
        return "cosine"
    if isinstance(init, SentenceTransformer) or _is_retriever(init):
        return model.similarity_fn_name
    return "dot"


def _is_retriever(init: Init) -> bool:
    from pt_convsearch.dense.towers import _has_modules, resolve

    folder, local = resolve(init)
    return _has_modules(folder, local)


def sides(model: SentenceTransformer, max_query_length: int, max_passage_length: int) -> tuple[Side, Side]:
    """How queries and passages are read: lengths bounded by the model, its own prompts."""
    query = Side("query", _bounded(model, "query", max_query_length), "left", prompt_of(model, QUERY))
    passage = Side(
        "document",
        _bounded(model, "document", max_passage_length),
        "right",
        prompt_of(model, PASSAGE),
    )
    return query, passage


def _bounded(model: SentenceTransformer, task: str, wanted: int) -> int:
    module = text_module(model, task)
    limit = None if module is None else longest(module)
    return wanted if limit is None else min(wanted, limit)
