"""Figures of trained models: where passages lie in their space, and how they learnt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pt_convsearch._files import PathLike
from pt_convsearch.evaluation.plots import _figure
from pt_convsearch.evaluation.projection import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "dev_curve.jsonl"
_LOOK = {  # marker, size, colour, order: also told apart without colours
    "other": (".", 40, "0.75", 1),
    "shortcut": ("^", 34, "tab:red", 2),
    "gold": ("*", 130, "tab:green", 3),
    "query": ("X", 80, "tab:blue", 4),
}
Curve = PathLike | pd.DataFrame | Sequence[Mapping[str, Any]]


def space(points: pd.DataFrame | Mapping[str, pd.DataFrame], *, figure: Figure | None = None) -> Figure:
    """The query, its gold passages, the shortcut passages and others in a model's space; several models side by side.

    Args:
        points: what :func:`~pt_convsearch.evaluation.projection.project` returned, or a mapping of model names to it.
        figure: a figure to draw into; a new one by default.

    Returns:
        a matplotlib figure. Below each model's name stands the cosine of the query with the nearest gold, the mean
        with the shortcut passages, and with the others: distances in a projection are not to be read as such.

    Raises:
        ValueError: no points, a frame without the columns kind, x, y and similarity, or an unknown kind.

    Source: the t-SNE figure of Kim & Kim (2022).
    """
    models = {"": points} if isinstance(points, pd.DataFrame) else dict(points)
    if not models or any(frame.empty for frame in models.values()):
        raise ValueError("points: nothing to draw; give what project() returned, or {model: points}")
    for name, frame in models.items():
        missing = {"kind", "x", "y", "similarity"} - set(frame.columns)
        strangers = sorted(set(frame["kind"]) - set(KINDS)) if not missing else []
        if missing:
            raise ValueError(f"the points of {name!r} lack the columns {sorted(missing)}: give what project() returned")
        if strangers:
            raise ValueError(f"unknown kind {strangers[0]!r} among the points of {name!r}: one of {', '.join(KINDS)}")
    figure = _figure(4.2 * len(models) + 0.4, 4.4, figure)
    for axes, (name, frame) in zip(figure.subplots(1, len(models), squeeze=False)[0], models.items(), strict=True):
        for kind, (marker, size, colour, order) in _LOOK.items():
            part = frame[frame["kind"] == kind]
            if len(part):
                axes.scatter(
                    part["x"], part["y"], marker=marker, s=size, c=colour, zorder=order, label=kind, linewidths=0
                )
        axes.set_title("\n".join(line for line in (name, _nearness(frame)) if line), fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    shown = [kind for kind in KINDS if kind in handles]
    figure.legend([handles[kind] for kind in shown], shown, loc="outside lower center", ncols=len(shown), frameon=False)
    return figure


def _nearness(frame: pd.DataFrame) -> str:
    by_kind = frame.groupby("kind")["similarity"]
    nearest, means = by_kind.max(), by_kind.mean()
    said = [f"gold {nearest['gold']:.2f}"] if "gold" in nearest else []
    return ", ".join(said + [f"{kind} {means[kind]:.2f}" for kind in ("shortcut", "other") if kind in means])


def learning_curves(
    curves: Mapping[str, Curve | Sequence[Curve]], measure: Any = None, *, figure: Figure | None = None
) -> Figure:
    """The dev measure of each model after so many steps; several runs of one (seeds) as thin lines with their mean.

    Args:
        curves: model -> the folder that ``cs.train`` wrote, its ``dev_curve.jsonl``, the lines of that file as dicts
            or as a frame; or a list of these.
        measure: the measure to show; the first dev measure found by default. "loss" shows the training loss.
        figure: a figure to draw into; a new one by default.

    Returns:
        a matplotlib figure.

    Raises:
        FileNotFoundError: a folder without ``dev_curve.jsonl``.
        ValueError: no curves, or one that lacks the measure.
    """
    runs = {name: [read_curve(one) for one in _several(curve)] for name, curve in curves.items()}
    if not runs:
        raise ValueError("curves: give at least one model")
    wanted = _first_measure(next(iter(runs.values()))[0]) if measure is None else str(measure)
    figure = _figure(6.0, 3.8, figure)
    axes = figure.subplots()
    for name, frames in runs.items():
        lines = []
        for frame in frames:
            if wanted not in frame.columns or frame[wanted].notna().sum() == 0:
                raise ValueError(f"the curve of {name!r} has no {wanted!r} (it has {_measures(frame)})")
            lines.append(frame.loc[frame[wanted].notna()].groupby("step")[wanted].last())
        mean = pd.concat(lines, axis=1).mean(axis=1)
        (line,) = axes.plot(mean.index, mean, marker="o", markersize=3.5, label=str(name))
        for one in lines if len(lines) > 1 else []:
            axes.plot(one.index, one, linewidth=0.6, alpha=0.5, color=line.get_color())
    axes.set_xlabel("steps")
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.set_ylabel(wanted if wanted == "loss" else f"dev {wanted}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    return figure


_AXES = ("step", "epoch", "learning_rate", "grad_norm")


def read_curve(curve: Curve) -> pd.DataFrame:
    """A dev curve as a frame: step, epoch, and what was measured there (NaN where it was not).

    Args:
        curve: the folder that ``cs.train`` wrote, its ``dev_curve.jsonl``, or the lines of it.
    """
    if isinstance(curve, pd.DataFrame):
        return curve
    if isinstance(curve, list | tuple):
        return pd.DataFrame(list(curve))
    path = Path(curve)  # type: ignore[arg-type]
    path = path / CURVE if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no dev curve; cs.train writes one where it is given dev=(topics, qrels, corpus)"
        )
    return pd.DataFrame([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line])


def _several(curve: Any) -> list[Any]:
    if isinstance(curve, list | tuple) and not (curve and isinstance(curve[0], Mapping)):
        return list(curve)
    return [curve]


def _measures(frame: pd.DataFrame) -> list[str]:
    return [str(column) for column in frame.columns if column not in _AXES]


def _first_measure(frame: pd.DataFrame) -> str:
    found = [name for name in _measures(frame) if name != "loss"]
    if not found:
        raise ValueError("the curve holds no dev measure: train with dev=(topics, qrels, corpus), or show 'loss'")
    return found[0]
