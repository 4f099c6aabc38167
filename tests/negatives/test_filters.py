"""Each filter on planted cases: only removes, keeps ranks of retrieval, counts, works row by row as in batches."""

from __future__ import annotations

import pickle

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.negatives._mining import mining
from pt_convsearch.negatives._texts import TextStore

CORPUS = [
    {"docno": "gold", "text": "The old man caught a fish."},
    {"docno": "copy", "text": "the OLD man  caught a fish"},
    {"docno": "near", "text": "The old man caught a fish today"},
    {"docno": "far", "text": "A novel on whales"},
    {"docno": "said", "text": "who wrote it"},
    {"docno": "blank", "text": " "},
]
TEXTS = {passage["docno"]: passage["text"] for passage in CORPUS}
QRELS = pd.DataFrame({"qid": ["q_1", "q_2"], "docno": ["gold", "far"], "label": [1, 1]})


def ranking(*docnos: str, qid: str = "q_1", text: bool = True) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "qid": qid,
            "query": "And when?",
            "qhistory": [[{"role": "user", "content": "Who wrote it, and when?"}] for _ in docnos],
            "answer": "a fish",
            "docno": list(docnos),
            "score": [float(len(docnos) - place) for place in range(len(docnos))],
            "rank": range(len(docnos)),
        }
    )
    return frame.assign(text=[TEXTS[docno] for docno in docnos]) if text else frame


