"""Values equal to trec_eval's, one tie rule for all measures, ids and judgments as people have them."""

from __future__ import annotations

import math
import warnings

import ir_measures
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from ir_measures import AP, RR, Bpref, Measure, P, R, Rprec, Success, nDCG

from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.measures.arrays import in_arrays

OURS = [RR, RR(rel=2), R @ 1, R @ 5, R(rel=2) @ 10, Success @ 1, Success(rel=3) @ 5, P @ 3, P(rel=2) @ 10, AP, AP @ 3]
OURS += [AP(rel=2), nDCG, nDCG @ 1, nDCG @ 3, nDCG(gains={1: 0, 2: 1, 3: 5}) @ 5, RR @ 2, RR(rel=2) @ 3]


def run_of(ranked: dict[str, list[str]]) -> pd.DataFrame:
    rows = [(qid, docno, float(-at), at) for qid, docnos in ranked.items() for at, docno in enumerate(docnos)]
    return pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])


def qrels_of(labels: dict[str, dict[str, int]]) -> pd.DataFrame:
    rows = [(qid, docno, label) for qid, judged in labels.items() for docno, label in judged.items()]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def reference(run: pd.DataFrame, qrels: pd.DataFrame, measures: list[Measure]) -> dict[tuple[str, str], float]:
    run = run.rename(columns={"qid": "query_id", "docno": "doc_id"})
    qrels = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    # one by one: together, a measure without gains now and then gets those of another
    found = (one for measure in measures for one in ir_measures.iter_calc([measure], qrels, run))
    return {(one.query_id, str(one.measure)): one.value for one in found}


# no labels below 0: trec_eval counts them outside its array, and now and then never comes back
documents = st.sampled_from([f"d{number}" for number in range(12)])
runs = st.dictionaries(st.sampled_from("12345"), st.lists(documents, unique=True, max_size=12), max_size=5)
labels = st.dictionaries(
    st.sampled_from("12346"), st.dictionaries(documents, st.integers(0, 4), min_size=1, max_size=12), min_size=1
)


@settings(deadline=None, max_examples=150)
@given(runs, labels, st.randoms(use_true_random=False))
def test_values_are_those_of_ir_measures(ranked, judged, random) -> None:
    run, qrels = run_of(ranked), qrels_of(judged)
    shuffled = run.sample(frac=1, random_state=random.randrange(1000))
    values = reference(run, qrels, OURS)
    expected = [[values[qid, str(measure)] for measure in OURS] for qid in sorted(judged)]
    for frame in (run, shuffled, shuffled.drop(columns="rank"), shuffled.drop(columns="score")):
        found = evaluate(frame, qrels, OURS).sort_index()
        assert found.index.tolist() == sorted(judged)
        np.testing.assert_allclose(found[list(map(str, OURS))].to_numpy(), expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from("123"), st.dictionaries(documents, st.sampled_from([1.0, 1 + 1e-9, 2.0]), min_size=1)
    ),
    labels,
)
def test_ties_of_trec_eval(scored, judged) -> None:
    run = pd.DataFrame(
        [(qid, docno, score) for qid, scores in scored.items() for docno, score in scores.items()],
        columns=["qid", "docno", "score"],
    )
    trec = [RR, R @ 1, AP, nDCG @ 3, P @ 2, Success @ 2]  # RR@k is msmarco's in ir_measures, with another tie rule
    expected = reference(run, qrels_of(judged), trec)
    found = evaluate(run, qrels_of(judged), trec, ties="trec_eval")
    for (qid, measure), value in expected.items():
        assert found.loc[qid, measure] == pytest.approx(value, abs=1e-12)


def test_what_the_arrays_do_not_know_goes_to_ir_measures_in_the_same_order() -> None:
    # all scores equal: by rank, b stands first
    run = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "score": 1.0, "rank": [1, 0]})
    judged = nDCG(judged_only=True) @ 1
    assert not in_arrays(judged)
    found = evaluate(run, {"1": {"b": 1, "c": 0}}, [Rprec, judged, Bpref, RR])
    assert found.loc["1"].to_dict() == {"Rprec": 1.0, str(judged): 1.0, "Bpref": 1.0, "RR": 1.0}


