"""Does a retriever need the question at all? Shortcut dependence, with and without judgments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import Measure, R

from pt_convsearch._files import PathLike
from pt_convsearch.evaluation.groups import By, groups_of, labels_of
from pt_convsearch.evaluation.rendering import render
from pt_convsearch.evaluation.swapping import swapped
from pt_convsearch.evaluation.systems import Runner, System, progress
from pt_convsearch.measures import Judgments, as_measures, evaluate, judgments, read_qrels
from pt_convsearch.measures.agreement import agreement
from pt_convsearch.topics.checks import check_queries
from pt_convsearch.topics.messages import is_later
from pt_convsearch.topics.validation import histories

#: what a question has in ``per_query``
_VALUES = ("overlap", "rbo", "overlap_swapped", "rbo_swapped", "full", "without", "swapped")


@dataclass(frozen=True, repr=False)
class ShortcutDependence:
    """What :func:`shortcut_dependence` found.

    Attributes:
        summary: one row per group (those of first turns alone are left out): group, n (questions compared),
            overlap@k, RBO; with the control also those of the swapped question; with judgments n judged, the measure
            of each ranking, and retention.
        per_query: one row per question: qid, the label columns (as "topics.X" where X stands here already), overlap
            and rbo (``_swapped`` for the control), and the measure of each ranking (NaN where the question is not
            judged).
        left_out: how many first turns were left out, and how many questions had no results in either ranking.
        settings: k, rbo_p, measure, control, seed.
    """

    summary: pd.DataFrame
    per_query: pd.DataFrame
    left_out: dict[str, int]
    settings: dict[str, Any]

    def plot(self, figure: Any = None) -> Any:
        """The agreement of the rankings, and retention where there are judgments, by group: a matplotlib figure."""
        from pt_convsearch.evaluation import plots

        return plots.dependence(self, figure=figure)

    def long(self) -> pd.DataFrame:
        """The summary as rows: group, measure, value, n."""
        sizes = self.summary["n judged"] if "n judged" in self.summary else self.summary["n"]
        rows = [
            (group, measure, float(value), int(n if measure.startswith(("overlap", "RBO")) else m))
            for measure in self.summary.columns
            if measure not in ("group", "n", "n judged")
            for group, value, n, m in zip(
                self.summary["group"], self.summary[measure], self.summary["n"], sizes, strict=True
            )
        ]
        return pd.DataFrame(rows, columns=["group", "measure", "value", "n"])

    def _note(self) -> str:
        note = f"{self.left_out['first turns']:,} first turns left out"
        if self.left_out["no results"]:
            note += (
                f"; {self.left_out['no results']:,} questions without results in either ranking: no agreement to tell"
            )
        return note

    def __repr__(self) -> str:
        return f"{render(self.summary, 'text')}\n{self._note()}"

    def _repr_html_(self) -> str:
        return f"{render(self.summary, 'html')}\n<p>{self._note()}</p>"


def shortcut_dependence(
    full: System,
    without: System,
    topics: pd.DataFrame,
    qrels: pd.DataFrame | Mapping[str, Mapping[str, int]] | PathLike | None = None,
    *,
    by: By = None,
    control: str | None = None,
    seed: int = 0,
    k: int = 10,
    measure: Measure | str | None = None,
    rbo_p: float = 0.9,
    batch_size: int | None = None,
    verbose: bool = False,
) -> ShortcutDependence:
    """How much a retriever lives on the history alone: its rankings with and without the current question, compared.

    Without judgments it tells how far the two rankings agree, question by question: a retriever that needs the
    question ranks otherwise without it. With judgments it also tells retention: how much of the measure is left once
    the question is taken away. First turns (nothing was asked before: ``qhistory`` is empty, or a greeting) have
    nothing else than the question; they are left out and counted.

    Args:
        full: the pipeline with the question, e.g. ``cs.form(cs.X) >> bm25``; or a frame of its results.
        without: the pipeline without it, e.g. ``cs.form(cs.X - cs.CURRENT) >> bm25``; or a frame of its results.
        topics: the topics frame as it was built: qid, query, qhistory.
        qrels: qid, docno, label (or a mapping or TREC file): adds the measure and retention, over the judged questions.
        by: groups of questions, as in :func:`Experiment`.
        control: "swapped" runs ``full`` a second time with another conversation's question in place of q_t: what a
            wrong question changes. A retriever that reads the question ranks otherwise; one that lives on the
            history does not.
        seed: for the control.
        k: depth of the overlap, and of the measure.
        measure: what retention is of; R@k by default.
        rbo_p: RBO's persistence; at 0.9 the first ten ranks carry 86% of the weight.
        batch_size: questions per call of a pipeline; all at once by default.
        verbose: show progress.

    Returns:
        a :class:`ShortcutDependence`. Overlap and RBO are 1 for equal rankings, 0 for rankings that share nothing,
        or of which one is empty; questions for which both rankings are empty are left out and counted, of the control's
        means too. Retention is
        the second system's mean over the first's, NaN where the first's is 0.

    Raises:
        ValueError: topics without ``qhistory``, no question after a first turn, an unknown control, a control with
            no other conversation to take a question from, or with frames of results in place of a pipeline.

    Example:
        >>> topics = pd.DataFrame({"qid": ["1_2"], "query": ["b"], "qhistory": [[{"role": "user", "content": "a"}]]})
        >>> run = pd.DataFrame({"qid": ["1_2"], "docno": ["d"], "score": [1.0], "rank": [0]})
        >>> shortcut_dependence(run, run, topics).summary["overlap@10"].tolist()
        [1.0]

    Source: retention follows Kim & Kim (2022), who compare X_t with X_t \\ q_t; the agreement without judgments and
        the control are ours.
    """
    if control not in (None, "swapped"):
        raise ValueError(f"control={control!r}: None or 'swapped'")
    named = as_measures(R @ k if measure is None else measure)
    if len(named) != 1:
        raise ValueError(f"measure={measure!r}: retention is of one measure")
    (measure_name,) = named
    topics = check_queries(topics)
    if "qhistory" not in topics.columns:
        raise ValueError(
            "topics have no column 'qhistory': build them with cs.topics.from_messages (or another builder there)"
        )
    topics = topics.assign(qhistory=histories(topics["qhistory"], topics["qid"]))
    later = np.array([is_later(history) for history in topics["qhistory"]], dtype=bool)
    if not later.any():
        raise ValueError(
            f"all {len(topics)} topics are first turns (no question in qhistory): there is no history to depend on"
        )
    groups = {name: mask[later] for name, mask in groups_of(topics, by).items() if mask[later].any()}
    questions = topics[later].reset_index(drop=True)
    judged = None if qrels is None else judgments(read_qrels(qrels) if isinstance(qrels, str | os.PathLike) else qrels)

    runner = Runner(questions, (full, without), batch_size)
    pair = {"full": full, "without": without}
    runs = {name: runner.run(name, system)[0] for name, system in progress(pair, verbose)}
    if control is not None:
        if not isinstance(full, pt.Transformer):
            raise ValueError(
                "control='swapped' searches anew with other questions: give the pipeline, not a frame of results"
            )
        runs["swapped"] = Runner(swapped(questions, seed=seed), (full,), batch_size).run("swapped", full)[0]
    per_query = _per_query(questions, runs, judged, named, k, rbo_p, by)
    summary = pd.DataFrame(
        [
            _summary(name, per_query[mask], measure_name, k, control=control is not None, judged=judged is not None)
            for name, mask in groups.items()
        ]
    )
    return ShortcutDependence(
        summary=summary,
        per_query=per_query,
        left_out={"first turns": int((~later).sum()), "no results": int(per_query["overlap"].isna().sum())},
        settings={"k": k, "rbo_p": rbo_p, "measure": measure_name, "control": control, "seed": seed},
    )


def _per_query(
    questions: pd.DataFrame,
    runs: Mapping[str, pd.DataFrame],
    judged: Judgments | None,
    measure: Mapping[str, Measure],
    k: int,
    p: float,
    by: By,
) -> pd.DataFrame:
    qids = pd.Index(questions["qid"])
    labels = labels_of(questions, by, _VALUES)
    columns: dict[str, Any] = {"qid": questions["qid"], **{str(column): labels[column] for column in labels}}
    for name, suffix in (("without", ""), ("swapped", "_swapped")):
        if name in runs:
            found = agreement(runs["full"], runs[name], qids, k=k, p=p)
            columns[f"overlap{suffix}"], columns[f"rbo{suffix}"] = found["overlap"].to_numpy(), found["rbo"].to_numpy()
    if judged is not None:
        judged = judged.of(qids)
        for name, run in runs.items():
            columns[name] = evaluate(run, judged, list(measure.values())).iloc[:, 0].reindex(qids).to_numpy()
    return pd.DataFrame(columns)


def _summary(group: str, rows: pd.DataFrame, measure: str, k: int, *, control: bool, judged: bool) -> dict[str, Any]:
    compared = rows[rows["overlap"].notna()]
    row: dict[str, Any] = {"group": group, "n": len(compared)}
    row[f"overlap@{k}"], row["RBO"] = compared["overlap"].mean(), compared["rbo"].mean()
    if control:  # over the same questions: where neither ranking has results, the wrong question is no control of any
        row[f"overlap@{k} swapped"] = compared["overlap_swapped"].mean()
        row["RBO swapped"] = compared["rbo_swapped"].mean()
    if judged:
        row["n judged"] = int(rows["full"].notna().sum())
        row[f"{measure} full"], row[f"{measure} without"] = rows["full"].mean(), rows["without"].mean()
        row["retention"] = _ratio(row[f"{measure} without"], row[f"{measure} full"])
        if control:
            row[f"{measure} swapped"] = rows["swapped"].mean()
            row["retention swapped"] = _ratio(row[f"{measure} swapped"], row[f"{measure} full"])
    return row


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
