"""Windows and sums worked out by hand, beside PyTerrier's own where those work."""

from __future__ import annotations

import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, strategies as st

import pt_convsearch as cs
from pt_convsearch.reranking import AggregatePassages, SlidingWindow, first_p, max_p, sum_p
from pt_convsearch.reranking.passages import windows


@given(st.integers(0, 60), st.integers(1, 12), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 9)))
def test_windows_cover_the_text(size: int, length: int, stride: int, most: int | None) -> None:
    stride = min(stride, length)
    words = [f"x{n}" for n in range(size)]
    found = [window.split() for window in windows(" ".join(words), length, stride, most)]
    assert all(len(window) <= length for window in found)
    if most is None:
        assert [word for word in words if not any(word in window for window in found)] == []
        assert len(found) == max(1, -(-(size - length) // stride) + 1)
    else:
        assert len(found) <= most
        assert found[0] == words[:length]
        assert most == 1 or not words or found[-1][-1] == words[-1]
    assert len({tuple(window) for window in found}) == len(found)


def test_as_pyterrier_where_every_window_is_full(results) -> None:
    frame = results.assign(text=[" ".join(f"w{n}" for n in range(k)) for k in (6, 9, 12, 3, 2, 15)]).drop(
        columns="qhistory"
    )
    ours = SlidingWindow(length=6, stride=3)(frame)
    theirs = pt.text.sliding(text_attr="text", length=6, stride=3, prepend_attr=None)(frame)
    pd.testing.assert_frame_equal(ours[theirs.columns], theirs, check_dtype=False)


def test_the_end_of_a_document_is_not_lost(results) -> None:
    out = SlidingWindow(length=4, stride=3)(results.head(1).assign(text="a b  c\nd e f g h"))
    assert out["text"].tolist() == ["a b  c\nd", "d e f g", "g h"]
    assert out["docno"].tolist() == ["a%p0", "a%p1", "a%p2"]
    assert out["qhistory"].tolist() == results["qhistory"].tolist()[:1] * 3


def test_titles_empty_texts_and_empty_frames(results) -> None:
    frame = results.head(2).assign(text=["", "a b c"], title=["T", None])
    out = SlidingWindow(length=2, stride=2)(frame)
    assert out[["docno", "text"]].to_numpy().tolist() == [["a%p0", "T "], ["b%p0", "a b"], ["b%p1", "c"]]
    assert "title" not in out.columns
    assert list(SlidingWindow()(results.head(0)).columns) == list(results.columns)
    assert set(AggregatePassages()(SlidingWindow()(results.head(0))).columns) == set(results.columns)


SCORED = pd.DataFrame(
    {
        "qid": ["1"] * 5 + ["2"],
        "query": "x",
        "docno": ["a%p0", "a%p1", "b%pz%p0", "b%pz%p1", "b%pz%p2", "a%p0"],
        "score": [1.0, 4.0, 2.0, 3.0, 3.0, -1.0],
        "text": list("abcdef"),
        "qhistory": [[{"role": "user", "content": "hi"}]] * 6,
    }
)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("max", [("a", 4.0, "b"), ("b%pz", 3.0, "d")]),
        ("first", [("b%pz", 2.0, "c"), ("a", 1.0, "a")]),
        ("sum", [("b%pz", 8.0, "d"), ("a", 5.0, "b")]),
        ("mean", [("b%pz", 8 / 3, "d"), ("a", 2.5, "b")]),
        (2, [("b%pz", 3.0, "d"), ("a", 2.5, "b")]),
    ],
)
def test_aggregations_by_hand(how, wanted) -> None:
    for frame in (SCORED, SCORED.sample(frac=1, random_state=1)):
        out = AggregatePassages(how)(frame)
        one = out[out["qid"] == "1"]
        assert [tuple(row) for row in one[["docno", "score", "text"]].to_numpy().tolist()] == [
            (docno, pytest.approx(score), text) for docno, score, text in wanted
        ]
        assert one["rank"].tolist() == [0, 1]
        assert out[out["qid"] == "2"][["docno", "score"]].to_numpy().tolist() == [["a", -1.0]]


def test_as_pyterrier() -> None:
    simple = SCORED.assign(docno=["a%p0", "a%p1", "b%p0", "b%p1", "b%p2", "a%p0"]).drop(columns="qhistory")
    for how, theirs in (
        ("max", pt.text.max_passage()),
        ("first", pt.text.first_passage()),
        ("mean", pt.text.mean_passage()),
        (2, pt.text.kmaxavg_passage(2)),
    ):
        wanted = theirs(simple).set_index(["qid", "docno"])["score"]
        found = AggregatePassages(how)(simple).set_index(["qid", "docno"])["score"]
        assert found.to_dict() == pytest.approx(wanted.to_dict())


def test_equal_documents_keep_the_former_order() -> None:
    frame = pd.DataFrame({"qid": "1", "docno": ["z%p0", "a%p0", "z%p1"], "score": [1.0, 1.0, 0.0], "rank": [0, 1, 2]})
    assert AggregatePassages()(frame)["docno"].tolist() == ["z", "a"]


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="docno 'd' is no passage's"):
        AggregatePassages()(SCORED.assign(docno="d"))
    with pytest.raises(ValueError, match="is NaN"):
        AggregatePassages()(SCORED.assign(score=float("nan")))
    with pytest.raises(ValueError, match="how='best'"):
        AggregatePassages("best")
    with pytest.raises(ValueError, match="stride=200 is more than length=150"):
        SlidingWindow(stride=200)
    assert SlidingWindow(length=5) == SlidingWindow(length=5)
    with pytest.raises(ValueError, match="text of docno 'd'"):
        SlidingWindow()(pd.DataFrame({"docno": ["d"], "text": [None]}))


def test_compositions_on_a_pipeline(tmp_path) -> None:
    corpus = [
        {"docno": "long", "title": "t", "text": "dune " + "sand " * 20 + "herbert wrote dune"},
        {"docno": "short", "title": "t", "text": "dune dune herbert"},
    ]
    index = cs.BM25Index(tmp_path / "i.bm25").index(corpus)
    count = pt.apply.doc_score(lambda row: float(row["text"].split().count("dune") + row["text"].startswith("t ")))
    first = index.bm25() >> index.text_loader(["title", "text"])
    topics = pd.DataFrame({"qid": ["1"], "query": ["dune herbert"], "qhistory": [[]]})

    def scores(pipeline) -> dict[str, float]:
        return (first >> pipeline)(topics).set_index("docno")["score"].to_dict()

    # 24 words in windows of 10 from 0, 10, 20: dune once, not at all, once; each with the title before it
    assert scores(max_p(count, length=10, stride=10)) == {"long": 2.0, "short": 3.0}
    assert scores(sum_p(count, length=10, stride=10)) == {"long": 5.0, "short": 3.0}
    assert scores(first_p(count, length=10)) == {"long": 2.0, "short": 3.0}
    assert max_p(count, length=10) == max_p(count, length=10)


def test_maxp_of_a_cross_encoder(tiny_cross_encoder, results) -> None:
    ce = cs.CrossEncoder(tiny_cross_encoder, bf16=False)
    long = results.assign(text=["w1 w2 w3 w4 w5 w6"] * 6)
    out = max_p(ce, length=2, stride=2)(long)
    parts = [ce(results.head(1).assign(text=text))["score"][0] for text in ("w1 w2", "w3 w4", "w5 w6")]
    assert out[out["qid"] == "q1"]["score"].tolist() == pytest.approx([max(parts)] * 3, abs=1e-5)
    assert out["docno"].tolist() == results["docno"].tolist()
