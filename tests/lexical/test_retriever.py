"""The retriever against the formula, on short, long, repeated, empty and unknown-word queries."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import random
from collections import Counter

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.lexical import kernels

from .reference import Reference, assert_same_ranking, zipf_collection

COLLECTION = zipf_collection(700, 400, seed=3)


def build(path, docs: dict[str, list[str]], **options) -> cs.BM25Index:
    """An index whose terms are the words as they stand."""
    options = {"stemmer": None, "stopwords": None, **options}
    return cs.BM25Index(path, **options).index(
        {"docno": docno, "text": " ".join(terms)} for docno, terms in docs.items()
    )


def topics(*queries: str) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(queries))], "query": list(queries)})


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build(tmp_path_factory.mktemp("bm25") / "zipf.bm25", COLLECTION)


def queries(count: int, length: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    words = [f"t{i}" for i in range(500)]  # a fifth of them unknown
    return [" ".join(rng.choices(words, weights=[1 / (i + 2) for i in range(500)], k=length)) for _ in range(count)]


def test_score_worked_out_by_hand(tmp_path):
    # N = 3, avdl = (4 + 2 + 3) / 3 = 3
    # "dune": df 2, idf ln(1 + 1.5 / 2.5) = 0.470004; "sand": df 1, idf ln(1 + 2.5 / 1.5) = 0.980829
    docs = {"a": ["dune", "dune", "sand", "x"], "b": ["dune", "y"], "c": ["z", "z", "w"]}
    found = build(tmp_path / "i", docs).bm25(k1=0.9, b=0.4).search("dune sand")
    norm_a = 0.9 * (0.6 + 0.4 * 4 / 3)  # 1.02
    norm_b = 0.9 * (0.6 + 0.4 * 2 / 3)  # 0.78
    assert found["docno"].tolist() == ["a", "b"]
    assert found["score"].tolist() == pytest.approx(
        [0.470004 * 2 / (2 + norm_a) + 0.980829 / (1 + norm_a), 0.470004 / (1 + norm_b)], rel=1e-5
    )
    assert found["score"].tolist() == pytest.approx([0.796814, 0.264047], rel=1e-5)


@pytest.mark.parametrize("length", [1, 3, 20, 470, 5000])
@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (0.82, 0.68), (0.0, 0.0), (1.2, 1.0)])
def test_equals_the_formula(index, length, k1, b):
    reference = Reference(COLLECTION, k1=k1, b=b)
    asked = queries(5, length, seed=length)
    found = index.bm25(num_results=50, k1=k1, b=b)(topics(*asked))
    for i, query in enumerate(asked):
        assert_same_ranking(found[found["qid"] == f"q{i}"], reference.search(Counter(query.split())), 50)


def test_robertson_idf(index):
    reference = Reference(COLLECTION, idf="robertson")
    asked = queries(5, 40, seed=1)
    found = index.bm25(num_results=1000, idf="robertson")(topics(*asked))
    for i, query in enumerate(asked):
        assert_same_ranking(found[found["qid"] == f"q{i}"], reference.search(Counter(query.split())), 1000)


def test_weighted_terms(index):
    weights = {"t3": 0.25, "t17": 1e-7, "t200": 3.5, "t0": 0.0, "nowhere": 2.0}
    frame = pd.DataFrame({"qid": ["1"], "query": ["t1"], "query_toks": [weights]})
    found = index.bm25(num_results=1000)(frame)
    wanted = Reference(COLLECTION).search({k: v for k, v in weights.items() if v})
    assert_same_ranking(found, wanted, 1000)
    assert found["query"].unique().tolist() == ["t1"]
    alone = index.bm25(num_results=1000)(frame.drop(columns="query"))
    pd.testing.assert_frame_equal(alone.drop(columns="query_toks"), found.drop(columns=["query", "query_toks"]))


@pytest.mark.parametrize("scale", [1e-30, 1e30, 3.0])
def test_the_scale_of_weights_changes_nothing_but_scores(index, scale):
    base = {"t3": 0.25, "t17": 0.1, "t200": 3.5}
    one, other = (
        index.bm25(num_results=200)(pd.DataFrame({"qid": ["1"], "query_toks": [weights]}))
        for weights in (base, {term: weight * scale for term, weight in base.items()})
    )
    assert one["docno"].tolist() == other["docno"].tolist()
    np.testing.assert_allclose(other["score"], one["score"] * scale, rtol=1e-6)


def test_repeated_terms_add(index):
    once, thrice = (index.bm25(num_results=1000).search(query) for query in ("t50", "t50 t50 t50"))
    np.testing.assert_allclose(thrice["score"], 3 * once["score"], rtol=1e-6)
    assert thrice["docno"].tolist() == once["docno"].tolist()


def test_queries_without_known_terms_get_no_rows(index):
    frame = topics("", "   ", "nowhere else", "?!…", "t5").assign(qhistory=[[], [1], [2], [3], [4]], qtype="first")
    found = index.bm25(num_results=3)(frame)
    assert found["qid"].unique().tolist() == ["q4"]
    assert found["qhistory"].tolist() == [[4]] * 3
    nothing = index.bm25(num_results=3)(frame.head(4))
    assert nothing.columns.tolist() == ["qid", "query", "qhistory", "qtype", "docno", "score", "rank"]
    assert nothing.dtypes.equals(found.dtypes)


def test_empty_frames_are_typed(index):
    for frame in (pd.DataFrame({"qid": [], "query": []}), pd.DataFrame(columns=["qid", "query"]), topics("t1").head(0)):
        found = index.bm25()(frame)
        assert len(found) == 0
        assert found.dtypes.astype(str).tolist() == ["str", "str", "str", "float64", "int64"]
        assert len((index.bm25() >> index.text_loader() >> pt.apply.query(lambda row: row["query"]))(frame)) == 0


@pytest.mark.parametrize("query", [None, float("nan"), pd.NA, 7])
def test_a_query_that_is_no_text_is_refused_by_its_qid(index, query):
    with pytest.raises(ValueError, match="q1"):
        index.bm25()(pd.DataFrame({"qid": ["q0", "q1"], "query": ["t1", query]}))


@pytest.mark.parametrize(
    "weights", [{"t1": -1.0}, {"t1": float("nan")}, {"t1": float("inf")}, None, "t1", {3: 1.0}, {"t1": "1"}]
)
def test_weights_that_are_none_are_refused_by_their_qid(index, weights):
    with pytest.raises(ValueError, match="q1"):
        index.bm25()(pd.DataFrame({"qid": ["q0", "q1"], "query_toks": [{"t1": 1}, weights]}))


def test_repeated_qids_are_refused(index):
    with pytest.raises(ValueError, match=r"1 qids.*'a'"):
        index.bm25()(pd.DataFrame({"qid": ["a", "a"], "query": ["t1", "t2"]}))


def test_int_qids_become_str(index):
    assert index.bm25(num_results=1)(pd.DataFrame({"qid": [3.0], "query": ["t1"]}))["qid"].tolist() == ["3"]


def test_ties_are_in_the_order_of_the_collection(tmp_path):
    count = 3 * kernels.BLOCK // 2  # more than one block
    words = ["x" if i % 3 else "y" for i in range(count)]
    index = cs.BM25Index(tmp_path / "i", store_text=False).index(
        {"docno": f"{i}", "text": w} for i, w in enumerate(words)
    )
    expected = [f"{i}" for i in range(count) if i % 3 == 0]
    assert index.bm25(num_results=10).search("y")["docno"].tolist() == expected[:10]
    assert index.bm25(num_results=count).search("y")["docno"].tolist() == expected
    both = index.bm25(num_results=count).search("x y y")["docno"].tolist()
    assert both == expected + [f"{i}" for i in range(count) if i % 3]


def test_blocks_beyond_the_first_equal_the_formula(tmp_path):
    rng = np.random.default_rng(5)
    count = 2 * kernels.BLOCK + 77
    docs = {f"d{i}": [f"t{t}" for t in rng.zipf(1.5, size=3) if t < 200] for i in range(count)}
    index = build(tmp_path / "i", docs, store_text=False)
    reference = Reference(docs)
    asked = ["t1 t2 t7 t150", "t199 t3", "t5 t5 t60"]
    found = index.bm25(num_results=300)(topics(*asked))
    for i, query in enumerate(asked):
        rows = found[found["qid"] == f"q{i}"]
        wanted = reference.search(Counter(query.split()))
        np.testing.assert_allclose(rows["score"], [score for _, score in wanted[:300]], rtol=1e-5)
        assert_same_ranking(rows, wanted, 300)


@pytest.mark.parametrize("num_results", [1, 2, 699, 700, 5000])
def test_any_number_of_results(index, num_results):
    found = index.bm25(num_results=num_results).search("t0 t1 t2")
    assert_same_ranking(found, Reference(COLLECTION).search({"t0": 1, "t1": 1, "t2": 1}), num_results)
    assert found["docno"].dtype == "str"
    assert found["score"].dtype == np.float64


def test_one_document_and_none(tmp_path):
    one = build(tmp_path / "one", {"only": ["word", "word"]})
    assert one.bm25().search("word")["score"].tolist() == pytest.approx([math.log(1 + 0.5 / 1.5) * 2 / 2.9], rel=1e-6)
    none = build(tmp_path / "none", {})
    assert len(none.bm25().search("word")) == 0
    assert none.vectors().shape == (0, 0)
    nothing_said = build(tmp_path / "silent", {"a": [], "b": []})
    assert len(nothing_said.bm25().search("word")) == 0
    assert len(nothing_said) == 2


def test_batches_threads_and_single_queries_agree(index):
    frame = topics(*queries(60, 120, seed=9), "", "nowhere")
    once = index.bm25(num_results=20, threads=1)(frame)
    pd.testing.assert_frame_equal(index.bm25(num_results=20, threads=2)(frame), once)
    pd.testing.assert_frame_equal(index.bm25(num_results=20)(frame), once)
    singly = pd.concat([index.bm25(num_results=20)(frame.iloc[[i]]) for i in range(len(frame))], ignore_index=True)
    pd.testing.assert_frame_equal(singly, once)


def test_parallel_and_pickled(index):
    frame = topics(*queries(6, 30, seed=2))
    retriever = index.bm25(num_results=5)
    once = retriever(frame)
    copy = pickle.loads(pickle.dumps(retriever))
    assert copy == retriever
    assert hash(copy) == hash(retriever)
    pd.testing.assert_frame_equal(copy(frame), once)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pd.testing.assert_frame_equal(pool.apply(retriever, (frame,)), once)


def test_identity(index, tmp_path):
    assert index.bm25(num_results=5) == index.bm25(num_results=5, threads=2)
    assert index.bm25(num_results=5) != index.bm25(num_results=6)
    assert index.bm25(k1=1.0) != index.bm25()
    other = build(tmp_path / "i", COLLECTION)
    assert other.bm25() != index.bm25()
    assert repr(index.bm25(num_results=7)).endswith("zipf.bm25'), num_results=7)")


def test_rank_cutoff_is_handed_to_the_engine(index):
    compiled = (index.bm25(num_results=100) % 5).compile()
    assert compiled == index.bm25(num_results=5)
    assert len((index.bm25(num_results=3) % 5).compile()(topics("t1"))) == 3


def test_gridscan_sets_k1_and_b(index):
    frame = topics("t9 t30", "t11 t60")
    best = Reference(COLLECTION, k1=2.0, b=1.0).search({"t9": 1, "t30": 1})[0][0]
    qrels = pd.DataFrame({"qid": ["q0"], "docno": [best], "label": [1]})
    retriever = index.bm25(num_results=10)
    pt.GridScan(retriever, {retriever: {"k1": [0.1, 2.0], "b": [0.0, 1.0]}}, frame, qrels, ["recip_rank"])
    assert (index.path / "scores" / "k1=2,b=1,idf=lucene.npy").exists()
    retriever.set_parameter("k1", 2.0)
    retriever.set_parameter("b", 1.0)
    assert retriever.search("t9 t30")["docno"][0] == best


@pytest.mark.parametrize(
    "options",
    [
        {"num_results": 0},
        {"num_results": -1},
        {"num_results": 2.5},
        {"k1": -0.1},
        {"k1": float("nan")},
        {"b": 1.1},
        {"b": -0.1},
        {"idf": "x"},
        {"threads": 0},
    ],
)
def test_options_out_of_range_are_refused_by_name(index, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        index.bm25(**options)


def test_separators_do_not_reach_bm25(tmp_path):
    index = build(tmp_path / "i", {"a": ["sep", "x"], "b": ["dune"], "c": ["u"]})
    frame = topics("dune [SEP] dune", "dune [U] dune [SEP] dune", "dune [SEP] sep", "dune [SEP] dune")
    frame["qsep"] = [" [SEP] ", [" [U] ", " [SEP] "], " [SEP] ", None]
    found = index.bm25()(frame)
    assert {qid: rows["docno"].tolist() for qid, rows in found.groupby("qid")} == {
        "q0": ["b"], "q1": ["b"], "q2": ["b", "a"], "q3": ["b", "a"],
    }  # fmt: skip
    assert found["query"].iloc[0] == "dune [SEP] dune"
    missing = pd.DataFrame({"qid": ["q"], "query": ["dune"], "qsep": pd.Series([pd.NA], dtype=object)})
    assert index.bm25()(missing)["docno"].tolist() == ["b"]
    with pytest.raises(ValueError, match="qsep is 3"):
        index.bm25()(missing.assign(qsep=3))


def test_very_long_queries(index):
    query = " ".join(queries(1, 1, seed=i)[0] if i % 7 else f"unknown{i}" for i in range(20_000)) * 10
    found = index.bm25(num_results=10).search(query)
    assert_same_ranking(found, Reference(COLLECTION).search(Counter(query.split())), 10)


def test_50_turns_with_3000_distinct_terms(tmp_path):
    docs = {f"d{i}": [f"w{i}", f"w{i + 1}"] for i in range(3000)}
    query = " ".join(f"w{i}" for i in range(3000))
    assert_same_ranking(
        build(tmp_path / "i", docs).bm25(num_results=3000).search(query),
        Reference(docs).search(Counter(query.split())),
        3000,
    )


words = st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "ij", "kl"]), max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    docs=st.lists(words, min_size=1, max_size=15),
    query=words,
    k=st.integers(1, 20),
    b=st.floats(0, 1),
    k1=st.floats(0, 3),
)
def test_any_collection_equals_the_formula(tmp_path_factory, docs, query, k, b, k1):
    docs = {f"d{i}": terms for i, terms in enumerate(docs)}
    index = build(tmp_path_factory.mktemp("any") / "i", docs)
    found = index.bm25(num_results=k, k1=k1, b=b).search(" ".join(query))
    assert_same_ranking(found, Reference(docs, k1=k1, b=b).search(Counter(query)), k)


def test_equals_bm25s(index):
    bm25s = pytest.importorskip("bm25s")
    asked = queries(8, 100, seed=4)
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index(list(COLLECTION.values()), show_progress=False)
    _, scores = peer.retrieve([query.split() for query in asked], k=20, show_progress=False)
    weights = [Counter(query.split()) for query in asked]
    found = index.bm25(num_results=20)(topics(*asked))
    for i in range(len(asked)):
        assert max(weights[i].values()) > 1  # repeats are there
        np.testing.assert_allclose(found[found["qid"] == f"q{i}"]["score"], scores[i], rtol=1e-4)


def test_transformer_conventions(index):
    pt.documentation._cached_objects_inv = {}
    assert pt.inspect.transformer_outputs(index.bm25(), ["qid", "query", "qhistory"]) == [
        "qid",
        "query",
        "qhistory",
        "docno",
        "score",
        "rank",
    ]
    assert pt.inspect.transformer_outputs(index.bm25(), ["qid", "query_toks"]) == [
        "qid",
        "query_toks",
        "docno",
        "score",
        "rank",
    ]
    assert ["qid", "query"] in pt.inspect.transformer_inputs(index.bm25())
    assert "BM25Retriever" in pt.schematic.draw(cs.lexical.BM25Retriever(index) >> index.text_loader())
