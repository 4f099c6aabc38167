"""Shards at an address of fsspec: in memory here; a real S3 API where a server for it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.scale import ShardedIndex
from pt_convsearch.scale.storage import Storage, described

from .conftest import some_topics, tied_docs, tied_vectors


@pytest.fixture(scope="module")
def s3():
    """A bucket of moto's server in a thread of this process: an S3 API over HTTP."""
    server = pytest.importorskip("moto.server", reason="pip install 'moto[s3]' flask flask-cors s3fs")
    fs = pytest.importorskip("s3fs", reason="pip install s3fs")
    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    fs.S3FileSystem(**options).mkdir("bucket")
    yield options
    running.stop()


@pytest.fixture(params=["memory", "s3"])
def place(request):
    """An address nobody else uses, and the options of its file system."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/index", None
    return f"s3://bucket/{uuid.uuid4().hex}", request.getfixturevalue("s3")


def test_a_folder_and_an_address_behave_alike(tmp_path, place):
    for storage in (Storage(tmp_path / "x"), Storage(*place)):
        assert not storage.exists()
        assert storage.names() == []
        storage.write("a/b.json", b"one")
        storage.write("a/b.json", b"two")
        assert storage.read("a/b.json") == b"two"
        assert storage.read_all(["a/b.json"]) == [b"two"]
        assert (storage.names(), storage.names("a"), storage.size("a/b.json")) == (["a"], ["b.json"], 3)
        with storage.making("folder") as folder:
            folder.mkdir()
            (folder / "file").write_bytes(b"x")
        assert storage.names() == ["a", "folder"]
        storage.remove("a")
        storage.remove("none")
        assert storage.names() == ["folder"]
        with pytest.raises(FileNotFoundError):
            storage.read("none")


def test_bm25_shards_at_an_address(place, tmp_path):
    address, options = place
    docs = tied_docs(80)
    cache = tmp_path / "cache"
    index = ShardedIndex(address, passages_per_shard=30, storage_options=options, cache=cache).index(docs)
    one = cs.BM25Index(tmp_path / "one").index(docs)
    topics = some_topics()
    expected = one.bm25()(topics)
    pd.testing.assert_frame_equal(index.bm25()(topics), expected)
    again = ShardedIndex(address, storage_options=options, cache=cache)
    pd.testing.assert_frame_equal(again.bm25()(topics), expected)
    assert sorted(again.storage.names()) == ["shard-00000", "shard-00001", "shard-00002", "shards.json", "statistics"]
    with pytest.raises(FileExistsError):
        ShardedIndex(address, storage_options=options).index(docs)
    # a fresh machine, and a file that was altered on the way
    again.storage.write("shard-00001/lengths.npy", b"not this")
    with pytest.raises(ValueError, match=r"shard-00001 is damaged: lengths\.npy"):
        ShardedIndex(address, storage_options=options, cache=tmp_path / "other").bm25()(topics)


def test_dense_shards_at_an_address(place, tmp_path):
    address, options = place
    vectors = tied_vectors(50)
    docs = [{"docno": f"d{i}", "doc_vec": vector} for i, vector in enumerate(vectors)]
    given = {"similarity": "dot", "storage_options": options, "cache": tmp_path}
    ShardedIndex(address, passages_per_shard=20, **given).index(docs)
    again = ShardedIndex(address, **given)
    found = again.retriever(num_results=7)(pd.DataFrame({"qid": ["1"], "query_vec": [vectors[3]]}))
    scores = vectors @ vectors[3]  # whole numbers: exact
    assert found["docno"].tolist() == [f"d{i}" for i in np.argsort(-scores, kind="stable")[:7]]
    again.verify()
    again.storage.remove("shard-00002")
    with pytest.raises(ValueError, match="shard-00002 is damaged"):
        ShardedIndex(address, **{**given, "cache": tmp_path / "other"}).verify()


def test_a_copy_in_the_cache_is_not_taken_for_that_of_an_index_before(place, tmp_path):
    """The same passages at the same address by another encoder: files of the same names and sizes, other vectors."""
    address, options = place
    storage = Storage(address, options, tmp_path / "cache")
    for content in (b"one", b"two", b"one"):
        with storage.making("shard-00000") as folder:
            folder.mkdir()
            (folder / "vecs.f4").write_bytes(content)
            files = described(folder)
        found = storage.local("shard-00000", files, build="digest of the passages")
        assert (found / "vecs.f4").read_bytes() == content


def test_a_killed_run_is_taken_up_at_an_address(place, tmp_path):
    address, options = place
    given = {"storage_options": options, "cache": tmp_path}
    docs = tied_docs(60)

    def broken():
        yield from docs[:45]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ShardedIndex(address, passages_per_shard=20, **given).index(broken())
    assert not ShardedIndex(address, **given).built()
    index = ShardedIndex(address, passages_per_shard=20, **given).index(docs)
    assert index.docnos() == [doc["docno"] for doc in docs]
    assert "records" not in index.storage.names()


def test_an_address_whose_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ImportError, match=r"gs://bucket/x.*pip install"):
        Storage("gs://bucket/x").exists()


def test_what_killed_runs_left_goes(tmp_path, caplog):
    """Half-written files of dead processes go, those of live ones stay; one that holds the folder clears all."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    storage = Storage(tmp_path / "x")
    storage.write("whole", b"1")
    for process in (dead.pid, os.getpid()):
        (tmp_path / "x" / f"part.parquet.tmp-{process}-abc").write_bytes(b"half")
    storage.sweep()
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [f"part.parquet.tmp-{os.getpid()}-abc", "whole"]
    (tmp_path / "x" / "deep.tmp-1-a").mkdir()
    (tmp_path / "x" / "deep.tmp-1-a" / "file").touch()
    with storage.held():
        assert storage.names() == ["whole"]
        with pytest.raises(RuntimeError, match="is being written by another run"), storage.held():
            pass
    storage.clear()
    assert (tmp_path / "x").is_dir()
    assert storage.names() == []


