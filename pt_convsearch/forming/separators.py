"""What stands between the parts of a query.

A former that joins parts with more than white space says so in column ``qsep``: the separator, or a list of
separators. Lexical stages take these out of the text again, so a query joined by " [SEP] " scores as if it were
joined by spaces.
"""

from __future__ import annotations

#: one text between all parts, or two tokens: between messages of one role, and where the role changes
Separator = str | tuple[str, str]

#: the column that names a query's separators; absent where parts are joined by white space only
COLUMN = "qsep"


def checked(sep: Separator) -> Separator:
    """The separator, a pair always as a tuple of tokens without white space around them.

    Raises:
        ValueError: neither a str nor a pair of tokens.
    """
    if isinstance(sep, str):
        return sep
    if (
        isinstance(sep, tuple | list)
        and len(sep) == 2
        and all(isinstance(token, str) and token.strip() for token in sep)
    ):
        return sep[0].strip(), sep[1].strip()
    raise ValueError(
        f"sep is {sep!r}: give a str (' ', ' [SEP] '), or two tokens ('[U]', '[T]'): between messages of one role, and "
        "where the role changes"
    )


def texts_between(sep: Separator) -> tuple[str, str]:
    """What stands between two messages of one role, and between messages of two."""
    return (sep, sep) if isinstance(sep, str) else (f" {sep[0]} ", f" {sep[1]} ")


def named(sep: Separator) -> str | list[str] | None:
    """The value of column ``qsep``: what a lexical engine takes out again; None where parts are joined by white
    space only."""
    if isinstance(sep, str):
        return sep if sep.strip() else None
    return list(texts_between(sep))
