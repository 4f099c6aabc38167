"""Frames as bytes and back, the same to the last digit: parquet, with lists, dicts and vectors as JSON inside."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd

_ARRAY = "__array__"
_METADATA = b"convsearch"


def frame_bytes(frame: pd.DataFrame) -> bytes:
    """A frame as parquet; columns that hold anything but plain values go as JSON, cell by cell.

    Raises:
        TypeError: a cell that is neither plain, list, dict nor array.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    nested = [name for name in frame.columns if frame[name].dtype == object]
    plain = frame.assign(**{
        name: pd.array([json.dumps(value, default=_as_json, ensure_ascii=True) for value in frame[name]], dtype="str")
        for name in nested
    })  # fmt: skip
    table = pa.Table.from_pandas(plain)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _METADATA: json.dumps(nested).encode()})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def frame_from_bytes(content: bytes) -> pd.DataFrame:
    """The frame of :func:`frame_bytes`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    frame: pd.DataFrame = table.to_pandas()
    for name in json.loads(table.schema.metadata[_METADATA]):
        cells = [json.loads(text, object_hook=_from_json) for text in frame[name]]
        column = pd.Series([None] * len(cells), index=frame.index, dtype=object)
        for row, cell in enumerate(cells):
            column.iat[row] = cell
        frame[name] = column
    return frame


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {_ARRAY: value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(
        f"{value!r} ({type(value).__name__}) cannot be kept in a checkpoint: text, numbers, lists, dicts, arrays can"
    )


def _from_json(value: dict[str, Any]) -> Any:
    return np.array(value[_ARRAY], dtype=value["dtype"]) if _ARRAY in value else value