def test_two_builds_of_one_index_do_not_meet(tmp_path):
    def documents():
        yield from tied_docs(5)
        with pytest.raises(RuntimeError, match=r"x\.building is being written by another run"):
            ShardedIndex(tmp_path / "x", passages_per_shard=3).index(tied_docs(9))
        yield {"docno": "last", "text": "w1"}

    index = ShardedIndex(tmp_path / "x", passages_per_shard=3, threads=1).index(documents())
    assert index.docnos() == [*(f"d{number}" for number in range(5)), "last"]


def test_a_run_that_was_killed_at_its_last_step_leaves_nothing_after_the_next_call(tmp_path):
    index = ShardedIndex(tmp_path / "x", passages_per_shard=3).index(tied_docs(5))
    (tmp_path / "x" / "records").mkdir()
    (tmp_path / f"x.tmp-{2**30}-abc").mkdir()  # what it had put aside
    with pytest.raises(FileExistsError, match="holds a sharded index already"):
        ShardedIndex(tmp_path / "x", passages_per_shard=3).index(tied_docs(5))
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == sorted(index.storage.names())
    assert "records" not in index.storage.names()
    ShardedIndex(tmp_path / "x", passages_per_shard=3, overwrite=True).index(tied_docs(4))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_is_told_with_the_shard_and_the_same_call_goes_on(tmp_path, monkeypatch):
    import errno

    from pt_convsearch.lexical import BM25Index

    index, room = BM25Index.index, [2]

    def filling(self, docs):
        docs = list(docs)
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        return index(self, docs)

    monkeypatch.setattr(BM25Index, "index", filling)
    shards = ShardedIndex(tmp_path / "x", passages_per_shard=3, threads=1)
    with pytest.raises(OSError, match=r"No space left on device: .*x\.building/shard-00002 .*the same call") as raised:
        shards.index(tied_docs(8))
    assert raised.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["x.building"]
    room[0] = 1  # for the shard that is missing: the two others are not made again
    assert shards.index(tied_docs(8)).docnos() == [f"d{number}" for number in range(8)]
    with pytest.raises(OSError, match="^someone else's trouble$"), Storage(tmp_path / "y").making("z"):
        raise OSError("someone else's trouble")
