"""Counting and cutting texts by the tokens of an encoder, by words, or by characters."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

#: Han, Kana, Thai, Lao, Tibetan, Myanmar, Khmer: words are not parted by spaces, so a text may be cut between
#: characters
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
#: what every tokenizer takes for white space; for str.isspace() see _REMOVED
_SPACE = re.compile("[ \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
#: white space to Python, but removed by BERT, which joins the words at its sides
_REMOVED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_MOST_WORDS = 1_000_000

Span = tuple[int, int]


class Counter(Protocol):
    """Something that parts a text into tokens."""

    #: tokens that the encoder adds to every text
    special: int
    #: whether the tokens of texts joined by white space are the tokens of each, so that counts add up
    adds_up: bool

    def count(self, text: str) -> int:
        """How many tokens a text has, without special ones; an estimate where counts do not add up."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, without special ones, exactly."""

    def spans(self, text: str) -> list[Span]:
        """Where each token of a text begins and ends."""

    def last_words(self, text: str, room: int) -> tuple[int, int] | None:
        """How many words at the end ``room`` tokens hold, and their tokens; None where spans must tell."""


class Words:
    """Words as white space parts them."""

    special, adds_up = 0, True

    def count(self, text: str) -> int:
        return len(text.split())

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def spans(self, text: str) -> list[Span]:
        return [word.span() for word in re.finditer(r"\S+", text)]

    def last_words(self, text: str, room: int) -> tuple[int, int] | None:
        kept = min(room, len(text.split()))
        return kept, kept


class Characters:
    """Every character, white space and separators too."""

    special, adds_up = 0, True

    def count(self, text: str) -> int:
        return len(text)

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def spans(self, text: str) -> list[Span]:
        return [(at, at + 1) for at in range(len(text))]

    def last_words(self, text: str, room: int) -> tuple[int, int] | None:
        return None


class Pieces:
    """The pieces of a Hugging Face tokenizer.

    A conversation's words come again and again, so each word's pieces are counted once and remembered: many times
    faster than tokenising every message. For BERT's tokenizer, which parts words before anything else, the sum is the
    exact count; for others it is an estimate, and whoever relies on it counts the finished text.

    Args:
        backend: a ``tokenizers.Tokenizer``; a copy is used, without its truncation and padding.
    """

    def __init__(self, backend: Any) -> None:
        self._tokenizer = _untruncated(backend)
        self.special = self._tokenizer.num_special_tokens_to_add(False)
        kind = json.loads(backend.to_str()).get("pre_tokenizer") or {}
        self.adds_up = kind.get("type") == "BertPreTokenizer"
        self._encode = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)
        self._known: dict[str, int] = {}

    def digest(self) -> str:
        """Of all that it is."""
        return _digest(self._tokenizer)

    def count(self, text: str) -> int:
        if _REMOVED.search(text):
            return self.counts([text])[0]
        return sum(self._of_words(text.split()))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(found.ids) for found in self._encode(texts, add_special_tokens=False)]

    def spans(self, text: str) -> list[Span]:
        return self._tokenizer.encode(text, add_special_tokens=False).offsets

    def last_words(self, text: str, room: int) -> tuple[int, int] | None:
        if _REMOVED.search(text):
            return None
        words = text.split()
        kept = used = 0
        for word, count in zip(reversed(words), reversed(self._of_words(words)), strict=True):
            if used + count > room:
                return None if _SPACELESS.search(word) else (kept, used)
            kept += 1
            used += count
        return kept, used

    def _of_words(self, words: list[str]) -> list[int]:
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:
            if len(known) > _MOST_WORDS:
                known.clear()
            new = list(set(words).difference(known))
            # other tokenizers make a word's pieces with the space before it
            texts = new if self.adds_up else [f" {word}" for word in new]
            known.update(zip(new, self.counts(texts), strict=True))
            return [known[word] for word in words]


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
    return _digest(_backend(tokenizer))


