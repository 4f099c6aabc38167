"""The log's own answers as the collection: a retrieval task for logs on which nobody judged passages."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pt_convsearch.topics.checks import first_three
from pt_convsearch.topics.messages import ASSISTANT, USER, Message
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

        With "own-id" an answer of a history is that of the turn before which the same was said; where a history is cut
        (a window) or edited, the nearest earlier one of the same text in the conversation; else, as for the beginning
        of a branch that another conversation tells, the only one anywhere before which the same was said.

    Raises:
        ValueError: no column ``answer``, or what :func:`validate` refuses.

    Warns:
        UserWarning: "own-id" without ``conversation_id``, where an answer may be that of another conversation.

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
    told = "conversation_id" in topics.columns
    ids: Sequence[Any] = topics["conversation_id"].tolist() if told else [None] * len(topics)
    timed = told and "turn_number" in topics.columns
    turns: Sequence[int] = topics["turn_number"].tolist() if timed else [0] * len(topics)
    rows = [
        _Row(qid, query, answer if isinstance(answer, str) and answer.strip() else "", history, name, (turn, place))
        for place, (qid, query, answer, history, name, turn) in enumerate(
            zip(topics["qid"], topics["query"], topics["answer"], topics["qhistory"], ids, turns, strict=True)
        )
    ]
    kind = _Documents if duplicates == "equal-text" else _OwnDocuments
    documents = kind(row.qid for row in rows)
    answered = [row for row in rows if row.answer]
    golds = [documents.add(row) for row in answered]
    shown: dict[tuple[int, str], Message] = {}
    histories = []
    for row in rows:
        spans = list(_spans(row.history))
        histories.append(_with_docnos(row.history, spans, documents.of_history(row, spans), shown))
    documents.warn()
    topics["qhistory"] = pd.Series(histories, dtype=object, index=topics.index)
    return Task(topics, documents.corpus, qrels_frame([row.qid for row in answered], golds))


@dataclass(frozen=True)
class _Row:
    """A row of the topics; ``answer`` is '' where there is none, ``time`` orders the rows of a conversation."""

    qid: str
    query: str
    answer: str
    history: list[Message]
    conversation: str | None
    time: tuple[int, int]


@dataclass(frozen=True)
class _Span:
    """An answer of a history: its messages, its text, the question before it, and all that was said up to it as one
    number."""

    start: int
    end: int
    text: str
    question: str
    state: int


def _spans(messages: list[Message]) -> Iterator[_Span]:
    state, question, at = 0, "", 0
    while at < len(messages):
        end = at + 1
        if messages[at]["role"] != ASSISTANT:
            question = messages[at]["content"]
            state = hash((state, USER, question))
        else:
            while end < len(messages) and messages[end]["role"] == ASSISTANT:
                end += 1
            text = joined(messages[at:end])
            state = hash((state, ASSISTANT, text))
            yield _Span(at, end, text, question, state)
        at = end


class _Documents:
    """The collection of distinct answers: one document a text."""

    def __init__(self, qids: Iterable[str]) -> None:
        self.corpus: list[dict[str, str]] = []
        self._taken = set(qids)
        self._by_text: dict[str, str] = {}

    def add(self, row: _Row) -> str:
        """The docno of a row's own answer."""
        if row.answer not in self._by_text:
            self._by_text[row.answer] = self._new(row.qid, row.answer)
        return self._by_text[row.answer]

    def of_history(self, row: _Row, spans: list[_Span]) -> list[str]:
        """The docno of each answer of a row's history ('' of a blank one); what is no document yet becomes one."""
        found = []
        for span in spans:
            if span.text.strip() and span.text not in self._by_text:
                self._by_text[span.text] = self._new(self._free(row, span), span.text)
            found.append(self._by_text.get(span.text, ""))
        return found

    def warn(self) -> None:
        """Say what could not be told for certain."""

    def _new(self, docno: str, text: str) -> str:
        self.corpus.append({"docno": docno, "text": text})
        return docno

    def _free(self, row: _Row, span: _Span) -> str:
        """A docno for an answer of a history that no question has as its qid."""
        docno = f"{row.qid}:h{span.start + 1}"
        while docno in self._taken:
            docno += "'"
        return docno


@dataclass(frozen=True)
class _Said:
    """A document of its own: when it was said (None: only histories hold it), to which question."""

    docno: str
    time: tuple[int, int] | None
    question: str


