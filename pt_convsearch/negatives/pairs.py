"""A mined training set on disk."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyterrier as pt

from pt_convsearch import _files
from pt_convsearch._optional import require

from ._fingerprint import without_words
from .sampling import HISTORY, POSITIVE, draw, uniform

if TYPE_CHECKING:
    import datasets

logger = logging.getLogger(__name__)

PAIRS, PASSAGES, META = "pairs.parquet", "passages.parquet", "pt_meta.json"


@dataclass(frozen=True)
class Sample:
    """What one question is trained with in one epoch: rows of the passages file."""

    row: int
    query: str
    positive: int
    negatives: np.ndarray


class TrainingPairs(pt.Artifact):
    """A training set: questions as the model will read them, their golds, and the pool that negatives are drawn from.

    Made by :func:`training_pairs`; opened by its folder, checked against the checksums that were written with it. It
    is a PyTerrier Artifact, so it can be shared with ``to_hf`` and ``from_hf``. The folder holds

    - ``pairs.parquet``: qid, query, query_alone (the form without the history, where that makes sense), positives
      (docnos of the golds), negatives (docnos of the pool in the order of their ranks), ranks (from 0) and scores of
      retrieval; for a mix also source and weight;
    - ``passages.parquet``: docno, text, key (a hash of the words of the text: passages of equal key are the same
      passage);
    - ``pt_meta.json``: settings, counts, checksums.

    Args:
        path: the folder.

    Raises:
        FileNotFoundError: there is no mined set.
        ValueError: a file is cut, changed or missing; the message names it.

    Example:
        >>> import pt_convsearch as cs
        >>> pairs = cs.TrainingPairs("pairs.shortcut")
        >>> pairs.to_dataset(num_negatives=2).column_names
        ['query', 'positive', 'negative_1', 'negative_2']
    """

    ARTIFACT_TYPE = "training_pairs"
    ARTIFACT_FORMAT = "convsearch"
    ARTIFACT_PACKAGE_HINT = "pt-convsearch"

    def __init__(self, path: _files.PathLike) -> None:
        super().__init__(Path(path))
        self._folder = Path(path)
        #: the former that made the queries, where this set was mined in this process; else None
        self.form: pt.Transformer | None = None
        #: mines the same questions with another miner, where this set was made in this process
        self._again: Callable[..., TrainingPairs] | None = None
        #: where it lies, if that goes with it
        self._scratch: _files.Scratch | None = None
        meta = self._folder / META
        if not meta.is_file():
            raise FileNotFoundError(
                f"{self._folder} holds no mined training set (no {META}): make one with cs.training_pairs(…, out=…)"
            )
        self._meta = _files.json_or_none(meta)
        if not isinstance(self._meta, dict) or not {"settings", "counts", "files"} <= set(self._meta):
            raise ValueError(f"{meta} is cut or changed: mine the set again with cs.training_pairs(…)")
        for name, known in self._meta["files"].items():
            file = self._folder / name
            if not file.is_file() or file.stat().st_size != known["bytes"] or _files.sha256(file) != known["sha256"]:
                raise ValueError(
                    f"{file} is missing, cut or changed since it was written: mine it again with "
                    "cs.training_pairs(…), which rebuilds a damaged set"
                )

    def __repr__(self) -> str:
        return f"TrainingPairs({str(self._folder)!r})"

    def __len__(self) -> int:
        """The number of questions."""
        return int(self.counts["pairs"])

    @property
    def settings(self) -> dict[str, Any]:
        """How the set was made: form, miners, number of negatives, pool, seed, and hashes of what went in."""
        return dict(self._meta["settings"])

    @property
    def counts(self) -> dict[str, Any]:
        """What was kept, dropped and missing, by name.

        ``retrieved`` is what the pipeline gave, after what its filters took ("removed by …"). Each passage of it is
        counted once more: in ``negatives``, in one of those that begin with "dropped: ", or in "beyond the pool".
        """
        return dict(self._meta["counts"])

    @property
    def fingerprint(self) -> str:
        """A hash of the content, the same wherever the index of the miner lay."""
        parts = json.dumps([without_words(self._meta["settings"]), self._meta["files"]], sort_keys=True)
        return hashlib.blake2b(parts.encode("utf-8"), digest_size=16).hexdigest()

    @property
    def num_negatives(self) -> int:
        """How many negatives a question is trained with, unless the trainer is told otherwise."""
        return int(self._meta["settings"]["num_negatives"])

    def frame(self) -> pd.DataFrame:
        """The questions, one a row: the columns of ``pairs.parquet``."""
        return pd.read_parquet(self._folder / PAIRS)

    def passages(self) -> pd.DataFrame:
        """The passages of golds and pools: docno, text, key."""
        return pd.read_parquet(self._folder / PASSAGES)

    def shortages(self) -> pd.DataFrame:
        """qid and available (int) of the questions that have fewer negatives than asked for."""
        available = np.diff(self._table.negatives)
        short = available < self.num_negatives
        return pd.DataFrame({"qid": self._table.qids[short], "available": available[short]}).reset_index(drop=True)

    def mined_again(self, miner: pt.Transformer, *, out: _files.PathLike) -> TrainingPairs:
        """The same questions with the negatives of another miner.

        Args:
            miner: the pipeline.
            out: the folder to write.

        Raises:
            ValueError: the set was opened from disk, and what it was made from is not at hand.
        """
        if self._again is None:
            raise ValueError(
                f"{self!r} was opened from disk: call cs.training_pairs(…) in this process, "
                "which opens it from there as well"
            )
        return self._again(negatives=miner, out=out)

    @cached_property
    def _table(self) -> _Table:
        return _Table.read(self._folder)

    def sample(self, row: int, **options: Any) -> Sample:
        """What one question is trained with in an epoch; see :meth:`samples`."""
        return self.samples([row], **options)[0]

    def samples(
        self,
        rows: Sequence[int] | np.ndarray,
        *,
        epoch: int = 0,
        num_negatives: int | None = None,
        seed: int | None = None,
        mask_history: float = 0.0,
    ) -> list[Sample]:
        """What questions are trained with in an epoch: each a function of its row and the arguments, of nothing else.

        Args:
            rows: of the questions, from 0.
            epoch: from 0; each draws anew.
            num_negatives: how many negatives; those of the settings by default. Fewer where the pool is smaller.
            seed: that of the settings by default.
            mask_history: the chance that the history is left out of the query.
        """
        table = self._table
        rows = np.asarray(rows, dtype=np.int64)
        seed = int(self._meta["settings"]["seed"]) if seed is None else seed
        count = self.num_negatives if num_negatives is None else num_negatives
        first, starts = table.positives[rows], table.negatives[rows]
        chances = uniform(seed, epoch, rows, np.array([POSITIVE, HISTORY]))
        positives = table.positive_rows[first + (chances[:, 0] * (table.positives[rows + 1] - first)).astype(np.int64)]
        sizes = table.negatives[rows + 1] - starts
        weights = None
        if table.weights is not None and len(table.weights):
            places = starts[:, None] + np.arange(sizes.max(initial=0))[None, :]
            weights = table.weights[np.minimum(places, len(table.weights) - 1)]
        drawn = draw(seed, epoch, rows, sizes, count, weights)
        return [
            Sample(
                row=int(row),
                query=table.alone[row] if chance < mask_history and table.alone[row] else table.queries[row],
                positive=int(positive),
                negatives=table.negative_rows[start + own],
            )
            for row, positive, chance, start, own in zip(rows, positives, chances[:, 1], starts, drawn, strict=True)
        ]

    def texts(self, rows: np.ndarray | list[int]) -> list[str]:
        """Texts of rows of the passages file, read from a memory-mapped ``datasets`` table."""
        return self.passage_dataset.select_columns("text")[np.asarray(rows).tolist()]["text"] if len(rows) else []

    @cached_property
    def passage_dataset(self) -> datasets.Dataset:
        """``passages.parquet`` as a ``datasets.Dataset``, on disk as long as this set is open."""
        self._cache = _files.Scratch("pt_convsearch-passages")
        return _dataset(self._folder / PASSAGES, cache=self._cache.path)

    def keys(self) -> np.ndarray:
        """The key of each row of the passages file (int64)."""
        return self._table.keys

    def gold_keys(self, row: int) -> np.ndarray:
        """The keys of all golds of a question: no passage of these keys is a negative of it."""
        table = self._table
        return table.keys[table.positive_rows[table.positives[row] : table.positives[row + 1]]]

    def can_mask_history(self) -> bool:
        """Whether every question has a form without its history."""
        return bool(all(self._table.alone))

    def to_dataset(
        self, *, num_negatives: int | None = None, epoch: int = 0, seed: int | None = None, mask_history: float = 0.0
    ) -> datasets.Dataset:
        """One epoch in the columns that sentence-transformers reads: query, positive, negative_1 … negative_n.

        Questions with fewer than n negatives are left out of it, and counted in the log: its losses need every column.
        """
        module = require("datasets", step="training", install="pt-convsearch[train]")
        count = self.num_negatives if num_negatives is None else num_negatives
        samples = self.samples(
            np.arange(len(self)), epoch=epoch, num_negatives=count, seed=seed, mask_history=mask_history
        )
        full = [sample for sample in samples if len(sample.negatives) == count]
        if len(full) < len(samples):
            logger.warning("%d questions with fewer than %d negatives are left out", len(samples) - len(full), count)
        columns = {
            "query": [sample.query for sample in full],
            "positive": self.texts([sample.positive for sample in full]),
        }
        for place in range(count):
            columns[f"negative_{place + 1}"] = self.texts([int(sample.negatives[place]) for sample in full])
        return module.Dataset.from_dict(columns)


@dataclass(frozen=True)
class _Table:
    """Arrays of pairs.parquet; docnos are rows of passages.parquet. ``positives`` and ``negatives`` are offsets, one
    more than rows."""

    qids: np.ndarray
    queries: list[str]
    alone: list[str]
    positives: np.ndarray
    positive_rows: np.ndarray
    negatives: np.ndarray
    negative_rows: np.ndarray
    weights: np.ndarray | None
    keys: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> _Table:
        pairs = pq.read_table(folder / PAIRS).combine_chunks()
        passages = pq.read_table(folder / PASSAGES, columns=["docno", "key"])
        docnos = pd.Index(passages.column("docno").to_pandas())
        positives, positive_docnos = _lists(pairs.column("positives"))
        negatives, negative_docnos = _lists(pairs.column("negatives"))
        return cls(
            qids=pairs.column("qid").to_pandas().to_numpy(dtype=object),
            queries=pairs.column("query").to_pylist(),
            alone=pairs.column("query_alone").to_pylist(),
            positives=positives,
            positive_rows=docnos.get_indexer(positive_docnos.to_pandas()),
            negatives=negatives,
            negative_rows=docnos.get_indexer(negative_docnos.to_pandas()),
            weights=_lists(pairs.column("weight"))[1].to_numpy(zero_copy_only=False)
            if "weight" in pairs.column_names
            else None,
            keys=passages.column("key").to_numpy(),
        )


def _lists(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Offsets and values of a column of lists."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # no chunk at all
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], column.type)
    lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), values.flatten()


def _dataset(path: Path, *, cache: Path) -> datasets.Dataset:
    """A parquet file, memory-mapped from a copy of ``datasets`` own: its common cache would keep every set for ever."""
    module = require("datasets", step="training", install="pt-convsearch[train]")
    shown = module.are_progress_bars_disabled()
    module.disable_progress_bars()
    try:
        return module.Dataset.from_parquet(str(path), cache_dir=str(cache))
    finally:
        if not shown:
            module.enable_progress_bars()
