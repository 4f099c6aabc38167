"""The dense index: FlexIndex's files both ways, refusals, kills, resuming."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import npids
import numpy as np
import pandas as pd
import pyterrier as pt
import pyterrier_dr
import pytest
from hypothesis import given, strategies as st

import pt_convsearch as cs
from pt_convsearch.dense import building
from pt_convsearch.dense.docnos import read_docnos, write_docnos

from .collection import CORPUS, TOPICS, many


@pytest.fixture(scope="module")
def encoder(tiny: Path) -> cs.BiEncoder:
    return cs.BiEncoder(tiny, bf16=False)


def test_the_files_open_in_pyterrier_dr(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(iter(CORPUS))
    theirs = pyterrier_dr.FlexIndex(str(tmp_path / "x.flex"), verbose=False)
    assert list(theirs.docnos()) == [passage["docno"] for passage in CORPUS]
    np.testing.assert_array_equal(theirs.np_vecs(), encoder.encode_docs([passage["text"] for passage in CORPUS]))
    ours = index.retriever(num_results=3)(TOPICS)
    for retriever in (
        theirs.np_retriever(num_results=3),
        index.np_retriever(num_results=3),
        theirs.torch_retriever(num_results=3),
    ):
        found = (encoder >> retriever)(TOPICS)
        assert found["docno"].tolist() == ours["docno"].tolist()
        np.testing.assert_allclose(found["score"], ours["score"], atol=1e-5)
    assert isinstance(pt.Artifact.load(str(tmp_path / "x.flex")), pyterrier_dr.FlexIndex)
    assert cs.DenseIndex.load(str(tmp_path / "x.flex")) == cs.DenseIndex(tmp_path / "x.flex")


def test_files_of_pyterrier_dr_open_here(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    theirs = pyterrier_dr.FlexIndex(str(tmp_path / "y.flex"), verbose=False)
    (encoder >> theirs).index(CORPUS)
    found = cs.DenseIndex(tmp_path / "y.flex", encoder).retriever()(TOPICS)
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    pd.testing.assert_frame_equal(found, index.retriever()(TOPICS))
    assert next(iter(index.get_corpus_iter(1, 2)))["docno"] == "d 2"


def test_the_end_of_an_indexing_pipeline(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex")
    (encoder >> index).index(CORPUS)
    found = (encoder >> index.retriever())(TOPICS)
    other = cs.DenseIndex(tmp_path / "y.flex", encoder).index(pd.DataFrame(CORPUS)).retriever()(TOPICS)
    pd.testing.assert_frame_equal(found[other.columns], other)
    with pytest.raises(ValueError, match="does not know its encoder"):
        index.retriever()(TOPICS)


def test_vectors_of_ones_own_by_cosine(tmp_path: Path) -> None:
    vectors = [[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    records = [{"docno": str(number), "doc_vec": np.array(vector)} for number, vector in enumerate(vectors)]
    index = cs.DenseIndex(tmp_path / "x.flex", similarity="cosine").index(records)
    topics = pd.DataFrame({"qid": ["q"], "query_vec": [np.array([2.0, 2.0])]})
    found = index.retriever()(topics)
    assert found["docno"].tolist() == ["1", "0", "2"]
    np.testing.assert_allclose(found["score"], [1.0, 2**-0.5, 0.0], atol=1e-6)
    assert cs.DenseIndex(tmp_path / "x.flex").similarity == "cosine"
    with pytest.raises(ValueError, match="'cosine', not 'dot'"):
        cs.DenseIndex(tmp_path / "x.flex", similarity="dot")
    by_dot = cs.DenseIndex(tmp_path / "y.flex").index(records).retriever()(topics)
    assert by_dot["score"].tolist() == [6.0, 4.0, 0.0]


# What it was built with


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_passage_length": 8}, "max_passage_length is 64 there, 8 here"),
        ({"passage_prompt": "passage : "}, "passage_prompt"),
        ({"query_prompt": "query : "}, "query_prompt"),
        ({"similarity": "dot"}, "similarity"),
    ],
)
def test_another_encoder_is_refused(
    encoder: cs.BiEncoder, tiny: Path, tmp_path: Path, options: Any, named: str
) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    with pytest.raises(ValueError, match=named):
        cs.DenseIndex(tmp_path / "x.flex", cs.BiEncoder(tiny, **options))


def test_other_weights_are_refused_until_the_index_is_rebuilt(encoder: cs.BiEncoder, bert, tmp_path: Path) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    other = cs.BiEncoder(bert(1), bf16=False)
    with pytest.raises(ValueError, match=r"query_model.*passage_model.*overwrite=True"):
        cs.DenseIndex(tmp_path / "x.flex", other)
    rebuilt = cs.DenseIndex(tmp_path / "x.flex", other, overwrite=True).index(CORPUS[:2])
    assert len(rebuilt) == 2
    assert rebuilt.retriever()(TOPICS).groupby("qid").size().tolist() == [2, 2]
    assert len(cs.DenseIndex(tmp_path / "x.flex", other)) == 2


def test_a_shorter_query_length_searches_the_same_index(encoder: cs.BiEncoder, tiny: Path, tmp_path: Path) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    short = cs.DenseIndex(tmp_path / "x.flex", cs.BiEncoder(tiny, max_query_length=3, bf16=False))
    assert short.retriever() != cs.DenseIndex(tmp_path / "x.flex", encoder).retriever()
    found = short.retriever(num_results=1)(pd.DataFrame({"qid": ["1"], "query": ["paris dune"]}))
    assert found["score"][0] == pytest.approx(
        float(np.max(short.vectors @ encoder.encode_queries(["dune"])[0])), abs=1e-5
    )


def test_the_encoder_travels_with_the_index(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    built = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    opened = cs.DenseIndex(tmp_path / "x.flex")
    assert opened.encoder == encoder
    # the index says nothing of bfloat16: the encoder that it loads uses it where there is hardware
    pd.testing.assert_frame_equal(opened.retriever()(TOPICS), built.retriever()(TOPICS), atol=0.02)
    moved = tmp_path / "moved.flex"
    shutil.copytree(tmp_path / "x.flex", moved)
    pd.testing.assert_frame_equal(cs.DenseIndex(moved, encoder).retriever()(TOPICS), built.retriever()(TOPICS))


def test_pickles(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    expected = index.retriever()(TOPICS)
    again = pickle.loads(pickle.dumps(index.retriever()))
    assert again == index.retriever()
    assert hash(again) == hash(index.retriever())
    pd.testing.assert_frame_equal(again(TOPICS), expected)


def test_an_index_that_exists_is_not_overwritten(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    before = index.retriever()(TOPICS)
    for build in (index.index, (encoder >> pyterrier_dr.FlexIndex(str(tmp_path / "x.flex"))).index):
        with pytest.raises((FileExistsError, RuntimeError), match="overwrite"):
            build(CORPUS[:1])
    pd.testing.assert_frame_equal(cs.DenseIndex(tmp_path / "x.flex", encoder).retriever()(TOPICS), before)
    index.indexer(mode="overwrite").index(CORPUS[:1])
    assert len(index) == 1


def test_what_is_no_index_is_left_alone(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("…", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=r"chapter1\.txt"):
            cs.DenseIndex(tmp_path / "thesis", encoder, overwrite=overwrite).index(CORPUS)
    assert (tmp_path / "thesis" / "chapter1.txt").exists()


def test_an_index_that_is_not_there(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder)
    with pytest.raises(FileNotFoundError, match="no dense index"):
        index.retriever()(TOPICS)
    assert not (tmp_path / "x.flex").exists()


def test_a_damaged_index_says_so(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    with (tmp_path / "x.flex" / "vecs.f4").open("ab") as out:
        out.truncate(100)
    with pytest.raises(ValueError, match="damaged"):
        cs.DenseIndex(tmp_path / "x.flex", encoder).retriever()(TOPICS)


# What goes in


@pytest.mark.parametrize(
    ("corpus", "said"),
    [
        (
            [{"docno": "a", "text": "x"}, {"docno": "b", "text": "y"}, {"docno": "a", "text": "z"}],
            "docno 'a' came twice",
        ),
        ([{"docno": 1, "text": "x"}, {"docno": "1", "text": "y"}], "docno '1' came twice"),
        ([{"docno": "a", "text": None}], "text of docno 'a'"),
        ([{"docno": "a", "text": 3}], "text of docno 'a'"),
        ([{"docno": "a", "body": "x"}], "no 'text', but 'docno', 'body'"),
        ([{"text": "x"}], "no docno"),
        ([{"docno": None, "text": "x"}], "'docno'"),
        ([{"docno": "", "text": "x"}], "empty id"),
        ([{"docno": "a\0", "text": "x"}], "NUL"),
        ([{"docno": "a\ud800", "text": "x"}], "lone surrogate"),
        ([{"docno": "a", "doc_vec": np.array([1.0, np.nan])}], "passage docno 'a' holds NaN"),
        ([{"docno": "a", "doc_vec": np.ones(2)}, {"docno": "b", "doc_vec": np.ones(3)}], r"\[2, 3\] dimensions"),
    ],
)
def test_what_cannot_be_indexed_is_named(encoder: cs.BiEncoder, tmp_path: Path, corpus: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cs.DenseIndex(tmp_path / "x.flex", encoder).index(corpus)
    assert not (tmp_path / "x.flex").exists()


def test_half_an_emoji_in_a_text_is_replaced(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x", encoder).index([{"docno": "a", "text": "dune \ud83d"}])
    expected = cs.DenseIndex(tmp_path / "y", encoder).index([{"docno": "a", "text": "dune \ufffd"}])
    assert np.array_equal(index.vectors, expected.vectors)


@pytest.mark.parametrize("docno", ["d0\0", "\0", "", "d", "d00", "d0\ud800"])
def test_docnos_that_resemble_others_are_not_there(encoder: cs.BiEncoder, tmp_path: Path, docno: str) -> None:
    index = cs.DenseIndex(tmp_path / "x", encoder).index(many(3))
    with pytest.raises(ValueError, match="1 docnos are not in the index"):
        index.numbers_of(pd.Series([docno, "d0"], dtype=object))


def test_repeats_are_noticed_across_blocks(
    encoder: cs.BiEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "BLOCK", 3)
    with pytest.raises(ValueError, match="docno 'd1' came twice"):
        cs.DenseIndex(tmp_path / "x.flex", encoder).index([*many(10), {"docno": "d1", "text": "again"}])


def test_an_encoder_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="encoder >> index"):
        cs.DenseIndex(tmp_path / "x.flex", "all-MiniLM-L6-v2")  # type: ignore[arg-type]


def test_neither_encoder_nor_vectors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no doc_vec and the index no encoder"):
        cs.DenseIndex(tmp_path / "x.flex").index(CORPUS)


def test_ids_become_str(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(
        [{"docno": 7, "text": "dune"}, {"docno": "007", "text": "dog"}]
    )
    assert list(index.docnos()) == ["7", "007"]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True
    )
)
def test_any_docnos_are_kept(docnos: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "docnos.npids")
        write_docnos(docnos, path)
        lookup = npids.Lookup(path)
        assert list(lookup) == docnos
        assert list(read_docnos(lookup)) == docnos
        unknown = "".join(docnos) + "!"
        keys = np.array([docno.encode() for docno in [*docnos, unknown]])
        assert lookup.inv[keys].tolist() == [*range(len(docnos)), -1]


def test_docnos_of_many_lengths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pt_convsearch.dense.docnos._BLOCK", 16)
    docnos = ["é" * (1 + number % 37) + str(number) for number in range(500)] + ["last" * 100]
    write_docnos(docnos, tmp_path / "docnos.npids")
    assert list(npids.Lookup(tmp_path / "docnos.npids")) == docnos


def test_one_passage(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS[:1])
    for retriever in (index.retriever(), index.retriever(num_results=1)):
        found = retriever(TOPICS)
        assert found["docno"].tolist() == ["d1", "d1"]
        assert found["rank"].tolist() == [0, 0]


def test_no_passages(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index([])
    assert len(index) == 0
    found = cs.DenseIndex(tmp_path / "x.flex", encoder).retriever()(TOPICS)
    assert found.columns.tolist() == ["qid", "query", "docno", "score", "rank"]
    assert len(found) == 0
    assert list(index.get_corpus_iter()) == []


def test_the_counts_of_what_was_cut_are_stored(tiny: Path, tmp_path: Path) -> None:
    encoder = cs.BiEncoder(tiny, max_passage_length=5)
    index = cs.DenseIndex(tmp_path / "x.flex", encoder).index(CORPUS)
    # "[CLS] … [SEP]" in 5 tokens leaves 3 words: three of the four texts are longer
    assert index.meta["convsearch"]["cut_passages"] == 3
    assert index.meta["convsearch"]["encoder"]["max_passage_length"] == 5


def test_the_fingerprint_follows_order_and_texts(encoder: cs.BiEncoder, tmp_path: Path) -> None:
    def fingerprint(name: str, corpus: list[dict[str, str]]) -> str:
        return cs.DenseIndex(tmp_path / name, encoder).index(corpus).meta["convsearch"]["collection"]

    changed = [{**CORPUS[0], "text": "who wrote dune !"}, *CORPUS[1:]]
    prints = {
        fingerprint("a", CORPUS), fingerprint("b", CORPUS), fingerprint("c", CORPUS[::-1]), fingerprint("d", changed),
        fingerprint("e", CORPUS[:3]),
    }  # fmt: skip
    assert len(prints) == 4
