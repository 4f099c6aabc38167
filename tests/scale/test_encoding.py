"""Encoding on workers: the vectors and the metadata of one machine, and what happens when something breaks."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.scale import encode
from pt_convsearch.scale.parts import Parts
from pt_convsearch.scale.sources import FileSource, blocks, files_of, source
from pt_convsearch.scale.storage import Storage

from .conftest import some_topics, tied_docs


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 passages, here and on one machine."""
    monkeypatch.setattr("pt_convsearch.scale.encoding.BLOCK", 64)
    monkeypatch.setattr("pt_convsearch.dense.building.BLOCK", 64)


def test_files_are_read_in_order(tmp_path):
    docs = tied_docs(10)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(doc) for doc in docs[4:7]) + "\n\n", encoding="utf-8")
    pd.DataFrame(docs[:4]).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame(docs[7:]).to_json(tmp_path / "c.jsonl.gz", orient="records", lines=True)
    assert list(FileSource(files_of(tmp_path))()) == docs
    assert list(FileSource(files_of(tmp_path / "*.jsonl*"))()) == docs[4:]
    assert (
        list(source([tmp_path / "c.jsonl.gz", tmp_path / "b.jsonl"], Storage(tmp_path / "s"), ["text"])())
        == docs[7:] + docs[4:7]
    )
    with pytest.raises(FileNotFoundError, match="no file at"):
        files_of(tmp_path / "none.jsonl")
    (tmp_path / "readme.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="neither JSON Lines"):
        files_of(tmp_path / "readme.txt")
    (tmp_path / "d.jsonl").write_text('{"docno": "1"}\n{"docno"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"d\.jsonl, line 2"):
        list(FileSource(files_of(tmp_path / "d.jsonl"))())


def test_what_can_be_read_once_is_copied(tmp_path):
    docs = tied_docs(10)
    read = source(iter(docs), Storage(tmp_path / "spool"), ["title", "text"])
    assert [doc["text"] for doc in read()] == [doc["text"] for doc in docs]
    assert list(read()) == list(read())
    data = cs.dataset("testbed")
    assert next(source(data, Storage(tmp_path / "s"), ["text"])()) == next(data.get_corpus_iter())
    with pytest.raises(ValueError, match="text of docno 'b' is None"):
        list(blocks([{"docno": "a", "text": "x"}, {"docno": "b", "text": None}], ["text"], 5))
    with pytest.raises(ValueError, match="'docno'"):
        list(blocks([{"docno": None, "text": "x"}], ["text"], 5))
    assert [number for number, _ in blocks(pd.DataFrame(docs), ["text"], 4)] == [0, 1, 2]


def test_parts_are_kept_only_whole_and_for_the_same_encoder(tmp_path):
    parts = Parts(Storage(tmp_path / "p"), {"encoder": "one"})
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    part = parts.write(0, ["a", "b", "ç", "d"], vectors, "digest", 2)
    assert (part.count, part.dimensions, part.cut) == (4, 3, 2)
    assert part.max_norm == pytest.approx(np.sqrt(9**2 + 10**2 + 11**2))
    content = Parts(Storage(tmp_path / "p"), {"encoder": "one"}).read(part)
    assert content.docnos == ["a", "b", "ç", "d"]
    assert np.array_equal(content.vectors, vectors)
    assert parts.finished() == {0: part}
    with (tmp_path / "p" / part.name).open("r+b") as file:
        file.truncate(20)
    assert parts.finished() == {}
    with pytest.raises(ValueError, match=r"part-000000\.arrow is cut or altered"):
        parts.read(part)
    (tmp_path / "p" / part.name).unlink()
    with pytest.raises(ValueError, match=r"part-000000\.arrow is damaged: it is missing"):
        parts.read(part)
    assert Parts(Storage(tmp_path / "p"), {"encoder": "two"}).storage.names() == ["settings.json"]


def test_one_index_as_on_one_machine(ray_session, tmp_path, tiny_encoder, small_blocks, caplog):
    docs = [{**doc, "title": "w3" if number % 2 else None} for number, doc in enumerate(tied_docs(300))]
    one = cs.DenseIndex(tmp_path / "one", tiny_encoder).index(docs)
    found = encode(iter(docs), tiny_encoder, tmp_path / "x", num_workers=1)
    assert np.abs(np.asarray(found.vectors) - np.asarray(one.vectors)).max() < 1e-6
    assert {**found.meta, "convsearch": {**found.meta["convsearch"], "max_norm": 0}} == {
        **one.meta, "convsearch": {**one.meta["convsearch"], "max_norm": 0}
    }  # fmt: skip
    assert list(found.docnos().fwd[np.arange(300)]) == [doc["docno"] for doc in docs]
    topics = some_topics(8)
    pd.testing.assert_frame_equal(found.retriever()(topics), one.retriever()(topics), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "x"]
    with pytest.raises(FileExistsError, match="overwrite=True"):
        encode(docs, tiny_encoder, tmp_path / "x")

    # a text that is none in the last block: it is named; the blocks before are kept, and used when it is mended
    docs[299]["text"] = None
    with pytest.raises(ValueError, match="text of docno 'd299' is None"):
        encode(lambda: iter(docs), tiny_encoder, tmp_path / "y", num_workers=1)
    kept = list((tmp_path / "y.building").glob("part-*.json"))
    docs[299]["text"] = "w1"
    with caplog.at_level("INFO"):
        shards = encode(docs, tiny_encoder, tmp_path / "y", num_workers=1, passages_per_shard=100)
    assert not kept or f"found {len(kept)} parts" in caplog.text
    assert [shard.num_docs for shard in shards.manifest.shards] == [128, 128, 44]  # whole blocks
    again = cs.DenseIndex(tmp_path / "again", tiny_encoder).index(docs)
    pd.testing.assert_frame_equal(shards.retriever()(topics), again.retriever()(topics), atol=1e-5)
    shards.verify()


def test_repeated_docnos_over_blocks_are_refused(ray_session, tmp_path, tiny_encoder, small_blocks):
    docs = tied_docs(130)
    docs[129]["docno"] = "d3"
    with pytest.raises(ValueError, match="docno 'd3' came more than once"):
        encode(docs, tiny_encoder, tmp_path / "x", num_workers=1)
    assert not (tmp_path / "x").exists()


def test_a_passage_that_the_encoder_cannot_encode_is_named(tiny_encoder, tmp_path):
    from pt_convsearch.scale.encoding import _Encoder

    class Choking:
        cut = {"passage": 0}
        similarity = "dot"

        def encode_docs(self, texts, batch_size=None):
            if "bone" in texts:
                raise RuntimeError("cannot swallow")
            return np.zeros((len(texts), 2), dtype=np.float32)

    worker = _Encoder(Choking(), Parts(Storage(tmp_path / "p"), {}), 1, None)
    with pytest.raises(ValueError, match="cannot encode docno 'd5': RuntimeError: cannot swallow"):
        worker._vectors([f"d{i}" for i in range(9)], ["x"] * 5 + ["bone"] + ["x"] * 3)
