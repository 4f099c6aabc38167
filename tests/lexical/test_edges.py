"""Rare branches of the lexical engines, each by the smallest input that reaches it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.lexical import front_door, reading
from pt_convsearch.lexical.analysis import Analyzer

from .test_impacts import DOCS as IMPACTS, frame

DOCS = [
    {"docno": "a", "text": "a well-known fact of old times"},
    {"docno": "b", "text": "known wells, old facts"},
    {"docno": "c", "text": "times of war"},
]
QUERIES = ["well-known facts", "old times, well-known", "war well-known war"]
TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": QUERIES})


@pytest.fixture
def index(tmp_path: Path) -> cs.BM25Index:
    return cs.BM25Index(tmp_path / "i").index(DOCS)


def pieces(text: str) -> list[str]:
    return text.lower().replace("-", " ").replace(",", " ").split()


def test_what_is_remembered_changes_nothing(index: cs.BM25Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the memory holds one piece alone, and where a piece between blanks is several terms."""
    expected = index.bm25()(TOPICS)
    plain = index.bm25()(TOPICS.assign(query=TOPICS["query"].str.replace("-", " ")))
    assert expected["score"].tolist() == plain["score"].tolist()
    assert expected["docno"].tolist() == plain["docno"].tolist()
    monkeypatch.setattr(reading, "REMEMBERED", 1)
    fresh = cs.BM25Index(index.path)
    pd.testing.assert_frame_equal(fresh.bm25()(TOPICS), expected)
    expanded = index.bm25() >> index.rm3(fb_docs=2)
    pd.testing.assert_frame_equal((fresh.bm25() >> fresh.rm3(fb_docs=2))(TOPICS), expanded(TOPICS))


def test_a_tokenizer_of_ones_own_in_feedback(tmp_path: Path) -> None:
    """It cuts whole texts, as the tokenizer "unicode" cuts these: the same rankings, with and without feedback."""
    plain = {"stemmer": None, "stopwords": None}
    own = cs.BM25Index(tmp_path / "own", tokenizer=pieces, **plain).index(DOCS)
    ours = cs.BM25Index(tmp_path / "ours", tokenizer="unicode", **plain).index(DOCS)
    found, expected = (
        (index.bm25() >> index.rm3(fb_docs=1, fb_terms=2) >> index.bm25())(TOPICS) for index in (own, ours)
    )
    assert len(expected) > 3
    pd.testing.assert_frame_equal(found[["qid", "docno", "score"]], expected[["qid", "docno", "score"]])
    pd.testing.assert_frame_equal(cs.BM25Index(tmp_path / "own").bm25()(TOPICS), ours.bm25()(TOPICS))


def test_a_tokenizer_that_is_gone_is_named() -> None:
    settings = {"tokenizer": {"function": "no.such.module:cut"}, "stemmer": None, "stopwords": None}
    with pytest.raises(ValueError, match=r"tokenizer no\.such\.module:cut, which cannot be imported"):
        Analyzer.from_settings(settings)


def test_scores_that_do_not_fit_are_computed_anew(index: cs.BM25Index, caplog: pytest.LogCaptureFixture) -> None:
    expected = index.bm25()(TOPICS)
    (stored,) = (Path(index.path) / "scores").glob("*.npy")
    np.save(stored, np.zeros(2, dtype=np.float32))
    with caplog.at_level(logging.WARNING):
        pd.testing.assert_frame_equal(cs.BM25Index(index.path).bm25()(TOPICS), expected)
    assert "does not fit the index: computed anew" in caplog.text


def test_progress_changes_no_result(index: cs.BM25Index, capsys: pytest.CaptureFixture[str]) -> None:
    pd.testing.assert_frame_equal(index.bm25(verbose=True)(TOPICS), index.bm25()(TOPICS))
    assert "batch" in capsys.readouterr().err


def test_an_index_that_is_not_built_is_told_by_path_and_settings(tmp_path: Path) -> None:
    one, same = cs.BM25Index(tmp_path / "x"), cs.BM25Index(tmp_path / "x")
    other = cs.BM25Index(tmp_path / "x", stemmer=None)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_engines_are_told_by_their_files_and_classes(tmp_path: Path) -> None:
    (tmp_path / "pt_pisa_config.json").touch()
    assert front_door._engine_of_path(tmp_path) == "pisa"
    searcher = type("LuceneSearcher", (), {"__module__": "pyserini.search.lucene"})()
    assert front_door._engine_of_object(searcher) == "anserini"
    with pytest.raises(TypeError, match=r"dict is no index that cs\.bm25 knows"):
        cs.bm25({})


def test_no_pisa_index(tmp_path: Path) -> None:
    pytest.importorskip("pyterrier_pisa")
    from pt_convsearch.lexical.pisa import PisaRetriever

    with pytest.raises(FileNotFoundError, match="there is no PISA index at"):
        PisaRetriever(tmp_path / "none")


def test_impacts_say_what_they_take(tmp_path: Path) -> None:
    class Encoder:
        """Weights of a text: its words, one each; what an index asks of an encoder."""

        text_field = "text"

        def doc_toks(self, docs: list[dict[str, Any]]) -> list[dict[str, float]]:
            return [dict.fromkeys(doc["text"].split(), 1.0) for doc in docs]

        def identity(self) -> dict[str, str]:
            return {"model": "words"}

    with pytest.raises(TypeError, match=r"encoder is 'splade': give a cs\.SparseEncoder"):
        cs.ImpactIndex(tmp_path / "x", "splade")
    with pytest.raises(TypeError, match="index\\(\\) has no option verbose"):
        cs.ImpactIndex(tmp_path / "x").index(IMPACTS, verbose=True)
    with pytest.raises(ValueError, match="lone surrogate"):
        cs.ImpactIndex(tmp_path / "x").index([{"docno": "\ud800", "toks": {"a": 1.0}}])
    index = cs.ImpactIndex(tmp_path / "x", Encoder())
    assert index.index_inputs() == [["docno", "toks"], ["docno", "text"]]
    # one document brings weights of its own, one its text
    index.index([{"docno": "a", "toks": {"dune": 2.0}}, {"docno": "b", "text": "dune film"}])
    found = index.retriever()(frame({"dune": 1.0, "film": 0.5}))
    assert found[["docno", "score"]].values.tolist() == [["a", 2.0], ["b", 1.5]]
    assert repr(cs.ImpactIndex(tmp_path / "x")) == f"ImpactIndex({str(tmp_path / 'x')!r})"
    assert index.meta["encoder"] == {"model": "words"}
    retriever = index.retriever(num_results=2)
    assert retriever.fuse_rank_cutoff(5) is retriever
    with pytest.raises(ValueError, match=r"1 docnos are not in the index at .*'gone'"):
        index._reading.doc_ids(["a", "gone"])

    class Other(Encoder):
        def identity(self) -> dict[str, str]:
            return {"model": "letters"}

    with pytest.raises(ValueError, match="letters"):
        cs.ImpactIndex(tmp_path / "x", Other())


def test_impacts_with_progress_and_with_files_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cs.ImpactIndex(tmp_path / "x", verbose=True).index(IMPACTS)
    assert "impact index" in capsys.readouterr().err
    cs.ImpactIndex(tmp_path / "y").index(IMPACTS[:1])
    (tmp_path / "x" / "blocks.sizes.npy").write_bytes((tmp_path / "y" / "blocks.sizes.npy").read_bytes())
    with pytest.raises(ValueError, match=r"its files do not fit its pt_meta\.json"):
        cs.ImpactIndex(tmp_path / "x")
