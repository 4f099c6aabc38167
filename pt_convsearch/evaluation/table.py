"""The table of an experiment: a data frame that remembers its tests, intervals and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch.evaluation.groups import ALL
from pt_convsearch.measures.significance import Test, bootstrap, correct, paired_test

N = "n"


class ResultTable(pd.DataFrame):
    """What :func:`Experiment` returns: a data frame with one row per system and columns (group, measure).

    ``table["All"]`` is the table over all questions, ``table.loc["BM25", ("first", "RR")]`` a cell. Each group has
    its ``n``. A cell without a value is NaN; :func:`render` writes a dash. What does not fit into cells is kept
    beside them, in ``attrs``:

    Beside it: :attr:`tests`, one row for each system, group and measure tested against the baseline; :attr:`intervals`,
    bootstrap intervals; :attr:`questions`, how many topics there were, how many judged, unjudged, and for each system
    without results.
    """

    @property
    def _constructor(self) -> type[ResultTable]:
        return ResultTable

    @property
    def tests(self) -> pd.DataFrame:
        """name, group, measure, n, difference, better, worse, p_value, p_corrected, significant; empty without a
        baseline."""
        return pd.DataFrame(self.attrs.get("tests", []), columns=_TEST_COLUMNS)

    @property
    def intervals(self) -> pd.DataFrame:
        """name, group, measure, value, low, high; empty where ``ci`` was not asked for."""
        return pd.DataFrame(self.attrs.get("intervals", []), columns=_INTERVAL_COLUMNS)

    @property
    def questions(self) -> dict[str, Any]:
        """Counts: topics, judged, unjudged, and ``without_results`` by system."""
        return dict(self.attrs.get("questions", {}))

    def rounded(self, decimals: int | Mapping[Any, int]) -> ResultTable:
        """The table rounded to so many decimals, one number for all measures or by measure."""
        if not isinstance(decimals, Mapping):
            return self.round(int(decimals))
        named = {str(measure): places for measure, places in decimals.items()}
        return self.round({column: named[column[1]] for column in self.columns if column[1] in named})


_TEST_COLUMNS = [
    "name",
    "group",
    "measure",
    "n",
    "difference",
    "better",
    "worse",
    "p_value",
    "p_corrected",
    "significant",
]
_INTERVAL_COLUMNS = ["name", "group", "measure", "value", "low", "high"]


@dataclass(frozen=True)
class Cells:
    """Values per question, and how they become cells.

    Args:
        values: by system, a frame of measures over the evaluated questions.
        rows: by group, a mask over the evaluated questions.
        empty: by system, the groups to which its form cannot apply.
        conversations: the conversation of each question, if known.
        average: "question" or "conversation".
        summed: measures that are summed and not averaged (NumRet …).
        mrt: by system, milliseconds per question, where asked for.
    """

    values: Mapping[str, pd.DataFrame]
    rows: Mapping[str, np.ndarray]
    empty: Mapping[str, set[str]]
    conversations: np.ndarray | None
    average: str
    summed: set[str]
    mrt: Mapping[str, float] | None

    def __post_init__(self) -> None:
        if self.average == "conversation":
            if self.conversations is None:
                raise ValueError(
                    "average='conversation' needs the topics' column conversation_id: it is never guessed from qids"
                )
            if pd.isna(self.conversations).any():
                raise ValueError("average='conversation': some judged question has no conversation_id")

    @property
    def measures(self) -> list[str]:
        return list(next(iter(self.values.values())).columns)

    def units(self, system: str, group: str, measure: str) -> np.ndarray:
        """What is averaged and tested: a value per question, or each conversation's mean."""
        rows = self.rows[group]
        values = self.values[system][measure].to_numpy()[rows]
        if self.average == "question":
            return values
        codes = self._codes()[rows]
        used, codes = np.unique(codes, return_inverse=True)
        return np.bincount(codes, values, minlength=len(used)) / np.bincount(codes, minlength=len(used))

    def _codes(self) -> np.ndarray:
        assert self.conversations is not None
        return pd.factorize(self.conversations)[0]

    def mean(self, system: str, group: str, measure: str) -> float:
        """One cell; NaN where the group is empty or the system's form cannot apply to it."""
        values = self.units(system, group, measure)
        if len(values) == 0 or group in self.empty[system]:
            return float("nan")
        return float(values.sum()) if measure in self.summed else float(values.mean())

    def size(self, group: str) -> int:
        """``n``: the questions of a group, or its conversations where these are averaged."""
        rows = self.rows[group]
        return int(rows.sum()) if self.average == "question" else len(np.unique(self._codes()[rows]))

    def table(self, questions: Mapping[str, Any]) -> ResultTable:
        """The means as a table."""
        columns: dict[tuple[str, str], list[Any]] = {}
        for group in self.rows:
            for measure in self.measures:
                columns[group, measure] = [self.mean(system, group, measure) for system in self.values]
            if group == ALL and self.mrt is not None:
                columns[group, "mrt"] = [self.mrt[system] for system in self.values]
            columns[group, N] = [self.size(group)] * len(self.values)
        table = ResultTable(columns, index=pd.Index(list(self.values), name="name"))
        table.columns = pd.MultiIndex.from_tuples(list(columns), names=["group", "measure"])
        table.attrs.update(questions=dict(questions), average=self.average)
        return table

    def tests(
        self, baseline: str, test: Test, correction: str | None, alpha: float, family: str
    ) -> list[dict[str, Any]]:
        """Every other system against the baseline, for each group and measure."""
        rows: list[dict[str, Any]] = []
        for group in self.rows:
            for measure in self.measures:
                cell = [
                    self._compare(system, baseline, group, measure, test)
                    for system in self.values
                    if system != baseline
                ]
                rows += cell if family == "table" else _corrected(cell, correction, alpha)
        return _corrected(rows, correction, alpha) if family == "table" else rows

    def _compare(self, system: str, baseline: str, group: str, measure: str, test: Test) -> dict[str, Any]:
        mine, other = self.units(system, group, measure), self.units(baseline, group, measure)
        possible = len(mine) > 1 and group not in self.empty[system] | self.empty[baseline]
        return {
            "name": system,
            "group": group,
            "measure": measure,
            "n": len(mine),
            "difference": float((mine - other).mean()) if len(mine) else float("nan"),
            "better": int((mine > other).sum()),
            "worse": int((mine < other).sum()),
            "p_value": paired_test(mine, other, test=test) if possible else float("nan"),
        }

    def intervals(self, confidence: float, seed: int) -> list[dict[str, Any]]:
        """A bootstrap interval for each cell that is a mean."""
        rows = []
        for group, mask in self.rows.items():
            conversations = None if self.conversations is None else self.conversations[mask]
            for measure in self.measures:
                if measure in self.summed:
                    continue
                for system, values in self.values.items():
                    low, high = float("nan"), float("nan")
                    if mask.any() and group not in self.empty[system]:
                        low, high = bootstrap(
                            values[measure].to_numpy()[mask],
                            conversations,
                            average=self.average,
                            confidence=confidence,
                            seed=seed,
                        )
                    value = self.mean(system, group, measure)
                    rows.append(
                        {"name": system, "group": group, "measure": measure, "value": value, "low": low, "high": high}
                    )
        return rows


def _corrected(rows: list[dict[str, Any]], correction: str | None, alpha: float) -> list[dict[str, Any]]:
    corrected, significant = correct([row["p_value"] for row in rows], correction, alpha=alpha)
    return [
        {**row, "p_corrected": float(p), "significant": bool(yes)}
        for row, p, yes in zip(rows, corrected, significant, strict=True)
    ]
