"""What a model finds instead of the answer: the best passage of each system, question by question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import pandas as pd
import pyterrier as pt

from pt_convsearch.evaluation.systems import System
from pt_convsearch.negatives.filter import positives_of
from pt_convsearch.topics.checks import as_ids, check_queries

Corpus = Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]


def top_passages(
    systems: Mapping[str, System],
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: Corpus,
    *,
    which: Literal["all", "differ", "repaired", "broken"] = "differ",
    num_questions: int | None = 10,
    max_characters: int | None = 200,
    text_field: str = "text",
) -> pd.DataFrame:
    """The best passage of each system beside the gold, and whether it is one: the papers' tables of examples.

    Args:
        systems: name -> pipeline, or frame of its results; the first is the one to compare with.
        topics: the topics frame: qid, query, and qhistory where there is one.
        qrels: qid, docno, label; a label above 0 is a gold. Questions without a gold are left out.
        corpus: dicts of docno and text, or a callable that gives them; read once, as a stream.
        which: "repaired": the first system is wrong and the last right; "broken": the reverse; "differ": their best
            passages differ; "all".
        num_questions: the first so many of these; None: all. Take a sample of ``topics`` for a fair picture: examples
            of one kind show what a difference looks like, never how large it is.
        max_characters: texts are cut to so many; None: not at all.
        text_field: the field of the text.

    Returns:
        one row per question and system, the questions in the order of ``topics``: qid, question, last answer (missing
        at first turns), gold, system, docno, text, correct. A system that found nothing has no docno, and False.

    Raises:
        ValueError: no system, an unknown ``which``, or no question with a gold.
    """
    if not systems:
        raise ValueError("systems: give at least one, {name: pipeline or results}")
    if which not in ("all", "differ", "repaired", "broken"):
        raise ValueError(f"which={which!r}: 'all', 'differ', 'repaired' or 'broken'")
    topics = check_queries(topics)
    relevant = positives_of(qrels)
    golds: dict[str, list[str]] = {}
    for qid, docno in zip(relevant["qid"], relevant["docno"], strict=True):
        golds.setdefault(qid, []).append(docno)
    topics = topics[topics["qid"].isin(golds.keys())].reset_index(drop=True)
    if topics.empty:
        raise ValueError("none of the topics has a gold in qrels: do the qids agree?")
    best = {name: _best(system, topics) for name, system in systems.items()}
    names = list(best)
    first, last = best[names[0]], best[names[-1]]

    def wanted(qid: str) -> bool:
        before, after = first.get(qid) in golds[qid], last.get(qid) in golds[qid]
        return {
            "all": True,
            "differ": first.get(qid) != last.get(qid),
            "repaired": after and not before,
            "broken": before and not after,
        }[which]

    shown = topics[[wanted(qid) for qid in topics["qid"]]].head(len(topics) if num_questions is None else num_questions)
    docnos = {docno for qid in shown["qid"] for docno in (golds[qid][0], *(found.get(qid) for found in best.values()))}
    passages = corpus() if callable(corpus) else corpus
    texts = {key: str(one[text_field]) for one in passages if (key := str(one["docno"])) in docnos}
    rows = []
    for record in shown.to_dict("records"):
        qid = record["qid"]
        for name, found in best.items():
            top: str | None = found.get(qid)
            rows.append(
                {
                    "qid": qid,
                    "question": record.get("qutterance", record["query"]),
                    "last answer": _cut(_last_answer(record.get("qhistory")), max_characters),
                    "gold": _cut(texts.get(golds[qid][0]), max_characters),
                    "system": name,
                    "docno": top,
                    "text": _cut(texts.get(top) if top is not None else None, max_characters),
                    "correct": top in golds[qid],
                }
            )
    return pd.DataFrame(rows, columns=["qid", "question", "last answer", "gold", "system", "docno", "text", "correct"])


def _best(system: System, topics: pd.DataFrame) -> dict[str, str]:
    """qid -> docno of the best passage."""
    run = system.transform(topics) if isinstance(system, pt.Transformer) else system
    run = run.assign(qid=as_ids(run["qid"], "qid"), docno=as_ids(run["docno"], "docno"))
    run = run[run["qid"].isin(topics["qid"])]
    by = ["rank"] if "rank" in run else ["score"]
    run = run.sort_values(by, ascending=by == ["rank"], kind="stable").drop_duplicates("qid")
    return dict(zip(run["qid"], run["docno"], strict=True))


def _last_answer(history: Any) -> str | None:
    said = [
        message["content"] for message in (history if history is not None else []) if message["role"] == "assistant"
    ]
    return said[-1] if said else None


def _cut(text: str | None, most: int | None) -> str | None:
    if text is None or most is None or len(text) <= most:
        return text
    return text[: most - 1].rstrip() + "…"
