"""The tables of qrecc_answers.py, from the folders of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _rows import Rows

import pt_convsearch as cs
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.measures.significance import correct, paired_test

ORACLE = "oracle"
NOT_RUN = "not run here"
#: the form that a row is about, where it is not X_t
RUN_ON = {"in-batch, without q_t": "X_t\\q_t"}
KEYS = ["system", "form", "answers", "group", "measure"]


def write_tables(out: Path, names: list[str], oracle: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write results.csv, results.json and table.md from what lies in ``out``/rows.

    Args:
        out: the experiment's folder.
        names: the rows, in the order of the tables.
        oracle: ``per question`` (all, unseen: frames of measures by qid), ``groups`` (masks) and ``topics``.
        settings: for results.json.
    """
    rows = [row for row in Rows(out / "rows") if row["row"] in names]
    values = pd.concat([_oracle(oracle), *map(_values, rows)], ignore_index=True)
    found = values.groupby(KEYS, sort=False)["value"].agg(value="mean", sd="std", seeds="count").reset_index()
    found = found.merge(values[[*KEYS, "n"]].drop_duplicates(KEYS), on=KEYS).astype({"n": "int64"})
    kept = ("layers", "max_steps", "batch_size", "learning_rate", "max_query_length", "max_passage_length", "k1", "b")
    trained = {row["row"]: {key: row["settings"].get(key) for key in kept} for row in rows}
    for row in rows:
        words = row["settings"].get("analyzer", {}).get("stopwords")
        if words:
            trained[row["row"]]["stop words"] = len(words)
    for key in ("layers", "max_steps"):
        found[key] = found["system"].map(lambda name, key=key: trained.get(name, {}).get(key)).astype("Int64")
    measured = {row["row"] for row in rows}
    tests = _tests(out, [name for name in names if name in measured], oracle)
    costs = _costs(rows, names)
    missing = pd.DataFrame([{"system": name, "form": NOT_RUN} for name in names if name not in measured])
    write_results(
        out,
        pd.concat([found, missing], ignore_index=True) if len(missing) else found,
        settings=settings,
        timings={
            f"{row['row']}, seed {row['seed']}": sum(
                row["timings"].get(key, 0.0) for key in ("mining", "training", "indexing")
            )
            for row in rows
        },
        more={
            "rows": trained,
            "tests": tests.to_dict("records"),
            "costs": costs.to_dict("records"),
            "not run": missing["system"].tolist() if len(missing) else [],
        },
    )
    _write_main(out / "main", found, [ORACLE, *names], settings)
    _figure(found, [name for name in names if name in measured]).savefig(out / "qrecc_answers.png", dpi=130)
    table = _Table(found, [ORACLE, *names])
    text = "\n\n".join(_sections(table, tests, costs, oracle))
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


def _write_main(out: Path, found: pd.DataFrame, names: list[str], settings: dict[str, Any]) -> None:
    """The few figures that a front page shows, one system a row: a trained row by its own form, the others by three."""
    kept = found[found["group"].isin(["first", "t > 1"]) & found["measure"].isin(["R@1", "R@10", "RR"])]
    rows = []
    for name in names:
        mine = kept[kept["system"] == name]
        trained = mine["max_steps"].notna().any()
        forms = ["any"] if name == ORACLE else [RUN_ON.get(name, "X_t")] if trained else ["X_t", "X_t\\q_t", "q_t"]
        for row in mine[mine["form"].isin(forms)].itertuples():
            measure = {"RR": "MRR"}.get(row.measure, row.measure)
            shown = name if trained or name == ORACLE else f"{name} {row.form}"
            rows.append((shown, row.group, measure if row.answers == "all" else f"unseen {measure}", row.value, row.n))
    columns = ["system", "group", "measure", "value", "n"]
    main = pd.DataFrame(rows, columns=columns).astype({"n": "int64"})
    write_results(out, main, settings={**settings, "note": "the figures of the front page, from ../results.csv"})


