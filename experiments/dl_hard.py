"""Re-score runs on DL-HARD, beside the published table, and show how systems change places against TREC DL.

    python experiments/dl_hard.py --task passage --runs RUNS --out OUT
    python experiments/dl_hard.py --task doc --runs RUNS --trec-runs TREC_RUNS --trec-qrels 2020qrels-docs.txt --out OUT
    python experiments/dl_hard.py --task doc --systems all --model T5=castorini/monot5-base-msmarco --out OUT
    python experiments/dl_hard.py --task passage --systems all --stand-in DATA/qrecc-dev2k --out OUT

With --systems the baselines are run first (BM25, BM25+RM3, each re-ranked by the models that are given), and their runs
scored like any others. DL-HARD's collection is MS MARCO; where it is not at hand, --stand-in runs the same pipelines on
conversations, with small models trained on them.

Measures as the data set's README prescribes them (trec_eval -l 2 -o -c -M1000): nDCG@10 on the grades, RR, MAP and
recall with relevance from grade 2, at most 1,000 results a question, means over all fifty questions: one that a run
leaves out counts 0, and so does one that has no relevant document. MAP and recall are named by the depth that a run
has: AP(rel=2)@100. Judged@10 says how much of the top ten anybody judged.

Writes results.csv (system, group, measure, value, n) and results.json (published figures, tie rules, places, tests).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from _dl_hard_places import pair_tests, places
from _dl_hard_systems import add_arguments, stand_in, write_runs

import pt_convsearch as cs
from pt_convsearch.datasets import iter_lines, read_qrels, read_run
from pt_convsearch.datasets.dl_hard import ANNOTATIONS, TASKS, DLHard
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.measures import evaluate, judgments

OFFICIAL = ("nDCG@10", "RR(rel=2)")
DEPTH = 1000
SUFFIXES = (".run", ".trec", ".res")
COMPRESSED = (".gz", ".bz2", ".xz", ".zip")
NOT_RUNS = (".eval", ".json", ".md", ".csv", ".tsv", ".qrels", ".py")


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    started = time.perf_counter()
    if args.stand_in:
        return stand_in(args)
    data = open_data(args)
    if args.systems:
        args.runs = [*(args.runs or []), write_runs(args, data)]
    topics, judged = data.get_topics(), judgments(data.get_qrels())
    runs = {name: read_run(path) for name, path in find_runs(args.runs, args.task)}
    groups = groups_of(data, topics)
    missing = {name: len(set(topics["qid"]) - set(run["qid"])) for name, run in runs.items()}
    read_in = time.perf_counter() - started

    per_question = {name: scores(run, judged, topics["qid"], ties=args.ties) for name, run in runs.items()}
    other = "rank" if args.ties == "trec_eval" else "trec_eval"
    other_rule = {name: scores(run, judged, topics["qid"], ties=other) for name, run in runs.items()}
    table = long(per_question, groups)
    published = beside_published(data, per_question)
    ties = tie_rules({args.ties: per_question, other: other_rule}, runs)
    comparisons = list(compare(args, data, topics, per_question, judged))
    tests = {measure: pair_tests(per_question, list(runs), measure, correction_of(args)) for measure in OFFICIAL}

    remarks = list(strange(per_question, missing))
    report(args, table, published, ties, comparisons, remarks)
    write_results(
        args.out,
        table,
        settings={
            "task": args.task, "ties": args.ties, "correction": args.correction, "test": "paired t-test, two-sided",
            "questions": len(topics), "relevant from grade": 2, "runs": {name: len(run) for name, run in runs.items()},
            "questions without results": missing, "remarks": remarks,
            "tags": {name: sorted(run["tag"].unique()) for name, run in runs.items()},
        },
        timings={"reading": round(read_in, 3), "all": round(time.perf_counter() - started, 3)},
        more={
            "published": published.to_dict("records"), "tie_rules": ties.to_dict("records"), "tests": tests,
            "places": comparisons,
        },
    )  # fmt: skip
    print(f"\nwritten: {args.out}/results.csv and results.json")
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--runs", nargs="+", type=Path, help="folders or files of TREC runs")
    parser.add_argument("--out", required=True, type=Path, help="folder for results.csv and results.json")
    parser.add_argument("--data", type=Path, help="folder with DL-HARD's files; default: near the runs, else the cache")
    parser.add_argument(
        "--trec-runs", nargs="+", type=Path, help="the same (or other) systems' runs over TREC DL's own questions"
    )
    parser.add_argument(
        "--trec-qrels", nargs="+", type=Path, help="judgments of TREC DL 2019 and/or 2020 for --trec-runs"
    )
    parser.add_argument(
        "--trec-figures", type=Path, help="instead: a CSV of system,measure,value (measure nDCG@10 or RR(rel=2))"
    )
    parser.add_argument("--ties", default="trec_eval", choices=("trec_eval", "rank"), help="order of equal scores")
    parser.add_argument("--correction", default="holm", help="of the paired tests: holm, bonferroni, or none")
    add_arguments(parser)
    args = parser.parse_args(argv)
    if not args.runs and not args.systems:
        parser.error("give --runs or --systems")
    if args.stand_in and not args.systems:
        parser.error("--stand-in needs --systems, such as --systems all")
    if bool(args.trec_runs) != bool(args.trec_qrels):
        parser.error("--trec-runs and --trec-qrels go together")
    return args


def correction_of(args: argparse.Namespace) -> str | None:
    return None if args.correction == "none" else args.correction


def open_data(args: argparse.Namespace) -> DLHard:
    """The data set: where it was said to be, in a folder above the runs, or in the cache."""
    folder = args.data
    if folder is None and args.runs:
        first = args.runs[0].resolve()
        near = [place for place in [first, *first.parents][:4] if (place / f"dl_hard-{args.task}.qrels").is_file()]
        folder = near[0] if near else None
    data = cs.dataset(f"dl-hard/{args.task}", path=folder)
    assert isinstance(data, DLHard)
    return data


def find_runs(places: list[Path], task: str) -> Iterator[tuple[str, Path]]:
    """(system, file) of each run; a folder named after the other task is left alone."""
    other = set(TASKS) - {task}
    found: dict[str, Path] = {}
    for place in places:
        if not place.exists():
            raise SystemExit(f"--runs {place}: there is no such file or folder")
        folder = place / task if (place / task).is_dir() else place
        for path in [place] if place.is_file() else sorted(folder.rglob("*")):
            within = path.relative_to(folder).parts[:-1] if folder in path.parents else ()
            if not path.is_file() or other & set(within) or (path != place and not is_run(path)):
                continue
            name = bare(path.name)
            if name in found:
                raise SystemExit(f"two runs are called {name!r}: {found[name]} and {path}")
            found[name] = path
    if not found:
        raise SystemExit(
            f"--runs {', '.join(map(str, places))}: no run in it (TREC's six columns, plain or compressed)"
        )
    yield from found.items()


def bare(name: str) -> str:
    """The system's name: NIST calls the files of its participants input.NAME.gz."""
    for ending in COMPRESSED + SUFFIXES:
        name = name.removesuffix(ending)
    return name.removeprefix("input.")


