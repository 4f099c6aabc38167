"""From text to index terms: tokenizer, stop words, stemmer, and the cache that makes all three cost nothing."""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal

import regex
import Stemmer

Tokenizer = Literal["lucene", "unicode"] | Callable[[str], Iterable[str]]

#: Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET
LUCENE_STOPWORDS = frozenset(
    (  # noqa: SIM905 - a list of 33 literals would fill the page
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    ).split()
)
MAX_TOKEN_LENGTH = 255  # as in Lucene's StandardTokenizer: a longer token is cut into pieces of this length

# Word breaks of Unicode's annex 29, as Lucene's StandardTokenizer reads them: letters, digits and underscores in a
# row; one of . ' between two letters and one of , ; . ' between two digits do not break; ideographs and hiragana
# stand alone; scripts without spaces (Thai, Khmer …) give one token per run; emoji are tokens. A colon does break, as
# it does since Unicode 15.1 (Lucene keeps title:dune in one piece): a character of query languages must not change a
# search.
_ASCII_WORD = re.compile(r"\w+(?:(?:(?<=[A-Za-z])[.'](?=[A-Za-z])|(?<=[0-9])[,;.'](?=[0-9]))\w+)*", re.ASCII)
_EXT = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_LETTER = r"[\p{WB=ALetter}\p{WB=HebrewLetter}]"
_DIGIT = r"\p{WB=Numeric}"
_WORD = rf"(?:[\p{{WB=ALetter}}\p{{WB=HebrewLetter}}\p{{WB=Numeric}}\p{{WB=ExtendNumLet}}]{_EXT})+"
_PICTURE = rf"(?:\p{{Extended_Pictographic}}|\p{{Emoji_Presentation}}){_EXT}"
_UNICODE_WORD = regex.compile(
    rf"{_WORD}(?:(?:(?<={_LETTER}{_EXT})(?![:\uFE13\uFE55\uFF1A])[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=SingleQuote}}]{_EXT}(?={_LETTER})"
    rf"|(?<={_DIGIT}{_EXT})[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=SingleQuote}}]{_EXT}(?={_DIGIT})){_WORD})*"
    rf"|(?:[\p{{WB=Katakana}}]{_EXT}|[\p{{WB=ExtendNumLet}}]{_EXT}(?=[\p{{WB=Katakana}}]))+"
    rf"|[\p{{Script=Han}}\p{{Script=Hiragana}}]{_EXT}"
    rf"|(?:[\p{{Script=Thai}}\p{{Script=Lao}}\p{{Script=Khmer}}\p{{Script=Myanmar}}]{_EXT})+"
    rf"|\p{{RI}}\p{{RI}}|{_PICTURE}(?:(?<=\u200D){_PICTURE})*"
)
_HAS_ALNUM = regex.compile(r"[^\p{WB=ExtendNumLet}]")
# "unicode": words of any script, and one token per character where a script puts no spaces between words
_SPACELESS_SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
_SPACELESS = "[ー" + "".join(rf"\p{{Script={name}}}" for name in _SPACELESS_SCRIPTS) + "]"
_ANY_WORD = regex.compile(
    rf"{_SPACELESS}\p{{M}}*|(?:(?!{_SPACELESS})[\p{{L}}\p{{N}}][\p{{M}}\u200C\u200D]*)+"
    rf"|\p{{RI}}\p{{RI}}|{_PICTURE}(?:(?<=\u200D){_PICTURE})*"
)
_POSSESSIVE = ("'s", "’s", "＇s")


def lucene_tokens(text: str) -> list[str]:
    """The tokens of Lucene's StandardTokenizer, lower case, without a final possessive 's.

    >>> lucene_tokens("Who wrote the U.S.A. 3.5 wi-fi rules? Queen's, don't!")
    ['who', 'wrote', 'the', 'u.s.a', '3.5', 'wi', 'fi', 'rules', 'queen', "don't"]
    """
    found = _ASCII_WORD.findall(text) if text.isascii() else _UNICODE_WORD.findall(text)
    tokens = []
    for word in found:
        if word[0] == "_" and not _HAS_ALNUM.search(word):
            continue
        if len(word) > MAX_TOKEN_LENGTH:
            tokens += [word[i : i + MAX_TOKEN_LENGTH].lower() for i in range(0, len(word), MAX_TOKEN_LENGTH)]
            continue
        word = word.lower()
        tokens.append(word[:-2] if word.endswith(_POSSESSIVE) else word)
    return [token for token in tokens if token]


