"""How systems change places between two evaluations, and which pairs of them each one tells apart."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd

from pt_convsearch.measures import correct, paired_test


def places(
    first_name: str, first: Any, second_name: str, second: dict[str, pd.DataFrame], measure: str, correction: str | None
) -> dict[str, Any]:
    """Kendall's tau, places moved and paired tests between two evaluations of the same systems."""
    from scipy.stats import kendalltau

    per_question = isinstance(first, dict)
    before = pd.Series({name: values[measure].mean() for name, values in first.items()}) if per_question else first
    after = pd.Series({name: values[measure].mean() for name, values in second.items()})
    shared = [name for name in before.index if name in after.index]
    before, after = before[shared], after[shared]
    found: dict[str, Any] = {"from": first_name, "to": second_name, "measure": measure, "systems": len(shared)}
    if len(shared) < 2:
        return found | {"note": "fewer than two systems have figures on both sides"}
    # rounded, so that means that differ in the last bit only are equal
    tau, p_value = kendalltau(before.round(9), after.round(9))
    place = pd.DataFrame(
        {"from": before.rank(ascending=False, method="min"), "to": after.rank(ascending=False, method="min")}
    )
    moved = (place["from"] - place["to"]).abs()
    upper = before[before >= before.median()]
    found |= {
        "kendall_tau_b": number(tau), "tau_p_value": number(p_value), "mean_places_moved": float(moved.mean()),
        "most_places_moved": int(moved.max()), "first_before": str(before.idxmax()), "first_after": str(after.idxmax()),
        "relative_change_upper_half": number(((after[upper.index] - upper) / upper.where(upper > 0)).mean()),
        "by_system": [
            {"system": name, "value_from": float(before[name]), "value_to": float(after[name]),
             "place_from": int(place.loc[name, "from"]), "place_to": int(place.loc[name, "to"])}
            for name in before.sort_values(ascending=False).index
        ],
    }  # fmt: skip
    tests = {"to": pair_tests(second, shared, measure, correction)}
    if per_question:
        tests["from"] = pair_tests(first, shared, measure, correction)
        found["pairs"] = agreement_of(tests["from"], tests["to"])
    found["tests"] = tests
    return found


def number(value: float) -> float | None:
    """For JSON, which has no NaN: tau where all systems are equal, a test on one question."""
    return float(value) if value == value else None


def pair_tests(
    values: dict[str, pd.DataFrame], systems: list[str], measure: str, correction: str | None
) -> list[dict[str, Any]]:
    """A paired t-test for each pair of systems, corrected over all pairs."""
    pairs = list(itertools.combinations(systems, 2))
    columns = {name: values[name][measure] for name in systems}
    shared = [columns[a].index.intersection(columns[b].index) for a, b in pairs]
    raw = [paired_test(columns[a][qids], columns[b][qids]) for (a, b), qids in zip(pairs, shared, strict=True)]
    corrected, significant = correct(raw, correction)
    return [
        {"better": a if mean > 0 else b, "worse": b if mean > 0 else a, "difference": abs(mean), "n": len(qids),
         "p_value": number(p), "corrected": number(q), "significant": bool(yes)}
        for (a, b), qids, p, q, yes in zip(pairs, shared, raw, corrected, significant, strict=True)
        for mean in [float((columns[a][qids] - columns[b][qids]).mean())]
    ]  # fmt: skip


def agreement_of(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, int]:
    """How many pairs of systems are told apart on both sides, in the same order or in the opposite one, or on one side
    only."""
    counts = {"all": len(first), "significant in both, same order": 0, "significant in both, opposite order": 0}
    counts |= {"significant only in the first": 0, "significant only in the second": 0, "swapped": 0}
    for a, b in zip(first, second, strict=True):
        same = a["better"] == b["better"]
        counts["swapped"] += not same
        if a["significant"] and b["significant"]:
            counts[f"significant in both, {'same' if same else 'opposite'} order"] += 1
        elif a["significant"] or b["significant"]:
            counts[f"significant only in the {'first' if a['significant'] else 'second'}"] += 1
    return counts
