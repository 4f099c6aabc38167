"""The topics frame: its columns, its checks, and the ways of building it.

One row per question: ``qid``, ``query`` (the current utterance), ``qhistory`` (all earlier messages, oldest first,
without the current one), and where known ``qrewrite``, ``qtype``, ``conversation_id``, ``turn_number``, ``answer``.
"""

from pt_convsearch.topics.answer_task import answers
from pt_convsearch.topics.chats import from_messages
from pt_convsearch.topics.checks import as_ids, check_queries, first_three
from pt_convsearch.topics.dialogues import from_dialogues
from pt_convsearch.topics.files import read, write
from pt_convsearch.topics.frames import from_frame
from pt_convsearch.topics.messages import as_history
from pt_convsearch.topics.response_task import responses
from pt_convsearch.topics.task import Task
from pt_convsearch.topics.turns import from_turns
from pt_convsearch.topics.validation import validate

__all__ = [
    "Task",
    "answers",
    "as_history",
    "as_ids",
    "check_queries",
    "first_three",
    "from_dialogues",
    "from_frame",
    "from_messages",
    "from_turns",
    "read",
    "responses",
    "validate",
    "write",
]
