"""The lexical index on disk: opened, replaced while open, damaged, killed halfway."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs

DOCS = [
    {"docno": "d1", "title": "Dune", "text": "Frank Herbert wrote it."},
    {"docno": "d2", "text": "When was it published? In 1965."},
    {"docno": "d3", "title": None, "text": ""},
]


def test_an_index_that_exists_is_opened_and_not_overwritten(tmp_path):
    cs.BM25Index(tmp_path / "i").index(DOCS)
    index = cs.BM25Index(tmp_path / "i")
    assert len(index) == 3
    with pytest.raises(FileExistsError, match="overwrite=True"):
        index.index(DOCS[:1])
    assert len(cs.BM25Index(tmp_path / "i")) == 3
    again = cs.BM25Index(tmp_path / "i", overwrite=True).index(DOCS[:1])
    assert len(again) == len(cs.BM25Index(tmp_path / "i")) == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(FileExistsError, match="not overwritten"):
        cs.BM25Index(tmp_path / "mine", overwrite=True).index(DOCS)
    assert (tmp_path / "mine" / "thesis.tex").exists()
    (tmp_path / "mine" / "pt_meta.json").write_text('{"type": "dense_index", "format": "flex"}', encoding="utf-8")
    with pytest.raises(FileExistsError, match="not overwritten"):
        cs.BM25Index(tmp_path / "mine", overwrite=True).index(DOCS)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_an_index_replaced_while_open_keeps_its_scores_apart(tmp_path):
    old = cs.BM25Index(tmp_path / "i").index([{"docno": "a", "text": "dune"}, {"docno": "b", "text": "dune sand"}])
    assert len(old) == 2  # opened
    new = cs.BM25Index(tmp_path / "i", overwrite=True).index(
        [{"docno": "x", "text": "dune"}, {"docno": "y", "text": "sand dune"}]
    )
    assert old.bm25(k1=1.1).search("dune")["docno"].tolist() == ["a", "b"]
    assert not (new.path / "scores").exists()
    assert new.bm25(k1=1.1).search("dune")["docno"].tolist() == ["x", "y"]


def test_an_index_replaced_while_open_keeps_its_texts_and_terms(tmp_path):
    """Files opened only when they are needed would be those of the new index: another document's text, in silence."""
    docs = [{"docno": f"d{i}", "text": f"dune sand{i}"} for i in range(4)]
    old = cs.BM25Index(tmp_path / "i").index(docs)
    found = old.bm25().search("sand3")
    backwards = [{"docno": doc["docno"], "text": doc["text"] + " anew"} for doc in docs[::-1]]
    cs.BM25Index(tmp_path / "i", overwrite=True).index(backwards)
    assert old.text_loader()(found)["text"].tolist() == ["dune sand3"]
    assert old.rm3(original_query_weight=0.0)(found)["query_toks"].tolist() == [{"dune": 0.5, "sand3": 0.5}]
    assert cs.BM25Index(tmp_path / "i").texts(["d3"]) == ["dune sand3 anew"]


@pytest.mark.parametrize("size", [None, 0, 100, -1])
def test_a_file_that_is_missing_or_cut_is_named(tmp_path, size):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)
    for path in sorted(index.path.glob("*.npy")):
        content = path.read_bytes()
        if size is None:
            path.unlink()
        else:
            path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=rf"{tmp_path}/i is damaged: .*{path.name}.*; build it anew"):
            len(cs.BM25Index(tmp_path / "i"))
        path.write_bytes(content)
    other = cs.BM25Index(tmp_path / "other").index([*DOCS, {"docno": "d4", "text": "dune of sand"}])
    for path in sorted(index.path.glob("*.npy")):
        content = path.read_bytes()
        path.write_bytes((other.path / path.name).read_bytes())
        with pytest.raises(ValueError, match="do not fit") if path.stat().st_size != len(content) else nullcontext():
            len(cs.BM25Index(tmp_path / "i"))
        path.write_bytes(content)
    assert len(cs.BM25Index(tmp_path / "i")) == 3


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"no array"])
def test_scores_that_were_cut_are_computed_anew(tmp_path, content):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)
    right = index.bm25().search("dune 1965")
    (kept,) = (index.path / "scores").iterdir()
    kept.write_bytes(content)
    pd.testing.assert_frame_equal(cs.BM25Index(tmp_path / "i").bm25().search("dune 1965"), right)
    assert len(np.load(kept)) == index.meta["num_postings"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stemmer": None}, "stemmer=None was given, the index has 'porter'"),
        ({"tokenizer": "unicode"}, "tokenizer='unicode'.*'lucene'"),
        ({"stopwords": ["x"]}, "stopwords.*'lucene'"),
        ({"text_field": "body"}, "text_field"),
    ],
)
def test_other_settings_are_named(tmp_path, options, message):
    cs.BM25Index(tmp_path / "i").index(DOCS)
    with pytest.raises(ValueError, match=message):
        cs.BM25Index(tmp_path / "i", **options)
    assert (
        len(cs.BM25Index(tmp_path / "i", overwrite=True, **options).index([{"docno": "z", "body": "b", "text": "t"}]))
        == 1
    )


