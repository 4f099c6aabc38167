"""Dialogues of forums in the JSON that MSDialog introduced and MANtIS took over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.formats import field
from pt_convsearch.datasets.json_stream import iter_json_items

_ACTORS = ("user", "agent")


def read_forum(path: PathLike) -> Iterator[dict[str, Any]]:
    """The dialogues of MANtIS's or MSDialog's JSON file, streamed: ``{id: {title, category, utterances: [...]}}``.

    Utterances come by ``utterance_pos``; the speaker is ``user`` (the seeker, who opens) or ``agent``, as
    ``actor_type`` says. The text is left as it is: MANtIS keeps HTML links, block quotes and code.

    Args:
        path: ``MSDialog-Complete.json``, ``MSDialog-Intent.json``, MANtIS's ``merged_train.json`` …, plain or
            compressed.

    Yields:
        dialogue_id, category, title ("" where absent) and utterances: dicts of speaker, text and, where the file is
        labelled, intent.

    Raises:
        ValueError: no JSON, a field that is missing or of another kind, an actor that is neither user nor agent;
            named by file, line and dialogue.
    """
    for line, key, item in iter_json_items(path):
        where = f"{path}, line {line}" + (f", dialogue {key!r}" if key is not None else "")
        if not isinstance(item, dict):
            raise ValueError(f"{where}: a dialogue is a JSON object, not {type(item).__name__}")
        dialogue_id = key if key is not None else str(field(item, "dialog_id", (str, int), where))
        utterances = field(item, "utterances", list, where)
        yield {
            "dialogue_id": dialogue_id,
            "category": _label(item.get("category")),
            "title": _label(item.get("title")),
            "utterances": [
                _utterance(one, f"{where}, utterance {n}") for n, one in enumerate(_ordered(utterances, where), 1)
            ],
        }


def _label(value: Any) -> str:
    """A label as text; "" where the file has none (null, or the NaN that pandas writes)."""
    return "" if value is None or value != value else str(value)


def _ordered(utterances: list[Any], where: str) -> list[dict[str, Any]]:
    if not all(isinstance(one, dict) for one in utterances):
        raise ValueError(f"{where}: utterances are JSON objects")
    if all("utterance_pos" in one for one in utterances):
        return sorted(utterances, key=lambda one: int(field(one, "utterance_pos", (int, str), where)))
    return utterances


def _utterance(one: dict[str, Any], where: str) -> dict[str, Any]:
    speaker = field(one, "actor_type", str, where).lower()
    if speaker not in _ACTORS:
        raise ValueError(f"{where}: actor_type is {speaker!r}, where 'user' or 'agent' is due")
    made: dict[str, Any] = {"speaker": speaker, "text": field(one, "utterance", str, where)}
    # MSDialog-Intent has a string of tags, MANtIS's labelled file a list of intents
    intent = one.get("intent", one.get("tags"))
    if intent:
        made["intent"] = " ".join(map(str, intent)) if isinstance(intent, list) else str(intent)
    return made
