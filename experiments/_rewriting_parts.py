"""What rewriting.py reads and shares: data with gold rewrites, its engines, what a row of the table is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from _common import say
from _qrecc_parts import WITH_REWRITE, encoder, groups as every_group, minilm

import pt_convsearch as cs
from pt_convsearch.evaluation.study import Engine, dense_engine
from pt_convsearch.negatives._fingerprint import digest

NO_QUESTION = cs.X - cs.CURRENT
DEPTH = 110


@dataclass
class Data:
    """Topics and judgments by split, and the collection.

    Attributes:
        name: as it is called in the table.
        topics, qrels: "test", and "train" and "dev" where there are such. Test topics are the judged ones that begin a
            conversation or have a gold rewrite, so that all rows are compared on the same questions.
        corpus: called for the documents.
        seen: whether histories say which document an answer came from, so that seen ones can be left out.
        answers: whether the collection is the conversations' own answers.
        whole: all test topics.
    """

    name: str
    topics: dict[str, pd.DataFrame]
    qrels: dict[str, pd.DataFrame]
    corpus: Callable[[], Iterable[dict[str, Any]]]
    seen: bool
    answers: bool
    whole: pd.DataFrame

    @classmethod
    def read(cls, options: Any) -> Data:
        found: dict[str, Any] = {}
        if options.dataset == "testbed":
            return cls._testbed([int(size) for size in options.conversations.split(",")], options.skip)
        if options.dataset:
            found["test"] = cs.dataset(options.dataset, path=options.data)
        else:
            found = {split: cs.dataset(f"folder:{options.data}", split=split) for split in ("train", "dev", "test")}
        topics, qrels = {}, {}
        for split, data in found.items():
            try:
                topics[split] = data.get_topics()
            except FileNotFoundError:
                if split == "test":
                    raise
                say(f"no {split} split: what needs it is left out")
                continue
            qrels[split] = data.get_qrels()
        if "qrewrite" not in topics["test"] or topics["test"]["qrewrite"].isna().all():
            raise SystemExit("the test questions have no gold rewrites (qrewrite) to compare with")
        if options.quick:
            topics = {split: frame.head({"train": 400}.get(split, 80)) for split, frame in topics.items()}
        whole, topics["test"] = topics["test"], compared(topics["test"], qrels["test"])
        seen = any(message.get("docno") for history in topics["test"]["qhistory"] for message in history)
        return cls(
            options.dataset or Path(options.data).name, topics, qrels, found["test"].get_corpus_iter, seen,
            options.dataset is None, whole,
        )  # fmt: skip

    @classmethod
    def _testbed(cls, sizes: list[int], skip: int) -> Data:
        """Train, dev and test are conversations of the testbed's training split, about the same entities: its own test
        split names none of them, and a small model has no word for what it never saw."""
        ends = np.cumsum([0, sizes[0], sizes[1], skip, sizes[2]])
        data = cs.dataset("testbed/train", conversations=int(ends[-1]), train_switch_rate=0.15)
        every, qrels = data.get_topics(), data.get_qrels()
        number = pd.factorize(every["conversation_id"])[0]
        split = np.array(["train", "dev", "skipped", "test"])[np.searchsorted(ends[1:], number, side="right")]
        topics = {name: every[split == name].reset_index(drop=True) for name in ("train", "dev", "test")}
        whole, topics["test"] = topics["test"], compared(topics["test"], qrels)
        parted = {name: qrels[qrels["qid"].isin(frame["qid"])].reset_index(drop=True) for name, frame in topics.items()}
        return cls("testbed", topics, parted, data.get_corpus_iter, True, False, whole)

    def golds(self, split: str, first: int | None = None) -> int:
        """How many questions with a history have a gold rewrite: what rewriters learn from. Of the first ones only, if
        asked for."""
        topics = self.topics[split].iloc[:first]
        return int((topics["qrewrite"].map(lambda text: isinstance(text, str)) & later(topics)).sum())

    def fingerprint(self) -> dict[str, str]:
        """Hashes of what was read."""
        columns = ["qid", "query", "qhistory", "qrewrite"]
        found = {f"{split} topics": digest(topics[columns]) for split, topics in self.topics.items()}
        return found | {f"{split} qrels": digest(qrels) for split, qrels in self.qrels.items()}


def groups(topics: pd.DataFrame, qrels: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of the table; without those that need whole conversations."""
    found = every_group(topics, qrels)
    return {name: mask for name, mask in found.items() if not name.endswith(" left")}


