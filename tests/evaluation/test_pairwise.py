"""Tests of all pairs of systems, and the letters of a table, worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

import pt_convsearch as cs

VALUES = {"a": [1.0, 0.9, 1.0, 0.8], "b": [0.1, 0.2, 0.0, 0.1], "c": [0.9, 0.9, 1.0, 0.9]}


def frame(measure: str = "RR") -> pd.DataFrame:
    return pd.DataFrame(
        [(name, str(n), measure, value) for name, values in VALUES.items() for n, value in enumerate(values)],
        columns=["name", "qid", "measure", "value"],
    )


def test_all_pairs_with_bonferroni() -> None:
    tests = cs.pairwise_tests(frame().sample(frac=1, random_state=1).sort_values("name", kind="stable"))
    assert tests[["better", "worse"]].values.tolist() == [["a", "b"], ["a", "c"], ["c", "b"]]
    for row in tests.itertuples():
        p_value = stats.ttest_rel(VALUES[row.better], VALUES[row.worse])[1]
        assert row.p_value == pytest.approx(p_value)
        assert row.p_corrected == pytest.approx(min(1, 3 * p_value))
    assert tests["significant"].tolist() == [True, False, True]


def test_letters() -> None:
    table = cs.superscripts(pd.concat([frame(), frame("R@1")]), digits=1)
    assert table.index.tolist() == ["(a) a", "(b) b", "(c) c"]
    assert table["RR"].tolist() == ["0.9<sup>b</sup>", "0.1", "0.9<sup>b</sup>"]
    assert table["R@1"].tolist() == table["RR"].tolist()


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="'b' has no RR for 1"):
        cs.pairwise_tests(frame().drop(index=4))
    with pytest.raises(ValueError, match="1 systems"):
        cs.pairwise_tests(frame().query("name == 'a'"))
