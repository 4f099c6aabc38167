"""DL-HARD's baseline pipelines by name: BM25 and BM25+RM3, re-ranked, on passages and on documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyterrier as pt

from .parade import PARADE
from .passages import max_p

#: the published checkpoints behind the rows of DL-HARD's tables, or what these were fine-tuned from, by name on the hub
PUBLISHED_MODELS = {
    "BERT": "castorini/monobert-large-msmarco",
    "Electra": "cross-encoder/ms-marco-electra-base",
    "T5": "castorini/monot5-base-msmarco",
    "PARADE-BERT": "bert-base-uncased",
    "PARADE-Electra": "google/electra-base-discriminator",
}


def baselines(
    index: Any,
    models: Mapping[str, pt.Transformer] | None = None,
    *,
    task: Literal["passage", "doc"] = "passage",
    depth: int = 100,
    num_results: int = 1000,
    k1: float = 0.9,
    b: float = 0.4,
    fb_docs: int = 10,
    fb_terms: int = 10,
    original_query_weight: float = 0.5,
    length: int = 150,
    stride: int = 75,
    text_loader: pt.Transformer | None = None,
) -> dict[str, pt.Transformer]:
    """The pipelines of DL-HARD's tables: each first stage alone, and re-ranked by each model.

    On passages a model scores the text ("BM25+T5"); on documents it scores windows of words, the best of which counts
    ("BM25+T5-MaxP"), except :class:`PARADE`, which reads the whole document ("BM25+RM3+PARADE-Electra"). What is below
    ``depth`` is left out after re-ranking. The names are those of ``published()``, without what says how a model was
    trained ("(Zero-Shot)").

    Args:
        index: a :class:`BM25Index` of the collection with its texts.
        models: scorers by the name that they have in the tables: ``{"BERT": cs.CrossEncoder(…), "T5": cs.MonoT5(…),
            "PARADE-Electra": cs.PARADE(…)}``; None: first stages only. :data:`PUBLISHED_MODELS` names checkpoints.
        task: "passage" or "doc".
        depth: how many results of the first stage are re-ranked.
        num_results: how many the first stages return where nothing re-ranks them.
        k1, b: of BM25.
        fb_docs, fb_terms, original_query_weight: of RM3; Anserini's defaults.
        length, stride: of the windows of MaxP, in words.
        text_loader: adds the texts; None: the index's own text (and title, where it stores one).

    Returns:
        name -> pipeline, Q -> R; for conversations put a former in front: ``cs.form(cs.X) >> pipeline``.

    Raises:
        ValueError: an unknown task.

    Example:
        >>> models = {"T5": cs.MonoT5("castorini/monot5-base-msmarco", tokenizer="t5-base")}
        >>> systems = cs.reranking.baselines(index, models, task="doc")
        >>> list(systems)
        ['BM25', 'BM25+T5-MaxP', 'BM25+RM3', 'BM25+RM3+T5-MaxP']

    Source: Mackie, Dalton and Yates, "How deep is your learning: the DL-HARD annotated deep learning dataset" (SIGIR
        2021), and the table of its repository.
    """
    if task not in ("passage", "doc"):
        raise ValueError(f"task={task!r}: 'passage' or 'doc'")
    if text_loader is None:
        text_loader = index.text_loader(index._reading.meta["text_field"])
    feedback = index.rm3(fb_docs=fb_docs, fb_terms=fb_terms, original_query_weight=original_query_weight)

    def first_stages(number: int) -> dict[str, pt.Transformer]:
        bm25 = index.bm25(num_results=number, k1=k1, b=b)
        return {"BM25": bm25, "BM25+RM3": index.bm25(num_results=fb_docs, k1=k1, b=b) >> feedback >> bm25}

    systems: dict[str, pt.Transformer] = {}
    shallow = first_stages(depth)
    for first, whole in first_stages(num_results).items():
        systems[first] = whole
        for name, model in (models or {}).items():
            windows = task == "doc" and not isinstance(model, PARADE)
            scorer = max_p(model, length=length, stride=stride) if windows else model
            systems[f"{first}+{name}{'-MaxP' if windows else ''}"] = shallow[first] >> text_loader >> scorer
    return systems
