"""``scale plan``: what a large collection will cost, before anything is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("scale", help="many machines: what a large collection will cost")
    inner = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    plan = inner.add_parser(
        "plan",
        help="hours, disk and memory of encoding, BM25, dense search and mining",
        description="Prints hours, disk and memory, each with the measured figure that it rests on, and says what is "
        "extrapolated. Figures are those of experiments/bench/scale.py.",
    )
    plan.add_argument("--passages", required=True, type=int, metavar="N")
    plan.add_argument("--dim", type=int, default=768, help="dimensions of a vector (default 768)")
    plan.add_argument("--gpus", type=int, default=0, help="GPUs that encode (default 0: the cores do)")
    plan.add_argument("--cores", type=int, default=2, help="cores of all machines together (default 2)")
    plan.add_argument("--questions", type=int, default=30_000, help="questions to mine negatives for (default 30000)")
    plan.add_argument("--depth", type=int, default=100, help="results per question (default 100)")
    plan.add_argument(
        "--passages-per-shard", type=int, default=1_000_000, metavar="N", help="of a sharded index (default 1000000)"
    )
    rate = "passages per second and GPU (default: the paper's 67, not measured here)"
    plan.add_argument("--encode-rate", type=float, metavar="R", help=rate)
    plan.add_argument("--figures", type=Path, metavar="FILE", help="what the bench measured on a machine of yours")
    plan.add_argument("--json", action="store_true", help="print JSON")
    plan.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    from pt_convsearch.scale import plan

    made = plan(
        arguments.passages, dim=arguments.dim, gpus=arguments.gpus, cores=arguments.cores,
        questions=arguments.questions, num_results=arguments.depth,
        passages_per_shard=arguments.passages_per_shard, encode_rate=arguments.encode_rate, figures=arguments.figures,
    )  # fmt: skip
    print(made.to_frame().to_json(orient="records", indent=2) if arguments.json else made)
    return 0
