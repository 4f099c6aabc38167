"""A question and its passages in the space of a model: who is who, and where."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.evaluation import neighbourhood, project
from pt_convsearch.evaluation.figures import read_curve

CORPUS = [{"docno": docno, "text": f"text of {docno}"} for docno in "abcdefgh"]


class Angles:
    """An encoder on the circle: a text's last letter is its angle, in steps of ten degrees from "a"; six dimensions."""

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        angles = np.deg2rad([10.0 * (ord(text[-1]) - ord("a")) for text in texts])
        flat = np.zeros((len(texts), 6), dtype=np.float32)
        flat[:, 0], flat[:, 1] = 3 * np.cos(angles), 3 * np.sin(angles)
        return flat

    encode_docs = encode_queries


def shortcut(*docnos: str) -> pt.Transformer:
    def found(topics: pd.DataFrame) -> pd.DataFrame:
        scores = -np.arange(len(docnos), dtype=float)
        frame = pd.DataFrame({"docno": docnos, "score": scores, "rank": range(len(docnos))})
        return frame.assign(qid=topics["qid"].iloc[0], query=topics["query"].iloc[0]).iloc[::-1]

    return pt.apply.generic(found)


@pytest.fixture
def asked() -> tuple[pd.DataFrame, pd.DataFrame]:
    topics = pd.DataFrame({"qid": ["1_2"], "query": ["which"], "qhistory": [[{"role": "user", "content": "hi"}]]})
    qrels = pd.DataFrame({"qid": ["1_2"] * 3, "docno": ["c", "a", "b"], "label": [1, 1, 0]})
    return topics, qrels


def test_neighbourhood_tells_golds_shortcuts_and_others(asked: Any) -> None:
    found = neighbourhood("1_2", *asked, CORPUS, shortcut=shortcut("d", "c", "e", "b"), num_shortcut=2, num_others=2)
    assert found["kind"].tolist() == ["gold", "gold", "shortcut", "shortcut", "other", "other"]
    assert found["docno"].tolist()[:4] == ["c", "a", "d", "e"]  # c is a gold though the shortcut finds it, too
    assert set(found["docno"][4:]) <= set("bfgh")
    assert found["text"].tolist()[0] == "text of c"
    again = neighbourhood(
        "1_2", *asked, lambda: iter(CORPUS), shortcut=shortcut("d", "c", "e", "b"), num_shortcut=2, num_others=2
    )
    pd.testing.assert_frame_equal(found, again)
    assert (neighbourhood("1_2", *asked, CORPUS, shortcut=shortcut(), num_others=0)["kind"] == "gold").all()


def test_every_other_passage_is_drawn_equally_often(asked: Any) -> None:
    drawn = [
        docno
        for seed in range(400)
        for docno in neighbourhood("1_2", *asked, CORPUS, shortcut=shortcut(), num_others=3, seed=seed)["docno"][2:]
    ]
    counts = pd.Series(drawn).value_counts()
    assert set(counts.index) == set("bdefgh")
    assert counts.between(150, 250).all()  # 400 x 3 / 6 = 200, give or take five standard errors of 10


def test_neighbourhood_says_what_is_wrong(asked: Any) -> None:
    with pytest.raises(ValueError, match="no question '9_9'"):
        neighbourhood("9_9", *asked, CORPUS, shortcut=shortcut())
    with pytest.raises(ValueError, match=r"none of the golds of '1_2' \(c, a\)"):
        neighbourhood("1_2", *asked, CORPUS[3:], shortcut=shortcut())


def test_pca_of_vectors_in_a_plane_keeps_their_distances() -> None:
    passages = pd.DataFrame({"kind": ["gold", "shortcut", "other"], "docno": ["b", "d", "j"], "text": list("bdj")})
    points = project(Angles(), "a", passages, method="pca")
    assert points["kind"].tolist() == ["query", "gold", "shortcut", "other"]
    assert points["docno"].tolist()[1:] == ["b", "d", "j"]
    assert points["docno"].isna().tolist() == [True, False, False, False]
    degrees = np.deg2rad([0, 10, 30, 90])
    np.testing.assert_allclose(points["similarity"], np.cos(degrees), atol=1e-6)
    plane = points[["x", "y"]].to_numpy()
    for one in range(4):
        for two in range(4):  # the chord between two points of the unit circle
            chord = 2 * np.sin(abs(degrees[one] - degrees[two]) / 2)
            assert np.linalg.norm(plane[one] - plane[two]) == pytest.approx(chord, abs=1e-5)