def _figure(found: pd.DataFrame, names: list[str]) -> Any:
    """MRR on unseen answers with and without the question, by row; the oracle as a line."""
    from matplotlib.figure import Figure

    cells = found[(found["group"] == "t > 1") & (found["answers"] == "unseen") & (found["measure"] == "RR")]
    cells = cells.set_index(["system", "form"])
    figure = Figure(figsize=(7.5, 1.2 + 0.42 * len(names)), layout="constrained")
    axes = figure.subplots()
    y = np.arange(len(names))[::-1]
    for form, shift, colour in (("X_t", 0.18, "tab:blue"), ("X_t\\q_t", -0.18, "tab:orange")):
        values = cells.reindex([(name, form) for name in names])
        axes.barh(
            y + shift, values["value"], 0.34, xerr=values["sd"].where(values["seeds"] > 1), color=colour, label=form
        )
    axes.axvline(cells.loc[(ORACLE, "any"), "value"], color="black", linestyle="--", linewidth=1, label="oracle")
    axes.set_yticks(y, names)
    axes.set_xlabel("MRR, answers not seen before, t > 1")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _values(row: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(row["values"], columns=["name", "group", "measure", "value", "n"])
    frame = frame[~frame["name"].str.contains(": ")]  # the dependence is read from its own table
    frame[["answers", "form"]] = frame["name"].str.split(" ", n=1, expand=True)
    frame = frame[frame["value"].notna()]
    long = []
    for record in row["dependence"]:
        for measure, value in record.items():
            if measure not in ("group", "n", "n judged", "answers") and value is not None:
                n = record["n"] if measure.startswith(("overlap", "RBO")) else record["n judged"]
                group = "t > 1" if record["group"] == "All" else record["group"]
                long.append(
                    {
                        "group": group,
                        "measure": measure,
                        "value": value,
                        "n": n,
                        "answers": record["answers"],
                        "form": "X_t against X_t\\q_t",
                    }
                )
    whole = pd.concat([frame, pd.DataFrame(long)], ignore_index=True).drop_duplicates(
        ["answers", "form", "group", "measure"]
    )
    return whole.assign(system=row["row"], seed=row["seed"])[
        ["system", "seed", "form", "answers", "group", "measure", "value", "n"]
    ]


def _oracle(oracle: dict[str, Any]) -> pd.DataFrame:
    topics = oracle["topics"]
    rows = []
    for answers, values in oracle["per question"].items():
        for group, mask in {"All": np.ones(len(topics), dtype=bool), **oracle["groups"]}.items():
            part = values[values.index.isin(topics["qid"][mask])]
            rows += [
                {
                    "system": ORACLE,
                    "seed": 0,
                    "form": "any",
                    "answers": answers,
                    "group": group,
                    "measure": measure,
                    "value": part[measure].mean(),
                    "n": len(part),
                }
                for measure in values
            ]
    return pd.DataFrame(rows)


def _per_question(out: Path, name: str) -> pd.DataFrame:
    """The values of each question, the mean over the seeds: columns (system, measure)."""
    found = [
        pd.read_parquet(row["folder"] / "per_question.parquet") for row in Rows(out / "rows") if row["row"] == name
    ]
    return pd.concat(found).groupby(["qid", "name", "measure"])["value"].mean().unstack(["name", "measure"])


def _tests(out: Path, names: list[str], oracle: dict[str, Any]) -> pd.DataFrame:
    """Paired t-tests on t > 1 against the in-batch row and against the oracle; Holm over the rows, per measure."""
    later = oracle["topics"]["qid"][oracle["groups"]["t > 1"]]
    values = {name: _per_question(out, name) for name in names}
    rows = []
    for answers, measure in (("all", "R@10"), ("all", "RR"), ("unseen", "R@1"), ("unseen", "RR")):
        for baseline in ("in-batch", ORACLE):
            if baseline == ORACLE:
                reference = oracle["per question"][answers][measure]
            elif baseline in values:
                reference = values[baseline][f"{answers} X_t", measure]
            else:
                continue
            family = []
            for name in names:
                if name == baseline:
                    continue
                mine = values[name][f"{answers} {RUN_ON.get(name, 'X_t')}", measure]
                qids = later[later.isin(mine.index) & later.isin(reference.index)]
                first, second = mine[qids].to_numpy(), reference[qids].to_numpy()
                family.append(
                    {
                        "system": name,
                        "baseline": baseline,
                        "answers": answers,
                        "measure": measure,
                        "n": len(qids),
                        "difference": float((first - second).mean()),
                        "p": paired_test(first, second),
                    }
                )
            corrected, significant = correct([row["p"] for row in family], "holm")
            rows += [
                {**row, "p (Holm)": float(p), "significant": bool(yes)}
                for row, p, yes in zip(family, corrected, significant, strict=True)
            ]
    return pd.DataFrame(rows)


def _costs(rows: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
    columns = ["mining, CPU", "training, CPU", "pairs per CPU second", "indexing, CPU"]
    frame = pd.DataFrame([{"system": row["row"], **{key: row["timings"].get(key) for key in columns}} for row in rows])
    frame = frame.groupby("system")[columns].median().reindex([name for name in names if name in set(frame["system"])])
    frame.columns = ["mining CPU s", "training CPU s", "pairs per CPU s", "indexing CPU s"]
    return frame.reset_index()


class _Table:
    """Cells as text: the mean, with the spread over seeds where there is more than one."""

    def __init__(self, found: pd.DataFrame, names: list[str]) -> None:
        self.cells = found.set_index(KEYS)
        self.names = names
        self.measured = set(found["system"])
        self.seeds = found[found["measure"] == "RR"].groupby("system")["seeds"].max()

    def cell(self, name: str, form: str, answers: str, group: str, measure: str) -> str:
        if name == ORACLE:
            form = "any"
        try:
            row = self.cells.loc[(name, form, answers, group, measure)]
        except KeyError:
            return "–"
        spread = f" ±{row['sd']:.3f}" if row["seeds"] > 1 else ""
        return f"{row['value']:.3f}{spread}"

    def n(self, group: str) -> int:
        return int(self.cells.loc[(ORACLE, "any", "all", group, "RR"), "n"])

    def frame(self, columns: dict[str, tuple[str, str, str, str]], names: Iterable[str] | None = None) -> pd.DataFrame:
        """Columns: title -> (form, answers, group, measure); the form "" is the one that the row is about."""
        rows = []
        for name in [one for one in self.names if one in self.measured] if names is None else names:
            if name not in self.measured:
                rows.append({"row": name, "seeds": NOT_RUN})
                continue
            row = {"row": name, "seeds": "" if name == ORACLE else str(int(self.seeds[name]))}
            for title, (form, answers, group, measure) in columns.items():
                row[title] = self.cell(name, form or RUN_ON.get(name, "X_t"), answers, group, measure)
            rows.append(row)
        return pd.DataFrame(rows, columns=["row", "seeds", *columns]).fillna("–")


def _sections(table: _Table, tests: pd.DataFrame, costs: pd.DataFrame, oracle: dict[str, Any]) -> list[str]:
    without = "X_t\\q_t"
    against = "X_t against X_t\\q_t"
    later = "t > 1"
    groups = [group for group in oracle["groups"] if group not in ("first", later)]
    used = table.cells[["layers", "max_steps"]].dropna().drop_duplicates().to_dict("records")
    made = "; ".join(
        f"{int(one['layers'])} layers of MiniLM, {int(one['max_steps'])} steps of 32 questions" for one in used
    )
    said = [
        "Answers as the collection, not the paper's 54M passages. Means over seeds, ± their standard deviation; "
        "`unseen`: answers that the history holds are taken out of the ranking. `oracle` knows the conversation and "
        "orders its answers at random "
        f"(expectation). n: first {table.n('first')}, t > 1 {table.n(later)}. Trained rows: {made or 'none yet'}.",
        "## All questions with a history (t > 1), and first ones",
        cs.render(
            table.frame(
                {
                    "X_t R@1": ("X_t", "all", later, "R@1"),
                    "R@10": ("X_t", "all", later, "R@10"),
                    "MRR": ("X_t", "all", later, "RR"),
                    "X_t\\q_t R@10": (without, "all", later, "R@10"),
                    "X_t\\q_t MRR": (without, "all", later, "RR"),
                    "q_t R@10": ("q_t", "all", later, "R@10"),
                    "X_t unseen R@1": ("X_t", "unseen", later, "R@1"),
                    "X_t unseen R@10": ("X_t", "unseen", later, "R@10"),
                    "X_t unseen MRR": ("X_t", "unseen", later, "RR"),
                    "X_t\\q_t unseen R@1": (without, "unseen", later, "R@1"),
                    "X_t\\q_t unseen MRR": (without, "unseen", later, "RR"),
                    "first R@10": ("X_t", "all", "first", "R@10"),
                    "first MRR": ("X_t", "all", "first", "RR"),
                },
                table.names,
            )
        ),
        "## Dependence on the history (t > 1)",
        "overlap@10: how much the ten best of X_t and of X_t\\q_t have in common; swapped: X_t with the question of "
        "another conversation; retention: R@10 without (or with the wrong) question over R@10 with it. Lower is less "
        "dependent.",
        cs.render(
            table.frame(
                {
                    f"{title}{', unseen' if answers == 'unseen' else ''}": (against, answers, later, measure)
                    for answers in ("all", "unseen")
                    for title, measure in (
                        ("overlap@10", "overlap@10"),
                        ("RBO", "RBO"),
                        ("overlap@10 swapped", "overlap@10 swapped"),
                        ("retention", "retention"),
                        ("retention swapped", "retention swapped"),
                    )
                },
                [name for name in table.names if name != ORACLE and name in table.measured],
            )
        ),
        "## By group: MRR of X_t, unseen answers (switch: few questions)",
        cs.render(table.frame({f"{group} (n {table.n(group)})": ("", "unseen", group, "RR") for group in groups})),
        "## By group: R@1 of X_t, unseen answers",
        cs.render(table.frame({f"{group} (n {table.n(group)})": ("", "unseen", group, "R@1") for group in groups})),
        "## By group: R@10 of X_t, all answers",
        cs.render(table.frame({f"{group} (n {table.n(group)})": ("", "all", group, "R@10") for group in groups})),
        "## Other forms (t > 1), and rewrites (the questions that have one)",
        cs.render(
            table.frame(
                {
                    "Q_t R@10": ("Q_t", "all", later, "R@10"),
                    "Q_t MRR": ("Q_t", "all", later, "RR"),
                    "Q_t unseen MRR": ("Q_t", "unseen", later, "RR"),
                    "a_{t-1} R@10": ("a_{t-1}", "all", later, "R@10"),
                    "a_{t-1} MRR": ("a_{t-1}", "all", later, "RR"),
                    **{
                        f"{form}, with a rewrite: {answers} {title}": (form, answers, "t > 1, with a rewrite", measure)
                        for form in ("X_t", "rewrite")
                        for answers in ("all", "unseen")
                        for title, measure in (("R@10", "R@10"), ("MRR", "RR"))
                    },
                },
                [name for name in table.names if name != ORACLE and name in table.measured],
            )
        ),
    ]
    if len(tests):
        shown = tests.assign(p=tests["p"].map("{:.4f}".format), **{"p (Holm)": tests["p (Holm)"].map("{:.4f}".format)})
        said += [
            "## Paired t-tests, t > 1 (values per question averaged over seeds; Holm over the rows)",
            cs.render(shown),
        ]
    said += [
        "## Cost (seconds of processor, medians over the seeds)",
        cs.render(costs, digits=1),
    ]
    return said
