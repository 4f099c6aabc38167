"""The tables of response_retrieval.py: full rank by both judgments, the candidates, and E1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from _common import say
from _response_bench import Bench
from _responses import ROWS
from _rows import fingerprint
from ir_measures import AP, RR, R, Success
from tabulate import tabulate

import pt_convsearch as cs
from pt_convsearch._files import writing_text
from pt_convsearch.evaluation import pairwise_tests, superscripts
from pt_convsearch.evaluation.report import write_results

#: whose negatives E1 samples
SAMPLERS = ("random", "bm25-negatives", "dense-negatives", "e2-bm25", "e2-dense", "e3-bm25", "e4-bm25", "e5-bm25",
            "e6-generated")  # fmt: skip
HEADS = {
    "own-id": "Full rank, right is the response that followed",
    "equal-text": "Full rank, right is any response of equal text",
    "candidates": "The response among {n} candidates, the others {others}",
}


def write_tables(bench: Bench) -> None:
    """Write table.md, tests.csv, results.csv and results.json of the rows there are, and print the table."""
    found = finished(bench)
    if not found:
        say("no row was run yet")
        return
    n, others = bench.options.num_candidates, bench.options.candidates
    asked: list[tuple[str, str, pd.DataFrame, dict[str, Any]]] = [
        ("own-id", "run", bench.qrels, {"R@1": R @ 1, "R@10": R @ 10, "RR": RR}),
        ("equal-text", "run", equal_text(bench), {"Success@1": Success @ 1, "Success@10": Success @ 10, "RR": RR}),
        ("candidates", "candidates", bench.qrels, {f"R_{n}@1": R @ 1, f"R_{n}@2": R @ 2, f"R_{n}@5": R @ 5, "MAP": AP}),
    ]
    rows, parts, tests = [], [], []
    for judgment, kind, qrels, measures in asked:
        values = per_question(bench, found, kind, qrels, measures)
        # of a row with several seeds the mean over them is tested
        mean = values.groupby(["name", "qid", "measure"], sort=False)["value"].mean().reset_index()
        spread = values.groupby(["name", "measure", "seed"], sort=False)["value"].mean().unstack("seed")
        several = mean["name"].nunique() > 1
        if several:
            table = superscripts(mean)
            tests.append(pairwise_tests(mean).assign(group=judgment))
        else:
            table = mean.pivot_table("value", "name", "measure", sort=False).map("{:.3f}".format)
        for name, measure in spread.index:
            place = list(found).index(name)
            means = spread.loc[name, measure].dropna()
            deviation = float(means.std()) if len(means) > 1 else float("nan")
            if len(means) > 1:
                table.iloc[place, list(measures).index(measure)] += f" ± {deviation:.3f}"
            rows.append((name, judgment, measure, float(means.mean()), len(bench.topics), len(means), deviation))
        table.insert(0, "seeds", [len(found[name]) if ROWS_BY_TITLE[name].seeded else "–" for name in found])
        head = HEADS[judgment].format(n=n, others=others)
        parts.append(f"{head} (n = {len(bench.topics):,}):\n\n{_markdown(table)}\n")
    left_out = () if bench.options.layers else ("zero-shot-whole",)  # that is zero-shot then
    missing = [row.title for name, row in ROWS.items() if row.title not in found and name not in left_out]
    parts += [note(bench, missing), ""]
    rates = judged(bench, found)
    if rates is not None:
        shown = tabulate(rates.set_index("sampler").round(2), headers="keys", tablefmt="pipe")
        parts += [
            f"E1: sampled negatives that somebody judged to be right after all (Wilson's interval, 0.95):\n\n{shown}\n"
        ]
    out = bench.out
    with writing_text(out / "table.md") as handle:
        handle.write("\n".join(parts))
    print("\n".join(parts))
    if tests:
        pd.concat(tests).round(6).to_csv(out / "tests.csv", index=False, encoding="utf-8", lineterminator="\n")
    frame = pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n", "seeds", "sd"])
    left = {"out", "rows", "data", "external", "generator", "init"}
    settings = {name: value for name, value in vars(bench.options).items() if name not in left}
    timings = {name: sum(run["processor seconds"] for run in runs) for name, runs in found.items()}
    notes = {
        name: {run["seed"]: {key: value for key, value in run["notes"].items() if key != "examples"} for run in runs}
        for name, runs in found.items()
    }
    more: dict[str, Any] = {"notes": notes, "timings are": "seconds of the processor, all seeds"}
    if rates is not None:
        more["false negatives"] = rates.to_dict("records")
    write_results(out, frame, settings=settings, timings=timings, more=more)


ROWS_BY_TITLE = {row.title: row for row in ROWS.values()}


def finished(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """The rows that were run with these settings: title -> what each seed left."""
    found: dict[str, list[dict[str, Any]]] = {}
    there = list(bench.rows)
    for name, row in ROWS.items():
        runs = [
            facts for facts in there
            if facts["row"] == name and facts["fingerprint"] == fingerprint(bench.settings(row, facts["seed"]))
        ]  # fmt: skip
        if runs:
            found[row.title] = sorted(runs, key=lambda facts: facts["seed"])
    return found


def equal_text(bench: Bench) -> pd.DataFrame:
    """Judgments by which every response of the right one's text is right."""
    copies: dict[str, list[str]] = {}
    for document in bench.corpus:
        copies.setdefault(document["text"], []).append(document["docno"])
    text_of = {document["docno"]: document["text"] for document in bench.corpus}
    own = zip(bench.qrels["qid"], bench.qrels["docno"], strict=True)
    rows = [(qid, copied, 1) for qid, docno in own for copied in copies[text_of[docno]]]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def per_question(
    bench: Bench, found: dict[str, list[dict[str, Any]]], kind: str, qrels: pd.DataFrame, measures: dict[str, Any]
) -> pd.DataFrame:
    """name, seed, qid, measure, value."""
    named = {str(measure): name for name, measure in measures.items()}
    parts = []
    for name, runs in found.items():
        for facts in runs:
            run = pd.read_parquet(facts["folder"] / f"{kind}.parquet")
            values = cs.Experiment([run], bench.topics, qrels, list(measures.values()), names=[name], perquery=True)
            parts.append(values.assign(measure=values["measure"].map(named), seed=facts["seed"]))
    return pd.concat(parts, ignore_index=True)


