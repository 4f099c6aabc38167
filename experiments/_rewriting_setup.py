"""The command line of rewriting.py."""

from __future__ import annotations

import argparse
from pathlib import Path


def parse(description: str | None, argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="a folder such as qrecc-dev2k, or where --dataset lies")
    add("--dataset", metavar="NAME", help="testbed, cast21-mini, mtrag-mini/human (default: the folder --data)")
    add("--out", required=True, type=Path, metavar="DIR", help="where results and tables go")
    add("--models", type=Path, metavar="DIR", help="OUT/models of another run, whose models are taken")
    add("--seed", type=int, default=1)
    add("--no-dense", action="store_true", help="only BM25")
    add("--no-dependence", action="store_true", help="only what rows find: half the cost")
    add("--quick", action="store_true", help="a few questions, two layers, one epoch, 3 steps by reward")
    add("--rows", help="rows to run, by name, separated by semicolons (default all)")
    add("--table-only", action="store_true", help="run nothing, write the tables of what is there")
    add("--conversations", default="640,60,100", metavar="N,N,N", help="train, dev, test of the testbed")
    add("--skip", type=int, default=0, metavar="N", help="of the testbed: leave out so many conversations before those "
        "of the test, which a run before was tested on")  # fmt: skip
    add("--layers", type=int, default=6, choices=range(1, 7), help="of MiniLM, evenly spaced (default 6)")
    add("--tagger-epochs", type=int, default=5, help="of QuReTeC (default 5)")
    add("--tagger-questions", type=int, metavar="N", help="that QuReTeC learns from, the first ones (default all)")
    add("--rewriter-questions", type=int, metavar="N", help="that the rewriter learns from, the first ones (default "
        "all); CONQRR then learns from the others")  # fmt: skip
    add("--init", help="where the rewriter starts, e.g. t5-base (default: an encoder-decoder from MiniLM)")
    add("--freeze", type=int, default=0, metavar="N", help="leave the N lowest layers of --init as they are")
    add("--epochs", type=int, default=10, help="of the rewriter over the gold rewrites (default 10)")
    add("--copy-epochs", type=int, default=6, help="of repeating questions, without --init (default 6)")
    add("--batch-size", type=int, default=16, help="of the rewriter's training (default 16)")
    add("--learning-rate", type=float, default=2e-4, metavar="RATE", help="its peak (default 2e-4)")
    add("--max-input-length", type=int, default=128, metavar="N", help="tokens that it reads (default 128)")
    add("--num-beams", type=int, default=4, help="when it writes (default 4; 1: greedily)")
    add("--precision", default="auto", choices=["auto", "bf16", "fp32"], help="of its weights when it writes")
    add("--reward-steps", type=int, default=80, help="of CONQRR (default 80)")
    add("--reward-batch", type=int, default=16, help="questions a step (default 16)")
    add("--reward-rate", type=float, default=5e-5, metavar="RATE", help="its learning rate (default 5e-5)")
    add("--reward-draws", type=int, default=1, help="rewrites drawn for each (default 1, as in the paper)")
    add("--reward-temperature", type=float, default=1.0, help="that they are drawn at (default 1)")
    add("--reward-baseline", default="greedy", choices=["greedy", "others"], help="what they have to be better than")
    add("--reward-normalize", action="store_true", help="divide advantages by their standard deviation")
    add("--reward-penalty", type=float, default=1.0, help="how much worse draws count (default 1)")
    add("--reward-mle", type=float, default=0.0, help="the share of the loss on gold rewrites (default 0)")
    add("--reward-warmup", type=float, default=0.0, help="the share of steps in which the rate rises (default 0)")
    add("--reward-dev", type=int, default=100, metavar="N", help="dev questions that it is watched on (default 100)")
    add("--k1", type=float, default=0.82, help="of BM25 (default 0.82, the paper's for QReCC)")
    add("--b", type=float, default=0.68, help="of BM25 (default 0.68)")
    add("--llm", nargs=2, metavar=("URL", "MODEL"), help="an OpenAI-compatible endpoint for the row LLM")
    add("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    options = parser.parse_args(argv)
    if options.data is None and options.dataset != "testbed":
        parser.error("--data is missing: all but the testbed lies in a folder")
    return options
