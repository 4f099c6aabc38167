"""Cross-encoders: question and passage read together by one model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._content_cache import Texts
from .._files import PathLike, json_or_none
from ..dense.encoding import autocast, has_bf16, longest, text_module
from .reading import encode_pairs
from .reranker import Reranker, check_sizes, former

if TYPE_CHECKING:
    import sentence_transformers

_LONGEST = 512


class CrossEncoder(Reranker):
    """Re-ranks by a model that reads question and passage together (monoBERT), ``R -> R``.

    Any cross-encoder of sentence-transformers, and any classifier of Hugging Face with one label or two: of two, as
    monoBERT has them, the score is the log-probability of the second. The question is cut on its left, so that the
    current question, which a conversation's text ends with, is never lost; the passage on its right. What was cut is
    counted in :attr:`cut`.

    Input columns: qid, query, docno, text (title where there is one, put before the text), and what ``form`` reads.
    Output: the same columns, with the new ``score`` and ``rank``, best first. Rows of equal score stay in the order of
    their former rank; a passage without text (and every passage of a question without text) comes after the others.

    Pairs are read in order of length, in small batches, each distinct pair once; in bfloat16 where the processor has
    it, the last layer in float32, so that no ties are made.

    Args:
        model: a folder (what ``cs.train_cross_encoder`` writes, too), a name on the hub, or a
            ``sentence_transformers.CrossEncoder``. By name, not in this package: "castorini/monobert-large-msmarco",
            "cross-encoder/ms-marco-electra-base", "cross-encoder/ms-marco-MiniLM-L6-v2".
        form: what is read as the question: parts (``cs.X``) or a former (``cs.form(cs.X, sep=("[U]", "[T]"))``, with
            :class:`Speakers` for who says what); None: the query of the row. The column ``query`` stays as it is.
        max_length: tokens of question and passage together; None: as ``cs.train_cross_encoder`` trained it, else the
            model's limit, 512 at most.
        max_query_length: tokens of the question; None: as trained, else what the passage leaves, at least half.
        batch_size: pairs in a batch; None: 8 on a CPU, by tokens on a GPU.
        text_field: the column of the passage's text.
        title_field: the column of its title; None: titles are not read.
        cache: a file of scores; what it holds is not computed again, so that a killed run goes on.
        bf16: run in bfloat16; None: where the processor has it.
        device: None: a GPU where there is one.
        verbose: show progress.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: the model is no cross-encoder (a plain encoder: its last layer would be noise), has more than two
            labels, or gives NaN; a text or a query that is no str.
        OSError: the model is not found.

    Example:
        >>> reranker = cs.CrossEncoder("cross-encoder/ms-marco-electra-base", cache="scores.sqlite")
        >>> pipeline = cs.form(cs.X) >> bm25 % 100 >> index.text_loader() >> reranker

    Source: Nogueira and Cho, "Passage re-ranking with BERT" (2019); DL-HARD's BERT and Electra rows (Mackie et al.,
        2021).
    """

    label = "CrossEncoder"

    def __init__(
        self,
        model: Any,
        *,
        form: Any = None,
        max_length: int | None = None,
        max_query_length: int | None = None,
        batch_size: int | None = None,
        text_field: str = "text",
        title_field: str | None = "title",
        cache: PathLike | None = None,
        bf16: bool | None = None,
        device: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.form = former(form)
        self.max_length = max_length
        self.max_query_length = max_query_length
        self.batch_size = batch_size
        self.text_field = text_field
        self.title_field = title_field
        self.cache = cache
        self.bf16 = bf16
        self.device = device
        self.verbose = verbose
        self.cut = 0
        self._loaded: sentence_transformers.CrossEncoder | None = None
        self._hash: str | None = None
        check_sizes(max_length=max_length, max_query_length=max_query_length, batch_size=batch_size)
        self._trained = _trained(model)
        self._load()

    def _load(self) -> sentence_transformers.CrossEncoder:
        if self._loaded is None:
            self._loaded = load_cross_encoder(self.model, self.device)
            labels = self._loaded.num_labels
            if labels > 2:
                raise ValueError(
                    f"{self.model!r} has {labels} labels: a re-ranker has one, or two, the second for relevant"
                )
        return self._loaded

    def _device_type(self) -> str:
        return str(self._load().device.type)

    def _length(self) -> int:
        module = text_module(self._load(), "query")  # type: ignore[arg-type]
        limit = None if module is None else longest(module)
        return min(self.max_length or self._trained.get("max_length") or _LONGEST, limit or 10**9)

    def _query_length(self) -> int | None:
        return self.max_query_length or self._trained.get("max_query_length")

    def _uses_bf16(self) -> bool:
        import torch

        weights = next(iter(self._load().parameters()), None)
        if weights is None or weights.dtype is not torch.float32:
            return False
        return has_bf16(weights.device) if self.bf16 is None else self.bf16

    # -- scores

    def _window_scores(self, rows: Sequence[Texts]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        model = self._load()
        if text_module(model, "query") is not None:  # type: ignore[arg-type]
            yield from super()._window_scores(rows)
            return
        # no Hugging Face tokenizer to cut with (chat templates): the model reads as it always does
        pairs: Any = [(question, passage) for question, passage in rows]
        found = model.predict(pairs, batch_size=self.batch_size or 8, show_progress_bar=False)
        yield np.arange(len(rows)), np.asarray(found, dtype=np.float64)

    def _encode(self, rows: Sequence[Texts]) -> tuple[dict[str, list[Any]], np.ndarray]:
        tokenizer = text_module(self._load(), "query").tokenizer  # type: ignore[arg-type]
        return encode_pairs(tokenizer, rows, self._length(), self._query_length())

    def _forward(self, features: dict[str, list[Any]]) -> np.ndarray:
        import torch

        model = self._load()
        tokenizer = text_module(model, "query").tokenizer  # type: ignore[arg-type]
        tensors: dict[str, Any] = dict(tokenizer.pad(features, padding=True, return_tensors="pt").to(model.device))
        tensors["modality"] = "text"
        bf16 = self._uses_bf16()
        before = list(model.keep_in_fp32_modules or [])
        if bf16:
            model.set_keep_in_fp32_modules([*before, *_last_layers(model)])
        try:
            model.eval()
            with torch.inference_mode(), autocast(model.device, bf16):
                logits = model(tensors)["scores"]
        finally:
            if bf16:
                model.set_keep_in_fp32_modules(before)
        logits = logits.reshape(len(features["input_ids"]), -1).double().cpu()
        if logits.shape[1] == 2:
            return torch.log_softmax(logits, dim=1)[:, 1].numpy()
        activation: Any = model.activation_fn  # in double precision, where a sigmoid of 30 is still below 1
        return activation(logits[:, 0]).numpy()

    # -- identity

    def _settings_key(self) -> str:
        from ..rewriting.answer_cache import content_key

        if self._hash is None or self._loaded is not None:
            self._hash = content_key(
                "cross-encoder", model_hash(self._load()), self._length(), self._query_length(), self._uses_bf16()
            )
        return self._hash

    def __repr__(self) -> str:
        name = repr(os.fspath(self.model)) if isinstance(self.model, str | os.PathLike) else "<CrossEncoder>"
        shown = [name]
        shown += [f"form={self.form!r}"] if self.form is not None else []
        for option in ("max_length", "max_query_length"):
            shown += [f"{option}={getattr(self, option)}"] if getattr(self, option) is not None else []
        return f"CrossEncoder({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded anew where it is first used."""
        self._settings_key()
        named = isinstance(self.model, str | os.PathLike)
        return {**self.__dict__, "_loaded": None} if named else dict(self.__dict__)


