"""The systems of an experiment: their names, running each once, keeping runs, what cannot be evaluated."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, RR, Rprec, nDCG

import pt_convsearch as cs
from pt_convsearch.measures import judgments, read_run


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


def test_a_system_that_returns_nothing_at_all_is_named(topics, qrels) -> None:
    with pytest.raises(TypeError, match="'broken' returned a NoneType"):
        cs.Experiment({"broken": pt.apply.generic(lambda frame: None)}, topics, qrels, [RR])


def test_judgments_checked_before(topics, qrels, systems) -> None:
    checked = judgments(qrels)
    pd.testing.assert_frame_equal(
        cs.Experiment(systems, topics, checked, [RR]), cs.Experiment(systems, topics, qrels, [RR])
    )
