"""What the rows of peers.py are made of: data, small encoders that are trained here, their indexes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _common import say
from _rows import minilm

import pt_convsearch as cs
from pt_convsearch._files import written

SPLITS = {"train": 0.5, "dev": 0.1, "test": 0.4}


@dataclass
class Data:
    """Topics of three splits, judgments, the collection.

    Attributes:
        learnt: the collection of train and dev, where it is not that of the test.
        source: what train and dev are called, then.
    """

    topics: dict[str, pd.DataFrame]
    qrels: dict[str, pd.DataFrame]
    corpus: Callable[[], Any]
    learnt: Callable[[], Any] | None = None
    source: str | None = None

    @classmethod
    def testbed(cls, quick: bool) -> Data:
        """Splits of the testbed, which share no entity."""
        sizes = {"train": 30, "dev": 8, "test": 15} if quick else {"train": 300, "dev": 40, "test": 120}
        made = {
            split: cs.dataset(
                "testbed" if split == "test" else f"testbed/{split}", conversations=size, train_switch_rate=0.15,
                entities=30 if quick else 80,
            )
            for split, size in sizes.items()
        }  # fmt: skip
        return cls._judged(
            {split: data.get_topics() for split, data in made.items()},
            {split: data.get_qrels() for split, data in made.items()}, made["test"].get_corpus_iter,
        )  # fmt: skip

    @classmethod
    def mtrag(cls, path: Path, seed: int, quick: bool) -> Data:
        """MTRAG's human part, split here by whole conversations: it has no training split."""
        data = cs.dataset("mtrag-mini/human", path=path)
        topics, qrels = data.get_topics(), data.get_qrels()
        names = np.random.default_rng(seed).permutation(topics["conversation_id"].unique())
        names = names[:12] if quick else names
        ends = np.round(np.cumsum([0, *SPLITS.values()]) * len(names)).astype(int)
        parts = {split: names[ends[place] : ends[place + 1]] for place, split in enumerate(SPLITS)}
        by_split = {
            split: topics[topics["conversation_id"].isin(own)].reset_index(drop=True) for split, own in parts.items()
        }
        return cls._judged(by_split, dict.fromkeys(SPLITS, qrels), data.get_corpus_iter)

    @classmethod
    def elsewhere(cls, train: Path, test: Path, quick: bool) -> Data:
        """All of MTRAG's human part is the test; train and dev are the testbed's, or the questions with a gold rewrite
        and a history of a folder such as qrecc-dev2k."""
        if str(train) == "testbed":
            learnt = cls.testbed(quick)
        else:
            splits = {split: cs.dataset(f"folder:{train}", split=split) for split in ("train", "dev")}
            topics = {split: data.get_topics() for split, data in splits.items()}
            topics = {
                split: frame[frame["qrewrite"].notna() & (frame["qhistory"].map(len) > 0)]
                for split, frame in topics.items()
            }  # fmt: skip
            qrels = {split: data.get_qrels() for split, data in splits.items()}
            if quick:
                topics = {split: frame.head(150) for split, frame in topics.items()}
            learnt = cls._judged(topics, qrels, splits["train"].get_corpus_iter)
        asked = cs.dataset("mtrag-mini/human", path=test)
        questions = asked.get_topics().head(150 if quick else None)
        tested = cls._judged({"test": questions}, {"test": asked.get_qrels()}, asked.get_corpus_iter)
        return cls(
            {**learnt.topics, **tested.topics}, {**learnt.qrels, **tested.qrels}, tested.corpus, learnt=learnt.corpus,
            source=train.name,
        )  # fmt: skip

    @classmethod
    def _judged(cls, topics: dict[str, pd.DataFrame], qrels: dict[str, pd.DataFrame], corpus: Any) -> Data:
        kept = {
            split: frame[frame["qid"].isin(qrels[split]["qid"])].reset_index(drop=True)
            for split, frame in topics.items()
        }
        return cls(kept, qrels, corpus)


