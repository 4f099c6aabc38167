"""The table: groups, means, what is left out, tests, saved runs."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings, strategies as st
from ir_measures import AP, RR, NumRet, R, Rprec, nDCG
from scipy import stats

import pt_convsearch as cs
from pt_convsearch.measures import judgments, read_run


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


def test_a_form_that_fails_is_not_one_that_cannot_apply(topics, qrels, words, former) -> None:
    """A system that finds nothing for real queries has 0, not a dash; so has a frame of results without them."""
    deaf = former("all") >> words() >> pt.apply.generic(lambda frame: frame[frame["qid"] != "c1_2"])
    table = cs.Experiment({"deaf": deaf, "frame": deaf(topics)}, topics, qrels, [RR], by="qtype")
    assert table["no-switch"]["RR"].tolist() == [0.0, 0.0]


def test_a_fusion_cannot_apply_where_none_of_its_parts_can(topics, qrels, words, former) -> None:
    history, question = former("history") >> words(), former("question") >> words()
    table = cs.Experiment(
        {"both": history + (former("history") >> words(more=("z",))), "one": history + question},
        topics, qrels, [RR], by="qtype",
    )  # fmt: skip
    assert math.isnan(table.loc["both", ("first", "RR")])
    assert table.loc["one", ("first", "RR")] == 1.0


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


def test_two_identical_systems_never_differ(topics, qrels, systems, words, former) -> None:
    pair = {"one": systems["X_t"], "two": former("all") >> words()}
    table = cs.Experiment(pair, topics, qrels, [RR, nDCG], by="qtype", baseline="one")
    assert not table.tests["significant"].any()
    assert table.tests.loc[table.tests["group"] == "All", "p_value"].tolist() == [1.0, 1.0]
    assert words.calls == [5]  # and the second was not run: both are the same pipeline


def test_a_system_of_others_is_taken_at_its_word_only_where_it_is_the_same_object(topics, qrels) -> None:
    class SaysItIsEqual(pt.Transformer):
        def __init__(self, docno: str) -> None:
            self.docno = docno

        def __eq__(self, other: object) -> bool:
            return isinstance(other, SaysItIsEqual)

        def __hash__(self) -> int:
            return 0

        def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
            return inp.assign(docno=self.docno, score=1.0, rank=0)

    table = cs.Experiment({"a": SaysItIsEqual("a"), "b": SaysItIsEqual("zzz")}, topics, qrels, [RR])
    assert table["All"]["RR"].tolist() == [0.25, 0.0]


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


def test_names_and_baselines(topics, qrels, systems) -> None:
    listed = list(systems.values())
    table = cs.Experiment(listed, topics, qrels, [RR], ["a", "b", "c"], baseline=-1)
    assert table.index.tolist() == ["a", "b", "c"]
    assert table.attrs["testing"]["baseline"] == "c"
    assert cs.Experiment(listed[:1], topics, qrels, RR).index.tolist() == [str(listed[0])]
    with pytest.raises(ValueError, match="'twin'"):
        cs.Experiment(listed[:2], topics, qrels, [RR], names=["twin", "twin"])
    with pytest.raises(ValueError, match="2 names for 3 systems"):
        cs.Experiment(listed, topics, qrels, [RR], names=["a", "b"])
    with pytest.raises(ValueError, match="'nobody'"):
        cs.Experiment(systems, topics, qrels, [RR], baseline="nobody")
    with pytest.raises(ValueError, match="baseline=3"):
        cs.Experiment(systems, topics, qrels, [RR], baseline=3)
    with pytest.raises(ValueError, match="baseline"):
        cs.Experiment(systems, topics, qrels, [RR], correction="holm")
    with pytest.raises(TypeError, match="'x'"):
        cs.Experiment({"x": "bm25"}, topics, qrels, [RR])
    with pytest.raises(ValueError, match="no system"):
        cs.Experiment([], topics, qrels, [RR])


@pytest.mark.parametrize(
    "options", [{"family": "all"}, {"average": "topic"}, {"perquery": "some"}, {"ci": 95}, {"batch_size": 0}]
)
def test_options_that_do_not_exist(topics, qrels, systems, options) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cs.Experiment(systems, topics, qrels, [RR], **options)


def test_frames_of_results_are_systems(topics, qrels, systems, former) -> None:
    run = systems["X_t"](topics)
    table = cs.Experiment([run, systems["X_t"]], topics, qrels, [RR, Rprec], names=["run", "pipeline"], by="qtype")
    assert table.loc["run"].equals(table.loc["pipeline"])
    empty = cs.Experiment({"none": run.head(0)}, topics, qrels, [RR, Rprec])
    assert empty["All"].iloc[0].tolist() == [0.0, 0.0, 4]
    with pytest.raises(ValueError, match=r"system 'bad': 1 rows .*NaN"):
        cs.Experiment({"bad": run.assign(score=[np.nan, *run["score"][1:]])}, topics, qrels, [RR])
    with pytest.raises(ValueError, match="'former' returned no docno"):
        cs.Experiment({"former": former("all")}, topics, qrels, [RR])


def test_judgments_of_strangers(topics, qrels, systems) -> None:
    more = pd.concat([qrels, pd.DataFrame({"qid": ["x_1"], "docno": ["a"], "label": [1]})])
    assert cs.Experiment(systems, topics, more, [RR])["All"]["n"].tolist() == [4] * 3
    table = cs.Experiment(systems, topics, more, [RR], by="qtype", filter_by_topics=False, ci=0.9)
    assert table["All"]["n"].tolist() == [5] * 3
    assert table.loc["X_t", ("All", "RR")] == 3.5 / 5
    assert table["first"]["n"].tolist() == [2] * 3


def test_what_cannot_be_evaluated_is_named(topics, qrels, systems) -> None:
    with pytest.raises(ValueError, match="none of the 5 topics has a judgment"):
        cs.Experiment(systems, topics, qrels.assign(qid="other"), [RR])
    with pytest.raises(ValueError, match="more than one row"):
        cs.Experiment(systems, pd.concat([topics, topics.head(1)]), qrels, [RR])
    with pytest.raises(ValueError, match="contradict"):
        cs.Experiment(systems, topics, pd.concat([qrels, qrels.head(1).assign(label=0)]), [RR])
    with pytest.raises(ValueError, match="no_such"):
        cs.Experiment(systems, topics, qrels, ["no_such"])


def test_questions_without_gold_are_left_out_and_counted(words) -> None:
    """Report 1.1: three turns, one judged: the mean is over one, and the table says 1 of 3."""
    topics = pd.DataFrame({"qid": ["1_1", "1_2", "1_3"], "query": ["x", "p7", "y"]})
    table = cs.Experiment({"words": words()}, topics, {"1_1": {"": 1}, "1_2": {"p7": 1}}, [RR])
    assert table["All"].iloc[0].tolist() == [1.0, 1]
    assert "1 of 3 questions judged" in cs.render(table)


def test_integer_ids(qrels, words) -> None:
    topics = pd.DataFrame({"qid": [1, 2], "query": ["a", "b"], "kind": [1, 2]})
    judged = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "x"], "label": [1, 1]})
    table = cs.Experiment({"words": words()}, topics, judged, [RR], by="kind")
    assert table["All"]["RR"].tolist() == [0.5]
    assert table["1"]["RR"].tolist() == [1.0]
    run = pd.DataFrame({"qid": [1, 2], "docno": ["a", "x"], "score": [1.0, 1.0]})
    assert cs.Experiment({"run": run}, topics, judged, [RR]).questions["without_results"] == {"run": 0}


def test_batches_give_the_same_table(topics, qrels, systems, words) -> None:
    whole = cs.Experiment(systems, topics, qrels, [RR, AP], by="qtype")
    words.calls.clear()
    pieces = cs.Experiment(systems, topics, qrels, [RR, AP], by="qtype", batch_size=2)
    pd.testing.assert_frame_equal(whole, pieces)
    assert words.calls == [2, 2, 1] * 3


def test_runs_are_kept_and_reused(topics, qrels, systems, tmp_path, words) -> None:
    topics.loc[0, "qid"] = "NA"
    qrels.loc[0, ["qid", "docno"]] = ["NA", "a"]
    folder = tmp_path / "runs"
    systems = {"all": systems["X_t"], "history": systems["X_t\\q_t"]}
    table = cs.Experiment(systems, topics, qrels, [RR], by="qtype", save_dir=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["all.res.gz", "history.res.gz"]
    assert "NA" in set(read_run(folder / "all.res.gz")["qid"])
    words.calls.clear()
    again = cs.Experiment(systems, topics, qrels, [RR], by="qtype", save_dir=folder, save_mode="reuse")
    pd.testing.assert_frame_equal(table, again)  # the dash included
    assert words.calls == []
    with pytest.warns(UserWarning, match="replaced"):
        cs.Experiment(systems, topics, qrels, [RR], save_dir=folder)
    with pytest.raises(ValueError, match="exists"):
        cs.Experiment(systems, topics, qrels, [RR], save_dir=folder, save_mode="error")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cs.Experiment(systems, topics, qrels, [RR], save_dir=folder, save_mode="overwrite")
    with pytest.raises(ValueError, match="2 qids that the topics lack"):
        cs.Experiment(systems, topics.iloc[2:], qrels, [RR], save_dir=folder, save_mode="reuse")
    with pytest.raises(ValueError, match="no file can have"):
        cs.Experiment({"a/b": systems["all"]}, topics, qrels, [RR], save_dir=folder)
    with pytest.raises(ValueError, match="save_mode"):
        cs.Experiment(systems, topics, qrels, [RR], save_dir=folder, save_mode="never")


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


def test_a_system_that_returns_nothing_at_all_is_named(topics, qrels) -> None:
    with pytest.raises(TypeError, match="'broken' returned a NoneType"):
        cs.Experiment({"broken": pt.apply.generic(lambda frame: None)}, topics, qrels, [RR])


def test_judgments_checked_before(topics, qrels, systems) -> None:
    checked = judgments(qrels)
    pd.testing.assert_frame_equal(
        cs.Experiment(systems, topics, checked, [RR]), cs.Experiment(systems, topics, qrels, [RR])
    )