def test_exponential_gains_by_hand() -> None:
    # ranking: label 1 at rank 1, label 3 at rank 2; gains 2^1-1 = 1 and 2^3-1 = 7
    found = evaluate(run_of({"q": ["a", "b"]}), {"q": {"a": 1, "b": 3}}, [nDCG(dcg="exp-log2") @ 10])
    dcg, ideal = 1 + 7 / math.log2(3), 7 + 1 / math.log2(3)
    assert found.iloc[0, 0] == pytest.approx(dcg / ideal, abs=1e-12)


def test_which_questions_enter_the_mean() -> None:
    """Report 6.1: judged 1 and 2, results for 1 and 4: RR is 0.5, the mean over 1 and 2."""
    found = evaluate(run_of({"1": ["g"], "4": ["x"]}), {"1": {"g": 1}, "2": {"h": 1}}, [RR])
    assert found["RR"].to_dict() == {"1": 1.0, "2": 0.0}
    # judged with none relevant counts 0; an empty docno is no judgment
    found = evaluate(run_of({"1": ["g"]}), {"1": {"g": 0}, "2": {"": 1}, "3": {"": 1, "g": 1}}, [RR, nDCG, AP, R @ 5])
    assert found.index.tolist() == ["1", "3"]
    assert (found == 0).all(axis=None)


def test_only_the_questions_asked_for_in_their_order() -> None:
    found = evaluate(run_of({"1": ["g"]}), {"1": {"g": 1}, "2": {"g": 1}, "3": {"g": 1}}, [RR], qids=["3", "9", "1"])
    assert found["RR"].to_dict() == {"3": 0.0, "1": 1.0}


@pytest.mark.parametrize("gold", ["a", "b"])
def test_one_tie_rule_for_all_measures(gold: str) -> None:
    """Report 6.3: equal scores; RR and RR@10 agree, and both follow the rank column."""
    tied = pd.DataFrame({"qid": "q", "docno": ["a", "b"], "score": [1.0, 1.0]})
    for frame, first in (
        (tied, "a"),
        (tied.assign(rank=[1, 0]), "b"),
        (tied[::-1], "b"),
        (tied.assign(rank=[0, 1]), "a"),
    ):
        found = evaluate(frame, {"q": {gold: 1}}, [RR, RR @ 10, nDCG @ 10, AP, Rprec, P @ 1]).loc["q"]
        place = 1 if gold == first else 2
        assert found[["RR", "RR@10", "AP"]].tolist() == [1 / place] * 3
        assert found["nDCG@10"] == pytest.approx(1 / math.log2(place + 1))
        assert found[["Rprec", "P@1"]].tolist() == [float(place == 1)] * 2


def test_a_constant_scorer_gains_nothing_from_one_measure() -> None:
    run = pd.DataFrame({"qid": "q", "docno": [f"d{at}" for at in range(20)], "score": 0.0})
    found = evaluate(run, {"q": {"d0": 1}}, [RR @ 10, nDCG @ 10, RR])
    assert found.loc["q"].tolist() == [1.0, 1.0, 1.0]
    found = evaluate(run, {"q": {"d0": 1}}, [RR @ 10, nDCG @ 10], ties="trec_eval")  # d9, d8, …, d0 stands last
    assert found.loc["q"].tolist() == [0.0, 0.0]


def test_recall_and_success() -> None:
    """Report 6.5: four relevant, the top one relevant."""
    qrels = {"q": {"a": 1, "b": 1, "c": 1, "d": 1}}
    found = evaluate(run_of({"q": ["a", "x"]}), qrels, [R @ 1, Success @ 1])
    assert found.columns.tolist() == ["R@1", "Success@1"]
    assert found.loc["q"].tolist() == [0.25, 1.0]


