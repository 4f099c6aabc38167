"""From a conversation to a query: parts algebra, query formers, token budgets.

``cs.form(cs.X - cs.CURRENT)`` is a transformer (Q -> Q); what stands inside is an expression over the parts of the
conversation.
"""

from pt_convsearch.forming.former import Form, form
from pt_convsearch.forming.parts import (
    ANSWERS,
    CURRENT,
    FIRST_QUESTION,
    LAST_ANSWER,
    LAST_QUESTION,
    LAST_UTTERANCE,
    QUESTIONS,
    REWRITE,
    Parts,
    X,
    last,
)

__all__ = [
    "ANSWERS",
    "CURRENT",
    "FIRST_QUESTION",
    "LAST_ANSWER",
    "LAST_QUESTION",
    "LAST_UTTERANCE",
    "QUESTIONS",
    "REWRITE",
    "Form",
    "Parts",
    "X",
    "form",
    "last",
]
