"""Overlap and RBO by hand and against a reference that follows the formula word by word."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from pt_convsearch.measures import agreement


def run_of(ranked: dict[str, str]) -> pd.DataFrame:
    rows = [(qid, docno, at) for qid, docnos in ranked.items() for at, docno in enumerate(docnos)]
    return pd.DataFrame(rows, columns=["qid", "docno", "rank"])


def rbo_by_the_formula(first: str, second: str, p: float) -> float:
    """Webber et al. (2010), equation 32, term by term."""
    short, long = sorted((first, second), key=len)
    s, l = len(short), len(long)  # noqa: E741
    if s == 0:
        return 0.0
    shared = [len(set(short[:d]) & set(long[:d])) for d in range(l + 1)]
    total = sum(shared[d] / d * p**d for d in range(1, l + 1))
    total += sum(shared[s] * (d - s) / (s * d) * p**d for d in range(s + 1, l + 1))
    return (1 - p) / p * total + ((shared[l] - shared[s]) / l + shared[s] / s) * p**l


@pytest.mark.parametrize(
    ("first", "second", "overlap", "rbo"),
    [
        ("ab", "ab", 1.0, 1.0),
        ("ab", "ba", 1.0, 0.5),  # (X_1/1)/2 + (X_2/2)/4 + (X_2/2)/4 = 0 + 1/4 + 1/4
        ("ab", "cd", 0.0, 0.0),
        ("a", "ba", 0.5, 0.25),  # s=1, l=2: X_2/2 p^2 + (X_2 - X_1)/2 p^2 = 1/8 + 1/8
        ("ab", "a", 0.5, 1.0),  # the short list agrees as far as it goes
        ("", "ab", 0.0, 0.0),
    ],
)
def test_by_hand(first: str, second: str, overlap: float, rbo: float) -> None:
    found = agreement(run_of({"q": first}), run_of({"q": second}), ["q"], k=2, p=0.5)
    assert found.loc["q"].tolist() == pytest.approx([overlap, rbo])


def test_two_empty_rankings_have_no_agreement() -> None:
    found = agreement(run_of({"r": "ab"}), run_of({"r": "ab"}), ["q", "r"])
    assert found.loc["q"].isna().all()
    assert found.loc["r"].tolist() == pytest.approx([1.0, 1.0])


def test_overlap_is_over_k_where_both_reach_it() -> None:
    found = agreement(run_of({"q": "abcdefghijkl"}), run_of({"q": "cbazyxwvutsr"}), ["q"], k=3)
    assert found.loc["q", "overlap"] == 1.0
    found = agreement(run_of({"q": "abcdefghijkl"}), run_of({"q": "cbzyxwvutakl"}), ["q"], k=10)
    assert found.loc["q", "overlap"] == pytest.approx(3 / 10)  # a, b, c


rankings = st.lists(st.sampled_from("abcdefghij"), unique=True).map("".join)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(rankings, rankings), min_size=1, max_size=4), st.sampled_from([0.3, 0.5, 0.9, 0.99]))
def test_against_the_formula(pairs, p: float) -> None:
    firsts, seconds = ({f"q{at}": pair[side] for at, pair in enumerate(pairs)} for side in (0, 1))
    found = agreement(run_of(firsts), run_of(seconds).sample(frac=1, random_state=1), list(firsts), k=4, p=p)
    other = agreement(run_of(seconds), run_of(firsts), list(firsts), k=4, p=p)
    pd.testing.assert_frame_equal(found, other)
    for qid, first, second in zip(firsts, firsts.values(), seconds.values(), strict=True):
        if first or second:
            assert found.loc[qid, "rbo"] == pytest.approx(rbo_by_the_formula(first, second, p), abs=1e-12)
            longest = min(4, max(len(first), len(second)))
            assert found.loc[qid, "overlap"] == len(set(first[:4]) & set(second[:4])) / longest
            assert -1e-12 <= found.loc[qid, "rbo"] <= 1 + 1e-12
        else:
            assert found.loc[qid].isna().all()


@pytest.mark.parametrize("options", [{"k": 0}, {"p": 0.0}, {"p": 1.0}])
def test_impossible_options(options) -> None:
    with pytest.raises(ValueError):
        agreement(run_of({"q": "a"}), run_of({"q": "a"}), ["q"], **options)


def test_questions_are_asked_for_once_and_by_any_id() -> None:
    run = pd.DataFrame({"qid": [1, 1], "docno": ["x", "y"], "rank": [0, 1]})
    assert agreement(run, run, [1.0]).loc["1"].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="'1' are asked for more than once"):
        agreement(run, run, ["1", 1])
