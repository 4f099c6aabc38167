"""The tables of rewriting.py, from the folders of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from _rewriting_parts import WITH_REWRITE, Data, groups
from _rows import Rows

import pt_convsearch as cs
from pt_convsearch.evaluation.oracle import ConversationOracle
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.measures.significance import correct, paired_test

#: the rewriter, trained as long as CONQRR on gold rewrites alone: what of a rise is the reward's
CONTROL = "CONQRR's control"
ORDER = ["X_t", "X_t\\q_t", "q_t", "gold rewrite", "HQE", "QuReTeC", "Rewriter", "Rewriter, 5 fused", CONTROL, "CONQRR",
         "LLM"]  # fmt: skip
NOT_RUN = "not run here"
BASELINE = "X_t"
COLUMNS = ["system", "engine", "answers", "group", "measure", "value", "n"]
#: the groups of the breakdown, where there are such questions
GROUPS = ("first", "t > 1", "no-switch", "switch", "t = 2", "t = 3-4", "t = 5+")


def write_tables(out: Path, rows: Rows, data: Data) -> None:
    """Write results.csv, results.json, table.md, the curve of the reward and the rewrites from what lies in
    ``out``/rows.

    Args:
        out: the experiment's folder.
        rows: its rows.
        data: what they were scored on.
    """
    found = {row["row"]: row for row in rows}
    names = [name for name in ORDER if name in found] + [name for name in found if name not in ORDER]
    values = pd.concat(
        [pd.read_parquet(found[name]["folder"] / "values.parquet").assign(system=name) for name in names]
        + ([_oracle(data)] if data.answers else []),
        ignore_index=True,
    )[COLUMNS]
    per_question = pd.concat(
        [pd.read_parquet(found[name]["folder"] / "per_question.parquet").assign(system=name) for name in names]
    )
    missing = [name for name in ORDER if name not in found and name != "LLM"]
    tests, raised = _tests(per_question, names, data), _raised(per_question, names, data)
    notes = {name: found[name]["note"] for name in names}
    none = pd.DataFrame([{"system": name, "engine": NOT_RUN} for name in missing])
    write_results(
        out, pd.concat([values, none], ignore_index=True) if missing else values,
        settings={"data": data.name, "answers as the collection": data.answers,
                  "test questions": len(data.topics["test"]), "trained on": notes},
        timings={f"{name}, {step}": seconds for name in names for step, seconds in found[name]["timings"].items()},
        more={"rows": {name: {k: v for k, v in found[name]["settings"].items() if k != "digests"} for name in names},
              "digests": found[names[0]]["settings"]["digests"], "counts": {n: found[n]["counts"] for n in names},
              "tests": tests.to_dict("records"), "raised by reward": raised.to_dict("records"), "not run": missing},
    )  # fmt: skip
    curve = _curve(out, found)
    table = _Table(values, names, missing)
    text = "\n\n".join(_sections(table, tests, raised, notes, found, data, curve))
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    rewrites = [pd.read_parquet(found[name]["folder"] / "rewrites.parquet").assign(system=name) for name in names
                if name not in ("X_t", "X_t\\q_t", "q_t", "gold rewrite")]  # fmt: skip
    if rewrites:
        _side_by_side(pd.concat(rewrites)).head(40).to_csv(out / "rewrites.csv", index=False)
    print(text)


def _side_by_side(rewrites: pd.DataFrame) -> pd.DataFrame:
    """One question a row, the rewrites of each system in a column."""
    asked = rewrites.drop_duplicates("qid").set_index("qid")[["q_t", "gold"]]
    written = rewrites.pivot(index="qid", columns="system", values="rewrite")
    return asked.join(written).reset_index()


def _oracle(data: Data) -> pd.DataFrame:
    """What knowing the conversation gives, with its answers in random order (expectation)."""
    topics, qrels = data.topics["test"], data.qrels["test"]
    oracle, rows = ConversationOracle(data.whole, qrels), []
    for answers in ("all", "unseen"):
        expected = oracle.expected(topics, qrels, ["R@1", "R@10", "RR"], drop_seen=answers == "unseen")
        for group, mask in groups(topics, qrels).items():
            part = expected[expected.index.isin(topics["qid"][mask])]
            rows += [("oracle", "–", answers, group, measure, part[measure].mean(), len(part)) for measure in part]
    return pd.DataFrame(rows, columns=["system", "engine", "answers", "group", "measure", "value", "n"])


def _tests(per_question: pd.DataFrame, names: list[str], data: Data) -> pd.DataFrame:
    """Paired t-tests against X_t over the questions with a gold rewrite, Holm over the rows of an engine."""
    kept, frames = _compared(per_question, data), []
    for (engine, measure), part in kept.groupby(["engine", "measure"], sort=False):
        wide = part.pivot(index="qid", columns="system", values="value")
        others = [name for name in names if name != BASELINE and name in wide]
        if BASELINE not in wide or not others or measure == "R@1":
            continue
        p = [paired_test(wide[name].to_numpy(), wide[BASELINE].to_numpy()) for name in others]
        frames.append(pd.DataFrame({
            "engine": engine, "measure": {"RR": "MRR"}.get(str(measure), measure), "answers": part["answers"].iloc[0],
            "row": others,
            f"minus {BASELINE}": [float((wide[name] - wide[BASELINE]).mean()) for name in others], "p": p,
            "p (Holm)": correct(p, "holm")[0],
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _compared(per_question: pd.DataFrame, data: Data) -> pd.DataFrame:
    """The measures of the questions with a gold rewrite, without answers that were seen if that is known."""
    topics = data.topics["test"]
    qids = topics["qid"][groups(topics, data.qrels["test"])[WITH_REWRITE]]
    answers = "unseen" if data.seen else "all"
    return per_question[(per_question["answers"] == answers) & per_question["qid"].isin(qids)]


def _raised(per_question: pd.DataFrame, names: list[str], data: Data) -> pd.DataFrame:
    """CONQRR against the rewriter that it began with and against its control, by paired t-tests over the same
    questions, Holm over the comparisons of a measure; and how many questions found more, how many less."""
    rows = []
    pairs = [pair for pair in (("Rewriter", "CONQRR"), (CONTROL, "CONQRR"), ("Rewriter", CONTROL))
             if set(pair) <= set(names)]  # fmt: skip
    for (engine, measure), part in _compared(per_question, data).groupby(["engine", "measure"], sort=False):
        wide = part.pivot(index="qid", columns="system", values="value")
        tests = [paired_test(wide[after].to_numpy(), wide[before].to_numpy()) for before, after in pairs]
        for (before, after), p, corrected in zip(pairs, tests, correct(tests, "holm")[0] if tests else [], strict=True):
            differences = wide[after] - wide[before]
            rows.append({
                "engine": engine, "measure": {"RR": "MRR"}.get(str(measure), measure), "from": before, "to": after,
                "value from": wide[before].mean(), "value to": wide[after].mean(), "difference": differences.mean(),
                "more, less": f"{(differences > 0).sum()}, {(differences < 0).sum()}", "p": p, "p (Holm)": corrected,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _curve(out: Path, found: dict[str, Any]) -> pd.DataFrame | None:
    """The reward by step, as a file and a figure."""
    row = found.get("CONQRR")
    if row is None or not (row["folder"] / "curve.parquet").is_file():
        return None
    from matplotlib.figure import Figure

    curve = pd.read_parquet(row["folder"] / "curve.parquet")
    control = found.get(CONTROL)
    if control is not None and (control["folder"] / "curve.parquet").is_file():
        points = pd.read_parquet(control["folder"] / "curve.parquet")[["step", "dev"]]
        curve = curve.merge(points.rename(columns={"dev": "dev, control"}), on="step", how="outer").sort_values("step")
    curve.to_csv(out / "reward.csv", index=False)
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    shown = {"drawn": "drawn, training batches", "greedy": "greedy, training batches", "dev": "greedy, dev",
             "dev, control": "greedy, dev: gold rewrites alone"}  # fmt: skip
    for column, label in shown.items():
        if column not in curve:
            continue
        points = curve[["step", column]].dropna()
        if len(points):
            axes.plot(points["step"], points[column], marker="o", label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("mean reward (RR)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(out / "reward.png", dpi=130)
    return curve


class _Table:
    """Cells of the results by row and column."""

    def __init__(self, values: pd.DataFrame, names: list[str], missing: list[str]) -> None:
        self.values, self.names, self.missing = values, names, missing
        keys = ["system", "engine", "answers", "group", "measure"]
        self.cells = values.drop_duplicates(keys).set_index(keys)[["value", "n"]]

    def value(self, *key: str) -> float:
        return float(self.cells["value"].get(key, float("nan")))

    def n(self, engine: str, group: str) -> int:
        found = self.values[(self.values["engine"] == engine) & (self.values["group"] == group)
                            & (self.values["measure"] == "RR") & (self.values["answers"] == "all")]  # fmt: skip
        return int(found["n"].max()) if len(found) else 0

    def frame(self, columns: dict[str, tuple[str, str, str, str]], oracle: bool = False) -> pd.DataFrame:
        """Rows of the systems; columns are (engine, answers, group, measure)."""
        rows = [{"row": name, **{title: self.value(name, *key) for title, key in columns.items()}}
                for name in (["oracle"] if oracle else []) + self.names]  # fmt: skip
        if oracle:
            rows[0] |= {title: self.value("oracle", "–", *key[1:]) for title, key in columns.items()}
        rows += [{"row": f"{name} ({NOT_RUN})"} for name in self.missing]
        return pd.DataFrame(rows)

    def breakdown(self, engine: str, answers: str, measure: str, groups: list[str], oracle: bool) -> pd.DataFrame:
        """A measure by group; a dash where a row has not all questions of the group (a gold rewrite)."""
        titles = {group: f"{group} (n {self.n(engine, group)})" for group in groups}
        frame = self.frame({title: (engine, answers, group, measure) for group, title in titles.items()}, oracle)
        for group, title in titles.items():
            sizes = [self.cells["n"].get((name, engine, answers, group, measure)) for name in frame["row"]]
            part = [size is not None and size < self.n(engine, group) for size in sizes]
            frame.loc[part, title] = float("nan")
        return frame


def _sections(
    table: _Table, tests: pd.DataFrame, raised: pd.DataFrame, notes: dict[str, str], found: dict[str, Any], data: Data,
    curve: pd.DataFrame | None,
) -> list[str]:  # fmt: skip
    engines = [engine for engine in table.values["engine"].unique() if engine not in ("–", NOT_RUN)]
    ways = ["all", "unseen"] if data.seen else ["all"]
    best = ways[-1]
    n = table.n("BM25", WITH_REWRITE)
    what = "answers as the collection, not the paper's 54M passages" if data.answers else "passages as the collection"
    dependence = bool((table.values["measure"] == "overlap@10").any())
    about = f"{data.name}, {what}."
    if data.seen:
        about += " `unseen`: what the history shows already is taken out of the ranking."
    if dependence:
        about += (
            " Dependence: overlap@10 of the ranking with that of X_t\\q_t (the history alone, same engine), and with "
            "the row's own ranking once q_t is that of another conversation (`swapped`); retention: R@10 of that other "
            "ranking over the row's. Lower is less dependent on the history. A gold rewrite belongs to its own "
            "history, so it has no swapped figures."
        )
    said = [about]
    for engine in engines:
        columns: dict[str, tuple[str, str, str, str]] = {}
        for way in ways:
            for title, measure in (("R@1", "R@1"), ("R@10", "R@10"), ("MRR", "RR")):
                columns[f"{'unseen ' if way == 'unseen' else ''}{title}"] = (engine, way, WITH_REWRITE, measure)
        against = f"{best}: X_t\\q_t"
        if dependence:
            columns |= {
                "overlap@10 X_t\\q_t": (engine, against, "All", "overlap@10"),
                "retention X_t\\q_t": (engine, against, "All", "retention"),
                "overlap@10 swapped": (engine, f"{best}: swapped", "All", "overlap@10"),
                "retention swapped": (engine, f"{best}: swapped", "All", "retention"),
            }
        said += [f"## {engine}: questions with a history and a gold rewrite (n = {n})",
                 cs.render(table.frame(columns, oracle=data.answers))]  # fmt: skip
    rouge = {title: ("–", "rewrite", "All", measure) for title, measure in (
        ("ROUGE-1 precision", "ROUGE-1 precision"), ("recall", "ROUGE-1 recall"), ("F1", "ROUGE-1 f1"),
        ("left as q_t", "as q_t"), ("words", "words"))}  # fmt: skip
    written = table.frame(rouge)
    written["trained on"] = [notes.get(name, "–") for name in written["row"]]
    said += [f"## How near the queries come to the gold rewrite (n = {n}), and what was trained on what",
             cs.render(written)]  # fmt: skip
    for engine in engines:
        here = [group for group in GROUPS if table.n(engine, group)]
        for title, measure, way in (("MRR", "RR", best), ("R@10", "R@10", best)):
            said += [f"## {engine} by group: {title}{', unseen' if way == 'unseen' else ''}",
                     cs.render(table.breakdown(engine, way, measure, here, data.answers))]  # fmt: skip
    if len(tests):
        shown = tests.assign(p=tests["p"].map("{:.4f}".format), **{"p (Holm)": tests["p (Holm)"].map("{:.4f}".format)})
        said += [f"## Paired t-tests against X_t (n = {n}; Holm over the rows of an engine)", cs.render(shown)]
    if len(raised):
        shown = raised.assign(**{column: raised[column].map("{:.4f}".format) for column in ("p", "p (Holm)")})
        said += [f"## CONQRR against the rewriter that it began with and against its control (n = {n}; paired t-tests)",
                 cs.render(shown)]  # fmt: skip
    if curve is not None:
        said += ["## The reward by step of CONQRR (mean RR since the point before; dev: greedy rewrites)",
                 cs.render(curve)]  # fmt: skip
    costs = pd.DataFrame([{"row": name, **found[name]["timings"]} for name in table.names])
    return [*said, "## Cost (seconds, of the clock and of the processor; a model that was there already costs nothing)",
            cs.render(costs, digits=1)]  # fmt: skip
