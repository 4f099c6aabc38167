"""The retrieval shortcut on real QReCC conversations, and which negatives lower it (Kim & Kim, 2022, Tables 1 and 2).

    python experiments/qrecc_answers.py --data qrecc-dev2k --out out/qrecc_answers

Answer retrieval: the collection is the conversations' own answers, not the paper's 54M passages. DIR holds
train|dev|test.topics.jsonl, corpus.jsonl and qrels.txt, each plain or compressed; ``--train`` names another folder for
training and dev, so that other conversations of the same layout are a test set.

Each row and seed has a folder of its own under OUT/rows: a run that was stopped goes on, a row whose settings changed is
run anew, and the table shows what is there ("not run here" for the rest). The number of training steps is fixed
beforehand on dev, with the in-batch row and a seed that no row uses (OUT/steps.json). All rows are scored on all test
questions with and without the answers that the history holds already; beside them stands an oracle that knows the
conversation and orders its answers at random.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from _common import arguments, say, temporary
from _qrecc_tables import write_tables
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch._files import sha256, write_json, written
from pt_convsearch._results import results_frame
from pt_convsearch._stage import Stage
from pt_convsearch.evaluation.oracle import ConversationOracle
from pt_convsearch.evaluation.study import Engine, Study, dense_engine, shortcut_study

MEASURES = [R @ 1, R @ 10, RR]
ALL, UNSEEN = "all", "unseen"
NO_QUESTION = cs.X - cs.CURRENT
FORMS = {"X_t": cs.X, "X_t\\q_t": NO_QUESTION, "q_t": cs.CURRENT}
MORE_FORMS = {**FORMS, "Q_t": cs.QUESTIONS, "a_{t-1}": cs.LAST_ANSWER}
DEV_SEED = 0
BM25 = {"k1": 0.82, "b": 0.68}


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
    Row("question three times", repeat=3),
]
UNTRAINED = ["BM25", "zero-shot", "zero-shot, fewer layers"]


class SeenAnswers(Stage):
    """Q -> R: the answers that the history holds already, the newest first.

    Input: qid, query, qhistory whose messages carry ``docno``. Output: docno, score (falling), rank.
    """

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, ["qhistory"], context=self)
        shown = [
            list(dict.fromkeys(message["docno"] for message in reversed(history) if message.get("docno")))
            for history in inp["qhistory"]
        ]
        counts = [len(docnos) for docnos in shown]
        scores = np.array([float(-at) for count in counts for at in range(count)])
        return results_frame(inp, counts, [docno for docnos in shown for docno in docnos], scores)


class Rewritten(Stage):
    """Q -> R: a miner for the questions that have a rewrite; the others get nothing."""

    def __init__(self, miner: pt.Transformer) -> None:
        self.miner = miner

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return self.miner(inp[inp["qrewrite"].notna()])


@dataclass
class Data:
    """What the rows share."""

    topics: dict[str, pd.DataFrame]
    qrels: dict[str, pd.DataFrame]
    corpus: dict[str, list[dict[str, Any]]]
    fingerprint: dict[str, str]

    @classmethod
    def read(cls, test: Path, train: Path, quick: bool) -> Data:
        found = cls({}, {}, {}, {})
        for split, folder in (("test", test), ("dev", train), ("train", train)):
            data = cs.dataset(f"folder:{folder}", split=split)
            try:
                topics = data.get_topics()
            except FileNotFoundError:
                if split == "test":
                    raise
                say(f"{folder} has no {split} split: the trained rows are left out")
                continue
            if quick:
                topics = topics.head({"test": 150, "dev": 100, "train": 400}[split])
            found.topics[split] = topics
            found.qrels[split] = data.get_qrels()
            found.corpus[split] = list(data.get_corpus_iter())
            for key in ("topics", "corpus", "qrels"):
                found.fingerprint[f"{split} {key}"] = sha256(data.file(key))
        return found


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder qrecc-dev2k", quick="most: 150 test questions, 8 steps of training, three layers, one seed")
    parser.add_argument("--train", type=Path, metavar="DIR", help="where train and dev lie, if not in --data")
    parser.add_argument("--rows", help="trained rows to run, by name, separated by semicolons (default all; 'none')")
    parser.add_argument("--seeds", default="1,2,3", help="seeds of the training (default 1,2,3)")
    parser.add_argument("--layers", type=int, default=6, choices=range(1, 7), help="of MiniLM, the lowest ones (default 6)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the questions on dev, at most (default 3)")
    parser.add_argument("--steps", type=int, help="training steps; by default as found on dev")
    parser.add_argument("--learning-rate", type=float, default=3e-5, metavar="RATE", help="its peak (default 3e-5)")
    parser.add_argument("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    parser.add_argument("--table-only", action="store_true", help="run nothing, write the tables of what is there")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message=r".*(hold their own question|is the last message|repeat).*")
    if options.quick:
        options.layers, options.seeds, options.steps = 3, options.seeds.split(",")[0], 8
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    names = [row.name for row in ROWS] if options.rows is None else [name.strip() for name in options.rows.split(";")]
    rows = [] if names == ["none"] else [_row(name) for name in names]
    data = Data.read(options.data, options.train or options.data, options.quick)
    experiment = Experiment(data, options)
    if not options.table_only:
        experiment.untrained()
        if not options.no_dense and "train" in data.topics:
            for seed in seeds:
                for row in rows:
                    experiment.row(row, seed, wanted={other.name for other in rows})
    write_tables(options.out, [*UNTRAINED, *(row.name for row in ROWS)], experiment.oracle(), experiment.settings)
    say(f"written to {options.out}")


def _row(name: str) -> Row:
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(f"--rows: no row {name!r}; there are {'; '.join(row.name for row in ROWS)}")


class Experiment:
    """Runs rows, each into its folder."""

    def __init__(self, data: Data, options: Any) -> None:
        self.data, self.options, self.out = data, options, options.out
        self.topics = data.topics["test"]
        self.groups = groups(self.topics, data.qrels["test"])
        self.settings: dict[str, Any] = {
            "task": "answers as the collection, not the paper's 54M passages",
            "test questions": len(self.topics), "answers": len(data.corpus["test"]),
            "data": data.fingerprint, "quick": options.quick,
        }  # fmt: skip
        self._tower = ""

    # -- the rows

    def untrained(self) -> None:
        """BM25, and MiniLM as it comes."""
        settings = {**self.settings, "engine": "bm25", **BM25, "stemmer": None, "stopwords": None}
        self._run("BM25", 0, settings, lambda timings: self._bm25(timings))
        if self.options.no_dense:
            return
        layers = {"zero-shot": 6, **({"zero-shot, fewer layers": self.options.layers} if self.options.layers < 6 else {})}
        for name, count in layers.items():
            settings = {**self.settings, "layers": count, **LENGTHS}
            self._run(name, 0, settings, lambda timings, count=count: self._dense(encoder(minilm(count)), timings, forms=MORE_FORMS))

    def row(self, row: Row, seed: int, wanted: set[str]) -> None:
        """Train and score one row with one seed, unless that was done."""
        training = self.training(self.steps())
        settings = {
            **self.settings, **training, "seed": seed, "row": {**asdict(row), "parts": repr(row.parts)},
            "init": self.init_hash(), "miners": {"k1": 0.9, "b": 0.4, "pool": POOL},
        }  # fmt: skip
        mine_after = row.name == "in-batch" and "model negatives" in wanted

        def run(timings: dict[str, float]) -> Study:
            model = self._trained(row, seed, training, timings)
            if mine_after:
                self._pairs(_row("model negatives"), seed, {}, model)
            return self._dense(model, timings, repeat=row.repeat)

        self._run(row.name, seed, settings, run)
        shutil.rmtree(self.out / "models", ignore_errors=True)

    def training(self, steps: int) -> dict[str, Any]:
        """The options of cs.train that all rows share."""
        return {
            "layers": self.options.layers, "max_steps": steps, "batch_size": 32, "learning_rate": self.options.learning_rate, **LENGTHS,
        }  # fmt: skip

    def steps(self) -> int:
        """The number of steps, the same for all rows: where the in-batch row is best on dev, by MRR on X_t."""
        if self.options.steps:
            return int(self.options.steps)
        path = self.out / "steps.json"
        if not path.is_file():
            say("fixing the number of steps on dev")
            pairs = self._pairs(ROWS[0], DEV_SEED, {})
            per_epoch = math.ceil(len(pairs) / 32)
            dev = (self.data.topics["dev"], self.data.qrels["dev"], self.data.corpus["dev"])
            target = self.out / "models" / "dev"
            options = self.training(self.options.epochs * per_epoch)
            cs.train(
                pairs, init=minilm(options.pop("layers")), out=target, seed=DEV_SEED, dev=dev, metric="RR",
                eval_every=math.ceil(per_epoch / 2), **options,
            )  # fmt: skip
            curve = [json.loads(line) for line in (target / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()]
            best = max((point for point in curve if point.get("step")), key=lambda point: point["RR"])
            write_json(
                path,
                {"steps": best["step"], "dev curve": curve, "layers": self.options.layers, "seed": DEV_SEED,
                 "learning rate": self.options.learning_rate},
            )  # fmt: skip
            shutil.rmtree(self.out / "models", ignore_errors=True)
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
        target = self.out / "models" / f"{_slug(row.name)}.seed{seed}"
        pairs = self._pairs(row, seed, timings)
        options = dict(training)
        start = time.perf_counter()
        model = cs.train(pairs, init=minilm(options.pop("layers")), out=target, seed=seed, **options, **row.options)
        timings["training"] = time.perf_counter() - start
        timings["pairs per second"] = training["max_steps"] * training["batch_size"] / timings["training"]
        return model

    def _pairs(self, row: Row, seed: int, timings: dict[str, float], model: cs.BiEncoder | None = None) -> Any:
        """The training pairs of a row; mined once, then opened."""
        topics, qrels, corpus = (part["train"] for part in (self.data.topics, self.data.qrels, self.data.corpus))
        known = self.out / "pairs" / f"{_slug(row.name)}.seed{seed}"
        if row.negatives == "model":  # these depend on the in-batch model
            known = known.with_name(f"{known.name}.{self.init_hash()[:8]}.{self.steps()}")
        if row.negatives == "model" and known.is_dir():
            return cs.TrainingPairs(known)
        start = time.perf_counter()
        if row.negatives == "model" and model is None:
            model = self._trained(ROWS[0], seed, self.training(self.steps()), {})
        with temporary() as folder:
            miner = None if row.negatives is None else self._miner(row.negatives, Path(folder), seed, model)
            pairs = cs.training_pairs(
                topics, qrels, corpus, form=cs.form(row.parts, **_form_options(minilm(1).tokenizer, row.repeat, row.parts)),
                negatives=miner, num_negatives=int(miner is not None), pool=POOL, seed=seed, out=known, overwrite=known.is_dir(),
            )  # fmt: skip
        timings["mining"] = time.perf_counter() - start
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
                return cs.form(cs.X, **_form_options(model.tokenizer)) >> dense >> drop
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

    def _bm25(self, timings: dict[str, float]) -> Study:
        with temporary() as folder:
            start = time.perf_counter()
            index = cs.BM25Index(Path(folder) / "answers.bm25", stemmer=None, stopwords=None).index(self.data.corpus["test"])
            timings["indexing"] = time.perf_counter() - start
            return self._study(Engine(ALL, index.bm25(num_results=DEPTH, **BM25)), MORE_FORMS)

    def _dense(
        self, model: cs.BiEncoder, timings: dict[str, float], *, forms: dict[str, Any] = FORMS, repeat: int = 1
    ) -> Study:
        with temporary() as folder:
            start = time.perf_counter()
            index = cs.DenseIndex(Path(folder) / "answers.flex", model).index(self.data.corpus["test"])
            timings["indexing"] = time.perf_counter() - start
            engine = dense_engine(ALL, index.retriever(num_results=DEPTH), model)
            if repeat > 1:
                engine.form_options["repeat"] = {cs.CURRENT: repeat}
            return self._study(engine, forms)

    def _study(self, engine: Engine, forms: dict[str, Any]) -> Study:
        """Every form of every question, all answers and unseen ones; and the rewrites of those that have one."""
        unseen = Engine(UNSEEN, engine.retriever, engine.form_options, cs.DropSeen())
        qrels = self.data.qrels["test"]
        study = shortcut_study(
            [engine, unseen], self.topics, qrels, MEASURES, forms=forms, by=self.groups, dependence_by=self.groups,
            seed=1, on_step=say,
        )  # fmt: skip
        rewritten = self.topics["qrewrite"].notna() if "qrewrite" in self.topics else pd.Series(False, index=self.topics.index)
        if rewritten.any():
            systems = {f"{one.name} rewrite": one.system(cs.REWRITE) for one in (engine, unseen)}
            asked = self.topics[rewritten]
            later = {name: mask[rewritten.to_numpy()] for name, mask in self.groups.items() if name == WITH_REWRITE}
            found = cs.Experiment(systems, asked, qrels, MEASURES, by=later or None)
            study.table = pd.concat([study.table, found.drop(columns="All", level=0)])
        return study

    # -- one folder a row

    def _run(self, name: str, seed: int, settings: dict[str, Any], run: Callable[[dict[str, float]], Study]) -> None:
        folder = self.out / "rows" / f"{_slug(name)}.seed{seed}"
        fingerprint = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode("utf-8")).hexdigest()[:16]
        done = folder / "row.json"
        if done.is_file():
            if json.loads(done.read_text(encoding="utf-8"))["fingerprint"] == fingerprint:
                return say(f"{name}, seed {seed}: done before")
            say(f"{name}, seed {seed}: was run with other settings, is run anew")
        say(f"{name}, seed {seed}")
        timings: dict[str, float] = {}
        study = run(timings)
        results = study.results()
        dependence = study.dependence[UNSEEN].summary.assign(answers=UNSEEN), study.dependence[ALL].summary.assign(answers=ALL)
        with written(folder) as temporary_folder:
            temporary_folder.mkdir(parents=True)
            study.per_query.to_parquet(temporary_folder / "per_question.parquet", index=False)
            write_json(
                temporary_folder / "row.json",
                {"row": name, "seed": seed, "fingerprint": fingerprint, "settings": settings, "timings": timings,
                 "values": [[None if value != value else value for value in record] for record in results.values.tolist()],
                 "dependence": json.loads(pd.concat(dependence).to_json(orient="records"))},
            )  # fmt: skip
        say(f"{name}, seed {seed}: " + ", ".join(f"{key} {value:.1f}" for key, value in timings.items()))


POOL = 20
DEPTH = 120
LENGTHS = {"max_query_length": 112, "max_passage_length": 56}
WITH_REWRITE = "t > 1, with a rewrite"


def groups(topics: pd.DataFrame, qrels: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of the table; those that hold no question are left out."""
    turn = topics["turn_number"].to_numpy()
    later = turn > 1
    seen = [{message.get("docno") for message in history} - {None} for history in topics["qhistory"]]
    golds = qrels.groupby("qid")["docno"].agg(set)
    new = np.array([not (golds.get(qid, set()) & shown) for qid, shown in zip(topics["qid"], seen, strict=True)])
    found = {"first": ~later, "t > 1": later}
    label = topics["qtype"].astype(object) if "qtype" in topics else pd.Series(None, index=topics.index, dtype=object)
    for value in ("switch", "no-switch"):
        found[value] = (label == value).to_numpy(dtype=bool) & later
    found |= {"t = 2": turn == 2, "t = 3-4": (turn >= 3) & (turn <= 4), "t = 5+": turn >= 5}
    if "qsource" in topics:
        for source in topics["qsource"].dropna().unique():
            found[f"{source}, t > 1"] = (topics["qsource"] == source).to_numpy(dtype=bool) & later
    found["t > 1, answer not said before"] = later & new
    found["t > 1, three or more left"] = later & (_left(topics, golds, seen) >= 3)
    if "qrewrite" in topics:
        found[WITH_REWRITE] = later & topics["qrewrite"].notna().to_numpy()
    judged = topics["qid"].isin(golds.index).to_numpy()
    return {name: mask for name, mask in found.items() if (mask & judged).any()}


