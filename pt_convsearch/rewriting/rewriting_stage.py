"""What every rewriting stage does with its frame: q_t as it was said goes in, a query that stands alone comes out."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pandas as pd
import pyterrier as pt

from pt_convsearch._stage import Stage
from pt_convsearch.forming import CURRENT, form
from pt_convsearch.topics.checks import first_three
from pt_convsearch.topics.messages import Message
from pt_convsearch.topics.validation import MISSING, histories

logger = logging.getLogger(__name__)

#: rewrites of one question, the best first, with weights that sum to 1; empty where there is none
Written = list[tuple[str, float]]


class Turn(NamedTuple):
    """One question with what was said before it."""

    qid: str
    question: str
    history: list[Message]


class RewritingStage(Stage):
    """Base of the stages that rewrite q_t (Q -> Q).

    Input columns: ``qid``, ``query``, ``qhistory``. Output columns: all of them; the rewrite in ``query``, the former
    query in ``query_0`` (``pt.rewrite.reset()`` undoes it), ``qutterance`` (q_t as it was said; a former or rewriter
    that follows starts from it). ``query_toks`` and ``query_vec`` belong to the old query and are dropped. A question
    without words stays as it is, and so do first turns, unless ``first_turns``.
    """

    #: whether q_1 is rewritten as well: it has no history to be resolved from
    first_turns: bool = False
    #: above 1, columns ``qrewrites`` and ``qrewrite_weights`` hold all rewrites of a question
    num_rewrites: int = 1
    #: what was done over the life of the stage
    counts: dict[str, int]

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        formed, turns = self._turns(inp)
        rows: list[Written] = [[(turn.question, 1.0)] for turn in turns]
        asked = [at for at, turn in enumerate(turns) if turn.question.strip() and (turn.history or self.first_turns)]
        empty = []
        if asked:
            found = self._rewrite([turns[at] for at in asked], formed.take(asked))
            for at, written in zip(asked, found, strict=True):
                if written:
                    rows[at] = written
                else:
                    empty.append(turns[at].qid)
        self.counts["rewritten"] += len(asked) - len(empty)
        self.counts["empty"] += len(empty)
        if empty:
            logger.warning(
                "%s: nothing to search with for %d of %d questions (qid %s): they stay as they were said",
                type(self).__name__, len(empty), len(asked), first_three(empty),
            )  # fmt: skip
        formed["query"] = pd.Series([row[0][0] for row in rows], index=formed.index, dtype="str")
        if self.num_rewrites > 1:
            for name, part in (("qrewrites", 0), ("qrewrite_weights", 1)):
                values = [[pair[part] for pair in row] for row in rows]
                formed[name] = pd.Series(values, index=formed.index, dtype=object)
        return formed

    def _turns(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, list[Turn]]:
        """The frame with q_t as its query, checked, and its rows."""
        try:
            pt.validate.query_frame(inp, ["query", "qhistory"], context=self)
        except pt.validate.InputValidationError as error:
            raise pt.validate.InputValidationError(f"{error.args[0]} {MISSING}.", error.modes) from None
        formed = form(CURRENT).transform(inp)
        formed["qhistory"] = histories(formed["qhistory"], formed["qid"])
        rows = zip(formed["qid"].tolist(), formed["query"].tolist(), formed["qhistory"].tolist(), strict=True)
        return formed, [Turn(*row) for row in rows]

    def _rewrite(self, turns: list[Turn], frame: pd.DataFrame) -> list[Written]:
        """The rewrites of these questions, [] for none; ``frame`` holds their rows."""
        raise NotImplementedError
