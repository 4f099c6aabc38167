"""Folders of encoders and indexes that were moved: what is mined or trained with them is the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pt_convsearch as cs
from pt_convsearch.negatives._fingerprint import digest

PASSAGES = [{"docno": "a", "text": "frank herbert wrote dune"}, {"docno": "b", "text": "paris is the capital"}]


def test_an_encoder_and_its_index_that_were_moved(tiny: Path, bert: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "encoder")
    index = cs.DenseIndex(tmp_path / "i.flex", cs.BiEncoder(tmp_path / "encoder", bf16=False)).index(PASSAGES)
    before = digest(index.retriever(num_results=5))
    opened = cs.DenseIndex(tmp_path / "i.flex")
    assert digest(opened.retriever(num_results=5)) == before
    assert opened == index
    assert opened.encoder is not None  # loaded by its name: the same before and after
    assert digest(opened.retriever(num_results=5)) == before
    shutil.move(tmp_path / "encoder", tmp_path / "moved")
    shutil.move(tmp_path / "i.flex", tmp_path / "moved.flex")
    moved = cs.BiEncoder(tmp_path / "moved", bf16=False)
    assert digest(cs.DenseIndex(tmp_path / "moved.flex", moved).retriever(num_results=5)) == before
    again = cs.DenseIndex(tmp_path / "i.flex", moved).index(PASSAGES)  # built with the encoder in its new place
    assert digest(again.retriever(num_results=5)) == before
    for other in (
        again.retriever(num_results=4),
        cs.DenseIndex(tmp_path / "i.flex", cs.BiEncoder(tmp_path / "moved", max_query_length=7)).retriever(
            num_results=5
        ),
        cs.DenseIndex(tmp_path / "other.flex", moved).index(PASSAGES[::-1]).retriever(num_results=5),
        cs.DenseIndex(tmp_path / "weights.flex", cs.BiEncoder(bert(1))).index(PASSAGES).retriever(num_results=5),
    ):
        assert digest(other) != before


def test_a_tokenizer_that_was_moved(tiny: Path, bert: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "encoder")
    before = digest(cs.form(cs.X, max_tokens=9, tokenizer=str(tmp_path / "encoder")))
    shutil.move(tmp_path / "encoder", tmp_path / "moved")
    assert digest(cs.form(cs.X, max_tokens=9, tokenizer=str(tmp_path / "moved"))) == before
    assert digest(cs.form(cs.X, max_tokens=8, tokenizer=str(tmp_path / "moved"))) != before
    assert digest(cs.form(cs.X, max_tokens=9)) != before


def test_recorded_answers_that_were_moved(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"content": "1", "answer": "x"}\n', encoding="utf-8")
    before = digest(cs.LLMRewriter(None, "model", cache=tmp_path / "a.jsonl", recorded=True))
    shutil.move(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert digest(cs.LLMRewriter(None, "model", cache=tmp_path / "b.jsonl", recorded=True)) == before
    (tmp_path / "b.jsonl").write_text('{"content": "1", "answer": "y"}\n', encoding="utf-8")
    assert digest(cs.LLMRewriter(None, "model", cache=tmp_path / "b.jsonl", recorded=True)) != before
