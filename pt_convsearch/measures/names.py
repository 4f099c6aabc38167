"""From what a user writes (``RR``, ``"R@10"``, ``"ndcg_cut_10"``) to ir_measures' measure objects."""

from __future__ import annotations

from collections.abc import Iterable

import ir_measures
from ir_measures import Measure


def as_measures(measures: Iterable[Measure | str] | Measure | str) -> dict[str, Measure]:
    """The measures by the name that heads their column, in the order given, each once.

    Args:
        measures: objects of ir_measures (``RR``, ``R(rel=2)@10``), their names as text, or trec_eval's names ("map",
            "recip_rank", "ndcg_cut_10"; a family such as "official" gives all its members). A name given as text
            heads its column as it was typed.

    Raises:
        ValueError: no measure at all, or one that ir_measures does not know.
        TypeError: neither text nor a measure.
    """
    if isinstance(measures, str | Measure):
        measures = [measures]
    named: dict[str, Measure] = {}
    for measure in measures:
        if isinstance(measure, Measure):
            _check(measure)
            named[str(measure)] = measure
        elif isinstance(measure, str):
            found = _parsed(measure)
            named.update({measure: found[0]} if len(found) == 1 else {str(one): one for one in found})
        else:
            raise TypeError(f"{measure!r} is no measure: give objects of ir_measures (RR, R@10) or their names")
    if not named:
        raise ValueError("no measure was given: name at least one, e.g. [RR, R@10]")
    return named


def _parsed(name: str) -> list[Measure]:
    try:
        measure = ir_measures.parse_measure(name)
        measure.validate_params()
    except (ValueError, NameError, AssertionError, AttributeError):
        try:
            return ir_measures.parse_trec_measure(name)
        except ValueError as error:
            raise ValueError(
                f"unknown measure {name!r}: ir_measures' names (RR, R@10) and trec_eval's (map, ndcg_cut_10) are known"
            ) from error
    return [measure]


def _check(measure: Measure) -> None:
    try:
        measure.validate_params()
    except AssertionError as error:
        raise ValueError(
            f"measure {measure} is not complete: {error} (a cutoff is given as in {measure.NAME}@10)"
        ) from error
