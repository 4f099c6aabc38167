"""Files of topics and logs: JSON Lines, JSON and parquet, plain or compressed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch._files import writing_text, written
from pt_convsearch._lines import read_text
from pt_convsearch._records import iter_json_lines
from pt_convsearch.topics.messages import shown_docnos
from pt_convsearch.topics.validation import checked, validate

PathLike = str | os.PathLike[str]


def read(path: PathLike, *, columns: Mapping[str, str] | None = None, **options: Any) -> pd.DataFrame:
    """Topics from a file: a topics frame as :func:`write` leaves it, or a log that a builder understands.

    Records with ``query`` and ``qid`` or ``qhistory`` are topics; with ``messages``, ``conversation`` or
    ``conversations`` a chat log (:func:`from_messages`); with ``utterances`` dialogues (:func:`from_dialogues`); with
    ``turn`` or ``turns``, ``dialogue`` or ``dialog`` whichever their lists hold: messages with role and content,
    utterances with speakers (or texts alone), or turns as in CAsT (:func:`from_turns`), as records with
    ``raw_utterance`` are. Records of single messages, with ``conversation_id``, role and content (or
    speaker and text …), are a chat log, too.

    Args:
        path: .jsonl, .json or .parquet; text also as .gz, .bz2 or .xz; or a folder of such files.
        columns: other names of columns or fields, old to new, e.g. ``{"history": "qhistory"}``.
        options: handed to the builder (``turns``, ``user``, ``roles`` …).

    Returns:
        a topics frame, checked by :func:`validate`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is not JSON, records of a shape nobody knows, or what :func:`validate` refuses.

    Example:
        ``cs.topics.read("test.topics.jsonl", columns={"history": "qhistory", "rewrite": "qrewrite"})``
    """
    from pt_convsearch.topics.chats import from_messages, holds, is_message
    from pt_convsearch.topics.dialogues import from_dialogues
    from pt_convsearch.topics.frames import from_frame
    from pt_convsearch.topics.turns import from_turns

    first = first_record(path)
    if isinstance(first, list):
        return from_messages(records(path), **options)
    new_names = dict(columns or {})
    renamed = {new_names.get(name, name) for name in (first or {})}
    if first is None or ("query" in renamed and {"qid", "qhistory"} & renamed):
        frame = _topics_of(path)
        frame = frame.rename(columns=new_names)
        if first is None:
            frame = frame.reindex(columns=["qid", "query", "qhistory"])
        if "qhistory" not in frame.columns and not options:
            raise ValueError(
                f"{path}: no field 'qhistory' among {', '.join(map(str, first or {}))}; "
                "name it with columns={'theirs': 'qhistory'}"
            )
        return validate(frame) if "qid" in frame.columns and not options else from_frame(frame, **options)
    found = ({new_names.get(name, name): value for name, value in record.items()} for record in records(path))
    kind = holds({new_names.get(name, name): value for name, value in first.items()})
    if kind == "messages" or (kind is None and is_message(renamed)):
        return from_messages(found, **options)
    if kind == "utterances":
        return from_dialogues(found, **options)
    if kind == "turns" or "raw_utterance" in renamed:
        return from_turns(found, **options)
    raise ValueError(
        f"{path}: records with {', '.join(map(str, first))} are neither topics nor a log (a record is a conversation "
        "with messages, utterances, a turn, or a message with conversation_id, role and content); "
        "name the fields with columns={'theirs': 'ours'}"
    )


def write(topics: pd.DataFrame, path: PathLike) -> None:
    """Write topics to JSON Lines (one object a row) or parquet, by the name's ending; :func:`read` gives them back.

    Nothing is lost: texts such as "NA", quotes, emoji, line ends, lists and nulls come back as they were, ints as
    ints. Only JSON Lines has no categories: such a column comes back as text (parquet keeps them and their order). A
    kill leaves an older file as it was.

    Args:
        topics: a topics frame; checked by :func:`validate` first.
        path: .jsonl (also .jsonl.gz, .bz2, .xz) or .parquet.

    Raises:
        ValueError: another ending, or what :func:`validate` refuses.
    """
    topics = checked(topics)
    if is_parquet(path):
        with written(path) as temporary:
            _one_kind_of_docno(topics).to_parquet(temporary, engine="pyarrow", index=False)
        return
    if _ending(path) not in (".jsonl", ".ndjson"):
        raise ValueError(f"{path}: topics are written to .jsonl (also .gz, .bz2, .xz) or .parquet")
    encode = json.JSONEncoder(ensure_ascii=False, default=_plain, allow_nan=False).encode
    names = [str(name) for name in topics.columns]
    columns = [_values(topics[name]) for name in topics.columns]
    with writing_text(path) as handle:
        for values in zip(*columns, strict=True):
            handle.write(encode(dict(zip(names, values, strict=True))))
            handle.write("\n")


def records(path: PathLike, *, columns: list[str] | None = None) -> Iterator[Any]:
    """The records of a JSON Lines, JSON (one list) or parquet file (all columns, or some), one after the other.

    Of a folder those of all such files in it, by name.
    """
    if Path(path).is_dir():
        for file in files_in(path):
            yield from records(file, columns=columns)
        return
    if is_parquet(path):
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096, columns=columns):
                yield from batch.to_pylist()
        return
    if _ending(path) in (".csv", ".tsv", ".xlsx"):
        raise ValueError(
            f"{path} is a table: read it with pandas, and give the frame to cs.topics.from_frame or from_messages"
        )
    if _ending(path) == ".json":
        text = read_text(path)
        try:
            found = json.loads(text) if text.strip() else []
        except json.JSONDecodeError as error:
            # JSON Lines are often called .json as well
            if not error.msg.startswith("Extra data"):
                raise ValueError(f"{path}: not valid JSON ({error})") from error
            found = None
        if found is not None:
            yield from found if isinstance(found, list) else [found]
            return
    for _, record in iter_json_lines(path):
        yield record


def files_in(folder: PathLike) -> list[Path]:
    """The files of records in a folder, by name; hidden ones and other kinds aside.

    Raises:
        ValueError: there is none, or it is a data set with a corpus or judgments, whose topics must be named.
    """
    inside = sorted(path for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith("."))
    parts = sorted(path.name for path in Path(folder).iterdir() if path.name.startswith(("corpus", "qrels")))
    if parts:
        raise ValueError(f"{folder} is a data set (it holds {parts[0]}): name the file of the topics in it")
    found = [path for path in inside if is_parquet(path) or _ending(path) in (".jsonl", ".ndjson", ".json")]
    if not found:
        raise ValueError(f"{folder} holds no file of records: .jsonl, .json or .parquet, text also as .gz, .bz2, .xz")
    return found


def first_record(path: PathLike) -> Any:
    """The first record that says what it is, or None in an empty file; of a parquet file the names, and lists alone."""
    from pt_convsearch.topics.chats import SHARED_LISTS

    if Path(path).is_dir():
        found = (first_record(file) for file in files_in(path))
        return next((first for first in found if first is not None), None)
    if is_parquet(path):
        import pyarrow.parquet

        names = pyarrow.parquet.read_schema(path).names
        lists = [name for name in SHARED_LISTS if name in names]
        row = dict(next(filter(_says, records(path, columns=lists)), {})) if lists else {}
        return {**dict.fromkeys(names), **row}
    lines = records(path)
    first = next(lines, None)
    if isinstance(first, dict) and not _says(first):
        first = next((record for record in lines if isinstance(record, dict) and _says(record)), first)
    if first is None or isinstance(first, dict | list):
        return first
    raise ValueError(f"{path}: its first record is {type(first).__name__}; topics and logs are JSON objects")


def _says(record: Mapping[str, Any]) -> bool:
    """Whether a record shows of what kind it is: not where its list of turns is empty."""
    from pt_convsearch.topics.chats import SHARED_LISTS

    return not any(record[field] in (None, [], ()) for field in SHARED_LISTS if field in record)


def _ending(path: PathLike) -> str:
    path = Path(path)
    return (path.with_suffix("") if path.suffix.lower() in (".gz", ".bz2", ".xz") else path).suffix.lower()


def is_parquet(path: PathLike) -> bool:
    return Path(path).suffix.lower() in (".parquet", ".pq")


def _topics_of(path: PathLike) -> pd.DataFrame:
    if Path(path).is_dir():
        return pd.concat([_topics_of(file) for file in files_in(path)], ignore_index=True)
    return _parquet(path) if is_parquet(path) else _frame(records(path), path)


def _parquet(path: PathLike) -> pd.DataFrame:
    """A parquet file as a frame; lists and structs as Python's own, which pandas would make arrays."""
    import pyarrow as pa
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    frame = table.drop_columns(nested).to_pandas()
    for name in nested:
        frame[name] = pd.Series(table[name].to_pylist(), dtype=object, index=frame.index)
    return frame[[name for name in table.column_names if name in frame.columns]]