ALL = ("far", "gold", "copy", "near", "said", "blank")
FILTERS = {
    "positives": (cs.DropPositives(QRELS), ["far", "near", "said", "blank"]),
    "context": (cs.DropContextSubsets(), ["far", "gold", "copy", "near"]),
    "ranks": (cs.Ranks(2, 4), ["gold", "copy", "near"]),
    "open ranks": (cs.Ranks(5), ["said", "blank"]),
    "answers": (cs.DropAnswerContaining(), ["far", "said", "blank"]),
    "given answers": (
        cs.DropAnswerContaining({"q_1": ["whales", "nothing"]}),
        ["gold", "copy", "near", "said", "blank"],
    ),
    # Jaccard of word sets of gold (the old man caught a fish) and near (the same and today): 6/7
    "near duplicates": (cs.DropNearDuplicates(QRELS, threshold=0.85, ngram=1), ["far", "said", "blank"]),
    "not so near": (cs.DropNearDuplicates(QRELS, threshold=0.86, ngram=1), ["far", "near", "said", "blank"]),
    # trigrams: gold has 4, near 5 with all of them: 4/5
    "near by trigrams": (cs.DropNearDuplicates(QRELS, threshold=0.8), ["far", "said", "blank"]),
    # the gold scores 5 (second of six): only what scores at most 5 - 2 = 3 stays, and the gold itself
    "margin": (cs.Margin(QRELS, absolute=2), ["gold", "near", "said", "blank"]),
    # 0.5 * 5 = 2.5
    "relative margin": (cs.Margin(QRELS, relative=0.5), ["gold", "said", "blank"]),
    "denoise": (
        cs.CrossEncoderDenoise(pt.apply.doc_score(lambda row: float(len(row["text"].split()))), threshold=4),
        ["far", "said", "blank"],
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_stays(name: str) -> None:
    stage, stays = FILTERS[name]
    frame = ranking(*ALL)
    before = frame.copy(deep=True)
    kept = stage(frame)
    assert kept["docno"].tolist() == stays
    pd.testing.assert_frame_equal(frame, before)
    # rows are those of the input, ranks and scores untouched
    expected = frame[frame["docno"].isin(stays)].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, expected)


@pytest.mark.parametrize("name", FILTERS)
def test_batches_equal_single_questions(name: str) -> None:
    stage, _ = FILTERS[name]
    one, two = ranking(*ALL), ranking(*ALL[::-1], qid="q_2")
    together = stage(pd.concat([one, two], ignore_index=True))
    apart = pd.concat([stage(one), stage(two)], ignore_index=True)
    pd.testing.assert_frame_equal(together, apart)


@pytest.mark.parametrize("name", FILTERS)
def test_empty_frames_keep_columns_and_dtypes(name: str) -> None:
    stage, _ = FILTERS[name]
    empty = ranking(*ALL).iloc[:0]
    pd.testing.assert_frame_equal(stage(empty), empty.reset_index(drop=True))


@pytest.mark.parametrize("name", [name for name in FILTERS if name != "denoise"])
def test_pickled_filters_are_equal(name: str) -> None:
    stage, stays = FILTERS[name]
    stage(ranking(*ALL))
    again = pickle.loads(pickle.dumps(stage))
    assert again == stage
    assert hash(again) == hash(stage)
    assert again(ranking(*ALL))["docno"].tolist() == stays


@pytest.mark.parametrize("name", FILTERS)
def test_removals_are_counted(name: str) -> None:
    stage, stays = FILTERS[name]
    with mining() as run:
        stage(ranking(*ALL))
        stage(ranking(*ALL))
    assert run.removed == {f"removed by {stage!r}": 2 * (len(ALL) - len(stays))}


def test_filters_of_other_settings_differ() -> None:
    assert cs.Ranks(1, 10) != cs.Ranks(1, 11)
    assert cs.DropPositives(QRELS) != cs.DropPositives(QRELS.iloc[:1])
    assert cs.DropPositives(QRELS) == cs.DropPositives(QRELS.copy())


def test_copies_go_by_the_corpus_even_when_the_gold_was_not_retrieved() -> None:
    found = ranking("copy", "near", text=False)
    assert cs.DropPositives(QRELS)(found)["docno"].tolist() == ["copy", "near"]  # no texts: by id only
    assert cs.DropPositives(QRELS, corpus=CORPUS)(found)["docno"].tolist() == ["near"]
    with mining(TextStore(CORPUS)):
        assert cs.DropPositives(QRELS)(found)["docno"].tolist() == ["near"]


def test_a_gold_of_one_question_is_a_negative_of_another() -> None:
    both = pd.concat([ranking("gold", "far"), ranking("gold", "far", qid="q_2")], ignore_index=True)
    kept = cs.DropPositives(QRELS)(both)
    assert kept[["qid", "docno"]].values.tolist() == [["q_1", "far"], ["q_2", "gold"]]


def test_qids_of_judgments_may_be_numbers_and_labels_zero() -> None:
    qrels = pd.DataFrame({"qid": [3, 3], "docno": ["gold", "far"], "label": [1, 0]})
    assert cs.DropPositives(qrels)(ranking("gold", "far", qid="3"))["docno"].tolist() == ["far"]


def test_texts_that_are_missing_are_asked_for() -> None:
    with pytest.raises(ValueError, match="text_loader"):
        cs.DropContextSubsets()(ranking("far", text=False))
    with pytest.raises(pt.validate.InputValidationError):
        cs.DropContextSubsets()(ranking("far").drop(columns="qhistory"))
    with pytest.raises(ValueError, match="answer"):
        cs.DropAnswerContaining()(ranking("far").drop(columns="answer"))


@pytest.mark.parametrize("bounds", [(0, 3), (-1, None), (5, 4)])
def test_impossible_windows_are_refused(bounds: tuple[int, int | None]) -> None:
    with pytest.raises(ValueError, match="low"):
        cs.Ranks(*bounds)


def test_e2_keeps_ranks_91_to_100() -> None:
    found = pd.DataFrame(
        {"qid": "1", "docno": [f"d{place}" for place in range(1, 101)], "rank": range(100), "score": 1.0}
    )
    kept = (cs.DropPositives(pd.DataFrame({"qid": ["1"], "docno": ["d3"]})) >> cs.Ranks(91, 100))(found)
    assert kept["docno"].tolist() == [f"d{place}" for place in range(91, 101)]  # a dropped gold moves nobody up


def test_the_context_is_matched_in_whole_words_in_any_script() -> None:
    def found(said: str, passage: str) -> pd.DataFrame:
        return pd.DataFrame({"qid": ["1"], "query": ["?"], "qhistory": [[{"role": "user", "content": said}]],
                             "docno": ["d"], "text": [passage], "rank": [0], "score": [1.0]})  # fmt: skip

    keep = lambda said, passage: len(cs.DropContextSubsets()(found(said, passage)))  # noqa: E731
    assert keep("thanks a lot", "thank") == 1
    assert keep("Thanks, a lot!", "thanks a LOT") == 0
    assert keep("órgãos são", "Órgãos") == 0
    assert keep("我喜欢鱼", "我喜欢鱼。") == 0
    assert keep("🙂", "🙂") == 0


def test_the_scorer_sees_the_form_and_may_not_lose_rows() -> None:
    seen: list[str] = []

    def look(row: pd.Series) -> float:
        seen.append(row["query"])
        return 0.0

    stage = cs.CrossEncoderDenoise(pt.apply.doc_score(look), threshold=0.5, form=cs.form(cs.X))
    assert len(stage(ranking("far", "gold"))) == 2
    assert set(seen) == {"Who wrote it, and when? And when?"}
    losing = cs.CrossEncoderDenoise(pt.apply.generic(lambda frame: frame.iloc[:1]), threshold=0.5)
    with pytest.raises(ValueError, match="lost 1 rows"):
        losing(ranking("far", "gold"))


def test_a_margin_without_a_retrieved_positive_keeps_all() -> None:
    assert len(cs.Margin(QRELS, absolute=100)(ranking("far", "near"))) == 2
    with pytest.raises(ValueError, match="relative"):
        cs.Margin(QRELS, relative=0)
    with pytest.raises(ValueError, match="absolute"):
        cs.Margin(QRELS, absolute=-1)


def test_ids_that_are_no_text() -> None:
    """docno and qid as int: the gold is the gold all the same."""
    qrels = pd.DataFrame({"qid": [1], "docno": [5], "label": ["1"]})
    frame = pd.DataFrame(
        {"qid": [1] * 3, "docno": [5, 6, 7], "rank": [0, 1, 2], "score": [3.0, 2.0, 1.0], "text": ["a b", "A b!", "z"]}
    )
    without_text = frame.drop(columns="text")
    for drop, given, left in (
        (cs.DropPositives(qrels), frame, [7]),
        (cs.DropPositives(qrels), without_text, [6, 7]),
        (cs.Margin(qrels, absolute=1.5), without_text, [5, 7]),  # 5 is the positive itself, 6 scores too close to it
        (cs.DropNearDuplicates(qrels, ngram=1), frame, [7]),
    ):
        assert drop(given)["docno"].tolist() == left
    with pytest.raises(ValueError, match="label 'yes' is no whole number"):
        cs.DropPositives(qrels.assign(label="yes"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("राम का घर", "राम की घर", False),  # of Rama, masculine and feminine: they differ in a vowel sign alone
        ("กี่", "กุ", False),
        ("cafe\u0301", "CAFÉ", True),
        ("ΐ", "Ϊ́", True),  # capitals of a Greek letter with two accents come apart
        ("ok ❤\ufe0f", "ok ❤", True),
        ("Ｔｈｅ\u3000ｃａｔ", "the cat.", True),
        ("👍", "👎", False),
        ("great 👍", "great 👎", False),
        ("great 👍", "GREAT! 👍🏽", False),  # another hand
        ("北京 市", "北京市。", True),
        ("东京", "東京", False),
    ],
)
def test_what_is_the_same_text(one: str, other: str, same: bool) -> None:
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
    frame = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "rank": [0, 1], "score": [2.0, 1.0], "text": [one, other]})
    assert cs.DropPositives(qrels)(frame)["docno"].tolist() == ([] if same else ["b"])


