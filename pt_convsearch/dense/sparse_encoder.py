"""The sparse encoder: queries and passages to weights of the model's vocabulary (SPLADE)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt
import scipy.sparse

from .._process import quiet
from .._stage import Stage
from .encoder import _bounded, _prompt, _shown, titled
from .encoding import PASSAGE, QUERY, Side, encode_window, has_bf16, text_module
from .sparse_stages import SparseDocEncoder, SparseQueryEncoder
from .towers import _first_line, resolve
from .weights import tower_hash

if TYPE_CHECKING:
    import sentence_transformers

logger = logging.getLogger(__name__)

Model = str | os.PathLike[str] | Any
_WINDOW = 4096  # texts that are tokenised and sorted together
_GPU_BATCH = 32  # texts whose logits over the vocabulary fit together


class SparseEncoder(Stage):
    """A learned sparse encoder around one or two ``SparseEncoder`` models of sentence-transformers.

    Each text becomes weights of terms, the tokens of the model's vocabulary; texts are compared by the dot product.
    Used as a stage it encodes what the frame holds: ``query`` to ``query_toks``, ``text`` to ``toks`` (dicts of term ->
    weight, the ecosystem's columns); :meth:`query_encoder` and :meth:`doc_encoder` give the stages by name. Queries are
    cut on the left, so that the current question is never lost, passages on the right. A blank text has no terms.

    Two encoders are equal if their weights are, wherever they lie; a :class:`~pt_convsearch.lexical.ImpactIndex`
    refuses an encoder it was not built with.

    Args:
        model: the model of both sides: a ``SparseEncoder`` of sentence-transformers, a folder, or a name on the
            Hugging Face hub ("naver/splade-cocondenser-ensembledistil").
        query_model: the model of the queries where it differs (``cs.train_disco``).
        passage_model: the model of the passages where it differs.
        max_query_length: tokens of a query, special tokens counted; the model's own limit if that is smaller.
        max_passage_length: tokens of a passage, likewise.
        max_query_terms: keep so many terms of a query, those of the highest weights; None: all.
        max_passage_terms: likewise of a passage.
        query_prompt: text put before each query; None: the model's own.
        passage_prompt: text put before each passage; None: the model's own.
        batch_size: texts in a batch; None: 8 on a CPU, 32 on a GPU.
        text_field: the column or key of the passage's text.
        title_field: the column or key of its title, put before the text; None: titles are not read.
        device: None: a GPU where there is one.
        bf16: run in bfloat16; None: where the processor has it.
        verbose: show progress.

    Raises:
        ValueError: no model, or one whose dimensions are no vocabulary.
        OSError: the model is not found.

    Example:
        >>> encoder = cs.SparseEncoder("naver/splade-cocondenser-ensembledistil")
        >>> index = cs.ImpactIndex("passages.impacts", encoder).index(corpus)
        >>> splade = cs.form(cs.X) >> index.retriever(num_results=100)

    Source: Formal et al., SPLADE v2 (2021); for conversations: Lupart et al., DiSCo (SIGIR 2025).
    """

    label = "SparseEncoder"

    def __init__(
        self,
        model: Model | None = None,
        *,
        query_model: Model | None = None,
        passage_model: Model | None = None,
        max_query_length: int = 256,
        max_passage_length: int = 384,
        max_query_terms: int | None = None,
        max_passage_terms: int | None = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        batch_size: int | None = None,
        text_field: str = "text",
        title_field: str | None = "title",
        device: str | None = None,
        bf16: bool | None = None,
        verbose: bool = False,
    ) -> None:
        if model is None and (query_model is None or passage_model is None):
            raise ValueError("no model: give one for both sides, cs.SparseEncoder(model), or query_model= and "
                             "passage_model=")  # fmt: skip
        for name, number in (
            ("max_query_length", max_query_length), ("max_passage_length", max_passage_length),
            ("max_query_terms", max_query_terms), ("max_passage_terms", max_passage_terms),
        ):  # fmt: skip
            if number is not None and number < 1:
                raise ValueError(f"{name}={number}: at least 1")
        self._options: dict[str, Any] = {
            "model": model, "query_model": query_model, "passage_model": passage_model,
            "max_query_length": max_query_length, "max_passage_length": max_passage_length,
            "max_query_terms": max_query_terms, "max_passage_terms": max_passage_terms,
            "query_prompt": query_prompt, "passage_prompt": passage_prompt,
            "text_field": text_field, "title_field": title_field,
        }  # fmt: skip
        self.max_query_terms, self.max_passage_terms = max_query_terms, max_passage_terms
        self.batch_size = batch_size
        self.text_field = text_field
        self.title_field = title_field
        self.device = None if device is None else str(device)
        self.bf16 = bf16
        self.verbose = verbose
        #: texts that were longer than the maximum length, by side, over the life of this object
        self.cut = {"query": 0, "passage": 0}
        self._known: dict[str, Any] | None = None
        self._towers: tuple[Any, Any] | None = None
        self._load()

    # -- the models

    def _load(self) -> tuple[sentence_transformers.SparseEncoder, sentence_transformers.SparseEncoder]:
        if self._towers is not None:
            return self._towers
        model, query, passage = (self._options[name] for name in ("model", "query_model", "passage_model"))
        if query is None and passage is None:
            query_tower = passage_tower = self._tower(model)
        else:
            query_tower = self._tower(model if query is None else query)
            passage_tower = self._tower(model if passage is None else passage)
        self._towers = (query_tower, passage_tower)
        options = self._options
        names = [_vocabulary(tower) for tower in self._towers]
        if names[0] != names[1]:
            raise ValueError("the query tower and the passage tower do not have one vocabulary")
        #: the terms, by the number of their dimension
        self.terms: list[str] = names[0]
        self.dimensions = len(self.terms)
        self._query_side = Side(
            "query", _bounded(query_tower, "query", options["max_query_length"]), "left",
            _prompt(query_tower, options["query_prompt"], QUERY),
        )  # fmt: skip
        self._passage_side = Side(
            "document", _bounded(passage_tower, "document", options["max_passage_length"]), "right",
            _prompt(passage_tower, options["passage_prompt"], PASSAGE),
        )  # fmt: skip
        self.max_query_length = self._query_side.max_length
        self.max_passage_length = self._passage_side.max_length
        return self._towers

    def _tower(self, model: Model) -> Any:
        import sentence_transformers

        if isinstance(model, sentence_transformers.SparseEncoder):
            return model
        folder, local = resolve(model)
        try:
            with quiet():
                return sentence_transformers.SparseEncoder(folder, device=self.device, local_files_only=local)
        except (OSError, ImportError, ValueError) as error:
            raise OSError(
                f"no sparse encoder can be loaded from {str(model)!r} ({_first_line(error)}): give a folder on disk, "
                "or a name on the Hugging Face hub where it can be reached"
            ) from error

    def with_query_model(self, query_model: Model, **options: Any) -> SparseEncoder:
        """This encoder with another query tower; passages are encoded as before, so an index of theirs is searched as
        it is.

        Args:
            query_model: a name, a folder or a model, trained for these passages (``cs.train_disco``).
            options: of the queries, e.g. ``max_query_length``.
        """
        own = self._options
        passage = own["model"] if own["passage_model"] is None else own["passage_model"]
        given = {
            **own, "model": None, "query_model": query_model, "passage_model": self._load()[1],
            "batch_size": self.batch_size, "device": self.device, "bf16": self.bf16, "verbose": self.verbose, **options,
        }  # fmt: skip
        made = SparseEncoder(**given)
        made._options["passage_model"] = passage  # a tower that has a name travels by it
        return made

    # -- identity

    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        """What the weights depend on: hashes of both towers and the settings; compared and stored by the index."""
        if self._towers is None and self._known is not None:
            return dict(self._known)
        query, passage = self._load()
        self._known = {
            "query_model": tower_hash(query), "passage_model": tower_hash(passage), "similarity": "dot",
            "dimensions": self.dimensions, "max_query_length": self.max_query_length,
            "max_passage_length": self.max_passage_length, "max_query_terms": self.max_query_terms,
            "max_passage_terms": self.max_passage_terms, "query_prompt": self._query_side.prompt,
            "passage_prompt": self._passage_side.prompt, "text_field": self.text_field,
            "title_field": self.title_field,
        }  # fmt: skip
        return dict(self._known)

    def _identity(self) -> tuple[Any, ...]:
        return tuple(self.identity().items())

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded by the worker when it first encodes."""
        self.identity()
        return {**self.__dict__, "_towers": None}

    def __repr__(self) -> str:
        defaults = {"max_query_length": 256, "max_passage_length": 384, "text_field": "text", "title_field": "title"}
        shown = [
            f"{name}={_shown(value)}"
            for name, value in self._options.items()
            if name != "model" and value is not None and value != defaults.get(name)
        ]
        if self._options["model"] is not None:
            shown.insert(0, _shown(self._options["model"]))
        return f"SparseEncoder({', '.join(shown)})"

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the queries: with :attr:`max_query_length`, what ``cs.form`` needs to keep to the budget."""
        return self._load()[0].tokenizer

    # -- encoding

    def encode_queries(self, texts: Sequence[str], batch_size: int | None = None) -> scipy.sparse.csr_matrix:
        """Weights of queries: CSR, float32, (number of texts, :attr:`dimensions`); all are above 0."""
        return self._encode(texts, "query", batch_size)

    def encode_docs(self, texts: Sequence[str], batch_size: int | None = None) -> scipy.sparse.csr_matrix:
        """Weights of passages; see :meth:`encode_queries`. :meth:`passage_texts` puts titles before texts."""
        return self._encode(texts, "passage", batch_size)

    def passage_texts(self, titles: Sequence[Any] | None, texts: Sequence[str]) -> list[str]:
        """What is encoded of passages: title, a blank, text; text alone without a title."""
        return titled(titles, texts, " ")

    def doc_toks(self, docs: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
        """Weights by term of passages: dicts with the text field, and the title where there is one.

        Raises:
            ValueError: a passage without a text; its docno is named.
        """
        for doc in docs:
            if not isinstance(doc.get(self.text_field), str):
                raise ValueError(
                    f"document {doc.get('docno')!r} has no text in {self.text_field!r} "
                    f"(found {doc.get(self.text_field)!r}): give a str, '' for an empty one"
                )
        titles = [doc.get(self.title_field) for doc in docs] if self.title_field else None
        return self.dicts(self.encode_docs(self.passage_texts(titles, [doc[self.text_field] for doc in docs])))

    def dicts(self, weights: scipy.sparse.csr_matrix) -> list[dict[str, float]]:
        """Rows as dicts of term -> weight, the highest weights first."""
        found = []
        for start, end in zip(weights.indptr[:-1], weights.indptr[1:], strict=True):
            data, terms = weights.data[start:end], weights.indices[start:end]
            order = np.argsort(-data, kind="stable")
            found.append({self.terms[terms[place]]: float(data[place]) for place in order})
        return found

    def _encode(
        self, texts: Sequence[str], kind: Literal["query", "passage"], batch_size: int | None
    ) -> scipy.sparse.csr_matrix:
        towers = self._load()
        tower, side = (towers[0], self._query_side) if kind == "query" else (towers[1], self._passage_side)
        most = self.max_query_terms if kind == "query" else self.max_passage_terms
        texts = list(texts)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{kind} number {row} is {text!r}: texts are str")
        distinct = [text for text in dict.fromkeys(texts) if text.strip()]
        found, cut = self._encode_distinct(tower, side, distinct, batch_size, most, kind)
        if cut:
            self.cut[kind] += cut
            logger.info("%d %s texts were cut to %d tokens (on the %s)", cut, kind, side.max_length,
                        side.truncation_side)  # fmt: skip
        place = {text: row for row, text in enumerate(distinct)}
        # a row of no terms for blank texts
        stacked = scipy.sparse.vstack([found, scipy.sparse.csr_matrix((1, self.dimensions), dtype=np.float32)], "csr")
        return stacked[[place.get(text, len(distinct)) for text in texts]]

    def _encode_distinct(
        self, tower: Any, side: Side, texts: list[str], batch_size: int | None, most: int | None, kind: str
    ) -> tuple[scipy.sparse.csr_matrix, int]:
        import torch
        from tqdm.auto import tqdm

        weights = next(iter(tower.parameters()), None)
        bf16 = False
        if weights is not None and weights.dtype is torch.float32:
            bf16 = has_bf16(weights.device) if self.bf16 is None else self.bf16
        size = batch_size or self.batch_size
        if size is None and weights is not None and weights.device.type != "cpu":
            size = _GPU_BATCH
        rows: list[np.ndarray] = []
        parts = []
        cut = 0
        with tqdm(total=len(texts), desc=f"encoding {kind} texts", unit="text", disable=not self.verbose) as bar:
            for start in range(0, len(texts), _WINDOW):
                window = texts[start : start + _WINDOW]
                if text_module(tower, side.task) is None:  # it reads in a way of its own (weights looked up by token)
                    call = tower.encode_query if side.task == "query" else tower.encode_document
                    dense = call(window, convert_to_sparse_tensor=False, show_progress_bar=False)
                    batches: Any = [(np.arange(len(window)), dense.float().cpu().numpy(), np.zeros(len(window)))]
                else:
                    batches = encode_window(tower, window, side, size, bf16)
                for places, vectors, was_cut in batches:
                    rows.append(start + places)
                    parts.append(_sparse(vectors, most))
                    cut += int(was_cut.sum())
                    bar.update(len(places))
        if not parts:
            return scipy.sparse.csr_matrix((0, self.dimensions), dtype=np.float32), 0
        back = np.argsort(np.concatenate(rows), kind="stable")
        return scipy.sparse.vstack(parts, "csr")[back], cut

    # -- stages

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """A frame of queries gets ``query_toks``, one of passages ``toks``, one of both both."""
        with pt.validate.any(inp) as accepted:
            accepted.columns(includes=["query"])
            accepted.columns(includes=[self.text_field])
        if "query" in inp.columns:
            inp = self.query_encoder().transform(inp)
        return self.doc_encoder().transform(inp) if self.text_field in inp.columns else inp

    def query_encoder(self) -> SparseQueryEncoder:
        """Q -> Q: adds ``query_toks`` (term -> weight) to frames with ``query``."""
        return SparseQueryEncoder(self)

    def doc_encoder(self) -> SparseDocEncoder:
        """D -> D: adds ``toks`` (term -> weight) to frames with the text column (and the title, if it is there)."""
        return SparseDocEncoder(self)

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}


def _vocabulary(tower: Any) -> list[str]:
    """The terms of a model's dimensions.

    Raises:
        ValueError: the dimensions are no vocabulary.
    """
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

    if not any(isinstance(module, SpladePooling | SparseStaticEmbedding) for module in tower.modules()):
        raise ValueError(
            "the model does not weigh the tokens of a vocabulary: a sparse encoder is a masked language model with "
            "SpladePooling"
        )
    tokenizer = tower.tokenizer
    known = len(tokenizer)
    module = text_module(tower, "document")
    size = max(known, 0 if module is None else int(module.config.vocab_size))  # some round their vocabulary up
    for one in tower.modules():
        if isinstance(one, SpladePooling):  # it says so when it first ran, and then is another module to the hash
            one.embedding_dimension = one.embedding_dimension or size
    return [*tokenizer.convert_ids_to_tokens(range(known)), *(f"[no token {number}]" for number in range(known, size))]


def _sparse(vectors: np.ndarray, most: int | None) -> scipy.sparse.csr_matrix:
    """Rows with what is above 0, the ``most`` highest of each.

    >>> _sparse(np.array([[0.0, 2.0, -1.0, 3.0, 1.0]], dtype=np.float32), 2).toarray().tolist()
    [[0.0, 2.0, 0.0, 3.0, 0.0]]
    """
    kept = np.where(vectors > 0, vectors, np.float32(0))
    if most is not None and most < kept.shape[1]:
        low = np.argsort(-kept, axis=1, kind="stable")[:, most:]
        np.put_along_axis(kept, low, np.float32(0), axis=1)
    return scipy.sparse.csr_matrix(kept, dtype=np.float32)
