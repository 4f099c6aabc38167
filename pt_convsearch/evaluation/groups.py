"""Groups of questions by which results are broken down: a label column, several, or masks that may overlap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

ALL = "All"
MISSING = "missing"
By = str | Mapping[str, Any] | Iterable[Any] | None


def groups_of(topics: pd.DataFrame, by: By) -> dict[str, np.ndarray]:
    """The groups of questions, "All" first, each as a mask over the rows of ``topics``.

    Args:
        topics: the topics frame.
        by: None; a label column (groups in the order of its categories, else of first appearance; questions without
            a label are the group "missing"); a mapping of names to masks, which may overlap; or a list of these. A
            label that two breakdowns share is written as "column: label".

    Raises:
        ValueError: a column that the topics lack, a mask of another length or that is not boolean.
    """
    found: list[tuple[str, str, np.ndarray]] = []
    for one in _breakdowns(by):
        if isinstance(one, str):
            found += [(label, f"{one}: {label}", mask) for label, mask in _by_column(topics, one).items()]
        elif isinstance(one, Mapping):
            found += [(str(name), f"mask: {name}", _as_mask(topics, str(name), mask)) for name, mask in one.items()]
        else:
            raise TypeError(f"by={one!r}: name a label column, give a mapping of names to masks, or a list of these")
    labels = [label for label, _, _ in found]
    groups = {ALL: np.ones(len(topics), dtype=bool)}
    for label, full, mask in found:
        name = full if labels.count(label) > 1 or label == ALL else label
        if name in groups:
            raise ValueError(f"by={by!r} names the group {name!r} twice")
        groups[name] = mask
    return groups


def label_columns(by: By) -> list[str]:
    """The columns that ``by`` names."""
    return [part for part in _breakdowns(by) if isinstance(part, str)]


def labels_of(topics: pd.DataFrame, by: By, taken: Iterable[str]) -> pd.DataFrame:
    """The columns that ``by`` names, to stand beside others: "topics.X" where X is the name of one of these."""
    taken = set(taken)
    columns = list(dict.fromkeys(column for column in label_columns(by) if column in topics and column != "qid"))
    return topics[columns].rename(columns={name: f"topics.{name}" for name in columns if name in taken})


def _breakdowns(by: By) -> list[Any]:
    if by is None or isinstance(by, str | Mapping):
        return [] if by is None else [by]
    if isinstance(by, pd.Series | np.ndarray) or not isinstance(by, Iterable):
        raise TypeError(f"by is a {type(by).__name__}: name a label column, give {{name: mask}}, or a list of these")
    return list(by)


def _by_column(topics: pd.DataFrame, column: str) -> dict[str, np.ndarray]:
    if column not in topics.columns:
        raise ValueError(
            f"by={column!r}: topics have no such column (found {list(topics.columns)}); name one of these, give "
            "{name: mask}, leave by= out, or add the column (cs.QuestionTypes derives types of questions)"
        )
    values = topics[column]
    missing = (values.isna() | (values.astype(object) == "")).to_numpy(dtype=bool)
    if isinstance(values.dtype, pd.CategoricalDtype):
        present = set(values[~missing])
        labels = [label for label in values.cat.categories if label in present]
    else:
        try:
            labels = list(values[~missing].unique())
        except TypeError as error:
            raise ValueError(f"by={column!r}: the column holds values that are no labels (lists?): {error}") from error
    groups: dict[str, np.ndarray] = {}
    for label in labels:
        mask = (values == label).to_numpy(dtype=bool, na_value=False) & ~missing
        name = _named(label)
        groups[name] = groups[name] | mask if name in groups else mask
    if missing.any():
        groups[MISSING] = groups[MISSING] | missing if MISSING in groups else missing
    return groups


def _named(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _as_mask(topics: pd.DataFrame, name: str, mask: Any) -> np.ndarray:
    if isinstance(mask, pd.Series):
        mask = mask.reindex(topics.index) if not mask.index.equals(topics.index) else mask
        if mask.isna().any():
            raise ValueError(
                f"by: the mask {name!r} says nothing about {int(mask.isna().sum())} rows of the topics (by their index)"
            )
        mask = mask.to_numpy()
    values = np.asarray(mask)
    if values.dtype == object and values.ndim == 1 and all(isinstance(value, bool | np.bool_) for value in values):
        values = values.astype(bool)
    if values.dtype != bool or values.shape != (len(topics),):
        raise ValueError(
            f"by: the mask {name!r} is no array of {len(topics)} booleans (found {values.dtype}, shape {values.shape})"
        )
    return values
