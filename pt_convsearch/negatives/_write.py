"""Writing a mined set: two parquet files and what was counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pt_convsearch import _files

from ._parts import Parts
from ._pool import Golds
from ._texts import TextStore
from .pairs import META, PAIRS, PASSAGES, _lists

_CHUNK = 50_000


def write_pairs(
    target: Path,
    questions: pd.DataFrame,
    golds: Golds,
    store: TextStore,
    parts: Parts,
    counts: dict[str, Any],
    settings: dict[str, Any],
    *,
    num_negatives: int,
    seed: int,
) -> None:
    """Write the set under a temporary name and rename it to ``target``."""
    mined, tally = parts.read(parts.done)
    table = _table(questions, golds, mined)
    lengths = np.diff(_lists(table.column("negatives"))[0])
    counts = {
        **counts,
        **dict(sorted(tally.items())),
        "negatives": int(lengths.sum()),
        "smallest pool": int(lengths.min()),
        "fewer negatives than asked for": int((lengths < num_negatives).sum()),
    }
    with _files.written(target) as temporary:
        temporary.mkdir()
        pq.write_table(table, temporary / PAIRS)
        _write_passages(temporary / PASSAGES, table, store)
        files = {
            name: {"bytes": (temporary / name).stat().st_size, "sha256": _files.sha256(temporary / name)}
            for name in (PAIRS, PASSAGES)
        }
        meta = {
            "type": "training_pairs",
            "format": "convsearch",
            "package_hint": "pt-convsearch",
            "settings": {**settings, "num_negatives": num_negatives, "seed": seed},
            "counts": counts,
            "files": files,
        }
        _files.write_json(temporary / META, meta)


def _table(questions: pd.DataFrame, golds: Golds, mined: pa.Table | None) -> pa.Table:
    question = pd.Index(questions["qid"]).get_indexer(pd.Index(golds.qids))
    every = np.argsort(question, kind="stable")
    with_text = every[golds.rows[every] >= 0]
    columns: dict[str, Any] = {
        "qid": pa.array(questions["qid"].to_numpy(dtype=object), pa.string()),
        "query": pa.array(questions["formed"].tolist(), pa.large_string()),
        "query_alone": pa.array(questions["alone"].tolist(), pa.large_string()),
        "positives": _grouped(golds.docnos[with_text], question[with_text], len(questions)),
        "golds": _grouped(golds.docnos[every], question[every], len(questions)),
    }
    if mined is None:
        nothing: list[list[Any]] = [[] for _ in range(len(questions))]
        kinds = {"negatives": pa.string(), "ranks": pa.int32(), "scores": pa.float32()}
        columns.update({name: pa.array(nothing, pa.list_(kind)) for name, kind in kinds.items()})
    else:
        columns.update({name: mined.column(name) for name in mined.column_names if name != "qid"})
    return pa.table(columns)


def _grouped(docnos: np.ndarray, question: np.ndarray, size: int) -> pa.Array:
    """Docnos, in the order of their questions, as one list a question."""
    offsets = np.searchsorted(question, np.arange(size + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(docnos, pa.string()))


def _write_passages(path: Path, table: pa.Table, store: TextStore) -> None:
    docnos = pd.unique(
        np.concatenate(
            [_lists(table.column(name))[1].to_pandas().to_numpy(dtype=object) for name in ("positives", "negatives")]
        )
    )
    schema = pa.schema([("docno", pa.string()), ("text", pa.large_string()), ("key", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, len(docnos), _CHUNK):
            part = docnos[start : start + _CHUNK]
            rows = store.rows(part)
            values = [
                pa.array(part, pa.string()),
                pa.array(store.texts(rows), pa.large_string()),
                pa.array(store.keys(rows)),
            ]
            writer.write_batch(pa.record_batch(values, schema=schema))
