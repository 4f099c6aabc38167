"""BM25 in shards, with the statistics of the whole collection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from .._files import PathLike
from ..lexical.analysis import Analyzer, Tokenizer
from ..lexical.index import BM25Index
from ..lexical.reading import QueryTerms
from ..lexical.retriever import QUERIES_PER_TASK, BM25Retriever
from ..lexical.rm3 import RM3
from ..lexical.settings import check_given, given_settings, new_analyzer, text_fields
from ..lexical.storage import Lookup, load_array
from ..lexical.text_loader import TextLoader
from .bm25_shard import BM25Shard, cut
from .building import Recipe
from .manifest import STATISTICS, Shard
from .merging import Best
from .serving import LocalShards
from .sharded import ShardedIndex
from .statistics import write_statistics

#: queries that an actor is given together
QUERIES_PER_CALL = 128


class ShardedBM25Index(ShardedIndex):
    """BM25 shards, each a :class:`~pt_convsearch.lexical.BM25Index`, scored with the statistics of the whole.

    Args:
        tokenizer, stemmer, stopwords, text_field, store_text: as in :class:`~pt_convsearch.lexical.BM25Index`.
        options: those of :class:`ShardedIndex`.

    Example:
        ``cs.form(cs.X) >> cs.scale.ShardedIndex("passages.shards", engine="ray").bm25(num_results=100)``
    """

    kind = "bm25"

    def __init__(
        self,
        path: PathLike,
        *,
        tokenizer: Tokenizer | Literal["default"] = "default",
        stemmer: str | None = "default",
        stopwords: str | Iterable[str] | None = "default",
        text_field: str | Sequence[str] = "default",
        store_text: bool = True,
        **options: Any,
    ) -> None:
        self._given = given_settings(tokenizer, stemmer, stopwords, text_field)
        new_analyzer(self._given)  # a setting that does not exist is refused now
        self.store_text = store_text
        super().__init__(path, **options)

    def _check(self, settings: dict[str, Any]) -> None:
        check_given(self._given, settings, self.storage.address)

    def index_inputs(self) -> list[list[str]]:
        fields = text_fields(self._given)
        return [["docno", *fields], ["docno", fields[-1]]]

    def _recipe(self) -> Recipe:
        return BM25Recipe(self._given, self.store_text)

    def _opener(self, number: int) -> Callable[[], Any]:
        return functools.partial(BM25Shard.open, self.storage, number, self.manifest.build, self._given)

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.pop("_reading", None)

    # -- what BM25Index offers too

    @functools.cached_property
    def _reading(self) -> ShardedReading:
        return ShardedReading(self)

    @property
    def average_length(self) -> float:
        """avdl: the mean number of terms in a document of the whole collection."""
        return self._reading.average_length

    def analyze(self, text: str) -> list[str]:
        """The index terms of a text, in order, repeats included, unknown ones too."""
        return self._reading.analyze(text)

    def df(self, terms: Iterable[str]) -> np.ndarray:
        """In how many documents of the whole collection each term occurs."""
        return self._reading.df(self._reading.lexicon.find(terms))

    def docnos(self) -> list[str]:
        """All docnos, in the order of the collection."""
        return self._reading.docnos.take(np.arange(len(self))).to_pylist()

    def texts(self, docnos: Iterable[str], field: str | None = None) -> list[str]:
        """The stored texts of documents; see :meth:`BM25Index.texts`."""
        return self._reading.stored(field).take(self._reading.doc_ids(docnos)).to_pylist()

    def bm25(
        self,
        *,
        num_results: int = 1000,
        k1: float = 0.9,
        b: float = 0.4,
        idf: Literal["lucene", "robertson"] = "lucene",
        threads: int | None = None,
        verbose: bool = False,
    ) -> ShardedBM25Retriever:
        """A retriever, ``Q -> R``, with the options and results of :class:`~pt_convsearch.lexical.BM25Retriever`."""
        return ShardedBM25Retriever(
            self, num_results=num_results, k1=k1, b=b, idf=idf, threads=threads, verbose=verbose
        )

    def rm3(self, *, fb_docs: int = 10, fb_terms: int = 10, original_query_weight: float = 0.5) -> RM3:
        """Query expansion by feedback, ``R -> Q``: see :class:`~pt_convsearch.lexical.RM3`."""
        index: Any = self
        return RM3(index, fb_docs=fb_docs, fb_terms=fb_terms, original_query_weight=original_query_weight)

    def text_loader(self, fields: str | Sequence[str] | None = None) -> TextLoader:
        """Adds the stored texts to results, ``R -> R``: see :class:`~pt_convsearch.lexical.TextLoader`."""
        return TextLoader(self, fields)  # type: ignore[arg-type]


class ShardedBM25Retriever(BM25Retriever):
    """:class:`~pt_convsearch.lexical.BM25Retriever` over shards: the same columns, scores and order."""

    def __init__(self, index: ShardedBM25Index, **options: Any) -> None:
        super().__init__(index, **options)  # type: ignore[arg-type]

    def _identity(self) -> tuple[Any, ...]:
        names = ("index", "num_results", "k1", "b", "idf")
        return tuple((name, getattr(self, name)) for name in names)

    def __repr__(self) -> str:
        options = f"num_results={self.num_results}, k1={self.k1:g}, b={self.b:g}, idf={self.idf!r}"
        return f"ShardedBM25Retriever({self.index!r}, {options})"

    def _search(self, queries: list[str | dict[str, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        index: Any = self.index
        k = int(min(self.num_results, len(index)))
        if not queries or k == 0:
            return np.zeros(len(queries), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        reading: ShardedReading = index._reading
        asked: Any = queries
        terms = reading.text_terms(asked) if isinstance(queries[0], str) else reading.weighted_terms(asked)
        serving = index.serving
        here = isinstance(serving, LocalShards)
        threads = self.threads or (serving.threads if here else index.threads) or 1
        size = min(QUERIES_PER_TASK, -(-len(queries) // threads)) if here else QUERIES_PER_CALL
        starts = range(0, len(queries), size)
        parts = [cut(terms, start, start + size) for start in starts]
        best = [Best(len(part.offsets) - 1, k) for part in parts]
        # here: one shard for all queries before the next, so that its postings are read once; on Ray all shards at once
        shards = range(index.num_shards)
        order = (
            [(s, p) for s in shards for p in range(len(parts))]
            if here
            else [(s, p) for p in range(len(parts)) for s in shards]
        )
        sent = [serving.shared(tuple(part)) for part in parts]
        options = (k, float(self.k1), float(self.b), self.idf, 1 if here else threads)
        answers = serving.run(((s, "search", (sent[p], best[p].floors(), *options)) for s, p in order), threads)
        for (s, p), found in zip(order, self._progress(answers, len(order)), strict=True):
            best[p].add(found[0], found[1], found[2], int(index.firsts[s]))
        counts, docs, scores = (np.concatenate(arrays) for arrays in zip(*(part.flat() for part in best), strict=True))
        return counts, docs, scores


class BM25Recipe:
    """How a BM25 shard is built."""

    kind = "bm25"

    def __init__(self, given: dict[str, Any], store_text: bool) -> None:
        self.given = given
        self.store_text = store_text
        self.fields = ("docno", *text_fields(given))

    def settings(self) -> dict[str, Any]:
        kept = {"text_field": list(text_fields(self.given)), "store_text": self.store_text}
        return {**new_analyzer(self.given).settings(), **kept}

    def build(self, folder: Path, docs: Iterable[dict[str, Any]]) -> dict[str, Any]:
        index = BM25Index(folder, store_text=self.store_text, **self.given).index(docs)
        return {name: index.meta[name] for name in ("num_docs", "num_tokens", "num_terms", "num_postings")}

    def docnos(self, folder: Path) -> Sequence[str]:
        return BM25Index(folder, **self.given).docnos()

    def finish(self, folders: list[Path], shards: list[Shard], statistics: Path) -> dict[str, Any]:
        write_statistics(folders, [shard.name for shard in shards], statistics)
        return {"num_tokens": sum(shard.counts["num_tokens"] for shard in shards)}


class ShardedReading(QueryTerms):
    """What the stages of a BM25 index read (:class:`~pt_convsearch.lexical.reading.Reading`), asked of shards."""

    def __init__(self, index: ShardedBM25Index) -> None:
        manifest = index.manifest
        folder = index.storage.local(STATISTICS, manifest.statistics, build=manifest.build)
        settings = {**manifest.settings, **{k: v for k, v in index._given.items() if k == "tokenizer"}}
        super().__init__(Analyzer.from_settings(settings), Lookup(folder, "lexicon"))
        self._index = index
        self._df = load_array(folder, "df")
        self.meta = {**manifest.settings, "num_docs": manifest.num_docs}
        self.num_docs = manifest.num_docs
        self.average_length = manifest.settings["num_tokens"] / self.num_docs if self.num_docs else 0.0
        self.docnos = _Taken(index, "docnos")

    def df(self, ids: np.ndarray) -> np.ndarray:
        known = ids >= 0
        result = np.zeros(len(ids), dtype=np.int64)
        result[known] = self._df[ids[known]]
        return result

    def doc_ids(self, docnos: Iterable[str]) -> np.ndarray:
        return find_docnos(self._index, list(docnos))

    def stored(self, field: str | None = None) -> _Taken:
        names = self.meta["text_field"]
        if not self.meta["store_text"]:
            raise ValueError(
                f"the index at {self._index.path} was built with store_text=False: it has no texts to load"
            )
        field = names[-1] if field is None else field
        if field not in names:
            raise ValueError(f"the index at {self._index.path} stores {', '.join(map(repr, names))}, not {field!r}")
        return _Taken(self._index, "texts", field)

    def forward(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The terms of documents, numbered as in the whole: see :meth:`Reading.forward`."""
        ids = np.asarray(ids)
        parts = self._index.gathered("forward", ids)
        lengths = np.zeros(len(ids), dtype=np.int64)
        for places, (starts, _, _) in parts:
            lengths[places] = np.diff(starts)
        firsts = np.concatenate([[0], np.cumsum(lengths)])
        terms, tfs = np.empty(firsts[-1], dtype=np.uint32), np.empty(firsts[-1], dtype=np.uint32)
        for places, (starts, part_terms, part_tfs) in parts:
            at = np.repeat(firsts[places] - starts[:-1], np.diff(starts)) + np.arange(starts[-1])
            terms[at], tfs[at] = part_terms, part_tfs
        return firsts, terms, tfs


