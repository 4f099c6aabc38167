"""What the examples in docstrings find: a small collection, indexes, and tiny models under the names that they use.

An example says ``cs.train(pairs, init="bert-base-uncased", …)``; here it runs in a folder in which ``pairs`` is known
and ``bert-base-uncased`` a random model of two small layers. Everything is made when an example first asks for it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CAPITALS = {
    "peru": "lima", "chile": "santiago", "kenya": "nairobi", "ghana": "accra", "japan": "tokyo",
    "nepal": "kathmandu", "spain": "madrid", "italy": "rome", "egypt": "cairo", "sudan": "khartoum",
    "syria": "damascus", "qatar": "doha", "yemen": "sanaa", "tonga": "nukualofa", "samoa": "apia",
    "malta": "valletta", "niger": "niamey", "benin": "cotonou", "gabon": "libreville", "haiti": "jacmel",
}  # fmt: skip
PROMPTS = ["Query", "Document", "Document0", "Document1", "Relevant", ":", "true", "false", "|||", "[SEP]", "go"]


class Desk:
    """Names and models, made when first asked for, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = NAMES[name](self)
        return self._made[name]

    def set_for(self, sources: Iterable[str], place: Path) -> dict[str, Any]:
        """Put the models and files that the examples name into a folder, and give the names that they do not set."""
        found: dict[str, Any] = {}
        known: set[str] = set()
        for source in sources:
            nodes = list(ast.walk(ast.parse(source)))
            for node in nodes:
                if isinstance(node, ast.Constant) and node.value in MODELS:
                    self._put(node.value, place)
                if isinstance(node, ast.Constant) and node.value in FILES:
                    FILES[node.value](self)
                    (place / node.value).symlink_to(self.folder / node.value)
            names = [node for node in nodes if isinstance(node, ast.Name)]
            for node in names:
                if isinstance(node.ctx, ast.Load) and node.id in NAMES and node.id not in known:
                    found[node.id] = self[node.id]
            known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
            imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
            known |= {alias.asname or alias.name for node in imports for alias in node.names}
        return found

    def _put(self, model: str, place: Path) -> None:
        folder = self.folder / model
        if not folder.exists():
            folder.mkdir(parents=True)
            MODELS[model](folder)
        if not (place / model).exists():
            (place / model).parent.mkdir(parents=True, exist_ok=True)
            (place / model).symlink_to(folder)


def log() -> list[dict[str, Any]]:
    """Twenty conversations of two questions."""
    return [
        {
            "id": str(number + 1),
            "messages": [
                {"role": "user", "content": f"what is the capital of {country}?"},
                {"role": "assistant", "content": f"{city} is the capital of {country}."},
                {"role": "user", "content": "how many people live there?"},
                {"role": "assistant", "content": f"{number + 1} million people live in {city}."},
            ],
        }
        for number, (country, city) in enumerate(CAPITALS.items())
    ]


def topics(desk: Desk) -> Any:
    import pt_convsearch as cs

    rewrites = [
        text
        for country, city in CAPITALS.items()
        for text in (f"what is the capital of {country}?", f"how many people live in {city}?")
    ]
    return cs.topics.from_messages(log()).assign(qrewrite=rewrites)


def corpus(desk: Desk) -> list[dict[str, str]]:
    task = desk["task"]
    return [{"docno": doc["docno"], "title": "a country", "text": doc["text"]} for doc in task.corpus]


def _cs() -> Any:
    import pt_convsearch

    return pt_convsearch


def _measure(name: str) -> Any:
    import ir_measures

    return getattr(ir_measures, name)


def _encoder(desk: Desk) -> Any:
    bert(desk.folder / "desk-encoder")
    return _cs().BiEncoder(desk.folder / "desk-encoder", pooling="mean", similarity="cosine", bf16=False)


def _pairs(desk: Desk, name: str = "pairs.shortcut") -> Any:
    cs = _cs()
    return cs.training_pairs(
        desk["topics"], desk["qrels"], desk["corpus"], form=cs.X, negatives=cs.RandomNegatives(desk["corpus"]),
        out=desk.folder / name,
    )  # fmt: skip


