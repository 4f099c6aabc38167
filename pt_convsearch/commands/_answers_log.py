"""What ``answers`` reads: any log as a task of answer retrieval, its questions, their groups."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt_convsearch.topics.messages import is_later

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from pt_convsearch.topics.task import Task

#: the group of questions before which something was asked
LATER = "t > 1"
MOST_LABELS = 40
#: columns that topics have by themselves
OWN = ("qid", "qrewrite", "conversation_id", "turn_number")


def log_task(arguments: argparse.Namespace, say: Callable[[str], None]) -> Task:
    """The log as a task of answer retrieval, or an error that says why it is none."""
    import pt_convsearch as cs

    log = arguments.conversations
    try:
        topics = _read(log, arguments)
    except ValueError as error:
        raise ValueError(in_options(str(error))) from error
    say(f"{log.name}: {len(topics):,} questions")
    if len(topics) == 0:
        raise ValueError(f"{log} holds no question: no conversation has a message of the user with text")
    if "answer" not in topics.columns:
        raise ValueError(
            f"{log} has topics without a column 'answer': there is nothing to search for (--columns THEIRS=answer)"
        )
    if "conversation_id" not in topics.columns:
        raise ValueError(
            f"{log} has topics without 'conversation_id' (--columns THEIRS=conversation_id): it is never guessed"
        )
    if "turn_number" not in topics.columns:
        turns = [1 + sum(message["role"] == "user" for message in history) for history in topics["qhistory"]]
        topics = topics.assign(turn_number=turns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there was to say about the histories was said when they were read
        task = cs.topics.answers(topics, duplicates=arguments.duplicates)
    judged = task.topics["qid"].isin(task.qrels["qid"])
    if not judged.any():
        raise ValueError(
            f"none of the {len(topics):,} questions of {log} has an answer with text: "
            "the answers are what is searched for"
        )
    if not (judged & task.topics["qhistory"].map(is_later)).any():
        raise ValueError(
            f"no question of {log} with an answer has a history (all are first turns): "
            "there is nothing that could be used in place of the question"
        )
    say(
        f"{len(task.corpus):,} answers in {task.topics['conversation_id'].nunique():,} conversations; "
        f"{int((~judged).sum()):,} questions have none and are not searched"
    )
    return task


def _read(log: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    """Topics of any log, with the label columns asked for."""
    from pt_convsearch.datasets.folder import NAMES
    from pt_convsearch.topics import from_messages, from_turns, read
    from pt_convsearch.topics.files import Records, first_record, naming, renamed_record

    columns = dict(_renaming(pair) for pair in arguments.columns)
    first = first_record(log)
    record: dict[str, Any] = renamed_record(first, columns) if isinstance(first, dict) else {}
    if "query" in record:  # topics under the names that data sets have for them
        for ours, theirs in NAMES.items():
            found = next((name for name in theirs if name in record and name not in columns), None)
            if found is not None and found != ours and ours not in {*record, *columns.values()}:
                columns[found] = ours
    by = arguments.by = [columns.get(name, name) for name in arguments.by]
    kind = _kind(first, record)
    roles: dict[str, Any] = {"roles": dict(_role(pair) for pair in arguments.roles)} if arguments.roles else {}
    user = {"user": arguments.user} if arguments.user else {}
    if roles and kind != "a chat log":
        raise ValueError(f"--roles is for chat logs, and {log.name} is {kind} (--user names who asks, in dialogues)")
    if user and kind != "dialogues":
        raise ValueError(f"--user is for dialogues of named speakers, and {log.name} is {kind} (--roles, in chat logs)")
    labels = [name for name in by if name not in OWN]
    if isinstance(first, dict) and kind in ("a chat log", "turns"):  # these take labels
        build: Any = from_messages if kind == "a chat log" else from_turns
        source = Records(log)
        with naming(source):
            topics = build((renamed_record(found, columns) for found in source), columns=labels, **roles)
    else:
        topics = read(log, columns=columns, **roles, **user)
    strangers = [name for name in by if name not in topics.columns or topics[name].isna().all()]
    if strangers:
        fields = sorted({*record, *topics.columns} - {"query", "qhistory", "answer", "messages", *strangers})
        raise ValueError(f"--by {strangers[0]}: {log.name} ({kind}) has no such field, only {', '.join(fields)}")
    return topics


def _kind(first: Any, record: Mapping[str, Any]) -> str:
    """What a log holds, by its first record, its fields under our names."""
    from pt_convsearch.topics.chats import holds, is_message

    if isinstance(first, list):
        return "a chat log"
    if not record or "query" in record:
        return "topics"
    found = holds(record)
    if found == "messages" or (found is None and is_message(record) and "conversation_id" in record):
        return "a chat log"
    if found == "turns" or "raw_utterance" in record:
        return "turns"
    return "dialogues" if found == "utterances" else "topics"


def _renaming(pair: str) -> tuple[str, str]:
    theirs, equals, ours = pair.partition("=")
    if not (theirs and equals and ours):
        raise ValueError(f"--columns {pair}: write THEIRS=OURS, e.g. dialog=messages")
    return theirs, ours


def _role(pair: str) -> tuple[str, str | None]:
    theirs, equals, ours = pair.partition("=")
    if not (theirs and equals) or ours not in ("user", "assistant", "none"):
        raise ValueError(f"--roles {pair}: write THEIRS=user, THEIRS=assistant or THEIRS=none, e.g. bot=assistant")
    return theirs, None if ours == "none" else ours


def in_options(message: str) -> str:
    """What a builder says of its arguments, with the options of the command beside it."""
    for argument, option in (("columns={", "--columns THEIRS=OURS"), ("roles={", "--roles THEIRS=assistant")):
        if argument in message:
            message += f" (here: {option})"
    return message


def sampled(task: Task, number: int, seed: int) -> pd.DataFrame:
    """The questions to search: those with an answer, or so many of them, in the log's order."""
    import numpy as np

    judged = task.topics[task.topics["qid"].isin(task.qrels["qid"])].reset_index(drop=True)
    if number <= 0 or number >= len(judged):
        return judged
    later = np.flatnonzero(judged["qhistory"].map(is_later).to_numpy(dtype=bool))
    random = np.random.default_rng(seed)
    rows = random.choice(len(judged), number, replace=False)
    if not np.isin(later, rows).any():  # a question with a history must be there, however rare
        rows[0] = random.choice(later)
    return judged.iloc[np.sort(rows)].reset_index(drop=True)


