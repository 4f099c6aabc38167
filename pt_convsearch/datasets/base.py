"""What a collection is here: topics with a history, judgments, a corpus, and what is known about all three."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyterrier as pt


class Dataset(pt.datasets.Dataset):
    """A conversational collection. Subclasses fill in what their files hold.

    ``get_topics()`` gives the topics frame (qid, query, qhistory, and qrewrite, qtype, conversation_id, turn_number, answer
    where known), ``get_qrels()`` qid, docno, label (int), ``get_corpus_iter()`` dicts with docno, text (title where there is one).
    """

    #: what users type after ``convsearch:``
    name: str

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        raise NotImplementedError(f"convsearch:{self.name} has no topics")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        raise NotImplementedError(f"convsearch:{self.name} has no judgments")

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        raise NotImplementedError(f"convsearch:{self.name} has no corpus")

    def __repr__(self) -> str:
        return f"cs.dataset({self.name!r})"


#: first part of a name ("qrecc" of "qrecc/test") -> callable(rest of the name, **options) that gives the data set
_REGISTRY: dict[str, Callable[..., Dataset]] = {}


def register(name: str) -> Callable[[Callable[..., Dataset]], Callable[..., Dataset]]:
    """Make a data set known by the first part of its name; used as a decorator on a class or function."""

    def keep(factory: Callable[..., Dataset]) -> Callable[..., Dataset]:
        _REGISTRY[name] = factory
        return factory

    return keep