def is_run(path: Path) -> bool:
    """By its name, or by the six columns of its first line."""
    if path.name.startswith(".") or any(ending in path.suffixes for ending in NOT_RUNS):
        return False
    if any(ending in path.suffixes for ending in SUFFIXES):
        return True
    try:
        cells = next((line.split() for _, line in iter_lines(path) if line.strip()), [])
        return len(cells) == 6 and cells[3].isdigit() and math.isfinite(float(cells[4]))
    except ValueError:
        return False


def scores(run: pd.DataFrame, judged: Any, qids: pd.Series | None, *, ties: str) -> pd.DataFrame:
    """One row a question; MAP and recall named by the run's depth, at most 1,000."""
    depth = min(DEPTH, int(run.groupby("qid").size().max()))
    recalls = [f"R(rel=2)@{at}" for at in sorted({min(100, depth), depth})]
    # every grade is at least 0, so the precision of grade 0 is the share that was judged
    renamed = {f"RR(rel=2)@{DEPTH}": "RR(rel=2)", "P(rel=0)@10": "Judged@10"}
    names = ["nDCG@10", f"RR(rel=2)@{DEPTH}", f"AP(rel=2)@{depth}", *recalls, "P(rel=0)@10"]
    return evaluate(run, judged, names, ties=ties, qids=qids).rename(columns=renamed)


