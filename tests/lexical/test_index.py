"""Building, opening, refusing, storing: what an index promises of its collection."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.lexical import building, storage

from .reference import Reference, zipf_collection

DOCS = [
    {"docno": "d1", "title": "Dune", "text": "Frank Herbert wrote it."},
    {"docno": "d2", "text": "When was it published? In 1965."},
    {"docno": "d3", "title": None, "text": ""},
]
ODD_DOCNOS = [
    '"Heroes"_(album)',
    "a,b",
    "NA",
    "nan",
    "007",
    "7",
    "http://x/y?a=1,2%203_p0",
    "clueweb22-en0004-50-00170:0",
    "東京",
    "\U0001f642",
    "x" * 500,
]


def test_what_came_in_is_stored(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(iter(DOCS))
    assert len(index) == index.num_docs == 3
    assert index.docnos() == ["d1", "d2", "d3"]
    assert index.texts(["d3", "d1"]) == ["", "Frank Herbert wrote it."]
    assert index.texts(["d2", "d1"], "title") == ["", "Dune"]
    # dune frank herbert wrote (it is a stop word) | when publish 1965 (was, it, in are stop words)
    assert index.average_length == pytest.approx(7 / 3)
    assert index.terms(index.term_ids(["publish", "dune"])) == ["publish", "dune"]
    assert index.term_ids(["it", "published", "dune"]).tolist()[:2] == [-1, -1]
    assert index.df(["dune", "publish", "nowhere"]).tolist() == [1, 1, 0]
    assert index.analyze("Who published Dune?") == ["who", "publish", "dune"]
    assert index.meta["num_tokens"] == 7
    assert index.meta["num_postings"] == 7
    assert (index.path / "pt_meta.json").read_text(encoding="utf-8").count("convsearch_bm25") == 1
    assert not list(tmp_path.glob("*.tmp-*"))


def test_only_plain_files(tmp_path):
    cs.BM25Index(tmp_path / "i").index(DOCS).bm25().search("dune")
    kinds = {path.suffix for path in (tmp_path / "i").rglob("*") if path.is_file()}
    assert kinds == {".npy", ".json"}
    for path in (tmp_path / "i").rglob("*.npy"):
        np.load(path, allow_pickle=False)


def test_docnos_byte_for_byte(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(
        {"docno": docno, "text": f"word {i}"} for i, docno in enumerate(ODD_DOCNOS)
    )
    found = index.bm25().search("word")
    assert sorted(found["docno"]) == sorted(ODD_DOCNOS)
    loaded = index.text_loader()(found)
    assert dict(zip(loaded["docno"], loaded["text"], strict=True)) == {
        docno: f"word {i}" for i, docno in enumerate(ODD_DOCNOS)
    }


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ([{"docno": "http://x/y?a=1,2 3_p0", "text": "x"}], "white space"),
        ([{"docno": "a\tb", "text": "x"}], "white space"),
        ([{"docno": " a", "text": "x"}], "white space"),
        ([{"docno": "a\u00a0b", "text": "x"}], "white space"),
        ([{"docno": "", "text": "x"}], "empty"),
        ([{"docno": "a", "text": "x"}, {"text": "y"}], "document 1 .*docno"),
        ([{"docno": 7.5, "text": "x"}], "fraction"),
        ([{"docno": "a"}], "'a' has no text"),
        ([{"docno": "a", "text": None}], "'a' has no text"),
        ([{"docno": "a", "text": float("nan")}], "'a' has no text"),
        ([{"docno": "a\ud800", "text": "x"}], "Unicode"),
        ([{"docno": d, "text": "x"} for d in "abcaab"], r"'a', 'a', 'b'"),
    ],
)
def test_documents_that_are_refused(tmp_path, docs, message):
    with pytest.raises(ValueError, match=message):
        cs.BM25Index(tmp_path / "i").index(docs)
    assert not list(tmp_path.iterdir())


def test_no_dicts(tmp_path):
    with pytest.raises(TypeError, match="dicts"):
        cs.BM25Index(tmp_path / "i").index(["text"])
    with pytest.raises(TypeError, match="batch"):
        cs.BM25Index(tmp_path / "i").index(DOCS, batch=3)


def test_repeated_docnos_far_apart_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "BATCH_TOKENS", 16)
    docs = [{"docno": f"d{i % 50}", "text": "some words"} for i in range(52)]
    with pytest.raises(ValueError, match=r"'d0', 'd1'; 2 such"):
        cs.BM25Index(tmp_path / "i").index(docs)


def test_checksums_that_meet_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.zlib, "crc32", lambda data: len(data))
    docs = [{"docno": f"d{i}", "text": f"w{i} x{i % 3}"} for i in range(300)]
    index = cs.BM25Index(tmp_path / "i").index(docs)
    assert index.doc_ids([f"d{i}" for i in range(300)]).tolist() == list(range(300))
    assert index.bm25().search("w217")["docno"].tolist() == ["d217"]
    assert index.term_ids(["w999", "zz"]).tolist() == [-1, -1]
    with pytest.raises(ValueError, match=r"'d7'; 1 such"):
        monkeypatch.setattr(building, "BATCH_TOKENS", 16)
        cs.BM25Index(tmp_path / "j").index([*docs, docs[7]])


def test_lone_surrogates_in_texts_do_no_harm(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index([{"docno": "a", "text": "half \ud83d emoji"}])
    assert index.bm25().search("half")["docno"].tolist() == ["a"]
    assert index.texts(["a"]) == ["half ? emoji"]


@pytest.mark.parametrize(
    ("batch", "merge", "chunks"), [(50, 10**9, 10**9), (10**9, 30, 10**9), (64, 17, 40), (1, 1, 1)]
)
def test_runs_and_merges_change_nothing(tmp_path, monkeypatch, batch, merge, chunks):
    docs = zipf_collection(120, 60, seed=4)
    docs["long"] = ["t1"] * 70_000 + ["t2"]  # more than 16 bits hold
    stream = [{"docno": docno, "text": " ".join(terms)} for docno, terms in docs.items()]
    whole = cs.BM25Index(tmp_path / "whole", stemmer=None).index(stream)
    for name, value in (("BATCH_TOKENS", batch), ("MERGE_POSTINGS", merge), ("CHUNK_CACHE", chunks)):
        monkeypatch.setattr(building, name, value)
    parts = cs.BM25Index(tmp_path / "parts", stemmer=None).index(stream)
    files = sorted(path.relative_to(whole.path) for path in whole.path.rglob("*.npy"))
    assert files == sorted(path.relative_to(parts.path) for path in parts.path.rglob("*.npy"))
    for name in files:
        np.testing.assert_array_equal(np.load(whole.path / name), np.load(parts.path / name), err_msg=str(name))
    assert whole.fingerprint == parts.fingerprint
    # the inverted and the forward index say what the documents say
    starts, terms, tfs = parts._reading.forward(parts.doc_ids(["long", "d5"]))
    counts = dict(zip(parts.terms(terms[: starts[1]]), tfs[: starts[1]].tolist(), strict=True))
    assert counts == {"t1": 70_000, "t2": 1}
    assert dict(zip(parts.terms(terms[starts[1] :]), tfs[starts[1] :].tolist(), strict=True)) == Counter(docs["d5"])


def test_vectors_are_bm25_weights(tmp_path):
    docs = zipf_collection(60, 50, seed=8)
    index = cs.BM25Index(tmp_path / "i", stemmer=None).index({"docno": d, "text": " ".join(t)} for d, t in docs.items())
    reference = Reference(docs, k1=1.1, b=0.3)
    vectors = index.vectors(["d7", "d3", "d7"], k1=1.1, b=0.3)
    assert vectors.shape == (3, index.meta["num_terms"])
    for row, docno in enumerate(["d7", "d3", "d7"]):
        for term in {"t0", "t9", "t33"}:
            column = int(index.term_ids([term])[0])
            assert vectors[row, column] == pytest.approx(reference.weight(term, docno), rel=1e-6)
    assert (index.vectors() != index.vectors(index.docnos())).nnz == 0
    with pytest.raises(ValueError, match="nowhere"):
        index.vectors(["nowhere"])


def test_text_loader(tmp_path):
    index = cs.BM25Index(tmp_path / "i").index(DOCS)
    results = pd.DataFrame(
        {"qid": ["1", "1"], "docno": ["d2", "d1"], "qhistory": [[1], []], "text": ["stale", "stale"]}
    )
    loaded = index.text_loader()(results)
    assert loaded["text"].tolist() == ["When was it published? In 1965.", "Frank Herbert wrote it."]
    assert loaded.columns.tolist() == results.columns.tolist()
    assert results["text"].tolist() == ["stale", "stale"]
    assert index.text_loader(["title", "text"])(results)["title"].tolist() == ["", "Dune"]
    assert index.text_loader("title")(results)["title"].tolist() == ["", "Dune"]
    empty = index.text_loader()(results.head(0))
    assert empty["text"].dtype == "str"
    with pytest.raises(ValueError, match=r"1 docnos.*'d9'"):
        index.text_loader()(pd.DataFrame({"docno": ["d1", "d9"]}))
    with pytest.raises(ValueError, match=r"'title', 'text', not 'body'"):
        index.text_loader("body")(results)
    with pytest.raises(pt.validate.InputValidationError):
        index.text_loader()(pd.DataFrame({"qid": ["1"]}))
    assert index.text_loader() == cs.BM25Index(tmp_path / "i").text_loader()
    bare = cs.BM25Index(tmp_path / "bare", store_text=False).index(DOCS)
    with pytest.raises(ValueError, match="store_text=False"):
        bare.text_loader()(results)


def test_fields(tmp_path):
    assert len(cs.BM25Index(tmp_path / "a").index(DOCS).bm25().search("dune")) == 1
    assert len(cs.BM25Index(tmp_path / "b", text_field="text").index(DOCS).bm25().search("dune")) == 0
    body = cs.BM25Index(tmp_path / "c", text_field="body").index([{"docno": "x", "body": "dune"}])
    assert body.text_loader()(pd.DataFrame({"docno": ["x"]}))["body"].tolist() == ["dune"]


def test_frames_are_collections_too(tmp_path):
    assert cs.BM25Index(tmp_path / "i").index(pd.DataFrame(DOCS)).docnos() == ["d1", "d2", "d3"]


def test_indexing_pipeline_streams(tmp_path):
    expand = pt.apply.generic(lambda frame: frame.assign(text=frame["text"] + " expansion"))
    index = (expand >> cs.BM25Index(tmp_path / "i")).index(iter(DOCS))
    assert index.bm25().search("expansion")["docno"].tolist() == ["d3", "d2", "d1"]  # by length


def test_fingerprint_is_of_docnos_texts_and_order(tmp_path):
    seen = set()
    variants = [
        DOCS,
        DOCS[::-1],
        DOCS[:2],
        [{**DOCS[0], "text": "Frank Herbert wrote it!"}, *DOCS[1:]],
        [{**DOCS[0], "docno": "d0"}, *DOCS[1:]],
    ]
    for i, docs in enumerate(variants):
        seen.add(cs.BM25Index(tmp_path / str(i)).index(docs).fingerprint)
    assert len(seen) == len(variants)
    assert cs.BM25Index(tmp_path / "again", stemmer=None).index(DOCS).fingerprint in seen
    # bytes that move from one document to the next make another collection
    a = cs.BM25Index(tmp_path / "a").index([{"docno": "1", "text": "ab"}, {"docno": "2", "text": "c"}])
    b = cs.BM25Index(tmp_path / "b").index([{"docno": "1", "text": "a"}, {"docno": "2", "text": "bc"}])
    assert a.fingerprint != b.fingerprint


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_a_missing_title_is_no_title(tmp_path, missing):
    index = cs.BM25Index(tmp_path / "i").index([{"docno": "d1", "title": missing, "text": "sand"}])
    assert index.texts(["d1"], "title") == [""]
    with pytest.raises(ValueError, match="'d1' has no text in 'text'"):
        cs.BM25Index(tmp_path / "j").index([{"docno": "d1", "text": missing}])


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