def unicode_tokens(text: str) -> list[str]:
    """Words of any script after NFKC and case folding; Chinese, Japanese, Thai and kin by character; emoji are tokens.

    >>> unicode_tokens("Straße, Ｃａｆé: 東京タワー!")
    ['strasse', 'café', '東', '京', 'タ', 'ワ', 'ー']
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    tokens = []
    for word in _ANY_WORD.findall(text):
        tokens += [word[i : i + MAX_TOKEN_LENGTH] for i in range(0, len(word), MAX_TOKEN_LENGTH)]
    return tokens


def _lucene_porter() -> Callable[[list[str]], list[str]]:
    """Porter's stemmer as Lucene has it: words of one or two letters stay, and -bli and -logi are suffixes."""
    snowball = Stemmer.Stemmer("porter").stemWord

    def stem(word: str) -> str:
        if len(word) < 3:
            return word
        stemmed: str = snowball(word)
        if stemmed.endswith("bli") and _measured(stemmed[:-3]):
            return str(snowball(stemmed[:-1] + "e"))
        if stemmed.endswith("logi") and _measured(stemmed[:-4]):
            return stemmed[:-1]
        return stemmed

    return lambda words: [stem(word) for word in words]


def _measured(stem: str) -> bool:
    """Porter's m > 0: a vowel somewhere before a consonant; y is a vowel after a consonant."""
    vowel = seen = False
    for i, letter in enumerate(stem):
        vowel = letter in "aeiou" or (letter == "y" and i > 0 and not vowel)
        if seen and not vowel:
            return True
        seen = seen or vowel
    return False


_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {"lucene": lucene_tokens, "unicode": unicode_tokens}


class Analyzer:
    """Text to index terms: tokenizer, then stop words, then stemmer, in Lucene's order.

    Args:
        tokenizer: ``"lucene"`` (StandardTokenizer, lower case, possessives removed), ``"unicode"`` (any script,
            Chinese and Japanese by character), or a function from text to tokens.
        stemmer: None, ``"porter"`` (as Lucene has it), or a Snowball name that PyStemmer knows (``"english"``,
            ``"german"`` …).
        stopwords: None, ``"lucene"`` (its 33 English ones), or a collection of words in the tokenizer's form.

    Raises:
        ValueError: an unknown tokenizer, stemmer or name of stop words; the message lists what there is.
    """

    def __init__(
        self,
        tokenizer: Tokenizer = "lucene",
        stemmer: str | None = "porter",
        stopwords: Literal["lucene"] | Iterable[str] | None = "lucene",
    ) -> None:
        if not callable(tokenizer) and tokenizer not in _TOKENIZERS:
            raise ValueError(
                f"unknown tokenizer {tokenizer!r}: give 'lucene', 'unicode' or a function from text to tokens"
            )
        if stemmer is not None and stemmer not in Stemmer.algorithms():
            raise ValueError(f"unknown stemmer {stemmer!r}: give None or one of {', '.join(Stemmer.algorithms())}")
        if isinstance(stopwords, str) and stopwords != "lucene":
            raise ValueError(f"unknown stop words {stopwords!r}: give None, 'lucene' or a list of words")
        self.tokenizer = tokenizer
        self.stemmer = stemmer
        self.stopwords: Any = stopwords if stopwords is None or isinstance(stopwords, str) else sorted(set(stopwords))
        #: a chunk between white space is analysed by itself (so it can be cached): true of both tokenizers of ours
        self.by_chunk = not callable(tokenizer)
        self._tokenize: Callable[[str], Iterable[str]] = tokenizer if callable(tokenizer) else _TOKENIZERS[tokenizer]
        self._stop = LUCENE_STOPWORDS if stopwords == "lucene" else frozenset(self.stopwords or ())
        self._stem: Callable[[list[str]], list[str]] | None = None
        if stemmer is not None:
            self._stem = _lucene_porter() if stemmer == "porter" else Stemmer.Stemmer(stemmer).stemWords

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order, repeats included."""
        stop = self._stop
        tokens = [token for token in self._tokenize(text) if token not in stop]
        return tokens if self._stem is None else self._stem(tokens)

    def settings(self) -> dict[str, Any]:
        """What goes into the index's metadata; two analyzers of equal settings give equal terms."""
        name: Any = self.tokenizer
        if callable(self.tokenizer):
            module = getattr(self.tokenizer, "__module__", None) or type(self.tokenizer).__module__
            name = {
                "function": f"{module}:{getattr(self.tokenizer, '__qualname__', type(self.tokenizer).__qualname__)}"
            }
        return {"tokenizer": name, "stemmer": self.stemmer, "stopwords": self.stopwords}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Analyzer:
        """The analyzer of an index; a function is imported by its name.

        Raises:
            ValueError: the tokenizer was a function that cannot be imported by name.
        """
        tokenizer = settings["tokenizer"]
        if isinstance(tokenizer, dict):
            tokenizer = _imported(tokenizer["function"])
        return cls(tokenizer, settings["stemmer"], settings["stopwords"])

    def __reduce__(self) -> tuple[Any, ...]:  # a Snowball stemmer cannot be pickled
        return type(self), (self.tokenizer, self.stemmer, self.stopwords)


@cache
def _imported(name: str) -> Callable[[str], Iterable[str]]:
    module, _, qualname = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in qualname.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"the index was built with the tokenizer {name}, which cannot be imported ({error}): "
            "give tokenizer=, the same function"
        ) from error
    return value
