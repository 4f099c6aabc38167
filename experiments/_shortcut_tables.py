"""The tables and figures of shortcut_table.py, from the folders of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation import figures, plots
from pt_convsearch.evaluation.cost import cost_table
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.measures.significance import correct, paired_test

MEASURES = [RR, R @ 5, R @ 10, R @ 100]
LATER = "t > 1"
GROUPS = ("All", "first", "switch", "no-switch", LATER)
NOT_RUN = "not run here"
BASELINE = "DPR"
WITHOUT = "X_t\\q_t"
#: row of the table -> (folder, form); in the order of the table
SYSTEMS = {
    "BM25": ("BM25", "X_t"),
    "BM25⊗": ("BM25", WITHOUT),
    "BM25, gold rewrite": ("BM25", "rewrite"),
    "BM25, model's rewrite": ("rewriter", "model's rewrite"),
    "DPR⊗": ("DPR⊗", WITHOUT),
    "DPR": ("DPR", "X_t"),
    "DPR, twice the batch": ("DPR, twice the batch", "X_t"),
    "w. CQR Negs": ("w. CQR Negs", "X_t"),
    "w. BM25 Negs": ("w. BM25 Negs", "X_t"),
    "w. Model Negs": ("w. Model Negs", "X_t"),
    "w. Shortcut Negs": ("w. Shortcut Negs", "X_t"),
    "w. Shortcut + Model Negs": ("w. Shortcut + Model Negs", "X_t"),
    "DPR, history masked": ("DPR, history masked", "X_t"),
    "DPR, q_t alone": ("DPR, q_t alone", "q_t"),
}
#: left out of the bars, which ten colours tell apart
ASIDE = (
    "BM25, gold rewrite", "BM25, model's rewrite", "DPR, twice the batch", "DPR, history masked", "DPR, q_t alone",
)  # fmt: skip
#: column of the table of dependence -> its name in results.csv
DEPENDENCE = {
    "overlap@10": "overlap@10",
    "RBO": "RBO",
    "retention of R@10": "retention",
    "overlap@10, swapped question": "overlap@10 swapped",
    "retention, swapped": "retention swapped",
}
#: the rows whose dependence is of interest
DEPENDENT = [name for name, (folder, form) in SYSTEMS.items() if form == "X_t"]


def write_tables(
    out: Path,
    found: list[dict[str, Any]],
    settings: dict[str, Any],
    *,
    budget: dict[str, Any] | None,
    rewriter: str | None,
) -> None:
    """Write results.csv, results.json, table.md, figure2.png and curves.png from what lies under ``out``.

    Args:
        out: the experiment's folder.
        found: its rows, as ``Rows`` gives them.
        settings: for results.json.
        budget: what was tried on dev; None where learning rate and steps were given.
        rewriter: the model that rewrites, None: there is no such row.
    """
    systems = {name: what for name, what in SYSTEMS.items() if rewriter or what[0] != "rewriter"}
    values = {name: per_seed for name, what in systems.items() if (per_seed := _values(found, *what))}
    masks = _masks(found)
    cells = _cells(values, masks)
    tests = _tests(values, masks)
    depends = _dependence(found)
    missing = [name for name in systems if name not in values]
    absent = pd.DataFrame([{"system": name, "group": NOT_RUN} for name in missing])
    results = pd.concat([frame for frame in (cells, depends, absent) if len(frame)], ignore_index=True)
    results = results.reindex(columns=["system", "group", "measure", "value", "n", "sd", "seeds"])
    folders = dict.fromkeys(folder for folder, _ in systems.values())  # BM25's three rows cost the same
    costs = cost_table({name: spent for name in folders if (spent := _costs(found, name))})
    used = _used(found)
    write_results(
        out,
        results,
        settings={**settings, "budget": budget, "trained with": used},
        timings={_title(row): round(sum(cost["seconds"] for cost in row["costs"]), 1) for row in found},
        more={
            "tests": tests.to_dict("records"),
            "dev curves": {_title(row): row["dev curve"] for row in found if "dev curve" in row},
            "costs": {_title(row): row["costs"] for row in found},
            "not run": missing,
        },
    )
    text = "\n\n".join(_sections(systems, cells, depends, tests, costs, settings, used, budget))
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    _draw(out, systems, cells, found)


def _used(found: list[dict[str, Any]]) -> dict[str, list[str]]:
    """How rows were trained -> the rows; one entry, unless rows of several budgets lie side by side."""
    used: dict[str, list[str]] = {}
    for row in found:
        rate, steps = (row["settings"].get(key) for key in ("learning_rate", "max_steps"))
        if rate is not None:
            length = f"{steps} steps" if steps else f"{row['settings']['training']['epochs']} epochs"
            rows = used.setdefault(f"learning rate {rate:g}, {length}", [])
            rows += [row["row"]] if row["row"] not in rows else []
    return used


def _title(row: dict[str, Any]) -> str:
    return f"{row['row']}, seed {row['seed']}"


def _values(found: list[dict[str, Any]], folder: str, form: str) -> dict[int, pd.DataFrame]:
    """seed -> questions x measures of one row of the table."""
    values = {}
    for row in found:
        if row["row"] == folder:
            frame = pd.read_parquet(row["folder"] / "per_question.parquet")
            frame = frame[frame["name"] == form]
            if len(frame):
                values[row["seed"]] = frame.pivot(index="qid", columns="measure", values="value")
    return values


def _masks(found: list[dict[str, Any]]) -> dict[str, pd.Index]:
    """group -> qids."""
    if not found:
        return {}
    frame = pd.read_parquet(found[0]["folder"] / "questions.parquet")
    return {group: pd.Index(frame.loc[frame[group], "qid"]) for group in GROUPS if group in frame}


def _cells(values: dict[str, dict[int, pd.DataFrame]], masks: dict[str, pd.Index]) -> pd.DataFrame:
    """system, group, measure, value (mean over seeds), n, sd and seeds."""
    rows = []
    for name, per_seed in values.items():
        for group, qids in masks.items():
            blank = group == "first" and SYSTEMS[name][1] == WITHOUT  # X_1\q_1 is empty
            for measure in map(str, MEASURES):
                means = [frame.reindex(qids)[measure].mean() for frame in per_seed.values()]
                spread = np.std(means, ddof=1) if len(means) > 1 else np.nan
                value, spread = (np.nan, np.nan) if blank else (np.mean(means), spread)
                rows.append((name, group, measure, value, len(qids), spread, len(means)))
    return pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n", "sd", "seeds"])


def _tests(values: dict[str, dict[int, pd.DataFrame]], masks: dict[str, pd.Index]) -> pd.DataFrame:
    """Paired t-tests against DPR, values per question averaged over seeds; Holm over rows, per measure and group."""
    columns = ["system", "baseline", "group", "measure", "n", "difference", "p", "p (Holm)", "significant"]
    if BASELINE not in values:
        return pd.DataFrame(columns=columns)
    means = {name: sum(per_seed.values()) / len(per_seed) for name, per_seed in values.items()}
    rows = []
    for group, qids in masks.items():
        for measure in map(str, MEASURES):
            family = []
            for name, mean in means.items():
                if name == BASELINE or (group == "first" and SYSTEMS[name][1] == WITHOUT):
                    continue
                mine, theirs = (frame.reindex(qids)[measure].to_numpy() for frame in (mean, means[BASELINE]))
                difference, p = float((mine - theirs).mean()), paired_test(mine, theirs)
                family.append((name, BASELINE, group, measure, len(qids), difference, p))
            corrected, significant = correct([one[-1] for one in family], "holm")
            rows += [(*one, float(p), bool(yes)) for one, p, yes in zip(family, corrected, significant, strict=True)]
    return pd.DataFrame(rows, columns=columns)


def _dependence(found: list[dict[str, Any]]) -> pd.DataFrame:
    """The figures of shortcut dependence on t > 1, mean and spread over seeds, as rows of results.csv."""
    rows = [
        (row["row"], LATER if record["group"] == "All" else record["group"], measure, value, record["n"])
        for row in found
        for record in row["dependence"]
        for measure, value in record.items()
        if measure in DEPENDENCE.values() and value is not None
    ]
    frame = pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"]).drop_duplicates()
    keys = ["system", "group", "measure", "n"]
    grouped = frame.groupby(keys, sort=False)["value"]
    return grouped.agg(value="mean", sd="std", seeds="count").reset_index()


def _costs(found: list[dict[str, Any]], folder: str) -> list[dict[str, Any]]:
    return [cost for row in found if row["row"] == folder for cost in row["costs"]]


# -- as text


def _sections(
    systems: Iterable[str], cells: pd.DataFrame, depends: pd.DataFrame, tests: pd.DataFrame, costs: pd.DataFrame,
    settings: dict[str, Any], used: dict[str, list[str]], budget: dict[str, Any] | None,
) -> list[str]:  # fmt: skip
    trained = settings["training"]
    model = settings["init"] if settings["layers"] is None else f"{settings['layers']} layer(s) of all-MiniLM-L6-v2"
    tried = (budget or {}).get("tried", [])
    fixed = "; ".join(f"{one['learning_rate']:g} x {one['max_steps']}: {one['dev R@5']:.3f}" for one in tried)
    fixed = fixed and f"Learning rate x steps tried on dev (DPR, a seed that no row uses): R@5 {fixed}. "
    length = "; ".join(f"{how} ({', '.join(rows)})" if len(used) > 1 else how for how, rows in used.items())
    said = [
        f"# The retrieval shortcut and negatives: {settings['dataset']}"
        + "".join(f", {name}={value}" for name, value in settings["dials"].items()),
        ("**A quick run: too small to mean anything.** " if settings["quick"] else "")
        + f"Bi-encoders: {model}, batch {trained['batch_size']}, lengths {trained['max_query_length']} and "
        f"{trained['max_passage_length']}, {length or 'none trained yet'}; the checkpoint best on dev (R@5). {fixed}"
        "Means over seeds, ± their standard deviation. † differs from DPR (paired t-test on values per question "
        "averaged over seeds, Holm over the rows, 0.05). – has no value. MRR to depth 100.",
    ]
    marks = {(one["system"], one["group"], one["measure"]) for one in tests.to_dict("records") if one["significant"]}
    shown = {"MRR": "RR", "R@5": "R@5", "R@10": "R@10", "R@100": "R@100"}
    index = cells.set_index(["system", "group", "measure"])
    for group in dict.fromkeys(cells["group"]):
        n = int(cells.loc[cells["group"] == group, "n"].iloc[0])
        said += [f"## {group} (n = {n:,})", cs.render(_block(systems, index, group, shown, marks))]
    at = depends[depends["group"] == LATER].set_index(["system", "group", "measure"]) if len(depends) else depends
    if len(depends):
        said += [
            f"## Shortcut dependence ({LATER})",
            "X_t against X_t\\q_t: what the rankings share, and R@10 without the question over R@10 with it; and X_t "
            "with the question of another conversation. Lower is less dependent.",
            cs.render(_block([name for name in DEPENDENT if name in systems], at, LATER, DEPENDENCE, set())),
        ]
    said += [
        "## Cost",
        "Medians over seeds; items per second by the clock: passages (indexing), questions (the rest). Mining with a "
        "model (CQR, Model) encodes the passages, and Model Negs need a trained DPR first; BM25's index is in its own "
        "row. Where the machine was shared, compare CPU seconds.",
        cs.render(_plain(costs)),
    ]
    if not settings["paper"]:
        said.append(
            "The paper's data and settings (`--dataset qrecc --paper`, `--dataset or-quac --paper`): not run here."
        )
    return said


def _plain(costs: pd.DataFrame) -> pd.DataFrame:
    """One column for each step and figure, rounded to what can be told."""
    units = {"seconds": "s", "CPU seconds": "CPU s", "items/s": "items/s", "peak MiB": "peak MiB", "GPU MiB": "GPU MiB"}
    columns = {
        f"{step} {units[name]}": [
            "–" if np.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
            for value in costs[step, name]
        ]
        for step, name in costs.columns
    }
    return pd.DataFrame({"row": list(costs.index), **columns})


def _block(
    systems: Iterable[str], index: pd.DataFrame, group: str, columns: dict[str, str], marks: set[Any]
) -> pd.DataFrame:
    there = set(index.index.get_level_values(0))
    rows = []
    for name in systems:
        if name not in there:
            rows.append({"row": name, "seeds": NOT_RUN, **dict.fromkeys(columns, "–")})
            continue
        row: dict[str, Any] = {"row": name, "seeds": "–"}
        for title, measure in columns.items():
            cell = index.loc[(name, group, measure)] if (name, group, measure) in index.index else None
            if cell is None or np.isnan(cell["value"]):
                row[title] = "–"
                continue
            row["seeds"] = str(int(cell["seeds"]))
            spread = f" ±{cell['sd']:.3f}" if cell["seeds"] > 1 else ""
            row[title] = f"{cell['value']:.3f}{'†' if (name, group, measure) in marks else ''}{spread}"
        rows.append(row)
    return pd.DataFrame(rows)


# -- as figures


def _draw(out: Path, systems: Iterable[str], cells: pd.DataFrame, found: list[dict[str, Any]]) -> None:
    """Figure 2, and the dev curves of the first seed of each row."""
    if len(cells):
        table = cells.pivot(index="system", columns=["group", "measure"], values="value")
        table = table.reindex([name for name in systems if name in table.index and name not in ASIDE])
        groups = [group for group in ("first", "no-switch", "switch") if group in table.columns.get_level_values(0)]
        plots.bars(table, "R@10", groups=groups or ["All"]).savefig(out / "figure2.png", dpi=110)
    curves: dict[str, Any] = {}
    for row in found:
        if "dev curve" in row:
            curves.setdefault(row["row"], []).append(row["dev curve"])
    if curves:
        figures.learning_curves(curves, "R@5").savefig(out / "curves.png", dpi=110)
