"""DL-HARD's pipelines by name."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.reranking import PUBLISHED_MODELS, baselines

from .test_parade import encoder, write_parade  # noqa: F401


@pytest.fixture
def index(tmp_path: Path) -> cs.BM25Index:
    corpus = [
        {"docno": f"d{n}", "title": f"t{n}", "text": " ".join(["dune"] + ["sand"] * n + ["herbert"] * (n == 3))}
        for n in range(8)
    ]
    return cs.BM25Index(tmp_path / "i.bm25").index(corpus)


TOPICS = pd.DataFrame({"qid": ["1"], "query": ["dune herbert"], "qhistory": [[]]})


def test_names_are_those_of_the_published_tables(index, encoder, tmp_path, realdata) -> None:  # noqa: F811
    scorer = pt.apply.doc_score(lambda row: len(row["text"]))
    parade = cs.PARADE(write_parade(encoder, tmp_path / "parade"))
    models = {"BERT": scorer, "T5": scorer}
    many = {**models, "Electra": scorer, "PARADE-BERT": parade, "PARADE-Electra": parade}
    for task, given in (("passage", models), ("doc", many)):
        ours = set(baselines(index, given, task=task))
        data = cs.dataset(f"dl-hard/{task}", path=realdata / "dl-hard")
        published = {name.removesuffix("(Zero-Shot)") for name in data.published()["system"]}
        assert ours == published
    assert set(many) == set(PUBLISHED_MODELS)


def test_what_they_do(index) -> None:
    """Passages: the text as it is; documents: the best window. The stand-in counts words of what it is shown."""
    shown: list[str] = []

    def words(row: pd.Series) -> float:
        shown.append(row["text"])
        return float(len(row["text"].split()))

    scorer = pt.apply.doc_score(words)
    systems = baselines(index, {"BERT": scorer}, task="passage", depth=3)
    assert list(systems) == ["BM25", "BM25+BERT", "BM25+RM3", "BM25+RM3+BERT"]
    first = (index.bm25(num_results=3))(TOPICS)
    out = systems["BM25+BERT"](TOPICS)
    assert set(out["docno"]) == set(first["docno"])
    assert out.sort_values("rank")["score"].is_monotonic_decreasing
    assert out["query"].tolist() == ["dune herbert"] * 3
    rm3 = systems["BM25+RM3+BERT"](TOPICS)
    feedback = index.bm25() % 10 >> index.rm3() >> index.bm25(num_results=3)
    assert set(rm3["docno"]) == set(feedback(TOPICS)["docno"])

    shown.clear()
    documents = baselines(index, {"BERT": scorer}, task="doc", depth=8, length=4, stride=2)
    best = documents["BM25+BERT-MaxP"](TOPICS).set_index("docno")["score"]
    # title and at most four words: d7 has 8 words, d0 one
    assert best["d7"] == 5.0
    assert best["d0"] == 2.0
    assert all(text.startswith("t") for text in shown)
    assert len(documents["BM25"](TOPICS)) == 8


def test_an_unknown_task(index) -> None:
    with pytest.raises(ValueError, match="task='document'"):
        baselines(index, task="document")