def test_tsne_puts_clusters_apart_and_is_the_same_for_the_same_seed() -> None:
    letters = ["a"] * 8 + ["s"] * 8  # 0 and 180 degrees
    passages = pd.DataFrame({"kind": ["gold"] * 8 + ["other"] * 8, "docno": range(16), "text": letters})
    points = project(Angles(), "a", passages, seed=3)
    near = points[points["kind"] != "other"][["x", "y"]].to_numpy()
    far = points[points["kind"] == "other"][["x", "y"]].to_numpy()
    assert np.linalg.norm(near.mean(axis=0) - far.mean(axis=0)) > max(
        np.linalg.norm(near - near.mean(axis=0), axis=1).mean(), np.linalg.norm(far - far.mean(axis=0), axis=1).mean()
    )
    pd.testing.assert_frame_equal(points, project(Angles(), "a", passages, seed=3))


def test_project_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = pd.DataFrame({"kind": ["gold"] * 3, "docno": list("abc"), "text": list("abc")})
    with pytest.raises(ValueError, match="method='mds'"):
        project(Angles(), "a", passages, method="mds")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="three at least"):
        project(Angles(), "a", passages.head(2))
    with pytest.raises(ValueError, match="query is empty"):
        project(Angles(), " ", passages)
    with pytest.raises(ValueError, match=r"columns \['kind'\]"):
        project(Angles(), "a", passages.drop(columns="kind"))
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match="umap-learn"):
        project(Angles(), "a", passages, method="umap")


def test_space_draws_models_side_by_side() -> None:
    passages = pd.DataFrame({"kind": ["gold", "shortcut", "other"], "docno": ["b", "d", "j"], "text": list("bdj")})
    points = project(Angles(), "a", passages, method="pca")
    figure = cs.figures.space({"DPR": points, "w. negatives": points[points["kind"] != "shortcut"]})
    left, right = figure.axes
    assert left.get_title() == "DPR\ngold 0.98, shortcut 0.87, other 0.00"  # cosines of 10, 30 and 90 degrees
    assert right.get_title() == "w. negatives\ngold 0.98, other 0.00"
    assert sorted(dots.get_label() for dots in left.collections) == ["gold", "other", "query", "shortcut"]
    drawn = {dots.get_label(): np.asarray(dots.get_offsets()) for dots in left.collections}
    np.testing.assert_allclose(drawn["gold"], points.loc[points["kind"] == "gold", ["x", "y"]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["query", "gold", "shortcut", "other"]
    assert len(cs.figures.space(points).axes) == 1
    assert "matplotlib.pyplot" not in sys.modules or figure.number is None  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="nothing to draw"):
        cs.figures.space({})
    with pytest.raises(ValueError, match=r"lack the columns \['similarity'\]"):
        cs.figures.space(points.drop(columns="similarity"))
    with pytest.raises(ValueError, match="unknown kind 'golden'"):
        cs.figures.space(points.replace({"kind": {"gold": "golden"}}))


LINES = [
    {"step": 0, "epoch": 0.0, "R@5": 0.25},
    {"step": 5, "epoch": 0.5, "loss": 2.0, "learning_rate": 1e-4},
    {"step": 10, "epoch": 1.0, "R@5": 0.5},
    {"step": 20, "epoch": 2.0, "R@5": 0.75},
]


def test_learning_curves_from_folders_files_and_lines(tmp_path: Any) -> None:
    (tmp_path / "dev_curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    other = [{**line, "R@5": line["R@5"] / 2} for line in LINES if "R@5" in line]
    figure = cs.figures.learning_curves({"DPR": tmp_path, "w. negatives": [LINES, other]})
    (axes,) = figure.axes
    assert axes.get_ylabel() == "dev R@5"
    first, mean, *thin = axes.lines
    np.testing.assert_allclose(first.get_xydata(), [[0, 0.25], [10, 0.5], [20, 0.75]])
    np.testing.assert_allclose(mean.get_ydata(), [0.1875, 0.375, 0.5625])
    assert len(thin) == 2
    loss = cs.figures.learning_curves({"DPR": tmp_path / "dev_curve.jsonl"}, "loss").axes[0]
    assert loss.get_ylabel() == "loss"
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[5, 2.0]])
    assert read_curve(LINES)["step"].tolist() == [0, 5, 10, 20]


def test_learning_curves_say_what_is_wrong(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError, match="no dev curve"):
        cs.figures.learning_curves({"DPR": tmp_path})
    with pytest.raises(ValueError, match=r"no 'RR' \(it has \['R@5', 'loss'\]\)"):
        cs.figures.learning_curves({"DPR": LINES}, "RR")
    with pytest.raises(ValueError, match="no dev measure"):
        cs.figures.learning_curves({"DPR": LINES[1:2]})
    with pytest.raises(ValueError, match="at least one model"):
        cs.figures.learning_curves({})
