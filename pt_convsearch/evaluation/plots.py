"""Figures of tables: matplotlib figures that need no display and leave no state behind."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pt_convsearch.evaluation.table import N
from pt_convsearch.topics.checks import as_ids

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pt_convsearch.evaluation.dependence import ShortcutDependence


def _figure(width: float, height: float, figure: Figure | None = None) -> Figure:
    """A figure outside of pyplot, so nothing is kept once it is dropped; notebooks show it by its PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Base

    class Shown(Base):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    if figure is None:
        figure = Shown(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
    return figure


def bars(
    table: pd.DataFrame,
    measure: Any = None,
    *,
    systems: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    figure: Figure | None = None,
) -> Figure:
    """One bar for each system in each group, as in Figure 2 of Kim & Kim (2022): where X_t \\ q_t keeps up with X_t.

    Args:
        table: what :func:`Experiment` returned.
        measure: the measure to show, as an object or name; the table's first by default.
        systems: rows to show, in this order; all by default.
        groups: groups to show; all by default.
        figure: a figure to draw into; a new one by default.

    Returns:
        a matplotlib figure. A cell without a value has no bar; bootstrap intervals of the table are drawn as whiskers.

    Raises:
        ValueError: a measure, system or group that the table lacks.
    """
    measures = [column for column in table.columns.get_level_values(1).unique() if column != N]
    name = measures[0] if measure is None else str(measure)
    shown = list(table.columns.get_level_values(0).unique()) if groups is None else list(groups)
    rows = list(table.index) if systems is None else list(systems)
    shown = [group for group in shown if (group, name) in table.columns] if groups is None else shown
    for what, wanted, there in (
        ("measure", [name], measures),
        ("system", rows, list(table.index)),
        ("group", shown, list(table.columns.get_level_values(0).unique())),
    ):
        strangers = [one for one in wanted if one not in there]
        if strangers:
            raise ValueError(f"the table has no {what} {strangers[0]!r} (it has {there})")
    if not rows or not shown:
        raise ValueError("there is no bar to draw: name at least one system and one group")
    spans = {(row["name"], row["group"]): row for row in table.attrs.get("intervals", []) if row["measure"] == name}
    figure = _figure(max(5.0, 1.5 + 0.35 * len(rows) * len(shown)), 3.6, figure)
    axes = figure.subplots()
    width = 0.84 / len(rows)
    for at, system in enumerate(rows):
        x = np.arange(len(shown)) + (at - (len(rows) - 1) / 2) * width
        values = np.array([float(table.loc[system, (group, name)]) for group in shown])
        axes.bar(x, values, width * 0.94, label=str(system))
        for place, group, value in zip(x, shown, values, strict=True):
            span = spans.get((system, group))
            if span is not None and np.isfinite([value, span["low"]]).all():
                axes.vlines(place, span["low"], span["high"], color="black", linewidth=1)
    axes.set_xticks(np.arange(len(shown)), [_with_n(table, group) for group in shown])
    axes.set_ylabel(name)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=min(len(rows), 3), frameon=False)
    return figure


def _with_n(table: pd.DataFrame, group: str) -> str:
    return f"{group}\nn = {table[group, N].iloc[0]:,}" if (group, N) in table.columns else group


def by_turn(
    per_query: pd.DataFrame,
    topics: pd.DataFrame,
    measure: Any = None,
    *,
    systems: Sequence[str] | None = None,
    min_n: int = 1,
    figure: Figure | None = None,
) -> Figure:
    """A measure over the depth of the conversation, with the number of questions at each depth below.

    Args:
        per_query: name, qid, measure, value, as ``Experiment(…, perquery=True)`` returns them.
        topics: the topics frame, with qid and turn_number.
        measure: the measure to show; the first by default.
        systems: systems to show, in this order; all by default.
        min_n: leave out depths with fewer questions.
        figure: a figure to draw into; a new one by default.

    Returns:
        a matplotlib figure.

    Raises:
        ValueError: topics without ``turn_number``, a measure or system that is not there, or no depth with so many
            questions.
    """
    means, sizes = turn_means(per_query, topics, measure, systems=systems, min_n=min_n)
    figure = _figure(6.0, 4.2, figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    for system in means.columns:
        above.plot(means.index, means[system], marker="o", markersize=4, label=str(system))
    above.set_ylabel(str(means.columns.name))
    above.spines[["top", "right"]].set_visible(False)
    below.bar(sizes.index, sizes, color="0.6")
    below.set_ylabel("n")
    below.set_xlabel("turn")
    below.xaxis.get_major_locator().set_params(integer=True)
    below.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=min(len(means.columns), 3), frameon=False)
    return figure


def turn_means(
    per_query: pd.DataFrame,
    topics: pd.DataFrame,
    measure: Any = None,
    *,
    systems: Sequence[str] | None = None,
    min_n: int = 1,
) -> tuple[pd.DataFrame, pd.Series]:
    """The numbers behind :func:`by_turn`: means by turn and system, and the questions at each turn."""
    if "turn_number" not in topics.columns:
        raise ValueError("topics have no column 'turn_number': the depth is never guessed from the qid")
    names = list(per_query["measure"].unique())
    name = names[0] if measure is None else str(measure)
    shown = list(per_query["name"].unique()) if systems is None else list(systems)
    strangers = [one for one in shown if one not in set(per_query["name"])] + ([] if name in names else [name])
    if strangers:
        raise ValueError(
            f"no values of {strangers[0]!r} in per_query (measures {names}, systems {list(per_query['name'].unique())})"
        )
    rows = per_query[(per_query["measure"] == name) & per_query["name"].isin(shown)]
    turns = pd.Series(topics["turn_number"].to_numpy(), index=as_ids(topics["qid"], "qid"))
    depth = rows["qid"].map(turns)
    means = rows["value"].groupby([depth, rows["name"]]).mean().unstack()[shown]
    sizes = rows["qid"].groupby(depth).nunique()
    kept = sizes[sizes >= min_n].index
    if kept.empty:
        raise ValueError(f"no turn has {min_n} judged questions: lower min_n")
    means.columns.name = name
    return means.loc[kept], sizes.loc[kept]


def dependence(result: ShortcutDependence, *, figure: Figure | None = None) -> Figure:
    """How much the rankings agree without the question, by group; beside it the swapped question and retention,
    where known.

    Args:
        result: what :func:`shortcut_dependence` returned.
        figure: a figure to draw into; a new one by default.

    Returns:
        a matplotlib figure: bars between 0 (the question decides) and 1 (it does not matter); retention may exceed 1.
    """
    summary, k = result.summary, result.settings["k"]
    series = {f"overlap@{k}": f"overlap@{k}", "RBO": "RBO", f"overlap@{k} swapped": f"overlap@{k}, swapped question"}
    series["retention"] = f"retention of {result.settings['measure']}"
    shown = {column: label for column, label in series.items() if column in summary}
    figure = _figure(max(5.0, 1.5 + 0.4 * len(shown) * len(summary)), 3.6, figure)
    axes = figure.subplots()
    width = 0.84 / len(shown)
    for at, (column, label) in enumerate(shown.items()):
        x = np.arange(len(summary)) + (at - (len(shown) - 1) / 2) * width
        axes.bar(x, summary[column].astype(float), width * 0.94, label=label)
    axes.axhline(1.0, color="0.7", linewidth=0.8)
    axes.set_xticks(np.arange(len(summary)), [f"{row.group}\nn = {row.n:,}" for row in summary.itertuples()])
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure
