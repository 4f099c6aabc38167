"""An impact index that is open: its arrays, and documents as vectors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..topics.checks import first_three
from .folders import Kind
from .reading import WeightedTerms
from .storage import Lookup, load_array

if TYPE_CHECKING:
    import scipy.sparse

KIND = Kind("sparse_index", "convsearch_impacts", 1, "impact index", "ImpactIndex")


class ImpactReading(WeightedTerms):
    """The open files of an impact index; one per index object and process.

    Raises:
        FileNotFoundError: there is no index at the path.
        ValueError: the folder holds something else, another version of the format, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = KIND.meta(path)
        self.num_docs = int(self.meta["num_docs"])
        try:
            super().__init__(Lookup(path, "lexicon"))
            self._open()
        except ValueError as error:
            raise ValueError(f"the index at {path} is damaged: {error}; build it anew") from error

    def _open(self) -> None:
        path, meta = self.path, self.meta
        self.offsets = load_array(path, "postings.offsets")
        self.docs = load_array(path, "postings.docs")  # within blocks of 65,536 documents
        self.blocks = tuple(load_array(path, f"blocks.{name}") for name in ("offsets", "ids", "sizes"))
        self.weights = load_array(path, "postings.weights")
        self.docnos = Lookup(path, "docnos")
        self._forward = tuple(load_array(path, f"forward.{name}") for name in ("offsets", "terms", "weights"))
        lengths: list[tuple[Any, ...]] = [
            (meta["num_docs"], self.docnos, self._forward[0][1:]),
            (meta["num_terms"], self.lexicon, self.offsets[1:], self.blocks[0][1:]),
            (meta["num_postings"], self.docs, self.weights, *self._forward[1:]),
            (len(self.blocks[1]), self.blocks[2]),
        ]
        ends: list[tuple[Any, ...]] = [
            (meta["num_postings"], self.offsets[-1:], self._forward[0][-1:]), (len(self.blocks[1]), self.blocks[0][-1:])
        ]  # fmt: skip
        if any(len(file) != count for count, *files in lengths for file in files) or any(
            file.tolist() != [end] for end, *files in ends for file in files
        ):
            raise ValueError("its files do not fit its pt_meta.json")

    def doc_ids(self, docnos: Iterable[str]) -> np.ndarray:
        docnos = list(docnos)
        ids = self.docnos.find(docnos)
        if len(ids) and ids.min() < 0:
            unknown = sorted({docno for docno, i in zip(docnos, ids, strict=True) if i < 0})
            raise ValueError(f"{len(unknown)} docnos are not in the index at {self.path}: {first_three(unknown)}")
        return ids

    def vectors(self, ids: np.ndarray) -> scipy.sparse.csr_matrix:
        import scipy.sparse

        offsets, terms, weights = self._forward
        firsts, lasts = offsets[ids], offsets[np.asarray(ids) + 1]
        starts = np.concatenate([[0], np.cumsum(lasts - firsts)])
        at = np.repeat(firsts - starts[:-1], lasts - firsts) + np.arange(starts[-1])
        shape = (len(ids), len(self.lexicon))
        return scipy.sparse.csr_matrix((weights[at], terms[at].astype(np.int64), starts), shape=shape)
