"""Tests, corrections, bootstrap: against scipy, against hand-worked values, and where no test is possible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pt_convsearch.measures import bootstrap, correct, paired_test


def test_paired_t_test_by_hand() -> None:
    # differences 1, 2, 3: mean 2, standard deviation 1, t = 2 / (1 / sqrt 3) = 3.4641 with 2 degrees of freedom
    # two-sided p for 2 degrees of freedom is 1 - t / sqrt(t^2 + 2)
    t = 2 * math.sqrt(3)
    assert paired_test([2, 4, 6], [1, 2, 3]) == pytest.approx(1 - t / math.sqrt(t * t + 2))


def test_equal_systems_never_differ() -> None:
    assert paired_test([0.1] * 5, [0.1] * 5) == 1.0
    assert paired_test([0.1 + 0.2, 1.0], [0.3, 1.0]) == 1.0  # 0.1 + 0.2 is not 0.3, by rounding


def test_no_test_on_fewer_than_two_questions() -> None:
    assert math.isnan(paired_test([1.0], [0.0]))
    assert math.isnan(paired_test([], []))


def test_one_and_the_same_difference_is_not_certain() -> None:
    assert paired_test([1, 1], [0, 0]) == 0.5
    assert paired_test([1] * 11, [0] * 11) == 2**-10


def test_other_tests() -> None:
    first, second = [0.9, 0.8, 0.3, 0.5, 0.6], [0.1, 0.2, 0.4, 0.1, 0.9]
    assert paired_test(first, second, test="wilcoxon") == stats.wilcoxon(first, second).pvalue
    assert paired_test(first, second, test=stats.ttest_ind) == stats.ttest_ind(first, second).pvalue
    with pytest.raises(ValueError, match="anova"):
        paired_test(first, second, test="anova")
    with pytest.raises(ValueError, match="5 values against 2"):
        paired_test(first, [1, 2])


def test_corrections_by_hand() -> None:
    p = [0.01, 0.04, 0.03]
    corrected, significant = correct(p, "bonferroni")
    assert corrected.tolist() == pytest.approx([0.03, 0.12, 0.09])
    assert significant.tolist() == [True, False, False]
    # Holm: .01 x 3, then .03 x 2, then .04 x 1 but no smaller than the one before
    corrected, significant = correct(p, "holm")
    assert corrected.tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert significant.tolist() == [True, False, False]
    assert correct(p, None)[1].all()


@settings(deadline=None, max_examples=10)  # statsmodels' Holm collects all garbage each time
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from(["holm", "bonferroni"]))
def test_corrections_are_those_of_statsmodels(p: list[float], method: str) -> None:
    reject, expected, _, _ = multipletests(p, alpha=0.05, method=method)
    corrected, significant = correct(p, method)
    assert corrected.tolist() == pytest.approx(expected.tolist())
    clear = abs(expected - 0.05) > 1e-9
    assert significant[clear].tolist() == reject[clear].tolist()


def test_what_could_not_be_tested_is_no_part_of_the_family() -> None:
    corrected, significant = correct([0.02, float("nan"), 0.5], "bonferroni")
    assert corrected[[0, 2]].tolist() == [0.04, 1.0]
    assert math.isnan(corrected[1])
    assert significant.tolist() == [True, False, False]
    assert not correct([float("nan")], "holm")[1].any()
    assert len(correct([], "holm")[0]) == 0
    with pytest.raises(ValueError, match="no-such"):
        correct([0.1], "no-such")


def test_bootstrap_draws_conversations() -> None:
    values = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    # two conversations: a resample is one of them twice (mean 0 or 1) or both (mean .5), with chances 1/4, 1/2, 1/4
    assert bootstrap(values, list("aaabbb")) == (0.0, 1.0)
    assert bootstrap(values, list("aaabbb"), confidence=0.4) == (0.5, 0.5)
    low, high = bootstrap(values)  # single questions: a binomial of 6 with p = .5, the 2.5% quantile is 1 of 6
    assert (low, high) == pytest.approx((1 / 6, 5 / 6))


def test_bootstrap_of_conversations_means() -> None:
    # conversation a has one question of value 1, b has nine of value 0: the two means differ
    values, names = [1.0] + [0.0] * 9, ["a"] + ["b"] * 9
    low, high = bootstrap(values, names, average="conversation", confidence=0.4)
    assert (low, high) == (0.5, 0.5)
    low, high = bootstrap(values, names, confidence=0.4)
    assert (low, high) == (0.1, 0.1)


def test_bootstrap_needs_two_conversations_and_is_seeded() -> None:
    assert np.isnan(bootstrap([1.0, 0.0], ["a", "a"])).all()
    assert np.isnan(bootstrap([])).all()
    values = np.random.default_rng(3).random(50)
    assert bootstrap(values, seed=4) == bootstrap(values, seed=4)
    assert bootstrap(values, seed=4) != bootstrap(values, seed=5)
    # a question of no conversation stands for itself
    assert bootstrap([1.0, 0.0], [None, None]) == bootstrap([1.0, 0.0], ["a", "b"]) == (0.0, 1.0)
    with pytest.raises(ValueError, match="average"):
        bootstrap([1.0], average="topic")
    with pytest.raises(ValueError, match="conversations"):
        bootstrap([1.0, 2.0], ["a"])


def test_bootstrap_covers_the_mean() -> None:
    """Of 200 intervals at 90% over samples of mean .5, between 80% and 97% hold it."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        low, high = bootstrap(random.random(40), confidence=0.9, num_resamples=200, seed=int(random.integers(1000)))
        held += low <= 0.5 <= high
    assert 160 <= held <= 194
