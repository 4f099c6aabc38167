"""dl_hard.py --systems: DL-HARD's baseline pipelines run, on its own questions or on conversations that stand in."""

from __future__ import annotations

import argparse
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from _common import say, temporary
from _dl_hard_documents import WINDOWS, of_documents
from _qrecc_parts import minilm
from _rewriting_parts import Data
from _rows import Rows, fingerprint
from ir_measures import RR, R, nDCG

import pt_convsearch as cs
from pt_convsearch._files import writing_text
from pt_convsearch.datasets import iter_jsonl
from pt_convsearch.evaluation.report import long_table, write_results
from pt_convsearch.negatives._texts import as_store
from pt_convsearch.reranking import PUBLISHED_MODELS, baselines, first_p, interpolate, sum_p

#: what a re-ranker reads of a conversation: enough to know what it is about, short enough for a small model
READS = cs.FIRST_QUESTION | cs.last(1) | cs.CURRENT
#: columns of the table
SHOWN = ("RR", "R@1", "R@10", "overlap@10", "retention")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("--systems: run the baselines")
    add = group.add_argument
    add(
        "--systems", nargs="+", metavar="NAME", help="'all', or names such as BM25+RM3+T5-MaxP; unknown ones are listed"
    )
    add(
        "--corpus",
        type=Path,
        metavar="FILE",
        help="MS MARCO as JSON Lines of docno, text, title (default: ir_datasets)",
    )
    add("--index", type=Path, metavar="DIR", help="keep the BM25 index here (default: a temporary one)")
    add("--model", action="append", default=[], metavar="NAME=MODEL", help="a model behind a name of DL-HARD's tables: "
        + "; ".join(f"{name}={model}" for name, model in PUBLISHED_MODELS.items()))  # fmt: skip
    add("--fine-tune", action="append", default=[], metavar="NAME=INIT", help="train a re-ranker from INIT, "
        "cross-validated over DL-HARD's folds: three to train on, one to select on, one to test on")  # fmt: skip
    add("--max-steps", type=int, metavar="N", help="of a fine-tuning, in place of --epochs")
    add("--depth", type=int, default=100, help="how many results are re-ranked (default 100)")
    add("--stand-in", metavar="NAME", help="conversations in place of DL-HARD: a folder such as qrecc-dev2k, "
        "or testbed, cast21-mini, mtrag-mini/human with --data; small models are trained from MiniLM")  # fmt: skip
    add("--limit", type=int, default=400, metavar="N", help="test questions of a stand-in (default 400)")
    add("--train-questions", type=int, default=900, metavar="N", help="to train on (default 900)")
    add("--layers", type=int, default=3, choices=range(1, 7), help="of MiniLM, for the small models (default 3)")
    add("--epochs", type=int, default=1)
    add("--seed", type=int, default=1)
    add("--threads", type=int, help="of PyTorch; 1 where other work runs beside it")


# -- DL-HARD's own questions


def write_runs(args: argparse.Namespace, data: Any) -> Path:
    """Run the systems on DL-HARD and write their runs; one that is there already is left as it is."""
    folder = args.out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    topics = data.get_topics()
    with temporary() as scratch:
        path = args.index or Path(scratch) / "index.bm25"
        index = cs.BM25Index(path)
        if not index.built():
            say(f"indexing into {path}")
            index = index.index(_documents(args.corpus) if args.corpus else data.get_corpus_iter())
        models = {name: opened(name, model) for name, model in pairs_of(args.model)}
        systems = chosen(args.systems, baselines(index, models, task=args.task, depth=args.depth))
        for name, system in systems.items():
            target = folder / f"{name}.run"
            if target.is_file():
                say(f"{name}: done before")
                continue
            say(name)
            found = system.transform(topics)
            rows = zip(found["qid"], found["docno"], found["rank"], found["score"], strict=True)
            with writing_text(target) as handle:
                handle.writelines(
                    f"{qid} Q0 {docno} {rank + 1} {score:.9g} {name}\n" for qid, docno, rank, score in rows
                )
        for name, init in pairs_of(args.fine_tune):
            for first in ("BM25", "BM25+RM3"):
                fine_tuned(args, data, index, name, init, first, folder)
    tuned = [name for name, _ in pairs_of(args.fine_tune)]
    missing = [name for name in PUBLISHED_MODELS if name not in models and name not in tuned]
    if missing:
        say(f"not run here, for want of a model: {', '.join(missing)} (--model NAME=MODEL)")
    return folder


def write_run(found: pd.DataFrame, target: Path, tag: str) -> None:
    """TREC's six columns."""
    rows = zip(found["qid"], found["docno"], found["rank"], found["score"], strict=True)
    with writing_text(target) as handle:
        handle.writelines(f"{qid} Q0 {docno} {rank + 1} {score:.9g} {tag}\n" for qid, docno, rank, score in rows)


