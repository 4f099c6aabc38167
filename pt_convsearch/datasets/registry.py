"""Which name belongs to which module; a module is imported when one of its names is asked for."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

from pt_convsearch.datasets.base import _REGISTRY, Dataset

#: first part of a name -> the module that registers it
_MODULES = {
    "testbed": "testbed",
    "folder": "folder",
    "qrecc": "qrecc",
    "or-quac": "or_quac",
    "topiocqa": "topiocqa",
    "cast": "cast",
    "cast21-mini": "minis",
    "ikat": "ikat",
    "mtrag": "mtrag",
    "mtrag-un": "mtrag",
    "mtrag-mini": "minis",
    "canard": "canard",
    "quac": "canard",
    "dl-hard": "dl_hard",
    "dialogues": "dialogues",
    "mantis": "mantis",
    "msdialog": "msdialog",
    "udc-dstc8": "udc",
    "irc": "irc",
    "convokit": "convokit",
    "tsv": "response_tsv",
}


def dataset(name: str, **options: Any) -> Dataset:
    """A collection by its name, with options: ``pt.get_dataset("convsearch:NAME")`` gives the same without them.

    Args:
        name: ``"qrecc/test"``, ``"cast/2021"``, ``"testbed"``, ``"folder:my-data"`` …; :func:`names` lists them.
        **options: ``path``, ``files``, ``offline``, ``verify`` (:class:`Dataset`) and those of the collection.

    Returns:
        Dataset: ``get_topics()``, ``get_qrels()``, ``get_corpus_iter()``.

    Raises:
        KeyError: no collection has that name.
        TypeError: an option that the collection does not take.

    Example:
        >>> import pt_convsearch as cs
        >>> cs.dataset("qrecc/test")
        cs.dataset('qrecc/test')
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a data set is a str such as 'qrecc/test', not {name!r}")
    first, rest = [*re.split("[/:]", name, maxsplit=1), ""][:2]
    factory = _factory(first)
    if factory is None:
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
        raise KeyError(
            f"no data set is called {name!r}{': did you mean ' + ', '.join(near) if near else ''}? "
            "`python -m pt_convsearch datasets list` shows all"
        )
    return factory(rest, **options)


def _factory(first: str) -> Any:
    if first not in _REGISTRY and first in _MODULES and _exists(first):
        importlib.import_module(f"pt_convsearch.datasets.{_MODULES[first]}")
    return _REGISTRY.get(first)


def _exists(first: str) -> bool:
    return importlib.util.find_spec(f"pt_convsearch.datasets.{_MODULES[first]}") is not None


def names() -> list[str]:
    """Every name that :func:`dataset` takes; those with a part of your own are shown with it in capitals."""
    return list(_names())


def _names() -> Iterator[str]:
    for first in dict.fromkeys([*_MODULES, *_REGISTRY]):
        factory = _factory(first)
        if factory is not None:
            rests = getattr(factory, "names", ("",))
            yield from (f"{first}{rest}" if rest[:1] == ":" else f"{first}/{rest}" if rest else first for rest in rests)
