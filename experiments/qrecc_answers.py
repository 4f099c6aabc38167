"""The retrieval shortcut on real QReCC conversations, and which negatives lower it (Kim & Kim, 2022, Tables 1, 2).

    python experiments/qrecc_answers.py --data qrecc-dev2k --out out/qrecc_answers

Answer retrieval: the collection is the conversations' own answers, not the paper's 54M passages. DIR holds
train|dev|test.topics.jsonl, corpus.jsonl and qrels.txt, each plain or compressed; ``--train`` names another folder for
training and dev, so that other conversations of the same layout are a test set. Without a training split, only the rows
that need none are run.

Each row and seed has a folder of its own under OUT/rows: a run that was stopped goes on, a row whose settings changed
is run anew, and the table shows what is there ("not run here" for the rest). The number of training steps is fixed
beforehand on dev, with the in-batch row and a seed that no row uses (OUT/steps.json). All rows are scored on all test
questions with and without the answers that the history holds already; beside them stands an oracle that knows the
conversation and orders its answers at random.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from _common import say, temporary
from _qrecc_parts import LENGTHS, WITH_REWRITE, Data, Rewritten, SeenAnswers, encoder, form_options, groups, minilm
from _qrecc_setup import NO_QUESTION, ROWS, THRICE, UNTRAINED, Row, known, parse, repeated, row_of
from _qrecc_tables import write_tables
from _rows import Rows, fingerprint, slug
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch.evaluation.oracle import ConversationOracle
from pt_convsearch.evaluation.study import Engine, Study, dense_engine, shortcut_study

MEASURES = [R @ 1, R @ 10, RR]
ALL, UNSEEN = "all", "unseen"
FORMS = {"X_t": cs.X, "X_t\\q_t": NO_QUESTION, "q_t": cs.CURRENT}
MORE_FORMS = {**FORMS, "Q_t": cs.QUESTIONS, "a_{t-1}": cs.LAST_ANSWER}
DEV_SEED = 0
BM25 = {"k1": 0.82, "b": 0.68}
#: how many negatives are kept for each question, and how deep a search goes
POOL, DEPTH = 20, 120


def main(argv: list[str] | None = None) -> None:
    options = parse(__doc__, argv)
    warnings.filterwarnings("ignore", message=r".*(hold their own question|is the last message|repeat).*")
    if options.quick:
        options.layers, options.seeds, options.steps = 3, options.seeds.split(",")[0], 8
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    untrained = UNTRAINED if options.layers < 6 else UNTRAINED[:-1]  # nothing has fewer layers than it has
    names = [*untrained, *(row.name for row in ROWS)]
    if options.rows is not None:
        names = [known(name.strip(), names) for name in options.rows.split(";")]
    rows = [row_of(name) for name in names if name not in UNTRAINED]
    data = Data.read(options.data, options.train or options.data, options.quick)
    experiment = Experiment(data, options)
    if not options.table_only:
        experiment.untrained(names)
        if not options.no_dense and "train" in data.topics:
            for seed in seeds:
                for row in rows:
                    experiment.row(row, seed, wanted={other.name for other in rows})
    write_tables(options.out, [*untrained, *(row.name for row in ROWS)], experiment.oracle(), experiment.settings)
    say(f"written to {options.out}")


@contextlib.contextmanager
def timed(timings: dict[str, float], name: str) -> Iterator[None]:
    """Note how long the block takes, in seconds of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    yield
    timings[name] = time.perf_counter() - clock
    timings[f"{name}, CPU"] = time.process_time() - processor


