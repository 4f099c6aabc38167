"""Cross-validation: who is trained on what, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.training.folds import Split

TOPICS = pd.DataFrame(
    {"qid": [str(n) for n in range(10)], "query": "x", "fold": [1, 2, 3, 4, 5, 1, 2, 3, 4, 5], "turn_number": range(10)}
)
QRELS = pd.DataFrame({"qid": TOPICS["qid"], "docno": "good", "label": 1})


class Ranker(pt.Transformer):
    """Puts the good document at a place."""

    def __init__(self, place: int) -> None:
        self.place = place

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        docnos = ["bad1", "bad2", "bad3"]
        docnos.insert(self.place, "good")
        rows = [
            (qid, query, docno, 10.0 - rank, rank)
            for qid, query in zip(inp["qid"], inp["query"], strict=True)
            for rank, docno in enumerate(docnos)
        ]
        return pd.DataFrame(rows, columns=["qid", "query", "docno", "score", "rank"])


class Unscored(pt.Transformer):
    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return inp.drop(columns="score")


def test_three_to_train_one_to_select_one_to_test_in_rotation() -> None:
    seen: list[Split] = []

    def make(split: Split) -> Any:
        seen.append(split)
        return Ranker(0)

    found = cs.cross_validate(make, TOPICS, QRELS)
    assert [(s.test_fold, s.dev_folds, s.train_folds) for s in seen] == [
        ("1", ("2",), ("3", "4", "5")),
        ("2", ("3",), ("4", "5", "1")),
        ("3", ("4",), ("5", "1", "2")),
        ("4", ("5",), ("1", "2", "3")),
        ("5", ("1",), ("2", "3", "4")),
    ]
    first = seen[0]
    assert first.train[0]["qid"].tolist() == ["2", "3", "4", "7", "8", "9"]
    assert sorted(first.train[1]["qid"]) == ["2", "3", "4", "7", "8", "9"]
    assert first.dev[0]["qid"].tolist() == first.dev[1]["qid"].tolist() == ["1", "6"]
    assert first.test["qid"].tolist() == ["0", "5"]
    assert found.run["qid"].unique().tolist() == TOPICS["qid"].tolist()
    assert len(found.run) == 40
    table = cs.Experiment({"cv": found.run}, TOPICS, QRELS, ["RR"])
    assert table["All"]["RR"].tolist() == [1.0]


def test_selection_is_on_the_dev_fold_and_not_on_the_test_fold() -> None:
    """Each turn has a candidate that is best on its dev fold and worst on its test fold."""

    def make(split: Split) -> Any:
        class Trap(Ranker):
            def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
                dev = set(split.dev[0]["qid"])
                good, bad = Ranker(0).transform(inp), Ranker(3).transform(inp)
                return pd.concat([good[good["qid"].isin(dev)], bad[~bad["qid"].isin(dev)]])

        return {"honest": Ranker(1), "trap": Trap(0)}

    found = cs.cross_validate(make, TOPICS, QRELS, metric="RR")
    assert found.choices[found.choices["chosen"]]["candidate"].tolist() == ["trap"] * 5
    assert found.choices["dev"].tolist() == [0.5, 1.0] * 5
    assert cs.Experiment({"cv": found.run}, TOPICS, QRELS, ["RR"])["All"]["RR"].tolist() == [0.25]


def test_the_first_of_equals_is_chosen() -> None:
    found = cs.cross_validate(lambda split: {"b": Ranker(1), "a": Ranker(1)}, TOPICS, QRELS)
    assert found.choices[found.choices["chosen"]]["candidate"].tolist() == ["b"] * 5


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    turns: list[int] = []

    def make(split: Split) -> Any:
        if split.number == 3 and len(turns) == 2:
            raise KeyboardInterrupt
        turns.append(split.number)
        assert split.folder is not None
        assert split.folder.is_dir()
        return {"one": Ranker(0), "two": Ranker(2)}

    with pytest.raises(KeyboardInterrupt):
        cs.cross_validate(make, TOPICS, QRELS, out=tmp_path / "cv")
    turns.append(0)
    found = cs.cross_validate(make, TOPICS, QRELS, out=tmp_path / "cv")
    assert turns == [1, 2, 0, 3, 4, 5]
    again = cs.cross_validate(make, TOPICS, QRELS, out=tmp_path / "cv")
    assert len(turns) == 6
    pd.testing.assert_frame_equal(again.run, found.run)
    pd.testing.assert_frame_equal(again.choices, found.choices)
    with pytest.raises(ValueError, match=r"of another cross-validation \(qrels\)"):
        cs.cross_validate(make, TOPICS, QRELS.assign(label=2), out=tmp_path / "cv")
    (tmp_path / "cv" / "turn-2" / "run.parquet").write_bytes(b"cut")
    pd.testing.assert_frame_equal(cs.cross_validate(make, TOPICS, QRELS, out=tmp_path / "cv").run, found.run)


def test_what_cannot_be_is_named() -> None:
    def one(split: Split) -> Any:
        return Ranker(0)

    with pytest.raises(ValueError, match="2 folds, 1 of them to select on"):
        cs.cross_validate(one, TOPICS.head(2), QRELS)
    with pytest.raises(ValueError, match="qid '3' is in the folds a and b"):
        cs.cross_validate(one, TOPICS, QRELS, {"a": ["3"], "b": ["3"]})
    with pytest.raises(ValueError, match="'5', '6', '7' … is in no fold"):
        cs.cross_validate(one, TOPICS, QRELS, {"a": ["0", "1"], "b": ["2"], "c": ["3", "4"]})
    with pytest.raises(ValueError, match="no column 'part'"):
        cs.cross_validate(one, TOPICS, QRELS, "part")
    with pytest.raises(ValueError, match=r"qrels lack the columns \['label'\]"):
        cs.cross_validate(lambda split: Ranker(0), TOPICS, QRELS[["qid", "docno"]])
    for twice in ({1: ["0"], "1": ["1"]}, "half"):
        with pytest.raises(ValueError, match="two folds have the same name in 1, '1'"):
            cs.cross_validate(lambda split: Ranker(0), TOPICS.assign(half=[1, "1"] * 5), QRELS, twice)
    other = pd.DataFrame([("77", "good", 1.0, 0)], columns=["qid", "docno", "score", "rank"])
    with pytest.raises(ValueError, match="qid '77', which was not asked"):
        cs.cross_validate(lambda split: pt.apply.generic(lambda _: other), TOPICS, QRELS)
    with pytest.raises(pt.validate.InputValidationError, match="score"):
        cs.cross_validate(lambda split: Ranker(0) >> Unscored(), TOPICS, QRELS, dev_folds=0)
    with pytest.raises(ValueError, match="several candidates"):
        cs.cross_validate(lambda split: {"a": Ranker(0), "b": Ranker(0)}, TOPICS, QRELS, dev_folds=0)
    with pytest.raises(TypeError, match="make returned None"):
        cs.cross_validate(lambda split: None, TOPICS, QRELS)  # type: ignore[arg-type,return-value]


def test_on_the_folds_of_dl_hard(realdata: Path) -> None:
    data = cs.dataset("dl-hard/passage", path=realdata / "dl-hard")
    topics, qrels = data.get_topics(), data.get_qrels()
    sizes = []

    def make(split: Split) -> Any:
        sizes.append([len(split.train[0]), len(split.dev[0]), len(split.test)])
        assert set(split.train[1]["qid"]) <= set(split.train[0]["qid"])
        return Ranker(0)

    found = cs.cross_validate(make, topics, qrels, data.folds())
    assert sizes == [[30, 10, 10]] * 5
    by_column = cs.cross_validate(make, topics, qrels)  # the column "fold" says the same
    assert found.choices["test_fold"].tolist() == by_column.choices["test_fold"].tolist()
    assert set(found.run["qid"]) == set(topics["qid"])
