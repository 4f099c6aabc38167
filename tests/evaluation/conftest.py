"""A conversation whose rankings are worked out by hand, and a retriever that can be followed on paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pt_convsearch._results import results_frame
from pt_convsearch._stage import Stage


class Words(Stage):
    """Q -> R: the query's words are the docnos, last word first; then ``more``. An empty query finds nothing."""

    calls: list[int] = []

    def __init__(self, more: Sequence[str] = ()) -> None:
        self.more = more

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        Words.calls.append(len(inp))
        asked = inp[inp["query"].str.strip() != ""]
        found = [list(dict.fromkeys([*reversed(query.split()), *self.more])) for query in asked["query"]]
        scores = [float(-at) for docnos in found for at in range(len(docnos))]
        return results_frame(
            asked, [len(docnos) for docnos in found], [one for docnos in found for one in docnos], np.array(scores)
        )


class Former(Stage):
    """Q -> Q: history and question, or the history alone, or the question alone."""

    def __init__(self, what: str) -> None:
        self.what = what

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        history = [" ".join(message["content"] for message in messages) for messages in inp["qhistory"]]
        queries = [
            f"{before} {now}".strip() if self.what == "all" else before if self.what == "history" else now
            for before, now in zip(history, inp["query"], strict=True)
        ]
        return inp.assign(query=pd.Series(queries, index=inp.index, dtype=str))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture
def topics() -> pd.DataFrame:
    """Two conversations, c1 of three turns and c2 of two; the last question has no type."""
    return pd.DataFrame(
        {
            "qid": ["c1_1", "c1_2", "c1_3", "c2_1", "c2_2"],
            "query": ["a", "b", "c", "d", "e"],
            "qhistory": [[], [user("a")], [user("a"), user("b")], [], [user("d")]],
            "conversation_id": ["c1", "c1", "c1", "c2", "c2"],
            "turn_number": [1, 2, 3, 1, 2],
            "qtype": ["first", "no-switch", "switch", "first", None],
        }
    )


@pytest.fixture
def qrels() -> pd.DataFrame:
    """c2_2 is not judged. X_t finds a, b at rank 1, b of c1_3 at 2, d at 1; X_t \\ q_t finds b of c1_3 at rank 1."""
    rows = [("c1_1", "a", 1), ("c1_2", "b", 1), ("c1_3", "b", 1), ("c2_1", "d", 1), ("c2_2", "", 1)]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


@pytest.fixture
def systems() -> dict[str, pt.Transformer]:
    """RR by question, in the order of the judged topics: X_t 1, 1, 1/2, 1; X_t \\ q_t 0, 0, 1, 0; q_t 1, 1, 0, 1."""
    Words.calls.clear()
    return {
        "X_t": Former("all") >> Words(),
        "X_t\\q_t": Former("history") >> Words(),
        "q_t": Former("question") >> Words(),
    }


@pytest.fixture
def words() -> type[Words]:
    """The retriever, for tests that make systems of their own; ``calls`` holds how many topics each call got."""
    Words.calls.clear()
    return Words


@pytest.fixture
def former() -> type[Former]:
    """The former, for tests that make systems of their own."""
    return Former
