"""RM3 worked out by hand, and as a stage."""

from __future__ import annotations

import pickle

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs


def make(path, docs: dict[str, str]) -> cs.BM25Index:
    return cs.BM25Index(path, stemmer=None, stopwords=None).index({"docno": d, "text": t} for d, t in docs.items())


@pytest.fixture
def index(tmp_path):
    return make(
        tmp_path / "i", {"d1": "spice spice spice sand worm", "d2": "spice sand sand house", "d3": "ship", "d4": ""}
    )


def results(*rows: tuple, query: str = "dune spice dune") -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
    return frame.assign(query=query, qhistory=[[i] for i in range(len(frame))], qtype="switch", turn_number=2, text="x")


def test_worked_out_by_hand(index):
    # shares of the scores: d1 3/4, d2 1/4
    # d1: spice 3/5, sand 1/5, worm 1/5; d2: sand 2/4, spice 1/4, house 1/4
    # spice 3/4*3/5 + 1/4*1/4 = 41/80; sand 3/4*1/5 + 1/4*1/2 = 22/80; worm 12/80; house 5/80: these sum to 1
    # query: dune 2/3, spice 1/3
    found = index.rm3(fb_docs=2, fb_terms=10, original_query_weight=0.5)(
        results(("1", "d1", 6.0, 0), ("1", "d2", 2.0, 1), ("1", "d3", 1.0, 2))
    )
    assert found["query_toks"][0] == pytest.approx(
        {"dune": 1 / 3, "spice": 1 / 6 + 41 / 160, "sand": 22 / 160, "worm": 12 / 160, "house": 5 / 160}
    )
    assert sum(found["query_toks"][0].values()) == pytest.approx(1)


def test_scores_below_zero_say_nothing(index):
    # shares made of -1 and -3 would be 1/4 and 3/4: the worse document counted three times as much
    below = index.rm3(original_query_weight=0.5)(results(("1", "d1", -1.0, 0), ("1", "d2", -3.0, 1)))
    assert below["query_toks"][0] == pytest.approx({"dune": 1 / 3, "spice": 1 / 6})
    mixed = index.rm3(original_query_weight=0.0)(results(("1", "d1", 6.0, 0), ("1", "d2", -2.0, 1)))
    assert mixed["query_toks"][0] == pytest.approx({"spice": 3 / 5, "sand": 1 / 5, "worm": 1 / 5})
    for none in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError, match="score of qid '1' is NaN or infinite"):
            index.rm3()(results(("1", "d1", 6.0, 0), ("1", "d2", none, 1)))


def test_pruned_as_in_anserini(index):
    # of each document the two most frequent terms, equal ones by the alphabet: d1 spice 3/4, sand 1/4;
    # d2 sand 2/3, house 1/3
    # sand 3/4*1/4 + 1/4*2/3 = 17/48; spice 9/16 = 27/48; house 4/48. The best two: sand 17/44, spice 27/44
    found = index.rm3(fb_docs=2, fb_terms=2, original_query_weight=0.4)(
        results(("1", "d1", 3.0, 0), ("1", "d2", 1.0, 1))
    )
    assert found["query_toks"][0] == pytest.approx(
        {"dune": 0.4 * 2 / 3, "spice": 0.4 / 3 + 0.6 * 27 / 44, "sand": 0.6 * 17 / 44}
    )


@pytest.mark.parametrize(("weight", "terms"), [(1.0, {"dune": 2 / 3, "spice": 1 / 3}), (0.0, {"ship": 1.0})])
def test_ends_of_the_mixture(index, weight, terms):
    found = index.rm3(original_query_weight=weight)(results(("1", "d3", 5.0, 0)))
    assert found["query_toks"][0] == pytest.approx(terms)


def test_documents_without_terms_and_scores_of_zero(index):
    found = index.rm3(original_query_weight=0.5)(results(("1", "d4", 5.0, 0), ("2", "d3", 0.0, 0)))
    assert found["query_toks"][0] == pytest.approx({"dune": 1 / 3, "spice": 1 / 6})
    assert found["query_toks"][1] == pytest.approx({"dune": 1 / 3, "spice": 1 / 6})


def test_the_best_documents_are_those_of_lowest_rank(index):
    rows = [("1", "d3", 1.0, 1), ("1", "d1", 6.0, 0)]
    assert index.rm3(fb_docs=1)(results(*rows))["query_toks"][0].keys() == {"dune", "spice", "sand", "worm"}


