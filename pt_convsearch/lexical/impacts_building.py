"""Building an impact index from a stream: runs of postings go to disk, then are merged, in bounded memory."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from . import building
from .building import checked_docno, repeated
from .postings import Postings, write_lexicon
from .storage import ArrayWriter, Lookup, StringsWriter

ENCODED_AT_A_TIME = 1024  # texts given to the encoder together


def build(
    docs: Iterable[dict[str, Any]] | pd.DataFrame, folder: Path, encoder: Any, *, verbose: bool
) -> dict[str, Any]:
    """Write an index of ``docs`` into the empty ``folder``; see :meth:`ImpactIndex.index`.

    Returns:
        the counts and the fingerprint of the weights, for the metadata.
    """
    builder = _Builder(folder)
    stream = building.dicts(docs)
    if verbose:
        from tqdm.auto import tqdm

        stream = tqdm(stream, unit="doc", desc="impact index")
    for doc, toks in _weighted(stream, encoder):
        builder.add(doc, toks)
    return builder.finish()


def _weighted(docs: Iterable[dict[str, Any]], encoder: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each document with its weights: those that it brings, or the encoder's."""
    if encoder is None:
        for doc in docs:
            yield doc, doc.get("toks") if isinstance(doc, dict) else None
        return
    docs = iter(docs)
    while part := list(islice(docs, ENCODED_AT_A_TIME)):
        texts = [doc for doc in part if isinstance(doc, dict) and doc.get("toks") is None]
        encoded = iter(encoder.doc_toks(texts))
        for doc in part:
            own = doc.get("toks") if isinstance(doc, dict) else None
            yield doc, next(encoded) if own is None and isinstance(doc, dict) else own


class _Builder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.terms: dict[str, int] = {}
        self.num_docs = 0
        self._digest = hashlib.sha256()
        self._docno_file = StringsWriter(folder, "docnos")
        self._postings = Postings(folder, self.runs, "weights", np.float32)
        self._fwd_terms = ArrayWriter(folder, "forward.terms", np.uint32)
        self._fwd_weights = ArrayWriter(folder, "forward.weights", np.float32)
        self._fwd_offsets = ArrayWriter(folder, "forward.offsets", np.int64)
        self._fwd_offsets.write(np.zeros(1))
        self._begin()

    def _begin(self) -> None:
        self._docnos: list[str] = []
        self._unique = array("Q")
        self._ids = array("I")
        self._weights = array("f")

    def add(self, doc: Any, toks: Any) -> None:
        docno = checked_docno(doc, self.num_docs + len(self._docnos))
        if not isinstance(toks, dict):
            raise ValueError(
                f"document {docno!r} has no weights (toks is {toks!r}): give a dict of term -> weight, {{}} for none"
            )
        before = len(self._ids)
        for term, weight in toks.items():
            if not isinstance(term, str) or not isinstance(weight, int | float | np.number):
                raise ValueError(
                    f"toks of document {docno!r} holds {term!r}: {weight!r}: terms are str, weights numbers"
                )
            small = np.float32(weight)
            if not math.isfinite(small) or weight < 0:
                raise ValueError(
                    f"toks of document {docno!r}: weight {weight!r} of {term!r} is negative or no finite float32"
                )
            if small:
                self._ids.append(self.terms.setdefault(term, len(self.terms)))
                self._weights.append(float(small))
        self._docnos.append(docno)
        self._unique.append(len(self._ids) - before)
        if max(len(self._ids), 8 * len(self._docnos)) >= building.BATCH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        docnos = self._docnos
        if not docnos:
            return
        if len(set(docnos)) < len(docnos):
            seen: set[str] = set()
            raise repeated([docno for docno in docnos if docno in seen or seen.add(docno)])  # type: ignore[func-returns-value]
        try:
            encoded = [docno.encode() for docno in docnos]
        except UnicodeEncodeError as error:
            raise ValueError(f"docno {error.object!r} is no valid Unicode (a lone surrogate): replace it") from None
        self._docno_file.write(encoded)
        terms = np.frombuffer(self._ids, dtype=np.uint32)
        weights = np.frombuffer(self._weights, dtype=np.float32)
        unique = np.frombuffer(self._unique, dtype=np.uint64).astype(np.int64)
        for part in (b"\n".join(encoded), unique.tobytes(), terms.tobytes(), weights.tobytes()):
            self._digest.update(part)
        self._fwd_offsets.write(self._fwd_terms.length + np.cumsum(unique))
        self._fwd_terms.write(terms)
        self._fwd_weights.write(weights)
        self._postings.add(terms, weights, unique, self.num_docs, len(self.terms))
        self.num_docs += len(docnos)
        self._begin()

    def finish(self) -> dict[str, Any]:
        self._flush()
        for writer in (self._docno_file, self._fwd_terms, self._fwd_weights, self._fwd_offsets):
            writer.close()
        write_lexicon(self.folder, self.terms)
        num_postings = self._postings.merge(len(self.terms), np.float32, building.MERGE_POSTINGS)
        Lookup.write_order(self.folder, "docnos")
        total, examples = Lookup.repeated(self.folder, "docnos")
        if total:
            raise repeated(examples, total)
        for path in self.runs.iterdir():
            path.unlink()
        self.runs.rmdir()
        self._digest.update("\n".join(self.terms).encode("utf-8", "surrogatepass"))
        return {
            "num_docs": self.num_docs,
            "num_terms": len(self.terms),
            "num_postings": num_postings,
            "fingerprint": self._digest.hexdigest(),
        }
