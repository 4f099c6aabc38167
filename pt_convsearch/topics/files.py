"""Files of topics and logs: JSON Lines, JSON and parquet, plain or compressed."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch._files import writing_text, written
from pt_convsearch._lines import read_text
from pt_convsearch._records import _no_twins, iter_json_lines
from pt_convsearch.topics.checks import as_id
from pt_convsearch.topics.messages import clean_text, clean_value, shown_docnos
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

    first, source, new_names = first_record(path), Records(path), dict(columns or {})
    found = (renamed_record(record, new_names) for record in source)
    if isinstance(first, list):
        return _built(from_messages, "lists of messages", found, source, options)
    renamed = {new_names.get(name, name) for name in (first or {})}
    if first is None or ("query" in renamed and {"qid", "qhistory"} & renamed):
        frame = _topics_of(path, new_names).rename(columns=new_names)
        if first is None:
            frame = frame.reindex(columns=["qid", "query", "qhistory"])
        if "qhistory" not in frame.columns and not options:
            raise ValueError(
                f"{path}: no field 'qhistory' among {', '.join(map(str, first or {}))}; "
                "name it with columns={'theirs': 'qhistory'}"
            )
        build = validate if "qid" in frame.columns and not options else from_frame
        return _built(build, "topics", frame, source, options)
    kind = holds(renamed_record(first, new_names))
    if kind == "messages" or (kind is None and is_message(renamed)):
        return _built(from_messages, "messages", found, source, options)
    if kind == "utterances":
        return _built(from_dialogues, "dialogues", found, source, options)
    if kind == "turns" or "raw_utterance" in renamed:
        return _built(from_turns, "records of turns", found, source, options)
    raise ValueError(
        f"{path}: records with {', '.join(map(str, first))} are neither topics nor a log (a record is a conversation "
        "with messages, utterances, a turn, or a message with conversation_id, role and content); "
        "name the fields with columns={'theirs': 'ours'}"
    )


def renamed_record(record: Any, new_names: Mapping[str, str]) -> Any:
    """A record with its fields under other names; what is no object stays as it is."""
    return {new_names.get(name, name): value for name, value in record.items()} if isinstance(record, dict) else record


def _built(
    build: Callable[..., pd.DataFrame], what: str, given: Any, source: Records, options: Mapping[str, Any]
) -> pd.DataFrame:
    """The topics that a builder makes of a file; an option that it does not take is named."""
    taken = list(inspect.signature(build).parameters)[1:]
    stranger = next((name for name in options if name not in taken), None)
    if stranger is not None:
        raise ValueError(
            f"{source.path} holds {what}, which take no option {stranger!r}: cs.topics.{build.__name__} takes "
            f"{', '.join(taken)}"
        )
    with naming(source):
        return build(given, **options)


def write(topics: pd.DataFrame, path: PathLike) -> None:
    """Write topics to JSON Lines (one object a row) or parquet, by the name's ending; :func:`read` gives them back.

    Nothing is lost: texts such as "NA", quotes, emoji, line ends, lists and nulls come back as they were, ints as
    ints. Only half of a surrogate pair (a broken emoji), which no file can hold, becomes U+FFFD, and JSON Lines has no
    categories: such a column comes back as text (parquet keeps them and their order). A kill leaves an older file as
    it was.

    Args:
        topics: a topics frame; checked by :func:`validate` first.
        path: .jsonl (also .jsonl.gz, .bz2, .xz) or .parquet.

    Raises:
        ValueError: another ending, or what :func:`validate` refuses.
    """
    topics = checked(topics)
    if is_parquet(path):
        with written(path) as temporary:
            topics = _one_kind_of_docno(topics)
            try:
                topics.to_parquet(temporary, engine="pyarrow", index=False)
            except UnicodeEncodeError:
                held = [name for name in topics.columns if topics[name].dtype == object]
                topics = topics.assign(**{name: topics[name].map(clean_value) for name in held})
                topics.to_parquet(temporary, engine="pyarrow", index=False)
        return
    if _ending(path) not in (".jsonl", ".ndjson"):
        raise ValueError(f"{path}: topics are written to .jsonl (also .gz, .bz2, .xz) or .parquet")
    encode = json.JSONEncoder(ensure_ascii=False, default=_plain, allow_nan=False).encode
    names = [str(name) for name in topics.columns]
    columns = [_values(topics[name]) for name in topics.columns]
    with writing_text(path) as handle:
        for values in zip(*columns, strict=True):
            handle.write(clean_text(encode(dict(zip(names, values, strict=True)))))
            handle.write("\n")


class Records:
    """The records of a JSON Lines, JSON (one list) or parquet file (all columns, or some), one after the other.

    Of a folder those of all such files in it, by name. ``at`` says where the last one stands: "log.jsonl, line 4";
    before the first and after the last it is the file or folder.

    Raises:
        ValueError: no such file format, what cannot be read, a record that is no object and no list; named by file and
            line or record.
    """

    def __init__(self, path: PathLike, *, columns: list[str] | None = None) -> None:
        self.path = self.at = str(path)
        self.unreadable = False
        self._placed = _placed(path, columns)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            at, record = next(self._placed, (self.path, _END))
        except ValueError:
            self.unreadable = True
            raise
        self.at = at
        if record is _END:
            raise StopIteration
        if not isinstance(record, dict | list):
            self.unreadable = True
            raise ValueError(
                f"{at}: {json.dumps(record):.40} is no record: topics and logs are JSON objects (a conversation may be "
                "a list of its messages, too)"
            )
        return record


_END = object()


@contextlib.contextmanager
def naming(source: Any) -> Iterator[None]:
    """Errors of what is built from :class:`Records` begin with the file, and the record where one was being read."""
    try:
        yield
    except ValueError as error:
        # what could not be read is named already
        if not isinstance(source, Records) or source.unreadable or type(error) is not ValueError:
            raise
        raise ValueError(f"{source.at}: {error}") from error


def _placed(path: PathLike, columns: list[str] | None) -> Iterator[tuple[str, Any]]:
    """Each record after where it stands."""
    if Path(path).is_dir():
        for file in files_in(path):
            yield from _placed(file, columns)
        return
    if is_parquet(path):
        import pyarrow.parquet

        with _whole(path), pyarrow.parquet.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(batch_size=4096, columns=columns) for row in batch.to_pylist())
            for number, record in enumerate(rows, 1):
                yield f"{path}, row {number}", record
        return
    if _ending(path) in (".csv", ".tsv", ".xlsx"):
        raise ValueError(
            f"{path} is a table: read it with pandas, and give the frame to cs.topics.from_frame or from_messages"
        )
    if _ending(path) == ".json":
        text = read_text(path)
        try:
            found = json.loads(text, object_pairs_hook=_no_twins) if text.strip() else []
        except json.JSONDecodeError as error:
            # JSON Lines are often called .json as well
            if not error.msg.startswith("Extra data"):
                raise ValueError(f"{path}: not valid JSON ({error})") from error
            found = None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, record {_unreadable(text)}: not valid JSON ({error})") from error
        if found is not None:
            for number, record in enumerate(found if isinstance(found, list) else [found], 1):
                yield f"{path}, record {number}", record
            return
    for number, record in iter_json_lines(path):
        yield f"{path}, line {number}", record


def _unreadable(text: str) -> int:
    """Which record of a JSON text, from 1, has a key twice, is nested too deeply or holds too long a number."""
    decoder = json.JSONDecoder(object_pairs_hook=_no_twins)
    between = re.compile(r"[\s,\[]*" if text.lstrip().startswith("[") else r"\s*")
    number, end = 1, 0
    with contextlib.suppress(ValueError, RecursionError):
        while start := between.match(text, end):
            end = decoder.raw_decode(text, start.end())[1]
            number += 1
    return number


@contextlib.contextmanager
def _whole(path: PathLike) -> Iterator[None]:
    """An error that names a parquet file that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise ValueError(f"{path}: not a parquet file, or a cut or damaged one ({error})") from error


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

        with _whole(path):
            names = pyarrow.parquet.read_schema(path).names
        lists = [name for name in SHARED_LISTS if name in names]
        row = dict(next(filter(_says, Records(path, columns=lists)), {})) if lists else {}
        return {**dict.fromkeys(names), **row}
    lines = Records(path)
    first = next(lines, None)
    if isinstance(first, dict) and not _says(first):
        first = next((record for record in lines if isinstance(record, dict) and _says(record)), first)
    return first


