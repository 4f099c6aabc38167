"""What shortcut_table.py runs: its rows, how their models are made and trained, and its command line."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pt_convsearch as cs

NO_QUESTION = cs.X - cs.CURRENT


@dataclass(frozen=True)
class Row:
    """A bi-encoder of the table.

    Args:
        name: of the row.
        negatives: which miner gives its hard negatives; None: in-batch negatives only.
        parts: what it is trained on.
        batches: its batch size, in batches of the others.
        options: of cs.train, beside those of all rows.
    """

    name: str
    negatives: str | None = None
    parts: Any = cs.X
    batches: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """What tells it from other rows."""
        found = {**asdict(self), "parts": repr(self.parts)}
        return found if self.options else {name: value for name, value in found.items() if name != "options"}


#: the trained rows, the most important first
ROWS = [
    Row("DPR"),
    Row("w. Shortcut Negs", "shortcut"),
    Row("w. Model Negs", "model"),
    Row("w. BM25 Negs", "BM25"),
    Row("DPR⊗", parts=NO_QUESTION),
    Row("DPR, twice the batch", batches=2),
    Row("w. CQR Negs", "CQR"),
    Row("w. Shortcut + Model Negs", "shortcut + model"),
    Row("DPR, history masked", options={"mask_history": 0.3}),
    Row("DPR, q_t alone", parts=cs.CURRENT),
]


@dataclass(frozen=True)
class Setup:
    """How the bi-encoders are made and trained.

    Args:
        init: a name on the hub; "minilm": the lowest ``layers`` of all-MiniLM-L6-v2.
        layers: of MiniLM.
        options: of cs.train, for all rows.
        rates: learning rates to try on dev.
        steps: optimiser steps to try on dev; empty: ``epochs`` among the options.
        evaluations: dev measures while a row trains.
        pool: passages mined per question.
        dev_pool: passages of BM25 per dev question that make up the small dev collection, beside the golds.
        bm25: k1 and b.
        cqr: the question and the passage encoder that mine with rewrites; None: all-MiniLM-L6-v2.
    """

    init: str
    options: dict[str, Any]
    layers: int = 6
    rates: tuple[float, ...] = (3e-5,)
    steps: tuple[int, ...] = ()
    evaluations: int = 4
    pool: int = 100
    dev_pool: int = 10
    bm25: tuple[float, float] = (0.9, 0.4)
    cqr: tuple[str, str] | None = None


SMALL = Setup(
    "minilm",
    {"batch_size": 32, "max_query_length": 64, "max_passage_length": 72},
    layers=2,
    rates=(3e-4,),
    steps=(60, 120),
    evaluations=3,
    pool=20,
)
QUICK = Setup(
    "minilm",
    {"batch_size": 8, "max_query_length": 32, "max_passage_length": 32},
    layers=1,
    rates=(3e-4,),
    steps=(4,),
    evaluations=2,
    pool=10,
    dev_pool=2,
)


def paper(dataset: str) -> Setup:
    """The settings of the paper: two towers of BERT, batch 256 (OR-QuAC: 128), 10 epochs."""
    qrecc = dataset.startswith("qrecc")
    options = {
        "batch_size": 256 if qrecc else 128, "epochs": 10, "towers": 2, "pooling": "cls", "similarity": "dot",
        "scale": 1.0, "max_grad_norm": 2.0, "max_query_length": 128, "max_passage_length": 384, "precision": "auto",
        "mini_batch_size": 32,
    }  # fmt: skip
    return Setup(
        "bert-base-uncased",
        options,
        evaluations=10,
        dev_pool=100,
        bm25=(0.82, 0.68) if qrecc else (0.9, 0.4),
        cqr=("facebook/dpr-question_encoder-single-nq-base", "facebook/dpr-ctx_encoder-single-nq-base"),
    )


def arguments(description: str | None, argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help="testbed, qrecc, or-quac, folder:DIR …: any of cs.dataset with the splits train, dev, test",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where rows and tables go")
    parser.add_argument(
        "--dial",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the data set, e.g. train_switch_rate=0.3 or seed=2 of the testbed",
    )
    parser.add_argument("--seeds", default="1,2,3", help="seeds of the training (default 1,2,3)")
    parser.add_argument("--rows", help="trained rows to run, by name, separated by semicolons (default all; 'none')")
    parser.add_argument("--rewriter", metavar="MODEL", help="a seq2seq or causal model, for one more row of rewrites")
    parser.add_argument("--layers", type=int, help="of MiniLM, the lowest ones (default 2)")
    parser.add_argument("--learning-rate", type=float, metavar="RATE", help="its peak; by default the best on dev")
    parser.add_argument("--steps", type=int, help="training steps; by default the best on dev")
    parser.add_argument("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    parser.add_argument("--keep-models", action="store_true", help="of all rows, not of DPR alone")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the tables of what is there")
    parser.add_argument(
        "--paper",
        action="store_true",
        help="the paper's settings (two towers of BERT, batch 256 or 128, 10 epochs); not run by the authors",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a minute: one seed, one layer, four steps, a small testbed"
    )
    options = parser.parse_args(argv)  # fmt: skip
    if options.quick and options.paper:
        parser.error("--quick and --paper exclude each other")
    if options.quick:
        options.seeds = options.seeds.split(",")[0]
    return options


def dial(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SystemExit(f"--dial {text!r}: NAME=VALUE, e.g. train_switch_rate=0.3")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
