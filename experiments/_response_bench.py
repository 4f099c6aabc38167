"""What the rows of response_retrieval.py share: data, options, indexes, mining and training."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from _common import say
from _rows import Rows, fingerprint

import pt_convsearch as cs
from pt_convsearch._results import ranked


class NotThere(Exception):
    """What a row needs is not there: it is left out."""


SEPARATORS = ("[U]", "[T]")
Ranking = tuple[pd.DataFrame, pd.DataFrame]


#: the options that rows depend on
OPTIONS: dict[str, tuple[str, ...]] = {
    "data": ("dataset", "split", "train_contexts", "test_contexts", "held_out", "depth", "num_candidates"),
    "bm25": ("query_characters",),
    "whole encoder": ("encoder", "pooling", "similarity", "max_query_length", "max_passage_length"),
    "encoder": ("encoder", "layers", "pooling", "similarity", "max_query_length", "max_passage_length"),
    "training": ("init", "steps", "batch_size", "negatives", "learning_rate", "eval_every", "scale"),
    "seq2seq": ("encoder", "seq2seq_init", "seq2seq_layers", "seq2seq_steps", "seq2seq_batch_size",
                "seq2seq_learning_rate"),
    "resp2ctxt": ("target_length",),
    "resp2ctxt_lu": ("target_length_lu",),
    "mined": ("pool",),
    "reranked": ("reranked",),
    "external": ("external",),
    "replies": ("generator",),
}  # fmt: skip


#: what rows of a kind depend on: sparse ones, encoders as they are, trained ones, and those with mined negatives
SPARSE, DENSE, TUNED = ("bm25",), ("encoder",), ("bm25", "encoder", "training")
MINED = (*TUNED, "mined")


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        work: what ranks.
        title: what the table calls it.
        options: groups of :data:`OPTIONS` that it depends on.
        seeded: whether another seed is another result.
    """

    work: Callable[[Bench], Ranking]
    title: str
    options: tuple[str, ...] = MINED
    seeded: bool = True


