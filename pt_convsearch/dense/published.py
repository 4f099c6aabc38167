"""Published encoders by a short name, with the settings that their model cards give."""

from __future__ import annotations

from typing import Any

from .encoder import BiEncoder

#: name -> where the towers are, and how they are to be read
PUBLISHED: dict[str, dict[str, Any]] = {
    "ance": {
        "model": "sentence-transformers/msmarco-roberta-base-ance-firstp", "similarity": "dot",
        "max_query_length": 512, "max_passage_length": 512,
    },
    "contriever-msmarco": {
        "model": "facebook/contriever-msmarco", "pooling": "mean", "similarity": "dot",
        "max_query_length": 512, "max_passage_length": 512,
    },
    "dpr-nq": {
        "query_model": "facebook/dpr-question_encoder-single-nq-base",
        "passage_model": "facebook/dpr-ctx_encoder-single-nq-base", "similarity": "dot",
    },
    "dragon-multiturn": {
        "query_model": "nvidia/dragon-multiturn-query-encoder",
        "passage_model": "nvidia/dragon-multiturn-context-encoder", "pooling": "cls", "similarity": "dot",
        "max_query_length": 512, "max_passage_length": 512,
    },
    "dragon-plus": {
        "query_model": "facebook/dragon-plus-query-encoder",
        "passage_model": "facebook/dragon-plus-context-encoder", "pooling": "cls", "similarity": "dot",
        "max_query_length": 512, "max_passage_length": 512,
    },
}  # fmt: skip


def published_encoder(name: str, **options: Any) -> BiEncoder:
    """An encoder by a short name, with the pooling, the similarity and the lengths of its model card.

    ================== ======================================================== ==================================
    name               what it is                                               what it reads
    ================== ======================================================== ==================================
    ance               ANCE on MS MARCO passages, ConvDR's teacher              a standalone question
    contriever-msmarco Contriever, fine-tuned on MS MARCO                       a standalone question
    dpr-nq             DPR on Natural Questions, CQR negatives of Kim & Kim     a standalone question
    dragon-plus        Dragon+, two towers                                      a standalone question
    dragon-multiturn   Dragon, fine-tuned on conversations, two towers          "user: …\\nagent: …\\nuser: …"
    ================== ======================================================== ==================================

    What Dragon-multiturn reads is written by ``cs.form(cs.Speakers(cs.X, assistant="agent:"), sep="\\n")``. Its queries
    are cut on the left, as everywhere here, so that the current question stays.

    Args:
        name: of the table.
        options: of :class:`BiEncoder`, last word: ``query_model="my/copy"`` where the hub cannot be reached.

    Raises:
        ValueError: an unknown name.
        OSError: the models are not found.

    Example:
        >>> encoder = cs.dense.published_encoder("dragon-multiturn")                               # doctest: +SKIP
        >>> form = cs.form(cs.Speakers(cs.X, assistant="agent:"), sep="\\n")                        # doctest: +SKIP
        >>> form >> cs.DenseIndex("passages.flex", encoder).retriever(num_results=20)              # doctest: +SKIP

    Source: the model cards; Liu et al., ChatQA (2024), section 3.2, for Dragon-multiturn.
    """
    if name not in PUBLISHED:
        raise ValueError(f"no published encoder {name!r}: there are {', '.join(sorted(PUBLISHED))}")
    return BiEncoder(**{**PUBLISHED[name], **options})
