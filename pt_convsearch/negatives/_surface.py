"""Can a passage's surface alone tell positives from negatives? Then a model will learn the surface."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

_QUOTES = frozenset("\"'“”‘’«»„‚`")
_ENOUGH = 10


def surface_warnings(positives: Sequence[str], negatives: Sequence[str], *, threshold: float = 0.9) -> list[str]:
    """Sentences about surface features that separate the two by themselves; none where all is well.

    Looked at: quotation marks, case, white space and punctuation at the ends, the most frequent first and last
    characters, and the length in characters. With fewer than ten texts on a side nothing is said.

    Args:
        positives: texts of gold passages.
        negatives: texts of mined ones.
        threshold: how far a feature must separate them, 1 being always: the difference of the two shares, or for the
            length twice the distance of the area under the ROC curve from one half.
    """
    if len(positives) < _ENOUGH or len(negatives) < _ENOUGH:
        return []
    said = []
    for name, share in _shares(positives, negatives):
        left, right = (float(np.mean(values)) for values in share)
        if abs(left - right) >= threshold:
            said.append(f"{left:.0%} of the positives and {right:.0%} of the negatives {name}")
    lengths = [np.array([len(text) for text in texts]) for texts in (positives, negatives)]
    area = _area(*lengths)
    if abs(2 * area - 1) >= threshold:
        low, high = (int(np.median(side)) for side in lengths)
        said.append(f"length alone separates them (median {low} characters for positives, {high} for negatives)")
    return said


def _shares(positives: Sequence[str], negatives: Sequence[str]) -> list[tuple[str, list[list[bool]]]]:
    tests = {
        "begin with a quotation mark": lambda text: text[:1] in _QUOTES and text != "",
        "end with a quotation mark": lambda text: text[-1:] in _QUOTES and text != "",
        "hold a quotation mark": lambda text: not _QUOTES.isdisjoint(text),
        "begin with a blank": lambda text: text[:1].isspace(),
        "end with a blank": lambda text: text[-1:].isspace(),
        "begin with a capital": lambda text: text[:1].isupper(),
        "hold no capital": lambda text: text == text.lower(),
        "end with punctuation": lambda text: text[-1:] in string.punctuation and text != "",
        "hold a line break": lambda text: "\n" in text,
    }
    found = [(name, [[test(text) for text in side] for side in (positives, negatives)]) for name, test in tests.items()]
    for place, at in (("begin", slice(0, 1)), ("end", slice(-1, None))):
        seen = {text[at] for text in (*positives[:50], *negatives[:50])} - {""}
        found += [
            (
                f"{place} with {character!r}",
                [[text[at] == character for text in side] for side in (positives, negatives)],
            )
            for character in sorted(seen)
        ]
    return found


def _area(left: np.ndarray, right: np.ndarray) -> float:
    """The chance that a value of ``left`` is above one of ``right``, ties counting half."""
    ordered = np.sort(right)
    below = np.searchsorted(ordered, left, side="left") + np.searchsorted(ordered, left, side="right")
    return float(below.sum()) / (2 * len(left) * len(right))
