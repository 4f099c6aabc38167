"""Query rewriting on real rewrites: what it finds, how near it comes to the gold rewrite, and how much it needs the
question.

    python experiments/rewriting.py --data qrecc-dev2k --out out/rewriting
    python experiments/rewriting.py --data testbed --out out/rewriting-testbed

DIR is a folder as ``cs.dataset("folder:DIR")`` reads it, with train, dev and test; for qrecc-dev2k the collection is
the
conversations' own answers, not the paper's 54M passages. Rewriters are trained on the gold rewrites of the training
split;
all rows are scored on the same test questions, those with a gold rewrite, a history and a judgment.

Rows: q_t, X_t, the gold rewrite, HQE (thresholds chosen on dev: the published ones belong to 38M passages), QuReTeC, a
sequence-to-sequence rewriter, the same with five rewrites fused, and CONQRR (the same trained further by what it
finds); with --llm
a language model behind an endpoint. The rewriter is an encoder-decoder warm-started from all-MiniLM-L6-v2: first it
learns to repeat
the question of each training turn (which needs no gold rewrite), then to rewrite. ``--init t5-base`` is the papers'
choice,
not run here.

Each row has a file of its own under OUT/rows: a run that was stopped goes on, a row whose settings changed is run anew.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from _common import arguments, say, temporary
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch.evaluation.report import long_table, write_results
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.rewriting import term_overlap

MEASURES = [R @ 1, R @ 10, RR]
NO_QUESTION = cs.X - cs.CURRENT
GRID = [
    (topic, share, ambiguous)
    for topic in (2.5, 3.5, 4.5, 5.5)
    for share in (0.6, 0.8)
    for ambiguous in (0.0, 10.0, 15.0)
]


@dataclass
class Data:
    """Topics and judgments of the three splits, and the collection."""

    train: pd.DataFrame
    dev: pd.DataFrame
    test: pd.DataFrame
    qrels: dict[str, pd.DataFrame]
    corpus: Callable[[], Any]

    @classmethod
    def read(cls, name: str, quick: bool) -> Data:
        if name == "testbed":
            sizes = {"train": 150, "dev": 40, "test": 80} if quick else {"train": 800, "dev": 120, "test": 400}
            splits = {
                split: cs.dataset("testbed", split=split, conversations=size, train_switch_rate=0.15)
                for split, size in sizes.items()
            }
        else:
            splits = {split: cs.dataset(f"folder:{name}", split=split) for split in ("train", "dev", "test")}
        topics = {split: data.get_topics() for split, data in splits.items()}
        qrels = {split: data.get_qrels() for split, data in splits.items()}
        for split in ("dev", "test"):
            topics[split] = _scored(topics[split], qrels[split])
        if quick:
            topics = {
                "train": topics["train"].head(1500),
                "dev": topics["dev"].head(80),
                "test": topics["test"].head(150),
            }
        return cls(**topics, qrels=qrels, corpus=splits["test"].get_corpus_iter)


def _scored(topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """The questions that all rows can be scored on."""
    kept = topics["qrewrite"].map(lambda text: isinstance(text, str) and bool(text.strip()))
    kept &= topics["qhistory"].map(len) > 0
    return topics[kept & topics["qid"].isin(qrels["qid"])].reset_index(drop=True)


class Experiment:
    """Makes the rows one after the other, each into a file of its own."""

    def __init__(self, data: Data, index: cs.BM25Index, options: Any) -> None:
        self.data, self.index, self.options, self.out = data, index, options, options.out
        self.bm25 = index.bm25(num_results=110, k1=options.k1, b=options.b)
        self.settings = {
            "data": str(options.data.name), "train": digest(data.train[["qid", "query", "qrewrite"]]),
            "test": digest(data.test[["qid", "query", "qrewrite"]]), "collection": index.fingerprint, "k1": options.k1,
            "b": options.b,
            "seed": options.seed, "layers": options.layers, "init": options.init, "epochs": options.epochs,
            "copy_epochs": options.copy_epochs,
            "reward_steps": options.reward_steps,
        }  # fmt: skip

    # -- the rows

    def rows(self) -> dict[str, Callable[[], tuple[pt.Transformer, pt.Transformer | None, str]]]:
        """By name, what makes a row: the stage that writes the query, what searches instead of plain BM25 (None), and
        what was trained on what."""
        found: dict[str, Callable[[], tuple[pt.Transformer, pt.Transformer | None, str]]] = {
            "q_t": lambda: (cs.form(cs.CURRENT), None, "nothing"),
            "X_t": lambda: (cs.form(cs.X), None, "nothing"),
            "gold rewrite": lambda: (cs.form(cs.REWRITE), None, "written by people"),
            "HQE": self.hqe,
            "QuReTeC": self.quretec,
            "seq2seq": lambda: (self.rewriter(), None, self.rewriter_note()),
            "seq2seq, 5 fused": self.fused,
            "CONQRR": self.conqrr,
        }
        if self.options.llm:
            url, model = self.options.llm
            found["LLM"] = lambda: (
                cs.LLMRewriter(url, model, cache=self.out / "llm.jsonl"),
                None,
                f"{model}, not trained",
            )
        return found

    def hqe(self) -> tuple[pt.Transformer, None, str]:
        def stage(topic: float, share: float, ambiguous: float) -> cs.HQE:
            return cs.HQE(
                self.index,
                topic=topic,
                subtopic=share * topic,
                ambiguous=ambiguous,
                k1=self.options.k1,
                b=self.options.b,
            )

        def dev(setting: tuple[float, float, float]) -> float:
            table = cs.Experiment({"HQE": stage(*setting) >> self.bm25}, self.data.dev, self.data.qrels["dev"], [RR])
            return float(table["All"].loc["HQE", "RR"])

        topic, share, ambiguous = max(GRID, key=dev)
        return (
            stage(topic, share, ambiguous),
            None,
            f"thresholds on dev: topic {topic}, subtopic {share * topic:.2g}, ambiguous {ambiguous:g}",
        )

    def quretec(self) -> tuple[pt.Transformer, None, str]:
        stage = cs.train_quretec(
            self.data.train, init=self.encoder(), out=self.out / "models" / "quretec", dev=self.data.dev,
            epochs=self.options.epochs,
            learning_rate=1e-4, max_length=200, seed=self.options.seed, trainer_options=SORTED,
        )  # fmt: skip
        return (
            stage,
            None,
            f"MiniLM, {self.options.layers} layers, {self._golds()} gold rewrites, {self.options.epochs} epochs",
        )

    def rewriter(self, **options: Any) -> cs.Rewriter:
        shared: dict[str, Any] = {"seed": self.options.seed, "batch_size": 16, "max_input_length": 128,
                                  "max_target_length": 32,
                                  "trainer_options": SORTED}  # fmt: skip
        init: Any = self.options.init or self.encoder()
        models = self.out / "models"
        if self.options.init is None and self.options.copy_epochs:
            said = self.data.train.assign(qrewrite=self.data.train["query"])
            cs.train_rewriter(
                said, init=init, out=models / "copying", learning_rate=3e-4, epochs=self.options.copy_epochs, **shared
            )
            init = str(models / "copying")
        cs.train_rewriter(
            self.data.train,
            init=init,
            out=models / "seq2seq",
            dev=self.data.dev,
            learning_rate=2e-4,
            epochs=self.options.epochs,
            **shared,
        )
        return self._opened("seq2seq", **options)

    def _opened(self, model: str, **options: Any) -> cs.Rewriter:
        given: dict[str, Any] = {"num_beams": 4, "max_new_tokens": 32, "cache": self.out / "rewrites.jsonl", **options}
        return cs.Rewriter(str(self.out / "models" / model), **given)

    def rewriter_note(self) -> str:
        start = (
            self.options.init
            or f"MiniLM, {self.options.layers} + {self.options.layers} layers, {self.options.copy_epochs} epochs of "
            f"repeating {len(self.data.train)} questions"
        )
        return f"{start}, then {self._golds()} gold rewrites, {self.options.epochs} epochs"

    def fused(self) -> tuple[pt.Transformer, pt.Transformer, str]:
        stage = self.rewriter(num_rewrites=5, num_beams=5)
        return (
            stage,
            cs.rrf(*(cs.NthRewrite(n) >> self.bm25 for n in range(5)), num_results=110),
            "the same; five of a beam, fused by RRF",
        )

    def conqrr(self) -> tuple[pt.Transformer, None, str]:
        start, steps = self.rewriter(), self.options.reward_steps
        judged = self.data.train[self.data.train["qid"].isin(self.data.qrels["train"]["qid"])]
        cs.train_conqrr(
            start, judged, self.data.qrels["train"], self.bm25 % 100, reward=RR, out=self.out / "models" / "conqrr",
            dev=(self.data.dev, self.data.qrels["dev"]), max_steps=steps, batch_size=16, eval_every=max(1, steps // 4),
            learning_rate=5e-5,
            max_new_tokens=32, seed=self.options.seed,
        )  # fmt: skip
        return self._opened("conqrr"), None, f"the same, {steps} steps of 16 questions by reward (RR of BM25)"

    def encoder(self) -> str:
        """all-MiniLM-L6-v2 with its lowest layers only, in a folder."""
        from transformers import AutoModel, AutoTokenizer

        from pt_convsearch.dense import minilm_path

        folder = self.out / "models" / f"minilm-{self.options.layers}"
        if not (folder / "tokenizer.json").exists():
            model = AutoModel.from_pretrained(str(minilm_path()))
            model.encoder.layer = model.encoder.layer[: self.options.layers]
            model.config.num_hidden_layers = self.options.layers
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(str(minilm_path())).save_pretrained(folder)
        return str(folder)

    def _golds(self) -> int:
        kept = self.data.train["qrewrite"].map(lambda text: isinstance(text, str)) & (
            self.data.train["qhistory"].map(len) > 0
        )
        return int(kept.sum())

    # -- scoring

    def run(self, name: str, make: Callable[[], tuple[pt.Transformer, pt.Transformer | None, str]]) -> None:
        """Make a row and score it, unless that was done."""
        path = self.out / "rows" / f"{''.join(letter if letter.isalnum() else '-' for letter in name)}.json"
        if path.exists() and json.loads(path.read_text(encoding="utf-8"))["settings"] == self.settings:
            say(f"{name}: done already")
            return
        say(name)
        start = time.perf_counter()
        stage, search, note = make()
        trained = time.perf_counter() - start
        test, qrels = self.data.test, self.data.qrels["test"]
        written = stage(test)
        pipeline = stage >> (search or self.bm25)
        rows = []
        for ranking, system in (("all", pipeline % 100), ("unseen", pipeline >> cs.DropSeen())):
            table = cs.Experiment({name: system}, test, qrels, MEASURES, by=_groups(test))
            rows.append(long_table(table).assign(ranking=ranking))
        overlap = term_overlap(written["query"], test["qrewrite"])
        rows.append(_rows(name, {f"{measure} of terms": overlap[measure].mean() for measure in overlap}, len(test)))
        dependence = cs.shortcut_dependence(
            pipeline % 100,
            cs.form(NO_QUESTION) >> self.bm25 % 100,
            test,
            qrels,
            control="swapped",
            seed=self.options.seed,
        )
        rows.append(dependence.long().assign(system=name, ranking="dependence"))
        samples = [{"qid": row.qid, "q_t": row.qutterance, "rewrite": row.query, "gold": row.qrewrite}
                   for row in written.head(20).itertuples()]  # fmt: skip
        write_json(path, {
            "settings": self.settings, "note": note,
            "seconds": {"made": trained, "scored": time.perf_counter() - start - trained},
            "counts": getattr(stage, "counts", {}), "rows": pd.concat(rows).to_dict("records"), "samples": samples,
        })  # fmt: skip

    def write(self, names: list[str]) -> None:
        """The table of the rows that are there."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted((self.out / "rows").glob("*.json")):
            row = json.loads(path.read_text(encoding="utf-8"))
            if row["settings"] == self.settings:
                found[row["rows"][0]["system"]] = row
        order = [name for name in names if name in found]
        results = pd.concat([pd.DataFrame(found[name]["rows"]) for name in order], ignore_index=True)
        notes = {name: found[name]["note"] for name in order}
        write_results(
            self.out, results, settings={**self.settings, "test questions": len(self.data.test), "trained on": notes},
            timings={name: sum(found[name]["seconds"].values()) for name in order},
            more={"samples": {name: found[name]["samples"] for name in order}},
        )  # fmt: skip
        table = _table(results, order, notes)
        text = cs.render(table, "markdown")
        (self.out / "table.md").write_text(text + "\n", encoding="utf-8")
        print(cs.render(table.drop(columns="trained on"), "text"))


