"""What a mined set depends on, as text that changes when any of it does."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch._contents import index_contents
from pt_convsearch._files import json_or_none
from pt_convsearch._stage import Stage

from ._texts import TextStore

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_CANARIES = 16
#: settings in words, for readers; where both sides have the digest, that alone says whether they are the same
_IN_WORDS = {"form": "former", "negatives": "miner", "pipeline": "retrieval"}


def digest(value: Any, *, by_path: bool = False) -> str:
    """A hash of anything made of texts, numbers, arrays, frames, lists and dicts, stages and artifacts.

    An index counts with what it holds, an encoder with its weights: not with where they lie.

    Args:
        value: what to hash.
        by_path: let an index count with its path as well, as sets were written that have no digest of the former.
    """
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value, (), by_path):
        state.update(piece.encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()


def _pieces(value: Any, above: tuple[int, ...], by_path: bool) -> Iterator[str]:
    if id(value) in above:
        return
    above = (*above, id(value))
    if value is None or isinstance(value, str | int | float | bool | np.generic):
        yield f"{type(value).__name__}:{value!r}"
    elif isinstance(value, pd.DataFrame):
        yield f"frame:{list(map(str, value.columns))}"
        for column in value.columns:
            yield from _pieces(value[column].tolist(), above, by_path)
    elif isinstance(value, pd.Series | pd.Index):
        yield from _pieces(value.tolist(), above, by_path)
    elif isinstance(value, np.ndarray):
        yield from (
            _pieces(value.tolist(), above, by_path)
            if value.dtype == object
            else (f"{value.dtype}{value.shape}", value.tobytes().hex())
        )
    elif isinstance(value, dict):
        yield "{"
        for key, item in value.items():
            yield from _pieces(key, above, by_path)
            yield from _pieces(item, above, by_path)
        yield "}"
    elif isinstance(value, list | tuple):
        try:  # messages, texts and numbers: as fast as JSON is
            yield f"{type(value).__name__}:{json.dumps(value)}"
            return
        except (TypeError, ValueError):
            yield "["
        for item in value:
            yield from _pieces(item, above, by_path)
        yield "]"
    elif isinstance(value, TextStore):
        yield value.fingerprint
    elif _knows_itself(value):  # an encoder: its weights count, not where they lie
        yield from _pieces(value.identity(), above, by_path)
    elif hasattr(type(value), "_contents") and not by_path:
        yield type(value).__qualname__
        yield from _pieces(value._contents(), above, by_path)
    elif isinstance(value, pt.Artifact):
        held = None if by_path or not isinstance(value.path, Path) else index_contents(value.path)
        if held is not None:
            yield type(value).__qualname__
            yield from _pieces(held, above, by_path)
            return
        yield _named(value)
        if isinstance(value.path, Path):
            meta = json_or_none(value.path / "pt_meta.json")
            if isinstance(meta, dict):
                meta.pop("build", None)  # an index that was built again from the same collection is the same
            yield json.dumps(meta, sort_keys=True)
    elif isinstance(value, Stage):
        yield type(value).__qualname__
        yield from _pieces(value._identity(), above, by_path)
    elif isinstance(value, pt.Transformer):
        yield type(value).__qualname__
        for name, item in sorted(vars(value).items()):
            if not name.startswith("_") or name == "_transformers":  # private attributes are what a stage remembers
                yield name
                yield from _pieces(item, above, by_path)
    elif callable(value) and hasattr(value, "__code__"):
        code = value.__code__
        name = f"{value.__module__}.{value.__qualname__}"
        if by_path:
            yield _ADDRESS.sub("", f"{name}:{code.co_code.hex()}:{code.co_consts!r}:{code.co_names}")
        else:
            yield name
            yield from _code(code)
        # what the function was given when it was made: the same code with another threshold is another miner
        yield from _pieces([value.__defaults__, value.__kwdefaults__, *_closure(value)], above, by_path)
    elif type(value).__name__ == "org.terrier.querying.IndexRef" and not by_path:
        place = str(value.toString())
        yield from _pieces(["IndexRef", index_contents(place) or place], above, by_path)
    else:
        yield _named(value)


def _code(code: CodeType) -> Iterator[str]:
    """What code does, not in which line of which file it stands."""
    yield f"{code.co_code.hex()}:{code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # its order changes from process to process
            yield repr(sorted(map(repr, constant)))
        else:
            yield _ADDRESS.sub("", repr(constant))


def _closure(function: Any) -> list[Any]:
    """The settings among what a function closes over; lists and the like may be what it remembers."""
    found = []
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if isinstance(value, str | int | float | Path | np.generic | pt.Transformer) or callable(value):
            found.append(value)
    return found


def _knows_itself(value: Any) -> bool:
    method = getattr(type(value), "identity", None)
    return callable(method) and method is not pt.Transformer.identity  # that one makes an empty pipeline


def shown(value: Any) -> str:
    """``repr`` without addresses in memory."""
    return _ADDRESS.sub("", repr(value))


def _named(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}:{shown(value)}"


def check_results(found: pd.DataFrame) -> None:
    """Refuse what is no ranking.

    Raises:
        ValueError: a column is missing; the message names it.
    """
    missing = [column for column in ("qid", "docno", "score", "rank") if column not in found.columns]
    if missing:
        raise ValueError(
            f"the miner gives no column {missing[0]!r}: a miner is a retriever with filters behind it (Q -> R)"
        )


def canary(miner: pt.Transformer, topics: pd.DataFrame) -> str:
    """What the miner finds for a few questions: tells apart what settings cannot, such as other weights at the same
    path."""
    rows = np.unique(np.linspace(0, len(topics) - 1, min(_CANARIES, len(topics))).astype(int))
    found = miner.transform(topics.iloc[rows].reset_index(drop=True))
    check_results(found)
    return digest([found["qid"].astype(str).tolist(), found["docno"].astype(str).tolist()])


def differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The settings of two mined sets, or trainings, that differ, by name.

    What is said in words (``negatives``: the miner as it would be typed, with the path of its index) is not compared
    where its digest is the same. Settings that were written when there was no such digest are compared without it.

    >>> was = {"negatives": "BM25Index('old/place')", "miner": "6f9a"}
    >>> differing(was, {"negatives": "BM25Index('new')", "miner": "6f9a"})
    []
    >>> differing(was, {"negatives": "BM25Index('new')", "miner": "77b0"})
    ['negatives', 'miner']
    """
    names = [*new, *(name for name in old if name not in new)]
    left_out = {word for word, told in _IN_WORDS.items() if told in old and old[told] == new.get(told)}
    left_out |= {told for told in _IN_WORDS.values() if told not in old}
    return [
        name
        for name in names
        if name not in left_out
        and json.dumps(old.get(name), sort_keys=True) != json.dumps(new.get(name), sort_keys=True)
    ]


def compared(old: Any, new: dict[str, Any], miner: Any) -> list[str]:
    """As :func:`differing`, of the settings of mined sets; those that were written when the path of an index counted
    are compared as they were then."""
    if not isinstance(old, dict):
        return ["all"]
    if miner is not None and "former" not in old:
        new = {**new, "miner": digest(miner, by_path=True)}
    return differing(old, new)


def without_words(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a mined set, without what its digests say."""
    return {name: value for name, value in settings.items() if _IN_WORDS.get(name) not in settings}
