"""PARADE's network: an encoder of passages, and what makes one vector of a document's passage vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .._files import PathLike, json_or_none, write_json
from .parade import SETTINGS, Aggregator

AGGREGATOR = "aggregator.safetensors"
ENCODER = "encoder"


class Attention(nn.Module):
    """Weights the passages by a softmax over w . p_i and adds them up."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Linear(size, 1, bias=False)

    def forward(self, passages: Tensor, there: Tensor) -> Tensor:
        logits = self.weight(passages).squeeze(-1).masked_fill(~there, float("-inf"))
        return (torch.softmax(logits, dim=1).unsqueeze(-1) * passages).sum(dim=1)


class Average(nn.Module):
    """The mean of the passages."""

    def forward(self, passages: Tensor, there: Tensor) -> Tensor:
        there = there.unsqueeze(-1)
        return (passages * there).sum(dim=1) / there.sum(dim=1)


class Maximum(nn.Module):
    """The largest value of the passages in each dimension."""

    def forward(self, passages: Tensor, there: Tensor) -> Tensor:
        return passages.masked_fill(~there.unsqueeze(-1), float("-inf")).amax(dim=1)


class Transformer(nn.Module):
    """A learnt first vector and the passages, with learnt positions, through transformer layers: the first vector."""

    def __init__(self, size: int, heads: int, most: int, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(size))
        self.positions = nn.Parameter(torch.zeros(most + 1, size))
        layer = nn.TransformerEncoderLayer(
            size, heads, dim_feedforward=4 * size, dropout=dropout, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, passages: Tensor, there: Tensor) -> Tensor:
        count = passages.shape[1]
        read = torch.cat([self.first.expand(len(passages), 1, -1), passages], dim=1) + self.positions[: count + 1]
        hidden = torch.cat([torch.zeros_like(there[:, :1]), ~there], dim=1)
        return self.layers(read, src_key_padding_mask=hidden)[:, 0]


def _aggregator(name: Aggregator, size: int, heads: int, most: int) -> nn.Module:
    if name == "attn":
        return Attention(size)
    if name == "avg":
        return Average()
    return Maximum() if name == "max" else Transformer(size, heads, most)


class ParadeNetwork(nn.Module):
    """Passage vectors ([CLS] of an encoder that reads question and passage), aggregated, to a score.

    Args:
        encoder: a transformers model.
        aggregator: "transformer", "attn", "avg" or "max".
        most: the most passages of a document.
    """

    def __init__(self, encoder: Any, aggregator: Aggregator, most: int) -> None:
        super().__init__()
        if aggregator not in get_args(Aggregator):
            raise ValueError(f"aggregator={aggregator!r}: one of {', '.join(get_args(Aggregator))}")
        size = encoder.config.hidden_size
        self.encoder = encoder
        self.aggregator_name: Aggregator = aggregator
        self.most = most
        self.aggregator = _aggregator(aggregator, size, encoder.config.num_attention_heads, most)
        self.head = nn.Linear(size, 1)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def passage_vectors(self, **features: Tensor) -> Tensor:
        """The first vector of each passage, [CLS]."""
        return self.encoder(**features).last_hidden_state[:, 0]

    def document_scores(self, vectors: Tensor, documents: Tensor, places: Tensor, count: int) -> Tensor:
        """Scores of documents.

        Args:
            vectors: of passages.
            documents: which document each is of.
            places: which of its passages.
            count: documents.
        """
        most = int(places.max()) + 1
        table = vectors.new_zeros((count, most, vectors.shape[1]), dtype=torch.float32)
        there = torch.zeros((count, most), dtype=torch.bool, device=vectors.device)
        table[documents, places] = vectors.float()
        there[documents, places] = True
        with torch.autocast(vectors.device.type, enabled=False):
            return self.head(self.aggregator(table, there)).squeeze(-1)

    def forward(self, documents: Tensor, places: Tensor, count: Tensor, **features: Tensor) -> Tensor:
        return self.document_scores(self.passage_vectors(**features), documents, places, int(count))

    def save(self, folder: Path, tokenizer: Any, settings: dict[str, Any]) -> None:
        """Write encoder, tokenizer, aggregator and settings."""
        self.encoder.save_pretrained(folder / ENCODER)
        tokenizer.save_pretrained(folder / ENCODER)
        rest = {name: tensor.contiguous() for name, tensor in self._rest().items()}
        save_file(rest, folder / AGGREGATOR)
        write_json(folder / SETTINGS, {**settings, "aggregator": self.aggregator_name, "max_passages": self.most})

    def _rest(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("encoder.")}

    @classmethod
    def load(cls, folder: PathLike, device: Any = None) -> tuple[ParadeNetwork, Any, dict[str, Any]]:
        """The network, its tokenizer and settings.

        Raises:
            ValueError: the folder is no PARADE model, or damaged.
        """
        from transformers import AutoModel, AutoTokenizer

        from .._process import quiet

        folder = Path(folder)
        settings = json_or_none(folder / SETTINGS)
        if not isinstance(settings, dict) or not {"aggregator", "max_passages"} <= set(settings):
            raise ValueError(f"{folder} is no PARADE model (no whole {SETTINGS}): train one by cs.train_parade")
        with quiet():
            encoder = AutoModel.from_pretrained(str(folder / ENCODER), **without_pooler(str(folder / ENCODER)))
        network = cls(encoder, settings["aggregator"], settings["max_passages"])
        try:
            missing, unexpected = network.load_state_dict(load_file(folder / AGGREGATOR), strict=False)
        except (OSError, RuntimeError, SafetensorError) as error:
            raise ValueError(f"{folder / AGGREGATOR} is missing or damaged ({error})") from error
        wrong = [name for name in missing if not name.startswith("encoder.")] + list(unexpected)
        if wrong:
            raise ValueError(f"{folder / AGGREGATOR} does not fit the settings ({wrong[0]})")
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return network.to(place).eval(), AutoTokenizer.from_pretrained(str(folder / ENCODER)), settings


def without_pooler(name: str) -> dict[str, Any]:
    """Options that leave out BERT's pooler, which PARADE does not read, where the class takes them."""
    import inspect

    from transformers import AutoConfig, AutoModel

    kind: Any = AutoModel._model_mapping[type(AutoConfig.from_pretrained(name))]
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(kind.__init__).parameters else {}


def parade_features(
    features: dict[str, list[list[list[int]]]], tokenizer: Any, rows: list[tuple[int, int]]
) -> dict[str, Tensor]:
    """A padded batch of the passages (document, place)."""
    flat = {name: [values[document][place] for document, place in rows] for name, values in features.items()}
    return dict(tokenizer.pad(flat, padding=True, return_tensors="pt"))
