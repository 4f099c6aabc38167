"""Corpora in ConvoKit's format on disk: a folder with utterances.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.formats import field, iter_jsonl
from pt_convsearch.datasets.json_stream import iter_json_items

_NAMES = ("utterances.jsonl", "utterances.json")


def read_convokit_utterances(path: PathLike) -> Iterator[dict[str, Any]]:
    """The utterances of a ConvoKit corpus, streamed in the file's order: id, speaker, conversation_id, reply_to, text.

    Old corpora are read as well: ``root`` for conversation_id, ``user`` for speaker, ``reply-to`` for reply_to, and
    ``utterances.json`` (one list) for ``utterances.jsonl``. Pickled metadata beside the corpus is never opened.

    Args:
        path: the corpus' folder, or the file itself, plain or compressed.

    Raises:
        FileNotFoundError: the folder holds no utterances.
        ValueError: a line that is no utterance, named by file and line.

    Source: ConvoKit's documentation, "Data Format".
    """
    path = _utterances(Path(path))
    if ".jsonl" in path.suffixes:
        lines: Iterator[tuple[int, Any]] = iter_jsonl(path)
    else:
        lines = ((line, item) for line, _, item in iter_json_items(path))
    for number, item in lines:
        where = f"{path}, line {number}"
        if not isinstance(item, dict):
            raise ValueError(f"{where}: an utterance is a JSON object, not {type(item).__name__}")
        conversation = item.get("conversation_id", item.get("root"))
        reply_to = item.get("reply_to", item.get("reply-to"))
        speaker = item.get("speaker", item.get("user"))
        if isinstance(speaker, dict):  # written with the whole speaker in it
            speaker = speaker.get("id")
        yield {
            "id": str(field(item, "id", (str, int), where)),
            "speaker": "" if speaker is None else str(speaker),
            "conversation_id": "" if conversation is None else str(conversation),
            "reply_to": None if reply_to is None else str(reply_to),
            "text": field(item, "text", str, where, ""),
        }


def read_convokit(path: PathLike) -> Iterator[dict[str, Any]]:
    """The dialogues of a ConvoKit corpus: dialogue_id and utterances (dicts of speaker and text), in the file's order.

    A conversation that is a tree of replies is read as the list of its utterances. Conversations whose utterances do
    not stand together are put together, so all of them are held in memory; :func:`read_convokit_utterances` streams.
    """
    conversations: dict[str, list[dict[str, str]]] = {}
    for one in read_convokit_utterances(path):
        # an utterance without a conversation opens one of its own
        conversation = conversations.setdefault(one["conversation_id"] or one["id"], [])
        conversation.append({"speaker": one["speaker"], "text": one["text"]})
    for dialogue_id, utterances in conversations.items():
        yield {"dialogue_id": dialogue_id, "utterances": utterances}


def _utterances(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _NAMES:
        for suffix in ("", ".gz", ".bz2", ".xz"):
            if (path / (name + suffix)).is_file():
                return path / (name + suffix)
    raise FileNotFoundError(f"{path} holds no ConvoKit corpus: no file {' or '.join(_NAMES)} in it")
