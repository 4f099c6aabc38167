"""What importing costs: ``import pt_convsearch`` beside ``import pyterrier``, in fresh processes, in turns.

    python experiments/bench/imports.py --runs 7 --out imports.csv

Seconds of the processor (user and system), not of the clock, so that a machine which others use too does not matter
much; medians, and the ratio to pyterrier. Further rows: what the first use of a room brings (the lexical one numba, the
dense one torch). The first run of all fills the caches of the disk and is not counted.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pandas as pd

STATEMENTS = {
    "pyterrier": "import pyterrier",
    "pt_convsearch": "import pt_convsearch",
    "pt_convsearch, a former": "import pt_convsearch as cs; cs.form(cs.X)",
    "pt_convsearch, topics": "import pt_convsearch as cs; cs.topics.from_messages([])",
    "pt_convsearch, BM25": "import pt_convsearch as cs; cs.BM25Index; from pt_convsearch.lexical import kernels",
    "pt_convsearch, dense": "import pt_convsearch as cs; cs.BiEncoder",
}


def cost(statement: str) -> float:
    """Processor seconds of a fresh interpreter that runs the statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each")
    parser.add_argument("--only", nargs="+", default=list(STATEMENTS), choices=list(STATEMENTS), metavar="WHAT")
    parser.add_argument("--out", type=Path, help="a CSV file")
    options = parser.parse_args(argv)
    names = list(dict.fromkeys(["pyterrier", *options.only]))
    times: dict[str, list[float]] = {name: [] for name in names}
    for run in range(options.runs + 1):
        for name in names:
            seconds = cost(STATEMENTS[name])
            if run:
                times[name].append(seconds)
    base = statistics.median(times["pyterrier"])
    rows = [
        {"what": name, "cpu_seconds": round(statistics.median(seconds), 3),
         "ratio to pyterrier": round(statistics.median(seconds) / base, 3), "runs": len(seconds)}
        for name, seconds in times.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.out, index=False, encoding="utf-8", lineterminator="\n")


if __name__ == "__main__":
    main()
