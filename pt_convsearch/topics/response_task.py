"""Full-rank retrieval of responses: the context of each response turn is the query, all responses are the
collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import pandas as pd

from pt_convsearch.topics.chats import conversations
from pt_convsearch.topics.dialogues import Dialogue, Heard, User, Utterance, read_dialogues
from pt_convsearch.topics.files import naming
from pt_convsearch.topics.messages import ASSISTANT, USER, Message
from pt_convsearch.topics.rows import Rows
from pt_convsearch.topics.task import Task, qrels_frame


def responses(
    dialogues: Iterable[Any] | pd.DataFrame | str | os.PathLike[str],
    duplicates: str = "own-id",
    *,
    user: User = None,
    join_turns: bool = False,
) -> Task:
    """A task in which every context looks for the response that followed it, among the responses of all dialogues.

    A turn is a run of utterances by one speaker; each turn by somebody else than the user, the opening one excepted,
    is a response: a document, and the topic whose context it answers. The last utterance of the context is ``query``
    (``cs.CURRENT``), what came before is ``qhistory``; ``cs.X`` is the whole context.

    Args:
        dialogues: as :func:`from_dialogues` takes them.
        duplicates: which responses are relevant: "own-id", the one that followed; "equal-text", every one of equal
            text (to the letter), as in the paper. All stay documents, so with "equal-text" success@k is the measure,
            not recall.
        user: who asks (see :func:`from_dialogues`); by default whoever opens the dialogue.
        join_turns: make the utterances of a turn one message, with a space between them. Otherwise they stay separate
            messages ([U] between them); the response is joined either way.

    Returns:
        a :class:`Task`. qid and docno are "{dialogue}_{turns before the response}"; history messages that are
        responses carry their ``docno``; ``answer`` is the response.

    Raises:
        ValueError: as :func:`from_dialogues`.

    Example:
        >>> import pt_convsearch as cs
        >>> task = cs.topics.responses([{"dialogue_id": "d", "utterances": [
        ...     {"speaker": "ann", "text": "hi"}, {"speaker": "ann", "text": "wifi is down"},
        ...     {"speaker": "bob", "text": "which card?"}]}])
        >>> task.topics["query"][0], task.corpus
        ('wifi is down', [{'docno': 'd_1', 'text': 'which card?'}])

    Source: Penha and Hauff (full-rank retrieval of responses for dialogues): one instance per response turn.
    """
    if duplicates not in ("own-id", "equal-text"):
        raise ValueError(f"duplicates is {duplicates!r}: give 'own-id' or 'equal-text'")
    rows = Rows()
    corpus: list[dict[str, str]] = []
    heard = Heard(user)
    source = conversations(dialogues)
    with naming(source):
        for dialogue in read_dialogues(source):
            corpus.extend(_add(rows, dialogue, heard.asker(dialogue), join_turns))
        heard.check()
        topics = rows.frame()
    if duplicates == "own-id":
        qids = docnos = [document["docno"] for document in corpus]
        return Task(topics, corpus, qrels_frame(qids, docnos))
    same: dict[str, list[str]] = {}
    for document in corpus:
        same.setdefault(document["text"], []).append(document["docno"])
    qids = [document["docno"] for document in corpus for _ in same[document["text"]]]
    docnos = [docno for document in corpus for docno in same[document["text"]]]
    return Task(topics, corpus, qrels_frame(qids, docnos))


def _add(rows: Rows, dialogue: Dialogue, is_user: Callable[[str], bool], join_turns: bool) -> list[dict[str, str]]:
    """Add the topics of one dialogue; returns its responses."""
    name = rows.open(dialogue.name)
    said: list[Message] = []
    found: list[dict[str, str]] = []
    for turn, (speaker, utterances) in enumerate(groupby(dialogue.utterances, key=_speaker)):
        texts = [utterance.text for utterance in utterances]
        role, own = USER if is_user(speaker) else ASSISTANT, {}
        response = " ".join(texts)
        if turn and role == ASSISTANT:
            own = {"docno": f"{name}_{turn}"}
            found.append({**own, "text": response})
            rows.add_topic(name, turn, own["docno"], said[-1]["content"], said[:-1], response)
        said.extend({"role": role, "content": text, **own} for text in ([response] if join_turns else texts))
    return found


def _speaker(utterance: Utterance) -> str:
    return utterance.speaker
