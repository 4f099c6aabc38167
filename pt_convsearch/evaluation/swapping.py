"""A control for the question: every conversation keeps its history and gets the question of another."""

from __future__ import annotations

import numpy as np
import pandas as pd

#: what belongs to the question and goes with it, and what was computed from it and is dropped
_OF_THE_QUESTION = ("query", "qrewrite")
_COMPUTED = ("qutterance", "query_toks", "query_vec")


def swapped(topics: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """The topics with q_t (and ``qrewrite``, if any) taken from a row of another conversation; qid and history stay.

    Each question is used once where that is possible; where one conversation has more than half of all questions,
    some are used again. Conversations are told apart by ``conversation_id``. Without that column, by the first user
    message; where more than half begin with the same one, by the shortest history among the rows that a row's own
    history begins with. So two conversations may be taken for one, but never one for two (unless a row's history was
    cut at its beginning); the qid is never taken apart.

    Args:
        topics: qid, query, qhistory; a query that was formed already is taken back to the utterance (``qutterance``).
        seed: the same seed gives the same questions.

    Returns:
        the topics with other questions; columns computed from the former ones (``query_vec`` …) are dropped.

    Raises:
        ValueError: all rows belong to one conversation.
    """
    raw = topics.assign(query=topics["qutterance"]) if "qutterance" in topics.columns else topics
    donors = _donors(_conversations(raw), np.random.default_rng(seed))
    taken = {column: raw[column].to_numpy(dtype=object)[donors] for column in _OF_THE_QUESTION if column in raw.columns}
    kept = raw.drop(columns=[column for column in raw.columns if column in _COMPUTED or column.startswith("query_")])
    return kept.assign(**taken)


def _conversations(topics: pd.DataFrame) -> np.ndarray:
    """A code of the conversation for each row."""
    if "conversation_id" in topics.columns and not topics["conversation_id"].isna().any():
        return pd.factorize(topics["conversation_id"])[0]
    said = [
        [*((message["role"], message["content"]) for message in history), ("user", query)]
        for history, query in zip(topics["qhistory"], topics["query"], strict=True)
    ]
    first = [next(content for role, content in messages if role == "user") for messages in said]
    codes = pd.factorize(np.array(first, dtype=object))[0]
    if len(codes) and 2 * np.bincount(codes).max() <= len(codes):
        return codes
    # many begin alike: a row belongs to the row of the shortest history that its own begins with
    histories = [tuple(messages[:-1] or messages) for messages in said]
    known, roots = set(histories), dict[tuple[tuple[str, str], ...], int]()
    begins = [next(part for at in range(1, len(own) + 1) if (part := own[:at]) in known) for own in histories]
    return np.array([roots.setdefault(begin, len(roots)) for begin in begins], dtype=np.int64)


def _donors(codes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """For each row another row with another code: a permutation if there is one."""
    sizes = np.bincount(codes)
    if len(sizes) < 2:
        raise ValueError(
            "control='swapped' takes questions from other conversations, and all topics belong to one, as far as "
            "'conversation_id', or else the histories, tell"
        )
    # conversations in random order, rows in random order within them; then everyone takes from as many rows further
    # as the longest conversation has
    order = np.lexsort((random.random(len(codes)), random.permutation(len(sizes))[codes]))
    longest = int(sizes.max())
    donors = np.empty(len(codes), dtype=np.int64)
    donors[order] = np.roll(order, -longest)
    clash = np.flatnonzero(codes[donors] == codes)
    for row in clash:
        donors[row] = random.choice(np.flatnonzero(codes != codes[row]))
    return donors
