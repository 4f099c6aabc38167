"""A small SPLADE where no hub can be reached: MiniLM as a masked language model over the collection's own word pieces,
trained with the losses of sentence-transformers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from _rows import minilm

import pt_convsearch as cs

#: the share of the vocabulary that a text weighs before training: the biases of the logits are set so
_ACTIVE = 0.05


def train_splade(
    pairs: cs.TrainingPairs,
    texts: Iterable[str],
    folder: Path,
    *,
    layers: int,
    steps: int,
    batch_size: int,
    lengths: tuple[int, int],
    seed: int,
) -> None:
    """Train on a mined set and save into ``folder``.

    Args:
        pairs: ad hoc questions with one hard negative each.
        texts: whose word pieces make the vocabulary.
        folder: to write.
        layers: of MiniLM, the lowest ones.
        steps: optimiser steps.
        batch_size: questions a step.
        lengths: tokens of queries and of passages.
        seed: of the order and the dropout.
    """
    from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import PrinterCallback, set_seed

    set_seed(seed)
    with tempfile.TemporaryDirectory() as temporary:
        masked_language_model(Path(temporary), list(texts), layers)
        transformer = Transformer(temporary, transformer_task="fill-mask", max_seq_length=max(lengths))
        vocabulary = int(transformer.config.vocab_size)
        model = SparseEncoder(modules=[transformer, SpladePooling("max", embedding_dimension=vocabulary)], device="cpu")
        loss = SpladeLoss(
            model, SparseMultipleNegativesRankingLoss(model), query_regularizer_weight=1e-3,
            document_regularizer_weight=1e-3,
        )  # fmt: skip
        trainer = SparseEncoderTrainer(
            model=model,
            args=SparseEncoderTrainingArguments(
                output_dir=temporary, max_steps=steps, per_device_train_batch_size=batch_size, learning_rate=5e-4,
                warmup_steps=max(1, steps // 10), report_to="none", save_strategy="no", disable_tqdm=True, seed=seed,
                logging_steps=max(1, steps // 4), use_cpu=True,
            ),
            train_dataset=pairs.to_dataset(num_negatives=1, seed=seed),
            loss=loss,
            callbacks=[SpladeRegularizerWeightSchedulerCallback(loss)],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        model.save_pretrained(str(folder), create_model_card=False)


def masked_language_model(folder: Path, texts: list[str], layers: int) -> None:
    """Save MiniLM with a head that scores the word pieces of ``texts``, its own embeddings as their vectors."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    encoder = minilm(layers)
    inner, tokenizer = encoder[0].model, encoder.tokenizer
    special = [tokenizer.pad_token, tokenizer.unk_token, tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token]
    used = {number for row in tokenizer(texts, add_special_tokens=False)["input_ids"] for number in row}
    letters = [piece for piece in tokenizer.get_vocab() if len(piece.removeprefix("##")) == 1]  # any word can be spelt
    pieces = [*special, *sorted({*tokenizer.convert_ids_to_tokens(sorted(used)), *letters} - set(special))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    config = BertConfig(**{**inner.config.to_dict(), "vocab_size": len(pieces), "architectures": ["BertForMaskedLM"]})
    model = BertForMaskedLM(config)
    rows = torch.tensor(tokenizer.convert_tokens_to_ids(pieces))
    with torch.no_grad():
        state = {name: value for name, value in inner.state_dict().items() if not name.startswith("pooler.")}
        state["embeddings.word_embeddings.weight"] = state["embeddings.word_embeddings.weight"][rows]
        model.bert.load_state_dict(state, strict=False)
        model.cls.predictions.transform.dense.weight.copy_(torch.eye(config.hidden_size))
        model.cls.predictions.transform.dense.bias.zero_()
        model.cls.predictions.bias.zero_()
        model.tie_weights()
        model.eval()
        small = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64)
        sample = small(texts[:32], padding=True, truncation=True, return_tensors="pt")
        highest = model(**sample).logits.masked_fill(sample["attention_mask"][..., None] == 0, -torch.inf).amax(dim=1)
        model.cls.predictions.bias -= float(np.quantile(highest.numpy(), 1 - _ACTIVE))
    model.save_pretrained(folder)
    _task(folder)


def _task(folder: Path) -> None:
    """The configuration says what the model is for."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}, indent=2) + "\n", encoding="utf-8")