def note(bench: Bench, missing: list[str]) -> str:
    given = bench.options
    encoder = given.encoder.split("/")[-1]
    encoder = f"the lowest {given.layers} layers of {encoder}" if given.layers else encoder
    text = (
        f"{len(bench.corpus):,} responses. Encoders: {encoder}, {given.steps} steps of {given.batch_size} contexts "
        f"with {given.negatives} negative(s) each, drawn from the {given.pool} that were mined, on "
        f"{len(bench.train):,} training contexts; rankings to depth {given.depth}. Letters: significantly better than "
        "these rows (paired t-test over the questions, 0.95, Bonferroni over all pairs of rows of a measure; of "
        "several seeds the mean is tested). ±: standard deviation over seeds."
    )
    return text + (f" Not run here: {'; '.join(missing)}." if missing else "")


def judged(bench: Bench, found: dict[str, Any]) -> pd.DataFrame | None:
    """E1: the sheet on which negatives of each sampler are judged, written once; the rates, as far as it is filled."""
    samplers: dict[str, cs.TrainingPairs] = {}
    bench.seed = bench.options.seeds[0]
    for name in SAMPLERS:
        folder: Path = bench.folder("pairs", name)
        if ROWS[name].title in found and folder.is_dir():
            samplers[name] = cs.TrainingPairs(folder)
    sheet = bench.out / "e1-sheet.csv"
    if samplers and not sheet.exists():
        cs.annotation_sheet(samplers, sheet, num_items=50, seed=bench.seed)
    if not sheet.exists():
        return None
    rates = cs.false_negative_rates(sheet)
    if not rates["judged"].sum():
        say(f"E1: fill in {sheet} and run again for the rates of false negatives")
        return None
    return rates


def _markdown(table: pd.DataFrame) -> str:
    return tabulate(table, headers="keys", tablefmt="pipe", disable_numparse=True)
