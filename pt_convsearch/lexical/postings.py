"""Postings of a collection larger than memory: runs sorted by term go to disk, then are merged term by term."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from . import kernels
from .storage import ArrayWriter, Lookup, StringsWriter, load_array


class Postings:
    """Writes ``postings.*`` and ``blocks.*``, what :func:`~pt_convsearch.lexical.kernels.search` reads.

    Args:
        folder: of the index.
        runs: a folder for the runs, which exists.
        values: what a posting holds besides its document: "tfs", "weights".
        dtype: of these values, while they are gathered.
    """

    def __init__(self, folder: Path, runs: Path, values: str, dtype: Any) -> None:
        self.folder = folder
        self.runs = runs
        self.values = values
        self.dtype = np.dtype(dtype)
        self.num_runs = 0

    def add(self, terms: np.ndarray, values: np.ndarray, unique: np.ndarray, first_doc: int, num_terms: int) -> None:
        """Write the postings of a batch of documents as a run.

        Args:
            terms: of the documents, one after the other, each once per document.
            values: of the terms.
            unique: how many terms each document has.
            first_doc: the number of the first one.
            num_terms: how many terms are known by now.
        """
        counts = np.bincount(terms, minlength=num_terms).astype(np.int64)
        docs = np.empty(len(terms), dtype=np.uint32)
        ordered = np.empty(len(terms), dtype=self.dtype)
        kernels.sort_by_term(terms, values, unique, first_doc, np.cumsum(counts) - counts, docs, ordered)
        present = np.flatnonzero(counts)
        run: dict[str, np.ndarray] = {"terms": present, "counts": counts[present], "docs": docs, self.values: ordered}
        for name, array in run.items():
            np.save(self.runs / f"{self.num_runs}.{name}.npy", array, allow_pickle=False)
        self.num_runs += 1

    def merge(self, num_terms: int, dtype: Any, at_a_time: int) -> int:
        """Merge the runs, a range of terms of about ``at_a_time`` postings at a time; returns how many there are.

        Args:
            num_terms: how many terms there are.
            dtype: of the values, as they are kept.
            at_a_time: postings held in memory.
        """
        runs = [
            [load_array(self.runs, f"{run}.{name}") for name in ("terms", "counts", "docs", self.values)]
            for run in range(self.num_runs)
        ]
        df = np.zeros(num_terms, dtype=np.int64)
        for terms, counts, _, _ in runs:
            df[terms] += counts
        offsets = np.concatenate([[0], np.cumsum(df)]).astype(np.int64)
        np.save(self.folder / "postings.offsets.npy", offsets, allow_pickle=False)
        at = [(0, 0)] * self.num_runs  # how far each run was read: terms, postings
        first = 0
        with (
            ArrayWriter(self.folder, "postings.docs", np.uint16) as docs_file,
            ArrayWriter(self.folder, f"postings.{self.values}", dtype) as values_file,
            ArrayWriter(self.folder, "blocks.offsets", np.int64) as block_offsets_file,
            ArrayWriter(self.folder, "blocks.ids", np.uint16) as block_ids_file,
            ArrayWriter(self.folder, "blocks.sizes", np.uint16) as block_sizes_file,
        ):
            block_offsets_file.write(np.zeros(1))
            while first < num_terms:
                last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + at_a_time, side="right")) - 1)
                size = int(offsets[last] - offsets[first])
                docs, values = np.empty(size, dtype=np.uint32), np.empty(size, dtype=dtype)
                cursors = offsets[first:last] - offsets[first]
                for run, (run_terms, run_counts, run_docs, run_values) in enumerate(runs):
                    a, p = at[run]
                    b = int(np.searchsorted(run_terms, last))
                    terms, counts = np.asarray(run_terms[a:b]) - first, np.asarray(run_counts[a:b])
                    end = p + int(counts.sum())
                    kernels.scatter_run(
                        terms, counts, np.asarray(run_docs[p:end]), np.asarray(run_values[p:end]), cursors, docs, values
                    )
                    at[run] = (b, end)
                local, block_ids, block_sizes = (np.empty(size, dtype=np.uint16) for _ in range(3))
                block_ends = np.empty(last - first, dtype=np.int64)
                ends = offsets[first + 1 : last + 1] - offsets[first]
                num_blocks = kernels.cut_into_blocks(ends, docs, local, block_ids, block_sizes, block_ends)
                block_offsets_file.write(block_ids_file.length + block_ends)
                block_ids_file.write(block_ids[:num_blocks])
                block_sizes_file.write(block_sizes[:num_blocks])
                docs_file.write(local)
                values_file.write(values)
                first = last
        return int(offsets[-1])


def write_lexicon(folder: Path, terms: Iterable[str]) -> None:
    """Write the terms, in the order of their numbers, so that each is found by its text."""
    lexicon = StringsWriter(folder, "lexicon")
    names = iter(terms)
    while batch := [name.encode("utf-8", "replace") for _, name in zip(range(100_000), names, strict=False)]:
        lexicon.write(batch)
    lexicon.close()
    Lookup.write_order(folder, "lexicon")