def _frame(records: Iterable[Any], path: PathLike) -> pd.DataFrame:
    """Records as a frame; a column of ints with gaps stays whole numbers, a text stays what it is."""
    found = list(records)
    if not all(isinstance(record, dict) for record in found):
        raise ValueError(f"{path}: a record is no JSON object, though the first one is a topic")
    names = list(dict.fromkeys(name for record in found for name in record))
    return pd.DataFrame({name: _series([record.get(name) for record in found]) for name in names})


def _one_kind_of_docno(topics: pd.DataFrame) -> pd.DataFrame:
    """For parquet, whose columns hold one type: where one message carries several docnos, lists of them in all."""
    histories = topics["qhistory"].tolist()
    if not any(isinstance(message.get("docno"), list) for history in histories for message in history):
        return topics
    listed = [[{**message, "docno": shown_docnos(message)} for message in history] for history in histories]
    return topics.assign(qhistory=pd.Series(listed, dtype=object, index=topics.index))


def _series(values: list[Any]) -> pd.Series:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return pd.Series(values, dtype="str")
    if kinds == {int}:
        return pd.Series(values, dtype="int64" if None not in values else "Int64")
    if kinds == {bool}:
        return pd.Series(values, dtype="bool" if None not in values else "boolean")
    if kinds and kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype=object)


def _values(column: pd.Series) -> list[Any]:
    values = column.astype(object).tolist()
    if column.dtype != object or any(isinstance(value, float) for value in values):
        values = [None if value is pd.NA or value is pd.NaT or value != value else value for value in values]
    return values


def _plain(value: Any) -> Any:
    """What JSON has no word for, as what it has one for."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    raise TypeError(f"a topic holds a {type(value).__name__}, which JSON Lines cannot hold")
