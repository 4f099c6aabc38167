"""What a collection is here: topics with a history, judgments, a corpus, and what is known about all three."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.source import Source


class Dataset(pt.datasets.Dataset):
    """A conversational collection. Subclasses fill in what their files hold.

    ``get_topics()`` gives the topics frame (qid, query, qhistory, and qrewrite, qtype, conversation_id, turn_number,
    answer where known), ``get_qrels()`` qid, docno, label (int), ``get_corpus_iter()`` dicts with docno, text (title
    where there is one), streamed. Nothing is read before one of them is called.

    Args:
        name: what users type after ``convsearch:``.
        path: a folder that holds the files already; they are looked for in it (and below it) by the distributor's
            names. Without it they are looked for in the cache, and fetched where the distributor lets them be.
        files: paths of single files, by their key in :attr:`source` (``{"topics": "my/file.json"}``); they win over
            ``path``.
        offline: never ask the network; ``None``: what the environment says
            (:func:`~pt_convsearch.datasets.is_offline`).
        verify: refuse a file that differs from the one that its size or checksum is known of.
    """

    #: the distributor's files, licence and citation; ``None`` for a collection without files
    source: Source | None = None
    #: ISO 639-1
    language: str | None = "en"
    #: names of the variants of get_topics, the default first
    topics_variants: tuple[str, ...] = ()
    #: names of the variants of get_qrels, the default first
    qrels_variants: tuple[str, ...] = ()

    name: str

    def __init__(
        self,
        name: str,
        *,
        path: PathLike | None = None,
        files: dict[str, PathLike] | None = None,
        offline: bool | None = None,
        verify: bool = True,
    ):
        self.name = name
        self.path = Path(path).expanduser() if path is not None else None
        self.files = {key: Path(file).expanduser() for key, file in (files or {}).items()}
        self.offline = offline
        self.verify = verify
        if self.path is not None and not self.path.is_dir():
            raise FileNotFoundError(
                f"convsearch:{name}: path={str(self.path)!r} is no folder: give the one with the files"
            )
        unknown = (
            sorted(set(self.files) - {file.key for file in self.source.files}) if self.source else sorted(self.files)
        )
        if unknown:
            known = ", ".join(file.key for file in self.source.files) if self.source else "none"
            raise ValueError(f"convsearch:{name} has no file {unknown[0]!r}: files= takes {known}")

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "get_topics" in vars(cls):
            # pt.get_dataset would put a closure in its place, which cannot be pickled
            vars(cls)["get_topics"]._has_add_tokenize_query_arg_applied = True

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        raise NotImplementedError(f"convsearch:{self.name} has no topics")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        raise NotImplementedError(f"convsearch:{self.name} has no judgments")

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        raise NotImplementedError(f"convsearch:{self.name} has no corpus")

    def get_question_types(self) -> dict[str, str]:
        """qid -> label, as published; a question without a label is absent."""
        raise NotImplementedError(f"convsearch:{self.name} has no published question types")

    def file(self, key: str) -> Path:
        """Where a file of the collection lies: given, found in ``path``, in the cache, or fetched into it.

        Raises:
            FileNotFoundError: it is nowhere and cannot be fetched; the message says where it was looked for and how to
                get it.
            ValueError: it is cut or altered, by size or checksum.
        """
        from pt_convsearch.datasets.cache import obtain

        if self.source is None:
            raise FileNotFoundError(f"convsearch:{self.name} has no files")
        return obtain(
            self.source,
            self.source.file(key),
            name=self.name,
            path=self.path,
            given=self.files.get(key),
            offline=self.offline,
            verify=self.verify,
        )

    @property
    def counts(self) -> dict[str, int]:
        """What the distributor or the papers state of this part of the collection: turns, judged turns, passages …"""
        return dict(self.source.counts) if self.source else {}

    def info_url(self) -> str | None:
        return self.source.homepage if self.source else None

    def get_topics_lang(self) -> str | None:
        return self.language

    def get_corpus_lang(self) -> str | None:
        return self.language

    def _describe_component(self, component: str) -> bool | list[str] | None:
        method = {"topics": "get_topics", "qrels": "get_qrels", "corpus": "get_corpus_iter"}.get(component)
        if method is None or getattr(type(self), method) is getattr(Dataset, method):
            return None
        variants = {"topics": self.topics_variants, "qrels": self.qrels_variants}.get(component, ())
        return list(variants) if variants else True

    def _variant(self, variant: str | None, known: tuple[str, ...]) -> str:
        """``variant``, or the first of ``known``; ValueError for one that is not known."""
        if variant is None and known:
            return known[0]
        if variant not in known:
            raise ValueError(
                f"convsearch:{self.name} has no variant {variant!r}: {', '.join(known) or 'it has none at all'}"
            )
        return variant

    def _configure(self, **options: Any) -> None:
        """``pt.get_dataset("convsearch:NAME", **options)`` is ``cs.dataset(NAME, **options)``."""
        if options:
            from pt_convsearch.datasets.registry import dataset

            made = dataset(self.name, **options)
            self.__class__ = made.__class__
            self.__dict__ = made.__dict__

    def __repr__(self) -> str:
        return f"cs.dataset({self.name!r})"


Factory = Callable[..., Dataset]
#: first part of a name ("qrecc" of "qrecc/test") -> callable(rest of the name, **options) that gives the data set
_REGISTRY: dict[str, Factory] = {}


def register(name: str) -> Callable[[Factory], Factory]:
    """Make a data set known by the first part of its name; used as a decorator on a class or function.

    The callable gets what follows the first ``/`` or ``:`` of the name (``""`` where nothing does) and the options.
    """

    def keep(factory: Factory) -> Factory:
        _REGISTRY[name] = factory
        return factory

    return keep
