"""The rows of response_retrieval.py: each is a system that ranks the collection of responses, and the candidates."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from _common import say
from ir_measures import RR

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch._results import ranked
from pt_convsearch.measures import evaluate

SEPARATORS = ("[U]", "[T]")
Ranking = tuple[pd.DataFrame, pd.DataFrame]


@dataclass
class Bench:
    """Data, options and what rows share.

    Attributes:
        options: of the command line.
        topics, qrels, corpus: what is searched; qrels say which response followed.
        train: the training contexts with their responses, without those held out.
        held_out: contexts of training dialogues that choose settings and checkpoints, never trained on.
        candidates: qid, docno, text, label of the test contexts.
    """

    options: argparse.Namespace
    topics: pd.DataFrame
    qrels: pd.DataFrame
    corpus: list[dict[str, str]]
    train: pd.DataFrame
    held_out: pd.DataFrame
    train_qrels: pd.DataFrame
    train_corpus: list[dict[str, str]]
    candidates: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.options.out

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
        return run, ranked(pd.concat(parts, ignore_index=True).fillna({"score": -np.inf}))

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

    def dense(self, name: str, encoder: cs.BiEncoder, sep: Any) -> Ranking:
        index = cs.DenseIndex(self.out / "indexes" / f"{name}.flex", encoder, overwrite=True).index(self.corpus)
        form = cs.form(cs.X, sep=sep)
        run = (form >> index.retriever(num_results=self.options.depth))(self.topics)
        asked = form(self.topics).merge(self.candidates, on="qid")
        return run, encoder.text_scorer()(asked)

    @cached_property
    def dense_miner(self) -> pt.Transformer:
        path = self.out / "indexes" / "train.flex"
        index = cs.DenseIndex(path, self.encoder, overwrite=True).index(self.train_corpus)
        return index.retriever(num_results=100)

    def fine_tuned(self, name: str, miner: pt.Transformer, corpus: list[dict[str, str]] | None = None) -> Ranking:
        """Mine, train from the start encoder (or the intermediate one), index, search."""
        given = self.options
        form = cs.form(cs.X, sep=SEPARATORS)
        pairs = cs.training_pairs(
            self.train, self.train_qrels, corpus or self.train_corpus, form=form,
            negatives=miner >> cs.DropPositives(self.train_qrels), num_negatives=given.negatives, seed=given.seed,
            out=self.out / "pairs" / name,
        )  # fmt: skip
        say(f"{name}: mined, {pairs.counts}")
        dev = cs.candidate_lists(self.held_out, self.train_qrels, self.train_corpus, seed=given.seed)
        model = cs.train(
            pairs, init=given.init or str(self.start(separators=True)), out=self.out / "models" / name, form=form,
            dev=(self.held_out, self.train_qrels, self.train_corpus, dev[["qid", "docno"]]), metric="AP",
            max_steps=given.steps, batch_size=given.batch_size, eval_every=given.eval_every, scale=given.scale,
            learning_rate=given.learning_rate, weight_decay=0.01, warmup=0.1, similarity=given.similarity,
            max_query_length=given.max_query_length, max_passage_length=given.max_passage_length, max_grad_norm=1.0,
            seed=given.seed,
        )  # fmt: skip
        self.notes |= {"short of negatives": len(pairs.shortages()), "training pairs": len(pairs)}
        return self.dense(name, model, SEPARATORS)


def bm25(bench: Bench) -> Ranking:
    return bench.searched(lambda depth: bench.form() >> bench.index.bm25(num_results=depth))


def rm3(bench: Bench) -> Ranking:
    """Parameters are tuned on held-out contexts: the paper's grid."""

    def system(depth: int, **setting: Any) -> pt.Transformer:
        index = bench.index
        return (
            bench.form() >> index.bm25(num_results=setting["fb_docs"]) >> index.rm3(**setting)
            >> index.bm25(num_results=depth)
        )  # fmt: skip

    scores = {}
    for docs, terms, weight in product((5, 10, 15), (5, 10, 15), (0.5, 0.7)):
        setting = {"fb_docs": docs, "fb_terms": terms, "original_query_weight": weight}
        run = system(100, **setting)(bench.held_out)
        values = evaluate(run, bench.train_qrels, RR, qids=bench.held_out["qid"])
        scores[json.dumps(setting)] = float(values.iloc[:, 0].mean())
    best = max(scores, key=scores.__getitem__)
    bench.notes |= {"tuned": json.loads(best), "held-out RR": scores[best]}
    return bench.searched(lambda depth: system(depth, **json.loads(best)))


def expanded(bench: Bench, target: str) -> Ranking:
    """resp2ctxt and resp2ctxt_lu."""
    given = bench.options
    name = {"context": "resp2ctxt", "last_utterance": "resp2ctxt_lu"}[target]
    length = given.target_length if target == "context" else given.target_length_lu
    expander = cs.train_resp2ctxt(
        bench.train, target, init=given.seq2seq_init or seq2seq_start(bench), out=bench.out / "models" / name, epochs=2,
        max_steps=given.seq2seq_steps, batch_size=given.seq2seq_batch_size, learning_rate=given.seq2seq_learning_rate,
        max_source_length=100, max_target_length=length, seed=given.seed, warmup=0.05,
    )  # fmt: skip
    say(f"{name}: trained")
    expander = cs.Resp2Ctxt(
        expander.model, num_samples=3, top_k=10, seed=given.seed, cache=bench.out / "expansions.sqlite"
    )
    documents = list(expander.transform_iter(bench.corpus))
    terms = cs.expansion_terms(documents)
    bench.notes["terms"] = cs.expansion_summary(terms).round(4).to_dict()
    examples = [{key: document[key] for key in ("text_0", "expansion")} for document in documents[:20]]
    write_json(bench.out / f"{name}.examples.json", examples)
    index = bench.bm25_index(name, documents)
    return bench.searched(lambda depth: bench.form() >> index.bm25(num_results=depth))


