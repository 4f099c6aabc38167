"""Topics from records of turns, as TREC CAsT and iKAT distribute them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

import pandas as pd

from pt_convsearch.topics.chats import conversations
from pt_convsearch.topics.checks import as_id, first_three, has_value
from pt_convsearch.topics.files import naming
from pt_convsearch.topics.messages import ASSISTANT, USER, Message, clean_text
from pt_convsearch.topics.rows import Rows, further_columns

_CONVERSATION = ("conversation_id", "topic_number", "topic", "number")
_TURN = ("turn_number", "turn", "number", "turn_id")
_QUERY = ("raw_utterance", "utterance", "query", "question")
_ANSWER = ("response", "answer", "passage")
_REWRITE = ("manual_rewritten_utterance", "resolved_utterance", "manual_rewrite", "qrewrite", "rewrite")
_DOCNO = ("answer_docno", "canonical_docno", "manual_canonical_result_id", "canonical_result_id")
_NESTED = ("turn", "turns")


def from_turns(
    records: Iterable[Mapping[str, Any]] | pd.DataFrame | str | os.PathLike[str],
    *,
    passages: Mapping[str, str] | None = None,
    columns: Iterable[str] = (),
) -> pd.DataFrame:
    """Topics from records of turns: the history of a turn is what the turns before it hold.

    Args:
        records: one dict per turn, with a conversation (``conversation_id``, ``topic_number``, ``topic`` or
            ``number``), a turn (``turn_number``, ``turn``, ``number`` or ``turn_id``), an utterance
            (``raw_utterance``, ``utterance``, ``query`` or ``question``), and where known an answer (``response``,
            ``answer`` or ``passage``), its docno (``answer_docno``, ``canonical_docno``,
            ``manual_canonical_result_id``, ``canonical_result_id`` with ``passage_id``), and a rewrite
            (``manual_rewritten_utterance``, ``resolved_utterance``, ``manual_rewrite``, ``qrewrite`` or ``rewrite``).
            Or CAsT's own nesting: one dict per conversation with ``number`` and a list ``turn`` or ``turns``. Or the
            path of a file of either.
        passages: texts by docno, for answers that are named and not given.
        columns: fields of the turns (or of their conversation) that become columns.

    Returns:
        a topics frame: qid ("{conversation}_{turn}", or the record's own qid), query, qhistory, answer,
        conversation_id, turn_number, qrewrite where any turn has one, and ``columns``. Turns are sorted by number (10
        after 9) within a conversation; the answers of earlier turns are history, a turn's own never is.

    Raises:
        ValueError: a turn without number or utterance, an answer that is a number, a number used twice in a
            conversation, a further column with the name of one that topics have.

    Example:
        >>> import pt_convsearch as cs
        >>> turns = [{"topic_number": 31, "turn_number": 1, "raw_utterance": "What is throat cancer?"},
        ...          {"topic_number": 31, "turn_number": 2, "raw_utterance": "Is it treatable?",
        ...           "manual_rewritten_utterance": "Is throat cancer treatable?"}]
        >>> topics = cs.topics.from_turns(turns)
        >>> topics.qid[1], topics.qrewrite[1], topics.qhistory[1]
        ('31_2', 'Is throat cancer treatable?', [{'role': 'user', 'content': 'What is throat cancer?'}])
    """
    columns, passages = further_columns(columns), passages or {}
    grouped: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    source = conversations(records)
    with naming(source):
        for number, (conversation, record) in enumerate(_flat(source), 1):
            if conversation is None:
                raise ValueError(f"turn record {number} names no conversation (looked for {', '.join(_CONVERSATION)})")
            name = _id(conversation, "conversation_id", f"turn record {number}")
            grouped.setdefault(name, []).append((_number(record, name), record))
        return _topics(grouped, passages, columns)


def _topics(
    grouped: Mapping[str, list[tuple[int, Mapping[str, Any]]]], passages: Mapping[str, str], columns: Iterable[str]
) -> pd.DataFrame:
    rows = Rows()
    for name, turns in grouped.items():
        turns.sort(key=lambda turn: turn[0])
        numbers = [number for number, _ in turns]
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            raise ValueError(f"conversation {name!r} has more than one turn {first_three(twice)}")
        messages: list[Message] = []
        for number, record in turns:
            messages.extend(_said(record, f"turn {number} of conversation {name!r}", passages))
        found = [record for _, record in turns]
        qids = [
            _id(record["qid"], "qid", f"turn {number} of conversation {name!r}")
            if has_value(record.get("qid"))
            else f"{name}_{number}"
            for number, record in turns
        ]
        extras: dict[str, list[Any]] = {"qrewrite": [_first(record, _REWRITE) for record in found]}
        extras.update({column: [record.get(column) for record in found] for column in columns})
        rows.add(name, messages, qids=qids, turn_numbers=numbers, extras=extras)
    frame = rows.frame()
    if "qrewrite" in frame.columns:
        frame["qrewrite"] = frame["qrewrite"].astype("str")
        if frame["qrewrite"].isna().all():
            frame = frame.drop(columns="qrewrite")
    return frame


def _flat(records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """(conversation, turn) for each turn, nested or not."""
    for place, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise ValueError(f"record {place} is a {type(record).__name__}: give a dict for each turn or conversation")
        nested = next((record[key] for key in _NESTED if isinstance(record.get(key), list)), None)
        name = _first(record, _CONVERSATION)
        if nested is None:
            yield name, record
            continue
        shared = {key: value for key, value in record.items() if key not in (*_NESTED, "number")}
        for turn in nested:
            if not isinstance(turn, Mapping) or (has_value(turn.get("role")) and has_value(turn.get("content"))):
                raise ValueError(
                    f"the turns of conversation {name!r} are no records of turns ({str(turn)[:60]!r}): messages with "
                    "role and content are read by cs.topics.from_messages, utterances by cs.topics.from_dialogues"
                )
            yield name, {**shared, **turn}


def _id(value: Any, column: str, where: str) -> str:
    try:
        return as_id(value, column)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _number(record: Mapping[str, Any], conversation: str) -> int:
    value = _first(record, _TURN)
    try:
        number = int(value)
        if number == float(value):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"a turn of conversation {conversation!r} has {value!r} as its number: give an int")


def _said(record: Mapping[str, Any], where: str, passages: Mapping[str, str]) -> Iterator[Message]:
    query = _first(record, _QUERY)
    if not isinstance(query, str):
        raise ValueError(f"{where} has no utterance (looked for {', '.join(_QUERY)})")
    yield {"role": USER, "content": clean_text(query)}
    docno = _first(record, _DOCNO)
    if docno is not None:
        named, passage = docno, record.get("passage_id")
        docno = _id(docno, "docno", where)
        if has_value(passage) and named == record.get("canonical_result_id"):
            docno = f"{docno}-{_id(passage, 'passage_id', where)}"
    answer = _first(record, _ANSWER)
    if answer is None and docno is not None:
        answer = passages.get(docno)
    if isinstance(answer, Number):
        raise ValueError(f"{where} has {answer!r} ({type(answer).__name__}) as its answer: give a str")
    if isinstance(answer, str) and answer.strip():
        yield {"role": ASSISTANT, "content": clean_text(answer), **({"docno": docno} if docno is not None else {})}


def _first(record: Mapping[str, Any], fields: Iterable[str]) -> Any:
    return next((record[field] for field in fields if has_value(record.get(field))), None)
