"""Counting and cutting texts by the tokens of an encoder, by words, or by characters."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

#: Han, Kana, Thai, Lao, Tibetan, Myanmar, Khmer: words are not parted by spaces, so a text may be cut between characters
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
#: what every tokenizer takes for white space; str.isspace() is true of control characters, which BERT removes
_SPACE = re.compile("[ \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_BATCH = 16384

Span = tuple[int, int]


class Counter(Protocol):
    """Something that parts a text into tokens."""

    #: tokens that the encoder adds to every text
    special: int
    #: whether the tokens of texts joined by white space are the tokens of each, so that counts add up
    adds_up: bool

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, without special ones."""

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Where each token of each text begins and ends."""


class Words:
    """Words as white space parts them."""

    special, adds_up = 0, True

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[word.span() for word in re.finditer(r"\S+", text)] for text in texts]


class Characters:
    """Every character, white space and separators too."""

    special, adds_up = 0, True

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[(at, at + 1) for at in range(len(text))] for text in texts]


class Pieces:
    """The pieces of a Hugging Face tokenizer.

    Args:
        backend: a ``tokenizers.Tokenizer``; a copy is used, without its truncation and padding.
    """

    def __init__(self, backend: Any) -> None:
        self._tokenizer = type(backend).from_str(backend.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special = self._tokenizer.num_special_tokens_to_add(False)
        kind = json.loads(backend.to_str()).get("pre_tokenizer") or {}
        self.adds_up = kind.get("type") == "BertPreTokenizer"

    def counts(self, texts: Sequence[str]) -> list[int]:
        encode = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)
        return [len(found.ids) for batch in _batches(texts) for found in encode(batch, add_special_tokens=False)]

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        encode = self._tokenizer.encode_batch
        return [found.offsets for batch in _batches(texts) for found in encode(batch, add_special_tokens=False)]


def counter(tokenizer: Any) -> Counter:
    """The counter for what a user gave as tokenizer.

    Raises:
        ValueError: no tokenizer that knows where its tokens begin; the message says what to give.
        ImportError: transformers is missing.
    """
    if tokenizer is None or tokenizer == "words":
        return Words()
    if tokenizer == "characters":
        return Characters()
    if isinstance(tokenizer, str):
        return _named(tokenizer)
    return Pieces(_backend(tokenizer))


def identity(tokenizer: Any) -> Any:
    """What tells one tokenizer from another: its name, or the digest of all that it is."""
    if tokenizer is None or isinstance(tokenizer, str):
        return tokenizer or "words"
    return hashlib.sha256(_backend(tokenizer).to_str().encode()).hexdigest()


@lru_cache(maxsize=4)
def _named(name: str) -> Counter:
    from pt_convsearch._optional import require

    transformers = require("transformers", step=f"a token budget by {name!r}", install="transformers")
    try:
        return Pieces(_backend(transformers.AutoTokenizer.from_pretrained(name)))
    except OSError as error:
        raise OSError(
            f"the tokenizer {name!r} is neither a folder nor in the local cache, and could not be fetched: give the path of a "
            f"folder that holds it, or a tokenizer object ({str(error).splitlines()[0]})"
        ) from error


def _backend(tokenizer: Any) -> Any:
    # a transformers tokenizer wraps a tokenizers.Tokenizer; a sentence-transformers model wraps the former
    for inner in ("tokenizer", "backend_tokenizer"):
        if not hasattr(tokenizer, "to_str"):
            tokenizer = getattr(tokenizer, inner, tokenizer)
    if not hasattr(tokenizer, "to_str"):
        raise ValueError(
            f"tokenizer is a {type(tokenizer).__name__}: give the name or path of a Hugging Face tokenizer, a fast tokenizer "
            "object, 'words' or 'characters'"
        )
    return tokenizer


def _batches(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(texts), _BATCH):
        yield texts[start : start + _BATCH]


def tail(text: str, spans: Sequence[Span], room: int, *, words: bool, forced: bool = False) -> tuple[str, int, bool]:
    """The end of a text, as much of it as ``room`` tokens hold.

    The rest of a text that begins with a word has the tokens it had before; so its count is known.

    Args:
        text: what to cut.
        spans: its tokens.
        room: how many of them may stay.
        words: whether to cut between words only.
        forced: if so, cut inside a word rather than keep nothing.

    Returns:
        the end of the text, how many tokens of it there are, and whether a word was cut.
    """
    if room <= 0 or not spans:
        return "", 0, False
    if room >= len(spans):
        return text, len(spans), False
    starts = range(max(0, len(spans) - room), len(spans))
    if words:
        for at in starts:
            start = spans[at][0]
            if (at == 0 or start >= spans[at - 1][1]) and _begins_word(text, start):
                kept = text[start:].lstrip()
                return kept, len(spans) - at, False
        if not forced:
            return "", 0, False
    for at in starts:
        if at == 0 or spans[at][0] >= spans[at - 1][1]:
            return text[spans[at][0] :], len(spans) - at, True
    return "", 0, False


def _begins_word(text: str, start: int) -> bool:
    if start >= len(text):
        return False
    if start == 0 or _SPACE.match(text, start - 1) or _SPACE.match(text, start):
        return True
    if unicodedata.category(text[start])[0] == "M":
        return False
    return bool(_SPACELESS.match(text, start) or _SPACELESS.match(text, start - 1))