def groups_of_log(topics: pd.DataFrame, by: list[str]) -> list[Any]:
    """By turn depth, and by the labels: of these the questions with a history."""
    from pt_convsearch.evaluation.groups import ALL, groups_of

    turn = topics["turn_number"].to_numpy()
    later = topics["qhistory"].map(is_later).to_numpy(dtype=bool)
    depths = {
        "t = 1": ~later,
        LATER: later,
        "t = 2": later & (turn <= 2),
        "t = 3-4": later & (turn >= 3) & (turn <= 4),
        "t = 5-8": later & (turn >= 5) & (turn <= 8),
        "t = 9+": later & (turn >= 9),
    }
    found: list[tuple[str, str, np.ndarray]] = []
    for column in dict.fromkeys(by):
        labels = topics[column].map(str).nunique()
        if labels > MOST_LABELS:
            raise ValueError(f"--by {column}: {labels:,} different values are no labels (at most {MOST_LABELS})")
        # first turns have no form without the question: they would count 0 there, and tell of the label nothing
        masks = {name: mask & later for name, mask in groups_of(topics, column).items() if name != ALL}
        found += [(name, column, mask) for name, mask in masks.items() if mask.any()]
    times = Counter([*depths, *(name for name, _, _ in found)])
    named = {name if times[name] == 1 else f"{column}: {name}": mask for name, column, mask in found}
    return [{name: mask for name, mask in depths.items() if mask.any()}, *([named] if named else [])]


def search_depth(topics: pd.DataFrame) -> int:
    """How deep to search, so that a hundred are left when the seen ones are gone."""
    seen = (len({message.get("docno") for message in history} - {None}) for history in topics["qhistory"])
    return 100 + max(seen)


def swappable(topics: pd.DataFrame) -> bool:
    """Whether a question with a history can get one from another conversation."""
    return topics["conversation_id"][topics["qhistory"].map(is_later).astype(bool)].nunique() > 1


def all_rewritten(topics: pd.DataFrame) -> bool:
    return "qrewrite" in topics.columns and bool(topics["qrewrite"].notna().all())


def notes_on(task: Task, topics: pd.DataFrame) -> list[str]:
    """What a reader of the table must know about the log."""
    notes = []
    if len(topics) < task.qrels["qid"].nunique():
        notes.append(
            f"{len(topics):,} questions were drawn from {task.qrels['qid'].nunique():,}; "
            "the collection is the whole log's"
        )
    golds = dict(zip(task.qrels["qid"], task.qrels["docno"], strict=True))
    again = sum(
        any(message.get("docno") == golds[qid] for message in history)
        for qid, history in zip(topics["qid"], topics["qhistory"], strict=True)
    )
    if again:
        notes.append(
            f"questions whose answer was given before in their conversation: {again:,}; they count 0 among the unseen"
        )
    shared = int(task.qrels["docno"].duplicated(keep=False).sum())
    if shared:
        notes.append(
            f"{shared:,} questions share their answer with another, to the letter: each such answer is one document"
        )
    if len(task.corpus) <= 100:
        notes.append(f"the collection is small ({len(task.corpus)} documents): R@10 says little")
    if not swappable(topics):
        notes.append("all questions with a history are of one conversation: there is no other question for the control")
    return notes