def fine_tuned(
    args: argparse.Namespace, data: Any, index: cs.BM25Index, name: str, init: str, first: str, folder: Path
) -> None:
    """A re-ranker that is trained, selected and tested in rotation over the folds; epochs are selected on dev as well.

    On documents PARADE reads whole ones; a cross-encoder is trained on the windows of relevant documents against the
    windows of others (Dai and Callan, 2019), and searched as MaxP.
    """
    parade = name.startswith("PARADE")
    windows = cs.reranking.SlidingWindow(length=150, stride=75, max_passages=8)
    by_window = args.task == "doc" and not parade
    system = f"{first}+{name}" + ("-MaxP" if by_window else "")
    target = folder / f"{system}.run"
    if target.is_file():
        say(f"{system}: done before")
        return
    say(f"{system}, fine-tuned over the folds")
    topics, qrels = data.get_topics(), data.get_qrels()
    found = baselines(index, task=args.task, num_results=args.depth)[first] >> index.text_loader()
    store = as_store(index.text_loader())
    docnos = pd.Series(list(dict.fromkeys([*qrels["docno"], *found(topics)["docno"]])))
    places = store.rows(docnos)
    documents = pd.DataFrame({"docno": docnos[places >= 0], "text": store.texts(places[places >= 0])})
    train = cs.train_parade if parade else cs.train_cross_encoder

    def make(split: Any) -> dict[str, pt.Transformer]:
        judged, corpus, miner = split.train[1], documents, found
        judged = judged.assign(label=(judged["label"] >= 2).astype(int))  # relevant, as the measures have it
        if by_window:
            corpus, miner = windows.transform(documents), found >> windows
            part_of = corpus["docno"].str.rsplit("%p", n=1).str[0]
            named = pd.DataFrame({"docno": part_of, "window": corpus["docno"]})
            judged = judged.merge(named, on="docno").assign(docno=lambda frame: frame["window"])
        pairs = cs.training_pairs(
            split.train[0], judged, corpus, form=cs.CURRENT, negatives=miner, num_negatives=3, pool=100,
            seed=args.seed, out=split.folder / "pairs",
        )  # fmt: skip
        options: dict[str, Any] = {"epochs": args.epochs, "max_steps": args.max_steps, "seed": args.seed}
        candidates: dict[str, pt.Transformer] = {}
        for rate in (1e-5, 3e-5):
            model = train(pairs, init=init, out=split.folder / f"rate-{rate:g}", learning_rate=rate, **options)
            scorer = windows >> model >> cs.reranking.AggregatePassages("max") if by_window else model
            candidates[f"rate {rate:g}"] = found >> scorer
        return candidates

    done = cs.cross_validate(make, topics, qrels, data.folds(), metric="nDCG@10", out=folder.parent / "folds" / system)
    write_run(done.run, target, system)
    print(done.choices.to_markdown(index=False))


