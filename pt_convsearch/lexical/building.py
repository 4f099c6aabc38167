"""Building an index from a stream: runs of postings go to disk, then are merged term by term, in bounded memory."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..topics.checks import as_id, has_value
from . import kernels
from .analysis import Analyzer
from .postings import Postings, write_lexicon
from .storage import ArrayWriter, Lookup, StringsWriter, load_array

logger = logging.getLogger(__name__)

BATCH_TOKENS = 4_000_000  # tokens held in memory before a run of postings is written
MERGE_POSTINGS = 16_000_000  # postings held in memory while runs are merged
CHUNK_CACHE = 2_000_000  # distinct pieces of text whose terms are remembered
LONGEST_CACHED = 64  # longer pieces between white space (URLs, Chinese sentences) are analysed each time


def build(
    docs: Iterable[dict[str, Any]] | pd.DataFrame,
    folder: Path,
    analyzer: Analyzer,
    *,
    text_field: Sequence[str] = ("title", "text"),
    store_text: bool = True,
) -> dict[str, Any]:
    """Write an index of ``docs`` into the empty ``folder``.

    Args:
        docs: dicts with ``docno`` and at least the last of ``text_field``; consumed once, as a stream.
        folder: where the arrays go.
        analyzer: text to terms.
        text_field: what is searched, joined by a blank; all but the last may be absent.
        store_text: keep the texts, for :meth:`BM25Index.text_loader`.

    Returns:
        the counts and the fingerprint of the collection, for the metadata.

    Raises:
        TypeError: something that is no dict.
        ValueError: a docno that is missing, empty, repeated or holds white space, or a document without text.
    """
    builder = _Builder(folder, analyzer, tuple(text_field), store_text)
    for doc in dicts(docs):
        builder.add(doc)
    return builder.finish()


def dicts(docs: Iterable[dict[str, Any]] | pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Documents one after the other, of a frame too."""
    if not isinstance(docs, pd.DataFrame):
        yield from docs
        return
    for start in range(0, len(docs), 10_000):
        yield from docs.iloc[start : start + 10_000].to_dict("records")  # type: ignore[misc]


class _Chunks(dict[str, int]):
    """Number of a piece of text between white space; its terms are worked out when it is first met."""

    def __init__(self, builder: _Builder) -> None:
        super().__init__()
        self.lengths = array("I")
        self.terms = array("I")
        self._builder = builder

    def __missing__(self, chunk: str) -> int:
        number = self.append(self._builder.analyzer(chunk))
        if len(chunk) <= LONGEST_CACHED:
            self[chunk] = number
        return number

    def append(self, tokens: list[str]) -> int:
        ids = [self._builder.terms.setdefault(token, len(self._builder.terms)) for token in tokens]
        self.lengths.append(len(ids))
        self.terms.extend(ids)
        return len(self.lengths) - 1


