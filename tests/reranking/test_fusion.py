"""Fusion, worked out by hand."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.reranking import interpolate

HISTORY = [{"role": "user", "content": "x"}]
TOPICS = pd.DataFrame(
    {"qid": ["1", "2"], "query": ["asked one", "asked two"], "qhistory": [[], HISTORY], "turn_number": [1, 2]}
)


class Branch(pt.Transformer):
    """Gives fixed results, and changes the topics as a former would."""

    def __init__(self, rows: list[tuple], name: str = "", columns: tuple[str, ...] = ()) -> None:
        self.rows, self.name, self.columns = rows, name, columns

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        found = pd.DataFrame(self.rows, columns=["qid", "docno", "score", *self.columns])
        found["rank"] = found.groupby("qid").cumcount()
        return inp.assign(query=self.name, query_0=inp["query"]).merge(found, on="qid")

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}  # an empty tuple as an attribute would be taken for a pipeline

    def __repr__(self) -> str:
        return f"Branch({self.name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Branch) and (self.rows, self.name) == (other.rows, other.name)

    def __hash__(self) -> int:
        return hash(self.name)


A = Branch([("1", "a", 9.0), ("1", "b", 8.0), ("2", "a", 1.0)], "A")
B = Branch([("1", "b", 0.5), ("1", "c", 0.4)], "B")
NONE = Branch([], "none")


def test_reciprocal_ranks_are_added() -> None:
    fused = cs.rrf(A, B)(TOPICS)
    assert fused["docno"].tolist() == ["b", "a", "c", "a"]
    assert fused["score"].tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 61])
    assert fused["rank"].tolist() == [0, 1, 2, 0]
    assert cs.rrf(A, B, k=0)(TOPICS)["score"].tolist() == pytest.approx([1.5, 1.0, 0.5, 1.0])


def test_topic_columns_come_back_as_they_went_in() -> None:
    fused = cs.rrf(A, B)(TOPICS)
    assert fused.columns.tolist() == ["qid", "query", "qhistory", "turn_number", "docno", "score", "rank"]
    assert fused["query"].tolist() == ["asked one"] * 3 + ["asked two"]
    assert fused["qhistory"].tolist() == [[], [], [], HISTORY]
    assert fused["turn_number"].tolist() == [1, 1, 1, 2]


def test_topic_columns_survive_where_results_are_fused_again() -> None:
    """What belongs to a passage goes, what belongs to the question stays."""
    results = A(TOPICS.assign(conversation_id="c", answer=["x", "y"])).assign(text="of the passage")
    fused = cs.rrf(pt.apply.generic(lambda _: results[["qid", "docno", "score"]]), pt.RankCutoff(1))(results)
    assert {"conversation_id", "turn_number", "answer", "qhistory"} <= set(fused.columns)
    assert fused["answer"].tolist() == ["x", "x", "y"]


def test_ties_keep_the_order_of_the_first_branch() -> None:
    one = Branch([("1", "x", 2.0), ("1", "y", 1.0)], "one")
    other = Branch([("1", "y", 2.0), ("1", "x", 1.0)], "other")
    assert cs.rrf(one, other)(TOPICS)["docno"].tolist() == ["x", "y"]
    assert cs.rrf(other, one)(TOPICS)["docno"].tolist() == ["y", "x"]
    # 1/61 + 1/62 + 1/63 in three orders is one number
    three = [Branch([("1", doc, 0.0) for doc in order], order) for order in ("xyz", "yzx", "zxy")]
    assert cs.rrf(*three)(TOPICS)["docno"].tolist() == ["x", "y", "z"]


def test_any_number_of_branches_and_empty_ones() -> None:
    assert cs.rrf(A)(TOPICS)["docno"].tolist() == ["a", "b", "a"]
    assert cs.rrf(A, NONE)(TOPICS)["docno"].tolist() == ["a", "b", "a"]
    full, none = cs.rrf(A, B)(TOPICS), cs.rrf(NONE, NONE)(TOPICS)
    assert len(none) == 0
    assert none.dtypes.to_dict() == full.dtypes.to_dict()
    assert cs.rrf(A, B)(TOPICS.head(0)).dtypes.to_dict() == full.dtypes.to_dict()


def test_a_repeated_passage_counts_once() -> None:
    twice = Branch([("1", "a", 3.0), ("1", "b", 2.0), ("1", "a", 1.0), ("1", "c", 0.5)], "twice")
    fused = cs.rrf(twice)(TOPICS)
    assert fused["docno"].tolist() == ["a", "b", "c"]
    assert fused["score"].tolist() == pytest.approx([1 / 61, 1 / 62, 1 / 63])


def test_columns_of_passages_are_kept_where_all_have_them() -> None:
    one = Branch([("1", "a", 2.0, "text a", 1)], "one", ("text", "extra"))
    other = Branch([("1", "b", 2.0, "text b"), ("1", "a", 1.0, "text a")], "other", ("text",))
    fused = cs.rrf(one, other)(TOPICS)
    assert fused["docno"].tolist() == ["a", "b"]
    assert fused["text"].tolist() == ["text a", "text b"]
    assert "extra" not in fused


def test_as_a_fusion_of_rerankers() -> None:
    rows = cs.rrf(A)(TOPICS)
    up = pt.apply.doc_score(lambda row: {"a": 2.0, "b": 1.0}[row["docno"]])
    down = pt.apply.doc_score(lambda row: {"a": 1.0, "b": 2.0}[row["docno"]])
    fused = cs.rrf(up, down)(rows)
    assert fused[["qid", "docno", "rank"]].to_numpy().tolist() == [["1", "a", 0], ["1", "b", 1], ["2", "a", 0]]
    assert fused["qhistory"].tolist() == [[], [], HISTORY]


def test_num_results() -> None:
    assert cs.rrf(A, B, num_results=1)(TOPICS)["docno"].tolist() == ["b", "a"]


def test_one_query_at_a_time_and_together() -> None:
    fusion = cs.rrf(A, B)
    single = pd.concat([fusion(TOPICS[row : row + 1]) for row in range(2)], ignore_index=True)
    pd.testing.assert_frame_equal(fusion(TOPICS), single)


def test_a_qid_that_nobody_asked_is_named() -> None:
    class Invents(pt.Transformer):
        def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame({"qid": ["77"], "docno": ["a"], "score": [1.0], "rank": [0]})

    with pytest.raises(ValueError, match="'77'"):
        cs.rrf(A, Invents())(TOPICS)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="no pipelines"):
        cs.rrf()
    with pytest.raises(TypeError, match="no transformer"):
        cs.rrf(A, cs.X)
    with pytest.raises(ValueError, match="num_results=0"):
        cs.rrf(A, num_results=0)
    with pytest.raises(ValueError, match="3 weights for 2"):
        interpolate(A, B, weights=[1, 2, 3])


def test_identity_pickles_and_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cs.rrf(A, B) == cs.rrf(A, B)
    assert hash(cs.rrf(A, B)) == hash(cs.rrf(A, B))
    assert cs.rrf(A, B) != cs.rrf(B, A)
    assert cs.rrf(A, B) != cs.rrf(A, B, k=10)
    assert repr(cs.rrf(A, B, k=10)) == "rrf(Branch(A), Branch(B), k=10)"
    assert pickle.loads(pickle.dumps(cs.rrf(cs.DropSeen(), cs.DropSeen(demote=True)))) == cs.rrf(
        cs.DropSeen(), cs.DropSeen(demote=True)
    )
    assert list(pt.inspect.subtransformers(cs.rrf(A, B))) == ["pipelines"]
    monkeypatch.setattr(pt.documentation, "_cached_objects_inv", {}, raising=False)
    assert "DropSeen" in pt.schematic.draw(cs.rrf(A, B) >> cs.DropSeen())


def test_interpolation() -> None:
    # A scales 9, 8 to 1, 0; B scales 0.5, 0.4 to 1, 0; A's only result of query 2 has 1
    fused = interpolate(A, B)(TOPICS)
    assert fused["docno"].tolist() == ["a", "b", "c", "a"]
    assert fused["score"].tolist() == pytest.approx([0.5, 0.5, 0.0, 0.5])
    weighted = interpolate(A, B, weights=[0.2, 0.8])(TOPICS)
    assert weighted["docno"].tolist() == ["b", "a", "c", "a"]
    assert weighted["score"].tolist() == pytest.approx([0.8, 0.2, 0.0, 0.2])
    plain = interpolate(A, B, weights=[1, 1], scale=None)(TOPICS)
    assert plain["score"].tolist() == pytest.approx([9.0, 8.5, 0.4, 1.0])
    assert interpolate(A, NONE)(TOPICS)["docno"].tolist() == ["a", "b", "a"]
    assert np.isfinite(interpolate(A, B)(TOPICS)["score"]).all()
    assert repr(interpolate(A, B, weights=[1, 2])) == "interpolate(Branch(A), Branch(B), weights=[1.0, 2.0])"


def test_what_was_not_found_has_the_lowest_score() -> None:
    dense = Branch([("1", "a", 700.0), ("1", "b", 690.0), ("2", "a", 5.0)], "dense")
    sparse = Branch([("1", "b", 20.0), ("1", "c", 10.0)], "sparse")
    hybrid = interpolate(dense, sparse, weights=[1, 0.1], scale=None, missing="minimum")
    fused = hybrid(TOPICS)
    # a: 700 + .1 * 10; b: 690 + .1 * 20; c: 690 + .1 * 10; the second question has one ranking only
    assert fused["docno"].tolist() == ["a", "b", "c", "a"]
    assert fused["score"].tolist() == pytest.approx([701.0, 692.0, 691.0, 5.0])
    assert "missing='minimum'" in repr(hybrid)
    assert hybrid(TOPICS.head(0)).columns.tolist() == fused.columns.tolist()
    assert len(interpolate(NONE, NONE, missing="minimum")(TOPICS)) == 0
    with pytest.raises(ValueError, match="missing='mean'"):
        interpolate(dense, sparse, missing="mean")  # type: ignore[arg-type]
