"""Pipelines on workers: the same frames, cut where nothing is parted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.scale import on_ray
from pt_convsearch.scale.frames import frame_bytes, frame_from_bytes
from pt_convsearch.scale.parallel import cut_frame, kept_result
from pt_convsearch.scale.storage import Storage

from .conftest import some_topics, tied_docs


class Shout(pt.Transformer):
    """A stage that keeps rows, with lists, dicts and vectors; fails on a text if told to."""

    def __init__(self, fail_on: str | None = None) -> None:
        self.fail_on = fail_on

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        if self.fail_on in inp["query"].tolist():
            raise ValueError(f"no such query as {self.fail_on!r}")
        texts = inp["query"].str.upper()
        return inp.assign(
            query=texts,
            query_toks=[{text: 0.1 + 0.2} for text in texts],
            query_vec=[np.arange(3, dtype=np.float32) / 3 for _ in texts],
        )


def test_rows_of_one_conversation_stay_together():
    frame = pd.DataFrame({"conversation_id": list("aabbbccd"), "qid": [str(i) for i in range(8)]})
    assert [part["conversation_id"].tolist() for part in cut_frame(frame, 1)] == [
        ["a", "a"], ["b", "b", "b"], ["c", "c"], ["d"]
    ]  # fmt: skip
    assert [len(part) for part in cut_frame(frame, 3)] == [5, 3]
    # b lies between two rows of a: they go together
    mixed = pd.DataFrame({"qid": ["a", "b", "a", "c"]})
    assert [part["qid"].tolist() for part in cut_frame(mixed, 1)] == [["a", "b", "a"], ["c"]]
    assert [len(part) for part in cut_frame(pd.DataFrame({"text": list("xyz")}), 2)] == [2, 1]
    assert [len(part) for part in cut_frame(pd.DataFrame({"qid": ["a", None, "b", None]}), 1)] == [1, 3]


def test_frames_go_to_bytes_and_back():
    frame = Shout()(some_topics(4)).assign(
        score=[0.1, np.nan, 1e300, 1 / 3], rank=range(4), on=[True, False, True, True]
    )
    frame["qtype"] = pd.Categorical(["first", "switch", "first", "first"])
    frame["late"] = pd.Series([None, [], [{"role": "user", "content": "é\ud800"}], float("nan")], dtype=object)
    frame.index = [3, 1, 7, 0]
    back = frame_from_bytes(frame_bytes(frame))
    vectors = ["query_vec"]
    pd.testing.assert_frame_equal(back.drop(columns=vectors), frame.drop(columns=vectors))
    assert all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(back["query_vec"], frame["query_vec"], strict=True)
    )
    with pytest.raises(TypeError, match="cannot be kept in a checkpoint"):
        frame_bytes(pd.DataFrame({"x": [object()]}))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"", lambda b: b.replace(b"PAR1", b"RAP1")])
def test_a_damaged_checkpoint_is_done_again(damage, tmp_path, caplog):
    storage = Storage(tmp_path)
    frame = pd.DataFrame({"qid": ["1"], "turns": [["a", "b"]]})
    assert kept_result(storage, "b.parquet") is None
    assert not caplog.records
    storage.write("b.parquet", frame_bytes(frame))
    pd.testing.assert_frame_equal(kept_result(storage, "b.parquet"), frame)
    storage.write("b.parquet", damage(frame_bytes(frame)))
    assert kept_result(storage, "b.parquet") is None
    assert "b.parquet is damaged" in caplog.text


def test_what_cannot_be_sent_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"<lambda>.*top of a module in place of a lambda"):
        on_ray(Shout() >> pt.apply.generic(lambda frame: frame))
    handle = Shout()
    handle.log = (tmp_path / "log").open("w", encoding="utf-8")  # type: ignore[attr-defined]
    with handle.log, pytest.raises(TypeError, match=r"Shout.*cannot be sent to another process.*open files"):
        on_ray(cs.form(cs.CURRENT) >> handle)
    with pytest.raises(TypeError, match=r"pt\.apply"):
        on_ray(len)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_workers=0"):
        on_ray(Shout(), num_workers=0)


def test_identity_and_columns_need_no_ray():
    assert on_ray(cs.form(cs.X), num_workers=2) == on_ray(cs.form(cs.X), num_workers=5)
    assert on_ray(cs.form(cs.X)) != on_ray(cs.form(cs.CURRENT))
    assert repr(on_ray(cs.form(cs.X))) == f"on_ray({cs.form(cs.X)!r})"
    assert len(on_ray(Shout())(some_topics(3).head(0))) == 0


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'pt-convsearch\[ray\]'"):
        on_ray(Shout())(some_topics(3))


def test_importing_scale_imports_no_ray():
    import subprocess

    code = "import sys, pt_convsearch as cs; cs.scale.ShardedIndex; print({*sys.modules} & {'ray', 's3fs', 'torch'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_handlers_of_signals_are_left_alone():
    """Java handles SIGSEGV in the course of its work: a Ray in its place crashes Terrier in the same process."""
    code = """if True:
        import ctypes, faulthandler, signal
        from pt_convsearch.scale import connect
        def handler():
            action = (ctypes.c_char * 256)()
            ctypes.CDLL(None).sigaction(int(signal.SIGSEGV), None, action)
            return bytes(action[:8])
        faulthandler.enable()
        before = handler()
        ray = connect(num_cpus=1, object_store_memory=100_000_000)
        print(handler() == before)
        ray.shutdown()
        print(handler() == before)
    """
    there = {name: value for name, value in os.environ.items() if name != "RAY_DISABLE_FAILURE_SIGNAL_HANDLER"}
    done = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_same_frames_as_without(ray_session, tmp_path):
    index = cs.BM25Index(tmp_path / "x").index(tied_docs(200))
    topics = some_topics(40)
    pipeline = index.bm25(num_results=7) >> index.text_loader()
    expected = pipeline(topics)
    spread = on_ray(pipeline, num_workers=2, batch_size=6, num_cpus=0.5)
    pd.testing.assert_frame_equal(spread(topics), expected)
    pd.testing.assert_frame_equal(
        (on_ray(index.bm25(), num_workers=1) % 3).compile()(topics), index.bm25(num_results=3)(topics)
    )
    # a worker that is lost in between is started again
    slow = on_ray(Killing(str(tmp_path / "once")) >> pipeline, num_workers=1, batch_size=6)
    pd.testing.assert_frame_equal(slow(topics), expected)
    assert (tmp_path / "once").exists()
    # rows keep their labels where the stage keeps rows
    shuffled = topics.sample(frac=1, random_state=1)
    pd.testing.assert_frame_equal(on_ray(Shout(), num_workers=1, batch_size=6)(shuffled), Shout()(shuffled))
    with pytest.raises(ValueError, match="no such query as 'unknown'"):
        on_ray(Shout("unknown"), num_workers=1)(topics)


class Killing(pt.Transformer):
    """Ends its process, once."""

    def __init__(self, path: str) -> None:
        self.path = path

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        import os
        from pathlib import Path

        if len(inp) and "q13" in inp["qid"].tolist() and not Path(self.path).exists():
            Path(self.path).write_text("", encoding="utf-8")
            os._exit(1)
        return inp


def test_a_checkpoint_is_taken_up(ray_session, tmp_path):
    topics = some_topics(20)
    folder = tmp_path / "kept"
    with pytest.raises(ValueError, match="no such query"):
        on_ray(Shout(topics["query"][19]), num_workers=1, batch_size=5, checkpoint=folder)(topics)
    assert len(list(folder.iterdir())) >= 1
    first = on_ray(Shout(), num_workers=1, batch_size=5, checkpoint=folder)(topics)
    count = len(list(folder.iterdir()))
    stamps = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = on_ray(Shout(), num_workers=1, batch_size=5, checkpoint=folder)(topics)
    pd.testing.assert_frame_equal(again, first)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == stamps
    # other rows are other batches
    on_ray(Shout(), num_workers=1, batch_size=5, checkpoint=folder)(topics.iloc[:3])
    assert len(list(folder.iterdir())) == count + 1


def test_a_stream_of_documents(ray_session, tmp_path):
    docs = [{"docno": f"d{i}", "query": f"text {i}"} for i in range(23)]
    spread = on_ray(Shout(), num_workers=1, batch_size=4)
    found = list(spread.transform_iter(iter(docs)))
    assert [doc["docno"] for doc in found] == [doc["docno"] for doc in docs]
    assert json.dumps(found[5]["query_toks"]) == '{"TEXT 5": 0.30000000000000004}'
