"""Query rewriting on real rewrites: what it finds, how near it comes to the gold rewrite, and how much it needs the
question.

    python experiments/rewriting.py --data qrecc-dev2k --out out/rewriting
    python experiments/rewriting.py --dataset testbed --out out/rewriting-testbed
    python experiments/rewriting.py --dataset cast21-mini --data cast/cast21-mini --models out/rewriting/models --out …

DIR is a folder as ``cs.dataset("folder:DIR")`` reads it, with train, dev and test; for qrecc-dev2k the collection is
the conversations' own answers, not the paper's 54M passages. Data without a training split (``cast21-mini``,
``mtrag-mini/human``) take the models that another run trained (``--models``).

Rows: X_t, X_t without the question, q_t, the gold rewrite, HQE (thresholds chosen on dev: the published ones belong to
38M passages), QuReTeC, a rewriter, the same with five rewrites fused, CONQRR (the same trained further by what it
finds) and its control (the same trained further for as many steps, on gold rewrites alone); with ``--llm`` a language
model behind an endpoint. Each searches with BM25 and with the untrained
all-MiniLM-L6-v2. The rewriter starts from ``--init``, a sequence-to-sequence or causal model ("t5-base" is the papers'
choice). Without it, on the testbed, it is a small T5 from scratch, which knows the testbed's words only; elsewhere an
encoder-decoder warm-started from MiniLM, which first learns to repeat questions: enough to see everything run, too
little text to write well.

Each row has a folder of its own under OUT/rows: a run that was stopped goes on, a row whose settings changed is run
anew, and the table shows what is there ("not run here" for the rest).
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from _common import say, temporary
from _rewriting_parts import (
    NO_QUESTION,
    WITH_REWRITE,
    Data,
    Made,
    engines,
    groups,
    later,
    reward_curve,
    small_model,
    starting_encoder,
    starting_model,
)
from _rewriting_setup import parse
from _rewriting_tables import CONTROL, write_tables
from _rows import Rows, fingerprint
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch.evaluation.report import long_table
from pt_convsearch.evaluation.study import Engine
from pt_convsearch.evaluation.swapping import swapped
from pt_convsearch.rewriting import term_overlap

MEASURES = [R @ 1, R @ 10, RR]
#: thresholds of HQE that are tried on dev: topic, subtopic as a share of it, ambiguous
GRID = [
    (topic, share, ambiguous)
    for topic in (2.5, 3.5, 4.5, 5.5, 6.5)
    for share in (0.6, 0.8)
    for ambiguous in (0.0, 10.0, 15.0)
]
#: what CONQRR's control has in place of a reward
GOLD_ALONE = {"mle_weight": 1.0}
#: batches of inputs of like length
SORTED = {"train_sampling_strategy": "group_by_length"}


class Experiment:
    """Makes the rows one after the other."""

    def __init__(self, data: Data, index: cs.BM25Index, found: list[Engine], options: Any) -> None:
        self.data, self.index, self.engines, self.options = data, index, found, options
        self.models = options.models or options.out / "models"
        self.bm25 = found[0].retriever
        #: what each engine finds for the history alone
        self.alone: dict[str, pd.DataFrame] = {}
        #: what rewriters are rewarded for: passages that were shown already are no find
        self.rewarded = self.bm25 >> cs.DropSeen() if data.seen else self.bm25 % 100
        self.base: dict[str, Any] = {
            "data": data.name, "answers as the collection": data.answers, "digests": data.fingerprint(),
            "collection": index.fingerprint, "k1": options.k1, "b": options.b, "quick": options.quick,
            "engines": [engine.name for engine in found], "seed": options.seed,
            "models": None if options.models is None else "of another run",
        }  # fmt: skip
        if options.no_dependence:
            self.base["dependence"] = "left out"
        self.tagger = {"layers": options.layers, "epochs": options.tagger_epochs, "models": self.base["models"],
                       "questions": options.tagger_questions}  # fmt: skip
        self.writer = {
            "init": Path(options.init).name if options.init else "a T5 of two layers from scratch"
            if data.name == "testbed" else f"MiniLM, {options.layers} layers",
            "freeze": options.freeze, "epochs": options.epochs, "copy epochs": options.copy_epochs,
            "batch_size": options.batch_size, "learning_rate": options.learning_rate,
            "max_input_length": options.max_input_length, "num_beams": options.num_beams,
        }  # fmt: skip
        if options.rewriter_questions:
            self.writer["questions"] = options.rewriter_questions
        self.reward = {"steps": options.reward_steps, "batch_size": options.reward_batch,
                       "learning_rate": options.reward_rate, "dev": options.reward_dev, **self.draws()}  # fmt: skip

    def rows(self) -> dict[str, tuple[dict[str, Any], Callable[[], Made]]]:
        """By name: what a row depends on besides the data, and what makes its queries."""
        found: dict[str, tuple[dict[str, Any], Callable[[], Made]]] = {
            "X_t": ({}, lambda: Made(cs.X, "nothing")),
            "X_t\\q_t": ({}, lambda: Made(NO_QUESTION, "nothing")),
            "q_t": ({}, lambda: Made(cs.CURRENT, "nothing")),
            "gold rewrite": ({}, lambda: Made(cs.REWRITE, "written by people")),
            "HQE": ({"grid": GRID}, self.hqe),
            "QuReTeC": (self.tagger, self.quretec),
            "Rewriter": (self.writer, lambda: Made(self.rewriter(), self.rewriter_note())),
            "Rewriter, 5 fused": (self.writer, self.fused),
            CONTROL: ({**self.writer, "reward": {**self.reward, **GOLD_ALONE}}, lambda: self.conqrr(by_reward=False)),
            "CONQRR": ({**self.writer, "reward": self.reward}, self.conqrr),
        }
        if self.options.llm:
            url, model = self.options.llm
            cache = self.options.out / "llm.jsonl"
            found["LLM"] = ({"llm": model}, lambda: Made(cs.LLMRewriter(url, model, cache=cache), f"{model}, as it is"))
        return found

    def draws(self) -> dict[str, Any]:
        """How CONQRR draws, and what it compares the draws with."""
        options = self.options
        return {
            "num_draws": options.reward_draws, "temperature": options.reward_temperature,
            "baseline": options.reward_baseline, "normalize": options.reward_normalize,
            "penalty": options.reward_penalty, "mle_weight": options.reward_mle, "warmup": options.reward_warmup,
            "precision": "fp32" if self.data.name == "testbed" else "auto",
        }  # fmt: skip

    # -- what makes the queries

    def hqe(self) -> Made:
        def stage(topic: float, share: float, ambiguous: float) -> cs.HQE:
            return cs.HQE(
                self.index, topic=topic, subtopic=share * topic, ambiguous=ambiguous, k1=self.options.k1,
                b=self.options.b,
            )  # fmt: skip

        known = self.models / "hqe.json"
        if "dev" in self.data.topics:
            dev, qrels = self.data.topics["dev"], self.data.qrels["dev"]
            dev = dev[later(dev) & dev["qid"].isin(qrels["qid"])]

            def score(setting: tuple[float, float, float]) -> float:
                table = cs.Experiment({"HQE": stage(*setting) >> self.rewarded}, dev, qrels, [RR])
                return float(table["All"].loc["HQE", "RR"])

            topic, share, ambiguous = max(GRID[::7] if self.options.quick else GRID, key=score)
            write_json(known, {"topic": topic, "share": share, "ambiguous": ambiguous})
            where = "on dev"
        elif known.is_file():
            topic, share, ambiguous = json.loads(known.read_text(encoding="utf-8")).values()
            where = "as in another run"
        else:
            topic, share, ambiguous, where = 4.5, 3.5 / 4.5, 10.0, "published"
        note = f"thresholds {where}: topic {topic}, subtopic {share * topic:.3g}, ambiguous {ambiguous:g}"
        return Made(stage(topic, share, ambiguous), note)

    def quretec(self) -> Made:
        stage = self._trained("quretec", lambda target: cs.train_quretec(
            self.data.topics["train"].iloc[: self.options.tagger_questions],
            init=starting_encoder(self.options.layers, self.models), out=target,
            dev=self.data.topics.get("dev"), epochs=self.options.tagger_epochs, learning_rate=2e-4, max_length=160,
            seed=self.options.seed, trainer_options=SORTED,
        ), cs.QuReTeC)  # fmt: skip
        start = f"MiniLM, {self.options.layers} layers"
        return Made(stage, self._note(start, self.options.tagger_epochs, self.options.tagger_questions))

    def rewriter(self, **options: Any) -> cs.Rewriter:
        self._trained("rewriter", self._train_rewriter, lambda target: None)
        return self._opened("rewriter", **options)

    def _train_rewriter(self, target: str) -> None:
        options, train = self.options, self.data.topics["train"].iloc[: self.options.rewriter_questions]
        shared: dict[str, Any] = {
            "seed": options.seed, "batch_size": options.batch_size, "max_input_length": options.max_input_length,
            "max_target_length": 32, "learning_rate": options.learning_rate, "trainer_options": SORTED,
        }  # fmt: skip
        tokenizer: Any = None
        if options.init:
            init, tokenizer = starting_model(options.init, options.freeze)
        elif self.data.name == "testbed":
            init = small_model(train, self.models / "small")
        else:
            init = starting_encoder(options.layers, self.models)
            if options.copy_epochs:
                said, copying = train.assign(qrewrite=train["query"]), str(self.models / "copying")
                cs.train_rewriter(said, init=init, out=copying, epochs=options.copy_epochs, **shared)
                init = copying
        cs.train_rewriter(train, init=init, tokenizer=tokenizer, out=target, epochs=options.epochs, **shared)

    def _opened(self, model: str, **options: Any) -> cs.Rewriter:
        return cs.Rewriter(str(self.models / model), **{
            "num_beams": self.options.num_beams, "max_new_tokens": 32, "precision": self.options.precision,
            "cache": self.options.out / "rewrites.jsonl", **options,
        })  # fmt: skip

    def rewriter_note(self) -> str:
        start = str(self.writer["init"])
        if self.options.freeze:
            start += f" (its {self.options.freeze} lowest layers and the embeddings as they were)"
        if start.startswith("MiniLM") and self.options.copy_epochs:
            start += f", {self.options.copy_epochs} epochs of repeating questions"
        return self._note(start, self.options.epochs, self.options.rewriter_questions)

    def fused(self) -> Made:
        return Made(
            self.rewriter(num_rewrites=5, num_beams=5), "the same; five of a beam, fused by RRF",
            lambda retriever: cs.rrf(*(cs.NthRewrite(n) >> retriever for n in range(5)), num_results=110),
        )  # fmt: skip

    def conqrr(self, *, by_reward: bool = True) -> Made:
        start, options, note = self.rewriter(), self.options, "the same, as trained further in another run"
        curve, folder = None, "conqrr" if by_reward else "conqrr-control"
        if "train" in self.data.topics and options.models is None:
            # where the rewriter had learnt from some questions alone, the others are new to it
            train, qrels = self.data.topics["train"].iloc[options.rewriter_questions :], self.data.qrels["train"]
            dev, dev_qrels = self.data.topics["dev"], self.data.qrels["dev"]
            dev = dev[later(dev) & dev["qid"].isin(dev_qrels["qid"])].head(options.reward_dev)
            before = cs.Experiment({"start": self._opened("rewriter", num_beams=1) >> self.rewarded},
                                   dev, dev_qrels, [RR])["All"]  # fmt: skip
            self._trained(folder, lambda target: cs.train_conqrr(
                start, train[train["qid"].isin(qrels["qid"])], qrels, self.rewarded, reward=RR, out=target,
                dev=(dev, dev_qrels), max_steps=options.reward_steps, batch_size=options.reward_batch,
                eval_every=math.ceil(options.reward_steps / 6), learning_rate=options.reward_rate, max_new_tokens=32,
                seed=options.seed, **{**self.draws(), **({} if by_reward else GOLD_ALONE)},
            ), lambda target: None)  # fmt: skip
            curve = reward_curve(self.models / folder, float(before.loc["start", "RR"]))
            note = f"the same, {options.reward_steps} more steps of {options.reward_batch} questions"
            note += " by reward (RR of BM25)" if by_reward else ": gold rewrites alone, nothing drawn or rewarded"
            note += f", all of them new to it ({len(train):,})" if options.rewriter_questions else ""
            if by_reward and options.reward_draws > 1:
                note += f", {options.reward_draws} draws each at temperature {options.reward_temperature:g}"
            if by_reward and options.reward_mle:
                note += f", {options.reward_mle:.0%} of the loss on gold rewrites"
        else:
            self._trained(folder, lambda target: None, lambda target: None)  # it is there, or that is said
        return Made(self._opened(folder), note, curve=curve)

    def _trained(self, name: str, train: Callable[[str], Any], opened: Callable[[str], Any]) -> Any:
        """Train into the folder of models, or open what another run trained."""
        target = self.models / name
        if self.options.models:
            if not target.is_dir():
                raise SystemExit(f"--models: there is no {name!r} in {target.parent}")
            return opened(str(target))
        if "train" not in self.data.topics:
            raise SystemExit(f"{self.data.name} has no training split: give --models of another run")
        return train(str(target))

    def _note(self, start: str, epochs: int, questions: int | None = None) -> str:
        if self.options.models:
            return "trained in another run"
        golds = self.data.golds("train", questions)
        return f"{start}, {golds} gold rewrites, {epochs} epoch{'s' if epochs > 1 else ''}"

    # -- scoring

    def score(self, name: str, make: Callable[[], Made]) -> tuple[Mapping[str, Any], Mapping[str, pd.DataFrame]]:
        """Everything that the tables say of a row."""
        start, cpu = time.perf_counter(), time.process_time()
        made = make()
        seconds = {"made": time.perf_counter() - start, "made, CPU": time.process_time() - cpu}
        test, qrels = self.data.topics["test"], self.data.qrels["test"]
        mask = groups(test, qrels)
        compared = test[mask[WITH_REWRITE]].reset_index(drop=True)
        asked = test
        if made.stage == cs.REWRITE:  # the others have none
            asked = test[test["qrewrite"].notna()].reset_index(drop=True)
        values, per_question = [], []
        written = asked
        for engine in self.engines:
            say(f"{name}: {engine.name}")
            written = made.queries(asked, engine)
            search = made.search(engine.retriever)
            run = search.transform(written)
            runs = {"all": run, "unseen": cs.DropSeen()(run)} if self.data.seen else {"all": run}
            by = {group: rows[asked.index] for group, rows in mask.items()} if asked is test else groups(asked, qrels)
            table, each = cs.Experiment(runs, asked, qrels, MEASURES, by=by, perquery="both")
            table = long_table(table).rename(columns={"system": "answers"}).assign(engine=engine.name)
            silent = [group for group, rows in by.items() if not written["query"][rows].str.strip().any()]
            table.loc[table["group"].isin(silent), "value"] = float("nan")  # X_t\q_t has nothing to say at first turns
            values.append(table)
            per_question.append(each.rename(columns={"name": "answers"}).assign(engine=engine.name))
            if not self.options.no_dependence:
                values.append(self._dependence(made, engine, run, search, compared).assign(engine=engine.name))
        written = written.set_index("qid").loc[compared["qid"]]
        overlap = term_overlap(written["query"], list(compared["qrewrite"]))
        say_as = pd.DataFrame({
            **{f"ROUGE-1 {column}": overlap[column] for column in overlap},
            "as q_t": (written["query"] == list(compared["query"])).astype(float),
            "words": written["query"].str.split().str.len().astype(float),
        })  # fmt: skip
        values.append(_values(say_as.mean().to_dict(), "rewrite", len(say_as)).assign(engine="–"))
        seconds |= {"scored": time.perf_counter() - start - seconds["made"],
                    "scored, CPU": time.process_time() - cpu - seconds["made, CPU"]}  # fmt: skip
        samples = [{"qid": qid, "q_t": said, "rewrite": query, "gold": gold} for qid, said, query, gold in zip(
            compared["qid"], compared["query"], written["query"], compared["qrewrite"], strict=True)]  # fmt: skip
        counts = dict(getattr(made.stage, "counts", {}))
        frames = {"values": pd.concat(values, ignore_index=True), "rewrites": pd.DataFrame(samples),
                  "per_question": pd.concat(per_question, ignore_index=True)}  # fmt: skip
        return {"note": made.note, "timings": seconds, "counts": counts}, (
            frames if made.curve is None else {**frames, "curve": made.curve}
        )

    def _dependence(
        self, made: Made, engine: Engine, run: pd.DataFrame, search: pt.Transformer, compared: pd.DataFrame
    ) -> pd.DataFrame:
        """How near the ranking is to that of the history alone, and what is left of it with another's question."""
        qrels = self.data.qrels["test"]
        if engine.name not in self.alone:
            self.alone[engine.name] = engine.system(NO_QUESTION).transform(compared)
        alone = self.alone[engine.name]
        mine = run[run["qid"].isin(compared["qid"])]
        seen = {"all": (mine, alone)}
        if self.data.seen:
            seen["unseen"] = (cs.DropSeen()(mine), cs.DropSeen()(alone))
        found = [cs.shortcut_dependence(*pair, compared, qrels).long().assign(answers=f"{answers}: X_t\\q_t")
                 for answers, pair in seen.items()]  # fmt: skip
        if made.stage != cs.REWRITE:  # a rewrite that people wrote for another history says nothing of this one
            other = search.transform(made.queries(swapped(compared, seed=self.options.seed), engine))
            pairs = {"all": (mine, other)}
            if self.data.seen:
                pairs["unseen"] = (seen["unseen"][0], cs.DropSeen()(other))
            found += [cs.shortcut_dependence(*pair, compared, qrels).long().assign(answers=f"{answers}: swapped")
                      for answers, pair in pairs.items()]  # fmt: skip
        return pd.concat(found, ignore_index=True)


