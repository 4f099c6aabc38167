"""Rubbish that language models answer, and the rewrite in it."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given, strategies as st

from pt_convsearch.rewriting.cleaning import cleaned

WANTED = "When was Dune published?"


def test_half_a_character_is_no_text() -> None:
    """What JSON's escapes can say and no encoding can write: the rest of the answer stays."""
    assert cleaned("When was \ud83dDune published?") == "When was Dune published?"


@pytest.mark.parametrize(
    "answer",
    [
        WANTED,
        f"  {WANTED}\n",
        f'"{WANTED}"',
        f"“{WANTED}”",
        f"'{WANTED}'",
        f"`{WANTED}`",
        f"**{WANTED}**",
        f"Rewrite: {WANTED}",
        f"rewritten question: {WANTED}",
        f"Rewritten Query: “{WANTED}”",
        f"**Rewritten question:** {WANTED}",
        f"The standalone question: {WANTED}",
        f"Here is the rewritten question: {WANTED}",
        f"Sure! Here's the rewritten question:\n\n{WANTED}\n\nLet me know if you need more.",
        f"Sure.\n{WANTED}",
        f"1. {WANTED}\n2. When did it come out?",
        f"- {WANTED}",
        f"The user asks about the book.\nRewrite: {WANTED}",
        f'{{"rewrite": "{WANTED}"}}',
        f'{{"Rewritten Question": "{WANTED}", "confidence": 0.9}}',
        f'["{WANTED}", "other"]',
        f'{{"output": {{"query": "{WANTED}"}}}}',
        f'```json\n{{"rewrite": "{WANTED}"}}\n```',
        f"```\n{WANTED}\n```",
        f"<think>The user means the book.\nRewrite: no</think>\n{WANTED}",
        "When was\tDune  published?",
        f'{{"rewrite": "{WANTED}"}} I hope this helps!',
    ],
)
def test_the_rewrite_is_found(answer: str) -> None:
    assert cleaned(answer) == WANTED


@pytest.mark.parametrize(
    "answer",
    [
        "", "   \n ", '""', "…", "?!", "Rewrite:", "```\n```", "{}", "[]", "null", "None", "N/A", '{"rewrite": ""}',
        '{"rewrite": null}',
        '{"rewrite": "When was', "<think>still thinking", "I'm sorry, but I can't help with that.",
        "As an AI language model, I …",
        "I cannot answer.", "word " * 150, None, 3,
    ],
)  # fmt: skip
def test_there_is_no_rewrite(answer: object) -> None:
    assert cleaned(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        'Who said "yes"?', '"Dune" by "Herbert"', "2001: A Space Odyssey release date", "What is 1. FC Köln?",
        "Is {x} a set?",
        "[SEP] meaning in BERT", "沙丘是什么时候出版的？", "Quand « Dune » est-il paru ?",
        "What's the question: to be or not to be?",
    ],
)  # fmt: skip
def test_a_plain_question_is_left_as_it_is(answer: str) -> None:
    assert cleaned(answer) == answer


@given(st.text())
def test_whatever_comes_is_one_line_with_a_letter_or_nothing(answer: str) -> None:
    found = cleaned(answer)
    assert found is None or (found == " ".join(found.split()) and bool(regex.search(r"[\p{L}\p{N}]", found)))
