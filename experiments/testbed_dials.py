"""What each dial of the testbed does, measured: one dial is turned at a time, the others stay at their defaults.

    python experiments/testbed_dials.py --out out/testbed_dials

Needs no data. BM25 on four forms of the question, by question type, over three seeds; with --dense also
all-MiniLM-L6-v2 without training, on a smaller world. Writes results.csv, results.json and testbed_dials.png.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import pandas as pd
from _common import BEGAN, engines, say, temporary
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation.report import long_table, write_results

FORMS = {"X_t": cs.X, "X_t\\q_t": cs.X - cs.CURRENT, "q_t": cs.CURRENT, "rewrite": cs.REWRITE}
DEFAULTS = {
    "entities": 220,
    "shortcut": 0.9,
    "ambiguity": 0.9,
    "switch_rate": 0.15,
    "near_duplicates": 0.25,
    "golds": 1.1,
    "turns": 5,
}
SWEEPS = {
    "shortcut": (0, 0.25, 0.5, 0.75, 1),
    "ambiguity": (0, 0.5, 1),
    "switch_rate": (0, 0.3, 0.6),
    "near_duplicates": (0, 1, 2),
    "golds": (1, 2, 3),
    "turns": (2, 8, 12),
    "entities": (60, 660, 1980),
}
CORPUS_DIALS = ("entities", "near_duplicates", "golds")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the files go")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the testbed (default 1 2 3)")
    parser.add_argument("--conversations", type=int, default=200, help="conversations a setting (default 200)")
    parser.add_argument("--dense", action="store_true", help="MiniLM, on 80 entities and 60 conversations")
    parser.add_argument("--quick", action="store_true", help="one seed, 60 conversations, the ends of each dial")
    options = parser.parse_args(argv)
    if options.quick:
        options.seeds, options.conversations = options.seeds[:1], 60

    rows = [measured(seed, options.conversations, settings(options.quick)) for seed in options.seeds]
    if options.dense:
        rows.append(dense(options.seeds[0]))
    results = pd.concat(rows, ignore_index=True)
    write_results(
        options.out,
        results,
        settings={"data": "convsearch:testbed", "defaults": DEFAULTS, "k1": 0.9, "b": 0.4, "seeds": options.seeds,
                  "conversations": options.conversations},
        timings={"total": time.perf_counter() - BEGAN},
    )  # fmt: skip
    figure(results).savefig(options.out / "testbed_dials.png", dpi=110)
    means = results[results["dial"] == "default"].groupby(["system", "measure", "group"], sort=False)["value"].mean()
    print(means.unstack("group").round(3).to_string())
    say(f"written to {options.out}")


def settings(quick: bool) -> list[tuple[str, dict[str, Any]]]:
    """(name of the dial turned, all dials) of every setting; those of one corpus in a row."""
    turned = [("default", dict(DEFAULTS))]
    for dial, values in SWEEPS.items():
        chosen = (values[0], values[-1] if dial != "entities" else values[1]) if quick else values
        turned.extend((dial, {**DEFAULTS, dial: value}) for value in chosen)
    return sorted(turned, key=lambda setting: [setting[1][dial] for dial in CORPUS_DIALS])


def measured(seed: int, conversations: int, turned: list[tuple[str, dict[str, Any]]]) -> pd.DataFrame:
    """The rows of one seed."""
    rows = []
    for corpus, group in itertools.groupby(turned, key=lambda setting: [setting[1][dial] for dial in CORPUS_DIALS]):
        with temporary() as folder:
            index = None
            for dial, dials in group:
                data = cs.dataset("testbed", seed=seed, conversations=conversations, **ranged(dials))
                index = index or cs.BM25Index(Path(folder) / "passages.bm25").index(data.get_corpus_iter())
                bm25 = index.bm25(num_results=100)
                systems = {f"BM25 {name}": cs.form(parts) >> bm25 for name, parts in FORMS.items()}
                rows.append(table(data, systems).assign(dial=dial, seed=seed, passages=data.num_passages, **dials))
            corpus_dials = zip(CORPUS_DIALS, corpus, strict=True)
            say(f"seed {seed}: " + ", ".join(f"{dial}={value}" for dial, value in corpus_dials))
    return pd.concat(rows, ignore_index=True)


def ranged(dials: dict[str, Any]) -> dict[str, Any]:
    """The turns as a range around their mean, as the default's 3 to 7 are."""
    turns = dials["turns"]
    return {**dials, "turns": (max(1, turns - 2), min(16, turns + 2))}


def table(data: Any, systems: dict[str, Any]) -> pd.DataFrame:
    return long_table(cs.Experiment(systems, data.get_topics(), data.get_qrels(), [R @ 10, RR], by="qtype"))


def dense(seed: int) -> pd.DataFrame:
    """MiniLM beside BM25 at the default dials, small enough for a few minutes on two cores."""
    dials = {**DEFAULTS, "entities": 80}
    data = cs.dataset("testbed", seed=seed, conversations=60, **ranged(dials))
    with temporary() as folder:
        systems = {
            f"{engine.name} {name} (small)": engine.system(parts)
            for engine in engines(data.get_corpus_iter, Path(folder), dense=True)
            for name, parts in FORMS.items()
        }
        return table(data, systems).assign(dial="default", seed=seed, passages=data.num_passages, **dials)


def figure(results: pd.DataFrame) -> Any:
    """R@10 over the values of each dial, means over the seeds."""
    from matplotlib.figure import Figure

    lines = [
        ("BM25 X_t", "no-switch", "tab:blue", "-"),
        ("BM25 X_t\\q_t", "no-switch", "tab:blue", "--"),
        ("BM25 X_t", "switch", "tab:red", "-"),
        ("BM25 X_t\\q_t", "switch", "tab:red", "--"),
        ("BM25 q_t", "All", "tab:gray", ":"),
        ("BM25 rewrite", "All", "tab:green", "-."),
    ]
    drawn = Figure(figsize=(11, 5.2), layout="constrained")
    axes = drawn.subplots(2, 4, sharey=True).flat
    recall = results[results["measure"] == "R@10"]
    for dial, axis in zip(SWEEPS, axes, strict=False):
        for system, group, colour, style in lines:
            part = recall[(recall["system"] == system) & (recall["group"] == group)]
            part = part[part["dial"].isin(("default", dial))]
            means = part.groupby(dial)["value"].mean()
            name = system.removeprefix("BM25 ").replace("\\q_t", " without q_t")
            axis.plot(means.index, means, style, color=colour, marker=".", label=f"{name}, {group}")
        axis.axvline(DEFAULTS[dial], color="black", linewidth=0.5, alpha=0.4)
        axis.set_xlabel(dial if dial != "turns" else "turns (mean)")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.25)
        if dial == "entities":
            axis.set_xscale("log")
    axes = drawn.axes
    for row in (0, 4):
        axes[row].set_ylabel("R@10 of BM25")
    axes[7].axis("off")
    axes[7].legend(*axes[0].get_legend_handles_labels(), loc="center", frameon=False)
    return drawn


if __name__ == "__main__":
    main()
