"""The log's own answers as the collection: a retrieval task for logs on which nobody judged passages."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from pt_convsearch.topics.messages import ASSISTANT, Message
from pt_convsearch.topics.rows import joined
from pt_convsearch.topics.task import Task, qrels_frame
from pt_convsearch.topics.validation import validate


def answers(topics: pd.DataFrame, duplicates: str = "equal-text") -> Task:
    """A task in which every question looks for the answer that it was given, among all answers of the log.

    Every answer in ``answer`` is a document; so is every answer that only a history holds (the agent's turns that are
    no rows). Empty answers are left out, and their questions stay without a judgment. Assistant messages in a row are
    one answer, one message a line.

    Args:
        topics: a topics frame with ``answer``, from any builder or data set.
        duplicates: what equal answers are (equal to the letter): "equal-text", one document, relevant to each of
            their questions, so that the collection holds distinct answers; or "own-id", a document for each question,
            of which only a question's own is relevant.

    Returns:
        a :class:`Task`. ``docno`` is the qid of the (first) question that was so answered, or "{qid}:h{n}" for an
        answer that only histories hold, at message n of the first one. History messages of the assistant carry the
        ``docno`` of their answer, so that ``cs.DropSeen()`` knows them. A row's own answer is no part of its history;
        with "equal-text" its document is, where the same words had been said before: ``cs.DropSeen()`` takes it out of
        such a question's results ("own-id" keeps the two apart).

    Raises:
        ValueError: no column ``answer``, or what :func:`validate` refuses.

    Example:
        >>> import pt_convsearch as cs
        >>> topics = cs.topics.from_messages([{"id": "c", "messages": [
        ...     {"role": "user", "content": "Who wrote Dune?"}, {"role": "assistant", "content": "Frank Herbert."},
        ...     {"role": "user", "content": "And Emma?"}, {"role": "assistant", "content": "Jane Austen."}]}])
        >>> task = cs.topics.answers(topics)
        >>> task.corpus[1], task.topics.qhistory[1][1]["docno"]
        ({'docno': 'c_2', 'text': 'Jane Austen.'}, 'c_1')
    """
    if duplicates not in ("equal-text", "own-id"):
        raise ValueError(f"duplicates is {duplicates!r}: give 'equal-text' or 'own-id'")
    if "answer" not in getattr(topics, "columns", ()):
        raise ValueError(
            "topics have no column 'answer' (what was answered to q_t): build them with cs.topics.from_messages"
        )
    topics = validate(topics)
    merged = duplicates == "equal-text"
    conversation_ids = topics["conversation_id"] if "conversation_id" in topics.columns else [None] * len(topics)
    rows = list(
        zip(topics["qid"].tolist(), topics["query"].tolist(), topics["answer"].tolist(), topics["qhistory"].tolist(),
            conversation_ids, strict=True)
    )  # fmt: skip

    docnos: dict[Hashable, str] = {}
    corpus: list[dict[str, str]] = []
    qids, golds = [], []
    for qid, query, answer, history, conversation in rows:
        if not isinstance(answer, str) or not answer.strip():
            continue
        key = answer if merged else _said(_start(conversation, history), query, answer)
        if key not in docnos or not merged:
            docnos.setdefault(key, qid)
            corpus.append({"docno": qid, "text": answer})
        qids.append(qid)
        golds.append(docnos[key] if merged else qid)

    taken = {qid for qid, *_ in rows}
    shown: dict[tuple[int, str], Message] = {}
    histories = [
        _with_docnos(history, qid, conversation, docnos, corpus, shown, taken, merged)
        for qid, _, _, history, conversation in rows
    ]
    topics["qhistory"] = pd.Series(histories, dtype=object, index=topics.index)
    return Task(topics, corpus, qrels_frame(qids, golds))


def _with_docnos(
    history: list[Message], qid: str, conversation: Any, docnos: dict[Hashable, str], corpus: list[dict[str, str]],
    shown: dict[tuple[int, str], Message], taken: set[str], merged: bool,
) -> list[Message]:  # fmt: skip
    """A history whose answers carry their docno; rows that shared a message still share one afterwards."""
    made: list[Message] = []
    state: Hashable = conversation
    at = 0
    while at < len(history):
        if history[at]["role"] != ASSISTANT:
            if not merged:
                state = hash((state, history[at]["content"]))
            made.append(history[at])
            at += 1
            continue
        end = at + 1
        while end < len(history) and history[end]["role"] == ASSISTANT:
            end += 1
        text = joined(history[at:end])
        key: Hashable = text
        if not merged:
            key = state = hash((state, text))
        docno = docnos.get(key)
        if docno is None and text.strip():
            docno = docnos[key] = _free(f"{qid}:h{at + 1}", taken)
            corpus.append({"docno": docno, "text": text})
        for message in history[at:end]:
            known = (id(message), docno or "")
            if known not in shown:
                shown[known] = {**message, "docno": docno} if docno else message
            made.append(shown[known])
        at = end
    return made


def _free(docno: str, taken: set[str]) -> str:
    """The docno, or one like it, that no question has as its qid."""
    while docno in taken:
        docno += "'"
    return docno


def _start(conversation: Any, history: list[Message]) -> Hashable:
    """What a conversation has said so far, as one number; the same steps as in :func:`_with_docnos`."""
    state: Hashable = conversation
    at = 0
    while at < len(history):
        end = at + 1
        if history[at]["role"] == ASSISTANT:
            while end < len(history) and history[end]["role"] == ASSISTANT:
                end += 1
            state = hash((state, joined(history[at:end])))
        else:
            state = hash((state, history[at]["content"]))
        at = end
    return state


def _said(state: Hashable, query: str, answer: str) -> Hashable:
    return hash((hash((state, query)), answer))