def seq2seq_start(bench: Bench) -> str:
    """The first layers of the encoder, from which both halves of the encoder-decoder are warm-started."""
    given = bench.options
    folder = bench.out / "models" / f"seq2seq-start-{given.seq2seq_layers}"
    if not folder.is_dir():
        from transformers import AutoModel, AutoTokenizer

        source = str(cs.dense.minilm_path()) if given.encoder.endswith("all-MiniLM-L6-v2") else given.encoder
        model = AutoModel.from_pretrained(source)
        model.encoder.layer = model.encoder.layer[: given.seq2seq_layers]
        model.config.num_hidden_layers = given.seq2seq_layers
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


def zero_shot(bench: Bench) -> Ranking:
    """Utterances with a blank between: a separator that the encoder never saw would mean nothing to it."""
    return bench.dense("zero-shot", bench.encoder, " ")


def random_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("random", cs.RandomNegatives(bench.train_corpus, seed=bench.options.seed))


def _bm25_miner(bench: Bench) -> pt.Transformer:
    return bench.train_index.bm25(num_results=100)


def bm25_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("bm25-negatives", bench.form() >> _bm25_miner(bench))


def dense_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("dense-negatives", cs.form(cs.X) >> bench.dense_miner)


def _far(bench: Bench, name: str, miner: pt.Transformer) -> Ranking:
    return bench.fine_tuned(name, miner >> cs.DropPositives(bench.train_qrels) >> cs.Ranks(91, 100))


def e2_bm25(bench: Bench) -> Ranking:
    return _far(bench, "e2-bm25", bench.form() >> _bm25_miner(bench))


def e2_dense(bench: Bench) -> Ranking:
    return _far(bench, "e2-dense", cs.form(cs.X) >> bench.dense_miner)


def e3(bench: Bench) -> Ranking:
    return bench.fine_tuned("e3-bm25", bench.form() >> _bm25_miner(bench) >> cs.DropContextSubsets())


def e4(bench: Bench) -> Ranking:
    return bench.fine_tuned("e4-bm25", cs.form(cs.CURRENT) >> _bm25_miner(bench))


def e5(bench: Bench) -> Ranking:
    """A larger collection of responses: those of other conversations (``--external``, JSON Lines of docno and text)."""
    from pt_convsearch._files import read_jsonl

    if bench.options.external is None:
        raise FileNotFoundError("no collection of other responses was given (--external)")
    others = [
        {"docno": f"external:{document['docno']}", "text": document["text"]}
        for _, document in read_jsonl(bench.options.external)
    ]
    corpus = [*bench.train_corpus, *others]
    index = bench.bm25_index("external", corpus)
    bench.notes["external responses"] = len(others)
    return bench.fine_tuned("e5-bm25", bench.form() >> index.bm25(num_results=100), corpus)


def e6(bench: Bench) -> Ranking:
    """Replies by ``--generator``; by default a model that was trained on the same dialogues the other way round."""
    model = bench.options.generator or _replier(bench)
    miner = cs.negatives.GeneratedNegatives(model, num_results=10, seed=bench.options.seed, max_new_tokens=40)
    replies = miner.documents(cs.form(cs.X)(bench.train))
    bench.notes["generated"] = {"model": str(model), "replies": len(replies), "first": [d["text"] for d in replies[:5]]}
    return bench.fine_tuned("e6-generated", cs.form(cs.X) >> miner, [*bench.train_corpus, *replies])


def _replier(bench: Bench) -> str:
    given = bench.options
    train = bench.train
    turned = pd.DataFrame({"query": train["answer"], "qhistory": [[]] * len(train), "answer": train["query"]})
    cs.train_resp2ctxt(
        turned, "last_utterance", init=given.seq2seq_init or seq2seq_start(bench), out=bench.out / "models" / "replies",
        max_steps=given.seq2seq_steps, epochs=2, batch_size=given.seq2seq_batch_size, max_target_length=40,
        learning_rate=given.seq2seq_learning_rate, seed=given.seed,
    )  # fmt: skip
    return str(bench.out / "models" / "replies")


#: name of the row -> what makes it, and what the table calls it
ROWS: dict[str, tuple[Callable[[Bench], Ranking], str]] = {
    "bm25": (bm25, "BM25"),
    "rm3": (rm3, "BM25 + RM3"),
    "resp2ctxt": (lambda bench: expanded(bench, "context"), "BM25 + resp2ctxt"),
    "resp2ctxt_lu": (lambda bench: expanded(bench, "last_utterance"), "BM25 + resp2ctxt_lu"),
    "zero-shot": (zero_shot, "bi-encoder, zero-shot"),
    "random": (random_negatives, "fine-tuned, random negatives"),
    "bm25-negatives": (bm25_negatives, "fine-tuned, BM25 negatives"),
    "dense-negatives": (dense_negatives, "fine-tuned, bi-encoder negatives"),
    "e2-bm25": (e2_bm25, "E2: BM25 negatives, ranks 91-100"),
    "e2-dense": (e2_dense, "E2: bi-encoder negatives, ranks 91-100"),
    "e3-bm25": (e3, "E3: BM25 negatives that the context does not hold"),
    "e4-bm25": (e4, "E4: BM25 negatives of the last utterance"),
    "e5-bm25": (e5, "E5: BM25 negatives of a larger collection"),
    "e6-generated": (e6, "E6: generated negatives"),
}
