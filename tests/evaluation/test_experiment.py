"""The table: groups, means, tests."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings, strategies as st
from ir_measures import AP, RR, NumRet, R, nDCG
from scipy import stats

import pt_convsearch as cs


def test_values_and_groups_by_hand(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR, R @ 1], by="qtype")
    assert table.index.tolist() == list(systems)
    assert table.columns.tolist() == [
        (group, measure)
        for group in ("All", "first", "no-switch", "switch", "missing")
        for measure in ("RR", "R@1", "n")
    ]
    assert table["All"]["RR"].tolist() == [3.5 / 4, 1 / 4, 3 / 4]
    assert table["All"]["n"].tolist() == [4, 4, 4]
    # every query of "first" is empty without the question: no value there, and 0 in All
    assert table["first"]["RR"].tolist()[::2] == [1.0, 1.0]
    assert math.isnan(table.loc["X_t\\q_t", ("first", "RR")])
    assert table["no-switch"]["RR"].tolist() == [1.0, 0.0, 1.0]
    assert table["switch"]["RR"].tolist() == [0.5, 1.0, 0.0]
    # the question without a type is not judged: a group of its own, with no value
    assert table["missing"]["n"].tolist() == [0, 0, 0]
    assert table["missing"]["RR"].isna().all()
    assert table.questions == {
        "topics": 5, "judged": 4, "unjudged": 1, "without_results": {"X_t": 0, "X_t\\q_t": 2, "q_t": 0},
    }  # fmt: skip


def test_each_system_searches_once(topics, qrels, systems, words) -> None:
    cs.Experiment(systems, topics, qrels, [RR], by=["qtype", "conversation_id"])
    # once over 5 topics each; the empty form is asked again only up to the first retriever (no call, as it is empty)
    assert words.calls == [5, 5, 5]
    words.calls.clear()
    cs.Experiment(systems, topics, qrels, [RR], filter_by_qrels=True)
    assert words.calls == [4, 4, 4]


def test_a_table_by_group_over_the_same_turns() -> None:
    """Report 9.3: types A x 4, B x 1, missing x 1; weighted means are the mean; n = 1 is never significant."""
    qids = [f"q{number}" for number in range(6)]
    topics = pd.DataFrame(
        {"qid": qids, "query": "x", "qtype": ["A", "A", "A", "A", "B", None], "turn_number": range(6)}
    )
    qrels = pd.DataFrame({"qid": qids, "docno": "g", "label": 1})
    places = {"one": [1, 2, 3, 4, 5, 6], "two": [20, 1, 1, 1, 1, 1]}
    runs = {
        name: pd.concat(
            pd.DataFrame(
                {"qid": qid, "docno": [f"x{at}" for at in range(place - 1)] + ["g"], "score": -np.arange(place)}
            )
            for qid, place in zip(qids, ranks, strict=True)
        )
        for name, ranks in places.items()
    }
    table = cs.Experiment(
        runs, topics, qrels, [RR @ 10], by=["qtype", "turn_number"], baseline="one", correction="holm"
    )
    groups = ["A", "B", "missing"]
    assert table.columns.get_level_values(0).unique().tolist() == ["All", *groups, *"012345"]
    sizes = np.array([table[group]["n"].iloc[0] for group in groups])
    assert sizes.tolist() == [4, 1, 1]
    for name in runs:
        parts = np.array([table.loc[name, (group, "RR@10")] for group in groups])
        assert (parts * sizes).sum() / 6 == pytest.approx(table.loc[name, ("All", "RR@10")])
    assert table.loc["one", ("A", "RR@10")] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert table.loc["two", ("A", "RR@10")] == pytest.approx(3 / 4)  # rank 20 is beyond the cutoff
    tests = table.tests.set_index("group")
    assert tests.loc[["B", "missing"], "p_value"].isna().all()
    assert not tests.loc[["B", "missing"], "significant"].any()
    first, second = [1, 1 / 2, 1 / 3, 1 / 4], [0, 1, 1, 1]
    assert tests.loc["A", "p_value"] == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_categories_give_the_order_and_masks_may_overlap(topics, qrels, systems) -> None:
    topics["qtype"] = pd.Categorical(topics["qtype"], categories=["switch", "unused", "no-switch", "first"])
    table = cs.Experiment(
        systems, topics, qrels, [RR], by=["qtype", {"t > 1": topics.turn_number > 1, "any": [True] * 5}]
    )
    groups = table.columns.get_level_values(0).unique().tolist()
    assert groups == ["All", "switch", "no-switch", "first", "missing", "t > 1", "any"]
    assert table["t > 1"]["RR"].tolist() == [0.75, 0.5, 0.5]
    assert table["any"]["n"].tolist() == [4, 4, 4]
    aligned = cs.Experiment(systems, topics[::-1], qrels, [RR], by={"t > 1": topics.turn_number > 1})
    assert aligned["t > 1"]["RR"].tolist() == [0.75, 0.5, 0.5]


def test_labels_that_clash_are_told_apart(topics, qrels, systems) -> None:
    topics["source"] = ["first", "All", "All", "x", "x"]
    table = cs.Experiment(systems, topics, qrels, [RR], by=["qtype", "source"])
    assert table.columns.get_level_values(0).unique().tolist() == [
        "All", "qtype: first", "no-switch", "switch", "missing", "source: first", "source: All", "x",
    ]  # fmt: skip


def test_groups_that_cannot_be(topics, qrels, systems) -> None:
    with pytest.raises(ValueError, match="'kind'"):
        cs.Experiment(systems, topics, qrels, [RR], by="kind")
    with pytest.raises(ValueError, match="qhistory"):
        cs.Experiment(systems, topics, qrels, [RR], by="qhistory")
    with pytest.raises(ValueError, match="'short'"):
        cs.Experiment(systems, topics, qrels, [RR], by={"short": [True]})
    with pytest.raises(ValueError, match="'numbers'"):
        cs.Experiment(systems, topics, qrels, [RR], by={"numbers": topics.turn_number})
    with pytest.raises(TypeError, match="by="):
        cs.Experiment(systems, topics, qrels, [RR], by=[3])






def test_tests_against_the_baseline(topics, qrels, systems) -> None:
    values = {"X_t": [1, 1, 0.5, 1], "X_t\\q_t": [0, 0, 1, 0], "q_t": [1, 1, 0, 1]}
    table = cs.Experiment(systems, topics, qrels, [RR], by="qtype", baseline=0, correction="bonferroni")
    tests = table.tests.set_index(["name", "group"])
    assert "X_t" not in tests.index.get_level_values(0)
    for name in ("X_t\\q_t", "q_t"):
        row = tests.loc[(name, "All")]
        expected = stats.ttest_rel(values[name], values["X_t"]).pvalue
        assert row["p_value"] == pytest.approx(expected)
        assert row["p_corrected"] == pytest.approx(min(1.0, 2 * expected))  # two systems in the family
        assert row["difference"] == pytest.approx(np.mean(np.subtract(values[name], values["X_t"])))
    assert tests.loc[("X_t\\q_t", "All"), ["better", "worse"]].tolist() == [1, 3]
    assert math.isnan(tests.loc[("X_t\\q_t", "first"), "p_value"])  # no value, no test
    family = cs.Experiment(
        systems, topics, qrels, [RR], by="qtype", baseline="X_t", correction="bonferroni", family="table"
    )
    row = family.tests.set_index(["name", "group"]).loc[("q_t", "All")]
    tested = family.tests["p_value"].notna().sum()
    assert tested == 3  # two in All, q_t at first turns; the other groups have one question or an empty form
    assert row["p_corrected"] == pytest.approx(min(1.0, 3 * stats.ttest_rel(values["q_t"], values["X_t"]).pvalue))






def test_average_over_conversations(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR], by="qtype", average="conversation", baseline=0)
    # X_t: c1 (1, 1, 1/2) and c2 (1); q_t: c1 (1, 1, 0) and c2 (1)
    assert table["All"]["RR"].tolist() == pytest.approx([(2.5 / 3 + 1) / 2, (1 / 3 + 0) / 2, (2 / 3 + 1) / 2])
    assert table["All"]["n"].tolist() == [2, 2, 2]
    assert table["first"]["n"].tolist() == [2, 2, 2]
    assert table.tests.set_index(["name", "group"]).loc[("q_t", "All"), "n"] == 2
    with pytest.raises(ValueError, match="conversation_id"):
        cs.Experiment(systems, topics.drop(columns="conversation_id"), qrels, [RR], average="conversation")


def test_intervals_over_conversations(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR], by="qtype", ci=0.95, seed=1)
    spans = table.intervals.set_index(["name", "group"])
    # two conversations: resamples are c1 twice (mean 2.5/3), both, or c2 twice (mean 1)
    assert spans.loc[("X_t", "All"), ["low", "high"]].tolist() == pytest.approx([2.5 / 3, 1.0])
    assert spans.loc[("X_t\\q_t", "first"), ["low", "high"]].isna().all()
    assert spans.loc[("X_t", "switch"), ["low", "high"]].isna().all()  # one conversation
    again = cs.Experiment(systems, topics, qrels, [RR], by="qtype", ci=0.95, seed=1)
    pd.testing.assert_frame_equal(table.intervals, again.intervals)


def test_a_label_column_may_be_called_anything(topics, qrels, systems) -> None:
    called = {"name": list("ppqqr"), "measure": list("ppqqr"), "value": list("ppqqr"), "RR": list("ppqqr")}
    topics = topics.assign(**called)
    for column in called:
        table, values = cs.Experiment(systems, topics, qrels, [RR], by=column, perquery="both")
        # p is c1_1 and c1_2, q is c1_3 and c2_1, r is not judged
        assert table.loc["X_t", [("p", "RR"), ("q", "RR")]].tolist() == [1.0, 0.75]
        shown = column if column == "RR" else f"topics.{column}"
        assert values.columns.tolist() == ["name", "qid", "measure", "value", shown]
        assert values[values["name"] == "X_t"][["qid", "value", shown]].to_numpy().tolist() == [
            ["c1_1", 1.0, "p"], ["c1_2", 1.0, "p"], ["c1_3", 0.5, "q"], ["c2_1", 1.0, "q"],
        ]  # fmt: skip
    table, values = cs.Experiment(systems, topics, qrels, [RR], by="qid", perquery="both")
    assert table.loc["X_t", ("c1_3", "RR")] == 0.5
    assert values.columns.tolist() == ["name", "qid", "measure", "value"]


@pytest.mark.parametrize("by", [3, len, "all of them"])
def test_what_is_no_breakdown(topics, qrels, systems, by) -> None:
    by = topics["qtype"] if by == "all of them" else by
    with pytest.raises(TypeError, match=f"by is a {type(by).__name__}"):
        cs.Experiment(systems, topics, qrels, [RR], by=by)


def test_labels_that_are_numbers(topics, qrels, systems) -> None:
    topics["depth"] = [1.0, 2.5, math.inf, 1.0, math.nan]
    table = cs.Experiment(systems, topics, qrels, [RR], by="depth")
    assert table.columns.get_level_values(0).unique().tolist() == ["All", "1", "2.5", "inf", "missing"]
    with pytest.raises(ValueError, match="'late'"):
        cs.Experiment(systems, topics, qrels, [RR], by={"late": lambda frame: frame.turn_number > 1})


def test_values_per_question(topics, qrels, systems) -> None:
    frame = cs.Experiment(systems, topics, qrels, [RR, R @ 1], by="qtype", perquery=True, baseline="X_t")
    assert frame.columns.tolist() == ["name", "qid", "measure", "value", "qtype"]
    rows = frame[(frame["name"] == "X_t\\q_t") & (frame["measure"] == "RR")]
    assert rows[["qid", "value"]].values.tolist() == [["c1_1", 0.0], ["c1_2", 0.0], ["c1_3", 1.0], ["c2_1", 0.0]]
    assert rows["qtype"].tolist() == ["first", "no-switch", "switch", "first"]
    table, same = cs.Experiment(systems, topics, qrels, [RR, R @ 1], by="qtype", perquery="both")
    pd.testing.assert_frame_equal(frame, same)
    means = same.groupby(["name", "measure"], sort=False)["value"].mean()
    assert table["All"]["RR"].tolist() == means.xs("RR", level="measure").tolist()




@pytest.mark.parametrize(
    "options", [{"family": "all"}, {"average": "topic"}, {"perquery": "some"}, {"ci": 95}, {"batch_size": 0}]
)
def test_options_that_do_not_exist(topics, qrels, systems, options) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cs.Experiment(systems, topics, qrels, [RR], **options)
















def test_time_counts_and_rounding(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR, NumRet, "mrt"], by="qtype", round={"RR": 1})
    assert table["All"].columns.tolist() == ["RR", "NumRet", "mrt", "n"]
    assert "mrt" not in table["first"]
    assert (table["All"]["mrt"] > 0).all()
    assert table["All"]["NumRet"].tolist() == [1 + 2 + 3 + 1, 1 + 2, 4]  # a sum, not a mean
    assert table.loc["X_t", ("All", "RR")] == 0.9
    assert cs.Experiment(systems, topics, qrels, [RR], round=1).loc["X_t", ("All", "RR")] == 0.9
    assert cs.Experiment(systems, topics, qrels, ["mrt"])["All"].columns.tolist() == ["mrt", "n"]


def test_the_table_stays_what_it_is(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR], baseline=0, correction="holm", ci=0.9)
    for same in (pickle.loads(pickle.dumps(table)), table.copy(), table.loc[:, ["All"]], table.sort_index()):
        assert type(same) is type(table)
        pd.testing.assert_frame_equal(same.tests, table.tests)
    assert json.loads(json.dumps(table.attrs["tests"])) == table.attrs["tests"]
    assert "<table" in table._repr_html_()
    numbers = table.drop(columns=[("All", "n")])
    assert all(dtype == np.float64 for dtype in numbers.dtypes)


grades = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), min_size=1)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcd"), unique=True), grades, st.sampled_from(["x", "y", None])), min_size=1
    ),
)
def test_the_means_are_those_of_pt_experiment(rows) -> None:
    topics = pd.DataFrame(
        {"qid": [f"q{at}" for at in range(len(rows))], "query": "w", "kind": [row[2] for row in rows]}
    )
    qrels = pd.DataFrame(
        [(f"q{at}", docno, label) for at, row in enumerate(rows) for docno, label in row[1].items()],
        columns=["qid", "docno", "label"],
    )
    found = [
        (f"q{at}", docno, -float(place), place) for at, row in enumerate(rows) for place, docno in enumerate(row[0])
    ]
    run = pd.DataFrame(found or [("q0", "z", 0.0, 0)], columns=["qid", "docno", "score", "rank"])
    measures = [RR, R @ 2, AP, nDCG @ 3]
    theirs = pt.Experiment([run], topics, qrels, measures, validate="ignore")
    ours = cs.Experiment({"run": run}, topics, qrels, measures, by="kind")
    for measure in map(str, measures):
        assert ours.loc["run", ("All", measure)] == pytest.approx(theirs.loc[0, measure], abs=1e-12)
        groups = [group for group in ours.columns.get_level_values(0).unique() if group != "All"]
        weighted = sum(ours.loc["run", (group, measure)] * ours.loc["run", (group, "n")] for group in groups)
        assert weighted / len(rows) == pytest.approx(ours.loc["run", ("All", measure)], abs=1e-12)




