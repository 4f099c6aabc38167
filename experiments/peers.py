"""Conversational encoders beside each other: who needs the question, and who lives on the history?

    python experiments/peers.py --dataset testbed --out out/peers
    python experiments/peers.py --dataset mtrag --data mtrag/mini --out out/peers-mtrag
    python experiments/peers.py --dataset mtrag --data mtrag/mini --train qrecc-dev2k --out out/peers-qrecc-mtrag
    python experiments/peers.py --dataset testbed --quick --out out/quick

Rows: BM25; the encoder that all begin with, untrained; an ad hoc encoder, trained on gold rewrites and asked with
rewrites and with conversations; a bi-encoder trained on conversations (DPR); ConvDR, taught by the ad hoc encoder's
vectors, without and with ranking; CQE on it, its term weights in BM25 and the hybrid of both; OR-QuAC's two towers;
SPLADE, trained on gold rewrites; DiSCo, taught by its scores. All begin with the lowest layers of all-MiniLM-L6-v2 and
train for as many steps; passages of students are never encoded again. The checkpoint that is best on dev (RR) is kept;
CQE's threshold is chosen on dev. Published checkpoints are named in the table and were not run here. MTRAG has no
training split: its conversations are parted, or, with ``--train``, all of them are the test, and rows learn from the
train and dev of another folder.

For every row: RR, R@10 by group, and the shortcut dependence: how much of the ranking (overlap@10) stays when the
question is taken away or exchanged, and how much of R@10 (retention). Each row has a folder under OUT/rows: a run that
was stopped goes on, a row whose settings changed is run anew.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _common import say
from _peers_parts import Data, Models
from _rows import Rows, fingerprint
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation.report import write_results
from pt_convsearch.evaluation.study import Engine, dense_engine, shortcut_study
from pt_convsearch.negatives._fingerprint import digest

MEASURES = [RR, R @ 1, R @ 10]
FORMS = {"X_t": cs.X, "X_t\\q_t": cs.X - cs.CURRENT}
AD_HOC = {**FORMS, "q_t": cs.CURRENT, "rewrite": cs.REWRITE}
DEPTH = 100
#: published checkpoint -> how it is composed here
PUBLISHED = {
    "ANCE + ConvDR": 'cs.train_convdr(topics, cs.dense.published_encoder("ance"), …)',
    "castorini/tct_colbert-v2-msmarco-cqe": "cs.CQE(cs.BiEncoder(…, pooling='mean'), index)",
    "OR-QuAC retriever": 'cs.dense.orquac_encoder("retriever_checkpoint/…")',
    "Dragon-multiturn": 'cs.dense.published_encoder("dragon-multiturn")',
    "DiSCo (SPLADE++)": 'cs.train_disco(topics, cs.SparseEncoder("naver/splade-cocondenser-ensembledistil"), …)',
}


class Peers:
    """Makes the rows one after the other, each into its folder."""

    def __init__(self, data: Data, options: Any) -> None:
        self.data, self.options = data, options
        self.models = Models(
            data, options.out / "models", layers=options.layers, steps=options.steps, batch_size=options.batch_size,
            lengths=(32, 32) if options.quick else (64, 72), seed=options.seed,
        )  # fmt: skip
        self.settings: dict[str, Any] = {
            "dataset": options.dataset, "quick": options.quick, "layers": options.layers, "steps": options.steps,
            "batch_size": options.batch_size, "lengths": self.models.lengths,
            "train": digest(data.topics["train"][["qid", "query"]]),
            "test": digest(data.topics["test"][["qid", "query"]]),
        }  # fmt: skip
        if data.source:
            self.settings["trained on"] = data.source

    def rows(self) -> dict[str, Callable[[], tuple[Engine, dict[str, Any], str]]]:
        """By name, what makes a row: the engine, the forms to ask it with, and what was trained on what."""
        models = self.models
        note = f"MiniLM, {models.layers} layers"
        of = f" of {self.data.source}" if self.data.source else ""
        rewrites = f"{note}, {models.steps} steps on gold rewrites{of}"

        def dense(name: str, encoder: cs.BiEncoder, index: str) -> Engine:
            searched = models.dense_index(index, encoder)
            return dense_engine(name, searched.retriever(num_results=DEPTH), encoder)

        def sparse(name: str, encoder: cs.SparseEncoder) -> Engine:
            searched = models.impact_index("splade", encoder)
            return dense_engine(name, searched.retriever(num_results=DEPTH), encoder)  # type: ignore[arg-type]

        def convdr(name: str, ranking: bool) -> tuple[Engine, dict[str, Any], str]:
            said = "vectors of gold rewrites" + (", and 9 mined negatives" if ranking else "")
            engine = dense(name, models.convdr(ranking=ranking), "ad-hoc")
            return engine, FORMS, f"student of the ad hoc encoder, {models.steps} steps{of}: {said}"

        return {
            "BM25": lambda: (Engine("BM25", models.lexical.bm25(num_results=DEPTH)), AD_HOC, "nothing"),
            "untrained encoder": lambda: (
                dense("untrained encoder", models.untrained, "untrained"), AD_HOC, f"{note}, as they are"
            ),
            "ad hoc encoder": lambda: (
                dense("ad hoc encoder", models.ad_hoc, "ad-hoc"), AD_HOC, f"{rewrites}, negatives of BM25"
            ),
            "DPR": lambda: (
                dense("DPR", models.dpr, "dpr"), FORMS,
                f"{note}, {models.steps} steps on conversations{of}, negatives of BM25",
            ),
            "ConvDR": lambda: convdr("ConvDR", False),
            "ConvDR with ranking": lambda: convdr("ConvDR with ranking", True),
            "CQE, sparse": lambda: self.cqe("CQE, sparse", hybrid=False),
            "CQE, hybrid": lambda: self.cqe("CQE, hybrid", hybrid=True),
            "OR-QuAC towers": lambda: (
                dense("OR-QuAC towers", models.orquac, "orquac"), AD_HOC,
                f"{rewrites}, two towers to 128 dimensions, in-batch negatives (MiniLM in place of ALBERT)",
            ),
            "SPLADE": lambda: (
                sparse("SPLADE", models.splade), AD_HOC,
                f"{rewrites}, negatives of BM25, the collection's word pieces",
            ),
            "DiSCo": lambda: (
                sparse("DiSCo", models.disco), FORMS,
                f"student of SPLADE, {models.steps} steps{of}: scores of gold rewrites, 16 negatives",
            ),
        }  # fmt: skip

    def cqe(self, name: str, *, hybrid: bool) -> tuple[Engine, dict[str, Any], str]:
        """CQE on ConvDR's student: its vector and its term weights."""
        models = self.models
        student = models.convdr(ranking=False)
        form = models.form(cs.X, student.tokenizer)
        topics, qrels = self.data.topics["dev"], self.data.qrels["dev"]
        norms = cs.CQE(student, models.mining).norms(form(topics))
        norms = norms[~norms["question"] & (norms["terms"].map(len) > 0)]["norm"]
        grid = [0.0, *np.quantile(norms, [0.25, 0.5, 0.75, 0.9]).round(2), float(norms.max())]
        tried = {
            threshold: float(
                cs.Experiment(
                    {
                        "CQE": form
                        >> cs.CQE(student, models.mining, threshold=threshold)
                        >> models.mining.bm25(num_results=DEPTH)
                    },
                    topics,
                    qrels,
                    [RR],
                )["All"].loc["CQE", "RR"]
            )
            for threshold in grid
        }
        threshold = max(tried, key=lambda one: tried[one])
        stage = cs.CQE(student, models.lexical, threshold=float(threshold))
        search = bm25 = models.lexical.bm25(num_results=DEPTH)
        if hybrid:
            search = models.dense_index("ad-hoc", student).retriever(num_results=DEPTH) + 0.1 * bm25
        engine = dense_engine(name, stage >> search, student)
        kept = f"history words of norm above {threshold:.4g} (best on dev)"
        return engine, FORMS, f"ConvDR's student; {'0.1 BM25 of' if hybrid else 'BM25 of'} {kept}"

    def run(self, rows: Rows, name: str, make: Callable[[], tuple[Engine, dict[str, Any], str]]) -> None:
        def work() -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
            began = time.perf_counter()
            engine, forms, note = make()
            made = time.perf_counter() - began
            topics, qrels = self.data.topics["test"], self.data.qrels["test"]
            study = shortcut_study(
                [engine], topics, qrels, MEASURES, forms=forms, by=groups(topics), dependence_by=kinds(topics),
                seed=self.options.seed,
            )  # fmt: skip
            results = study.results()
            seconds = {"made": round(made, 1), "scored": round(time.perf_counter() - began - made, 1)}
            return {"note": note, "seconds": seconds}, {"results": results}

        rows.run(name, self.options.seed, {**self.settings, "row": name}, work)

    def write(self, rows: Rows, order: list[str]) -> None:
        """The tables of the rows that are there."""
        keys = {name: fingerprint({**self.settings, "row": name}) for name in order}
        found = {row["row"]: row for row in rows if row["fingerprint"] == keys.get(row["row"])}
        kept = [name for name in order if name in found]
        frames = {name: pd.read_parquet(found[name]["folder"] / "results.parquet") for name in kept}
        notes = {name: found[name]["note"] for name in kept}
        results = pd.concat(frames.values(), ignore_index=True)
        write_results(
            self.options.out, results, settings={**self.settings, "seed": self.options.seed, "trained on": notes},
            timings={name: sum(found[name]["seconds"].values()) for name in kept},
            more={"not run": [*PUBLISHED, *(name for name in order if name not in found)]},
        )  # fmt: skip
        name = self.options.dataset + (f", trained on {self.data.source}" if self.data.source else "")
        text = tables(frames, notes, order, name, len(self.data.topics["test"]))
        (self.options.out / "table.md").write_text(text, encoding="utf-8")
        print(text)


