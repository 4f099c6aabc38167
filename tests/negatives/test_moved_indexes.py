"""What lies on disk counts with what it holds, not with where it lies: an index that was moved is the same miner."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from pyterrier_dr import FlexIndex

import pt_convsearch as cs
from pt_convsearch.negatives._fingerprint import differing, digest

from .test_training_pairs import CORPUS, QRELS, TOPICS, made

OTHER = [{**passage, "text": f"{passage['text']} dune"} for passage in CORPUS]


def vectors(corpus: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [
        {"docno": passage["docno"], "doc_vec": np.array([len(passage["text"]), place], dtype=np.float32)}
        for place, passage in enumerate(corpus)
    ]


def with_vectors(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(query_vec=[np.array([1, 1], dtype=np.float32)] * len(frame))


ENCODED = pt.apply.generic(with_vectors)


def bm25(path: Path, corpus: Any = None) -> pt.Transformer:
    index = cs.BM25Index(path)
    return (index if corpus is None else index.index(corpus)).bm25(num_results=5)


def sharded(path: Path, corpus: Any = None) -> pt.Transformer:
    index = cs.scale.ShardedIndex(path, passages_per_shard=3, threads=1)
    return (index if corpus is None else index.index(corpus)).bm25(num_results=5)


def impacts(path: Path, corpus: Any = None) -> pt.Transformer:
    index = cs.ImpactIndex(path)
    if corpus is not None:
        index.index(
            {"docno": passage["docno"], "toks": {"dune": 1.0 + len(passage["text"]), "cat": 1.0}} for passage in corpus
        )
    return pt.apply.generic(lambda frame: frame.assign(query_toks=[{"dune": 1.0}] * len(frame))) >> index.retriever()


def dense(path: Path, corpus: Any = None) -> pt.Transformer:
    index = cs.DenseIndex(path, similarity="dot")
    return ENCODED >> (index if corpus is None else index.index(vectors(corpus))).retriever(num_results=5)


def flex(path: Path, corpus: Any = None) -> pt.Transformer:
    index = FlexIndex(str(path), verbose=False)
    if corpus is not None:
        index.index(vectors(corpus))
    return ENCODED >> index.np_retriever(num_results=5)


def flex_opened_here(path: Path, corpus: Any = None) -> pt.Transformer:
    flex(path, corpus)
    return ENCODED >> cs.DenseIndex(path).retriever(num_results=5)


def pisa(path: Path, corpus: Any = None) -> pt.Transformer:
    pytest.importorskip("pyterrier_pisa", reason="pip install 'pt-convsearch[pisa]'")
    if corpus is not None:
        cs.lexical.build_pisa_index(corpus, path)
    return cs.bm25(path, num_results=5)


def pisa_of_its_own(path: Path, corpus: Any = None) -> pt.Transformer:
    pisa(path, corpus)
    return cs.lexical.pisa._pisa().PisaIndex(str(path)).bm25(num_results=5)


def terrier(path: Path, corpus: Any = None) -> pt.Transformer:
    if corpus is not None:
        pt.IterDictIndexer(str(path), meta={"docno": 20}).index(
            {name: passage[name] for name in ("docno", "text")} for passage in corpus
        )
    return cs.bm25(path, num_results=5)


def terrier_by_reference(path: Path, corpus: Any = None) -> pt.Transformer:
    terrier(path, corpus)
    return cs.bm25(pt.terrier.TerrierIndex(str(path)).index_ref(), num_results=5)


def terrier_of_its_own(path: Path, corpus: Any = None) -> pt.Transformer:
    terrier(path, corpus)
    return pt.terrier.Retriever(pt.terrier.TerrierIndex(str(path)), wmodel="BM25", num_results=5)


ENGINES = [bm25, sharded, impacts, dense, flex, flex_opened_here, pisa, pisa_of_its_own]
TERRIER = [terrier, terrier_by_reference, terrier_of_its_own]


@pytest.mark.parametrize("miner", ENGINES, ids=lambda miner: miner.__name__)
def test_an_index_that_was_moved_mines_nothing_anew(
    miner: Callable[..., pt.Transformer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(miner, tmp_path, monkeypatch)


@pytest.mark.terrier
@pytest.mark.parametrize("miner", TERRIER, ids=lambda miner: miner.__name__)
def test_an_index_of_terrier_that_was_moved_mines_nothing_anew(
    terrier: None, miner: Callable[..., pt.Transformer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(miner, tmp_path, monkeypatch)


def check(miner: Callable[..., pt.Transformer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, out = tmp_path / "here" / "i.index", tmp_path / "pairs"
    place.parent.mkdir()
    calls: list[int] = []

    def count(frame: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(frame))
        return frame

    def mined(found_by: pt.Transformer) -> cs.TrainingPairs:
        calls.clear()
        return made(out=out, negatives=pt.apply.generic(count) >> found_by)

    first = mined(miner(place, CORPUS))
    assert first.counts["negatives"] > 0
    assert len(calls) == 2  # the control questions and the batch
    used = miner(place)
    assert mined(used).fingerprint == first.fingerprint
    assert mined(used).fingerprint == first.fingerprint  # what the stage remembers of its first use changes nothing
    moved = tmp_path / "there" / "renamed"
    moved.parent.mkdir()
    shutil.move(place, moved)
    assert mined(miner(moved)).fingerprint == first.fingerprint
    assert len(calls) == 1  # the control questions only
    monkeypatch.chdir(moved.parent)
    assert mined(miner(Path("renamed"))).fingerprint == first.fingerprint
    assert len(calls) == 1
    elsewhere = made(out=tmp_path / "again", negatives=pt.apply.generic(count) >> miner(moved))
    assert elsewhere.fingerprint == first.fingerprint  # so what is trained with either is the same training
    with pytest.raises(ValueError, match=r"other settings \(.*miner"):
        mined(miner(place, OTHER))  # another index where that one was


def test_a_killed_mining_goes_on_after_its_index_was_moved(tmp_path: Path) -> None:
    asked: list[str] = []

    def watched(fatal: str | None) -> pt.Transformer:
        def watch(frame: pd.DataFrame) -> pd.DataFrame:
            if len(frame) == 1:
                asked.append(frame["qid"].iloc[0])
                if asked[-1] in killer:
                    raise RuntimeError("killed")
            return frame

        killer[:] = [] if fatal is None else [fatal]
        return pt.apply.generic(watch)

    killer: list[str] = []
    with pytest.raises(RuntimeError, match="killed"), pytest.warns(UserWarning, match="no text"):
        cs.training_pairs(
            TOPICS, QRELS, CORPUS, form=cs.X, negatives=watched("2_1") >> bm25(tmp_path / "a", CORPUS), batch_size=1,
            out=tmp_path / "p",
        )  # fmt: skip
    assert asked == ["1_1", "1_2", "2_1"]
    asked.clear()
    shutil.move(tmp_path / "a", tmp_path / "b")
    made(out=tmp_path / "p", negatives=watched(None) >> bm25(tmp_path / "b"), batch_size=1)
    assert asked == ["2_1"]


class Kept(pt.Artifact):
    """Something on disk that no reader here knows."""

    def __init__(self, path: str) -> None:
        super().__init__(Path(path))

    def __repr__(self) -> str:
        return f"Kept({str(self.path)!r})"


def test_digests_of_earlier_versions_are_still_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the last version that let the path of an index count."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Kept, "__module__", "tests")
    Path("kept").mkdir()
    Path("kept/pt_meta.json").write_text('{"type": "x", "build": "1", "docs": 3}', encoding="utf-8")
    assert digest(Kept("kept"), by_path=True) == "8217b31d70eb6769bb13fe445f1616e1"
    settings = [Kept("kept"), cs.Ranks(1, 5), cs.form(cs.X)]
    assert digest(settings, by_path=True) == "b491dd4383e679fd179144ba8f6ac1ad"


def test_a_set_of_an_earlier_version_is_opened_while_its_index_is_in_its_place(tmp_path: Path) -> None:
    found_by = bm25(tmp_path / "i", CORPUS)
    first = made(out=tmp_path / "p", negatives=found_by)
    path = tmp_path / "p" / "pt_meta.json"
    meta = json.loads(path.read_text(encoding="utf-8"))
    del meta["settings"]["former"]
    meta["settings"]["miner"] = digest(found_by, by_path=True)
    path.write_text(json.dumps(meta), encoding="utf-8")
    assert made(out=tmp_path / "p", negatives=found_by).counts == first.counts
    with pytest.raises(ValueError, match=r"\(form\): choose another folder, or overwrite=True$"):
        made(out=tmp_path / "p", negatives=found_by, form=cs.form(cs.X, max_tokens=50))
    shutil.move(tmp_path / "i", tmp_path / "j")
    with pytest.raises(ValueError, match=r"path of the index counts .*cs\.TrainingPairs\(.*opens the set as it is"):
        made(out=tmp_path / "p", negatives=bm25(tmp_path / "j"))


def test_trainings_without_a_digest_of_their_retriever_are_compared_by_words() -> None:
    was = {"pipeline": "BM25Retriever(BM25Index('i'))", "seed": 1}
    now = {**was, "retrieval": "77b0"}
    assert differing(was, now) == []
    assert differing(was, {**now, "pipeline": "BM25Retriever(BM25Index('j'))"}) == ["pipeline"]
    assert differing(now, {**now, "pipeline": "BM25Retriever(BM25Index('j'))"}) == []
    assert differing(now, {**now, "retrieval": "6f9a"}) == ["retrieval"]


def test_where_a_function_stands_does_not_count() -> None:
    def written(lines: int, threshold: float) -> Any:
        code = "\n" * lines + f"def keep(f):\n    return [s for s in f if s > {threshold} and s not in {{'a', 'b'}}]\n"
        names: dict[str, Any] = {"__name__": "own"}
        exec(compile(code, f"file{lines}.py", "exec"), names)
        return names["keep"]

    assert digest(written(0, 0.5)) == digest(written(7, 0.5))
    assert digest(written(0, 0.5)) != digest(written(0, 0.25))
