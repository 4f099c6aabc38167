"""NOESIS-II (DSTC8 track 2): the JSON of its subtasks 1 and 2, in which a context comes with 100 candidates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.formats import field, iter_tsv
from pt_convsearch.datasets.json_stream import iter_json_items

NAMES = ("drop", "paper", "keep")
_SPEAKER = re.compile(r"participant_\d+ : ")
_ADDRESS = re.compile(r"(?:participant_\d+\s?[:,]\s*)+")
_ANY_NAME = re.compile(r"participant_\d+")


def read_noesis(
    path: PathLike, *, names: str = "drop", answers: PathLike | None = None, candidates: bool = True
) -> Iterator[dict[str, Any]]:
    """The examples of a NOESIS-II file, streamed: a context, the correct next utterances, and the candidates.

    Args:
        path: ``task-1.ubuntu.train.json``, ``task-1.ubuntu.dev.json`` …, plain or compressed. The training file has
            several gigabytes: only one example is held at a time.
        names: what becomes of the participants' names. ``"drop"``: "participant_N : " is taken off wherever it
            stands, and names that address somebody at the beginning of a message; ``"paper"``: as Penha & Hauff's
            code does, which takes every other "participant_N" away, too, and leaves its colon; ``"keep"``: nothing.
        answers: the file of correct answers that was published after the challenge for the blind test set: example id,
            candidate id (``NONE`` where no candidate is right) and utterance, separated by tabs.
        candidates: read the options, too; without them a file is read in half the time.

    Yields:
        dialogue_id (the example's id), utterances (dicts of speaker and text), responses (the correct options, dicts of
        docno and text; empty where no candidate is right) and candidates (the options in the file's order, docno and
        text).

    Raises:
        ValueError: a field that is missing or of another kind, or an answer to no example; named by file and line.

    Source: README of dstc8-track2/NOESIS-II, data format; transform_dstc8_to_tsv of Guzpenha/transformer_rankers.
    """
    if names not in NAMES:
        raise ValueError(f"names={names!r}: {', '.join(NAMES)}")
    given = _read_answers(answers) if answers is not None else None
    for line, _, item in iter_json_items(path):
        where = f"{path}, line {line}"
        if not isinstance(item, dict):
            raise ValueError(f"{where}: an example is a JSON object, not {type(item).__name__}")
        example_id = str(field(item, "example-id", (int, str), where))
        where = f"{where}, example {example_id}"
        utterances = [
            {
                "speaker": field(one, "speaker", str, where, ""),
                "text": without_names(field(one, "utterance", str, where), names),
            }
            for one in _objects(item, "messages-so-far", where)
        ]
        options = []
        if candidates or given is not None:
            options = [_option(one, names, where) for one in _objects(item, "options-for-next", where, default=[])]
        if given is None:
            correct = [
                _option(one, names, where) for one in _objects(item, "options-for-correct-answers", where, default=[])
            ]
        else:
            right = given.get(example_id, ())
            correct = [option for option in options if option["docno"] in right]
            if len(correct) < len(set(right)):
                raise ValueError(f"{where}: the correct answer {right[0]!r} of {answers} is none of its candidates")
        yield {"dialogue_id": example_id, "utterances": utterances, "responses": correct, "candidates": options}


def without_names(text: str, names: str = "drop") -> str:
    """The text of a message without the participants' names.

    >>> without_names("participant_1 : participant_0: in short, no.")
    'in short, no.'
    >>> without_names("participant_1 : participant_0: in short, no.", "paper")
    ': in short, no.'
    """
    if names == "drop":
        return _SPEAKER.sub("", _ADDRESS.sub("", text, count=1) if _ADDRESS.match(text) else text)
    if names == "paper":
        return _ANY_NAME.sub("", _SPEAKER.sub("", text))
    return text


def _objects(item: dict[str, Any], key: str, where: str, **default: Any) -> list[dict[str, Any]]:
    values = field(item, key, list, where, **default)
    if not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{where}: {key!r} is a list of JSON objects")
    return values


def _option(one: dict[str, Any], names: str, where: str) -> dict[str, Any]:
    option = {
        "docno": str(field(one, "candidate-id", (str, int), where)),
        "text": without_names(field(one, "utterance", str, where), names),
    }
    if isinstance(one.get("speaker"), str):
        option["speaker"] = one["speaker"]
    elif speaker := re.match(r"(participant_\d+) : ", one["utterance"]):
        option["speaker"] = speaker[1]
    return option


def _read_answers(path: PathLike) -> dict[str, tuple[str, ...]]:
    answers: dict[str, tuple[str, ...]] = {}
    for number, cells in iter_tsv(path):
        if len(cells) < 2:
            raise ValueError(
                f"{path}, line {number}: example id, candidate id and utterance are due, separated by tabs"
            )
        example_id, candidate = cells[0].strip(), cells[1].strip()
        if candidate.upper() != "NONE":
            answers[example_id] = (*answers.get(example_id, ()), candidate)
    return answers
