"""Paired tests, corrections for several comparisons, and bootstrap intervals over conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

Test = str | Callable[[np.ndarray, np.ndarray], Any]


def paired_test(
    values: Sequence[float] | np.ndarray, baseline: Sequence[float] | np.ndarray, *, test: Test = "t"
) -> float:
    """The p-value of a two-sided paired test.

    Args:
        values: one value per question.
        baseline: the baseline's value for the same questions, in the same order.
        test: "t" (paired t-test), "wilcoxon", or a function of two arrays whose result's second part is the p-value
            (as scipy's).

    Returns:
        the p-value; 1.0 for systems that do not differ on any question (beyond rounding), NaN for fewer than two
        questions. Where the systems differ by one and the same amount on every question, t is infinite even for two
        questions; the p-value is then that of the exact randomisation test, 2^(1-n).

    Example:
        >>> paired_test([1.0, 0.5, 0.0], [1.0, 0.5, 0.0])
        1.0
    """
    if isinstance(test, str) and test not in ("t", "wilcoxon"):
        raise ValueError(f"test={test!r}: 't', 'wilcoxon' or a function of two arrays")
    first, second = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(
            f"{len(first)} values against {len(second)}: a paired test needs both systems' value for each question"
        )
    if len(first) < 2:
        return float("nan")
    if np.allclose(first, second, rtol=0, atol=1e-12):
        return 1.0
    from scipy import stats

    if test == "t" and np.ptp(first - second) <= 1e-12:
        return float(2.0 ** (1 - len(first)))
    function: Any = {"t": stats.ttest_rel, "wilcoxon": stats.wilcoxon}[test] if isinstance(test, str) else test
    return float(function(first, second)[1])


def correct(
    p_values: Sequence[float] | np.ndarray, method: str | None, *, alpha: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Correct one family of p-values for the number of comparisons made.

    Args:
        p_values: the family; NaN (no test was possible) stays NaN and does not count.
        method: "holm", "bonferroni" or any other method of statsmodels' ``multipletests``; None corrects nothing.
        alpha: the level.

    Returns:
        corrected p-values, and which are significant.

    Example:
        >>> correct([0.01, 0.04], "holm")[0].tolist()
        [0.02, 0.04]
    """
    values = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(values)
    corrected = values.copy()
    significant = np.zeros(len(values), dtype=bool)
    if method is None:
        significant[tested] = values[tested] < alpha
    elif method == "holm":
        corrected[tested] = _holm(values[tested])
        significant[tested] = corrected[tested] < alpha
    elif tested.any():
        from statsmodels.stats.multitest import multipletests

        try:
            reject, adjusted, _, _ = multipletests(values[tested], alpha=alpha, method=method)
        except ValueError as error:
            raise ValueError(
                f"correction={method!r}: {error} ('holm', 'bonferroni' …, as statsmodels names them)"
            ) from error
        corrected[tested], significant[tested] = adjusted, reject
    return corrected, significant


def _holm(values: np.ndarray) -> np.ndarray:
    """Holm's step-down correction; statsmodels' own runs a whole garbage collection for each family of three values."""
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def bootstrap(
    values: Sequence[float] | np.ndarray,
    conversations: Sequence[Any] | np.ndarray | None = None,
    *,
    average: str = "question",
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """A percentile bootstrap interval of a mean, in which whole conversations are drawn: their questions are not
    independent.

    Args:
        values: one value per question.
        conversations: the conversation of each question (a missing one stands for itself); None draws single questions.
        average: "question": the mean over questions; "conversation": the mean of the conversations' means.
        confidence: the level of the interval.
        num_resamples: how often to draw.
        seed: the same seed gives the same interval.

    Returns:
        low and high; NaN where there are fewer than two conversations.

    Example:
        >>> bootstrap([1.0, 1.0, 1.0, 1.0], ["a", "a", "b", "b"])
        (1.0, 1.0)
    """
    if average not in ("question", "conversation"):
        raise ValueError(f"average={average!r}: 'question' or 'conversation'")
    numbers = np.asarray(values, dtype=np.float64)
    groups = np.arange(len(numbers))
    if conversations is not None:
        groups = pd.factorize(np.asarray(conversations, dtype=object))[0]
        alone = groups < 0  # a question that belongs to no conversation is one of its own
        groups[alone] = groups.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    if len(groups) != len(numbers):
        raise ValueError(f"{len(groups)} conversations for {len(numbers)} values: give the conversation of each")
    if groups.max(initial=-1) < 1:
        return float("nan"), float("nan")
    counts = np.bincount(groups).astype(np.float64)
    totals = np.bincount(groups, numbers).astype(np.float64)
    if average == "conversation":
        totals, counts = totals / counts, np.ones(len(counts))
    from scipy import stats

    result = stats.bootstrap(
        (totals, counts),
        lambda total, count, axis: total.sum(axis) / count.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=num_resamples,
        batch=max(1, 4_000_000 // len(totals)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