def _values(values: Mapping[str, float], answers: str, n: int) -> pd.DataFrame:
    rows = [("All", measure, value, n, answers) for measure, value in values.items()]
    return pd.DataFrame(rows, columns=["group", "measure", "value", "n", "answers"])


def main(argv: list[str] | None = None) -> None:
    options = parse(__doc__, argv)
    warnings.filterwarnings("ignore", message=r".*(hold their own question|is the last message|repeat).*")
    if options.quick:
        options.conversations = "60,10,20"
        options.layers, options.epochs, options.tagger_epochs, options.copy_epochs = 2, 1, 1, 1
        options.reward_steps, options.reward_batch, options.reward_dev = 3, 4, 10
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    data = Data.read(options)
    say(f"{len(data.topics['test'])} judged test questions; " + ", ".join(
        f"{len(topics)} {split} questions" for split, topics in data.topics.items() if split != "test"))  # fmt: skip
    rows = Rows(options.out / "rows")
    if not options.table_only:
        with temporary() as folder:
            # one place for one collection: a training by reward that was stopped knows its pipeline again
            place = options.out / f"passages.{fingerprint(data.fingerprint())}.bm25"
            index = cs.BM25Index(place)
            index = index if index.built() else index.index(data.corpus())
            experiment = Experiment(data, index, engines(data, index, Path(folder), options), options)
            makers = experiment.rows()
            wanted = list(makers) if options.rows is None else [name.strip() for name in options.rows.split(";")]
            unknown = [name for name in wanted if name not in makers]
            if unknown:
                raise SystemExit(f"--rows: no row {unknown[0]!r}; there are {'; '.join(makers)}")
            for name in wanted:
                settings, make = makers[name]
                rows.run(name, options.seed, {**experiment.base, **settings},
                         lambda name=name, make=make: experiment.score(name, make))  # fmt: skip
    write_tables(options.out, rows, data)
    say(f"written to {options.out}")


if __name__ == "__main__":
    main()
