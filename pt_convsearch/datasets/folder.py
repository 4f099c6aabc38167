"""Data sets of your own: a folder with topics, passages and judgments, in our layout or in BEIR's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.formats import field, read_qrels, read_records
from pt_convsearch.datasets.rows import TopicRows, said
from pt_convsearch.topics.chats import holds
from pt_convsearch.topics.messages import as_history

_SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zip")
DOCNO, TEXT = ("docno", "_id", "id"), ("text", "contents", "content")
#: names that a column may have in the file, the usual one first
NAMES = {
    "qid": ("qid", "_id", "query_id", "id"),
    "query": ("query", "text", "utterance", "question"),
    "qhistory": ("qhistory", "history", "messages"),
    "qrewrite": ("qrewrite", "rewrite", "manual_rewrite"),
    "qtype": ("qtype", "page_type", "switch_type"),
    "conversation_id": ("conversation_id",),
    "turn_number": ("turn_number", "turn"),
    "answer": ("answer",),
}


class Folder(Dataset):
    """A folder as a data set.

    Read are, each plain or as .gz, .bz2, .xz:

    - ``topics.jsonl`` (BEIR: ``queries.jsonl``), or with ``split`` first ``SPLIT.topics.jsonl``: an object a line,
      with qid (or ``_id``), query (or ``text``) and where there are some qhistory (or ``history``: messages with role
      and content, speaker and text, or plain strings), qrewrite (``rewrite``), qtype, conversation_id, turn_number
      (``turn``), answer; all else is kept as a column that begins with "q". Without a history every question is a
      first one.
    - ``corpus.jsonl``: docno (or ``_id``, ``id``), text (or ``contents``), title. Or a folder ``corpus`` of such files.
    - ``qrels.txt``, ``qrels.tsv``, ``qrels``, ``qrels.json``, with ``split`` first ``SPLIT.qrels.txt``, or BEIR's
      ``qrels/SPLIT.tsv``: what :func:`~pt_convsearch.datasets.read_qrels` reads. With one file of judgments for all
      splits, those of a split are the ones of its questions.

    Args:
        path: the folder.
        split: "train", "dev", "test" …; needed where the folder has more than one.
        **options: ``files`` of :class:`~pt_convsearch.datasets.Dataset`: topics, corpus, qrels.

    Raises:
        FileNotFoundError: no such folder, or a file that is missing; the message says which names are looked for.
        ValueError: a folder with several splits and none chosen.

    Example:
        ``pt.get_dataset("convsearch:folder:my-data")``, ``cs.dataset("folder:my-data", split="test")``.
    """

    language = None

    def __init__(
        self, path: str | Path, *, split: str | None = None, files: dict[str, Any] | None = None, **options: Any
    ):
        super().__init__(f"folder:{path}", path=path, **options)
        unknown = sorted(set(files or {}) - {"topics", "corpus", "qrels"})
        if unknown:
            raise ValueError(f"convsearch:{self.name} has no file {unknown[0]!r}: files= takes topics, corpus, qrels")
        self.files = {key: Path(file).expanduser() for key, file in (files or {}).items()}
        self.split = split

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        return read_topics(self._topics_file(variant or self.split))

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        split = variant or self.split
        path, of_split = self._qrels_file(split)
        qrels = read_qrels(path)
        if split is not None and not of_split:
            qids = set(read_topics(self._topics_file(split))["qid"])
            qrels = qrels[qrels["qid"].isin(qids)].reset_index(drop=True)
        return qrels

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        passages = json_passages(self.file("corpus"), docno=DOCNO, text=TEXT)
        return counted(passages, verbose=verbose, name=self.name)

    def file(self, key: str) -> Path:
        """Where the topics, the corpus or the judgments lie."""
        if key == "topics":
            return self._topics_file(self.split)
        if key == "qrels":
            return self._qrels_file(self.split)[0]
        return self._find("corpus", ["corpus.jsonl", "corpus", "passages.jsonl"])[0]

    def _topics_file(self, split: str | None) -> Path:
        if split is not None:
            return self._find(
                "topics", [f"{split}.topics.jsonl", f"topics.{split}.jsonl", "topics.jsonl", "queries.jsonl"]
            )[0]
        found = self._found("topics", ["topics.jsonl", "queries.jsonl"])
        splits = sorted({place.name.partition(".")[0] for place in self._folder.glob("*.topics.jsonl*")})
        if found is None and splits:
            if len(splits) > 1:
                raise ValueError(f"{self._folder} has the splits {', '.join(splits)}: choose one with split=")
            return self._topics_file(splits[0])
        return self._find("topics", ["topics.jsonl", "queries.jsonl", "SPLIT.topics.jsonl"])[0]

    def _qrels_file(self, split: str | None) -> tuple[Path, bool]:
        """The file of judgments, and whether it is of this split only."""
        folder = self._folder / "qrels"
        if split is None and folder.is_dir() and "qrels" not in self.files:
            splits = sorted(
                {place.name.partition(".")[0] for place in folder.iterdir() if not place.name.startswith(".")}
            )
            if len(splits) > 1:
                raise ValueError(f"{folder} has the splits {', '.join(splits)}: choose one with split=")
            split = splits[0] if splits else None
        own = [f"{split}.qrels.txt", f"qrels.{split}.txt", f"qrels/{split}.tsv", f"qrels/{split}.txt"] if split else []
        path, at = self._find("qrels", [*own, "qrels.txt", "qrels.tsv", "qrels.json", "qrels"])
        return path, at < len(own)

    @property
    def _folder(self) -> Path:
        assert self.path is not None
        return self.path

    def _found(self, key: str, names: list[str]) -> tuple[Path, int] | None:
        if key in self.files:
            return self.files[key], len(names)
        for at, name in enumerate(names):
            for suffix in _SUFFIXES:
                place = self._folder / (name + suffix)
                if place.is_file() or (place.is_dir() and key == "corpus"):
                    return place, at
        return None

    def _find(self, key: str, names: list[str]) -> tuple[Path, int]:
        found = self._found(key, names)
        if found is None or not found[0].exists():
            wanted = found[0] if found else f"{', '.join(names)} (or .gz, .bz2, .xz of it) in {self._folder}"
            raise FileNotFoundError(
                f"convsearch:{self.name} needs a file of {key}: {wanted}; files={{{key!r}: FILE}} gives another"
            )
        return found


def read_topics(path: Path) -> pd.DataFrame:
    """Topics from JSON Lines (or one JSON list) of objects; see :class:`Folder` for the names that are understood.

    Raises:
        ValueError: a line without id or question, an id twice, a history that is none; named by file and line.
    """
    rows = TopicRows(path)
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        found = {
            column: next((name for name in names if item.get(name) is not None), None)
            for column, names in NAMES.items()
        }
        values = {column: item[name] for column, name in found.items() if name is not None}
        for column in ("qid", "query"):
            if column not in values:
                log = "; a log of conversations becomes topics by cs.topics.read, and a file by cs.topics.write"
                raise ValueError(
                    f"{where}: no field {' or '.join(map(repr, NAMES[column]))}, only {', '.join(map(repr, item))}"
                    f"{log if holds(item) else ''}"
                )
        history = as_history(values.pop("qhistory", []), where)
        rest = {name: value for name, value in item.items() if name not in found.values() and value is not None}
        rows.add(
            line,
            str(field(values, "qid", (str, int), where)),
            field(values, "query", str, where),
            [said(message["role"], message["content"], message.get("docno")) for message in history],
            qrewrite=field(values, "qrewrite", str, where, None),
            qtype=_text(field(values, "qtype", (str, int), where, None)),
            conversation_id=_text(field(values, "conversation_id", (str, int), where, None)),
            turn_number=_number(values.get("turn_number"), where),
            answer=field(values, "answer", str, where, ""),
            **{
                name if name.startswith("q") else f"q{name}": value
                for name, value in sorted(rest.items(), key=lambda item: item[0].startswith("q"))
                if name not in _LEFT_OUT
            },
        )
    return rows.frame()


#: BEIR's catch-all; and the columns that a former makes, which would hide the question as it was said
_LEFT_OUT = frozenset(
    {
        "metadata",
        "query_0",
        "query_toks",
        "query_vec",
        "qutterance",
        *(name for names in NAMES.values() for name in names),
    }
)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(f"{where}: the turn is {value!r}, not a whole number")


@register("folder")
def _folder(rest: str = "", **options: Any) -> Dataset:
    if not rest:
        raise ValueError("say which folder: 'folder:my-data'")
    return Folder(rest, **options)


_folder.names = (":DIR",)  # type: ignore[attr-defined]