def test_settings_of_an_index_are_its_own(tmp_path):
    cs.BM25Index(tmp_path / "i", tokenizer="unicode", stemmer=None, stopwords=["是"]).index(
        [{"docno": "a", "text": "他是谁"}]
    )
    index = cs.BM25Index(tmp_path / "i")
    assert index.analyze("他是谁") == ["他", "谁"]
    assert index.bm25().search("谁")["docno"].tolist() == ["a"]
    assert cs.BM25Index(tmp_path / "i", tokenizer="unicode", stemmer=None, stopwords=["是"]) == index


def shout(text: str) -> list[str]:
    """A tokenizer of one's own."""
    return [word + "!" for word in text.split()]


def test_a_tokenizer_of_ones_own(tmp_path):
    built = cs.BM25Index(tmp_path / "i", tokenizer=shout, stemmer=None, stopwords=None).index(DOCS)
    assert built.df(["it!", "it"]).tolist() == [1, 0]
    given = cs.BM25Index(tmp_path / "i", tokenizer=shout)
    assert given.bm25().search("Herbert")["docno"].tolist() == ["d1"]
    assert pickle.loads(pickle.dumps(given.bm25())).search("Herbert")["docno"].tolist() == ["d1"]
    with pytest.raises(ValueError, match="tokenizer"):
        cs.BM25Index(tmp_path / "i", tokenizer=str.split)
    cs.BM25Index(tmp_path / "l", tokenizer=lambda text: text.split("-")).index(DOCS)
    with pytest.raises(ValueError, match="give tokenizer="):
        cs.BM25Index(tmp_path / "l")


def test_nothing_half_something_else_or_older_is_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no index"):
        len(cs.BM25Index(tmp_path / "nothing"))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "lengths.npy").touch()
    with pytest.raises(ValueError, match=r"no pt_meta\.json"):
        len(cs.BM25Index(tmp_path / "half"))
    for changes, message in (
        ({"format": "terrier"}, "holds a sparse_index.terrier"),
        ({"format_version": 0}, "version 0"),
        ({"num_docs": 4}, "damaged"),
    ):
        index = cs.BM25Index(tmp_path / message[-5:]).index(DOCS)
        meta = {**index.meta, **changes}
        (index.path / "pt_meta.json").write_text(json.dumps(meta), encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            cs.BM25Index(index.path)
    (index.path / "pt_meta.json").write_text('{"type": "spar', encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        cs.BM25Index(index.path)


def test_artifact(tmp_path):
    cs.BM25Index(tmp_path / "i").index(DOCS)
    loaded = pt.Artifact.load(str(tmp_path / "i"))
    assert isinstance(loaded, cs.BM25Index)
    assert loaded == cs.BM25Index(tmp_path / "i")
    package = loaded.build_package(str(tmp_path / "i.tar.lz4"), verbose=False)
    assert Path(package).exists()
    assert pt.inspect.artifact_type_format(loaded) == ("sparse_index", "convsearch_bm25")


def test_an_iterator_that_fails_leaves_nothing(tmp_path):
    def docs():
        yield from DOCS
        raise OSError("the disk with the collection is gone")

    with pytest.raises(OSError, match="gone"):
        cs.BM25Index(tmp_path / "i").index(docs())
    assert not list(tmp_path.iterdir())


def test_killed_while_indexing(tmp_path, caplog):
    script = textwrap.dedent(
        """
        import sys, time
        import pt_convsearch as cs
        from pt_convsearch.lexical import building
        building.BATCH_TOKENS = 1000
        def docs():
            for i in range(10**9):
                if i == 5000:
                    print("under way", flush=True)
                yield {"docno": f"d{i}", "text": f"some words {i}"}
        cs.BM25Index(sys.argv[1]).index(docs())
        """
    )
    path = tmp_path / "i.bm25"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"under way\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not path.exists()
    assert len(list(tmp_path.glob("i.bm25.tmp-*"))) == 1
    assert not cs.BM25Index(path).built()
    with pytest.raises(FileNotFoundError):
        len(cs.BM25Index(path))
    index = cs.BM25Index(path).index(DOCS)
    assert "did not finish" in caplog.text
    assert len(index) == 3
    assert [found.name for found in tmp_path.iterdir()] == ["i.bm25"]


def test_scores_are_kept_beside_the_index(tmp_path, monkeypatch):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)
    index.bm25(k1=0.82, b=0.68).search("dune")
    stored = index.path / "scores" / "k1=0.82,b=0.68,idf=lucene.npy"
    assert stored.exists()
    when = stored.stat().st_mtime_ns
    assert cs.BM25Index(tmp_path / "i").bm25(k1=0.82, b=0.68).search("dune")["docno"].tolist() == ["d1"]
    assert stored.stat().st_mtime_ns == when
    stored.write_bytes(stored.read_bytes()[:100])  # cut: made anew
    assert cs.BM25Index(tmp_path / "i").bm25(k1=0.82, b=0.68).search("dune")["docno"].tolist() == ["d1"]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, caplog):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)

    def refuse(path):
        raise PermissionError(13, "read-only", str(path))

    from pt_convsearch.lexical import reading

    monkeypatch.setattr(reading._files, "written", refuse)
    caplog.set_level("INFO")
    assert index.bm25().search("dune")["docno"].tolist() == ["d1"]
    assert "kept in memory" in caplog.text
    assert not (index.path / "scores").exists()


