"""Readers of TREC CAsT's topic files, all years: lists of turns, trees, trees flattened into one list per path."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pt_convsearch.datasets.formats import field, iter_lines, iter_tsv, read_records
from pt_convsearch.datasets.rows import said

logger = logging.getLogger(__name__)
Turn = dict[str, Any]
_ANSWERS = ("passage", "response", "system_response")


def read_conversations(path: Path) -> Iterator[tuple[int, str, dict[str, Any], list[Turn]]]:
    """Yield (line, topic number, topic, turns from the first to the last) of each path through each topic of a file.

    A topic of 2019 to 2021 has one path (JSON, or the text form ``Number: … Title: … 1 <tab> utterance``). A tree of
    2022 has one for each of its leaves; so has a flattened file, where each is a topic of its own and numbers repeat.
    A turn here is {number, utterance, rewrite, automatic, answer, docno, provenance}.

    Raises:
        ValueError: no such file, a turn without number or utterance, a parent that is not there; named by file and
            line.
    """
    for line, topic in _topics(path):
        where = f"{path}, line {line}"
        number = str(field(topic, "number", (int, str), where))
        where = f"{where} (topic {number})"
        for way in field(topic, "paths", list, where, [topic]):
            if not isinstance(way, dict):
                raise ValueError(f"{where}: field 'paths' is no list of objects")
            items = field(way, "turns" if "turns" in way else "turn", list, where)
            if not items or any(not isinstance(item, dict) for item in items):
                raise ValueError(f"{where}: field 'turn' is no list of turns")
            if any(name in item for item in items for name in ("participant", "parent", "parent_turn")):
                for turns in _paths(items, where):
                    yield line, number, topic, turns
            else:
                yield line, number, topic, [_turn(item, where) for item in items]


def _topics(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    first = next((line for _, line in iter_lines(path) if line.strip()), "")
    return _text_topics(path) if first.startswith("Number:") else read_records(path)


def _text_topics(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    topic: dict[str, Any] | None = None
    begun = 0
    for line, text in iter_lines(path):
        name, colon, value = text.partition(":")
        number, tab, utterance = text.partition("\t")
        if colon and name == "Number":
            if topic is not None:
                yield begun, topic
            topic, begun = {"number": value.strip(), "turn": []}, line
        elif topic is not None and colon and name in ("Title", "Description"):
            topic[name.lower()] = value.strip()
        elif topic is not None and tab and number.strip().isdecimal():
            topic["turn"].append({"number": int(number), "raw_utterance": utterance})
        elif text.strip():
            raise ValueError(f"{path}, line {line}: neither Number, Title, Description nor a turn: {text!r:.60}")
    if topic is not None:
        yield begun, topic


def _turn(item: dict[str, Any], where: str) -> Turn:
    number = str(field(item, "number", (int, str), where))
    where = f"{where}, turn {number}"
    utterance = _either(item, ("raw_utterance", "utterance"), where)
    if utterance is None:
        raise ValueError(f"{where}: no field 'raw_utterance' or 'utterance', only {', '.join(map(repr, item))}")
    return {
        "number": number,
        "utterance": utterance,
        "rewrite": _either(item, ("manual_rewritten_utterance", "resolved_utterance"), where),
        "automatic": _either(item, ("automatic_rewritten_utterance",), where),
        "answer": _either(item, _ANSWERS, where) or "",
        "docno": _docno(item, where),
        "provenance": _provenance(item, where),
    }


def _either(item: dict[str, Any], names: tuple[str, ...], where: str) -> str | None:
    """The text of the first of these fields that there is."""
    for name in names:
        text: str | None = field(item, name, str, where, None)
        if text is not None:
            return text
    return None


def _provenance(item: dict[str, Any], where: str) -> list[str]:
    """Ids of the passages that a response was written from.

    Two slips of the published files are mended: an id cut in two (``"MARCO_16_1884092099", "-2"``) and a blank in one.
    """
    ids: list[str] = []
    for one in field(item, "provenance", list, where, []):
        docno = field(one, "id", str, where) if isinstance(one, dict) else one
        if not isinstance(docno, str):
            raise ValueError(f"{where}: field 'provenance' is no list of ids")
        if ids and re.fullmatch(r"-[0-9]+", docno):
            ids[-1] += docno
        else:
            ids.append(re.sub(r" +(?=-[0-9]+$)", "", docno))
    return ids


def _docno(item: dict[str, Any], where: str) -> str | None:
    """Which passage answered: the canonical result, with its passage number where documents were judged (2021)."""
    for key in ("manual_canonical_result_id", "automatic_canonical_result_id", "canonical_result_id"):
        found = field(item, key, str, where, None)
        if found:
            passage = field(item, "passage_id", (int, str), where, None)
            return found if passage is None else f"{found}-{passage}"
    # a response written from several passages has no id of its own
    provenance = _provenance(item, where)
    return provenance[0] if len(provenance) == 1 else None


def _paths(items: list[dict[str, Any]], where: str) -> Iterator[list[Turn]]:
    """Each way from the root of a tree to a leaf, as turns of the user with what the system answered on that way."""
    nodes: dict[str, dict[str, Any]] = {}
    for item in items:
        number = str(field(item, "number", (int, str), where))
        if number in nodes:
            raise ValueError(f"{where}: turn {number!r} stands twice")
        nodes[number] = item
    children: dict[str | None, list[str]] = {}
    for number, item in nodes.items():
        above = field(item, "parent", (int, str), where, field(item, "parent_turn", (int, str), where, ""))
        parent = str(above) or None
        if parent is not None and parent not in nodes:
            raise ValueError(f"{where}, turn {number}: its parent {parent!r} is not in the topic")
        children.setdefault(parent, []).append(number)
    reached = 0
    stack: list[tuple[str, list[str]]] = [(root, [root]) for root in reversed(children.get(None, []))]
    while stack:
        number, way = stack.pop()
        reached += 1
        below = children.get(number, [])
        stack.extend((child, [*way, child]) for child in reversed(below))
        if not below:
            yield _along([nodes[one] for one in way], where)
    if reached != len(nodes):
        raise ValueError(
            f"{where}: {len(nodes) - reached} turns hang on no first turn (their parents go round in a circle)"
        )


def _along(way: list[dict[str, Any]], where: str) -> list[Turn]:
    turns: list[Turn] = []
    for item in way:
        who = field(item, "participant", str, where, "User" if {"utterance", "raw_utterance"} & set(item) else "System")
        if who.lower() == "user":
            turns.append(_turn(item, where))
        elif who.lower() == "system":
            number = field(item, "number", (int, str), where)
            if not turns:
                raise ValueError(f"{where}, turn {number}: the system speaks before any user")
            place = f"{where}, turn {number}"
            text, docno, before = _either(item, _ANSWERS, place) or "", _docno(item, place), turns[-1]
            if before["answer"]:  # two system turns in a row are one answer, by nobody's passage
                text, docno = f"{before['answer']}\n{text}", None
            turns[-1] = before | {
                "answer": text,
                "docno": docno,
                "provenance": [*before["provenance"], *_provenance(item, place)],
            }
        else:
            raise ValueError(f"{where}: participant {who!r} is neither User nor System")
    return turns


def history_of(turns: list[Turn]) -> list[dict[str, str]]:
    """What was said in these turns: each utterance, and each answer that has a text."""
    history = []
    for turn in turns:
        history.append(said("user", turn["utterance"]))
        if turn["answer"].strip():
            history.append(said("assistant", turn["answer"], turn["docno"]))
    return history


def read_resolved(path: Path) -> dict[str, str]:
    """qid -> standalone question, from a file ``qid <tab> text`` (\\r\\n or \\n).

    Raises:
        ValueError: a line without tab, or a qid with two texts; named by file and line.
    """
    texts: dict[str, str] = {}
    for line, (qid, text) in iter_tsv(path, columns=2):
        if texts.setdefault(qid, text) != text:
            raise ValueError(f"{path}, line {line}: {qid!r} has another text before")
    return texts
