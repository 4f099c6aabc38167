"""The Anserini engine's wiring, with a stand-in for pyserini: what is asked of it, and the contract around it."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

import pt_convsearch as cs

ASKED: list[tuple] = []


class Searcher:
    """Answers each text query with as many documents as it has words, at most k."""

    def __init__(self, path: str) -> None:
        self.index_dir = path

    def set_bm25(self, k1: float, b: float) -> None:
        ASKED.append(("bm25", k1, b))

    def batch_search(self, queries, qids, k, threads):
        ASKED.append(("batch", list(queries), k, threads))
        hits = {
            q: [SimpleNamespace(docid=f"d{i}", score=9.0 - i) for i in range(len(t.split()))][:k]
            for q, t in zip(qids, queries, strict=True)
        }
        return {qid: found for qid, found in reversed(hits.items()) if found}  # a map has no order

    def search(self, query, k):
        ASKED.append(("search", query, k))
        return [SimpleNamespace(docid="d0", score=1.5)]


class Java:
    """Any Java class: constructing and calling it gives a tuple of what was given."""

    SHOULD = "SHOULD"

    def __init__(self, name: str) -> None:
        self.name = name.rpartition(".")[2]
        self.clauses: list = []

    def __call__(self, *args):
        return self if self.name == "BooleanQuery$Builder" else (self.name, *args)

    def add(self, clause, occur):
        self.clauses.append(clause)

    def build(self):
        return tuple(self.clauses)

    def setMaxClauseCount(self, count):
        ASKED.append(("clauses", count))


@pytest.fixture
def lucene_index(tmp_path, monkeypatch):
    names = ("pyserini", "pyserini.search", "pyserini.search.lucene", "pyserini.pyclass")
    modules = {name: ModuleType(name) for name in names}
    modules["pyserini.search.lucene"].LuceneSearcher = Searcher
    modules["pyserini.pyclass"].autoclass = Java
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / "segments_1").touch()
    ASKED.clear()
    return tmp_path


def test_texts(lucene_index):
    retriever = cs.bm25(lucene_index, num_results=2, k1=0.82, b=0.68)
    frame = pd.DataFrame({"qid": ["a", "b", "c"], "query": ["one two three", "", "one [SEP] "], "qsep": " [SEP] "})
    found = retriever(frame)
    assert found[["qid", "docno", "rank"]].values.tolist() == [["a", "d0", 0], ["a", "d1", 1], ["c", "d0", 0]]
    assert ("bm25", 0.82, 0.68) in ASKED
    assert ("batch", ["one two three", "one "], 2, 1) in ASKED
    assert next(count for kind, count, *_ in ASKED if kind == "clauses") > 100_000
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy == retriever
    pd.testing.assert_frame_equal(copy(frame), found)
    with pytest.raises(ValueError, match="'b'"):
        retriever(pd.DataFrame({"qid": ["b"], "query": [None]}))


def test_weights(lucene_index):
    frame = pd.DataFrame({"qid": ["a", "b"], "query_toks": [{"dune": 0.5, "sand": 2}, {}]})
    found = cs.bm25(lucene_index)(frame)
    assert found[["qid", "docno", "score"]].values.tolist() == [["a", "d0", 1.5]]
    wanted = tuple(
        ("BoostQuery", ("TermQuery", ("Term", "contents", term)), weight)
        for term, weight in [("dune", 0.5), ("sand", 2.0)]
    )
    assert ASKED[-1] == ("search", wanted, 1000)


def test_a_searcher_keeps_what_it_was_told(lucene_index):
    """Its analyzer and language are set on the object: it is the one that is asked, a cutoff's copy too."""
    searcher = Searcher(str(lucene_index))
    asked = []
    searcher.batch_search = lambda queries, qids, k, threads: asked.append((queries, k)) or {}
    frame = pd.DataFrame({"qid": ["a"], "query": ["chien"]})
    retriever = cs.lexical.AnseriniRetriever(searcher, num_results=5)
    retriever(frame)
    (retriever % 2).compile()(frame)
    assert asked == [(["chien"], 5), (["chien"], 2)]
    assert retriever != cs.lexical.AnseriniRetriever(lucene_index, num_results=5)
    with pytest.raises(TypeError, match="give the path"):
        pickle.dumps(retriever)


def test_an_index_that_is_not_there(lucene_index):
    with pytest.raises(FileNotFoundError, match="Lucene"):
        cs.lexical.AnseriniRetriever(lucene_index / "nothing")(pd.DataFrame({"qid": ["1"], "query": ["x"]}))
