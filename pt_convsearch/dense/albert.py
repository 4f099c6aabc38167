"""The retriever of OR-QuAC (ORConvQA): ALBERT for questions, ALBERT for passages, each projected to 128 dimensions."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._process import quiet
from .encoder import BiEncoder
from .towers import resolve

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_SIDES = ("query", "passage")


def albert_towers(
    model: str | os.PathLike[str] = "albert-base-v2", *, dimensions: int = 128, pooling: str = "cls", seed: int = 1,
    device: str | None = None,
) -> tuple[SentenceTransformer, SentenceTransformer]:  # fmt: skip
    """Two towers to begin a training with, as OR-QuAC's: the vector of [CLS], ALBERT's pooler, a projection.

    Both start from one ALBERT, each with a projection of its own. Vectors are compared by the dot product.

    Args:
        model: a folder, or a name on the hub, of an ALBERT (or a BERT: whatever has a pooler).
        dimensions: of a vector.
        pooling: what the pooler reads: "cls", or "mean", the mean over all tokens, for models whose [CLS] was never
            trained: in the lower layers of all-MiniLM-L6-v2 it is one vector for all texts, and such towers do not
            begin to learn.
        seed: of the projections.
        device: where to put them.

    Returns:
        the query tower and the passage tower: the ``init`` of ``cs.train``.

    Raises:
        ValueError: the model has no pooler, or ``pooling`` is neither.

    Example:
        >>> pairs = cs.training_pairs(topics, qrels, corpus, form=cs.form(cs.REWRITE))             # doctest: +SKIP
        >>> cs.train(pairs, init=cs.dense.albert_towers(), similarity="dot", out="orquac",
        ...          max_query_length=128, max_passage_length=384)                                 # doctest: +SKIP

    Source: Qu et al., Open-retrieval conversational question answering (SIGIR 2020), section 3.2, and their code. They
    train on rewrites with in-batch negatives; questions are then read as the first and the last six, joined by [SEP].
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    if pooling not in ("cls", "mean"):
        raise ValueError(f"pooling={pooling!r}: 'cls' or 'mean'")
    folder, local = resolve(model)
    with quiet():
        inner = AutoModel.from_pretrained(folder, local_files_only=local)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=local)
    generator = torch.Generator().manual_seed(seed)
    towers = []
    for _ in _SIDES:
        projection = torch.nn.Linear(inner.config.hidden_size, dimensions)
        with torch.no_grad():
            projection.weight.normal_(0.0, getattr(inner.config, "initializer_range", 0.02), generator=generator)
            projection.bias.zero_()
        towers.append(_tower(inner, tokenizer, projection, device, pooling))
    return towers[0], towers[1]


def orquac_encoder(folder: str | os.PathLike[str], **options: Any) -> BiEncoder:
    """The encoder of a published checkpoint of OR-QuAC's retriever.

    Args:
        folder: with ``config.json``, ``pytorch_model.bin`` (or ``model.safetensors``) and the tokenizer's files, as the
            authors' ``retriever_checkpoint/checkpoint-5917``.
        options: of :class:`BiEncoder`.

    Returns:
        a bi-encoder of two towers, dot product, 128 and 384 tokens unless ``options`` say otherwise.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the weights are not those of such a retriever; the message names what is missing.

    Example:
        >>> encoder = cs.dense.orquac_encoder("retriever_checkpoint/checkpoint-5917")              # doctest: +SKIP
        >>> form = cs.form(cs.FIRST_QUESTION | cs.last(6) & cs.QUESTIONS | cs.CURRENT, sep=" [SEP] ")  # doctest: +SKIP
        >>> form >> cs.DenseIndex("orquac.flex", encoder).retriever()                              # doctest: +SKIP

    Source: the code of Qu et al. (SIGIR 2020): AlbertForRetrieverOnlyPositivePassage.
    """
    import torch
    from transformers import AlbertConfig, AlbertModel, AutoTokenizer

    path = Path(folder).expanduser()
    known = json.loads(_file(path, "config.json").read_text(encoding="utf-8"))
    weights = _weights(path)
    expected = AlbertConfig().to_dict()
    config = AlbertConfig(**{name: value for name, value in known.items() if name in expected})
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    towers = {}
    for side in _SIDES:
        own = {
            name.removeprefix(f"{side}_encoder."): value
            for name, value in weights.items()
            if name.startswith(f"{side}_encoder.")
        }
        inner = AlbertModel(config)
        missing = [name for name in inner.state_dict() if name not in own]
        missing += [name for name in (f"{side}_proj.weight", f"{side}_proj.bias") if name not in weights]
        if missing:
            raise ValueError(f"{path} is no retriever of OR-QuAC: its weights lack {side}'s {missing[0]}")
        inner.load_state_dict(own, strict=False)  # older files hold position numbers as well
        projection = torch.nn.Linear(*reversed(weights[f"{side}_proj.weight"].shape))
        projection.load_state_dict({name: weights[f"{side}_proj.{name}"] for name in ("weight", "bias")})
        towers[f"{side}_model"] = _tower(inner, tokenizer, projection, options.get("device"))
    return BiEncoder(**{"similarity": "dot", "max_query_length": 128, "max_passage_length": 384, **towers, **options})


def _tower(
    inner: Any, tokenizer: Any, projection: Any, device: str | None, pooling: str = "cls"
) -> SentenceTransformer:
    """[CLS] or the mean, the pooler, the projection, as modules that sentence-transformers saves and loads."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from torch import nn

    pooler = getattr(inner, "pooler", None)
    pooler = getattr(pooler, "dense", pooler)  # BERT's lies one deeper
    if not isinstance(pooler, nn.Linear):
        raise ValueError(f"{type(inner).__name__} has no pooler: OR-QuAC's towers are ALBERT's or BERT's pooled output")
    with tempfile.TemporaryDirectory() as temporary:
        inner.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        with quiet():
            transformer = Transformer(temporary)
    modules: list[nn.Module] = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
    for linear, activation in ((pooler, nn.Tanh()), (projection, nn.Identity())):
        dense = Dense(linear.in_features, linear.out_features, activation_function=activation)
        dense.linear.load_state_dict(linear.state_dict())
        modules.append(dense)
    return SentenceTransformer(modules=modules, device=device, similarity_fn_name="dot")


def _file(path: Path, name: str) -> Path:
    if not (path / name).is_file():
        raise FileNotFoundError(f"{path / name} is missing: give the folder of a checkpoint of OR-QuAC's retriever")
    return path / name


def _weights(path: Path) -> dict[str, Any]:
    import torch

    if (path / "model.safetensors").is_file():
        from safetensors.torch import load_file

        return load_file(path / "model.safetensors")
    return torch.load(_file(path, "pytorch_model.bin"), map_location="cpu", weights_only=True)