def pairs_of(given: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=")[::2] for text in given]
    wrong = ["=".join(pair) for pair in pairs if pair[0] not in PUBLISHED_MODELS or not pair[1]]
    if wrong:
        raise SystemExit(f"--model {wrong[0]}: NAME=MODEL, the name one of {', '.join(PUBLISHED_MODELS)}")
    return pairs


def opened(name: str, model: str) -> pt.Transformer:
    """The stage behind a name of the tables."""
    if name.startswith("PARADE"):
        return cs.PARADE(model, verbose=True)
    if name == "T5":
        own = (Path(model) / "tokenizer_config.json").is_file()
        return cs.MonoT5(model, tokenizer=None if own else "t5-base", verbose=True)
    return cs.CrossEncoder(model, verbose=True)


def chosen(wanted: list[str], systems: Mapping[str, Any]) -> dict[str, Any]:
    names = list(systems) if wanted == ["all"] else wanted
    unknown = [name for name in names if name not in systems]
    if unknown:
        raise SystemExit(f"--systems: no system {unknown[0]!r}; there are {', '.join(systems)}")
    return {name: systems[name] for name in names}


def _documents(path: Path) -> Iterable[dict[str, Any]]:
    return (document for _, document in iter_jsonl(path))


# -- conversations that stand in


class StandIn:
    """The same pipelines on conversations, with small models trained on them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        folder = Path(args.stand_in).is_dir()
        options = types.SimpleNamespace(
            dataset=None if folder else args.stand_in, data=Path(args.stand_in) if folder else args.data, quick=False,
            conversations="240,40,100", skip=0,
        )  # fmt: skip
        self.data = Data.read(options)
        if args.task == "doc":
            if self.data.name != "testbed":
                raise SystemExit(
                    f"--task doc: {self.data.name} is passages; documents stand in with --stand-in testbed"
                )
            self.data = of_documents(self.data)
        draw: dict[str, Any] = {"n": args.limit, "random_state": args.seed}
        test = self.data.topics["test"]
        test = test[test["qhistory"].map(len) > 0].reset_index(drop=True)
        self.test = test.sample(**draw).sort_index() if len(test) > args.limit else test
        self.qrels = self.data.qrels["test"]

    def run(self) -> None:
        args = self.args
        rows = Rows(args.out / "rows")
        with temporary() as scratch:
            index = cs.BM25Index(args.index or Path(scratch) / "index.bm25")
            index = index if index.built() else index.index(self.data.corpus())
            base = {
                "data": self.data.fingerprint(), "test": len(self.test), "seed": args.seed, "depth": args.depth,
                "task": args.task, "layers": args.layers, "epochs": args.epochs,
                "train questions": args.train_questions, "collection": index.fingerprint,
                **({"windows": WINDOWS} if args.task == "doc" else {}),
            }  # fmt: skip
            self.models_folder = args.out / "models" / fingerprint(base)
            makers = self.makers(index)
            for name, (note, make) in chosen(args.systems, makers).items():
                rows.run(name, args.seed, base, lambda make=make, note=note: self.score(make, note))
        self.write(rows, base, list(makers))

    def makers(self, index: cs.BM25Index) -> dict[str, tuple[str, Callable[[Any], pt.Transformer]]]:
        """By name, what a row was trained on, and what makes its pipeline, given the parts that a re-ranker reads."""
        args = self.args
        k1, b = (0.82, 0.68) if self.data.answers else (0.9, 0.4)
        options: dict[str, Any] = {
            "task": args.task, "depth": args.depth, "num_results": args.depth, "k1": k1, "b": b, **WINDOWS,
        }  # fmt: skip
        first = baselines(index, **options)
        found: dict[str, tuple[str, Callable[[Any], pt.Transformer]]] = {
            name: ("nothing", lambda parts, name=name: first[name]) for name in first
        }
        small = f"MiniLM, {args.layers} layers"

        def with_model(name: str, system: str) -> Callable[[Any], pt.Transformer]:
            def make(parts: Any) -> pt.Transformer:
                model = self.cross_encoder(index, parts) if name == "MiniLM" else self.parade(index, parts)
                return baselines(index, {name: model}, **options)[system]

            return make

        suffix = "-MaxP" if args.task == "doc" else ""
        for start in ("BM25", "BM25+RM3"):
            note = f"{small}, {args.train_questions} questions, {args.epochs} epochs, BM25's negatives"
            found[f"{start}+MiniLM{suffix}"] = (note, with_model("MiniLM", f"{start}+MiniLM{suffix}"))
            if args.task == "doc":
                found[f"{start}+PARADE-MiniLM"] = (note, with_model("PARADE-MiniLM", f"{start}+PARADE-MiniLM"))
        plain = f"BM25+MiniLM{suffix}"
        if args.task == "doc":
            texts = first["BM25"] >> index.text_loader()
            for name, by in (
                ("FirstP", lambda scorer: first_p(scorer, length=WINDOWS["length"])),
                ("SumP", lambda scorer: sum_p(scorer, **WINDOWS)),
            ):
                found[f"BM25+MiniLM-{name}"] = (
                    "the same as MaxP", lambda parts, by=by: texts >> by(self.cross_encoder(index, parts))
                )  # fmt: skip
        found[f"{plain}, with BM25"] = (
            "the same; mean of the two scores, each from 0 to 1",
            lambda parts: interpolate(first["BM25"], found[plain][1](parts), num_results=args.depth),
        )
        return found

    def pairs(self, index: cs.BM25Index, *, windows: bool = False) -> cs.TrainingPairs:
        """Training questions with negatives of BM25; of documents as windows, those of relevant ones are positives."""
        topics, qrels, corpus = self.data.topics["train"], self.data.qrels["train"], self.data.corpus
        topics = topics[topics["qid"].isin(qrels["qid"]) & (topics["qhistory"].map(len) > 0)]
        topics = topics.sample(min(len(topics), self.args.train_questions), random_state=self.args.seed)
        miner = cs.form(cs.X) >> index.bm25(num_results=30) >> cs.DropSeen()
        if windows:
            parts = cs.reranking.SlidingWindow(**WINDOWS)
            corpus, miner = parts.transform(pd.DataFrame(self.data.corpus())), miner >> index.text_loader() >> parts
            named = pd.DataFrame({"docno": corpus["docno"].str.rsplit("%p", n=1).str[0], "window": corpus["docno"]})
            qrels = qrels.merge(named, on="docno").assign(docno=lambda frame: frame["window"])
        return cs.training_pairs(
            topics, qrels, corpus, form=READS, num_negatives=2, pool=20, seed=self.args.seed, negatives=miner,
            out=self.models_folder / ("window-pairs" if windows else "pairs"),
        )  # fmt: skip

    def dev(self, index: cs.BM25Index) -> tuple[Any, ...]:
        topics, qrels = self.data.topics["dev"], self.data.qrels["dev"]
        topics = topics[topics["qid"].isin(qrels["qid"]) & (topics["qhistory"].map(len) > 0)]
        topics = topics.sample(min(len(topics), 80), random_state=self.args.seed)
        return topics, qrels, self.data.corpus, cs.form(cs.X) >> index.bm25(num_results=10)

    def shared(self) -> dict[str, Any]:
        return {
            "init": self.start(), "seed": self.args.seed, "epochs": self.args.epochs, "metric": "RR",
            "learning_rate": 1e-4, "batch_size": 8, "max_length": 128, "max_query_length": 64, "form": READS,
        }  # fmt: skip

    def cross_encoder(self, index: cs.BM25Index, parts: Any) -> pt.Transformer:
        out = self.models_folder / "cross-encoder"
        if not out.is_dir():
            by_window = self.args.task == "doc"  # its dev measure would be that of whole documents, cut
            cs.train_cross_encoder(
                self.pairs(index, windows=by_window), out=out, dev=None if by_window else self.dev(index),
                **self.shared(),
            )  # fmt: skip
        cache = self.args.out / "scores.sqlite"
        return cs.CrossEncoder(out, form=parts, max_length=128, max_query_length=64, cache=cache, verbose=True)

    def parade(self, index: cs.BM25Index, parts: Any) -> pt.Transformer:
        out = self.models_folder / "parade"
        if not out.is_dir():
            cs.train_parade(
                self.pairs(index), out=out, dev=self.dev(index), loss="softmax", passage_length=60, stride=50,
                max_passages=4, **self.shared(),
            )  # fmt: skip
        return cs.PARADE(out, form=parts, cache=self.args.out / "scores.sqlite", verbose=True)

    def start(self) -> str:
        folder = self.models_folder / "start"
        if not folder.is_dir():
            inner: Any = minilm(self.args.layers)[0]
            inner.model.save_pretrained(folder)
            inner.tokenizer.save_pretrained(folder)
        return str(folder)

    def score(self, make: Callable[[Any], pt.Transformer], note: str) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """One row: all results, those that the history had not shown, and what is left without the question."""
        full = cs.form(cs.X) >> make(READS)
        without = cs.form(cs.X - cs.CURRENT) >> make(READS - cs.CURRENT)
        found, rest = full.transform(self.test), without.transform(self.test)
        tables = []
        for ranking, cut in (("all", lambda frame: frame), ("unseen", cs.DropSeen().transform)):
            if ranking == "unseen" and not self.data.seen:
                continue
            mine, alone = cut(found), cut(rest)
            table = cs.Experiment({"row": mine}, self.test, self.qrels, [RR, R @ 1, R @ 10, nDCG @ 10])
            tables.append(long_table(table).assign(ranking=ranking))
            dependence = cs.shortcut_dependence(mine, alone, self.test, self.qrels).long()
            tables.append(dependence.assign(ranking=f"{ranking}: X_t\\q_t"))
        return {"note": note}, {"table": pd.concat(tables, ignore_index=True)}

    def write(self, rows: Rows, base: Mapping[str, Any], order: list[str]) -> None:
        found = {row["row"]: row for row in rows if row["fingerprint"] == fingerprint(base)}
        names = [name for name in order if name in found]
        parts = [pd.read_parquet(found[name]["folder"] / "table.parquet").assign(system=name) for name in names]
        results = pd.concat(parts, ignore_index=True)
        notes = {name: found[name]["note"] for name in names}
        not_run = dict(PUBLISHED_MODELS)
        write_results(
            self.args.out, results, timings={},
            settings={**base, "stand-in": self.data.name, "trained on": notes, "not run here": not_run},
        )  # fmt: skip
        wide = results[results["group"] == "All"].pivot_table(
            index="system", columns=["ranking", "measure"], values="value", sort=False
        )
        table = wide.loc[names, [column for column in wide.columns if column[1] in SHOWN]]
        table.columns = [f"{measure} ({ranking})" for ranking, measure in table.columns]
        table.insert(0, "trained on", [notes[name] for name in names])
        text = table.round(3).to_markdown()
        missing = ", ".join(f"{name} ({model})" for name, model in not_run.items())
        (self.args.out / "table.md").write_text(f"{text}\n\nNot run here: {missing}.\n", encoding="utf-8")
        print(table.drop(columns="trained on").round(3).to_markdown())


def stand_in(args: argparse.Namespace) -> int:
    warnings.filterwarnings("ignore", message=r".*(hold their own question|is the last message|repeat).*")
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    StandIn(args).run()
    say(f"written to {args.out}")
    return 0