class _Taken:
    """Strings of passages, asked of shards: ``take`` as an index's own strings have it."""

    def __init__(self, index: ShardedIndex, method: str, *arguments: Any) -> None:
        self._index = index
        self._method = method
        self._arguments = arguments

    def take(self, numbers: np.ndarray) -> pa.Array:
        return take_strings(self._index, self._method, np.asarray(numbers), *self._arguments)


def take_strings(index: ShardedIndex, method: str, numbers: np.ndarray, *arguments: Any) -> pa.Array:
    """Strings that shards hold of passages, in the order of ``numbers``."""
    parts = index.gathered(method, numbers, *arguments)
    if not parts:
        return pa.array([], type=pa.large_string())
    back = np.empty(len(numbers), dtype=np.int64)
    back[np.concatenate([places for places, _ in parts])] = np.arange(len(numbers))
    return pa.concat_arrays([strings.cast(pa.large_string()) for _, strings in parts]).take(pa.array(back))


def find_docnos(index: ShardedIndex, docnos: list[str]) -> np.ndarray:
    """The numbers of passages in the collection, by docno.

    Raises:
        ValueError: a docno that no shard has; the message names the first three.
    """
    from ..topics.checks import first_three

    distinct, back = pd.factorize(np.asarray(docnos, dtype=object))[::-1]
    wanted = [str(docno) for docno in distinct]
    found = np.full(len(wanted), -1, dtype=np.int64)
    for number, ids in enumerate(index.ask_all("find", lambda _: (wanted,))):
        found[ids >= 0] = ids[ids >= 0] + index.firsts[number]
    if len(found) and found.min() < 0:
        unknown = sorted(docno for docno, i in zip(wanted, found, strict=True) if i < 0)
        raise ValueError(f"{len(unknown)} docnos are not in the index at {index.path} ({first_three(unknown)})")
    return found[back] if len(back) else found