def _left(topics: pd.DataFrame, golds: pd.Series, seen: list[set[str]]) -> np.ndarray:
    """How many answers of its conversation a question's history does not hold."""
    answers: dict[str, set[str]] = {}
    for conversation, qid, shown in zip(topics["conversation_id"], topics["qid"], seen, strict=True):
        answers.setdefault(conversation, set()).update(golds.get(qid, set()), shown)
    return np.array([len(answers[c] - shown) for c, shown in zip(topics["conversation_id"], seen, strict=True)])


def minilm(layers: int) -> Any:
    """all-MiniLM-L6-v2 with its lowest layers only."""
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import minilm_path

    model = SentenceTransformer(str(minilm_path()))
    inner: Any = model[0]
    inner.model.encoder.layer = inner.model.encoder.layer[:layers]
    inner.model.config.num_hidden_layers = layers
    return model


def encoder(model: Any) -> cs.BiEncoder:
    return cs.BiEncoder(model, **LENGTHS)


def _form_options(tokenizer: Any, repeat: int = 1, parts: Any = cs.X) -> dict[str, Any]:
    options = {"sep": f" {tokenizer.sep_token} ", "max_tokens": LENGTHS["max_query_length"], "tokenizer": tokenizer}
    return {**options, "repeat": {cs.CURRENT: repeat}} if repeat > 1 and cs.CURRENT & parts else options


def _slug(name: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")


if __name__ == "__main__":
    main()