def compared(topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """The judged questions that begin a conversation or have a gold rewrite."""
    rewritten = topics["qrewrite"].map(lambda text: isinstance(text, str) and bool(text.strip()))
    kept = topics["qid"].isin(qrels["qid"]) & (rewritten | ~later(topics))
    return topics[kept].reset_index(drop=True)


def later(topics: pd.DataFrame) -> pd.Series:
    """Which questions have a history."""
    return topics["qhistory"].map(len) > 0


@dataclass
class Made:
    """What makes the queries of a row.

    Attributes:
        stage: parts of the conversation, or a Q -> Q stage.
        note: what was trained on what.
        search: what searches with the queries, given the retriever.
        curve: of a training by reward, if any.
    """

    stage: Any
    note: str
    search: Callable[[pt.Transformer], pt.Transformer] = field(default=lambda retriever: retriever)
    curve: pd.DataFrame | None = None

    def queries(self, topics: pd.DataFrame, engine: Engine) -> pd.DataFrame:
        """The topics with the query that this engine is searched with."""
        if isinstance(self.stage, pt.Transformer):
            return self.stage.transform(topics)
        options = dict(engine.form_options)
        return cs.form(self.stage, **options).transform(topics)


def engines(data: Data, index: cs.BM25Index, folder: Path, options: Any) -> list[Engine]:
    """BM25 and, unless that is not wanted, the untrained all-MiniLM-L6-v2."""
    found = [Engine("BM25", index.bm25(num_results=DEPTH, k1=options.k1, b=options.b))]
    if not options.no_dense:
        model = encoder(minilm(6))
        passages = cs.DenseIndex(folder / "passages.flex", model).index(data.corpus())
        found.append(dense_engine("MiniLM", passages.retriever(num_results=DEPTH), model))
        say("encoded with all-MiniLM-L6-v2")
    return found


def starting_encoder(layers: int, models: Path) -> str:
    """all-MiniLM-L6-v2 with so many of its layers, evenly spaced, in a folder."""
    folder = models / f"minilm-{layers}"
    if not (folder / "tokenizer.json").exists():
        model: Any = minilm(layers)
        model[0].model.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
    return str(folder)


def small_model(topics: pd.DataFrame, folder: Path) -> str:
    """A T5 of two layers with random weights, whose vocabulary are the words of these conversations, in a folder.

    Endings ('s) and punctuation are tokens of their own, and texts come back as they were.
    """
    if (folder / "tokenizer.json").exists():
        return str(folder)
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    tokenizer: Any = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex("'s|[?.,:;!|]"), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    texts = [*topics["query"], *topics["qrewrite"].dropna()]
    texts += [message["content"] for history in topics["qhistory"] for message in history]
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special, vocab_size=30_000))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(fast), d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1, dropout_rate=0.0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return str(folder)


def starting_model(name: str, freeze: int) -> tuple[Any, Any]:
    """A generating model with its tokenizer, of which the lowest layers and the embeddings are not to be trained; the
    name alone where all of it is."""
    if not freeze:
        return name, None
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    kind: Any = AutoModelForSeq2SeqLM if AutoConfig.from_pretrained(name).is_encoder_decoder else AutoModelForCausalLM
    model = kind.from_pretrained(name, dtype="float32")
    model.get_input_embeddings().requires_grad_(False)
    numbered = [re.search(r"\.(?:layers|h|block)\.(\d+)\.", weights) for weights, _ in model.named_parameters()]
    for found, (_, weights) in zip(numbered, model.named_parameters(), strict=True):
        if found and int(found.group(1)) < freeze:
            weights.requires_grad_(False)
    return model, AutoTokenizer.from_pretrained(name)


def reward_curve(folder: Path, start: float | None) -> pd.DataFrame:
    """Step, and the mean reward of rewrites: drawn and greedy ones of the training batches since the point before,
    greedy ones of the dev questions; step 0 is the rewriter it started from."""
    rows: list[dict[str, Any]] = [] if start is None else [{"step": 0, "dev": start}]
    for line in (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines():
        point: Mapping[str, Any] = json.loads(line)
        named = {"drawn": "drawn_reward", "greedy": "greedy_reward", "dev": "reward"}
        values = {name: point[key] for name, key in named.items() if key in point}
        if values:
            rows.append({"step": point["step"], **values})
    frame = pd.DataFrame(rows, columns=["step", "drawn", "greedy", "dev"])
    return frame.groupby("step", as_index=False).first()


__all__ = [
    "DEPTH", "NO_QUESTION", "WITH_REWRITE", "Data", "Made", "engines", "groups", "later", "reward_curve",
    "small_model", "starting_encoder", "starting_model",
]  # fmt: skip