def _digest(backend: Any) -> str:
    return hashlib.sha256(_untruncated(backend).to_str().encode()).hexdigest()


def _untruncated(backend: Any) -> Any:
    """A copy without truncation and padding: whoever used a tokenizer last has left theirs in it."""
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def contents(tokenizer: Any) -> Any:
    """:func:`identity`, but of a folder by what is in it: it may be moved."""
    folder = isinstance(tokenizer, str) and Path(tokenizer).is_dir()
    return _named(tokenizer).digest() if folder else identity(tokenizer)


@lru_cache(maxsize=4)
def _named(name: str) -> Pieces:
    from pt_convsearch._optional import require

    transformers = require("transformers", step=f"a token budget by {name!r}", install="transformers")
    try:
        return Pieces(_backend(transformers.AutoTokenizer.from_pretrained(name)))
    except OSError as error:
        raise OSError(
            f"the tokenizer {name!r} is neither a folder nor in the local cache, and could not be fetched: give "
            f"the path of a folder that holds it, or a tokenizer object ({str(error).splitlines()[0]})"
        ) from error


def _backend(tokenizer: Any) -> Any:
    # a transformers tokenizer wraps a tokenizers.Tokenizer; a sentence-transformers model wraps the former
    for inner in ("tokenizer", "backend_tokenizer"):
        if not hasattr(tokenizer, "to_str"):
            tokenizer = getattr(tokenizer, inner, tokenizer)
    if not hasattr(tokenizer, "to_str"):
        raise ValueError(
            f"tokenizer is a {type(tokenizer).__name__}: give the name or path of a Hugging Face tokenizer, a fast "
            "tokenizer object, 'words' or 'characters'"
        )
    return tokenizer


def tail(text: str, room: int, by: Counter, *, forced: bool = False) -> tuple[str, int, bool]:
    """The end of a text, as many of its words as ``room`` tokens hold.

    Args:
        text: what to cut; it has more tokens than that.
        room: how many of them may stay.
        by: whose tokens.
        forced: if so, cut inside a word rather than keep nothing.

    Returns:
        the end of the text, how many tokens it has, and whether a word was cut (then the number is an estimate).
    """
    if room <= 0:
        return "", 0, False
    text = text.rstrip()  # some tokenizers make tokens of white space: the words come first
    whole = by.last_words(text, room)
    if whole is not None:
        words, count = whole
        if count:
            pieces = text.rsplit(None, words)
            return (text[len(pieces[0]) :].lstrip() if len(pieces) > words else text), count, False
    else:
        spans = by.spans(text)
        for at in range(max(0, len(spans) - room), len(spans)):
            start = spans[at][0]
            if _begins_token(spans, at) and _begins_word(text, start) and (kept := text[start:].lstrip()):
                return kept, len(spans) - at, False
    return (*last_tokens(text, room, by), True) if forced else ("", 0, False)


def last_tokens(text: str, room: int, by: Counter) -> tuple[str, int]:
    """The end of a text that ``room`` tokens hold, cut inside a word if need be, and how many tokens it had."""
    spans = by.spans(text)
    for at in range(max(0, len(spans) - max(0, room)), len(spans)):
        if _begins_token(spans, at):
            return text[spans[at][0] :], len(spans) - at
    return "", 0


def _begins_token(spans: Sequence[Span], at: int) -> bool:
    """Whether no part of the token's character belongs to the token before (bytes of one emoji do)."""
    return at == 0 or spans[at][0] >= spans[at - 1][1]


def _begins_word(text: str, start: int) -> bool:
    if start >= len(text):
        return False
    if start == 0 or _SPACE.match(text, start - 1) or _SPACE.match(text, start):
        return True
    if unicodedata.category(text[start])[0] == "M":
        return False
    return bool(_SPACELESS.match(text, start) or _SPACELESS.match(text, start - 1))
