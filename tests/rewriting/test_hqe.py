"""HQE worked out by hand on small collections."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs

from .conftest import said

# eight documents of three words each: a word in one of them scores ln(1 + 7.5 / 1.5), in two ln(1 + 6.5 / 2.5), in
# four ln(2)
TEXTS = ["dune herbert novel", "dune film novel", "novel emma austen", "novel city paris", "city rome italy",
         "city oslo norway",
         "city river water", "water fish boat"]  # fmt: skip
TF = 1 / (1 + 0.82)  # tf = 1 in documents of average length


def score(df: int) -> float:
    return math.log(1 + (8 - df + 0.5) / (df + 0.5)) * TF


@pytest.fixture
def index(tmp_path: Path) -> cs.BM25Index:
    return cs.BM25Index(tmp_path / "i").index([{"docno": f"d{at}", "text": text} for at, text in enumerate(TEXTS)])


@pytest.fixture
def topics() -> pd.DataFrame:
    history = [
        said("user", "Tell me about Herbert's Dune"), said("assistant", "Herbert wrote Emma in Oslo"),
        said("user", "Which Novel is a film? Dune?"), said("assistant", "None"),
    ]  # fmt: skip
    return pd.DataFrame(
        {"qid": ["c_1", "c_2", "c_3"],
         "query": ["Tell me about Herbert's Dune", "Which Novel is a film? Dune?", "And the city boat?"],
         "qhistory": [[], history[:2], history], "tags": [["a"], [], []]}
    )  # fmt: skip


def hqe(index: Any, **options: Any) -> cs.HQE:
    """herbert, film, boat (once each, .98) are topic words; dune and water (.70) subtopic words."""
    return cs.HQE(index, **{"topic": 0.9, "subtopic": 0.6, "ambiguous": 1.2, **options})


def test_scores_of_words_by_hand(index: cs.BM25Index) -> None:
    found = hqe(index).best_scores(["herbert", "dune", "novel", "Herbert's", "unseen", "the"])
    assert found["herbert"] == pytest.approx(score(1), abs=1e-6)
    assert found["Herbert's"] == pytest.approx(score(1), abs=1e-6)
    assert found["dune"] == pytest.approx(score(2), abs=1e-6)
    assert found["novel"] == pytest.approx(score(4), abs=1e-6)
    assert found["unseen"] == found["the"] == 0
    assert score(1) > 0.9 > score(2) > 0.6 > score(4)


def test_topic_words_of_all_turns_and_subtopic_words_where_q_t_is_ambiguous(
    index: cs.BM25Index, topics: pd.DataFrame
) -> None:
    # c_2: film and dune and novel in d1: .98 + .70 + .38 = 2.07 > 1.2: not ambiguous. c_3: boat and city: .98 or .38
    # <= 1.2
    out = hqe(index)(topics)
    assert out["query"].tolist() == [
        "Tell me about Herbert's Dune",
        "Herbert's film Which Novel is a film? Dune?",
        "Herbert's film boat Dune And the city boat?",
    ]
    assert out["query_0"].tolist() == out["qutterance"].tolist() == topics["query"].tolist()
    assert out["tags"].tolist() == topics["tags"].tolist()


def test_a_question_is_ambiguous_at_the_threshold_itself(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    best = index.bm25(num_results=1, k1=0.82, b=0.68).search("And the city boat?")["score"][0]
    assert "Dune" in hqe(index, ambiguous=best)(topics)["query"][2]
    assert "Dune" not in hqe(index, ambiguous=best - 1e-4)(topics)["query"][2]


def test_thresholds_include_the_lower_bound(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    dune = index.bm25(num_results=1, k1=0.82, b=0.68).search("dune")["score"][0]
    assert (
        hqe(index, topic=dune, subtopic=dune, ambiguous=0)(topics)["query"][2]
        == "Herbert's Dune film boat And the city boat?"
    )


def test_the_window_counts_the_current_turn(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    later = topics.iloc[[2]].reset_index(drop=True)
    words = hqe(index, window=2)(later)["query"][0].split()
    assert words[:4] == ["Herbert's", "film", "boat", "Dune"]  # Dune of turn 2
    assert hqe(index, window=1)(later)["query"][0] == "Herbert's film boat And the city boat?"
    assert hqe(index, window=0)(later)["query"][0] == "Herbert's film boat And the city boat?"


def test_answers_count_where_they_are_asked_for(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    assert hqe(index, parts=cs.X)(topics)["query"][1] == "Herbert's Emma Oslo film Which Novel is a film? Dune?"
    history_only = hqe(index, parts=cs.QUESTIONS - cs.CURRENT)(topics)
    assert history_only["query"][1] == "Herbert's Which Novel is a film? Dune?"


def tagged(text: str) -> list[tuple[str, str]]:
    return [(word.strip("?'s"), "NNP" if word[0].isupper() else "VB") for word in text.split()]


def test_a_tagger_leaves_nouns_and_adjectives(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    assert hqe(index, pos=tagged)(topics)["query"][1] == "Herbert Which Novel is a film? Dune?"  # film is no noun to it


def test_any_engine_gives_the_statistics(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    expected = hqe(index)(topics)["query"].tolist()
    assert hqe(str(index.path))(topics)["query"].tolist() == expected
    assert hqe(index.bm25(num_results=50, k1=0.82, b=0.68))(topics)["query"].tolist() == expected


def test_pisa_gives_the_statistics(tmp_path: Path, topics: pd.DataFrame) -> None:
    pytest.importorskip("pyterrier_pisa")
    from pt_convsearch.lexical import build_pisa_index

    pisa = build_pisa_index([{"docno": f"d{at}", "text": text} for at, text in enumerate(TEXTS)], tmp_path / "pisa")
    stage = hqe(pisa, topic=0.8, subtopic=0.5, ambiguous=0)
    best = stage.best_scores(["herbert", "dune"])
    # PISA's idf: ln((8 - df + .5) / (df + .5))
    assert best["dune"] / best["herbert"] == pytest.approx(math.log(6.5 / 2.5) / math.log(7.5 / 1.5), rel=1e-3)
    out = hqe(pisa, topic=0.9 * best["herbert"], subtopic=0, ambiguous=0)(topics)
    assert out["query"][1] == "Herbert's film Which Novel is a film? Dune?"


def test_words_are_searched_once_and_in_one_call(
    index: cs.BM25Index, topics: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    searched = cs.HQE._searched
    monkeypatch.setattr(cs.HQE, "_searched", lambda self, texts: calls.append(texts) or searched(self, texts))
    stage = hqe(index)
    stage(topics)
    assert len(calls) == 2  # the words, the questions
    assert len(set(calls[0])) == len(calls[0])
    stage(topics)
    assert len(calls) == 3  # the questions alone


def test_one_by_one_and_empty(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    stage = hqe(index)
    one = pd.concat([stage(topics.iloc[[at]]) for at in range(3)], ignore_index=True)
    pd.testing.assert_frame_equal(one, stage(topics))
    assert stage(topics.iloc[:0]).dtypes.tolist() == stage(topics).dtypes.tolist()


def test_options_and_identity(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    paper = cs.HQE(index)
    assert (paper.topic, paper.subtopic, paper.ambiguous, paper.window, paper.k1, paper.b) == (
        4.5,
        3.5,
        10,
        5,
        0.82,
        0.68,
    )
    assert hqe(index) == hqe(index) != hqe(index, topic=1.0)
    assert hash(hqe(index)) == hash(hqe(index))
    assert pickle.loads(pickle.dumps(hqe(index)))(topics)["query"].tolist() == hqe(index)(topics)["query"].tolist()
    with pytest.raises(ValueError, match="subtopic"):
        cs.HQE(index, topic=1, subtopic=2)
    with pytest.raises(pt.validate.InputValidationError, match="qhistory"):
        hqe(index)(topics.drop(columns="qhistory"))


def test_other_scripts(tmp_path: Path) -> None:
    index = cs.BM25Index(tmp_path / "i", tokenizer="unicode", stemmer=None, stopwords=None).index(
        [{"docno": str(at), "text": text} for at, text in enumerate(["沙 丘", "小 说", "城 市", "água órgãos"])]
    )
    topics = pd.DataFrame({"qid": ["c_2"], "query": ["小说"], "qhistory": [[said("user", "沙丘 órgãos")]]})
    assert cs.HQE(index, topic=0.5, subtopic=0.5)(topics)["query"][0] == "沙 丘 órgãos 小 说 小说"


def test_tuned_by_a_grid(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    stage = hqe(index, ambiguous=0.0)
    qrels = pd.DataFrame({"qid": ["c_2", "c_3"], "docno": ["d1", "d0"], "label": [1, 1]})
    found = pt.GridScan(
        stage >> index.bm25(), {stage: {"topic": [0.65, 1.5]}}, topics, qrels, ["recip_rank"], verbose=False
    )
    assert found["recip_rank"].nunique() == 2  # without topic words c_3 does not find d0


def test_through_terrier(terrier: None, tmp_path: Path, topics: pd.DataFrame) -> None:
    ref = pt.terrier.IterDictIndexer(str(tmp_path / "t"), stemmer=None, stopwords=None).index(
        [{"docno": f"d{at}", "text": text} for at, text in enumerate(TEXTS)]
    )
    out = cs.HQE(ref, topic=1.8, subtopic=0.5, ambiguous=0)(topics)
    # Terrier's idf: log2((8 - df + .5) / (df + .5)), and no division by 1 + k_1: herbert 2.32, dune 1.38
    assert out["query"][1] == "Herbert's film Which Novel is a film? Dune?"
