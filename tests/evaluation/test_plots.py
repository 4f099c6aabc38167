"""Figures hold the numbers of their tables, need no display and leave no pyplot state."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation import plots


@pytest.fixture
def results(topics, qrels, systems):
    return cs.Experiment(systems, topics, qrels, [RR, R @ 1], by="qtype", perquery="both", ci=0.9)


def heights(axes) -> list[list[float]]:
    return [[float(bar.get_height()) for bar in container] for container in axes.containers]


def test_bars(results) -> None:
    table, _ = results
    figure = plots.bars(table, R @ 1, systems=["q_t", "X_t"], groups=["All", "switch", "missing"])
    (axes,) = figure.axes
    found = heights(axes)
    np.testing.assert_array_equal(found, [[0.75, 0.0, np.nan], [0.75, 0.0, np.nan]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["All\nn = 4", "switch\nn = 1", "missing\nn = 0"]
    assert axes.get_ylabel() == "R@1"
    assert plots.bars(table).axes[0].get_ylabel() == "RR"
    for wrong in ({"measure": "AP"}, {"systems": ["nobody"]}, {"groups": ["nowhere"]}):
        with pytest.raises(ValueError, match=str(next(iter(wrong.values()))).strip("[']")):
            plots.bars(table, **wrong)


def test_by_turn(results, topics) -> None:
    _, per_query = results
    means, sizes = plots.turn_means(per_query, topics, RR)
    assert sizes.to_dict() == {1: 2, 2: 1, 3: 1}
    assert means["X_t"].tolist() == [1.0, 1.0, 0.5]
    assert means["X_t\\q_t"].tolist() == [0.0, 0.0, 1.0]
    figure = plots.by_turn(per_query, topics, RR, systems=["X_t"])
    above, below = figure.axes
    assert above.lines[0].get_xydata().tolist() == [[1, 1.0], [2, 1.0], [3, 0.5]]
    assert heights(below) == [[2, 1, 1]]
    assert plots.turn_means(per_query, topics, min_n=2)[1].to_dict() == {1: 2}
    with pytest.raises(ValueError, match="turn_number"):
        plots.by_turn(per_query, topics.drop(columns="turn_number"))
    with pytest.raises(ValueError, match="'AP'"):
        plots.by_turn(per_query, topics, "AP")
    with pytest.raises(ValueError, match="min_n"):
        plots.by_turn(per_query, topics, min_n=9)


def test_dependence(topics, qrels, systems) -> None:
    found = cs.shortcut_dependence(systems["X_t"], systems["X_t\\q_t"], topics, qrels, by="qtype", control="swapped")
    (axes,) = found.plot().axes
    assert len(axes.containers) == 4
    assert heights(axes)[0] == pytest.approx(found.summary["overlap@10"].tolist())
    assert axes.get_xticklabels()[0].get_text() == "All\nn = 3"


def test_figures_are_pictures_without_pyplot(results, topics, tmp_path) -> None:
    table, per_query = results
    for figure in (plots.bars(table), plots.by_turn(per_query, topics)):
        assert figure._repr_png_().startswith(b"\x89PNG")
        figure.savefig(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 5000
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_drawing_into_a_figure_of_ones_own(results) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    assert plots.bars(results[0], figure=figure) is figure
    assert len(figure.axes) == 1


def test_ids_are_those_of_the_table_and_no_bar_is_no_figure(results) -> None:
    values = pd.DataFrame({"name": "a", "qid": ["1", "2"], "measure": "RR", "value": [1.0, 0.5]})
    means, sizes = cs.plots.turn_means(values, pd.DataFrame({"qid": [1.0, 2.0], "turn_number": [1, 2]}))
    assert means["a"].to_dict() == {1: 1.0, 2: 0.5}
    assert sizes.tolist() == [1, 1]
    with pytest.raises(ValueError, match="no bar to draw"):
        cs.plots.bars(results[0], systems=[])