#: batches of inputs of like length
SORTED = {"train_sampling_strategy": "group_by_length"}


def _groups(topics: pd.DataFrame) -> dict[str, np.ndarray]:
    turn = topics["turn_number"].to_numpy()
    return {"t = 2": turn == 2, "t = 3-4": (turn >= 3) & (turn <= 4), "t = 5+": turn >= 5}


def _rows(name: str, values: dict[str, float], n: int) -> pd.DataFrame:
    return pd.DataFrame(
        [(name, "All", measure, value, n, "rewrite") for measure, value in values.items()],
        columns=["system", "group", "measure", "value", "n", "ranking"],
    )


def _table(results: pd.DataFrame, order: list[str], notes: dict[str, str]) -> pd.DataFrame:
    """One row a system: retrieval with and without seen answers, overlap with the gold rewrite, dependence."""
    every = results[results["group"] == "All"]
    columns = {
        **{f"{measure}": ("all", measure) for measure in ("R@1", "R@10", "RR")},
        **{f"{measure} unseen": ("unseen", measure) for measure in ("R@1", "R@10", "RR")},
        "F1 of terms": ("rewrite", "f1 of terms"), "recall of terms": ("rewrite", "recall of terms"),
        "overlap@10 with X_t\\q_t": ("dependence", "overlap@10"),
        "overlap@10 swapped": ("dependence", "overlap@10 swapped"),
        "retention": ("dependence", "retention"),
    }  # fmt: skip
    rows = []
    for name in order:
        own = every[every["system"] == name]
        row: dict[str, Any] = {"system": name}
        for column, (ranking, measure) in columns.items():
            value = own[(own["ranking"] == ranking) & (own["measure"] == measure)]["value"]
            row[column] = float(value.iloc[0]) if len(value) else float("nan")
        rows.append({**row, "trained on": notes[name]})
    return pd.DataFrame(rows)


