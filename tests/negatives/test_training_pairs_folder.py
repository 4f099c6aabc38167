"""The folder of a mined set: what it depends on, what is left alone, and what a kill leaves."""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import lz4.frame
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs

from .test_miners import Fixed
from .test_training_pairs import ALL, CORPUS, QRELS, TOPICS, made

HERE = Path(__file__).parent


# -- what the set depends on -----------------------------------------------------------------------------------------


def changed_text() -> list[dict[str, str]]:
    return [{**passage, "text": passage["text"] + ("!?" if passage["docno"] == "d" else "")} for passage in CORPUS]


class Model(pt.Transformer):
    """A retriever whose weights lie in a file: its settings do not tell when they change."""

    def __init__(self, path: str) -> None:
        self.path = path

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        return Fixed(*Path(self.path).read_text(encoding="utf-8").split())(topics)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"form": cs.QUESTIONS}, "form"),
        ({"form": cs.form(cs.X, sep=" | ")}, "queries"),
        ({"corpus": changed_text()}, "corpus"),
        ({"corpus": CORPUS[::-1]}, "corpus"),
        ({"topics": TOPICS.assign(query=["x", "y", "z", "v"])}, "topics"),
        ({"qrels": QRELS.assign(docno=["b", "a", "b", "gone", "far"])}, "golds"),
        ({"negatives": Fixed("c")}, "miner"),
        ({"negatives": ALL >> cs.Ranks(1, 5)}, "miner"),
        ({"pool": 50}, "pool"),
        ({"seed": 2}, "seed"),
        ({"num_negatives": 2}, "num_negatives"),
        ({"title_field": None}, "title_field"),
    ],
)
def test_a_change_never_gets_the_old_set(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    made(out=tmp_path / "pairs")
    with pytest.raises(ValueError, match=named), pytest.warns(UserWarning, match="no text"):
        given = {"topics": TOPICS, "qrels": QRELS, "corpus": CORPUS, "form": cs.X, "negatives": ALL, **options}
        cs.training_pairs(given.pop("topics"), given.pop("qrels"), given.pop("corpus"), out=tmp_path / "pairs", **given)
    assert made(out=tmp_path / "pairs", overwrite=True, **options).settings != made().settings


def test_other_weights_at_the_same_path_are_noticed(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_text("c d", encoding="utf-8")
    made(negatives=Model(str(weights)), out=tmp_path / "pairs")
    weights.write_text("d c", encoding="utf-8")
    with pytest.raises(ValueError, match="found for control questions"), pytest.warns(UserWarning, match="no text"):
        cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=Model(str(weights)), out=tmp_path / "pairs")


def test_an_unchanged_call_mines_nothing(tmp_path: Path) -> None:
    calls: list[int] = []

    def count(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        return frame

    miner = pt.apply.generic(count) >> ALL
    first = made(negatives=miner, out=tmp_path / "pairs")
    assert len(calls) == 2  # the control questions and the batch
    second = made(negatives=miner, out=tmp_path / "pairs")
    assert len(calls) == 3
    assert second.fingerprint == first.fingerprint
    assert not (tmp_path / "pairs.mining").exists()


@pytest.mark.parametrize("name", ["pairs.parquet", "passages.parquet"])
def test_a_damaged_set_is_noticed_and_rebuilt(name: str, tmp_path: Path) -> None:
    first = made(out=tmp_path / "pairs")
    data = (tmp_path / "pairs" / name).read_bytes()
    for damaged in (data[:-7], data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        (tmp_path / "pairs" / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=name):
            cs.TrainingPairs(tmp_path / "pairs")
        with pytest.warns(UserWarning, match="mining anew"):
            again = cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=ALL, out=tmp_path / "pairs")
        pd.testing.assert_frame_equal(again.frame(), first.frame())


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="no mined training set"), pytest.warns(UserWarning, match="no text"):
        cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=ALL, out=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cs\.training_pairs"):
        cs.TrainingPairs(tmp_path)


def test_batches_do_not_matter() -> None:
    wide, narrow = made(), made(batch_size=1)
    pd.testing.assert_frame_equal(wide.frame(), narrow.frame())
    assert wide.counts == narrow.counts


def test_it_is_an_artifact(tmp_path: Path) -> None:
    made(out=tmp_path / "pairs")
    meta = json.loads((tmp_path / "pairs" / "pt_meta.json").read_text(encoding="utf-8"))
    assert (meta["type"], meta["format"]) == ("training_pairs", "convsearch")
    package = cs.TrainingPairs(tmp_path / "pairs").build_package(str(tmp_path / "pairs.tar.lz4"), verbose=False)
    with lz4.frame.open(package) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    pd.testing.assert_frame_equal(cs.TrainingPairs(tmp_path / "unpacked").frame(), made().frame())


# -- a kill ----------------------------------------------------------------------------------------------------------


def test_a_killed_mining_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out, log = tmp_path / "pairs", tmp_path / "log"
    log.mkdir()
    environment = {**os.environ, "MINED": str(log)}
    command = [sys.executable, str(HERE / "mine_and_die.py"), str(out)]
    killed = subprocess.run([*command, "q6"], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    parts = sorted(path.name for path in (tmp_path / "pairs.mining").glob("*.parquet"))
    assert parts == ["000000000-000000002.parquet", "000000002-000000004.parquet", "000000004-000000006.parquet"]
    # one part is cut as well, as a full disk would leave it
    part = tmp_path / "pairs.mining" / parts[1]
    part.write_bytes(part.read_bytes()[:-20])
    first = {path.name for path in log.iterdir()}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    again = sorted(path.name.split("-", 1)[1] for path in log.iterdir() if path.name not in first)
    assert again == ["q0-10", "q2-2", "q6-2", "q8-2"]  # the control questions, the cut batch, and what was missing
    subprocess.run([*command[:2], str(tmp_path / "whole")], env=environment, check=True, capture_output=True)
    pd.testing.assert_frame_equal(cs.TrainingPairs(out).frame(), cs.TrainingPairs(tmp_path / "whole").frame())
    assert cs.TrainingPairs(out).counts == cs.TrainingPairs(tmp_path / "whole").counts
    assert not (tmp_path / "pairs.mining").exists()


def test_the_threshold_of_a_function_of_ones_own_counts(tmp_path: Path) -> None:
    """Its code is the same, and so is what it finds for the control questions."""

    def above(threshold: float) -> Any:
        return ALL >> pt.apply.generic(lambda found: found[found["score"] > threshold])

    made(out=tmp_path / "p", negatives=above(0.0))
    assert len(made(out=tmp_path / "p", negatives=above(0.0)))
    with pytest.raises(ValueError, match=r"other settings \(miner\)"):
        made(out=tmp_path / "p", negatives=above(1e-9))


def test_an_index_built_again_from_the_same_collection_is_the_same_miner(tmp_path: Path) -> None:
    def index(corpus: list[dict[str, str]], **options: Any) -> pt.Transformer:
        return cs.BM25Index(tmp_path / "i", overwrite=True, **options).index(corpus).bm25(num_results=5)

    first = made(out=tmp_path / "p", negatives=index(CORPUS))
    assert made(out=tmp_path / "p", negatives=index(CORPUS)).fingerprint == first.fingerprint
    with pytest.raises(ValueError, match=r"other settings \(.*miner"):
        made(out=tmp_path / "p", negatives=index(CORPUS, stemmer=None))


@pytest.mark.parametrize("content", ["", "{", "{}", "[]"])
def test_metadata_that_was_cut(tmp_path: Path, content: str) -> None:
    whole = made(out=tmp_path / "p")
    (tmp_path / "p" / "pt_meta.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"pt_meta\.json is cut or changed"):
        cs.TrainingPairs(tmp_path / "p")
    (tmp_path / "p.mining").mkdir()
    (tmp_path / "p.mining" / "settings.json").write_text(content, encoding="utf-8")
    assert made(out=tmp_path / "p").fingerprint == whole.fingerprint
    assert not (tmp_path / "p.mining").exists()


def test_two_runs_do_not_mine_into_one_folder(tmp_path: Path) -> None:
    def another(found: pd.DataFrame) -> pd.DataFrame:
        if (tmp_path / "p.mining").exists():
            with pytest.raises(RuntimeError, match="written by another run"):
                made(out=tmp_path / "p", negatives=ALL)
        return found

    made(out=tmp_path / "p", negatives=ALL >> pt.apply.generic(another))


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["x"], "qhistory": [[]]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["g"], "label": [1]})
    mine = functools.partial(cs.training_pairs, topics, qrels, [{"docno": "g", "text": "g"}], form=cs.X)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work", encoding="utf-8")
    cs.BM25Index(tmp_path / "index").index([{"docno": "g", "text": "g"}])
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for name in ("thesis", "index", "file"):
        for overwrite in (True, False):
            with pytest.raises(FileExistsError, match="is not overwritten"):
                mine(out=tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text(encoding="utf-8") == "years of work"
    assert len(cs.BM25Index(tmp_path / "index")) == 1
    (tmp_path / "empty").mkdir()
    assert len(mine(out=tmp_path / "empty")) == 1
    (tmp_path / "empty" / "pt_meta.json").write_text("{", encoding="utf-8")  # a damaged set is ours
    assert len(mine(out=tmp_path / "empty", overwrite=True)) == 1


def test_a_set_without_a_folder_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pairs = made()
    texts = pairs.to_dataset(num_negatives=1)["positive"]
    copy = pickle.loads(pickle.dumps(pairs))
    assert copy.to_dataset(num_negatives=1)["positive"] == texts  # reads the folder of the first
    del copy
    gc.collect()
    assert pairs.frame()["qid"].tolist()  # a copy that goes takes nothing along
    del pairs
    gc.collect()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_mining_that_fails_leaves_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken(found: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("the retriever broke")

    with pytest.raises(RuntimeError, match="the retriever broke") as caught:
        made(negatives=pt.apply.generic(broken))
    del caught
    gc.collect()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