def groups(topics: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of the table, besides all questions."""
    return {"t > 1": (topics["turn_number"] > 1).to_numpy(), **kinds(topics)}


def kinds(topics: pd.DataFrame) -> dict[str, np.ndarray]:
    labels = topics["qtype"].astype(object) if "qtype" in topics else pd.Series([None] * len(topics))
    found = {label: (labels == label).to_numpy(dtype=bool) for label in ("switch", "no-switch")}
    return {label: mask for label, mask in found.items() if mask.any()}


def tables(
    frames: dict[str, pd.DataFrame], notes: dict[str, str], order: list[str], dataset: str, questions: int
) -> str:
    """Two tables as Markdown: retrieval by group, and how much of it needs no question."""
    retrieval, dependence = [], []
    for name in order:
        if name not in frames:
            retrieval.append({"system": name, "asked with": "not run here"})
            continue
        values = frames[name].set_index(["system", "group", "measure"])["value"]

        def cell(system: str, group: str, measure: str, values: pd.Series = values) -> float:
            return float(values.get((system, group, measure), np.nan))

        for form in AD_HOC:
            system = f"{name} {form}"
            if (system, "All", "RR") not in values.index:
                continue
            own = {f"{measure}": cell(system, "All", str(measure)) for measure in MEASURES}
            by_group = {
                f"{measure}, {group}": cell(system, group, measure)
                for group in ("t > 1", "switch", "no-switch")
                for measure in ("RR", "R@10")
            }
            retrieval.append({"system": name, "asked with": form, **own, **by_group})
        both = f"{name}: X_t against X_t\\q_t"
        shown = {
            "overlap@10 without q_t": "overlap@10", "overlap@10 with another's q_t": "overlap@10 swapped",
            "retention of R@10": "retention", "retention, another's q_t": "retention swapped",
        }  # fmt: skip
        dependence.append({
            "system": name, **{column: cell(both, "All", measure) for column, measure in shown.items()},
            "trained on": notes[name],
        })  # fmt: skip
    retrieval += [{"system": name, "asked with": "not run here"} for name in PUBLISHED]
    dependence += [
        {"system": name, "trained on": f"published; not run here: `{code}`"} for name, code in PUBLISHED.items()
    ]
    parts = [
        f"# Conversational encoders: {dataset}, {questions:,} test questions", "", "## Retrieval", "",
        cs.render(pd.DataFrame(retrieval).dropna(axis=1, how="all"), "markdown"), "",
        "## Does it need the question?", "",
        "After first turns. 1: nothing of the ranking (of R@10) hangs on the question.", "",
        cs.render(pd.DataFrame(dependence), "markdown"), "",
    ]  # fmt: skip
    return "\n".join(parts)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=["testbed", "mtrag"])
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder mtrag/mini, for --dataset mtrag")
    parser.add_argument(
        "--train",
        type=Path,
        metavar="DIR",
        help="with mtrag: what to learn from, a folder such as qrecc-dev2k, or testbed",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where rows and tables go")
    parser.add_argument("--rows", help="rows to run, by name, separated by semicolons (default all; 'none')")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=2, choices=range(1, 7), help="of MiniLM (default 2)")
    parser.add_argument("--steps", type=int, default=80, help="of every training (default 80)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    parser.add_argument("--quick", action="store_true", help="half a minute: one layer, two steps, a small testbed")
    options = parser.parse_args(argv)
    if options.dataset == "mtrag" and options.data is None:
        parser.error("--dataset mtrag needs --data, the folder mtrag/mini")
    if options.dataset != "mtrag" and options.train is not None:
        parser.error("--train is of --dataset mtrag: the testbed has splits of its own")
    if options.quick:
        options.layers, options.steps, options.batch_size = 1, 2, 8
    return options


def main(argv: list[str] | None = None) -> None:
    options = arguments(argv)
    warnings.filterwarnings(
        "ignore", message=r".*(hold their own question|is the last message|repeat|tell positives|no tokens of the).*"
    )
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    if options.dataset == "testbed":
        data = Data.testbed(options.quick)
    elif options.train is not None:
        data = Data.elsewhere(options.train, options.data, options.quick)
    else:
        data = Data.mtrag(options.data, options.seed, options.quick)
    say(", ".join(f"{len(frame):,} {split} questions" for split, frame in data.topics.items()))
    peers = Peers(data, options)
    makers = peers.rows()
    names = list(makers) if options.rows is None else [name.strip() for name in options.rows.split(";")]
    unknown = [name for name in names if name not in makers and name != "none"]
    if unknown:
        raise SystemExit(f"--rows: no row {unknown[0]!r}; there are {'; '.join(makers)}; or none")
    rows = Rows(options.out / "rows")
    known = options.out / "models" / "settings.json"
    _fresh(known, peers)
    for name in names:
        if name != "none":
            peers.run(rows, name, makers[name])
    peers.write(rows, list(makers))
    say(f"written to {options.out}")


def _fresh(known: Path, peers: Peers) -> None:
    """Models that were made with other settings are removed."""
    settings = json.loads(json.dumps({**peers.settings, "seed": peers.options.seed}))
    if known.is_file() and json.loads(known.read_text(encoding="utf-8")) == settings:
        return
    peers.models.clear()
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps(settings), encoding="utf-8")


if __name__ == "__main__":
    main()
