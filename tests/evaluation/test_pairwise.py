"""Tests of all pairs of systems, and the letters of a table, worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from scipy import stats

import pt_convsearch as cs
from pt_convsearch.evaluation.pairwise import _letter

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


def test_letters_of_more_systems_than_the_alphabet_has() -> None:
    """Thirty systems, four questions; the first and the last are better than all between, who are alike."""
    values = {f"s{n}": VALUES["c"] if n in (0, 29) else VALUES["b"] for n in range(30)}
    frame = pd.DataFrame(
        [(name, str(n), "RR", value + n * 1e-9) for name, own in values.items() for n, value in enumerate(own)],
        columns=["name", "qid", "measure", "value"],
    )
    table = cs.superscripts(frame, digits=1, correction=None)
    assert table.index[[0, 25, 26, 27, 29]].tolist() == ["(a) s0", "(z) s25", "(aa) s26", "(ab) s27", "(ad) s29"]
    between = ",".join([*"bcdefghijklmnopqrstuvwxyz", "aa", "ab", "ac"])
    assert table["RR"].tolist() == [f"0.9<sup>{between}</sup>", *["0.1"] * 28, f"0.9<sup>{between}</sup>"]
    assert [_letter(place) for place in (0, 25, 26, 51, 52, 701, 702)] == ["a", "z", "aa", "az", "ba", "zz", "aaa"]


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="'b' has no RR for 1"):
        cs.pairwise_tests(frame().drop(index=4))
    with pytest.raises(ValueError, match="1 systems"):
        cs.pairwise_tests(frame().query("name == 'a'"))
