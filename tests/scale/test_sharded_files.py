"""The files of shards: a run that was killed, damage and what finds it, what is laid aside on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pt_convsearch as cs
from pt_convsearch.scale import ShardedIndex
from pt_convsearch.scale.building import _line, _read_spool
from pt_convsearch.scale.storage import Storage

from .conftest import some_topics, tied_docs


class Killed(BaseException):
    """What a kill looks like to the code: nothing catches it."""


def stopping(docs, after):
    for number, doc in enumerate(docs):
        if number == after:
            raise Killed
        yield doc


def test_a_run_that_was_killed_is_taken_up(tmp_path, caplog):
    docs = tied_docs(100)
    with pytest.raises(Killed):
        ShardedIndex(tmp_path / "x", passages_per_shard=20).index(stopping(docs, 70))
    assert not (tmp_path / "x").exists()
    made = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "x.building").glob("shard-*/pt_meta.json")}
    records = sorted((tmp_path / "x.building" / "records").glob("shard-*.json"))
    assert [record.name for record in records] == ["shard-00000.json", "shard-00001.json", "shard-00002.json"]
    builds = [json.loads((tmp_path / f"x.building/{r.stem}/pt_meta.json").read_text())["build"] for r in records]
    with caplog.at_level("INFO"):
        index = ShardedIndex(tmp_path / "x", passages_per_shard=20).index(docs)
    assert "found 3 shards" in caplog.text
    kept = [json.loads((tmp_path / f"x/{r.stem}/pt_meta.json").read_text())["build"] for r in records]
    assert kept == builds
    assert made
    one = cs.BM25Index(tmp_path / "one").index(docs)
    pd.testing.assert_frame_equal(index.bm25()(some_topics()), one.bm25()(some_topics()))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "x"]


def test_passages_that_changed_meanwhile_are_indexed_anew(tmp_path):
    docs = tied_docs(60)
    with pytest.raises(Killed):
        ShardedIndex(tmp_path / "x", passages_per_shard=20).index(stopping(docs, 45))
    docs[25] = {"docno": "new", "text": "w1 novel"}
    index = ShardedIndex(tmp_path / "x", passages_per_shard=20).index(docs)
    assert index.bm25().search("novel")["docno"].tolist() == ["new"]
    assert index.docnos() == [doc["docno"] for doc in docs]


@pytest.mark.parametrize("damage", ["missing", "cut", "folder"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=30).index(tied_docs(90))
    shard = tmp_path / "x" / "shard-00001"
    if damage == "folder":
        shard.rename(tmp_path / "elsewhere")
    elif damage == "missing":
        (shard / "postings.docs.npy").unlink()
    else:
        with (shard / "postings.docs.npy").open("r+b") as file:
            file.truncate(100)
    with pytest.raises(ValueError, match="shard-00001 is damaged: "):
        ShardedIndex(index.path).bm25().search("w1")


def test_altered_bytes_are_found_by_verify(tmp_path):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=30).index(tied_docs(90))
    index.verify()
    path = tmp_path / "x" / "shard-00002" / "lengths.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard-00002 is damaged: lengths\.npy"):
        index.verify()


def test_overwrite_leaves_no_shard_of_before(tmp_path):
    ShardedIndex(tmp_path / "x", passages_per_shard=10).index(tied_docs(50))
    index = ShardedIndex(tmp_path / "x", passages_per_shard=10, overwrite=True).index(tied_docs(15))
    assert index.num_shards == 2
    assert sorted(path.name for path in Path(index.path).glob("shard-*")) == ["shard-00000", "shard-00001"]
    assert len(ShardedIndex(tmp_path / "x")) == 15


@pytest.mark.parametrize(
    "vector",
    [
        np.array([0.1, -2.5, 3e-30], dtype=np.float32),
        np.array([1 / 3, 2.0]),
        np.array([-128, 127], dtype=np.int8),
        torch.tensor([0.1, 7.0]),
        [0.1, 7.0],
    ],
    ids=["float32", "float64", "int8", "tensor", "list"],
)
def test_vectors_come_back_from_the_spool_as_they_went_in(vector: Any, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    doc = {"docno": "a\nb", "doc_vec": vector, "left": "out"}
    (tmp_path / "records").mkdir()
    line = _line(doc, ("docno", "doc_vec"))
    (tmp_path / "records" / "s.jsonl").write_bytes(line)
    (found,) = _read_spool(storage, "s")
    assert found.keys() == {"docno", "doc_vec"}
    assert found["docno"] == "a\nb"
    assert np.asarray(found["doc_vec"]).dtype == np.asarray(vector).dtype
    assert np.array_equal(np.asarray(found["doc_vec"]), np.asarray(vector))


def test_a_vector_in_the_spool_is_not_written_out_in_decimals() -> None:
    vector = np.full(768, 1 / 3, dtype=np.float32)  # 0.3333333432674408: 20 characters each
    assert len(_line({"docno": "d", "doc_vec": vector}, ("docno", "doc_vec"))) < 1.5 * vector.nbytes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "x"
    ShardedIndex(folder, passages_per_shard=4, threads=1).index(tied_docs(9)).verify()
    return folder


def test_verify_looks_at_the_statistics_of_the_whole_too(whole: Path) -> None:
    """A df that is off by one is another score for each of its documents, and no shard's file differs."""
    path = whole / "statistics" / "df.npy"
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
        with pytest.raises(ValueError, match=r"x/statistics is damaged: df\.npy is not what was written"):
            ShardedIndex(whole).verify()
        path.unlink()
        with pytest.raises(ValueError, match=r"x/statistics is damaged: df\.npy is missing"):
            ShardedIndex(whole).verify()
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("old", "new"),
    [("{", "[{"), ("{", ""), ('"shards"', '"sherds"'), ('"num_tokens"', '"tokens"'), ('"num_docs": 9', '"num_docs": 8'),
     ('"kind": "bm25"', '"kind": "bm52"'), ('"first"', '"last"')],
)  # fmt: skip
def test_a_list_of_shards_that_is_not_what_was_written_is_told(whole: Path, old: str, new: str) -> None:
    path = whole / "shards.json"
    content = path.read_text(encoding="utf-8")
    assert old in content
    try:
        path.write_text(content.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=r"x/shards\.json is damaged .*build the index anew"):
            ShardedIndex(whole).bm25()
        path.write_text("[]", encoding="utf-8")
        with pytest.raises(ValueError, match=r"x/shards\.json is damaged \(it holds a list"):
            ShardedIndex(whole)
    finally:
        path.write_text(content, encoding="utf-8")
