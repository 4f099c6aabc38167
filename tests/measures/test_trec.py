"""Runs and judgments on disk: ids come back byte for byte (report 1.8)."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs
from pt_convsearch.measures import read_qrels, read_run, write_run

DOCNOS = ['"Heroes"_(album)', "a,b", "NA", "007", "null", "'q'", "órgão🙂", "a\u00a0b", "#1"]


@pytest.mark.parametrize("name", ["run.res", "run.res.gz"])
def test_ids_and_scores_come_back(tmp_path, name: str) -> None:
    score = 1 / np.arange(1.0, len(DOCNOS) + 1)
    run = pd.DataFrame({"qid": "NA", "docno": DOCNOS, "rank": range(len(DOCNOS)), "score": score})
    write_run(run, tmp_path / name)
    back = read_run(tmp_path / name)
    assert back["docno"].tolist() == DOCNOS
    assert back["qid"].unique().tolist() == ["NA"]
    assert back["score"].tolist() == score.tolist()
    assert back["rank"].tolist() == list(range(len(DOCNOS)))
    assert [path.name for path in tmp_path.iterdir()] == [name]


ids = st.text(st.characters(codec="utf-8", exclude_characters=" \t\r\n\f\v"), min_size=1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(ids, ids), min_size=1, max_size=5, unique=True),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_id_without_white_space(tmp_path_factory, pairs, score: float) -> None:
    path = tmp_path_factory.mktemp("run") / "run.res"
    run = pd.DataFrame(pairs, columns=["qid", "docno"]).assign(rank=0, score=score)
    write_run(run, path)
    back = read_run(path)
    assert list(zip(back["qid"], back["docno"], strict=True)) == pairs
    assert back["score"].tolist() == [score] * len(pairs)


def test_an_id_with_white_space_is_refused_before_anything_is_written(tmp_path) -> None:
    run = pd.DataFrame({"qid": ["q"], "docno": ["a b"], "rank": [0], "score": [1.0]})
    with pytest.raises(ValueError, match="'a b'"):
        write_run(run, tmp_path / "run.res")
    with pytest.raises(ValueError, match="score"):
        write_run(run.drop(columns="score"), tmp_path / "run.res")
    assert not list(tmp_path.iterdir())


def test_qrels_and_their_faults(tmp_path) -> None:
    path = tmp_path / "qrels"
    path.write_bytes('\ufeffq1 0 NA 1\r\n\r\nq1 Q0 "x" -1\n'.encode())
    assert read_qrels(path).to_dict("list") == {"qid": ["q1", "q1"], "docno": ["NA", '"x"'], "label": [1, -1]}
    path.write_text("q1 0 d\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 1: judgments have 4 columns \(qid 0 docno label\), here are 3"):
        read_qrels(path)
    path.write_text("q1 0 d 1\nq1 0 e one\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: label 'one' is no integer"):
        read_qrels(path)


def test_there_is_one_reader_of_each() -> None:
    """Two rooms had readers of their own; the forms that they read are in tests/datasets/test_formats.py."""
    assert cs.datasets.read_qrels is read_qrels
    assert cs.datasets.read_run is read_run


def test_judgments_of_any_form_are_given_to_an_experiment_by_their_path(tmp_path) -> None:
    topics = pd.DataFrame({"qid": ["q1", "q2"], "query": ["x", "y"], "qhistory": [[], []]})
    found = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["a", "b"], "score": [1.0, 1.0], "rank": [0, 0]})
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\tc\t1\n", encoding="utf-8")
    (tmp_path / "q.json").write_text('{"q1": {"a": 1}, "q2": {"c": 1}}', encoding="utf-8")
    for name in ("beir.tsv", "q.json"):
        table = cs.Experiment({"s": found}, topics, tmp_path / name, ["R@10"])
        assert table["All", "R@10"].tolist() == [0.5]  # found for q1, not for q2


def test_grades_and_ranks_are_whole_numbers(tmp_path) -> None:
    """Half a grade must not become none in silence."""
    path = tmp_path / "q"
    path.write_text("1 0 a 1.0\n1 0 b -2\n", encoding="utf-8")
    assert read_qrels(path)["label"].tolist() == [1, -2]
    for label in ("0.5", "nan", "inf"):
        path.write_text(f"1 0 a 1\n1 0 b {label}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=f"line 2: label '{label}' is no integer"):
            read_qrels(path)
    path.write_text("1 Q0 a 0.5 1.0 x\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1: rank '0.5' is no integer"):
        read_run(path)


def test_an_empty_file_is_an_empty_run(tmp_path) -> None:
    with gzip.open(tmp_path / "run.gz", "wb"):
        pass
    back = read_run(tmp_path / "run.gz", may_be_empty=True)
    assert back.columns.tolist() == ["qid", "docno", "rank", "score", "tag"]
    assert len(back) == 0
    assert back["score"].dtype == np.float64
    with pytest.raises(ValueError, match=r"run\.gz, line 1: no result in the file"):
        read_run(tmp_path / "run.gz")


def test_an_id_that_begins_like_a_compressed_file(tmp_path) -> None:
    path = tmp_path / "run.res"
    write_run(pd.DataFrame({"qid": ["BZh91"], "docno": ["a"], "rank": [0], "score": [1.0]}), path)
    assert read_run(path)["qid"].tolist() == ["BZh91"]
