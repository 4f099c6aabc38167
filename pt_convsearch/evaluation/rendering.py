"""Tables for people: Markdown, LaTeX, plain text, HTML."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from pt_convsearch.evaluation.table import N

DASH = "–"
_LOWER_IS_BETTER = {"mrt"}


@dataclass(frozen=True)
class _Style:
    """How one kind of output writes text, the best value of a column, and the mark of significance."""

    text: Callable[[str], str]
    bold: Callable[[str], str]
    mark: str
    best: str


def _latex(text: str) -> str:
    escaped = {character: f"\\{character}" for character in "&%$#_{}"}
    escaped.update(
        {
            "\\": r"\textbackslash{}",
            "~": r"\textasciitilde{}",
            "^": r"\textasciicircum{}",
            DASH: "--",
            "†": r"$\dagger$",
        }
    )
    escaped.update({"<": r"\textless{}", ">": r"\textgreater{}", "…": r"\dots{}"})
    return "".join(escaped.get(character, character) for character in text.replace("\n", " "))


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")


_STYLES = {
    "markdown": _Style(_markdown, "**{}**".format, "<sup>†</sup>", "Best of the column in bold."),
    "latex": _Style(_latex, r"\textbf{{{}}}".format, r"$^{\dagger}$", "Best of the column in bold."),
    "text": _Style(lambda text: text.replace("\n", " "), "{}*".format, "†", "*: best of the column."),
    "html": _Style(html.escape, "<b>{}</b>".format, "<sup>†</sup>", "Best of the column in bold."),
}


def render(
    table: pd.DataFrame, style: str = "markdown", *, digits: int = 3, notes: bool = True, intervals: bool = True
) -> str:
    """A table as text: a dash where there is no value, ``n`` beside each group, a dagger where a system differs from
    the baseline.

    Args:
        table: what :func:`Experiment` returned; any other frame is written plainly.
        style: "markdown", "latex" (booktabs), "text" or "html".
        digits: decimals of every number that is no count.
        notes: say below the table what n, dagger, dash and bold mean, and how many questions were left out or had no
            results.
        intervals: write bootstrap intervals beside the means where the table has them.

    Returns:
        the text; in "text" the best value of a column has an asterisk, elsewhere it is bold.

    Raises:
        ValueError: an unknown style.

    Example:
        >>> print(render(pd.DataFrame({"group": ["All"], "overlap@10": [0.87], "rest": [None]}), "text", digits=2))
        group      overlap@10  rest
        -------  ------------  ------
        All              0.87  –
    """
    if style not in _STYLES:
        raise ValueError(f"style={style!r}: one of {', '.join(_STYLES)}")
    how = _STYLES[style]
    if table.columns.nlevels != 2:
        return _plain(table, style, how, digits)
    groups = [
        (str(group), [column for column in table.columns if column[0] == group and column[1] != N])
        for group in table.columns.get_level_values(0).unique()
    ]
    heads = [
        (how.text(_head(table, group)), [how.text(str(column[1])) for column in columns])
        for group, columns in groups
        if columns
    ]
    cells = [[how.text(str(name))] for name in table.index]
    for _, columns in groups:
        for column in columns:
            for row, cell in zip(cells, _column(table, column, how, digits, intervals), strict=True):
                row.append(cell)
    written = {"markdown": _as_markdown, "latex": _as_latex, "text": _as_text, "html": _as_html}[style](heads, cells)
    if not notes:
        return written
    lines = _notes(table, how)
    if style == "html":
        return written + "".join(f"\n<p>{html.escape(line)}</p>" for line in lines)
    if style == "latex":
        return written + "".join(f"\n% {line}" for line in lines)
    return written + "\n\n" + ("  \n" if style == "markdown" else "\n").join(lines)


def _head(table: pd.DataFrame, group: str) -> str:
    if (group, N) not in table.columns or not len(table):
        return group
    return f"{group} (n = {table[group, N].iloc[0]:,})"


def _column(table: pd.DataFrame, column: Any, how: _Style, digits: int, intervals: bool) -> list[str]:
    values = pd.to_numeric(table[column]).to_numpy(dtype=np.float64)
    rounded = np.round(values, digits)
    best = np.nan
    if len(values) > 1 and not np.isnan(values).all():
        best = np.nanmin(rounded) if column[1] in _LOWER_IS_BETTER else np.nanmax(rounded)
    where = {(row["name"], row["group"], row["measure"]) for row in table.attrs.get("tests", []) if row["significant"]}
    spans = {
        (row["name"], row["group"], row["measure"]): f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
        for row in (table.attrs.get("intervals", []) if intervals else [])
        if not np.isnan(row["low"])
    }
    cells = []
    for name, value in zip(table.index, rounded, strict=True):
        if np.isnan(value):
            cells.append(how.text(DASH))
            continue
        text = f"{value:.{digits}f}"
        text = how.bold(text) if value == best else text
        key = (name, *column)
        cells.append(text + (how.mark if key in where else "") + spans.get(key, ""))
    return cells


def _notes(table: pd.DataFrame, how: _Style) -> list[str]:
    # HTML is escaped line by line, and in LaTeX the notes are comments
    escaped = _markdown if how is _STYLES["markdown"] else str
    lines: list[str] = []
    questions = table.attrs.get("questions")
    if questions:
        unit = "conversations' means" if table.attrs.get("average") == "conversation" else "judged questions"
        left_out = "; the others are left out" if questions["unjudged"] else ""
        judged = f"{questions['judged']:,} of {questions['topics']:,} questions judged"
        lines.append(f"Means over {unit}: {judged}{left_out}.")
        none = [f"{escaped(name)} {count:,}" for name, count in questions["without_results"].items() if count]
        if none:
            lines.append(f"Judged questions without results, counted 0: {'; '.join(none)}.")
    if table.isna().to_numpy().any():
        lines.append(f"{DASH}: no value, the form cannot apply to the group or nothing there is judged.")
    testing = table.attrs.get("testing")
    if testing:
        what = {"t": "paired t-test", "wilcoxon": "Wilcoxon's test"}.get(testing["test"], testing["test"])
        family = (
            "over the systems, per measure and group" if testing["family"] == "cell" else "over all cells of the table"
        )
        corrected = f"corrected by {testing['correction']} {family}" if testing["correction"] else "not corrected"
        lines.append(f"†: differs from {escaped(testing['baseline'])} ({what}, p < {testing['alpha']:g}, {corrected}).")
    if len(table) > 1:
        lines.append(how.best)
    return lines


Heads = list[tuple[str, list[str]]]


def _as_markdown(heads: Heads, cells: list[list[str]]) -> str:
    groups = ["system", *(cell for head, measures in heads for cell in [head, *[""] * (len(measures) - 1)])]
    measures = ["", *(f"*{measure}*" for _, names in heads for measure in names)]
    rows = [
        "| " + " | ".join(row) + " |" for row in [groups, ["---", *["---:"] * (len(measures) - 1)], measures, *cells]
    ]
    return "\n".join(rows)


def _as_text(heads: Heads, cells: list[list[str]]) -> str:
    headers = [
        "\nsystem",
        *(f"{head if at == 0 else ''}\n{name}" for head, names in heads for at, name in enumerate(names)),
    ]
    return tabulate(
        cells, headers, tablefmt="simple", disable_numparse=True, colalign=("left", *["right"] * (len(headers) - 1))
    )


def _as_latex(heads: Heads, cells: list[list[str]]) -> str:
    at = 2
    groups, rules = [], []
    for head, names in heads:
        groups.append(rf"\multicolumn{{{len(names)}}}{{c}}{{{head}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + len(names) - 1}}}")
        at += len(names)
    lines = [
        rf"\begin{{tabular}}{{l{'r' * (at - 2)}}}",
        r"\toprule",
        " & ".join(["", *groups]) + r" \\",
        " ".join(rules),
        " & ".join(["system", *(name for _, names in heads for name in names)]) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in cells),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _as_html(heads: Heads, cells: list[list[str]]) -> str:
    groups = "".join(f'<th colspan="{len(names)}">{head}</th>' for head, names in heads)
    measures = "".join(f"<th>{name}</th>" for _, names in heads for name in names)
    body = "\n".join(
        f"<tr><th>{row[0]}</th>" + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in cells
    )
    return (
        f"<table>\n<thead>\n<tr><th></th>{groups}</tr>\n<tr><th>system</th>{measures}</tr>\n</thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _plain(table: pd.DataFrame, style: str, how: _Style, digits: int) -> str:
    """Any other frame: its columns as they are, its index where that says something."""
    numbered = table.index.name is None and pd.api.types.is_integer_dtype(table.index)
    frame = table if numbered else table.reset_index()
    headers = [
        how.text(" ".join(map(str, column)) if isinstance(column, tuple) else str(column)) for column in frame.columns
    ]
    rows = [[_cell(value, how, digits) for value in row] for row in frame.itertuples(index=False, name=None)]
    numeric = [
        pd.api.types.is_numeric_dtype(frame[column]) and not pd.api.types.is_bool_dtype(frame[column])
        for column in frame
    ]
    formats = {"markdown": "pipe", "latex": "latex_raw", "text": "simple", "html": "unsafehtml"}
    return tabulate(
        rows,
        headers,
        tablefmt=formats[style],
        disable_numparse=True,
        colalign=["right" if number else "left" for number in numeric] if rows else None,
    )


def _cell(value: Any, how: _Style, digits: int) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return how.text(DASH)
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}f}"
    return how.text(str(value))
