"""Put the measured tables into README.md and the pages of the documentation.

    python experiments/update_readme.py            # rewrite
    python experiments/update_readme.py --check    # exit status 1 if a page differs from the results

What stands between a marker and the next ``<!-- /table -->`` is made from a results.csv below experiments/results, one
column per group and measure. A marker names its folder and the measures: ``<!-- table: mtrag/human R@10 -->``. The
marker ``<!-- speed: bench/bm25.csv -->`` is the ratios of a benchmark, ``<!-- scale: plan -->`` a table of
``bench/scale_tables.py``; that of a file which an experiment wrote is ``<!-- text: response_retrieval/table.md -->``.
Within a line, ``<!-- state: mtrag/human; BM25 X_t; All; R@10 --><!-- /state -->`` is one figure (folder; system; group;
measure) with its commit, or "not run here".
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch._files import writing_text

HERE = Path(__file__).resolve().parent
MARKER = re.compile(
    r"(<!-- (?P<kind>table|speed|scale|text): (?P<source>\S+)(?P<measures>.*?) -->\n).*?(<!-- /table -->)", re.DOTALL
)
STATE = re.compile(r"(<!-- state: (?P<cell>[^\n]*?) -->).*?(<!-- /state -->)")


def table(source: str, measures: list[str]) -> str:
    """The Markdown of one table: a row per system, a column per group and measure, n in the head, a dash for none."""
    folder = HERE / "results" / source
    results = pd.read_csv(folder / "results.csv", encoding="utf-8", keep_default_na=False, na_values=[""])
    results = results[results["measure"].isin(measures)]
    groups = list(dict.fromkeys(results["group"]))
    columns = [(group, measure) for group in groups for measure in measures]
    cells = {(row.system, row.group, row.measure): _shown(row) for row in results.itertuples()}
    sizes = {group: int(results.loc[results["group"] == group, "n"].max()) for group in groups}
    named = (lambda group, measure: f"{group} {measure}") if len(measures) > 1 else (lambda group, measure: group)
    head = [f"{named(group, measure)} (n {sizes[group]})" for group, measure in columns]
    lines = ["| " + " | ".join([", ".join(measures), *head]) + " |", "|---" * (len(columns) + 1) + "|"]
    for system in dict.fromkeys(results["system"]):
        values = [cells.get((system, *column), "–") for column in columns]
        lines.append("| " + " | ".join([system.replace("\\", "\\\\"), *values]) + " |")
    meta = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    environment = meta["environment"]
    lines += ["", f"<sub>`{environment['command']}` at {environment['commit']}, {environment['cpus']} CPU cores.</sub>"]
    return "\n".join(lines) + "\n"


def _shown(row: Any) -> str:
    """A cell: the value, whole where it is a count, and the ends of its interval where there is one."""
    if row.value != row.value:
        return "–"
    low, high = getattr(row, "low", math.nan), getattr(row, "high", math.nan)
    if row.measure == "questions":
        return f"{row.value:,.0f}"
    return f"{row.value:.3f}" if low != low else f"{row.value:.2f} [{low:.2f}, {high:.2f}]"


def speed(source: str) -> str:
    """How many times as long each engine takes as ours, by kind and length of the queries."""
    rows = pd.read_csv(HERE / "results" / source, encoding="utf-8")
    ratios = rows[(rows["unit"] == "ratio to ours") & (rows["engine"] != "ours")]
    columns = list(dict.fromkeys(zip(ratios["what"], ratios["terms"].astype(int), strict=True)))
    lines = ["| time of … over ours | " + " | ".join(f"{what}, {terms} terms" for what, terms in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for engine, block in ratios.groupby("engine", sort=False):
        cells = dict(zip(zip(block["what"], block["terms"].astype(int), strict=True), block["value"], strict=True))
        lines.append(f"| {engine} | " + " | ".join(f"{cells[column]:.1f}" for column in columns) + " |")
    return "\n".join(lines) + "\n"


def scale(name: str) -> str:
    """A table of the figures that the plan of scale rests on."""
    spec = importlib.util.spec_from_file_location("scale_tables", HERE / "bench" / "scale_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    return str(tables.table(name))


def state(cell: str) -> str:
    """One figure of the results with n and commit, or that it was not run."""
    source, system, group, measure = (part.strip() for part in cell.split(";"))
    folder = HERE / "results" / source
    if not (folder / "results.csv").is_file():
        return "not run here"
    results = pd.read_csv(folder / "results.csv", encoding="utf-8", keep_default_na=False, na_values=[""])
    chosen = (results["system"] == system) & (results["group"] == group) & (results["measure"] == measure)
    found = results[chosen].dropna(subset="value")
    if len(found) == 0:
        return "not run here"
    row = next(found.head(1).itertuples())
    value = f"{row.value:,.0f}" if measure == "questions" else f"{row.value:.3f}"
    commit = json.loads((folder / "results.json").read_text(encoding="utf-8"))["environment"]["commit"]
    return f"{measure} {value} (n {int(row.n):,}, {commit[:7]})"


def renewed(text: str) -> str:
    """A page with every table made anew."""

    def block(match: re.Match[str]) -> str:
        if match["kind"] == "scale":
            return match[1] + scale(match["source"]) + match[5]
        if not (HERE / "results" / match["source"]).exists():
            return f"{match[1]}Not run here.\n{match[5]}"
        if match["kind"] == "speed":
            return match[1] + speed(match["source"]) + match[5]
        if match["kind"] == "text":
            text = (HERE / "results" / match["source"]).read_text(encoding="utf-8")
            return match[1] + re.sub(r"\A# .*\n+", "", text) + match[5]  # a page has its own title
        return match[1] + table(match["source"], match["measures"].strip().split(", ")) + match[5]

    return STATE.sub(lambda match: match[1] + state(match["cell"]) + match[3], MARKER.sub(block, text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    top = HERE.parent
    stale = 0
    for page in [top / "README.md", *sorted((top / "pt_convsearch" / "pt_docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = renewed(text)
        if new == text:
            continue
        stale = 1
        if check:
            print(f"{page.relative_to(top)} differs from experiments/results")
        else:
            with writing_text(page) as handle:
                handle.write(new)
    return stale if check else 0


if __name__ == "__main__":
    raise SystemExit(main())