def groups_of(data: DLHard, topics: pd.DataFrame) -> dict[str, list[str]]:
    """All, each fold, each value of each annotation, and who judged, where the new judgments are on disk."""
    topics = topics.assign(**judged_by(data, topics))
    groups = {"All": topics["qid"].tolist()}
    for column in ("fold", *ANNOTATIONS, "judged_by"):
        if column in topics.columns:
            for value, part in topics.groupby(column, sort=True):
                groups[f"{column}={value or '(none)'}"] = part["qid"].tolist()
    return groups


def judged_by(data: DLHard, topics: pd.DataFrame) -> dict[str, pd.Series]:
    try:
        return {"judged_by": topics["qid"].map(data.judged_by())}
    except FileNotFoundError:
        return {}


def long(per_question: dict[str, pd.DataFrame], groups: dict[str, list[str]]) -> pd.DataFrame:
    rows = [
        (system, group, measure, float(values.loc[qids, measure].mean()), len(qids))
        for system, values in per_question.items()
        for group, qids in groups.items()
        for measure in values.columns
    ]
    return pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"])


def strange(per_question: dict[str, pd.DataFrame], missing: dict[str, int]) -> Iterator[str]:
    """What about a run may not be as its owner thinks."""
    for name, count in missing.items():
        if count:
            yield f"{name} has no results for {count} of the questions: they count 0"
        if not per_question[name]["Judged@10"].any():
            yield f"{name} has no judged document in any top ten: is it a run of the other task?"