def test_words_of_scripts_without_spaces_and_emoji() -> None:
    """Beijing stands in the sentence though no space says so; an emoji is part of a context that holds it."""

    def left(drop: pt.Transformer, *texts: str, said: str = "我住在北京市，你呢？ yes 👍") -> list[str]:
        rows = {"qid": "1", "query": "那里怎么样", "docno": list("abcdef")[: len(texts)], "text": list(texts)}
        history = [{"role": "user", "content": said}]
        frame = pd.DataFrame(rows).assign(qhistory=[history] * len(texts), rank=range(len(texts)), score=0.0)
        return drop(frame)["text"].tolist()

    assert left(cs.DropContextSubsets(), "北京市", "北市", "上海", "👍", "👎", "YES!") == ["北市", "上海", "👎"]
    assert left(cs.DropAnswerContaining({"1": "北京"}), "我爱北京！", "北方的京城", "上海") == ["北方的京城", "上海"]
    # 12 characters are 10 trigrams; one more character in the middle keeps 8 of them: 8 / (10 + 11 - 8)
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
    texts = ("一二三四五六七八九十百千", "一二三四五六大七八九十百千", "上海")
    for threshold, kept in ((8 / 13, ["上海"]), (0.62, [texts[1], "上海"])):
        assert left(cs.DropNearDuplicates(qrels, threshold=threshold), *texts) == kept
