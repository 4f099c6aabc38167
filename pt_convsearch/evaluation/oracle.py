"""The oracle that knows the conversation and not the question: what a retriever must beat to have read the question."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import Measure

from pt_convsearch._results import results_frame
from pt_convsearch._stage import Stage
from pt_convsearch.evaluation.groups import By, groups_of
from pt_convsearch.evaluation.table import N
from pt_convsearch.measures import Judgments, as_measures, judgments
from pt_convsearch.topics.checks import as_ids, check_queries
from pt_convsearch.topics.messages import shown_docnos
from pt_convsearch.topics.validation import histories

logger = logging.getLogger(__name__)


class ConversationOracle(Stage):
    """Q -> R: the answers of the question's own conversation, and no others, in random order.

    Where the answers of a log are the collection (:func:`pt_convsearch.topics.answers`), finding the conversation is
    most of the work, and the history gives it away. This oracle does that part perfectly and knows nothing about the
    question: a retriever that does not beat it has not shown that it reads the question. It is no upper bound.
    :meth:`expected` gives its exact mean over all orders; a run is one order of them.

    Input: qid, query (not read), conversation_id. Output: the columns of the topics, docno, score, rank. A
    conversation that the oracle does not know has no results.

    Args:
        topics: the topics of whole conversations, with ``conversation_id``; a conversation's answers are the relevant
            documents of its questions and the ``docno`` of the messages in their ``qhistory``.
        qrels: qid, docno, label (or a mapping): the answer of each question.
        seed: of the orders; each question has its own, the same in any batch.

    Raises:
        ValueError: topics without ``conversation_id`` (it is never guessed from the qid).

    Example:
        >>> topics = pd.DataFrame({"qid": ["c_1", "c_2"], "query": ["a", "b"], "conversation_id": "c"})
        >>> topics["qhistory"] = [[], [{"role": "assistant", "content": "A", "docno": "d1"}]]
        >>> qrels = pd.DataFrame({"qid": ["c_1", "c_2"], "docno": ["d1", "d2"], "label": 1})
        >>> oracle = ConversationOracle(topics, qrels)
        >>> sorted(oracle(topics[1:]).docno)
        ['d1', 'd2']
        >>> oracle.expected(topics, qrels, ["RR"])["RR"].tolist()
        [0.75, 0.75]
        >>> oracle.expected(topics, qrels, ["RR"], drop_seen=True)["RR"].tolist()
        [0.75, 1.0]

    Source: ours.
    """

    label = "Conversation oracle"

    def __init__(self, topics: pd.DataFrame, qrels: Any, *, seed: int = 0) -> None:
        self.topics = topics
        self.qrels = qrels
        self.seed = seed
        topics = _with_conversations(check_queries(topics))
        relevant = _relevant(judgments(qrels), 1)
        known: dict[str, dict[str, None]] = {}
        for qid, conversation, seen in zip(topics["qid"], topics["conversation_id"], _seen(topics), strict=True):
            answers = known.setdefault(conversation, {})
            answers.update(dict.fromkeys(seen))
            answers.update(dict.fromkeys(sorted(relevant.get(qid, ()))))
        self._answers = {conversation: list(answers) for conversation, answers in known.items()}

    def _identity(self) -> tuple[Any, ...]:
        digest = hashlib.blake2b(digest_size=16)
        for conversation, answers in self._answers.items():
            digest.update("\0".join([conversation, *answers, "\n"]).encode("utf-8", "surrogatepass"))
        return (digest.hexdigest(), self.seed)

    def __repr__(self) -> str:
        seed = f", seed={self.seed}" if self.seed else ""
        return f"ConversationOracle({len(self._answers)} conversations{seed})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, ["query", "conversation_id"], context=self)
        topics = _with_conversations(check_queries(inp, context=self))
        counts, docnos = [], []
        for qid, conversation in zip(topics["qid"], topics["conversation_id"], strict=True):
            answers = self._answers.get(conversation, [])
            name = hashlib.blake2b(f"{self.seed}\0{qid}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
            order = np.random.default_rng(int.from_bytes(name, "big")).permutation(len(answers))
            counts.append(len(answers))
            docnos += [answers[at] for at in order]
        scores = np.array([float(-at) for count in counts for at in range(count)])
        return results_frame(topics, counts, docnos, scores)

    def expected(
        self,
        topics: pd.DataFrame,
        qrels: Any,
        measures: Iterable[Measure | str] | Measure | str,
        *,
        drop_seen: bool = False,
    ) -> pd.DataFrame:
        """The mean of each measure over all orders of the answers: no sampling.

        Args:
            topics: the questions, with ``conversation_id`` (and ``qhistory`` for ``drop_seen``).
            qrels: qid, docno, label.
            measures: RR, R@k, Success@k, P@k.
            drop_seen: without the answers whose ``docno`` the history holds, as ``cs.DropSeen()`` leaves them out;
                where an answer is given a second time, it is left out as well, and the question counts 0.

        Returns:
            a frame indexed by the qids of the judged questions, in the order of ``topics``, with a column for each
            measure.

        Raises:
            ValueError: a measure without a closed form here: average :func:`Experiment` over several seeds.
        """
        named = as_measures(measures)
        topics = _with_conversations(check_queries(topics))
        judged = judgments(qrels).of(pd.Index(topics["qid"]))
        topics = topics[topics["qid"].isin(judged.qids)]
        seen = _seen(topics) if drop_seen else [set[str]()] * len(topics)
        pools = [
            [docno for docno in self._answers.get(conversation, ()) if docno not in shown]
            for conversation, shown in zip(topics["conversation_id"], seen, strict=True)
        ]
        columns = {}
        for name, measure in named.items():
            kind, cutoff, rel = str(measure.NAME), measure.params.get("cutoff"), int(measure.params.get("rel", 1))
            if kind not in _EXPECTED:
                raise ValueError(
                    f"{name}: no closed form for a random order is known here ({', '.join(_EXPECTED)} have one); "
                    "run the oracle with several seeds instead"
                )
            relevant = _relevant(judged, rel)
            values = []
            for qid, pool in zip(topics["qid"], pools, strict=True):
                golds = relevant.get(qid, set())
                found = len(golds.intersection(pool))
                depth = min(cutoff or len(pool), len(pool))
                values.append(_EXPECTED[kind](len(pool), found, len(golds), depth, cutoff) if found else 0.0)
            columns[name] = np.array(values, dtype=np.float64)
        return pd.DataFrame(columns, index=pd.Index(topics["qid"], name="qid"))


def _reciprocal_rank(n: int, g: int, golds: int, depth: int, cutoff: int | None) -> float:
    """The first of g relevant ones among n stands at rank r in C(n-r, g-1) of C(n, g) orders."""
    ways = math.comb(n, g)
    return sum(math.comb(n - r, g - 1) / (ways * r) for r in range(1, min(depth, n - g + 1) + 1))


def _recall(n: int, g: int, golds: int, depth: int, cutoff: int | None) -> float:
    return g / golds * depth / n


def _success(n: int, g: int, golds: int, depth: int, cutoff: int | None) -> float:
    return 1.0 - math.comb(n - depth, g) / math.comb(n, g)


def _precision(n: int, g: int, golds: int, depth: int, cutoff: int | None) -> float:
    return g / n * depth / (cutoff or n)


_EXPECTED: Mapping[str, Callable[[int, int, int, int, int | None], float]] = {
    "RR": _reciprocal_rank,
    "R": _recall,
    "Success": _success,
    "P": _precision,
}


def with_row(table: pd.DataFrame, name: str, values: pd.DataFrame, topics: pd.DataFrame, by: By = None) -> pd.DataFrame:
    """A table of :func:`Experiment` with one more row on top: the means of values per question that are no run's.

    Args:
        table: what ``Experiment(…, topics, …, by=by)`` returned.
        name: of the row.
        values: indexed by qid, a column for each measure, as :meth:`ConversationOracle.expected` gives them.
        topics: the same topics.
        by: the same groups.

    Raises:
        ValueError: the table has a row of that name.
    """
    if name in table.index:
        raise ValueError(f"the table has a row {name!r} already")
    cells: dict[tuple[str, str], float] = {}
    for group, mask in groups_of(topics, by).items():
        rows = values[values.index.isin(topics["qid"][mask])]
        for measure in values.columns:
            cells[group, measure] = float(rows[measure].mean()) if len(rows) else float("nan")
    columns: list[Any] = list(table.columns)
    row = {column: table[column].iloc[0] if column[1] == N else cells.get(column, float("nan")) for column in columns}
    first = pd.DataFrame([row], index=pd.Index([name], name=table.index.name), columns=table.columns)
    whole = type(table)(pd.concat([first, pd.DataFrame(table)]))
    whole = whole.astype({column: table[column].dtype for column in columns if column[1] == N})
    whole.attrs.update(table.attrs)
    return whole


def _with_conversations(topics: pd.DataFrame) -> pd.DataFrame:
    if "conversation_id" not in topics.columns:
        raise ValueError("topics have no column 'conversation_id': it is never guessed from the qid")
    return topics.assign(conversation_id=as_ids(topics["conversation_id"], "conversation_id"))


def _seen(topics: pd.DataFrame) -> list[set[str]]:
    """The docnos that each history holds."""
    if "qhistory" not in topics.columns:
        raise ValueError("topics have no column 'qhistory': build them with cs.topics.from_messages")
    return [
        {docno for message in history for docno in shown_docnos(message)}
        for history in histories(topics["qhistory"], topics["qid"])
    ]


def _relevant(judged: Judgments, rel: int) -> dict[str, set[str]]:
    kept = judged.label >= rel
    qids, docnos = judged.qids.take(judged.query[kept]), judged.docnos.take(judged.doc[kept])
    found: dict[str, set[str]] = {}
    for qid, docno in zip(qids.tolist(), docnos.tolist(), strict=True):
        found.setdefault(qid, set()).add(docno)
    return found
