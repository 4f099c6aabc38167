"""Re-ranking by a generating model: the chance that the first word it writes is "true", not "false"."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._content_cache import Texts
from .._files import PathLike
from ..dense.encoding import autocast, has_bf16
from ..rewriting.models import Generator, load_generator
from .reading import Piece, encode_templates
from .reranker import Reranker, check_sizes, former


class TrueOrFalse(Reranker):
    """Base of monoT5 and duoT5: a prompt, and the log-probability of "true" against "false" as the next token."""

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any,
        form: Any,
        words: tuple[str, str],
        max_length: int,
        max_query_length: int | None,
        batch_size: int | None,
        text_field: str,
        title_field: str | None,
        cache: PathLike | None,
        bf16: bool | None,
        device: Any,
        verbose: bool,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.form = former(form)
        self.words = tuple(words)
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
        self._loaded: Generator | None = None
        self._hash: str | None = None
        check_sizes(max_length=max_length, max_query_length=max_query_length, batch_size=batch_size)
        self._load()

    def _load(self) -> Generator:
        if self._loaded is None:
            precision = "fp32" if self.bf16 is False else "auto"
            found = load_generator(self.model, tokenizer=self.tokenizer, device=self.device, precision=precision)
            if not found.seq2seq:
                raise ValueError(f"{self.model!r} is no encoder-decoder: monoT5 and duoT5 are T5s (or mT5s)")
            self._token_ids(found)
            self._loaded = found
        return self._loaded

    def _token_ids(self, generator: Generator) -> list[int]:
        """The ids of the first tokens of the two words."""
        ids = [generator.tokenizer(word, add_special_tokens=False)["input_ids"] for word in self.words]
        unknown = generator.tokenizer.unk_token_id
        if any(not pieces or pieces[0] == unknown for pieces in ids) or ids[0][0] == ids[1][0]:
            raise ValueError(f"words={self.words!r}: the tokenizer of {self.model!r} does not tell these two apart")
        return [ids[0][0], ids[1][0]]

    def _prompt(self, row: Texts) -> list[Piece]:
        """The pieces of the prompt for a row of texts."""
        raise NotImplementedError

    def _device_type(self) -> str:
        return str(self._load().model.device.type)

    def _uses_bf16(self) -> bool:
        import torch

        model = self._load().model
        if model.dtype is not torch.float32:
            return False
        return has_bf16(model.device) if self.bf16 is None else self.bf16

    def _encode(self, rows: Sequence[Texts]) -> tuple[dict[str, list[Any]], np.ndarray]:
        generator = self._load()
        length = min(self.max_length, generator.longest() or self.max_length)
        prompts = [self._prompt(row) for row in rows]
        return encode_templates(generator.tokenizer, prompts, length, self.max_query_length)

    def _forward(self, features: dict[str, list[Any]]) -> np.ndarray:
        import torch

        generator = self._load()
        model = generator.model
        kept = {name: features[name] for name in ("input_ids", "attention_mask")}
        tensors = dict(generator.tokenizer.pad(kept, padding=True, return_tensors="pt").to(model.device))
        start = model.generation_config.decoder_start_token_id
        start = model.config.decoder_start_token_id if start is None else start
        first = torch.full((len(kept["input_ids"]), 1), start, dtype=torch.long, device=model.device)
        with (
            torch.inference_mode(),
            _two_logits(model, self._token_ids(generator)),
            autocast(model.device, self._uses_bf16()),
        ):
            logits = model(**tensors, decoder_input_ids=first, use_cache=False).logits[:, 0]
        return torch.log_softmax(logits.double(), dim=1)[:, 0].cpu().numpy()

    def _settings_key(self) -> str:
        from ..rewriting.answer_cache import content_key

        if self._hash is None or self._loaded is not None:
            self._hash = content_key(
                type(self).__name__, self._load().identity(), self.words, self.max_length, self.max_query_length,
                self._uses_bf16(),
            )  # fmt: skip
        return self._hash

    def __repr__(self) -> str:
        name = repr(os.fspath(self.model)) if isinstance(self.model, str | os.PathLike) else "<model>"
        shown = [name] + ([f"form={self.form!r}"] if self.form is not None else [])
        shown += [f"words={self.words!r}"] if self.words != ("true", "false") else []
        shown += [f"max_length={self.max_length}"] if self.max_length != 512 else []
        shown += [f"max_query_length={self.max_query_length}"] if self.max_query_length is not None else []
        return f"{type(self).__name__}({', '.join([*shown, *self._shown()])})"

    def _shown(self) -> list[str]:
        return []

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded anew where it is first used."""
        self._settings_key()
        named = isinstance(self.model, str | os.PathLike)
        return {**self.__dict__, "_loaded": None} if named else dict(self.__dict__)


@contextmanager
def _two_logits(model: Any, ids: list[int]) -> Iterator[None]:
    """Inside the block the model's last layer gives the logits of two tokens only, in float32: quicker than the whole
    vocabulary, and bfloat16 makes no ties."""
    import torch

    head = model.get_output_embeddings()

    def forward(hidden: Any) -> Any:
        with torch.autocast(hidden.device.type, enabled=False):
            bias = getattr(head, "bias", None)
            return torch.nn.functional.linear(
                hidden.float(), head.weight[ids].float(), None if bias is None else bias[ids].float()
            )

    head.forward = forward
    try:
        yield
    finally:
        del head.forward
