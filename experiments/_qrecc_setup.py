"""What qrecc_answers.py runs: its rows and its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _common import arguments

import pt_convsearch as cs

NO_QUESTION = cs.X - cs.CURRENT
THRICE = "question three times"


@dataclass(frozen=True)
class Row:
    """A bi-encoder of the table.

    Args:
        name: of the row.
        negatives: which miner gives its hard negatives; None: in-batch only.
        parts: what it is trained on.
        repeat: how often the question is said, in training and at search.
        options: of cs.train.
    """

    name: str
    negatives: str | None = None
    parts: Any = cs.X
    repeat: int = 1
    options: dict[str, Any] = field(default_factory=dict)


#: the trained rows, the most important first
ROWS = [
    Row("in-batch"),
    Row("in-batch, without q_t", parts=NO_QUESTION),
    Row("BM25 negatives", "BM25"),
    Row("shortcut negatives", "shortcut"),
    Row("seen answers", "seen"),
    Row("model negatives", "model"),
    Row("CQR negatives", "CQR"),
    Row("random negatives", "random"),
    Row("seen 1 : shortcut 3", "seen 1 : shortcut 3"),
    Row("history masked", options={"mask_history": 0.3}),
    Row(THRICE, repeat=3),
    Row(f"shortcut negatives, {THRICE}", "shortcut", repeat=3),
]
UNTRAINED = [
    "BM25", f"BM25, {THRICE}", "BM25, no stop words", "zero-shot", f"zero-shot, {THRICE}", "zero-shot, fewer layers",
]  # fmt: skip


def parse(description: str | None, argv: list[str] | None) -> argparse.Namespace:
    parser = arguments(
        description,
        data="the folder qrecc-dev2k",
        quick="most: 150 test questions, 8 steps of training, three layers, one seed",
    )
    parser.add_argument("--train", type=Path, metavar="DIR", help="where train and dev lie, if not in --data")
    parser.add_argument("--rows", help="rows to run, by name, separated by semicolons (default all)")
    parser.add_argument("--seeds", default="1,2,3", help="seeds of the training (default 1,2,3)")
    parser.add_argument(
        "--layers", type=int, default=6, choices=range(1, 7), help="of MiniLM, evenly spaced (default 6)"
    )
    parser.add_argument("--epochs", type=int, default=3, help="passes over the questions on dev, at most (default 3)")
    parser.add_argument("--steps", type=int, help="training steps; by default as found on dev")
    parser.add_argument("--learning-rate", type=float, default=3e-5, metavar="RATE", help="its peak (default 3e-5)")
    parser.add_argument(
        "--stopwords",
        type=Path,
        metavar="FILE",
        help="words of the row 'BM25, no stop words', one a line (default: "
        "the 318 of scikit-learn; Terrier's list is stopword-list.txt in its jar)",
    )
    parser.add_argument("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the tables of what is there")
    return parser.parse_args(argv)


def known(name: str, names: list[str]) -> str:
    if name not in names:
        raise SystemExit(f"--rows: no row {name!r}; there are {'; '.join(names)}")
    return name


def row_of(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def repeated(repeat: int) -> dict[str, int]:
    return {"repeat": repeat} if repeat > 1 else {}
