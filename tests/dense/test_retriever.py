"""Exact search against brute force in float64; ties, edges and FAISS kinds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.dense.search import exact_search


def index_of(folder: Path, vectors: np.ndarray, **options: Any) -> cs.DenseIndex:
    records = ({"docno": f"d{number}", "doc_vec": vector} for number, vector in enumerate(vectors))
    return cs.DenseIndex(folder / "x.flex", **options).index(records)


def queries_of(vectors: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {"qid": [str(row) for row in range(len(vectors))], "query_vec": list(vectors.astype(np.float32))}
    )


def brute_force(queries: np.ndarray, vectors: np.ndarray, k: int) -> list[list[int]]:
    """By score in float64 rounded to float32, then by number."""
    scores = (queries.astype(np.float64) @ vectors.astype(np.float64).T).astype(np.float32)
    return [np.lexsort((np.arange(len(vectors)), -row))[:k].tolist() for row in scores]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), passages=st.integers(1, 60), distinct=st.integers(1, 60), queries=st.integers(1, 30),
    dimensions=st.sampled_from([1, 3, 32]), k=st.integers(1, 80),
)  # fmt: skip
def test_exact_search_is_brute_force(
    seed: int, passages: int, distinct: int, queries: int, dimensions: int, k: int
) -> None:
    random = np.random.default_rng(seed)
    pool = random.normal(size=(distinct, dimensions)).astype(np.float32)
    vectors = pool[random.integers(0, distinct, passages)]
    asked = random.normal(size=(queries, dimensions)).astype(np.float32)
    norm = float(np.linalg.norm(vectors, axis=1).max())
    numbers, scores = exact_search(asked, vectors, k, norm)
    assert numbers.tolist() == brute_force(asked, vectors, k)
    np.testing.assert_allclose(scores, np.take_along_axis(asked @ vectors.T, numbers, axis=1), atol=1e-4)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_batches_and_single_queries_agree(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(3000, 64)).astype(np.float32)
    vectors[1::2] = vectors[::2]  # each twice: every rank is a tie
    asked = queries_of(random.normal(size=(40, 64)))
    retriever = index_of(tmp_path, vectors).retriever(num_results=25)
    whole = retriever(asked)
    single = pd.concat([retriever(asked[row : row + 1]) for row in range(len(asked))], ignore_index=True)
    pd.testing.assert_frame_equal(whole, single)
    other = cs.DenseIndex(tmp_path / "x.flex").retriever(num_results=25, batch_size=7, threads=1)
    pd.testing.assert_frame_equal(other(asked), whole)


def test_a_thousand_equal_passages(tmp_path: Path) -> None:
    vectors = np.concatenate([np.eye(4, dtype=np.float32)[:1]] * 1000 + [2 * np.eye(4, dtype=np.float32)[:1]])
    found = index_of(tmp_path, vectors).retriever(num_results=5)(queries_of(np.eye(4)[:1]))
    assert found["docno"].tolist() == ["d1000", "d0", "d1", "d2", "d3"]


# USER_REPORTS 5.1


@pytest.mark.parametrize(
    "options", [{}, {"exact": False, "faiss": "HNSW8"}, {"exact": False, "faiss": "IVF2,Flat", "nprobe": 2}]
)
def test_more_neighbours_than_passages(tmp_path: Path, options: dict) -> None:
    index = index_of(tmp_path, np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    found = index.retriever(num_results=5, **options)(queries_of(np.array([[1.0, 0.0], [0.0, 1.0]])))
    assert found["docno"].tolist() == ["d0", "d1", "d2", "d2", "d1", "d0"]
    assert found["rank"].tolist() == [0, 1, 2, 0, 1, 2]
    assert found["score"].tolist() == [1.0, 0.5, 0.0, 1.0, 0.5, 0.0]


def test_what_faiss_does_not_find_is_no_result(tmp_path: Path) -> None:
    clusters = np.concatenate(
        [np.eye(2, dtype=np.float32)[row : row + 1] * (1 + 0.01 * column) for row in range(2) for column in range(3)]
    )
    found = index_of(tmp_path, clusters).retriever(num_results=6, exact=False, faiss="IVF2,Flat")(queries_of(np.eye(2)))
    assert found.groupby("qid")["docno"].agg(set).to_dict() == {"0": {"d0", "d1", "d2"}, "1": {"d3", "d4", "d5"}}
    one = index_of(tmp_path / "one", clusters).retriever(num_results=1, exact=False, faiss="IVF2,Flat")(
        queries_of(np.eye(2))
    )
    assert one["docno"].tolist() == ["d2", "d5"]


def test_faiss_kinds_are_kept_and_find_most(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(2000, 16)).astype(np.float32)
    asked = queries_of(random.normal(size=(20, 16)))
    index = index_of(tmp_path, vectors)
    exact = index.retriever(num_results=10)(asked)
    for kind, options in (
        ("HNSW16", {"ef_search": 200}),
        ("IVF16,Flat", {"nprobe": 16}),
        ("IVF4,PQ8x4", {"nprobe": 4}),
        ("SQ8", {}),
    ):
        found = index.retriever(num_results=10, exact=False, faiss=kind, **options)(asked)
        both = exact.merge(found, on=["qid", "docno"])
        assert len(both) / len(exact) > (0.3 if "PQ" in kind else 0.9), kind
    assert len(list((tmp_path / "x.flex").glob("faiss-*.index"))) == 4
    again = cs.DenseIndex(tmp_path / "x.flex").retriever(num_results=10, exact=False, faiss="SQ8")(asked)
    pd.testing.assert_frame_equal(again, index.retriever(num_results=10, exact=False, faiss="SQ8")(asked))


def test_one_retriever_does_not_set_nprobe_for_another(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    index = index_of(tmp_path, random.normal(size=(500, 8)).astype(np.float32))
    asked = queries_of(random.normal(size=(10, 8)))
    before = index.retriever(num_results=50, exact=False, faiss="IVF32,Flat")(asked)
    index.retriever(num_results=50, exact=False, faiss="IVF32,Flat", nprobe=32)(asked)
    pd.testing.assert_frame_equal(index.retriever(num_results=50, exact=False, faiss="IVF32,Flat")(asked), before)


def test_wrong_options(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.eye(3))
    with pytest.raises(ValueError, match="num_results=0"):
        index.retriever(num_results=0)
    with pytest.raises(ValueError, match="exact=False"):
        index.retriever(nprobe=3)
    with pytest.raises(ValueError, match="faiss='Nonsense'"):
        index.retriever(exact=False, faiss="Nonsense")(queries_of(np.eye(3)))
    with pytest.raises(ValueError, match=r"faiss='IVF64,Flat'.*3 passages"):
        index.retriever(exact=False, faiss="IVF64,Flat")(queries_of(np.eye(3)))
    with pytest.raises(ValueError, match="nprobe=3"):
        index.retriever(exact=False, faiss="Flat", nprobe=3)(queries_of(np.eye(3)))
    with pytest.raises(ValueError, match=r"2 dimensions.*3"):
        index.retriever()(queries_of(np.eye(2)))


# USER_REPORTS 5.3


def test_a_query_vector_with_nan_is_named(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.eye(3))
    asked = queries_of(np.array([[1.0, 0, 0], [np.nan, 0, 0]]))
    with pytest.raises(ValueError, match="query qid '1' holds NaN"):
        index.retriever()(asked)
    with pytest.raises(ValueError, match="query qid '1' holds NaN"):
        index.scorer()(asked.assign(docno="d0"))


def test_zero_vectors_by_cosine(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]), similarity="cosine")
    found = index.retriever()(queries_of(np.array([[4.0, 0.0], [0.0, 0.0]])))
    assert found["docno"].tolist() == ["d1", "d2", "d0", "d0", "d1", "d2"]
    assert found["score"].tolist() == pytest.approx([1.0, 2**-0.5, 0.0, 0.0, 0.0, 0.0])


# USER_REPORTS 2.3, 2.7


@pytest.fixture(scope="module")
def index(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> cs.DenseIndex:
    texts = ["who wrote dune ?", "paris of france", "a cat", "a dog and a bird", "dune"]
    corpus = [{"docno": f"d{number}", "text": text} for number, text in enumerate(texts)]
    return cs.DenseIndex(tmp_path_factory.mktemp("index") / "x.flex", cs.BiEncoder(tiny, bf16=False)).index(corpus)


def test_empty_queries_have_no_results(index: cs.DenseIndex) -> None:
    topics = pd.DataFrame({"qid": ["1", "2", "3", "4"], "query": ["", "dune", "   ", "a cat"]})
    for retriever in (index.retriever(num_results=2), index.encoder >> index.retriever(num_results=2)):
        found = retriever(topics)
        assert found["qid"].tolist() == ["2", "2", "4", "4"]
        assert found["docno"].tolist()[::2] == ["d4", "d2"]
    later = index.retriever() >> index.vec_loader() >> index.scorer()
    assert later(topics[topics["query"].str.strip() == ""]).empty
    with pytest.raises(ValueError, match="qid '9'"):
        index.retriever()(pd.DataFrame({"qid": ["9"], "query": [None]}))


def test_empty_frames_have_the_columns_and_types(index: cs.DenseIndex) -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["dune"], "qhistory": [[]], "turn_number": [1]})
    retriever = index.retriever()
    full, none = retriever(topics), retriever(topics.head(0))
    assert len(none) == 0
    assert none.dtypes.to_dict() == full.dtypes.to_dict()
    for stage in (index.scorer(), index.vec_loader(), index.encoder.text_scorer()):
        rows = full.assign(text="dune")
        assert stage(rows.head(0)).columns.tolist() == stage(rows).columns.tolist()
        assert stage(rows.head(0))["docno"].dtype == full["docno"].dtype


def test_topic_columns_survive(index: cs.DenseIndex) -> None:
    history = [{"role": "user", "content": "who ?"}, {"role": "assistant", "content": "a dog"}]
    topics = pd.DataFrame(
        {"qid": [3, 4], "query": ["dune", "a cat"], "qhistory": [[], history], "qtype": ["first", "switch"]}
    )
    found = index.retriever(num_results=2)(topics)
    assert found.columns.tolist() == ["qid", "query", "qhistory", "qtype", "docno", "score", "rank"]
    assert found["qid"].tolist() == ["3", "3", "4", "4"]
    assert found["qhistory"].tolist() == [[], [], history, history]
    assert topics["qid"].tolist() == [3, 4]
    rescored = (index.retriever(num_results=2) >> index.scorer())(topics)
    pd.testing.assert_frame_equal(rescored, found, atol=1e-5)


def test_repeated_qids_are_refused(index: cs.DenseIndex) -> None:
    with pytest.raises(ValueError, match="'1'"):
        index.retriever()(pd.DataFrame({"qid": ["1", "1"], "query": ["a", "b"]}))


def test_single_results_are_scalars(index: cs.DenseIndex) -> None:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["dune", "a cat"]})
    found = index.retriever(num_results=1)(topics)
    assert found["docno"].tolist() == ["d4", "d2"]
    compiled = (index.retriever(num_results=3) % 1).compile()
    assert compiled == index.retriever(num_results=1)
    pd.testing.assert_frame_equal(compiled(topics), found)
    assert (index.retriever(num_results=1) % 3).compile()(topics)["docno"].tolist() == ["d4", "d2"]


def test_operators_keep_types(index: cs.DenseIndex) -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["dune"]})
    nothing = index.retriever(num_results=2)(topics.head(0))
    source = pt.Transformer.from_df(nothing, uniform=True)
    for both in (index.retriever(num_results=2) | source, index.retriever(num_results=2) + source):
        assert set(both(topics)["docno"]) == {"d4", *index.retriever(num_results=2)(topics)["docno"]}


def test_unknown_docnos_are_named(index: cs.DenseIndex) -> None:
    rows = pd.DataFrame({"qid": ["1", "1"], "query": ["dune", "dune"], "docno": ["d1", "nowhere"]})
    for stage in (index.vec_loader(), index.scorer(), index.np_vec_loader(), index.np_scorer()):
        with pytest.raises(ValueError, match="'nowhere'"):
            stage(rows)
    loaded = index.vec_loader()(rows[:1])
    np.testing.assert_array_equal(loaded["doc_vec"][0], index.vectors[1])


def test_scorer_keeps_the_best(index: cs.DenseIndex) -> None:
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["dune", "a cat"]})
    rows = topics.merge(pd.DataFrame({"docno": [f"d{number}" for number in range(5)]}), how="cross")
    expected = index.retriever(num_results=2)(topics)
    scored = index.scorer(num_results=2)(rows)
    pd.testing.assert_frame_equal(scored[expected.columns], expected, atol=1e-5)
    assert (index.scorer() % 2).compile() == index.scorer(num_results=2)


def test_inspection_and_schematic(index: cs.DenseIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pt.documentation, "_cached_objects_inv", {}, raising=False)
    pipeline = index.retriever() >> index.vec_loader()
    assert pt.inspect.transformer_outputs(index.retriever(), ["qid", "query"]) == [
        "qid",
        "query",
        "docno",
        "score",
        "rank",
    ]
    assert "Dense retriever" in pt.schematic.draw(pipeline)


def test_a_large_index_is_not_read_for_a_few_docnos(tmp_path: Path) -> None:
    index = index_of(tmp_path, np.random.default_rng(0).normal(size=(500, 4)))
    index.retriever(num_results=1)(queries_of(np.eye(4)))
    assert "_strings" not in vars(index)
    found = index.retriever(num_results=500)(queries_of(np.eye(4)))
    assert "_strings" in vars(index)
    assert set(found["docno"]) == {f"d{number}" for number in range(500)}


def test_a_search_in_a_folder_that_is_gone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = index_of(Path(folder), np.eye(2))
        index.reset()
    with pytest.raises(FileNotFoundError, match="no dense index"):
        index.retriever()(queries_of(np.eye(2)))
