"""Which encoder may search which index."""

from __future__ import annotations

from typing import Any

#: settings of an encoder that change nothing of the index
_FREE = frozenset({"max_query_length", "max_query_terms", "text_field"})
#: nor do these, where the encoder has a query tower of its own: one that was trained for these passages (ConvDR)
_FREE_TOWER = frozenset({"query_model", "query_prompt"})


def differing(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Which settings keep an encoder from searching an index.

    Args:
        theirs: the identity of the encoder that the index was built with.
        ours: the identity of the encoder that is to search it.

    >>> teacher = {"query_model": "a", "passage_model": "a", "similarity": "dot"}
    >>> differing(teacher, {**teacher, "query_model": "b"})  # a student
    []
    >>> differing(teacher, {**teacher, "query_model": "b", "passage_model": "b"})
    ['query_model', 'passage_model']
    """
    own_tower = ours.get("query_model") != ours.get("passage_model")
    free = _FREE | _FREE_TOWER if own_tower else _FREE
    return [name for name in theirs if name not in free and ours.get(name) != theirs[name]]


def check_encoder(theirs: dict[str, Any], ours: dict[str, Any], path: Any) -> None:
    """Refuse an encoder that an index was not built with.

    Args:
        theirs, ours: as in :func:`differing`.
        path: of the index.

    Raises:
        ValueError: the message names what differs.
    """
    names = differing(theirs, ours)
    if names:
        said = "; ".join(f"{name} is {_short(theirs[name])} there, {_short(ours.get(name))} here" for name in names)
        raise ValueError(
            f"the index at {path} was built with another encoder ({said}): use that one, "
            "or overwrite=True and .index(passages) rebuild it"
        )


def query_side(encoder: Any, known: dict[str, Any]) -> list[Any] | None:
    """What queries are encoded with: by the encoder that was given, else by the one that the index loads by its name;
    so it is the same before and after that is loaded.

    Args:
        encoder: the one that was given or loaded, or None.
        known: what the index keeps: ``encoder``, its identity, and ``encoder_spec``, its name.
    """
    own = None
    if encoder is not None:
        own = encoder.identity()
    elif known.get("encoder_spec") is not None:
        own = known["encoder"]
    return own and [own.get(name) for name in ("query_model", "query_prompt", "max_query_length")]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:12] + "…'"