def _trained(model: Any) -> dict[str, Any]:
    """The lengths that ``cs.train_cross_encoder`` left beside the model; {} for any other."""
    if not isinstance(model, str | os.PathLike):
        return {}
    found = json_or_none(Path(model).expanduser() / "training.json")
    return found if isinstance(found, dict) and found.get("task") == "cross-encoder" else {}


def load_cross_encoder(model: Any, device: Any = None) -> sentence_transformers.CrossEncoder:
    """A cross-encoder from a folder, a name or an object.

    Raises:
        ValueError: a plain encoder, the last layer of which would be made up.
        OSError: the model is not found.
    """
    from sentence_transformers import CrossEncoder as Model

    from .._process import quiet
    from ..dense.towers import _config, _first_line, _has_modules, resolve

    if isinstance(model, Model):
        return model
    if not isinstance(model, str | os.PathLike):
        raise TypeError(f"model={model!r}: give a folder, a name on the hub or a sentence_transformers.CrossEncoder")
    folder, local = resolve(model)
    try:
        with quiet():
            config = _config(folder, local)
            kinds = config.get("architectures") or []
            if not _has_modules(folder, local) and not any(
                part in kind for kind in kinds for part in ("ForSequenceClassification", "ForCausalLM")
            ):
                raise ValueError(
                    f"{folder} is no cross-encoder but a {', '.join(kinds) or 'model of unknown kind'}, which has no "
                    "layer that scores: train one from it by cs.train_cross_encoder"
                )
            return Model(folder, device=None if device is None else str(device), local_files_only=local)
    except OSError as error:
        raise OSError(f"no cross-encoder can be loaded from {str(model)!r} ({_first_line(error)})") from error


def model_hash(model: sentence_transformers.CrossEncoder) -> str:
    """A hash of what scores depend on: weights (the pooler's too), configuration, tokenizer, activation."""
    from sentence_transformers.util import fullname

    from ..dense.weights import _bytes, tower_hash

    state = hashlib.sha256(tower_hash(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if ".pooler." in name:
            state.update(name.encode() + _bytes(tensor))
    state.update(f"{fullname(model.activation_fn)} {model.num_labels}".encode())
    return state.hexdigest()


def _last_layers(model: sentence_transformers.CrossEncoder) -> list[str]:
    """The linear layer that makes the logits."""
    from torch import nn

    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == model.num_labels
    ]
    return found[-1:]
