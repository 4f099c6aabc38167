"""A collection that a worker can read from its beginning: a data set, a function, files, or a copy on disk."""

from __future__ import annotations

import glob
import io
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._files import PathLike
from ..topics.checks import as_ids, first_three
from ..topics.frames import frames_of
from .storage import Storage, is_remote

_JSON = (".jsonl", ".ndjson", ".json")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_SPOOLED = 65_536

Source = Callable[[], Iterator[dict[str, Any]]]


def source(corpus: Any, spool: Storage, fields: Sequence[str], options: dict[str, Any] | None = None) -> Source:
    """A picklable function that gives the passages, the same each time.

    Args:
        corpus: a data set of ours, or its name after ``convsearch:``; a function that gives an iterator; the path or
            address of a JSON Lines or parquet file, of a folder of such, a pattern with ``*``, or a list of those
            (read in that order; files of a folder or pattern in the order of their names); a data frame or any other
            iterable of dicts.
        spool: where an iterable that cannot be read twice is copied to.
        fields: the keys that are needed.
        options: for fsspec's file system, for addresses.

    Raises:
        FileNotFoundError: a path or pattern without files.
        ValueError: a file of another kind; a data set without a corpus.
    """
    if isinstance(corpus, str) and corpus.startswith("convsearch:"):
        from ..datasets import dataset

        corpus = dataset(corpus.removeprefix("convsearch:"))
    if hasattr(corpus, "get_corpus_iter"):
        return _CorpusOf(corpus)
    if isinstance(corpus, str | os.PathLike):
        return FileSource(files_of(corpus, options), options)
    if isinstance(corpus, list | tuple) and corpus and all(isinstance(item, str | os.PathLike) for item in corpus):
        return FileSource([file for item in corpus for file in files_of(item, options)], options)
    if callable(corpus) and _travels(corpus):
        return corpus
    records = corpus() if callable(corpus) else corpus
    return FileSource(_spooled(records, spool, fields), spool.options)


def _travels(function: Any) -> bool:
    try:
        pickle.dumps(function)
    except Exception:  # whatever an object's own pickling raises
        return False
    return True


class _CorpusOf:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self) -> Iterator[dict[str, Any]]:
        return self.dataset.get_corpus_iter()


class FileSource:
    """Dicts from JSON Lines and parquet files, one file after another."""

    def __init__(self, files: Sequence[str], options: dict[str, Any] | None = None) -> None:
        self.files = list(files)
        self.options = dict(options or {})

    def __call__(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            yield from _parquet(file, self.options) if file.endswith(".parquet") else _jsonl(file, self.options)


def files_of(address: PathLike, options: dict[str, Any] | None = None) -> list[str]:
    """The JSON Lines and parquet files of a path, folder, pattern or address, in the order of their names."""
    text = os.fspath(address)
    if is_remote(text):
        import fsspec

        fs = fsspec.core.url_to_fs(text, **(options or {}))[0]
        scheme = text.partition("://")[0]
        found = fs.glob(text) if "*" in text else fs.find(text)
        found = [f"{scheme}://{file}" for file in sorted(found)]
    elif Path(text).is_dir():
        found = sorted(str(path) for path in Path(text).iterdir() if path.is_file())
    else:
        named = [text] if Path(text).is_file() else []
        found = sorted(glob.glob(text)) if "*" in text else named  # noqa: PTH207
    known = [file for file in found if _kind(file)]
    if not found:
        raise FileNotFoundError(f"no file at {text}")
    if not known:
        raise ValueError(f"{text}: neither JSON Lines (.jsonl, .jsonl.gz …) nor parquet, but {first_three(found)}")
    return known


def _kind(file: str) -> str | None:
    plain = file.removesuffix(next((ending for ending in _COMPRESSED if file.endswith(ending)), ""))
    if file.endswith(".parquet"):
        return "parquet"
    return "jsonl" if plain.endswith(_JSON) else None


def _jsonl(file: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import fsspec

    with fsspec.open(file, "rb", compression="infer", **(options if is_remote(file) else {})) as raw:
        for number, line in enumerate(io.TextIOWrapper(raw, encoding="utf-8-sig"), 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{file}, line {number}: not valid JSON ({error})") from error


def _parquet(file: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import fsspec
    import pyarrow.parquet as pq

    with fsspec.open(file, "rb", **(options if is_remote(file) else {})) as raw:
        for batch in pq.ParquetFile(raw).iter_batches(batch_size=4096):
            yield from batch.to_pylist()


def _spooled(records: Iterable[dict[str, Any]] | pd.DataFrame, spool: Storage, fields: Sequence[str]) -> list[str]:
    """Copy what can be read once to parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    spool.remove()
    names = []
    schema = pa.schema([(field, pa.large_string()) for field in ("docno", *fields)])
    for number, frame in blocks(records, fields, _SPOOLED):
        name = f"{number:06d}.parquet"
        columns = {field: frame[field] if field in frame.columns else [None] * len(frame) for field in schema.names}
        arrays = [
            pa.array([v if isinstance(v, str) else None for v in columns[f]], pa.large_string()) for f in schema.names
        ]
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), buffer, compression="zstd")
        spool.write(name, buffer.getvalue())
        names.append(f"{spool.address}/{name}")
    return names


def blocks(
    records: Iterable[dict[str, Any]] | pd.DataFrame, fields: Sequence[str], size: int
) -> Iterator[tuple[int, pd.DataFrame]]:
    """Frames of ``size`` passages with docno as str; the last of ``fields`` is a text in each.

    Raises:
        ValueError: a passage without docno or text; the message names it.
    """
    frames: Iterator[pd.DataFrame]
    if isinstance(records, pd.DataFrame):
        frames = (records.iloc[start : start + size] for start in range(0, len(records), size))
    else:
        frames = frames_of(records, size)
    for number, frame in enumerate(frames):
        for column in ("docno", fields[-1]):
            if column not in frame.columns:
                raise ValueError(f"passages have no {column!r}, but {first_three(frame.columns)}")
        frame = frame.assign(docno=as_ids(frame["docno"], "docno"))
        wrong = np.array([not isinstance(text, str) for text in frame[fields[-1]]], dtype=bool)
        if wrong.any():
            raise ValueError(
                f"{fields[-1]} of docno {first_three(frame['docno'][wrong])} is None, NaN or no text: give a str"
            )
        yield number, frame
