"""Systems, topics and judgments in; one table of means by group of questions out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from ir_measures import Measure
from ir_measures.measures import SumAgg

from pt_convsearch._files import PathLike
from pt_convsearch.evaluation.groups import By, groups_of, labels_of
from pt_convsearch.evaluation.systems import Runner, System, had_nothing_to_say, named_systems, position_of, progress
from pt_convsearch.evaluation.table import Cells
from pt_convsearch.measures import Judgments, as_measures, evaluate, judgments, read_qrels
from pt_convsearch.measures.runs import Ties
from pt_convsearch.measures.significance import Test
from pt_convsearch.topics.checks import as_ids, check_queries

MRT = "mrt"


def Experiment(
    systems: Mapping[str, System] | Sequence[System] | System,
    topics: pd.DataFrame | PathLike,
    qrels: pd.DataFrame | Mapping[str, Mapping[str, int]] | PathLike,
    metrics: Iterable[Measure | str] | Measure | str,
    names: Iterable[str] | None = None,
    *,
    by: By = None,
    baseline: str | int | None = None,
    test: Test = "t",
    correction: str | None = None,
    correction_alpha: float = 0.05,
    family: Literal["cell", "table"] = "cell",
    average: Literal["question", "conversation"] = "question",
    ci: float | None = None,
    seed: int = 0,
    perquery: bool | Literal["both"] = False,
    filter_by_qrels: bool = False,
    filter_by_topics: bool = True,
    ties: Ties = "rank",
    round: int | Mapping[str, int] | None = None,
    batch_size: int | None = None,
    save_dir: PathLike | None = None,
    save_mode: Literal["warn", "reuse", "overwrite", "error"] = "warn",
    verbose: bool = False,
) -> Any:
    """Compare systems, over all questions and broken down by group. Each system searches once, whatever the number
    of groups.

    The means are those of trec_eval: over the judged questions among the topics. A judged question without results
    counts 0, so does one with no relevant document among its judgments; a question without judgments is left out.
    How many there were of each is kept in the table. A form that cannot apply to a group (X_t \\ q_t at first turns:
    every query of the group is empty) has NaN in the group's cell, and its zeros still count in All.

    Args:
        systems: a mapping of names to systems, or a list. A system is a pipeline or a frame of results.
        topics: the topics frame (columns qid, query and what the systems need), or a file of topics.
        qrels: qid, docno, label; or ``{qid: {docno: label}}``; or a TREC file. An empty docno (QReCC's ``{"": 1}``)
            is no judgment.
        metrics: measures of ir_measures, their names, trec_eval's names; "mrt" is the milliseconds of retrieval per
            question.
        names: the systems' names, where they are a list; their ``str`` by default.
        by: breaks the means down: a label column, a mapping of names to masks (``{"t > 1": topics.turn_number >
            1}``, which may overlap), or a list of these. Groups come in the order of the column's categories, else
            of first appearance; questions without a label form the group "missing".
        baseline: the system, by name or position, that every other is tested against, for each measure and group.
        test: "t" (paired t-test), "wilcoxon", or a function as scipy's.
        correction: "holm", "bonferroni" or another of statsmodels' methods; None corrects nothing.
        correction_alpha: the level of significance.
        family: what is corrected together: "cell", the systems compared in one measure and group; "table", all cells.
        average: "question": the mean over questions. "conversation": each conversation's mean first, then the mean
            over conversations (needs ``conversation_id``); ``n`` and the tests count conversations then.
        ci: a level such as 0.95 adds bootstrap intervals, drawn over conversations (over questions where the topics
            have no ``conversation_id``).
        seed: for the bootstrap.
        perquery: True returns the values per question in place of the table, "both" returns (table, values).
        filter_by_qrels: search only the questions that have judgments.
        filter_by_topics: judgments of questions that are no topics are ignored; False counts those questions as 0.
        ties: as in :func:`pt_convsearch.measures.evaluate`.
        round: decimals of the table, one number or by measure; :func:`render` rounds by itself.
        batch_size: questions per call of a system; all at once by default.
        save_dir: folder where runs are kept as ``{name}.res.gz`` (TREC format, ids byte for byte).
        save_mode: what to do with a run that is there: "reuse", "overwrite", "warn" (and overwrite) or "error".
        verbose: show progress.

    Returns:
        a :class:`ResultTable`: a data frame with one row per system (the index), columns (group, measure), "All"
        first, ``n`` per group; its ``tests``, ``intervals`` and ``questions`` hold the rest. With ``perquery``:
        name, qid, measure, value and the label columns named in ``by`` (as "topics.X" where one of these has the
        name X already).

    Raises:
        ValueError: two systems of one name, an unknown baseline, no judged question among the topics, a repeated
            qid, contradicting judgments, NaN scores, columns that are missing; the message names what is wrong.

    Example:
        >>> topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"], "qtype": ["first", "switch"]})
        >>> qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "e"], "label": [1, 1]})
        >>> run = pd.DataFrame({"qid": ["1", "2"], "docno": ["d", "d"], "score": [1.0, 1.0], "rank": [0, 0]})
        >>> Experiment({"mine": run}, topics, qrels, ["RR"], by="qtype")["All"]["RR"].tolist()
        [0.5]

    Source: pt.Experiment's conventions; the breakdown is that of Kim & Kim (2022), Table 2; the tests those of Penha
        & Hauff.
    """
    if family not in ("cell", "table"):
        raise ValueError(f"family={family!r}: 'cell' (per measure and group) or 'table' (all cells together)")
    if average not in ("question", "conversation"):
        raise ValueError(f"average={average!r}: 'question' or 'conversation'")
    if perquery not in (True, False, "both"):
        raise ValueError(f"perquery={perquery!r}: True, False or 'both'")
    if ci is not None and not 0 < ci < 1:
        raise ValueError(f"ci={ci}: the level of an interval lies between 0 and 1, e.g. 0.95")
    if correction is not None and baseline is None:
        raise ValueError(f"correction={correction!r} corrects tests against a baseline: name one with baseline=")
    named = named_systems(systems, names)
    reference = None if baseline is None else position_of(baseline, list(named))
    listed = [metrics] if isinstance(metrics, str | Measure) else list(metrics)
    timed = MRT in listed
    measures = as_measures([metric for metric in listed if metric != MRT]) if listed != [MRT] else {}
    topics = check_queries(_read_topics(topics))
    judged = judgments(read_qrels(qrels) if isinstance(qrels, str | os.PathLike) else qrels)
    groups = groups_of(topics, by)
    has_judgment = topics["qid"].isin(judged.qids).to_numpy(dtype=bool)
    if not has_judgment.any():
        raise ValueError(
            f"none of the {len(topics)} topics has a judgment ({len(judged.qids)} qids are judged): do the qids agree?"
        )
    evaluated = _evaluated(topics, judged, has_judgment, filter_by_topics)
    judged = judged.of(pd.Index(evaluated["qid"]))

    searched = topics[has_judgment] if filter_by_qrels else topics
    runner = Runner(searched, list(named.values()), batch_size, save_dir, save_mode)
    values: dict[str, pd.DataFrame] = {}
    without_results: dict[str, int] = {}
    empty: dict[str, set[str]] = {}
    times: dict[str, float] = {}
    rows = {name: _rows_of(mask, topics, evaluated) for name, mask in groups.items()}
    for name, system in progress(named, verbose):
        results, times[name] = runner.run(name, system)
        values[name] = _with_name(name, results, judged, measures, ties)
        answered = evaluated["qid"].isin(as_ids(results["qid"].drop_duplicates(), "qid")).to_numpy(dtype=bool)
        without_results[name] = int((~answered).sum())
        empty[name] = {
            group
            for group, mask in list(rows.items())[1:]
            if mask.any()
            and not answered[mask].any()
            and had_nothing_to_say(system, topics[groups[group] & has_judgment])
        }

    if perquery is True:
        return _per_query(values, evaluated, by)
    cells = Cells(
        values={name: values[name].reset_index(drop=True) for name in named},
        rows=rows,
        empty=empty,
        conversations=evaluated["conversation_id"].to_numpy(dtype=object) if "conversation_id" in evaluated else None,
        average=average,
        summed={name for name, measure in measures.items() if isinstance(measure.aggregator(), SumAgg)},
        mrt=times if timed else None,
    )
    questions = {
        "topics": len(topics),
        "judged": len(evaluated),
        "unjudged": int((~has_judgment).sum()),
        "without_results": without_results,
    }
    table = cells.table(questions)
    if reference is not None:
        table.attrs["tests"] = cells.tests(reference, test, correction, correction_alpha, family)
        table.attrs["testing"] = {
            "baseline": reference,
            "test": test if isinstance(test, str) else getattr(test, "__name__", "test"),
            "correction": correction,
            "alpha": correction_alpha,
            "family": family,
        }
    if ci is not None:
        table.attrs["intervals"] = cells.intervals(ci, seed)
    if round is not None:
        table = table.rounded(round)
    return (table, _per_query(values, evaluated, by)) if perquery == "both" else table


def _read_topics(topics: pd.DataFrame | PathLike) -> pd.DataFrame:
    if isinstance(topics, pd.DataFrame):
        return topics
    from pt_convsearch import topics as reading

    return reading.read(topics)


def _evaluated(
    topics: pd.DataFrame, judged: Judgments, has_judgment: np.ndarray, filter_by_topics: bool
) -> pd.DataFrame:
    """The questions that enter the means: judged topics, and judged strangers if asked for."""
    kept = topics[has_judgment].reset_index(drop=True)
    if filter_by_topics:
        return kept
    strangers = judged.qids[~judged.qids.isin(topics["qid"])]
    return kept if strangers.empty else pd.concat([kept, pd.DataFrame({"qid": strangers})], ignore_index=True)


def _rows_of(mask: np.ndarray, topics: pd.DataFrame, evaluated: pd.DataFrame) -> np.ndarray:
    """A mask over topics as a mask over the evaluated questions; those that are no topics belong to All alone."""
    if mask.all():
        return np.ones(len(evaluated), dtype=bool)
    return evaluated["qid"].isin(topics["qid"][mask]).to_numpy(dtype=bool)


def _with_name(
    name: str, results: pd.DataFrame, judged: Judgments, measures: Mapping[str, Measure], ties: Ties
) -> pd.DataFrame:
    if not measures:
        return pd.DataFrame(index=pd.Index(judged.qids, name="qid"))
    try:
        return evaluate(results, judged, list(measures.values()), ties=ties).set_axis(list(measures), axis=1)
    except ValueError as error:
        raise ValueError(f"system {name!r}: {error}") from error


def _per_query(values: Mapping[str, pd.DataFrame], evaluated: pd.DataFrame, by: By) -> pd.DataFrame:
    """One row for each system, question and measure, with the label columns of ``by``."""
    labels = labels_of(evaluated, by, ("name", "measure", "value"))
    pieces = [
        pd.concat(
            [
                pd.DataFrame(
                    {"name": name, "qid": frame.index, "measure": str(measure), "value": frame[measure].to_numpy()}
                ),
                labels,
            ],
            axis=1,
        )
        for name, frame in values.items()
        for measure in frame.columns
    ]
    columns = ["name", "qid", "measure", "value", *labels]
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=columns)
