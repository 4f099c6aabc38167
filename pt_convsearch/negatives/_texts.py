"""Texts of passages by docno, from whatever a user has: frames, dicts, iterators, data sets or a text loader."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyterrier as pt

from pt_convsearch.topics.checks import as_ids, first_three

logger = logging.getLogger(__name__)
Corpus = pd.DataFrame | pt.Transformer | Iterable[dict[str, Any]] | Callable[[], Iterable[dict[str, Any]]] | Any
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_CHUNK = 20_000


@functools.lru_cache(maxsize=50_000)
def normalise(text: str) -> str:
    """The words of a text: compatibility forms, case, punctuation and white space do not count.

    An emoji is a word; so is each character where a script puts no spaces between words (Chinese, Thai …).

    >>> normalise("  “The  CAT” sat.")
    'the cat sat'
    >>> normalise("我住在北京！👍")
    '我 住 在 北 京 👍'
    >>> normalise("?!")
    '?!'
    """
    if text.isascii():
        text = text.lower()
        return " ".join(_ASCII_WORD.findall(text) or text.split())
    from pt_convsearch.lexical.analysis import unicode_tokens  # with the whole engine: only where it is needed

    # once more after case folding, which takes some letters apart; how an emoji is to be drawn is no difference
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\ufe0f", "")
    return " ".join(unicode_tokens(folded) or folded.split())


def text_key(text: str) -> int:
    """A number that two texts share exactly where their words are the same (64 bits of BLAKE2); never 0."""
    digest = hashlib.blake2b(normalise(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


class TextStore:
    """Texts by docno. Texts lie in a temporary memory-mapped file, so a large collection costs no memory but its
    docnos.

    Args:
        corpus: a frame or dicts with docno and the text fields, a callable or data set that gives such dicts anew
            (``get_corpus_iter``), or a text loader (a transformer that adds the text to docnos), which is asked only
            for what is needed.
        text_field: the field of the text.
        title_field: the field of the title, put before the text with a blank between where there is one, as
            :class:`BiEncoder` does; None: titles are not read.

    Raises:
        ValueError: a field is missing, a text is no str, or a docno stands twice; the message names the docno. A text
            loader that refuses everything, once it is asked: what it refuses beside others has no text, which is
            logged with its own words.
    """

    def __init__(self, corpus: Corpus, text_field: str = "text", title_field: str | None = "title") -> None:
        self.text_field = text_field
        self.title_field = title_field
        self._loader: pt.Transformer | None = None
        self._keys = np.zeros(0, dtype=np.int64)
        if isinstance(corpus, pt.Transformer):
            self._loader = corpus
            self._known: dict[str, int] = {}
            self._loaded: list[str] = []
            self.fingerprint = "loader"
        else:
            self._spool(_documents(corpus))

    @property
    def size(self) -> int:
        """The number of passages (of a text loader: those asked for so far)."""
        return len(self._loaded) if self._loader is not None else len(self._docnos)

    def rows(self, docnos: Any) -> np.ndarray:
        """The row of each docno (int64), -1 where the collection has no such passage or no text of it."""
        if self._loader is not None:
            return self._load(docnos)
        return self._docnos.get_indexer(pd.Index(docnos, dtype="str"))

    def texts(self, rows: np.ndarray | Sequence[int]) -> list[str]:
        """The texts of rows, in their order."""
        if self._loader is not None:
            return [self._loaded[row] for row in rows]
        return self._table.column("text").take(pa.array(rows, type=pa.int64())).to_pylist()

    def docnos(self, rows: np.ndarray | Sequence[int]) -> list[str]:
        """The docnos of rows, in their order."""
        if self._loader is not None:
            names = list(self._known)
            return [names[row] for row in rows]
        return self._docnos.take(np.asarray(rows, dtype=np.int64)).tolist()

    def keys(self, rows: np.ndarray) -> np.ndarray:
        """:func:`text_key` of rows (int64); 0 for row -1. Each text is normalised once."""
        rows = np.asarray(rows, dtype=np.int64)
        known = rows[rows >= 0]
        if len(known) and known.max() >= len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros(self.size - len(self._keys), dtype=np.int64)])
        fresh = np.unique(known[self._keys[known] == 0]) if len(known) else known
        for start in range(0, len(fresh), _CHUNK):
            part = fresh[start : start + _CHUNK]
            self._keys[part] = [text_key(text) for text in self.texts(part)]
        result = np.zeros(len(rows), dtype=np.int64)
        result[rows >= 0] = self._keys[known]
        return result

    def _spool(self, documents: Iterator[dict[str, Any]]) -> None:
        digest = hashlib.blake2b(digest_size=16)
        names: list[str] = []
        schema = pa.schema([("text", pa.large_string())])
        with tempfile.NamedTemporaryFile(prefix="pt_convsearch-", suffix=".arrow", delete=False) as handle:
            path = Path(handle.name)
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                texts: list[str] = []
                for document in documents:
                    docno, text = self._read(document)
                    names.append(docno)
                    texts.append(text)
                    try:
                        digest.update(f"{len(docno)} {docno}{len(text)} {text}".encode())
                    except UnicodeEncodeError as error:
                        raise ValueError(f"passage {docno!r} holds what is no text (a lone surrogate)") from error
                    if len(texts) == _CHUNK:
                        writer.write_batch(pa.record_batch([pa.array(texts, pa.large_string())], schema=schema))
                        texts = []
                if texts:
                    writer.write_batch(pa.record_batch([pa.array(texts, pa.large_string())], schema=schema))
            self._table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        finally:
            path.unlink(missing_ok=True)  # the mapping keeps what it needs until the store goes
        self._docnos = pd.Index(names, dtype="str")
        if not self._docnos.is_unique:
            twice = self._docnos[self._docnos.duplicated()].unique()
            raise ValueError(
                f"{len(twice)} docnos stand twice in the corpus ({first_three(twice)}): a docno names one passage"
            )
        self.fingerprint = digest.hexdigest()

    def _read(self, document: dict[str, Any]) -> tuple[str, str]:
        if not isinstance(document, dict) or "docno" not in document or self.text_field not in document:
            named = document.get("docno", document) if isinstance(document, dict) else document
            raise ValueError(
                f"a passage of the corpus ({named!r}) has no docno or no {self.text_field!r}: "
                "give dicts with docno and text, or name the field in text_field"
            )
        title = document.get(self.title_field) if self.title_field else None
        text = document[self.text_field]
        if not isinstance(text, str):
            raise ValueError(
                f"the text of passage {document['docno']!r} is {text!r}: give a str ('' where there is none)"
            )
        return str(document["docno"]), f"{title} {text}" if isinstance(title, str) and title.strip() else text

    def _load(self, docnos: Any) -> np.ndarray:
        wanted = pd.unique(pd.Series(docnos, dtype="str"))
        unseen = [docno for docno in wanted if docno not in self._known]
        if unseen:
            by_docno = self._ask(unseen)
            for docno in unseen:
                self._known[docno] = len(self._loaded)
                self._loaded.append(by_docno.get(docno, "").strip())
        rows = np.array([self._known[docno] for docno in docnos], dtype=np.int64)
        empty = np.array([not self._loaded[row] for row in rows], dtype=bool)
        rows[empty] = -1
        return rows

    def _ask(self, docnos: list[str]) -> dict[str, str]:
        """Texts from the loader; docnos that it refuses have none, and it may not refuse everything."""
        refused: dict[str, Exception] = {}
        texts = self._halved(docnos, refused)
        if not refused:
            return texts
        first, error = next(iter(refused.items()))
        said = f"{type(error).__name__}: {error}"
        if len(refused) == len(docnos) > 1 and not self._still_loads():
            raise ValueError(
                f"the text loader {self._loader!r} refused all of the {len(docnos)} docnos it was asked for "
                f"({first_three(docnos)}): {said}; a loader that does not know a docno may leave it out"
            ) from error
        logger.warning(
            "the text loader %r refused %d of %d docnos, which count as without text (first %r: %s)",
            self._loader, len(refused), len(docnos), first, said,
        )  # fmt: skip
        return texts

    def _still_loads(self) -> bool:
        """Whether the loader gives a text once more that it gave before: then what it refuses is new to it."""
        given = next((docno for docno, row in self._known.items() if self._loaded[row]), None)
        return given is not None and bool(self._halved([given], {}))

    def _halved(self, docnos: list[str], refused: dict[str, Exception]) -> dict[str, str]:
        """Texts from the loader; one that refuses docnos it does not know is asked by halves."""
        assert self._loader is not None
        asked = pd.DataFrame({"qid": "0", "query": "", "docno": pd.array(docnos, dtype="str")})
        try:
            loaded = self._loader.transform(asked)
        except (ValueError, KeyError) as error:
            if len(docnos) == 1:
                refused[docnos[0]] = error
                return {}
            middle = len(docnos) // 2
            return self._halved(docnos[:middle], refused) | self._halved(docnos[middle:], refused)
        if self.text_field not in loaded.columns:
            raise TypeError(f"the text loader {self._loader!r} gives no column {self.text_field!r}")
        titles = loaded[self.title_field] if self.title_field in loaded.columns else [None] * len(loaded)
        return {
            docno: f"{title} {text}" if isinstance(title, str) and title.strip() else text
            for docno, text, title in zip(loaded["docno"], loaded[self.text_field], titles, strict=True)
            if isinstance(text, str)
        }


def _documents(corpus: Any) -> Iterator[dict[str, Any]]:
    if isinstance(corpus, pd.DataFrame):
        if "docno" not in corpus.columns:
            raise ValueError(f"the corpus has no column 'docno', but {first_three(corpus.columns)}")
        frame = corpus.assign(docno=as_ids(corpus["docno"], "docno"))
        return (
            dict(zip(map(str, frame.columns), row, strict=True)) for row in frame.itertuples(index=False, name=None)
        )
    if hasattr(corpus, "get_corpus_iter"):
        return iter(corpus.get_corpus_iter())
    if callable(corpus):
        return iter(corpus())
    if isinstance(corpus, str | bytes | dict) or not isinstance(corpus, Iterable):
        raise TypeError(
            f"corpus is a {type(corpus).__name__}: give dicts with docno and text, a frame, a callable that "
            "gives an iterator, a data set, or a text loader (index.text_loader())"
        )
    return iter(corpus)


def as_store(corpus: Corpus | TextStore, text_field: str = "text", title_field: str | None = "title") -> TextStore:
    """``corpus`` as a store of texts; a store stays itself."""
    return corpus if isinstance(corpus, TextStore) else TextStore(corpus, text_field, title_field)