def test_repeated_documents_keep_the_best_with_a_warning() -> None:
    """Report 6.8: a stands twice; without its second row b is at rank 2."""
    run = pd.DataFrame({"qid": "q", "docno": ["a", "a", "b"], "score": [2.0, 1.0, 0.5]})
    with pytest.warns(UserWarning, match=r"1 rows of the run repeat .* 'q a'"):
        found = evaluate(run, {"q": {"b": 1}}, [RR, R @ 2, Rprec])
    assert found.loc["q"].tolist() == [0.5, 1.0, 0.0]
    with pytest.warns(UserWarning, match="2 rows"):
        found = evaluate(pd.concat([run, run.assign(qid="r")])[::-1], {"q": {"a": 1, "b": 1}, "r": {"b": 1}}, [AP])
    assert found["AP"].tolist() == [1.0, 0.5]


def test_repeats_are_found_across_blocks_of_many_questions() -> None:
    questions, depth = 300, 500  # 150,000 rows: more than one block
    run = pd.DataFrame(
        {
            "qid": np.repeat([f"q{number}" for number in range(questions)], depth),
            "docno": np.tile([f"d{number}" for number in range(depth)], questions),
            "rank": np.tile(np.arange(depth), questions),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(run, {"q7": {"d3": 1}}, [RR])
    run.loc[[10 * depth + 7, 250 * depth + 9], "docno"] = "d2"
    with pytest.warns(UserWarning, match="2 rows of the run repeat .*'q10 d2', 'q250 d2'"):
        found = evaluate(run, {"q10": {"d8": 1}, "q250": {"d2": 1}}, [RR])
    assert found["RR"].tolist() == [1 / 8, 1 / 3]


def test_repeated_judgments_are_merged_and_contradictions_refused() -> None:
    qrels = pd.DataFrame({"qid": ["q", "q", "q"], "docno": ["a", "a", "b"], "label": [1, 1, 1]})
    assert evaluate(run_of({"q": ["a"]}), qrels, [R @ 5]).iloc[0, 0] == 0.5
    with pytest.raises(ValueError, match="'q a'"):
        judgments(qrels.assign(label=[1, 0, 1]))


def test_ids_become_str_once() -> None:
    """Report 6.9: ints and floats in one frame, str in the other."""
    run = pd.DataFrame({"qid": [1, 1, 2], "docno": [10, 11, 10], "score": [2.0, 1.0, 1.0]})
    qrels = pd.DataFrame({"qid": [1.0, 2.0], "docno": ["11", "10"], "label": [1, 1]})
    assert evaluate(run, qrels, [RR])["RR"].to_dict() == {"1": 0.5, "2": 1.0}
    mixed = pd.DataFrame(
        {"qid": pd.Series([1, "1", 1], dtype=object), "docno": ["a", "b", "c"], "score": [3.0, 2.0, 1.0]}
    )
    assert evaluate(mixed, {"1": {"c": 1}}, [RR])["RR"].to_dict() == {"1": 1 / 3}


def test_ids_are_taken_byte_for_byte() -> None:
    """Report 1.8: quotes, commas, NA, leading zeros."""
    docnos = ['"Heroes"_(album)', "a,b", "NA", "007", "órgão 🙂"]
    found = evaluate(run_of({"NA": docnos}), {"NA": dict.fromkeys(docnos, 1)}, [R @ 5, AP])
    assert found.loc["NA"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("column", ["score", "rank"])
def test_nan_is_refused_by_qid(column: str) -> None:
    run = run_of({"q1": ["a"], "q2": ["a", "b"]}).astype({"rank": float})
    run.loc[2, column] = np.nan
    with pytest.raises(ValueError, match=f"1 rows of the run have no {column} .* 'q2'"):
        evaluate(run, {"q1": {"a": 1}}, [RR])


def test_missing_columns_and_ids_are_named() -> None:
    run = run_of({"q": ["a"]})
    with pytest.raises(ValueError, match=r"\['docno'\]"):
        evaluate(run.drop(columns="docno"), {"q": {"a": 1}}, [RR])
    with pytest.raises(ValueError, match=r"\['score'\]"):
        evaluate(run.drop(columns=["score", "rank"]), {"q": {"a": 1}}, [RR])
    with pytest.raises(ValueError, match="docno"):
        evaluate(run.assign(docno=None), {"q": {"a": 1}}, [RR])
    with pytest.raises(ValueError, match=r"\['label'\]"):
        evaluate(run, pd.DataFrame({"qid": ["q"], "docno": ["a"]}), [RR])
    with pytest.raises(ValueError, match=r"0\.5"):
        evaluate(run, {"q": {"a": 0.5}}, [RR])
    with pytest.raises(ValueError, match="ties"):
        evaluate(run, {"q": {"a": 1}}, [RR], ties="docno")


def test_empty_runs_and_judgments() -> None:
    empty = run_of({})
    assert evaluate(empty, {"q": {"a": 1}}, [RR, Rprec, nDCG]).loc["q"].tolist() == [0, 0, 0]
    none = evaluate(run_of({"q": ["a"]}), {}, [RR, Rprec, nDCG])
    assert none.shape == (0, 3)


def test_names_of_measures() -> None:
    named = as_measures(["map", RR, "R@10", "ndcg_cut_10", "R(rel=2)@10", RR])
    assert list(named) == ["map", "RR", "R@10", "ndcg_cut_10", "R(rel=2)@10"]
    assert named["map"] == AP
    assert named["ndcg_cut_10"] == nDCG @ 10
    assert named["R(rel=2)@10"] == R(rel=2) @ 10
    assert list(as_measures("recall_5,10")) == ["R@5", "R@10"]
    for wrong in (["no_such"], [R], [], ["P@"]):
        with pytest.raises(ValueError):
            as_measures(wrong)
    with pytest.raises(TypeError):
        as_measures([3])


def test_what_is_no_frame_or_asked_for_twice_is_said() -> None:
    run = pd.DataFrame({"qid": ["1"], "docno": ["a"], "score": [1.0]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
    with pytest.raises(TypeError, match="a run is a frame .* not list"):
        evaluate([("1", "a", 1.0)], qrels, ["RR"])
    with pytest.raises(TypeError, match="qrels are a frame .* not list"):
        evaluate(run, [("1", "a", 1)], ["RR"])
    with pytest.raises(ValueError, match="asked for more than once \\('1'\\)"):
        evaluate(run, qrels, ["RR"], qids=["1", "1"])


def test_labels_below_zero_are_not_relevant() -> None:
    run, qrels = run_of({"1": ["a", "b"], "2": ["a"]}), qrels_of({"1": {"a": -1, "b": 2}, "2": {"a": -2}})
    found = evaluate(run, qrels, ["RR", "AP", "nDCG", "R@1"]).sort_index()
    # the only gain is 2, at rank 2 where it could be at rank 1; nothing is relevant for the second question
    assert found["nDCG"].tolist() == pytest.approx([1 / np.log2(3), 0.0])
    assert found[["RR", "AP", "R@1"]].to_numpy().tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    # handed to ir_measures: "a" is judged, not relevant, and stands before the one relevant document
    others = evaluate(run, qrels, [Rprec, Bpref]).sort_index()
    assert others.to_numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_gains_of_one_measure_are_not_those_of_another(monkeypatch) -> None:
    """ir_measures puts nDCG without gains to whichever group it made first, which hangs on Python's hash seed."""
    calls: list[list[str]] = []
    real = ir_measures.iter_calc
    monkeypatch.setattr(ir_measures, "iter_calc", lambda m, *rest: calls.append(list(map(str, m))) or real(m, *rest))
    plain, none = nDCG(judged_only=True), nDCG(judged_only=True, gains={1: 0})
    found = evaluate(run_of({"1": ["d0"]}), qrels_of({"1": {"d0": 1}}), [none, plain, none @ 1, plain @ 1])
    assert found.iloc[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert [[("gains" in name) for name in call] for call in calls] == [[True, True], [False, False]]


def test_judgments_that_were_checked_are_taken_and_scores_are_numbers() -> None:
    checked = judgments({"1": {"d0": 1}})
    assert judgments(checked) is checked
    run = pd.DataFrame({"qid": ["1"], "docno": ["d0"], "score": ["high"]})
    with pytest.raises(ValueError, match="column 'score' of the run holds what is no number"):
        evaluate(run, checked, [RR])