def test_memory_does_not_grow_with_the_collection(tmp_path):
    """Peak memory of building from streams of 10,000 and 60,000 documents, in processes of their own."""
    script = textwrap.dedent(
        """
        import resource, sys
        import pt_convsearch as cs
        from pt_convsearch.lexical import building
        building.BATCH_TOKENS = building.MERGE_POSTINGS = 200_000
        text = " ".join(f"w{i}" for i in range(60))
        count = int(sys.argv[2])
        cs.BM25Index(sys.argv[1]).index({"docno": f"document-{i}", "text": f"{text} {i % 1000}"} for i in range(count))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """
    )
    peaks = [
        int(subprocess.check_output([sys.executable, "-c", script, str(tmp_path / str(count)), str(count)]))
        for count in (10_000, 60_000)
    ]
    size = sum(path.stat().st_size for path in (tmp_path / "60000").rglob("*")) / 1024
    assert size > 40_000
    assert peaks[1] - peaks[0] < size / 2  # KB; pages of mapped files are counted, too


def test_names_of_options(tmp_path):
    index = cs.BM25Index(tmp_path / "i", verbose=True).index(random.sample(DOCS, 3))
    assert repr(index) == f"BM25Index({str(tmp_path / 'i')!r})"
    assert index.index_inputs() == [["docno", "title", "text"], ["docno", "text"]]


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch):
    from pt_convsearch.lexical import kernels

    real = kernels.numba.njit

    def njit(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **options)

    monkeypatch.setattr(kernels.numba, "njit", njit)
    assert kernels.compiled(lambda x: x + 1)(2) == 3


def test_docnos_become_str_once(tmp_path: Path) -> None:
    docs = [{"docno": 7, "text": "dune"}, {"docno": 8.0, "text": "dune"}, {"docno": "007", "text": "dune"}]
    index = cs.BM25Index(tmp_path / "ids").index(docs)
    assert index.docnos() == ["7", "8", "007"]
    assert index.bm25().search("dune")["docno"].tolist() == ["7", "8", "007"]
    for wrong in (None, 1.5, True, float("nan"), ["7"]):
        with pytest.raises(ValueError, match="document 1 of the collection"):
            cs.BM25Index(tmp_path / "wrong").index([{"docno": "a", "text": "x"}, {"docno": wrong, "text": "x"}])
    with pytest.raises(ValueError, match="'7'"):
        cs.BM25Index(tmp_path / "twice").index([{"docno": 7, "text": "x"}, {"docno": "7", "text": "x"}])
