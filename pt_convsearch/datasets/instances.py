"""Response retrieval from instances: a context, and the response that followed it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pt_convsearch.topics import Task
from pt_convsearch.topics.messages import ASSISTANT, USER, Message
from pt_convsearch.topics.task import qrels_frame

DUPLICATES = ("own-id", "equal-text")


def instance_task(
    instances: Iterable[Mapping[str, Any]], duplicates: str = "own-id", *, user: str | None = None, prefix: str = ""
) -> Task:
    """A task in which each context looks for its response, among the responses of all instances.

    :func:`pt_convsearch.topics.responses` cuts whole dialogues into contexts and responses; here somebody did so
    already, as in the TSV files of response ranking and in NOESIS-II.

    Args:
        instances: dicts of ``dialogue_id``, ``utterances`` (the context: dicts of speaker and text), and
            ``responses`` (dicts of docno and text, all of them right) or ``response`` (a text); an instance may have
            none. ``conversation_id`` and ``turn_number`` are kept where they are given.
        duplicates: which responses are relevant: "own-id", the instance's own; "equal-text", every one of equal text
            (to the letter).
        user: the speaker who asks; by default whoever speaks first.
        prefix: goes before every id, so that the ids of splits that number from 0 stay apart.

    Returns:
        a :class:`~pt_convsearch.topics.Task`: the last utterance of the context is ``query``, the rest ``qhistory``;
        ``answer`` is the first right response ("" where there is none, and then there is no judgment either). The
        docno of a response without one is the qid. Utterances without text are left out; an instance without context
        is, too.

    Raises:
        ValueError: an id used twice.
    """
    if duplicates not in DUPLICATES:
        raise ValueError(f"duplicates is {duplicates!r}: give 'own-id' or 'equal-text'")
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    corpus: dict[str, str] = {}
    own: list[tuple[str, str]] = []
    seen: set[str] = set()
    twins = empty = 0
    for instance in instances:
        messages = _messages(instance["utterances"], user)
        if not messages:
            empty += 1
            continue
        qid = f"{prefix}{instance['dialogue_id']}"
        if qid in seen:
            raise ValueError(f"instance {qid!r} comes twice: give each its own dialogue_id")
        seen.add(qid)
        found = _responses(instance, qid)
        for docno, text in found:
            twins += corpus.setdefault(docno, text) != text
            own.append((qid, docno))
        conversation = f"{prefix}{instance.get('conversation_id', instance['dialogue_id'])}"
        row = (
            qid, messages[-1]["content"], messages[:-1], found[0][1] if found else "",
            conversation, instance.get("turn_number", len(messages)),
        )  # fmt: skip
        for name, value in zip(_COLUMNS, row, strict=True):
            columns[name].append(value)
    if twins:
        warnings.warn(
            f"{twins} responses carry the id of another text; the first text of each id is kept", stacklevel=2
        )
    if empty:
        warnings.warn(f"{empty} instances without a context are left out", stacklevel=2)
    topics = pd.DataFrame({name: pd.Series(values, dtype=_COLUMNS[name]) for name, values in columns.items()})
    documents = [{"docno": docno, "text": text} for docno, text in corpus.items()]
    return Task(topics, documents, judged(own, corpus, duplicates))


def judged(own: list[tuple[str, str]], corpus: Mapping[str, str], duplicates: str) -> pd.DataFrame:
    """Judgments by the policy: each question's own documents, or all of the same text."""
    if duplicates == "own-id":
        return qrels_frame([qid for qid, _ in own], [docno for _, docno in own])
    same: dict[str, list[str]] = {}
    for docno, text in corpus.items():
        same.setdefault(text, []).append(docno)
    # a question with several responses of one text names each document once
    pairs = dict.fromkeys((qid, docno) for qid, mine in own for docno in same[corpus[mine]])
    return qrels_frame([qid for qid, _ in pairs], [docno for _, docno in pairs])


_COLUMNS: dict[str, Any] = {
    "qid": "str", "query": "str", "qhistory": object, "answer": "str", "conversation_id": "str", "turn_number": "int64",
}  # fmt: skip


def _messages(utterances: list[Mapping[str, Any]], user: str | None) -> list[Message]:
    said = [one for one in utterances if one["text"].strip()]
    if user is None and said:
        user = said[0]["speaker"]
    return [{"role": USER if one["speaker"] == user else ASSISTANT, "content": one["text"]} for one in said]


def _responses(instance: Mapping[str, Any], qid: str) -> list[tuple[str, str]]:
    if "responses" in instance:
        return [(one["docno"], one["text"]) for one in instance["responses"]]
    response = instance.get("response")
    return [(qid, response)] if isinstance(response, str) and response.strip() else []


def candidates_frame(rows: Iterable[tuple[str, str, str, int]]) -> pd.DataFrame:
    """Candidates out of (qid, docno, text, label), each question's in an order that says nothing about the label.

    Files often list the right response first, which would then win every tie of a ranking that leaves rows as they
    stand. The order is a function of the ids alone.
    """
    frame = pd.DataFrame(rows, columns=["qid", "docno", "text", "label"])
    frame = frame.astype({"qid": str, "docno": str, "text": str, "label": "int64"})
    places = [
        hashlib.blake2b(f"{qid}\0{docno}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for qid, docno in zip(frame["qid"], frame["docno"], strict=True)
    ]
    order = frame.assign(question=pd.factorize(frame["qid"])[0], place=places).sort_values(["question", "place"]).index
    return frame.loc[order].reset_index(drop=True)
