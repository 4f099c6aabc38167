"""PARADE: a document's passages are read one by one, and judged together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from .._content_cache import Texts
from .._files import PathLike
from ..dense.encoding import _batches, autocast, has_bf16
from .passages import windows
from .reading import encode_pairs
from .reranker import Reranker, check_sizes, former

if TYPE_CHECKING:
    from .parade_model import ParadeNetwork

SETTINGS = "parade.json"
Aggregator = Literal["transformer", "attn", "avg", "max"]


class PARADE(Reranker):
    """Re-ranks documents by their passages' representations, not their scores, ``R -> R``.

    A document is cut into windows of words; an encoder reads each with the question and gives its [CLS] vector p_i; the
    aggregator makes one vector of them, a linear layer the score. "max": the largest value in each dimension; "avg":
    the mean; "attn": the sum of softmax(w . p_i) p_i; "transformer": two transformer layers over a learnt vector and
    p_1 … p_n, the first output. What a document has beyond ``max_passages`` windows is left out but for the last: the
    others are evenly spread, where the paper draws them at random.

    Columns, ties, and texts that are empty: as :class:`CrossEncoder`, ``text`` being the whole document; a title is
    read before every passage.

    Args:
        model: a folder that ``cs.train_parade`` wrote. Its aggregator and lengths are those it was trained with.
        form: what is read as the question, as :class:`CrossEncoder`.
        batch_size: passages in a batch; None: 8 on a CPU, by tokens on a GPU.
        text_field, title_field, cache, bf16, device, verbose: as :class:`CrossEncoder`.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: the folder holds no PARADE model, or it gives NaN; a text or a query that is no str.

    Example:
        >>> parade = cs.train_parade(pairs, init="google/electra-base-discriminator", out="parade")
        >>> pipeline = bm25 % 100 >> index.text_loader(["title", "text"]) >> cs.PARADE("parade")

    Source: Li, Yates, MacAvaney, He and Sun, "PARADE: passage representation aggregation for document reranking"
        (2020), Section 3.
    """

    label = "PARADE"

    def __init__(
        self,
        model: PathLike,
        *,
        form: Any = None,
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
        self.batch_size = batch_size
        self.text_field = text_field
        self.title_field = title_field
        self.cache = cache
        self.bf16 = bf16
        self.device = device
        self.verbose = verbose
        self.cut = 0
        self._loaded: tuple[ParadeNetwork, Any, dict[str, Any]] | None = None
        self._hash: str | None = None
        check_sizes(batch_size=batch_size)
        self._load()

    def _load(self) -> tuple[ParadeNetwork, Any, dict[str, Any]]:
        if self._loaded is None:
            from .parade_model import ParadeNetwork

            self._loaded = ParadeNetwork.load(self.model, self.device)
        return self._loaded

    @classmethod
    def _of(cls, network: ParadeNetwork, tokenizer: Any, settings: dict[str, Any]) -> PARADE:
        """The stage of a network that is in memory, in training for one."""
        stage = cls.__new__(cls)
        stage._loaded, stage._hash, stage.cut, stage.model = (network, tokenizer, settings), None, 0, "(in training)"
        stage.form = stage.batch_size = stage.cache = stage.bf16 = stage.device = None
        stage.text_field, stage.title_field, stage.verbose = "text", "title", False
        return stage

    def _device_type(self) -> str:
        return str(self._load()[0].device.type)

    def _uses_bf16(self) -> bool:
        return has_bf16(self._load()[0].device) if self.bf16 is None else self.bf16

    def _rows_scores(
        self, frame: pd.DataFrame, questions: list[str], passages: list[str], scorable: np.ndarray
    ) -> np.ndarray:
        # titles are read before every passage, so they stay apart from the text until it is cut
        texts = frame[self.text_field].tolist()
        titles = frame[self.title_field].tolist() if self.title_field in frame.columns else [""] * len(frame)
        rows = [
            (questions[row], titles[row] if isinstance(titles[row], str) else "", texts[row])
            for row in np.flatnonzero(scorable)
        ]
        scores = self._scores(rows)
        self._check(scores, frame[scorable])
        return scores

    def _encode(self, rows: Sequence[Texts]) -> tuple[dict[str, list[Any]], np.ndarray]:
        _, tokenizer, settings = self._load()
        return encode_documents(tokenizer, rows, settings)

    def _forward(self, features: dict[str, list[Any]]) -> np.ndarray:
        import torch

        from .parade_model import parade_features

        network, tokenizer, _ = self._load()
        rows = [(row, place) for row, own in enumerate(features["input_ids"]) for place in range(len(own))]
        lengths = np.array([len(features["input_ids"][row][place]) for row, place in rows])
        vectors = torch.empty((len(rows), network.head.in_features), device=network.device)
        network.eval()
        with torch.inference_mode():
            order = np.argsort(-lengths, kind="stable")
            for chosen in _batches(order, lengths, self.batch_size, self._device_type()):
                batch = parade_features(features, tokenizer, [rows[at] for at in chosen])
                batch = {name: tensor.to(network.device) for name, tensor in batch.items()}
                with autocast(network.device, self._uses_bf16()):
                    found = network.passage_vectors(**batch)
                vectors[torch.from_numpy(chosen).to(network.device)] = found.float()
            places = torch.tensor(rows, device=network.device)
            scores = network.document_scores(vectors, places[:, 0], places[:, 1], len(features["input_ids"]))
        return scores.double().cpu().numpy()

    def _settings_key(self) -> str:
        if self._hash is None or self._loaded is not None:
            from ..dense.weights import _bytes, _tokenizer
            from ..rewriting.answer_cache import content_key

            network, tokenizer, settings = self._load()
            state = hashlib.sha256()
            for name, tensor in sorted(network.state_dict().items()):
                state.update(f"{name} {tuple(tensor.shape)}".encode() + _bytes(tensor))
            config = network.encoder.config.to_diff_dict()
            shown = {name: str(config[name]) for name in ("hidden_act", "num_attention_heads") if name in config}
            rules = content_key(str(_tokenizer(tokenizer)))
            self._hash = content_key("parade", state.hexdigest(), shown, rules, settings, self._uses_bf16())
        return self._hash

    def __repr__(self) -> str:
        shown = [repr(os.fspath(self.model))] + ([f"form={self.form!r}"] if self.form is not None else [])
        return f"PARADE({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        """The model travels by its folder, and is loaded anew where it is first used."""
        self._settings_key()
        return {**self.__dict__, "_loaded": None}


def encode_documents(
    tokenizer: Any, rows: Sequence[Texts], settings: dict[str, Any]
) -> tuple[dict[str, list[Any]], np.ndarray]:
    """Features of (question, title, text): for each document a list of its passages', and which had to be cut."""
    length, stride, most = (settings[name] for name in ("passage_length", "stride", "max_passages"))
    owns = [
        [f"{title} {window}" if title.strip() else window for window in windows(text, length, stride, most)]
        for _, title, text in rows
    ]
    pairs = [(row[0], passage) for row, own in zip(rows, owns, strict=True) for passage in own]
    flat, was_cut = encode_pairs(tokenizer, pairs, settings["max_length"], settings["max_query_length"])
    ends = np.cumsum([len(own) for own in owns])
    starts = ends - [len(own) for own in owns]
    features = {
        name: [values[start:end] for start, end in zip(starts, ends, strict=True)] for name, values in flat.items()
    }
    return features, np.array([was_cut[start:end].any() for start, end in zip(starts, ends, strict=True)], dtype=bool)
