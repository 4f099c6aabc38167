"""The settings of a BM25 index, in one or in shards: those that were given, our defaults, and where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from .analysis import Analyzer, Tokenizer

DEFAULTS: dict[str, Any] = {
    "tokenizer": "lucene",
    "stemmer": "porter",
    "stopwords": "lucene",
    "text_field": ("title", "text"),
}


def given_settings(
    tokenizer: Tokenizer | Literal["default"],
    stemmer: str | None,
    stopwords: str | Iterable[str] | None,
    text_field: str | Sequence[str],
) -> dict[str, Any]:
    """Those that are not left at "default", which means: as an index that exists has it, else our default.

    >>> given_settings("default", None, "default", "text")
    {'stemmer': None, 'text_field': ('text',)}
    """
    fields = (text_field,) if isinstance(text_field, str) and text_field != "default" else text_field
    named = {"tokenizer": tokenizer, "stemmer": stemmer, "stopwords": stopwords, "text_field": fields}
    return {name: value for name, value in named.items() if not (isinstance(value, str) and value == "default")}


def new_analyzer(given: Mapping[str, Any]) -> Analyzer:
    """The analyzer of an index that is to be built.

    Raises:
        ValueError: a setting that does not exist.
    """
    settings = {**DEFAULTS, **given}
    return Analyzer(settings["tokenizer"], settings["stemmer"], settings["stopwords"])


def text_fields(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that an index that is to be built will read."""
    return tuple(given.get("text_field", DEFAULTS["text_field"]))


def check_given(given: Mapping[str, Any], stored: Mapping[str, Any], where: object) -> None:
    """Raise where settings given by the user are not those that are stored with the index, and say which.

    Raises:
        ValueError: they differ.
    """
    differ = []
    for name, value in given.items():
        value = list(value) if name == "text_field" else Analyzer(**{name: value}).settings()[name]
        if value != stored[name]:
            differ.append(f"{name}={value!r} was given, the index has {stored[name]!r}")
    if differ:
        raise ValueError(
            f"the index at {where} was built with other settings: {'; '.join(differ)}. "
            "Leave the option out to use the index as it is, or give overwrite=True and index the collection again"
        )