def main(argv: list[str] | None = None) -> None:
    parser = arguments(
        __doc__,
        data="a folder such as qrecc-dev2k, or 'testbed'",
        quick="most: 150 test questions, two layers, one epoch, 8 steps by reward",
    )
    parser.add_argument("--rows", help="rows to run, by name, separated by semicolons (default all)")
    parser.add_argument(
        "--init", help="where the rewriter starts, e.g. t5-base (default: an encoder-decoder from MiniLM)"
    )
    parser.add_argument(
        "--layers", type=int, default=6, choices=range(1, 7), help="of MiniLM, the lowest ones (default 6)"
    )
    parser.add_argument("--epochs", type=int, default=10, help="passes over the gold rewrites (default 10)")
    parser.add_argument("--copy-epochs", type=int, default=6, help="passes of repeating questions (default 6)")
    parser.add_argument("--reward-steps", type=int, default=80, help="steps of CONQRR (default 80)")
    parser.add_argument("--k1", type=float, default=0.82, help="of BM25 (default 0.82, the paper's for QReCC)")
    parser.add_argument("--b", type=float, default=0.68, help="of BM25 (default 0.68)")
    parser.add_argument(
        "--llm", nargs=2, metavar=("URL", "MODEL"), help="an OpenAI-compatible endpoint for the row LLM"
    )
    parser.add_argument("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message=".*end with their own question.*")
    if options.quick:
        options.layers, options.epochs, options.copy_epochs, options.reward_steps = 2, 1, 1, 8
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    data = Data.read(str(options.data), options.quick)
    say(f"{len(data.test)} test questions with a gold rewrite, {len(data.train)} training turns")
    with temporary() as folder:
        index = cs.BM25Index(Path(folder) / "passages.bm25").index(data.corpus())
        experiment = Experiment(data, index, options)
        makers = experiment.rows()
        wanted = list(makers) if options.rows is None else [name.strip() for name in options.rows.split(";")]
        unknown = [name for name in wanted if name not in makers]
        if unknown:
            raise SystemExit(f"--rows: no row {unknown[0]!r}; there are {'; '.join(makers)}")
        for name in wanted:
            experiment.run(name, makers[name])
        experiment.write(list(makers))
    say(f"written to {options.out}")


if __name__ == "__main__":
    main()
