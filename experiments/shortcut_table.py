"""Training that breaks the shortcut: Table 1, Figure 2 and appendix D of Kim & Kim (2022), for any data set.

    python experiments/shortcut_table.py --dataset testbed --out out/shortcut_table
    python experiments/shortcut_table.py --dataset testbed --quick --out out/quick
    python experiments/shortcut_table.py --dataset qrecc --paper --out out/qrecc        # GPUs; not run by the authors

The rows: BM25 on X_t and on X_t\\q_t (BM25⊗), BM25 on rewrites (the gold ones, and those of ``--rewriter``), a
bi-encoder trained and run on X_t\\q_t (DPR⊗), one trained with in-batch negatives (DPR), with as many passages per
step as the others (DPR, twice the batch), and with hard negatives from BM25, from rewrites (CQR), from the model, from
BM25 on X_t\\q_t (shortcut), and a mix of the last two; one trained with its history masked at random, one trained and
run on q_t alone. Each row and seed has a folder under OUT/rows: a run that was stopped goes on, a row whose settings
changed is run anew, and the tables show what is there ("not run here" for the rest).

The learning rate and the number of steps are fixed on dev beforehand, with in-batch negatives and a seed that no row
uses (OUT/budget.json); all rows train for as long, keep the checkpoint that is best on dev (R@5, as the paper), and
leave their dev curve. Columns: MRR, R@5, R@10 and R@100 over all questions, first ones, switch, no-switch and t > 1;
X_t\\q_t is empty at first turns.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _common import say, temporary
from _rows import Rows, fingerprint, minilm, slug
from _shortcut_setup import NO_QUESTION, QUICK, ROWS, SMALL, Row, arguments, dial, paper
from _shortcut_tables import LATER, MEASURES, write_tables

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch.evaluation.cost import CostMeter
from pt_convsearch.evaluation.study import Engine, dense_engine, shortcut_study

FORMS = {"X_t": cs.X, "X_t\\q_t": NO_QUESTION, "q_t": cs.CURRENT}
BUDGET_SEED = 0
_TIMED = 200  # questions that inference is timed with


def main(argv: list[str] | None = None) -> None:
    options = arguments(__doc__, argv)
    warnings.filterwarnings(
        "ignore", message=r".*(hold their own question|is the last message|repeat|tell positives).*"
    )
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    rows = {row.name: row for row in ROWS}
    names = list(rows) if options.rows is None else [name.strip() for name in options.rows.split(";")]
    unknown = [name for name in names if name not in rows and name != "none"]
    if unknown:
        raise SystemExit(f"--rows: no row {unknown[0]!r}; there are {'; '.join(rows)}; or none")
    table = Table(options)
    if not options.table_only:
        table.lexical()
        for seed in [int(seed) for seed in options.seeds.split(",")]:
            for name in names:
                if name != "none":
                    table.row(rows[name], seed)
    write_tables(options.out, table.found(), table.settings, budget=table.budget_known(), rewriter=options.rewriter)
    say(f"written to {options.out}")


class Table:
    """Runs rows, each into its folder."""

    def __init__(self, options: Any) -> None:
        self.options, self.out = options, options.out
        self.rows = Rows(options.out / "rows")
        self.setup = paper(options.dataset) if options.paper else QUICK if options.quick else SMALL
        self.dials: dict[str, Any] = dict(dial(text) for text in options.dial)
        if options.quick and options.dataset == "testbed":
            self.dials = {"entities": 30, **self.dials}
        self.layers = options.layers or self.setup.layers
        self.settings: dict[str, Any] = {
            "dataset": options.dataset, "dials": self.dials, "quick": options.quick, "paper": options.paper,
            "init": self.setup.init, "layers": self.layers if self.setup.init == "minilm" else None,
            "training": self.setup.options, "pool": self.setup.pool, "bm25": self.setup.bm25,
        }  # fmt: skip

    # -- data

    def _data(self, split: str) -> Any:
        name, dials = self.options.dataset, dict(self.dials)
        if self.options.quick and name == "testbed":
            dials.setdefault("conversations", {"train": 40, "dev": 10, "test": 25}[split])
        if name.startswith("folder:"):
            return cs.dataset(name, split=split, **dials)
        return cs.dataset(f"{name}/{split}", **dials)

    @cached_property
    def test(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        data = self._data("test")
        topics, qrels = data.get_topics(), data.get_qrels()
        return topics[topics["qid"].isin(qrels["qid"])].reset_index(drop=True), qrels

    @cached_property
    def train(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        data = self._data("train")
        return data.get_topics(), data.get_qrels()

    @cached_property
    def dev(self) -> tuple[pd.DataFrame, pd.DataFrame, list[dict[str, Any]]]:
        """Questions, judgments and a small collection: the golds, and what BM25 finds."""
        data = self._data("dev")
        topics, qrels = data.get_topics(), data.get_qrels()
        found = (cs.form(cs.X) >> self.bm25(self.setup.dev_pool))(topics)
        kept = {*qrels["docno"], *found["docno"]}
        return topics, qrels, [passage for passage in self.corpus() if passage["docno"] in kept]

    def corpus(self) -> Any:
        """The passages; read anew each time, for a collection may be larger than memory."""
        return self._data("test").get_corpus_iter()

    def bm25(self, num_results: int = 100) -> Any:
        k1, b = self.setup.bm25
        return self._index.bm25(num_results=num_results, k1=k1, b=b)

    @cached_property
    def _index(self) -> cs.BM25Index:
        key = fingerprint({name: self.settings[name] for name in ("dataset", "dials", "quick")})
        path = self.out / "indexes" / f"{key}.bm25"
        return cs.BM25Index(path) if path.is_dir() else cs.BM25Index(path).index(self.corpus())

    # -- rows

    def found(self) -> list[dict[str, Any]]:
        """The rows under OUT that were run on this data with these models; others may lie there, too."""
        kept = json.loads(
            json.dumps({key: value for key, value in self.settings.items() if key not in ("training", "pool")})
        )
        return [row for row in self.rows if all(row["settings"].get(key) == kept[key] for key in kept)]

    def lexical(self) -> None:
        """BM25, which gives the rows BM25, BM25⊗ and those of rewrites."""

        def work() -> Any:
            meter = CostMeter()
            with temporary() as folder, meter.measure("indexing") as cost:
                cost.items = cs.BM25Index(Path(folder) / "timed.bm25").index(self.corpus()).num_docs
            engine = Engine("BM25", self.bm25())
            more = {"rewrite": cs.REWRITE} if self._has_rewrites(self.test[0]) else {}
            return self._scored(engine, meter, forms={**FORMS, **more})

        self.rows.run("BM25", 0, {**self.settings, "training": None}, work)
        if self.options.rewriter:
            self.rows.run("rewriter", 0, {**self.settings, "rewriter": self.options.rewriter}, self._rewriter)

    def _rewriter(self) -> Any:
        meter = CostMeter()
        topics, qrels = self.test
        rewriter = cs.Rewriter(self.options.rewriter)
        with meter.measure("inference", items=len(topics), unit="questions"):
            results = (rewriter >> self.bm25())(topics)
        values = cs.Experiment({"model's rewrite": results}, topics, qrels, MEASURES, perquery=True)
        return self._facts(None, meter), {"per_question": values, "questions": self._questions()}

    def row(self, row: Row, seed: int) -> None:
        """Train and score one row with one seed, unless that was done."""
        budget = self.budget()
        settings = {
            **self.settings, **budget, "seed": seed, "row": row.settings(),
            "evaluations": self.setup.evaluations,
        }  # fmt: skip

        def work() -> Any:
            meter = CostMeter()
            model = self._trained(row, seed, budget, meter)
            with temporary() as folder:
                with meter.measure("indexing") as cost:
                    index = cs.DenseIndex(Path(folder) / "passages.flex", model).index(self.corpus())
                    cost.items = len(index)
                facts, frames = self._scored(dense_engine(row.name, index.retriever(num_results=100), model), meter)
            curve = _curve(self._model_folder(row, seed, budget))
            return {**facts, "dev curve": curve}, frames

        if self.rows.run(row.name, seed, settings, work):  # DPR's model is kept: it mines Model Negs
            self._drop(row, seed, budget, model=row != ROWS[0])

    def _scored(self, engine: Engine, meter: CostMeter, forms: Mapping[str, Any] = FORMS) -> Any:
        topics, qrels = self.test
        some = topics.head(_TIMED)
        with meter.measure("inference", items=len(some), unit="questions"):
            engine.system(cs.X)(some)
        study = shortcut_study(
            [engine], topics, qrels, MEASURES, forms=forms, by=None, dependence_by=_labels(topics), seed=1
        )
        values = study.per_query.assign(name=study.per_query["name"].str.removeprefix(f"{engine.name} "))
        return self._facts(study.dependence[engine.name], meter), {
            "per_question": values,
            "questions": self._questions(),
        }

    def _questions(self) -> pd.DataFrame:
        """qid, and for each column of the table whether a question belongs to it."""
        topics = self.test[0]
        return pd.DataFrame({"qid": topics["qid"], **groups(topics)})

    @staticmethod
    def _facts(dependence: Any, meter: CostMeter) -> dict[str, Any]:
        """What goes into row.json besides the settings."""
        summary = [] if dependence is None else json.loads(dependence.summary.to_json(orient="records"))
        return {"dependence": summary, "costs": meter.records()}

    @staticmethod
    def _has_rewrites(topics: pd.DataFrame) -> bool:
        return "qrewrite" in topics and bool(topics["qrewrite"].notna().all())

    # -- training

    def budget_known(self) -> dict[str, Any] | None:
        path = self.out / "budget.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def budget(self) -> dict[str, Any]:
        """Learning rate and steps, the same for all rows: where the in-batch row is best on dev."""
        rates = (self.options.learning_rate,) if self.options.learning_rate else self.setup.rates
        steps = (self.options.steps,) if self.options.steps else self.setup.steps
        tried = [(rate, count) for rate in rates for count in steps or (None,)]
        if len(tried) == 1:
            return {"learning_rate": tried[0][0], "max_steps": tried[0][1]}
        known = self.budget_known()
        if known is None or known["settings"] != json.loads(json.dumps(self.settings)):
            known = {"settings": self.settings, "seed": BUDGET_SEED, "tried": []}
        for rate, count in tried:
            if any((one["learning_rate"], one["max_steps"]) == (rate, count) for one in known["tried"]):
                continue
            say(f"fixing the budget on dev: learning rate {rate}, {count} steps")
            trial = {"learning_rate": rate, "max_steps": count}
            self._trained(ROWS[0], BUDGET_SEED, trial, CostMeter())
            curve = _curve(self._model_folder(ROWS[0], BUDGET_SEED, trial))
            self._drop(ROWS[0], BUDGET_SEED, trial, model=True)
            best = max(point["R@5"] for point in curve if point["step"] and "R@5" in point)
            known["tried"].append({**trial, "dev R@5": best})
            write_json(self.out / "budget.json", known)
        best = max(known["tried"], key=lambda one: one["dev R@5"])
        return {"learning_rate": best["learning_rate"], "max_steps": best["max_steps"]}

    def _model_folder(self, row: Row, seed: int, budget: Mapping[str, Any]) -> Path:
        """What is made otherwise lies elsewhere."""
        return self.out / "models" / f"{slug(row.name)}.seed{seed}.{fingerprint({**self.settings, **budget})}"

    def _work_folder(self, row: Row, seed: int, budget: Mapping[str, Any]) -> Path:
        """Where a row that was stopped finds what it had mined."""
        return self.out / "indexes" / self._model_folder(row, seed, budget).name

    def _drop(self, row: Row, seed: int, budget: Mapping[str, Any], *, model: bool) -> None:
        shutil.rmtree(self._work_folder(row, seed, budget), ignore_errors=True)
        if model and not self.options.keep_models:
            shutil.rmtree(self._model_folder(row, seed, budget), ignore_errors=True)

    def _start(self) -> Any:
        return minilm(self.layers) if self.setup.init == "minilm" else self.setup.init

    def _trained(self, row: Row, seed: int, budget: Mapping[str, Any], meter: CostMeter) -> cs.BiEncoder:
        options = {**self.setup.options, **row.options, **budget}
        options["batch_size"] *= row.batches
        if "model" in (row.negatives or ""):  # the model that mines is no part of the mining
            self._trained(ROWS[0], seed, budget, CostMeter())
        folder = self._work_folder(row, seed, budget)
        with meter.measure("mining", unit="questions") as cost:
            pairs = self._pairs(row, seed, budget, folder)
            cost.items = len(pairs)
        if row.negatives is None:
            meter.costs.pop()  # nothing was mined
        steps = options["max_steps"] or math.ceil(len(pairs) / options["batch_size"]) * options["epochs"]
        with meter.measure("training", items=steps * options["batch_size"], unit="questions"):
            return cs.train(
                pairs, init=self._start(), out=self._model_folder(row, seed, budget), seed=seed, dev=self.dev,
                metric="R@5", eval_every=math.ceil(steps / self.setup.evaluations), **options,
            )  # fmt: skip

    def _pairs(self, row: Row, seed: int, budget: Mapping[str, Any], folder: Path) -> cs.TrainingPairs:
        """The training pairs of a row."""
        form = cs.form(row.parts, **self._form_options())
        miner = None if row.negatives is None else self._miner(row.negatives, seed, budget, folder)
        return cs.training_pairs(
            *self.train, self._texts(), form=form, negatives=miner, num_negatives=int(miner is not None),
            pool=self.setup.pool, seed=seed, out=folder / "pairs",
        )  # fmt: skip

    def _texts(self) -> Any:
        """Where training texts come from: the index where the collection is larger than memory."""
        return self._index.text_loader() if self.options.paper else self.corpus

    def _form_options(self) -> dict[str, Any]:
        tokenizer = _tokenizer(self._start())
        length = self.setup.options["max_query_length"]
        return {"sep": f" {tokenizer.sep_token} ", "max_tokens": length, "tokenizer": tokenizer}

    def _miner(self, name: str, seed: int, budget: Mapping[str, Any], folder: Path) -> Any:
        drop = cs.DropPositives(self.train[1])
        depth = self.setup.pool + 10
        if name == "BM25":
            return cs.form(cs.X) >> self.bm25(depth) >> drop
        if name == "shortcut":
            return cs.form(NO_QUESTION) >> self.bm25(depth) >> drop
        if name == "CQR":
            if not self._has_rewrites(self.train[0]):
                raise SystemExit("w. CQR Negs: the training questions have no qrewrite; leave the row out with --rows")
            cqr = self.setup.cqr
            towers = {"model": minilm()} if cqr is None else {"query_model": cqr[0], "passage_model": cqr[1]}
            lengths = {name: self.setup.options[name] for name in ("max_query_length", "max_passage_length")}
            encoder = cs.BiEncoder(**towers, **lengths)
            return cs.form(cs.REWRITE) >> self._dense(folder / "cqr.flex", encoder, depth) >> drop
        if name == "model":
            model = self._trained(ROWS[0], seed, budget, CostMeter())
            dense = self._dense(folder / "model.flex", model, depth)
            return cs.form(cs.X, **self._form_options()) >> dense >> drop
        return {self._miner(one, seed, budget, folder): 1.0 for one in ("shortcut", "model")}

    def _dense(self, path: Path, encoder: cs.BiEncoder, num_results: int) -> Any:
        index = cs.DenseIndex(path, encoder)
        return (index if path.is_dir() else index.index(self.corpus())).retriever(num_results=num_results)


def groups(topics: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of the table; those that hold no question are left out."""
    turns = topics["turn_number"].to_numpy()
    found = {"All": np.ones(len(topics), dtype=bool), "first": turns == 1}
    for label in ("switch", "no-switch"):
        if "qtype" in topics:
            found[label] = (topics["qtype"].astype(object) == label).to_numpy(dtype=bool)
    found[LATER] = turns > 1
    return {name: mask for name, mask in found.items() if mask.any()}


def _labels(topics: pd.DataFrame) -> dict[str, np.ndarray]:
    return {name: mask for name, mask in groups(topics).items() if name in ("switch", "no-switch")}


def _curve(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _tokenizer(init: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(init) if isinstance(init, str) else init.tokenizer


if __name__ == "__main__":
    main()