def beside_published(data: DLHard, per_question: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Each published figure that can be set beside one of ours: MAP and R@1000 only for runs of depth 1,000."""
    ours = {"nDCG@10": "nDCG@10", "RR": "RR(rel=2)", "MAP": f"AP(rel=2)@{DEPTH}", "R@1000": f"R(rel=2)@{DEPTH}"}
    rows = []
    for entry in data.published().to_dict("records"):
        values = per_question.get(entry["run"])
        for theirs, name in ours.items():
            if values is not None and name in values.columns:
                mean = float(values[name].mean())
                rows.append((entry["run"], entry["system"], name, entry[theirs], mean, mean - entry[theirs]))
    return pd.DataFrame(rows, columns=["run", "system", "measure", "published", "value", "difference"])


def tie_rules(by_rule: dict[str, dict[str, pd.DataFrame]], runs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What the order of equal scores does: each measure under both rules, and how many questions have ties in the top
    ten."""
    rows = []
    for name, run in runs.items():
        top = run[run["rank"] < 10]
        tied = int(top.duplicated(["qid", "score"], keep=False).groupby(top["qid"]).any().sum())
        for measure in OFFICIAL:
            trec, rank = (float(by_rule[rule][name][measure].mean()) for rule in ("trec_eval", "rank"))
            rows.append((name, measure, trec, rank, rank - trec, tied))
    columns = ["system", "measure", "trec_eval", "rank", "difference", "questions with ties in the top 10"]
    return pd.DataFrame(rows, columns=columns)


def compare(
    args: argparse.Namespace, data: DLHard, topics: pd.DataFrame, per_question: dict[str, pd.DataFrame], judged: Any
) -> Iterator[dict[str, Any]]:
    """Places on TREC DL against places on DL-HARD, and within DL-HARD those that NIST's judgments alone would give."""
    correction = correction_of(args)
    if args.trec_runs:
        trec = judgments(pd.concat([read_qrels(path) for path in args.trec_qrels], ignore_index=True))
        runs = {name: read_run(path) for name, path in find_runs(args.trec_runs, args.task)}
        covered = topics["qid"][topics["qid"].isin(set().union(*(run["qid"] for run in runs.values())))]
        before = {name: scores(run, trec, None, ties=args.ties) for name, run in runs.items()}
        after = {
            name: per_question[name] if name in per_question else scores(run, judged, covered, ties=args.ties)
            for name, run in runs.items()
            if name in per_question or len(covered)
        }
        for measure in OFFICIAL:
            yield places("TREC DL", before, f"DL-HARD ({len(covered)} questions)", after, measure, correction)
    if args.trec_figures:
        figures = pd.read_csv(
            args.trec_figures, dtype={"system": str, "measure": str}, keep_default_na=False, encoding="utf-8-sig"
        )
        for measure in OFFICIAL:
            known = figures[figures["measure"] == measure].set_index("system")["value"].astype(float)
            yield places("TREC DL (figures)", known, "DL-HARD", per_question, measure, correction)
    by = judged_by(data, topics).get("judged_by")
    if by is not None and len(per_question) > 1:
        halves = {who: topics["qid"][by == who].tolist() for who in ("NIST", "DL-HARD")}
        for measure in OFFICIAL:
            first, second = (
                {name: values.loc[qids] for name, values in per_question.items()} for qids in halves.values()
            )
            yield places(
                "questions judged by NIST for TREC DL",
                first,
                "questions judged for DL-HARD",
                second,
                measure,
                correction,
            )


def report(
    args: argparse.Namespace,
    table: pd.DataFrame,
    published: pd.DataFrame,
    ties: pd.DataFrame,
    comparisons: list[dict[str, Any]],
    remarks: list[str],
) -> None:
    """The tables as Markdown."""
    print(f"# DL-HARD, {args.task}, ties by {args.ties}\n")
    for remark in remarks:
        print(f"Mind: {remark}")
    means = table[table["group"] == "All"].pivot(index="system", columns="measure", values="value")
    print(means.loc[table["system"].unique(), table["measure"].unique()].round(4).to_markdown(), "\n")
    if len(published):
        worst = published.loc[published["difference"].abs().idxmax()]
        where = f"{worst['run']}, {worst['measure']}"
        print(f"{len(published)} published figures; largest difference {worst['difference']:+.4f} ({where})\n")
        print(published.round(4).to_markdown(index=False), "\n")
    print("By the rank column in place of trec_eval's order of equal scores:\n")
    print(ties.round(4).to_markdown(index=False), "\n")
    breakdowns = [(column, "nDCG@10") for column in ("fold", *ANNOTATIONS, "judged_by")]
    for column, measure in [*breakdowns, ("judged_by", "Judged@10")]:
        part = table[table["group"].str.startswith(f"{column}=") & (table["measure"] == measure)]
        if len(part):
            heads = {
                f"{group} ({n})": group for group, n in part[["group", "n"]].drop_duplicates().itertuples(index=False)
            }
            by = part.pivot(index="system", columns="group", values="value").loc[
                table["system"].unique(), list(heads.values())
            ]
            print(f"{measure} by {column}\n\n{by.set_axis(list(heads), axis=1).round(3).to_markdown()}\n")
    for found in comparisons:
        print(f"{found['measure']}: {found['from']} -> {found['to']}, {found['systems']} systems")
        if "note" in found:
            print(f"  {found['note']}\n")
            continue
        upper = shown(found["relative_change_upper_half"], "+.1%")
        tau, p_value = shown(found["kendall_tau_b"], ".3f"), shown(found["tau_p_value"], ".3g")
        print(
            f"  Kendall's tau-b {tau} (p {p_value}); places moved: "
            f"{found['mean_places_moved']:.1f} on average, {found['most_places_moved']} at most; first: "
            f"{found['first_before']} -> {found['first_after']}; upper half {upper}"
        )
        if "pairs" in found:
            print("  pairs: " + ", ".join(f"{count} {what}" for what, count in found["pairs"].items()))
        print(pd.DataFrame(found["by_system"]).round(4).to_markdown(index=False), "\n")


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