class _Builder:
    def __init__(self, folder: Path, analyzer: Analyzer, text_field: tuple[str, ...], store_text: bool) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.runs.mkdir(parents=True)
        self.analyzer = analyzer
        self.text_field = text_field
        self.terms: dict[str, int] = {}
        self.num_docs = 0
        self._postings = Postings(folder, self.runs, "tfs", np.uint32)
        self.max_tf = 0
        self.num_tokens = 0
        self._chunks = _Chunks(self)
        self._pieces = array("I")  # chunk numbers of the documents of this batch, one after another
        self._ends = array("Q")
        self._docnos: list[str] = []
        self._texts: list[tuple[str, ...]] = []
        self._digests = [hashlib.sha256() for _ in range(2 * (1 + len(text_field)))]
        self._sample: dict[int, str] = {}
        self._docno_file = StringsWriter(folder, "docnos")
        self._text_files = [StringsWriter(folder, f"stored.{name}") for name in text_field] if store_text else []
        self._lengths = ArrayWriter(folder, "lengths", np.uint32)
        self._fwd_terms = ArrayWriter(folder, "forward.terms", np.uint32)
        self._fwd_tfs = ArrayWriter(self.runs, "forward.tfs", np.uint32)
        self._fwd_offsets = ArrayWriter(folder, "forward.offsets", np.int64)
        self._fwd_offsets.write(np.zeros(1))

    def add(self, doc: dict[str, Any]) -> None:
        texts = self._checked(doc)
        text = " ".join(texts) if len(texts) > 1 else texts[0]
        if self.analyzer.by_chunk:
            self._pieces.extend(map(self._chunks.__getitem__, text.split()))
        else:
            self._pieces.append(self._chunks.append(self.analyzer(text)))
        self._ends.append(len(self._pieces))
        self._texts.append(texts)
        held = max(len(self._pieces), len(self._chunks.terms), 8 * len(self._texts))
        if held >= BATCH_TOKENS or len(self._chunks) >= CHUNK_CACHE:
            self._flush()

    def _checked(self, doc: dict[str, Any]) -> tuple[str, ...]:
        """The texts of a document, its docno taken down."""
        docno = checked_docno(doc, self.num_docs + len(self._docnos))
        self._docnos.append(docno)
        return tuple([self._text(name, doc.get(name), docno) for name in self.text_field])

    def _text(self, name: str, value: Any, docno: str) -> str:
        if isinstance(value, str):
            return value
        if name != self.text_field[-1] and not has_value(value):
            return ""
        raise ValueError(
            f"document {docno!r} has no text in {name!r} (found {value!r}): give a str, '' for an empty one"
        )

    def _flush(self) -> None:
        """Write this batch: texts and docnos, the forward index, and a run of postings sorted by term."""
        docnos = self._docnos
        if not docnos:
            return
        if len(set(docnos)) < len(docnos):
            seen: set[str] = set()
            raise repeated([docno for docno in docnos if docno in seen or seen.add(docno)])  # type: ignore[func-returns-value]
        self._write_strings()
        chunk_offsets = np.zeros(len(self._chunks.lengths) + 1, dtype=np.int64)
        np.cumsum(np.frombuffer(self._chunks.lengths, dtype=np.uint32), out=chunk_offsets[1:])
        ends = np.frombuffer(self._ends, dtype=np.uint64).astype(np.int64)
        pieces = np.frombuffer(self._pieces, dtype=np.uint32)
        num_tokens = kernels.count_tokens(pieces, chunk_offsets)
        terms = np.empty(num_tokens, dtype=np.uint32)
        tfs = np.empty(num_tokens, dtype=np.uint32)
        lengths = np.empty(len(ends), dtype=np.uint32)
        unique = np.empty(len(ends), dtype=np.int64)
        chunk_terms = np.frombuffer(self._chunks.terms, dtype=np.uint32)
        size = kernels.count_terms(
            pieces, ends, chunk_offsets, chunk_terms, len(self.terms), terms, tfs, lengths, unique
        )
        terms, tfs = terms[:size], tfs[:size]
        self._fwd_offsets.write(self._fwd_terms.length + np.cumsum(unique))
        self._fwd_terms.write(terms)
        self._fwd_tfs.write(tfs)
        self._lengths.write(lengths)
        self._postings.add(terms, tfs, unique, self.num_docs, len(self.terms))
        self.num_docs += len(docnos)
        self.num_tokens += num_tokens
        self.max_tf = max(self.max_tf, int(tfs.max(initial=0)))
        self._docnos, self._texts = [], []
        self._pieces, self._ends = array("I"), array("Q")
        self._chunks = _Chunks(self)

    def _write_strings(self) -> None:
        for number in (0, len(self._docnos) - 1):
            self._sample[self.num_docs + number] = self._docnos[number]
        try:
            encoded = [docno.encode() for docno in self._docnos]
        except UnicodeEncodeError as error:
            raise ValueError(f"docno {error.object!r} is no valid Unicode (a lone surrogate): replace it") from None
        columns = [
            encoded,
            *([text.encode("utf-8", "replace") for text in texts] for texts in zip(*self._texts, strict=True)),
        ]
        for i, column in enumerate(columns):
            self._digests[2 * i].update(b"".join(column))
            self._digests[2 * i + 1].update(np.fromiter(map(len, column), dtype="<i8", count=len(column)).tobytes())
        for writer, column in zip([self._docno_file, *self._text_files], columns, strict=False):
            writer.write(column)

    def finish(self) -> dict[str, Any]:
        self._flush()
        for strings in (self._docno_file, *self._text_files):
            strings.close()
        for numbers in (self._lengths, self._fwd_terms, self._fwd_tfs, self._fwd_offsets):
            numbers.close()
        write_lexicon(self.folder, self.terms)
        # tfs get the narrowest type that holds them
        narrow = np.min_scalar_type(self.max_tf)
        num_postings = self._postings.merge(len(self.terms), narrow, MERGE_POSTINGS)
        forward = load_array(self.runs, "forward.tfs")
        with ArrayWriter(self.folder, "forward.tfs", narrow) as writer:
            for start in range(0, len(forward), MERGE_POSTINGS):
                writer.write(forward[start : start + MERGE_POSTINGS])
        Lookup.write_order(self.folder, "docnos")
        total, examples = Lookup.repeated(self.folder, "docnos")
        if total:
            raise repeated(examples, total)
        self._read_back()
        for path in self.runs.iterdir():
            path.unlink()
        self.runs.rmdir()
        digest = hashlib.sha256(b"".join(digest.digest() for digest in self._digests))
        return {
            "num_docs": self.num_docs,
            "num_terms": len(self.terms),
            "num_postings": num_postings,
            "num_tokens": self.num_tokens,
            "fingerprint": digest.hexdigest(),
        }

    def _read_back(self) -> None:
        """What is stored is what came in: the count, and a sample of docnos."""
        docnos = Lookup(self.folder, "docnos")
        stored = {number: docnos[number] for number in self._sample}
        if len(docnos) != self.num_docs or stored != self._sample:
            raise RuntimeError(f"{self.num_docs} documents came in, {len(docnos)} were stored: is the disk full?")


def checked_docno(doc: Any, place: int) -> str:
    """The docno of a document, as str; ``place`` is the document's in the collection, for messages.

    Raises:
        TypeError: something that is no dict.
        ValueError: a docno that is missing, empty or holds white space.
    """
    if not isinstance(doc, dict):
        raise TypeError(f"documents are dicts with docno and text, not {type(doc).__name__}: {_short(doc)}")
    docno = doc.get("docno")
    if not isinstance(docno, str):
        try:
            docno = as_id(docno, "docno")
        except ValueError as error:
            raise ValueError(f"document {place} of the collection: {error} ({_short(doc)})") from None
    if docno.split() != [docno]:
        what = "holds white space" if docno.strip() else "is empty"
        raise ValueError(f"docno {docno!r} {what}: no run file can hold it; replace white space, e.g. by '_'")
    return docno


def repeated(docnos: Sequence[str], total: int | None = None) -> ValueError:
    examples = ", ".join(map(repr, docnos[:3]))
    return ValueError(
        f"docnos stand for more than one document ({examples}; {total or len(docnos)} such): keep one of each"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