class Experiment:
    """Runs rows, each into its folder."""

    def __init__(self, data: Data, options: Any) -> None:
        self.data, self.options, self.out = data, options, options.out
        self.rows = Rows(options.out / "rows")
        self.topics = data.topics["test"]
        self.groups = groups(self.topics, data.qrels["test"])
        self.settings: dict[str, Any] = {
            "task": "answers as the collection, not the paper's 54M passages",
            "test questions": len(self.topics),
            "answers": len(data.corpus["test"]),
            "data": data.fingerprint,
            "quick": options.quick,
        }
        self._tower = ""
        self._models: list[Path] = []

    # -- the rows

    def untrained(self, names: list[str]) -> None:
        """BM25, and MiniLM as it comes."""
        plain: dict[str, Any] = {"stemmer": None, "stopwords": self._stopwords()}
        analyzers = {"BM25": ({}, 1), f"BM25, {THRICE}": ({}, 3), "BM25, no stop words": (plain, 1)}
        for name, (analyzer, repeat) in analyzers.items():
            if name in names:
                settings = {**self.settings, "engine": "bm25", **BM25, "analyzer": analyzer, **repeated(repeat)}
                work = functools.partial(self._bm25, analyzer=analyzer, repeat=repeat)
                self._run(name, 0, settings, work)
        if self.options.no_dense:
            return
        encoders = {"zero-shot": (6, 1), f"zero-shot, {THRICE}": (6, 3)}
        if self.options.layers < 6:
            encoders["zero-shot, fewer layers"] = (self.options.layers, 1)
        for name, (count, repeat) in encoders.items():
            if name in names:
                settings = {**self.settings, "layers": count, **LENGTHS, **repeated(repeat)}
                if count < 6:
                    settings["init"] = self.init_hash()
                work = functools.partial(self._dense, encoder(minilm(count)), forms=MORE_FORMS, repeat=repeat)
                self._run(name, 0, settings, work)

    def _stopwords(self) -> list[str]:
        if self.options.stopwords:
            return sorted(set(self.options.stopwords.read_text(encoding="utf-8").split()))
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return sorted(ENGLISH_STOP_WORDS)

    def row(self, row: Row, seed: int, wanted: set[str]) -> None:
        """Train and score one row with one seed, unless that was done."""
        training = self.training(self.steps())
        settings = {
            **self.settings,
            **training,
            "seed": seed,
            "row": {**asdict(row), "parts": repr(row.parts)},
            "init": self.init_hash(),
            "miners": {"k1": 0.9, "b": 0.4, "pool": POOL},
        }
        mine_after = row.name == "in-batch" and "model negatives" in wanted

        def run(timings: dict[str, float]) -> Study:
            model = self._trained(row, seed, training, timings)
            if mine_after:
                self._pairs(row_of("model negatives"), seed, {}, model)
            return self._dense(model, timings, repeat=row.repeat)

        self._run(row.name, seed, settings, run)
        while self._models:  # what is scored is not needed any more
            shutil.rmtree(self._models.pop(), ignore_errors=True)

    def training(self, steps: int) -> dict[str, Any]:
        """The options of cs.train that all rows share."""
        return {
            "layers": self.options.layers,
            "max_steps": steps,
            "batch_size": 32,
            "learning_rate": self.options.learning_rate,
            **LENGTHS,
        }

    def steps(self) -> int:
        """The number of steps, the same for all rows: where the in-batch row is best on dev, by MRR on X_t."""
        if self.options.steps:
            return int(self.options.steps)
        path = self.out / "steps.json"
        if not path.is_file():
            if "dev" not in self.data.topics:
                raise SystemExit("there is no dev split to fix the number of steps on: give --steps")
            say("fixing the number of steps on dev")
            pairs = self._pairs(ROWS[0], DEV_SEED, {})
            per_epoch = math.ceil(len(pairs) / 32)
            dev = (self.data.topics["dev"], self.data.qrels["dev"], self.data.corpus["dev"])
            target = self.out / "models" / "dev"
            options = self.training(self.options.epochs * per_epoch)
            cs.train(
                pairs,
                init=minilm(options.pop("layers")),
                out=target,
                seed=DEV_SEED,
                dev=dev,
                form=cs.form(cs.X, **form_options(minilm(1).tokenizer)),
                metric="RR",
                eval_every=math.ceil(per_epoch / 2),
                **options,
            )
            curve = [json.loads(line) for line in (target / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()]
            best = max((point for point in curve if point["step"] and "RR" in point), key=lambda point: point["RR"])
            write_json(
                path,
                {
                    "steps": best["step"],
                    "dev curve": curve,
                    "layers": self.options.layers,
                    "seed": DEV_SEED,
                    "learning rate": self.options.learning_rate,
                },
            )
            shutil.rmtree(target)
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["layers"] != self.options.layers:
            raise SystemExit(f"{path} was fixed with {found['layers']} layers: another --out, or --steps")
        return int(found["steps"])

    def oracle(self) -> dict[str, Any]:
        """The oracle's expectation, by question and by group."""
        qrels = self.data.qrels["test"]
        known = ConversationOracle(self.topics, qrels)
        per_question = {
            name: known.expected(self.topics, qrels, MEASURES, drop_seen=name == UNSEEN) for name in (ALL, UNSEEN)
        }
        return {"per question": per_question, "groups": self.groups, "topics": self.topics}

    # -- training

    def _trained(self, row: Row, seed: int, training: dict[str, Any], timings: dict[str, float]) -> cs.BiEncoder:
        pairs = self._pairs(row, seed, timings)
        made_of = fingerprint([pairs.fingerprint, training, self.init_hash(), row.options])
        target = self.out / "models" / f"{slug(row.name)}.seed{seed}.{made_of[:8]}"
        options = dict(training)
        begun = target.exists() or target.with_name(f"{target.name}.training").exists()
        with timed({} if begun else timings, "training"):  # what a killed run left is no measure of the whole
            model = cs.train(pairs, init=minilm(options.pop("layers")), out=target, seed=seed, **options, **row.options)
        self._models.append(target)
        if not begun:
            pairs_seen = training["max_steps"] * training["batch_size"]
            timings["pairs per CPU second"] = pairs_seen / timings["training, CPU"]
        return model

    def _pairs(self, row: Row, seed: int, timings: dict[str, float], model: cs.BiEncoder | None = None) -> Any:
        """The training pairs of a row; mined once, then opened."""
        topics, qrels, corpus = (part["train"] for part in (self.data.topics, self.data.qrels, self.data.corpus))
        known = self.out / "pairs" / f"{slug(row.name)}.seed{seed}"
        asked = fingerprint([self.settings, repr(row), seed, POOL])
        if row.negatives == "model":  # these depend on the in-batch model
            asked = fingerprint([asked, self.init_hash(), self.training(self.steps())])
        note = known.with_name(f"{known.name}.json")
        if note.is_file() and known.is_dir():
            before = json.loads(note.read_text(encoding="utf-8"))
            if before["asked"] == asked:
                timings.update(before["timings"])
                return cs.TrainingPairs(known)
        if row.negatives == "model" and model is None:
            model = self._trained(ROWS[0], seed, self.training(self.steps()), {})
        with timed(timings, "mining"), temporary() as folder:
            miner = None if row.negatives is None else self._miner(row.negatives, Path(folder), seed, model)
            pairs = cs.training_pairs(
                topics,
                qrels,
                corpus,
                form=cs.form(row.parts, **form_options(minilm(1).tokenizer, row.repeat, row.parts)),
                negatives=miner,
                num_negatives=int(miner is not None),
                pool=POOL,
                seed=seed,
                out=known,
                overwrite=known.is_dir(),
            )
        cost = {name: value for name, value in timings.items() if name.startswith("mining")}
        write_json(note, {"asked": asked, "timings": cost})
        return pairs

    def _miner(self, name: str, folder: Path, seed: int, model: cs.BiEncoder | None) -> Any:
        corpus, qrels = self.data.corpus["train"], self.data.qrels["train"]
        drop = cs.DropPositives(qrels)
        if name == "seen":
            return SeenAnswers() >> drop
        if name == "random":
            return cs.RandomNegatives(corpus, num_results=POOL, seed=seed) >> drop
        if name in ("model", "CQR"):
            model = model or encoder(minilm(6))
            index = cs.DenseIndex(folder / "answers.flex", model).index(corpus)
            dense = index.retriever(num_results=100)
            if name == "model":
                return cs.form(cs.X, **form_options(model.tokenizer)) >> dense >> drop
            return Rewritten(cs.form(cs.REWRITE) >> dense) >> drop
        bm25 = cs.BM25Index(folder / "answers.bm25").index(corpus).bm25(num_results=100)
        miners = {"BM25": cs.form(cs.X) >> bm25 >> drop, "shortcut": cs.form(NO_QUESTION) >> bm25 >> drop}
        if name == "seen 1 : shortcut 3":
            return {SeenAnswers() >> drop: 1.0, miners["shortcut"]: 3.0}
        return miners[name]

    def init_hash(self) -> str:
        from pt_convsearch.dense.weights import tower_hash

        self._tower = self._tower or tower_hash(minilm(self.options.layers))
        return self._tower

    # -- scoring

    def _bm25(self, timings: dict[str, float], *, analyzer: dict[str, Any], repeat: int) -> Study:
        with temporary() as folder:
            with timed(timings, "indexing"):
                index = cs.BM25Index(Path(folder) / "answers.bm25", **analyzer).index(self.data.corpus["test"])
            options = {"repeat": {cs.CURRENT: repeat}} if repeat > 1 else {}
            return self._study(Engine(ALL, index.bm25(num_results=DEPTH, **BM25), options), MORE_FORMS)

    def _dense(
        self, model: cs.BiEncoder, timings: dict[str, float], *, forms: dict[str, Any] = FORMS, repeat: int = 1
    ) -> Study:
        with temporary() as folder:
            with timed(timings, "indexing"):
                index = cs.DenseIndex(Path(folder) / "answers.flex", model).index(self.data.corpus["test"])
            engine = dense_engine(ALL, index.retriever(num_results=DEPTH), model)
            if repeat > 1:
                engine.form_options["repeat"] = {cs.CURRENT: repeat}
            return self._study(engine, forms)

    def _study(self, engine: Engine, forms: dict[str, Any]) -> Study:
        """Every form of every question, all answers and unseen ones; and the rewrites of those that have one."""
        unseen = Engine(UNSEEN, engine.retriever, engine.form_options, cs.DropSeen())
        qrels = self.data.qrels["test"]
        study = shortcut_study(
            [engine, unseen],
            self.topics,
            qrels,
            MEASURES,
            forms=forms,
            by=self.groups,
            dependence_by=self.groups,
            seed=1,
            on_step=say,
        )
        rewritten = (
            self.topics["qrewrite"].notna() if "qrewrite" in self.topics else pd.Series(False, index=self.topics.index)
        )
        if rewritten.any():
            systems = {f"{one.name} rewrite": one.system(cs.REWRITE) for one in (engine, unseen)}
            asked = self.topics[rewritten]
            later = {name: mask[rewritten.to_numpy()] for name, mask in self.groups.items() if name == WITH_REWRITE}
            found = cs.Experiment(systems, asked, qrels, MEASURES, by=later or None)
            study.table = pd.concat([study.table, found.drop(columns="All", level=0)])
        return study

    # -- one folder a row

    def _run(self, name: str, seed: int, settings: dict[str, Any], run: Callable[[dict[str, float]], Study]) -> None:
        def work() -> Any:
            timings: dict[str, float] = {}
            study = run(timings)
            values = study.results().values.tolist()
            dependence = (study.dependence[one].summary.assign(answers=one) for one in (UNSEEN, ALL))
            facts = {
                "timings": timings,
                "values": [[None if value != value else value for value in record] for record in values],
                "dependence": json.loads(pd.concat(dependence).to_json(orient="records")),
            }
            say(f"{name}, seed {seed}: " + ", ".join(f"{key} {value:.1f}" for key, value in timings.items()))
            return facts, {"per_question": study.per_query}

        self.rows.run(name, seed, settings, work)


if __name__ == "__main__":
    main()
