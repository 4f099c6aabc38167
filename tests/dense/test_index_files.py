"""Dense indexes on disk: what a kill leaves, what is damaged, what is replaced while open."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.dense import building

from .collection import CORPUS, TOPICS, many


@pytest.fixture(scope="module")
def encoder(tiny: Path) -> cs.BiEncoder:
    return cs.BiEncoder(tiny, bf16=False)


# Kills: USER_REPORTS 5.5

_SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from collection import many
import pt_convsearch as cs
from pt_convsearch.dense import building
building.BLOCK = 8

def slowly():
    for number, passage in enumerate(many(40)):
        if number == 30:
            Path({flag!r}).touch()
            time.sleep(60)
        yield passage

cs.DenseIndex({path!r}, cs.BiEncoder({model!r}, bf16=False)).index(slowly())
"""


def test_a_killed_run_is_taken_up(
    encoder: cs.BiEncoder, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, flag = tmp_path / "x.flex", tmp_path / "flag"
    script = _SLOW.format(tests=str(Path(__file__).parent), flag=str(flag), path=str(path), model=str(tiny))
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + 300
        while not flag.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        assert flag.exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not path.exists()
    assert not cs.DenseIndex(path, encoder).built()
    # what a kill in the middle of a write leaves
    work = tmp_path / "x.flex.building"
    with (work / "vecs.f4").open("ab") as out:
        out.write(b"half a vector")
    with (work / "blocks.jsonl").open("a", encoding="utf-8") as out:
        out.write('{"passages": 8, "dim')

    monkeypatch.setattr(building, "BLOCK", 8)
    encoded: list[str] = []
    whole = cs.BiEncoder.encode_docs
    monkeypatch.setattr(
        cs.BiEncoder, "encode_docs", lambda self, texts, batch_size=None: encoded.extend(texts) or whole(self, texts)
    )
    with caplog.at_level(logging.INFO):
        index = cs.DenseIndex(path, encoder).index(many(40))
    assert "found 3 blocks of 24 passages" in caplog.text
    assert len(encoded) == 16
    assert not work.exists()
    again = cs.DenseIndex(tmp_path / "again.flex", encoder).index(many(40))
    np.testing.assert_array_equal(index.vectors, again.vectors)
    assert list(index.docnos()) == list(again.docnos())
    assert index.meta["convsearch"]["collection"] == again.meta["convsearch"]["collection"]
    assert sorted(entry.name for entry in path.iterdir()) == ["docnos.npids", "pt_meta.json", "vecs.f4"]


def stopped(path: Path, encoder: cs.BiEncoder, after: int) -> None:
    def breaks() -> Iterator[dict[str, str]]:
        yield from many(after)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cs.DenseIndex(path, encoder).index(breaks())


@pytest.mark.parametrize("change", ["collection", "encoder", "vectors", "shorter"])
def test_a_run_that_was_stopped_is_taken_up_only_as_far_as_it_holds(
    encoder: cs.BiEncoder, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(building, "BLOCK", 4)
    path = tmp_path / "x.flex"
    stopped(path, encoder, after=18)
    corpus, other = list(many(20)), encoder
    if change == "collection":
        corpus[5] = {"docno": "d5", "text": "another text"}
    elif change == "encoder":
        other = cs.BiEncoder(tiny, max_passage_length=4, bf16=False)
    elif change == "vectors":
        with (tmp_path / "x.flex.building" / "vecs.f4").open("ab") as out:
            out.truncate(9 * 32 * 4)  # the disk was full
    else:
        corpus = corpus[:6]
    index = cs.DenseIndex(path, other).index(corpus)
    np.testing.assert_allclose(index.vectors, other.encode_docs([passage["text"] for passage in corpus]), atol=1e-5)
    assert list(index.docnos()) == [passage["docno"] for passage in corpus]


def test_half_an_index_of_pyterrier_dr_is_built_anew(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    path = tmp_path / "x.flex"
    path.mkdir()
    (path / "vecs.f4").write_bytes(b"\0" * 100)
    (path / "docnos.npids").write_bytes(b"")
    index = cs.DenseIndex(path, encoder)
    assert not index.built()
    assert len(index.index(CORPUS)) == 4


def test_the_metadata_is_json_that_says_what_was_done(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    meta = json.loads((tmp_path / "x.flex" / "pt_meta.json").read_text(encoding="utf-8"))
    assert (meta["type"], meta["format"], meta["doc_count"], meta["vec_size"]) == ("dense_index", "flex", 4, 32)
    assert meta["package_hint"] == "pt-convsearch"
    assert meta["convsearch"]["encoder"] == encoder.identity()


def _vectors(count: int, seed: int = 0) -> pd.DataFrame:
    vectors = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    return pd.DataFrame({"docno": [f"d{number}" for number in range(count)], "doc_vec": list(vectors)})


def test_an_index_replaced_while_open_stays_what_it_was(tmp_path: Path) -> None:
    """Vectors of the old index with docnos of the new one would be wrong results in silence."""
    passages = _vectors(30)
    topics = pd.DataFrame({"qid": ["1"], "query_vec": [passages["doc_vec"][7] * 100]})
    index = cs.DenseIndex(tmp_path / "x.flex").index(passages)
    waiting = cs.DenseIndex(tmp_path / "x.flex")
    assert len(waiting) == 30
    assert index.vectors.shape == (30, 8)
    other = _vectors(20, seed=1)
    other["doc_vec"] = [*passages["doc_vec"][7:8], *other["doc_vec"][1:]]
    new = cs.DenseIndex(tmp_path / "x.flex", overwrite=True).index(other)
    for options in ({}, {"exact": False, "faiss": "HNSW32"}):
        old = index.retriever(num_results=1, **options)
        assert old(topics)["docno"].tolist() == ["d7"]
        assert new.retriever(num_results=1, **options)(topics)["docno"].tolist() == ["d0"]
        assert len(new.retriever(num_results=50, **options)(topics)) == 20
    # what was not yet open when the index was replaced is the new one
    assert waiting.retriever(num_results=1)(topics)["docno"].tolist() == ["d0"]


@pytest.mark.parametrize("size", [None, 0, 30])
def test_a_file_that_is_missing_or_cut_is_named(tmp_path: Path, size: int | None) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex").index(_vectors(30))
    topics = pd.DataFrame({"qid": ["1"], "query_vec": [np.ones(8, dtype=np.float32)]})
    for name in ("vecs.f4", "docnos.npids"):
        path = index.index_path / name
        content = path.read_bytes()
        path.unlink()
        if size is not None:
            path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=f"{name}.*damaged, rebuild it"):
            cs.DenseIndex(tmp_path / "x.flex").retriever()(topics)
        path.write_bytes(content)
    right = index.retriever(num_results=3, exact=False, faiss="SQ8")(topics)
    (kept,) = index.index_path.glob("faiss-*")
    kept.write_bytes(kept.read_bytes()[: size or 0])
    pd.testing.assert_frame_equal(
        cs.DenseIndex(tmp_path / "x.flex").retriever(num_results=3, exact=False, faiss="SQ8")(topics), right
    )
    if size is not None:
        (index.index_path / "pt_meta.json").write_bytes(b"{"[:size])
        with pytest.raises(ValueError, match=r"pt_meta\.json is damaged"):
            cs.DenseIndex(tmp_path / "x.flex")


def test_an_approximate_index_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex").index(_vectors(30))
    topics = pd.DataFrame({"qid": ["1"], "query_vec": [np.ones(8, dtype=np.float32)]})

    def refuse(*_: Any) -> None:
        raise RuntimeError("could not open for writing: Permission denied")

    monkeypatch.setattr("faiss.write_index", refuse)
    assert len(index.retriever(num_results=3, exact=False, faiss="SQ8")(topics)) == 3
    assert sorted(path.name for path in index.index_path.iterdir()) == ["docnos.npids", "pt_meta.json", "vecs.f4"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "docno 'd2' is no vector"),
        ("abc", "docno 'd2' is no vector"),
        ([], "docno 'd2' is no vector"),
        ([[1.0] * 8], "docno 'd2' is no vector"),
        ([1.0] * 7, r"\[7, 8\] dimensions"),
    ],
)
def test_what_is_no_vector_is_named(tmp_path: Path, wrong: Any, message: str) -> None:
    vectors = [[1.0] * 8, [2.0] * 8, wrong]
    passages = pd.DataFrame({"docno": ["d0", "d1", "d2"], "doc_vec": pd.Series(vectors, dtype=object)})
    with pytest.raises(ValueError, match=message):
        cs.DenseIndex(tmp_path / "x.flex").index(passages)
    index = cs.DenseIndex(tmp_path / "y.flex").index(_vectors(3))
    topics = passages.rename(columns={"docno": "qid", "doc_vec": "query_vec"})
    with pytest.raises(ValueError, match=message.replace("docno", "qid")):
        index.retriever()(topics)


def test_an_encoder_is_compared_before_it_searches_whatever_overwrite_says(
    encoder: cs.BiEncoder, tiny: Path, tmp_path: Path
) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    other = cs.BiEncoder(tiny, bf16=False, similarity="dot" if encoder.similarity == "cosine" else "cosine")
    index = cs.DenseIndex(tmp_path / "x.flex", other, overwrite=True)
    with pytest.raises(ValueError, match="was built with"):
        index.retriever()(TOPICS)
    assert len(index.index(CORPUS).retriever()(TOPICS)) == 8


def test_overwrite_spares_what_is_no_dense_index(tmp_path: Path) -> None:
    lexical = cs.BM25Index(tmp_path / "x").index(CORPUS[:1])
    with pytest.raises(FileExistsError, match=r"sparse_index\.convsearch_bm25"):
        cs.DenseIndex(tmp_path / "x", overwrite=True).index(_vectors(3))
    assert len(cs.BM25Index(lexical.path)) == 1
    index = cs.DenseIndex(tmp_path / "y.flex").index(_vectors(3))
    (index.index_path / "pt_meta.json").write_text("{", encoding="utf-8")
    assert len(cs.DenseIndex(tmp_path / "y.flex", overwrite=True).index(_vectors(2))) == 2


def test_two_runs_do_not_write_one_index_at_once(tmp_path: Path) -> None:
    def slowly() -> Iterator[dict[str, Any]]:
        records = _vectors(5).to_dict("records")
        yield records[0]
        with pytest.raises(RuntimeError, match="written by another run"):
            cs.DenseIndex(tmp_path / "x.flex").index(_vectors(3))
        yield from records[1:]

    assert len(cs.DenseIndex(tmp_path / "x.flex").index(slowly())) == 5
    with pytest.raises(ZeroDivisionError):
        cs.DenseIndex(tmp_path / "y.flex").index({"docno": str(1 // number)} for number in (1, 0))
    assert len(cs.DenseIndex(tmp_path / "y.flex").index(_vectors(3))) == 3


@pytest.mark.parametrize("name", ["settings.json", "blocks.jsonl"])
def test_a_working_folder_that_was_cut_is_begun_anew(
    encoder: cs.BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(building, "BLOCK", 2)

    def killed() -> Iterator[dict[str, str]]:
        yield from CORPUS[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cs.DenseIndex(tmp_path / "x.flex", encoder).index(killed())
    (tmp_path / "x.flex.building" / name).write_text("{\n", encoding="utf-8")
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    whole = cs.DenseIndex(tmp_path / "y.flex", encoder).index(CORPUS)
    np.testing.assert_array_equal(index.vectors, whole.vectors)