@dataclass
class Bench:
    """Data, options and what rows share.

    Attributes:
        options: of the command line.
        topics, qrels, corpus: what is searched; qrels say which response followed.
        dialogues: all training contexts with their responses, without those held out.
        train: those of them that bi-encoders are trained on.
        held_out: contexts of training dialogues that choose settings and checkpoints, never trained on.
        candidates: qid, docno, text, label of the test contexts.
        table: the rows there may be.
        data: a hash of contexts and collection.
        seed: of the row that runs.
        notes: of the row that runs.
    """

    options: argparse.Namespace
    topics: pd.DataFrame
    qrels: pd.DataFrame
    corpus: list[dict[str, str]]
    dialogues: pd.DataFrame
    train: pd.DataFrame
    held_out: pd.DataFrame
    train_qrels: pd.DataFrame
    train_corpus: list[dict[str, str]]
    candidates: pd.DataFrame
    table: dict[str, Row]
    data: str
    seed: int = 1
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.options.out

    @property
    def rows(self) -> Rows:
        return Rows(self.out / "rows")

    def settings(self, row: Row, seed: int) -> dict[str, Any]:
        """All that a row depends on."""
        given = vars(self.options)
        names = dict.fromkeys(name for group in ("data", *row.options) for name in OPTIONS[group])
        found = {**{name: given[name] for name in names}, "contexts": self.data, "seed": seed if row.seeded else None}
        return {**found, "candidates": "given"} if given["candidates"] == "given" else found

    def folder(self, kind: str, name: str) -> Path:
        """Where a row of this seed and these settings keeps a model, an index …"""
        return self.out / kind / f"{name}-{fingerprint(self.settings(self.table[name], self.seed))}"

    def form(self, sep: Any = " ") -> pt.Transformer:
        """The whole context; for BM25 its last characters where ``--query-characters`` says so."""
        characters = self.options.query_characters
        if characters and sep == " ":
            return cs.form(cs.X, max_tokens=characters, tokenizer="characters", mode="tail")
        return cs.form(cs.X, sep=sep)

    # -- sparse

    @cached_property
    def index(self) -> cs.BM25Index:
        return self.bm25_index("collection", self.corpus)

    @cached_property
    def train_index(self) -> cs.BM25Index:
        return self.bm25_index("train", self.train_corpus)

    def bm25_index(self, name: str, corpus: Any, expander: pt.Transformer | None = None) -> cs.BM25Index:
        index = cs.BM25Index(self.out / "indexes" / f"{name}.bm25", overwrite=True)
        if expander is None:
            return index.index(corpus)
        return (expander >> index).index(corpus)

    def searched(self, system: Callable[[int], pt.Transformer]) -> Ranking:
        """Rankings of the collection and of the candidates by a system of a given depth."""
        run = system(self.options.depth)(self.topics)
        parts = []
        for start in range(0, len(self.topics), 64):  # all documents of a few questions at a time
            topics = self.topics.iloc[start : start + 64].reset_index(drop=True)
            deep = system(len(self.corpus))(topics)[["qid", "docno", "score"]]
            parts.append(self.candidates.merge(topics[["qid"]], on="qid").merge(deep, on=["qid", "docno"], how="left"))
        # a candidate that no query term leads to comes after all others, a random one first
        return run, ranked(pd.concat(parts, ignore_index=True).fillna({"score": 0.0}))

    # -- dense

    @cached_property
    def encoder(self) -> cs.BiEncoder:
        """The encoder that nobody trained on these dialogues."""
        return self.bi_encoder(str(self.start(separators=False)))

    def bi_encoder(self, model: Any) -> cs.BiEncoder:
        given = self.options
        return cs.BiEncoder(
            model, max_query_length=given.max_query_length, max_passage_length=given.max_passage_length,
            similarity=given.similarity,
        )  # fmt: skip

    def start(self, *, separators: bool) -> Path:
        """The folder of the encoder that training starts from: its first layers, and separators as tokens."""
        folder = self.out / "models" / f"start-{self.options.layers or 'all'}{'-separators' if separators else ''}"
        if not folder.is_dir():
            from sentence_transformers import SentenceTransformer

            model = copy.deepcopy(cs.BiEncoder(self.options.encoder, pooling=self.options.pooling)._load()[0])
            if self.options.layers:
                model[0].model.encoder.layer = model[0].model.encoder.layer[: self.options.layers]
                model[0].model.config.num_hidden_layers = self.options.layers
            model = cs.with_separators(model, SEPARATORS) if separators else model
            assert isinstance(model, SentenceTransformer)
            model.save_pretrained(str(folder), create_model_card=False)
        return folder

    def kept(self, name: str) -> dict[str, pd.DataFrame]:
        """The rankings of a row that was run before, with this seed."""
        row = self.table[name]
        wanted = fingerprint(self.settings(row, self.seed))
        for facts in self.rows:
            if facts["row"] == name and facts["fingerprint"] == wanted:
                return {kind: pd.read_parquet(facts["folder"] / f"{kind}.parquet") for kind in ("run", "candidates")}
        raise NotThere(f"it needs the row {name!r} with seed {self.seed}: run that first")

    def dense_index(self, path: Path, encoder: cs.BiEncoder, corpus: Any) -> cs.DenseIndex:
        index = cs.DenseIndex(path, encoder)
        return index if index.built() else index.index(corpus)

    def dense(self, name: str, encoder: cs.BiEncoder, sep: Any) -> Ranking:
        index = self.dense_index(self.folder("indexes", name), encoder, self.corpus)
        form = cs.form(cs.X, sep=sep)
        run = (form >> index.retriever(num_results=self.options.depth))(self.topics)
        return run, index.scorer()(form(self.topics).merge(self.candidates, on="qid"))

    @cached_property
    def dense_miner(self) -> pt.Transformer:
        path = self.out / "indexes" / f"train-{fingerprint({'encoder': self.encoder.identity(), 'data': self.data})}"
        return self.dense_index(path, self.encoder, self.train_corpus).retriever(num_results=100)

    def trained(
        self, name: str, miner: pt.Transformer, corpus: list[dict[str, str]] | None = None, *, pool: int | None = None
    ) -> cs.BiEncoder:
        """Mine, and train from the start encoder (or the intermediate one); what is there already is opened."""
        given = self.options
        form = cs.form(cs.X, sep=SEPARATORS)
        pairs = cs.training_pairs(
            self.train, self.train_qrels, corpus or self.train_corpus, form=form,
            negatives=miner >> cs.DropPositives(self.train_qrels), num_negatives=given.negatives, seed=self.seed,
            pool=pool or given.pool,
            out=self.folder("pairs", name),
        )  # fmt: skip
        say(f"{name}: mined, {pairs.counts}")
        self.notes |= {"short of negatives": len(pairs.shortages()), "training pairs": len(pairs)}
        self.notes |= same_dialogue(self, pairs)
        dev = cs.candidate_lists(self.held_out, self.train_qrels, self.train_corpus, seed=1)
        return cs.train(
            pairs, init=given.init or str(self.start(separators=True)), out=self.folder("models", name), form=form,
            dev=(self.held_out, self.train_qrels, self.train_corpus, dev[["qid", "docno"]]), metric="AP",
            max_steps=given.steps, batch_size=given.batch_size, eval_every=given.eval_every, scale=given.scale,
            learning_rate=given.learning_rate, weight_decay=0.01, warmup=0.1, similarity=given.similarity,
            max_query_length=given.max_query_length, max_passage_length=given.max_passage_length, max_grad_norm=1.0,
            seed=self.seed,
        )  # fmt: skip

    def fine_tuned(self, name: str, miner: pt.Transformer, corpus: Any = None, *, pool: int | None = None) -> Ranking:
        return self.dense(name, self.trained(name, miner, corpus, pool=pool), SEPARATORS)


def same_dialogue(bench: Bench, pairs: cs.TrainingPairs) -> dict[str, float]:
    """The shares of mined negatives that come from their context's dialogue, and that stand in the context itself."""
    frame, texts = pairs.frame(), dict(zip(*(pairs.passages()[name] for name in ("docno", "text")), strict=True))
    topics = bench.train.set_index("qid")
    answered = bench.train_qrels.merge(bench.dialogues[["qid", "conversation_id"]], on="qid")
    home = dict(zip(answered["docno"], answered["conversation_id"], strict=True))
    near = inside = count = 0
    for qid, negatives in zip(frame["qid"], frame["negatives"], strict=True):
        said = {message["content"] for message in topics.at[qid, "qhistory"]} | {topics.at[qid, "query"]}
        count += len(negatives)
        near += sum(home.get(docno) == topics.at[qid, "conversation_id"] for docno in negatives)
        inside += sum(texts[docno] in said for docno in negatives)
    count = max(1, count)
    return {"of the same dialogue": round(near / count, 4), "in the context": round(inside / count, 4)}