def test_columns(index):
    found = index.rm3()(results(("b", "d1", 2.0, 0), ("a", "d3", 2.0, 0), ("b", "d2", 1.0, 1)))
    assert found["qid"].tolist() == ["b", "a"]
    assert found.columns.tolist() == ["qid", "query", "qhistory", "qtype", "turn_number", "query_toks"]
    assert found["qhistory"].tolist() == [[0], [1]]
    empty = index.rm3()(results(("b", "d1", 2.0, 0)).head(0))
    assert empty.columns.tolist() == found.columns.tolist()
    assert empty["qid"].dtype == "str"
    with pytest.raises(pt.validate.InputValidationError):
        index.rm3()(pd.DataFrame({"qid": ["1"], "query": ["x"]}))
    with pytest.raises(ValueError, match="'d9'"):
        index.rm3()(results(("1", "d9", 1.0, 0)))


def test_separators_are_no_terms(index):
    frame = results(("1", "d3", 1.0, 0), query="dune [SEP] spice").assign(qsep=" [SEP] ")
    assert index.rm3()(frame)["query_toks"][0] == pytest.approx({"dune": 0.25, "spice": 0.25, "ship": 0.5})


def test_weighted_queries_are_expanded_as_they_are(index):
    frame = results(("1", "d3", 1.0, 0)).assign(query_toks=[{"x": 3.0, "y": 1.0}])
    assert index.rm3()(frame)["query_toks"][0] == pytest.approx({"x": 0.375, "y": 0.125, "ship": 0.5})


def test_pipeline_cutoff_and_tuning(index):
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["spice", "nowhere"]})
    rm3 = index.rm3(fb_docs=1, fb_terms=2)
    pipeline = index.bm25() >> rm3 >> index.bm25()
    found = pipeline(topics)
    assert found["qid"].unique().tolist() == ["1"]
    assert found["docno"].tolist() == ["d1", "d2"]
    assert found["query"].unique().tolist() == ["spice"]
    # spice 1/2 + 1/2*3/4 of d1's two most frequent terms (sand before worm), sand 1/8
    assert found["query_toks"][0] == pytest.approx({"spice": 0.875, "sand": 0.125})
    pd.testing.assert_frame_equal(pipeline.compile()(topics), found)
    assert (index.bm25() >> rm3).compile() == index.bm25(num_results=1) >> rm3
    assert pickle.loads(pickle.dumps(rm3)) == rm3 == index.rm3(fb_docs=1, fb_terms=2) != index.rm3()
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d2"], "label": [1]})
    pt.GridScan(
        pipeline, {rm3: {"fb_docs": [1, 2], "original_query_weight": [0.1, 0.9]}}, topics, qrels, ["recip_rank"]
    )
    with pytest.raises(ValueError, match="fb_docs"):
        index.rm3(fb_docs=0)
    with pytest.raises(ValueError, match="original_query_weight"):
        index.rm3(original_query_weight=1.5)


def test_candidates_in_larger_collections(tmp_path):
    docs = {f"d{i}": "everywhere" for i in range(100)}
    docs |= {"best": "everywhere x 3.5 " + "a" * 21 + " " + "b" * 20 + " ok"}
    index = make(tmp_path / "i", docs)
    found = index.rm3(original_query_weight=0.0)(results(("1", "best", 1.0, 0)))
    assert found["query_toks"][0] == pytest.approx({"b" * 20: 0.5, "ok": 0.5})


def test_no_candidate_at_all_leaves_the_query(index, tmp_path):
    """An empty document; and, in a larger collection, documents that hold nothing but frequent terms."""
    found = index.rm3(original_query_weight=0.5)(results(("1", "d4", 1.0, 0)))
    assert found["query_toks"][0] == pytest.approx({"dune": 1 / 3, "spice": 1 / 6})
    large = make(tmp_path / "large", {f"d{i}": "sand" for i in range(100)})
    found = large.rm3(original_query_weight=0.5)(results(("1", "d4", 1.0, 0), ("2", "d5", 1.0, 0)))
    assert [toks == pytest.approx({"dune": 1 / 3, "spice": 1 / 6}) for toks in found["query_toks"]] == [True, True]


def test_one_query_and_many_agree(index):
    topics = pd.DataFrame({"qid": [str(i) for i in range(9)], "query": ["spice sand", "ship", "worm"] * 3})
    pipeline = index.bm25() >> index.rm3(fb_terms=3)
    together = pipeline(topics)
    for i in range(9):
        assert pipeline(topics.iloc[[i]])["query_toks"][0] == together["query_toks"][i]
