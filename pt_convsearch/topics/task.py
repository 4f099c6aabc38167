"""A retrieval task made of conversations alone."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, eq=False)
class Task:
    """Topics, a collection and judgments that belong together.

    Attributes:
        topics: the topics frame; history messages carry the ``docno`` of what they say.
        corpus: dicts with ``docno`` and ``text``, as indexes take them.
        qrels: qid, docno, label (1).
    """

    topics: pd.DataFrame
    corpus: list[dict[str, str]]
    qrels: pd.DataFrame

    def __repr__(self) -> str:
        return f"Task({len(self.topics)} topics, {len(self.corpus)} documents, {len(self.qrels)} judgments)"


def qrels_frame(qids: list[str], docnos: list[str]) -> pd.DataFrame:
    """Judgments of grade 1."""
    return pd.DataFrame(
        {
            "qid": pd.Series(qids, dtype="str"),
            "docno": pd.Series(docnos, dtype="str"),
            "label": pd.Series([1] * len(qids), dtype="int64"),
        }
    )