NAMES: dict[str, Callable[[Desk], Any]] = {
    "cs": lambda desk: _cs(),
    "RR": lambda desk: _measure("RR"),
    "topics": topics,
    "train_topics": topics,
    "dev_topics": topics,
    "task": lambda desk: _cs().topics.answers(desk["topics"]),
    "qrels": lambda desk: desk["task"].qrels,
    "dev_qrels": lambda desk: desk["task"].qrels,
    "corpus": corpus,
    "documents": corpus,
    "index": lambda desk: _cs().BM25Index(desk.folder / "desk.bm25").index(desk["corpus"]),
    "bm25": lambda desk: desk["index"].bm25(num_results=10),
    "encoder": _encoder,
    "dense_index": lambda desk: _cs().DenseIndex(desk.folder / "desk.flex", desk["encoder"]).index(desk["corpus"]),
    "dense": lambda desk: desk["dense_index"].retriever(num_results=10),
    "shards": lambda desk: _cs()
    .scale.ShardedIndex(desk.folder / "desk.shards", desk["encoder"], passages_per_shard=20, threads=1)
    .index(desk["corpus"]),
    "pairs": _pairs,
    "bm25_pairs": lambda desk: _pairs(desk, "bm25"),
    "random_pairs": lambda desk: _pairs(desk, "random"),
    "electra": lambda desk: _cs().CrossEncoder(str(made(desk, cross_encoder, "electra")), bf16=False),
}


def made(desk: Desk, maker: Callable[[Path], None], name: str) -> Path:
    folder = desk.folder / name
    folder.mkdir(exist_ok=True)
    maker(folder)
    return folder


def words() -> list[str]:
    texts = " ".join(message["content"] for record in log() for message in record["messages"])
    found = dict.fromkeys(texts.replace("?", " ?").replace(".", " .").split())
    return [*found, "country", "title"]


def tokenizer(folder: Path) -> int:
    """A WordPiece tokenizer of the collection's words; its size."""
    from transformers import BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    vocabulary = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words(), ":", ",", *pieces]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    return len(vocabulary)


def _bert(folder: Path, kind: str, **options: Any) -> None:
    import torch
    import transformers

    size = tokenizer(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=64, initializer_range=0.3, **options,
    )  # fmt: skip
    getattr(transformers, kind)(config).save_pretrained(folder)


def bert(folder: Path) -> None:
    _bert(folder, "BertModel")


def masked(folder: Path) -> None:
    _bert(folder, "BertForMaskedLM")


def cross_encoder(folder: Path) -> None:
    _bert(folder, "BertForSequenceClassification", num_labels=1)


def t5(folder: Path) -> None:
    from tests.tiny_seq2seq import tiny_t5

    tiny_t5(folder, [*words(), *PROMPTS])


def causal(folder: Path) -> None:
    from tests.rewriting.conftest import tiny_gpt2

    tiny_gpt2(folder, positions=600)


MODELS: dict[Any, Callable[[Path], None]] = {
    "bert-base-uncased": bert,
    "castorini/ance-msmarco-passage": bert,
    "google/electra-base-discriminator": bert,
    "sentence-transformers/all-MiniLM-L6-v2": bert,
    "naver/splade-cocondenser-ensembledistil": masked,
    "cross-encoder/ms-marco-electra-base": cross_encoder,
    "castorini/monot5-base-msmarco": t5,
    "castorini/t5-base-canard": t5,
    "t5-base": t5,
    "monot5": t5,
    "duot5": t5,
    "resp2ctxt-model": t5,
    "microsoft/DialoGPT-small": causal,
}


def _dialogues(desk: Desk) -> None:
    from pt_convsearch._files import writing_text

    with writing_text(desk.folder / "dialogues.jsonl") as handle:
        for record in log()[:5]:
            said = [{"speaker": message["role"], "text": message["content"]} for message in record["messages"]]
            handle.write(json.dumps({"dialogue_id": record["id"], "utterances": said}) + "\n")


FILES: dict[Any, Callable[[Desk], Any]] = {
    "dialogues.jsonl": _dialogues,
    "pairs.shortcut": lambda desk: desk["pairs"],
}