class Models:
    """Encoders and indexes under a folder, each made once, when it is first asked for.

    Args:
        data: what is trained and searched on.
        folder: where they lie.
        layers: of MiniLM, the lowest ones.
        steps: optimiser steps of every training.
        batch_size: questions a step.
        lengths: tokens of queries and of passages.
        seed: of every training.
    """

    def __init__(
        self, data: Data, folder: Path, *, layers: int, steps: int, batch_size: int, lengths: tuple[int, int], seed: int
    ) -> None:
        self.data, self.folder, self.layers, self.steps = data, folder, layers, steps
        self.batch_size, self.lengths, self.seed = batch_size, lengths, seed
        self.every = max(1, steps // 3)

    # -- searching

    @cached_property
    def lexical(self) -> cs.BM25Index:
        return self._bm25("passages", self.data.corpus)

    @cached_property
    def mining(self) -> cs.BM25Index:
        """BM25 over what is learnt from."""
        return self.lexical if self.data.learnt is None else self._bm25("learnt", self.data.learnt)

    def _bm25(self, name: str, corpus: Callable[[], Any]) -> cs.BM25Index:
        path = self.folder / f"{name}.bm25"
        return cs.BM25Index(path) if path.is_dir() else cs.BM25Index(path).index(corpus())

    def dense_index(self, name: str, encoder: cs.BiEncoder, *, learnt: bool = False) -> cs.DenseIndex:
        index = cs.DenseIndex(self.folder / f"{self._name(name, learnt)}.flex", encoder)
        return index if index.built() else index.index(self._corpus(learnt)())

    def impact_index(self, name: str, encoder: cs.SparseEncoder, *, learnt: bool = False) -> cs.ImpactIndex:
        index = cs.ImpactIndex(self.folder / f"{self._name(name, learnt)}.impacts", encoder)
        return index if index.built() else index.index(self._corpus(learnt)())

    def _name(self, name: str, learnt: bool) -> str:
        return f"{name}.learnt" if learnt and self.data.learnt is not None else name

    def _corpus(self, learnt: bool = True) -> Callable[[], Any]:
        """The collection that is searched, or the one that is learnt from."""
        return self.data.learnt if learnt and self.data.learnt is not None else self.data.corpus

    # -- what all trainings share

    def form(self, parts: Any, tokenizer: Any) -> Any:
        """How an encoder's queries are written: joined by its separator, cut to its length, q_t kept."""
        options = {"sep": f" {tokenizer.sep_token} ", "max_tokens": self.lengths[0], "tokenizer": tokenizer}
        return cs.form(parts, **options)

    @cached_property
    def dev(self) -> tuple[Any, Any, Any]:
        """Questions, judgments and a small collection: the golds, and what BM25 finds."""
        topics, qrels = self.data.topics["dev"], self.data.qrels["dev"]
        found = (cs.form(cs.X) >> self.mining.bm25(num_results=10))(topics)
        golds = qrels[qrels["qid"].isin(topics["qid"])]["docno"]
        kept = {*golds, *found["docno"]}
        return topics, qrels, [passage for passage in self._corpus()() if passage["docno"] in kept]

    def pairs(self, name: str, form: Any, miner: Any) -> cs.TrainingPairs:
        topics, qrels = self.data.topics["train"], self.data.qrels["train"]
        return cs.training_pairs(
            topics, qrels, self._corpus(), form=form, negatives=miner >> cs.DropPositives(qrels), pool=20,
            seed=self.seed, out=self.folder / f"{name}.pairs",
        )  # fmt: skip

    @property
    def shared(self) -> dict[str, Any]:
        return {
            "max_steps": self.steps, "batch_size": self.batch_size, "seed": self.seed, "eval_every": self.every,
            "max_query_length": self.lengths[0], "metric": "RR",
        }  # fmt: skip

    def _trained(self, name: str, init: Any, form: Any, miner: Any, rate: float = 3e-4, **options: Any) -> cs.BiEncoder:
        return cs.train(
            self.pairs(name, form, miner), init=init, dev=self.dev, out=self.folder / name, learning_rate=rate,
            max_passage_length=self.lengths[1], **self.shared, **options,
        )  # fmt: skip

    # -- the encoders

    @cached_property
    def untrained(self) -> cs.BiEncoder:
        """MiniLM's lowest layers, as they are."""
        return cs.BiEncoder(
            minilm(self.layers), max_query_length=self.lengths[0], max_passage_length=self.lengths[1]
        )  # fmt: skip

    @cached_property
    def ad_hoc(self) -> cs.BiEncoder:
        """MiniLM trained on gold rewrites: the teacher of dense students."""
        miner = cs.form(cs.REWRITE) >> self.mining.bm25(num_results=30)
        return self._trained("ad-hoc", minilm(self.layers), cs.form(cs.REWRITE), miner)

    @cached_property
    def dpr(self) -> cs.BiEncoder:
        """MiniLM trained on conversations, with negatives of BM25 on them."""
        start = minilm(self.layers)
        miner = cs.form(cs.X) >> self.mining.bm25(num_results=30)
        return self._trained("dpr", start, self.form(cs.X, start.tokenizer), miner)

    @cached_property
    def orquac(self) -> cs.BiEncoder:
        """OR-QuAC's two towers, from MiniLM, trained on gold rewrites with in-batch negatives.

        They pool by the mean: [CLS] of MiniLM's lower layers is one vector for all texts.
        """
        start = minilm(self.layers)
        folder = self.folder / "orquac-start"
        if not folder.is_dir():
            with written(folder) as temporary:
                start[0].model.save_pretrained(temporary)
                start.tokenizer.save_pretrained(temporary)
        towers = cs.dense.albert_towers(folder, pooling="mean", seed=self.seed)
        miner = cs.form(cs.REWRITE) >> self.mining.bm25(num_results=30)
        # projections that begin at random need a higher rate than what is pretrained
        return self._trained(
            "orquac", towers, cs.form(cs.REWRITE), miner, rate=1e-3, num_negatives=0, similarity="dot", scale=1.0
        )

    def convdr(self, *, ranking: bool) -> cs.BiEncoder:
        """A student of the ad hoc encoder, taught by its vectors, and by ranking if asked for."""
        teacher = self.ad_hoc
        index = self.dense_index("ad-hoc", teacher, learnt=True)
        form = self.form(cs.X, teacher.tokenizer)
        name = "convdr-ranking" if ranking else "convdr"
        more: dict[str, Any] = {"mse_weight": float(teacher.dimensions)}
        if ranking:
            more |= {"pairs": self.mined("ad-hoc.mined", index, form), "index": index, "num_negatives": 9}
        dev = (*self.dev[:2], index)
        return cs.train_convdr(
            self.data.topics["train"], teacher, dev=dev, form=form, out=self.folder / name, learning_rate=3e-4,
            warmup=0.1, **more, **self.shared,
        )  # fmt: skip

    def mined(self, name: str, index: Any, form: Any) -> cs.TrainingPairs:
        """What a teacher finds for the rewrites, for the conversations."""
        return self.pairs(name, form, cs.form(cs.REWRITE) >> index.retriever(num_results=30))

    @cached_property
    def splade(self) -> cs.SparseEncoder:
        """SPLADE from MiniLM with the collection's word pieces only, trained on gold rewrites."""
        from _peers_splade import train_splade

        folder = self.folder / "splade"
        if not folder.is_dir():
            miner = cs.form(cs.REWRITE) >> self.mining.bm25(num_results=30)
            pairs = self.pairs("splade", cs.form(cs.REWRITE), miner)
            say("training SPLADE")
            with written(folder) as temporary:
                train_splade(
                    pairs, self._texts(), temporary, layers=self.layers, steps=self.steps, batch_size=self.batch_size,
                    lengths=self.lengths, seed=self.seed,
                )  # fmt: skip
        return cs.SparseEncoder(folder, max_query_length=self.lengths[0], max_passage_length=self.lengths[1])

    def _texts(self) -> list[str]:
        """What is learnt from: the collection and the questions whose word pieces the small model knows."""
        train = self.data.topics["train"]
        said = [message["content"] for history in train["qhistory"] for message in history]
        return [*(passage["text"] for passage in self._corpus()()), *train["query"], *said]

    @cached_property
    def disco(self) -> cs.SparseEncoder:
        """A student of SPLADE, taught by the scores of gold rewrites."""
        teacher = self.splade
        index = self.impact_index("splade", teacher, learnt=True)
        form = self.form(cs.X, teacher.tokenizer)
        return cs.train_disco(
            self.data.topics["train"], teacher, pairs=self.mined("splade.mined", index, form), index=index,
            dev=(*self.dev[:2], index), form=form, out=self.folder / "disco", learning_rate=3e-4, num_negatives=16,
            **self.shared,
        )  # fmt: skip

    def clear(self) -> None:
        """Remove all models and indexes."""
        shutil.rmtree(self.folder, ignore_errors=True)