def _says(record: Mapping[str, Any]) -> bool:
    """Whether a record shows of what kind it is: not where its list of turns is empty."""
    from pt_convsearch.topics.chats import SHARED_LISTS

    return not any(record[field] in (None, [], ()) for field in SHARED_LISTS if field in record)


def _ending(path: PathLike) -> str:
    path = Path(path)
    return (path.with_suffix("") if path.suffix.lower() in (".gz", ".bz2", ".xz") else path).suffix.lower()


def is_parquet(path: PathLike) -> bool:
    return Path(path).suffix.lower() in (".parquet", ".pq")


def _topics_of(path: PathLike, new_names: Mapping[str, str]) -> pd.DataFrame:
    if Path(path).is_dir():
        return pd.concat([_topics_of(file, new_names) for file in files_in(path)], ignore_index=True)
    return _parquet(path) if is_parquet(path) else _frame(Records(path), new_names)


def _parquet(path: PathLike) -> pd.DataFrame:
    """A parquet file as a frame; lists and structs as Python's own, which pandas would make arrays."""
    import pyarrow as pa
    import pyarrow.parquet

    with _whole(path):
        table = pyarrow.parquet.read_table(path)
    nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
    frame = table.drop_columns(nested).to_pandas()
    for name in nested:
        frame[name] = pd.Series(table[name].to_pylist(), dtype=object, index=frame.index)
    return frame[[name for name in table.column_names if name in frame.columns]]


def _frame(records: Records, new_names: Mapping[str, str]) -> pd.DataFrame:
    """Records as a frame; a column of ints with gaps stays whole numbers, a text stays what it is."""
    found, ids = [], {"qid", "conversation_id"}
    ids |= {theirs for theirs, ours in new_names.items() if ours in ids}
    for record in records:
        if not isinstance(record, dict):
            raise ValueError(f"{records.at}: a list among topics, which are JSON objects")
        for name in ids & record.keys():
            if record[name] is not None:
                try:
                    as_id(record[name], new_names.get(name, name))
                except ValueError as error:
                    raise ValueError(f"{records.at}: {error}") from error
        found.append(record)
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
        try:
            return pd.Series(values, dtype="str")
        except UnicodeEncodeError:
            return pd.Series([value if value is None else clean_text(value) for value in values], dtype="str")
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
