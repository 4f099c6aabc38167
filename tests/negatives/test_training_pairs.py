"""The mined set: what is in it, and what is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings, strategies as st

import pt_convsearch as cs

from .test_miners import Fixed


def history(*said: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 5, said, strict=False)]


TOPICS = pd.DataFrame(
    {
        "qid": ["1_1", "1_2", "1_3", "2_1"],
        "query": ["who wrote dune", "and when", "why", "what is a cat"],
        "qhistory": [
            [],
            history("who wrote dune", "Herbert"),
            history("who wrote dune", "Herbert", "and when", "1965"),
            [],
        ],
        "qrewrite": ["who wrote dune", "when did Herbert write dune", "why did he", "what is a cat"],
    }
)
QRELS = pd.DataFrame(
    {"qid": ["1_1", "1_2", "1_2", "1_3", "2_1"], "docno": ["a", "a", "b", "gone", "far"], "label": [1, 1, 1, 1, 1]}
)
CORPUS = [
    {"docno": "a", "text": "Herbert wrote Dune."},
    {"docno": "copy", "text": "herbert wrote DUNE"},
    {"docno": "b", "text": "Dune came out in 1965"},
    {"docno": "c", "text": "Orwell wrote 1984"},
    {"docno": "d", "text": "Cats sleep"},
    {"docno": "far", "text": "A cat is an animal", "title": "Cat"},
]
ALL = Fixed("a", "copy", "b", "c", "c", "d", "unknown")


def made(**options: Any) -> cs.TrainingPairs:
    given = {"topics": TOPICS, "qrels": QRELS, "corpus": CORPUS, "form": cs.X, "negatives": ALL, **options}
    with pytest.warns(UserWarning, match="no text in the corpus"):
        return cs.training_pairs(given.pop("topics"), given.pop("qrels"), given.pop("corpus"), **given)


def test_what_is_in_the_set() -> None:
    pairs = made(num_negatives=3)
    frame = pairs.frame().set_index("qid")
    assert frame.index.tolist() == ["1_1", "1_2", "2_1"]  # the only gold of 1_3 has no text
    assert frame["query"].tolist() == ["who wrote dune", "who wrote dune Herbert and when", "what is a cat"]
    assert frame["query_alone"].tolist() == ["who wrote dune", "and when", "what is a cat"]
    # golds by id, golds by text, repeats and passages without text are gone; ranks are those of retrieval
    assert frame["negatives"].map(list).tolist() == [["b", "c", "d"], ["c", "d"], ["a", "copy", "b", "c", "d"]]
    assert frame["ranks"].map(list).tolist() == [[2, 3, 5], [3, 5], [0, 1, 2, 3, 5]]
    assert frame["positives"].map(list).tolist() == [["a"], ["a", "b"], ["far"]]
    counts = pairs.counts
    assert counts["questions"] == counts["judged"] == 4
    assert counts["pairs"] == len(pairs) == 3
    assert counts["golds without a text"] == counts["left out: no gold with a text"] == 1
    assert counts["dropped: golds"] == 3
    assert counts["dropped: texts of golds under another id"] == 2
    assert counts["dropped: no text in the corpus"] == 3
    assert counts["dropped: found twice"] == 3
    # 2_1's gold was not retrieved, and the question stays; 1_2 has two negatives left of the three asked for
    assert pairs.shortages().values.tolist() == [["1_2", 2]]
    assert counts["fewer negatives than asked for"] == 1


def told(counts: dict[str, Any]) -> int:
    """How many of the retrieved passages the counts account for."""
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped: "))
    return dropped + counts["beyond the pool"] + counts["negatives"]


def test_a_passage_is_counted_under_one_name() -> None:
    """Three times each: gold a, its copy, unknown and c; then d and far. A second and third time are found twice."""
    topics, qrels = TOPICS.iloc[:1], QRELS.iloc[:1]
    miner = Fixed(*["a", "copy", "unknown", "c"] * 3, "d", "far")
    counts = cs.training_pairs(topics, qrels, CORPUS, form=cs.X, negatives=miner, pool=2).counts
    assert counts["retrieved"] == told(counts) == 14
    assert counts["dropped: found twice"] == 8
    assert counts["dropped: golds"] == counts["dropped: texts of golds under another id"] == 1
    assert counts["dropped: no text in the corpus"] == 1
    assert counts["negatives"] == 2  # c and d
    assert counts["beyond the pool"] == 1  # far
    # what a filter takes was never retrieved: both names of the gold, three times each
    counts = cs.training_pairs(
        topics, qrels, CORPUS, form=cs.X, negatives=miner >> cs.DropPositives(qrels), pool=2
    ).counts
    assert counts["removed by DropPositives(qrels[1])"] == 6
    assert counts["retrieved"] == told(counts) == 8


@given(st.lists(st.sampled_from(["a", "copy", "b", "c", "d", "far", "u1", "u2"]), max_size=20), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_what_was_retrieved_is_accounted_for(docnos: list[str], pool: int) -> None:
    counts = made(negatives=Fixed(*docnos), pool=pool).counts
    assert counts["retrieved"] == told(counts) == 3 * len(docnos)


def test_titles_stand_before_texts() -> None:
    texts = made().passages().set_index("docno")["text"]
    assert texts["far"] == "Cat A cat is an animal"
    assert made(title_field=None).passages().set_index("docno")["text"]["far"] == "A cat is an animal"


def test_texts_of_a_docno_are_the_same_on_both_sides() -> None:
    pairs = made(num_negatives=3)
    dataset = pairs.to_dataset(num_negatives=2)
    assert dataset.column_names == ["query", "positive", "negative_1", "negative_2"]
    known = {passage["text"] for passage in CORPUS} | {"Cat A cat is an animal"}
    assert {text for column in ("positive", "negative_1", "negative_2") for text in dataset[column]} <= known
    assert (
        len(pairs.to_dataset(num_negatives=3)) == 2
    )  # the question with two negatives is left out of a table of three


def test_the_miner_gets_the_topics_and_the_text_stays_the_form() -> None:
    seen: list[pd.DataFrame] = []

    def look(frame: pd.DataFrame) -> pd.DataFrame:
        seen.append(frame)
        return frame

    pairs = made(negatives=cs.form(cs.REWRITE) >> pt.apply.generic(look) >> ALL)
    assert seen[-1]["query"].tolist() == ["who wrote dune", "when did Herbert write dune", "what is a cat"]
    assert pairs.frame()["query"].tolist()[1] == "who wrote dune Herbert and when"


def test_filters_find_the_texts_of_the_corpus() -> None:
    pairs = made(negatives=ALL >> cs.DropPositives(QRELS) >> cs.DropContextSubsets() >> cs.Ranks(4, 6))
    assert pairs.frame()["negatives"].map(list).tolist() == [["c", "d"], ["c", "d"], ["c", "d"]]
    counts = pairs.counts
    # golds a, copy; a, copy, b; and none
    assert counts["removed by DropPositives(qrels[5])"] == 5
    # 'unknown' has no text: nothing of it can be said in a conversation or anywhere else
    assert counts["removed by DropContextSubsets()"] == 3
    assert counts["dropped: golds"] == 0


def test_shortcut_negatives_of_a_first_turn_are_none() -> None:
    class Echo(cs.RandomNegatives):
        pass

    pairs = made(negatives=cs.form(cs.X - cs.CURRENT) >> Echo(CORPUS))
    available = dict(zip(pairs.frame()["qid"], pairs.frame()["negatives"].map(len), strict=True))
    assert available["1_1"] == 0
    assert available["1_2"] == 3  # c, d, far
    assert pairs.counts["questions without any result"] == 2


def test_no_miner_gives_no_negatives_and_a_question_without_current_is_left_out() -> None:
    pairs = made(negatives=None)
    assert pairs.num_negatives == 0
    assert pairs.frame()["negatives"].map(len).tolist() == [0, 0, 0]
    alone = made(form=cs.X - cs.CURRENT, negatives=None)
    assert alone.frame()["query"].tolist() == ["who wrote dune Herbert"]
    assert alone.counts["left out: empty query"] == 2


def test_several_miners_share_the_draws() -> None:
    pairs = made(negatives={"near": Fixed("c"), "wide": Fixed("d", "b", "far")}, num_negatives=1)
    frame = pairs.frame().set_index("qid")
    # 1_1: c has the whole of 'near'; d, b and far a third each of 'wide'
    assert dict(zip(frame["negatives"]["1_1"], frame["weight"]["1_1"].round(4), strict=True)) == {
        "c": 1.0, "d": 0.3333, "b": 0.3333, "far": 0.3333,
    }  # fmt: skip
    docnos = pairs.passages()["docno"]
    drawn = [docnos[pairs.sample(0, epoch=epoch).negatives[0]] for epoch in range(600)]
    assert abs(drawn.count("c") / 600 - 0.5) < 0.09
    assert {"weight", "source"} <= set(made(negatives=[Fixed("c"), Fixed("d")]).frame().columns)
    assert "Mix" in made(negatives={Fixed("c"): 2, Fixed("d"): 1}).settings["negatives"]
    for wrong in ("bm25", 3, {"a": 1}):
        with pytest.raises(TypeError):
            cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=wrong)


def test_samples_are_fresh_each_epoch_and_reproducible() -> None:
    corpus = [*CORPUS, *({"docno": f"x{number}", "text": f"other {number}"} for number in range(40))]
    pairs = made(corpus=corpus, negatives=cs.RandomNegatives(corpus), num_negatives=3)
    drawn = [tuple(pairs.sample(1, epoch=epoch).negatives) for epoch in range(6)]
    assert len(set(drawn)) == 6
    assert drawn == [tuple(pairs.sample(1, epoch=epoch).negatives) for epoch in range(6)]
    assert drawn == [tuple(cs.TrainingPairs(pairs.path).sample(1, epoch=epoch).negatives) for epoch in range(6)]
    # both golds of 1_2 get their turn
    assert len({pairs.sample(1, epoch=epoch).positive for epoch in range(20)}) == 2
    masked = [pairs.sample(1, epoch=epoch, mask_history=0.5).query for epoch in range(200)]
    assert abs(masked.count("and when") / 200 - 0.5) < 0.15
    assert {pairs.sample(1, epoch=epoch).query for epoch in range(20)} == {"who wrote dune Herbert and when"}


def test_keys_tell_copies_and_golds() -> None:
    pairs = made()
    docnos = pairs.passages()["docno"].tolist()
    keys = dict(zip(docnos, pairs.keys(), strict=True))
    assert keys["a"] == keys["copy"]
    assert len({keys[docno] for docno in ("a", "b", "c", "d", "far")}) == 5
    assert set(pairs.gold_keys(1)) == {keys["a"], keys["b"]}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_negatives": -1}, "num_negatives"),
        ({"pool": 2, "num_negatives": 3}, "pool"),
        ({"negatives": ALL >> cs.Ranks(1, 4), "num_negatives": 10}, "low and high"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_impossible_wishes_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        cs.training_pairs(TOPICS, QRELS, CORPUS, **{"form": cs.X, "negatives": ALL, **options})


def test_a_pool_smaller_than_asked_for_and_one_of_golds_only() -> None:
    corpus = [{"docno": "a", "text": "x"}, {"docno": "b", "text": "y"}, {"docno": "c", "text": "z"}]
    topics = TOPICS.iloc[:2]
    qrels = pd.DataFrame({"qid": ["1_1", "1_2", "1_2", "1_2"], "docno": ["a", "a", "b", "c"], "label": 1})
    pairs = cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=cs.RandomNegatives(corpus), num_negatives=10)
    assert sorted(pairs.frame()["negatives"][0]) == ["b", "c"]
    assert pairs.frame()["negatives"][1].tolist() == []
    assert pairs.shortages().values.tolist() == [["1_1", 2], ["1_2", 0]]


def test_bad_input_is_named() -> None:
    def mine(**options: Any) -> cs.TrainingPairs:
        given = {"topics": TOPICS, "qrels": QRELS, "corpus": CORPUS, **options}
        return cs.training_pairs(given["topics"], given["qrels"], given["corpus"], form=cs.X, negatives=ALL)

    with pytest.raises(ValueError, match=r"lack the columns \['docno'\]"):
        mine(qrels=QRELS.drop(columns="docno"))
    with pytest.raises(ValueError, match="twice"):
        mine(corpus=[*CORPUS, CORPUS[0]])
    with pytest.raises(ValueError, match=r"'e'.*text"):
        mine(corpus=[*CORPUS, {"docno": "e"}])
    with pytest.raises(ValueError, match="passage 'e' is None"):
        mine(corpus=[*CORPUS, {"docno": "e", "text": None}])
    with pytest.raises(ValueError, match="passage 'e' holds"):
        mine(corpus=[*CORPUS, {"docno": "e", "text": "\ud800"}])
    with pytest.raises(ValueError, match="no column 'docno'"), pytest.warns(UserWarning, match="no text"):
        cs.training_pairs(TOPICS, QRELS, CORPUS, form=cs.X, negatives=cs.form(cs.X))
    with pytest.raises(ValueError, match="the corpus has no column 'docno', but 'text'"):
        mine(corpus=pd.DataFrame(CORPUS)[["text"]])
    with pytest.raises(TypeError, match="corpus is a str"):
        mine(corpus="corpus.jsonl")
    with pytest.raises(ValueError, match="no question is left"), pytest.warns(UserWarning, match="no text"):
        mine(qrels=QRELS[QRELS.docno == "gone"])
    with pytest.raises(ValueError, match="not asked"), pytest.warns(UserWarning, match="no text"):
        cs.training_pairs(
            TOPICS, QRELS, CORPUS, form=cs.X, negatives=ALL >> pt.apply.generic(lambda frame: frame.assign(qid="other"))
        )


@pytest.mark.parametrize("kind", ["frame", "callable", "generator", "loader", "data set"])
def test_any_kind_of_corpus_gives_the_same_set(kind: str, tmp_path: Path) -> None:
    class Data:
        def get_corpus_iter(self, verbose: bool = False) -> Any:
            return iter(CORPUS)

    class Loader(pt.Transformer):
        def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
            return frame.merge(pd.DataFrame(CORPUS), on="docno", how="left")

    corpus: Any = {
        "frame": pd.DataFrame(CORPUS), "callable": lambda: iter(CORPUS), "generator": (passage for passage in CORPUS),
        "loader": Loader(), "data set": Data(),
    }[kind]  # fmt: skip
    pd.testing.assert_frame_equal(made(corpus=corpus).frame(), made().frame())


def test_the_loader_of_a_bm25_index_serves_as_corpus(tmp_path: Path) -> None:
    index = cs.BM25Index(tmp_path / "index").index([{"docno": p["docno"], "text": p["text"]} for p in CORPUS])
    pairs = made(corpus=index.text_loader(), negatives=cs.form(cs.X) >> index.bm25(num_results=10))
    assert len(pairs) == 3
    assert pairs.counts["golds without a text"] == 1


# -- surface ---------------------------------------------------------------------------------------------------------


def surface(positive: str, negative: str, size: int = 12) -> list[str]:
    topics = pd.DataFrame({"qid": [str(n) for n in range(size)], "query": "x", "qhistory": [[] for _ in range(size)]})
    qrels = pd.DataFrame({"qid": topics["qid"], "docno": [f"p{n}" for n in range(size)], "label": 1})
    corpus = [{"docno": f"p{n}", "text": positive.format(n)} for n in range(size)]
    corpus += [{"docno": f"n{n}", "text": negative.format(n)} for n in range(size)]
    miner = Fixed(*(f"n{n}" for n in range(size)))
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=miner)
    return [str(warning.message) for warning in caught if "a model will learn" in str(warning.message)]


def test_surfaces_that_give_the_game_away_are_warned_of() -> None:
    assert any("quotation mark" in said for said in surface("text {} here", '"text {} here"'))
    assert any("capital" in said for said in surface("Text {}", "text {}"))
    assert any("length" in said for said in surface("some words {}", "some words and then many more words {}"))
    assert any("begin with 'Z'" in said for said in surface("Zed {}", "Bee {}"))
    assert surface("same words {}", "words the same {}") != []  # every positive begins with 's', no negative does
    assert surface("same words {}", "some words {}") == []


def test_no_alarm_where_surfaces_agree() -> None:
    texts = np.array(["A cat sat.", "dogs bark", '"hello" he said', "Birds fly!"])
    topics = pd.DataFrame({"qid": [str(n) for n in range(40)], "query": "x", "qhistory": [[] for _ in range(40)]})
    qrels = pd.DataFrame({"qid": topics["qid"], "docno": [f"d{n}" for n in range(40)], "label": 1})
    corpus = [{"docno": f"d{n}", "text": f"{texts[n % 4]}"[:4] + f"{n}" + texts[n % 4][4:]} for n in range(80)]
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=cs.RandomNegatives(corpus))


def test_a_miner_keeps_its_share_when_golds_and_the_pool_cut_its_list() -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["x"], "qhistory": [[]]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["g"], "label": [1]})
    corpus = [{"docno": docno, "text": docno} for docno in "gabcde"]
    mix = cs.Mix({Fixed("g", "a"): 3, Fixed("b", "a", "c"): 1, Fixed("d", "e"): 2}, names=["x", "y", "z"])

    def weights(**options) -> dict[str, float]:
        row = cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=mix, **options).frame().iloc[0]
        return dict(zip(row["negatives"], row["weight"], strict=True))

    # x is left with a (3); y has b, a, c (1/3 each); z has d and e (1 each)
    assert weights() == pytest.approx({"a": 3 + 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 1.0, "e": 1.0})
    # by rank b, d (0), a, e (1), c (2): c does not fit, so y has b and a
    assert weights(pool=4) == pytest.approx({"b": 1 / 2, "d": 1.0, "a": 3 + 1 / 2, "e": 1.0})
    for names in (["x", "x", "z"], ["x+y", "y", "z"]):
        with pytest.raises(ValueError, match="give each miner its own"):
            cs.Mix([Fixed("a"), Fixed("b"), Fixed("c")], names=names)


def test_a_miner_that_leaves_nothing_is_said() -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["x"], "qhistory": [[]]})
    qrels = pd.DataFrame({"qid": [1], "docno": ["g"], "label": [1]})
    corpus = [{"docno": docno, "text": docno} for docno in "gab"]
    with pytest.warns(UserWarning, match="no negative for any question"):
        cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=Fixed("g", "a", "b") >> cs.Ranks(91, 100))