class _OwnDocuments(_Documents):
    """A document for each question's answer, found again by what was said before it."""

    def __init__(self, qids: Iterable[str]) -> None:
        super().__init__(qids)
        #: by the conversation and all that was said up to the answer; by that alone; by the conversation and the text
        self._own: dict[Hashable, list[_Said]] = {}
        self._anywhere: dict[int, list[_Said]] = {}
        self._texts: dict[Hashable, list[_Said]] = {}
        self._answers: set[str] = set()
        self._unsure: list[str] = []

    def add(self, row: _Row) -> str:
        *_, last = _spans([*row.history, {"role": USER, "content": row.query},
                           {"role": ASSISTANT, "content": row.answer}])  # fmt: skip
        self._answers.add(row.answer)
        return self._keep(row, last, _Said(self._new(row.qid, row.answer), row.time, row.query))

    def of_history(self, row: _Row, spans: list[_Span]) -> list[str]:
        found: list[_Said | None] = [self._by_turn(row, span) for span in spans]
        if row.conversation is not None:
            self._fill_by_text(row, spans, found)
        unsure = False
        docnos = []
        for span, said in zip(spans, found, strict=True):
            if not span.text.strip():
                docnos.append("")
                continue
            if row.conversation is None:
                unsure |= said is None and span.text in self._answers
                unsure |= len(self._own.get((None, span.state), ())) > 1
            if said is None:  # as in a branch, whose beginning is told in another conversation
                elsewhere = self._anywhere.get(span.state, [])
                said = elsewhere[0] if len(elsewhere) == 1 else None
            if said is not None:
                docnos.append(said.docno)
                continue
            docno = self._new(self._free(row, span), span.text)
            docnos.append(self._keep(row, span, _Said(docno, None, span.question)))
        if unsure:
            self._unsure.append(row.qid)
        return docnos

    def warn(self) -> None:
        if self._unsure:
            warnings.warn(
                f"an answer in the history of {len(self._unsure)} questions ({first_three(self._unsure)}) may be "
                "that of another conversation of the same words: duplicates='own-id' needs a column 'conversation_id' "
                "to tell them apart",
                stacklevel=3,
            )

    def _keep(self, row: _Row, span: _Span, said: _Said) -> str:
        self._own.setdefault((row.conversation, span.state), []).append(said)
        self._anywhere.setdefault(span.state, []).append(said)
        self._texts.setdefault((row.conversation, span.text), []).append(said)
        return said.docno

    def _by_turn(self, row: _Row, span: _Span) -> _Said | None:
        """The answer before which the same was said in the same conversation: the nearest of several before the row."""
        same = self._own.get((row.conversation, span.state), [])
        earlier = [said for said in same if said.time is not None and said.time < row.time]
        return max(earlier, key=_time) if earlier else next(iter(same), None)

    def _fill_by_text(self, row: _Row, spans: list[_Span], found: list[_Said | None]) -> None:
        """Answers of a history that was cut or edited: the nearest before of the same text, to the same question if
        there is one. No answer stands for two of a history."""
        used = {said.docno for said in found if said is not None}
        limit = row.time
        for at in reversed(range(len(found))):
            span, said = spans[at], found[at]
            if said is None:
                same = [
                    one
                    for one in self._texts.get((row.conversation, span.text), ())
                    if one.docno not in used and (one.time is None or one.time < limit)
                ]
                said = found[at] = max(same, key=lambda one: (one.question == span.question, *_time(one)), default=None)
            if said is not None:
                used.add(said.docno)
                limit = min(limit, said.time or limit)


def _time(said: _Said) -> tuple[bool, Any]:
    """By when it was said; first what only histories hold."""
    return said.time is not None, said.time or (0, 0)


def _with_docnos(
    history: list[Message], spans: list[_Span], docnos: list[str], shown: dict[tuple[int, str], Message]
) -> list[Message]:
    """A history whose answers carry their docno; rows that shared a message still share one afterwards."""
    made = list(history)
    for span, docno in zip(spans, docnos, strict=True):
        for at in range(span.start, span.end):
            known = (id(history[at]), docno)
            if known not in shown:
                shown[known] = {**history[at], "docno": docno} if docno else history[at]
            made[at] = shown[known]
    return made
