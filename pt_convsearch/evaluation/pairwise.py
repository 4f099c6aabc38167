"""Which system beats which: paired tests of all pairs, and the superscripts that tables print."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd

from pt_convsearch.measures import correct, paired_test
from pt_convsearch.measures.significance import Test

_ALPHABET = 26


def pairwise_tests(
    per_query: pd.DataFrame, *, test: Test = "t", correction: str | None = "bonferroni", alpha: float = 0.05
) -> pd.DataFrame:
    """Test every system against every other, corrected for the comparisons made.

    Args:
        per_query: name, qid, measure, value: what ``cs.Experiment(…, perquery=True)`` returns. Systems are joined on
            qid.
        test: as in :func:`Experiment`.
        correction: "bonferroni", "holm" …; one family per measure: all pairs of systems.
        alpha: the level of significance.

    Returns:
        measure, better, worse (names; the first of two equals first), n, difference, p_value, p_corrected,
        significant; one row per measure and pair.

    Raises:
        ValueError: a system lacks the value of a question that another has, or fewer than two systems.

    Example:
        >>> values = pd.DataFrame({"name": ["a"] * 3 + ["b"] * 3, "qid": list("123") * 2, "measure": "RR",
        ...                        "value": [1.0, 1.0, 0.9, 0.1, 0.2, 0.1]})
        >>> pairwise_tests(values)[["better", "worse", "significant"]].values.tolist()
        [['a', 'b', True]]

    Source: Penha and Hauff: paired t-tests, confidence 0.95, Bonferroni.
    """
    names = list(dict.fromkeys(per_query["name"]))
    if len(names) < 2:
        raise ValueError(f"{len(names)} systems: a comparison needs two")
    rows: list[dict[str, Any]] = []
    for measure, frame in per_query.groupby("measure", sort=False):
        values = frame.pivot(index="qid", columns="name", values="value")[names]
        if values.isna().any().any():
            name = values.columns[values.isna().any()][0]
            raise ValueError(f"{name!r} has no {measure} for {int(values[name].isna().sum())} questions others have")
        found = []
        for one, other in itertools.combinations(names, 2):
            difference = float((values[one] - values[other]).mean())
            better, worse = (one, other) if difference >= 0 else (other, one)
            found.append(
                {"measure": measure, "better": better, "worse": worse, "n": len(values), "difference": abs(difference),
                 "p_value": paired_test(values[one].to_numpy(), values[other].to_numpy(), test=test)}
            )  # fmt: skip
        corrected, significant = correct([row["p_value"] for row in found], correction, alpha=alpha)
        for row, p_value, is_significant in zip(found, corrected, significant, strict=True):
            rows.append({**row, "p_corrected": float(p_value), "significant": bool(is_significant)})
    return pd.DataFrame(rows)


def superscripts(per_query: pd.DataFrame, *, digits: int = 3, **options: Any) -> pd.DataFrame:
    """Means with the letters of the systems that are significantly worse, as papers print them: of up to 26 systems as
    one word (``abd``), of more, whose letters run on with aa, ab …, with commas between (``a,d,aa``).

    Args:
        per_query: as for :func:`pairwise_tests`.
        digits: decimals.
        **options: as for :func:`pairwise_tests`.

    Returns:
        one row per system (its letter, then its name, in the index), one column per measure; cells are Markdown text.
    """
    names = list(dict.fromkeys(per_query["name"]))
    letters = {name: _letter(place) for place, name in enumerate(names)}
    tests = pairwise_tests(per_query, **options)
    beaten: dict[tuple[str, str], list[str]] = {}
    significant = tests[tests["significant"]]
    for better, worse, measure in zip(significant["better"], significant["worse"], significant["measure"], strict=True):
        beaten.setdefault((better, measure), []).append(worse)
    means = per_query.groupby(["name", "measure"], sort=False)["value"].mean()
    measures = list(dict.fromkeys(per_query["measure"]))
    between = "" if len(names) <= _ALPHABET else ","

    def cell(name: str, measure: str) -> str:
        worse = beaten.get((name, measure), [])
        raised = between.join(letters[other] for other in names if other in worse)
        return f"{means[name, measure]:.{digits}f}" + (f"<sup>{raised}</sup>" if raised else "")

    cells = [[cell(name, measure) for measure in measures] for name in names]
    return pd.DataFrame(cells, columns=measures, index=[f"({letters[name]}) {name}" for name in names])


def _letter(place: int) -> str:
    """a … z, aa, ab …, as the columns of a spreadsheet."""
    more, place = divmod(place, _ALPHABET)
    return (_letter(more - 1) if more else "") + chr(ord("a") + place)
