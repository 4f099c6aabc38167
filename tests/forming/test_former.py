"""Query formers: values worked out by hand, columns, errors, identity."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.forming import Form

pt.documentation._cached_objects_inv = {}  # type: ignore[attr-defined]


def said(*texts: str, first: str = "user") -> list[dict[str, str]]:
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


def topic(history: list[dict[str, str]], query: str = "Did he write sequels?", **columns) -> pd.DataFrame:
    return pd.DataFrame(
        {"qid": ["c_3"], "query": [query], "qhistory": [history], **{k: [v] for k, v in columns.items()}}
    )


DUNE = said("Who wrote Dune?", "Frank Herbert wrote it.", "When was it published?", "In 1965.")


@pytest.mark.parametrize(
    ("parts", "query"),
    [
        (cs.X, "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965. Did he write sequels?"),
        (cs.X - cs.CURRENT, "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965."),
        (cs.CURRENT, "Did he write sequels?"),
        (cs.FIRST_QUESTION, "Who wrote Dune?"),
        (cs.FIRST_QUESTION | cs.CURRENT, "Who wrote Dune? Did he write sequels?"),
        (cs.QUESTIONS, "Who wrote Dune? When was it published? Did he write sequels?"),
        (cs.QUESTIONS - cs.CURRENT, "Who wrote Dune? When was it published?"),
        (cs.ANSWERS, "Frank Herbert wrote it. In 1965."),
        (cs.LAST_ANSWER, "In 1965."),
        (cs.LAST_ANSWER | cs.CURRENT, "In 1965. Did he write sequels?"),
        (cs.LAST_QUESTION, "When was it published?"),
        (cs.last(1) | cs.CURRENT, "When was it published? In 1965. Did he write sequels?"),
        (cs.CURRENT | cs.last(1), "When was it published? In 1965. Did he write sequels?"),
        (cs.last(9), "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965."),
        (cs.ANSWERS - cs.LAST_ANSWER, "Frank Herbert wrote it."),
        (~cs.FIRST_QUESTION, "Frank Herbert wrote it. When was it published? In 1965. Did he write sequels?"),
        (cs.X - cs.X, ""),
        (cs.REWRITE, "Did Frank Herbert write sequels?"),
        (
            (cs.X - cs.CURRENT) | cs.REWRITE,
            "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965. Did Frank Herbert write sequels?",
        ),
        (cs.CURRENT | cs.REWRITE, "Did he write sequels? Did Frank Herbert write sequels?"),
    ],
    ids=repr,
)
def test_forms_of_turn_three(parts: cs.Parts, query: str) -> None:
    topics = topic(DUNE, qrewrite="Did Frank Herbert write sequels?")
    assert cs.form(parts)(topics)["query"].tolist() == [query]


@pytest.mark.parametrize(
    ("parts", "query"),
    [
        (cs.X, "q"),
        (cs.X - cs.CURRENT, ""),
        (cs.FIRST_QUESTION, "q"),
        (cs.FIRST_QUESTION | cs.CURRENT, "q"),
        (cs.LAST_ANSWER, ""),
        (cs.last(1) | cs.CURRENT, "q"),
        (cs.QUESTIONS - cs.FIRST_QUESTION, ""),
        (cs.X - cs.FIRST_QUESTION, ""),
    ],
    ids=repr,
)
def test_first_turns(parts: cs.Parts, query: str) -> None:
    assert cs.form(parts)(topic([], "q"))["query"].tolist() == [query]


@pytest.mark.parametrize(
    ("history", "parts", "query"),
    [
        # the turn before had no answer
        ([{"role": "user", "content": "a"}], cs.LAST_ANSWER, ""),
        ([*said("a", "b"), {"role": "user", "content": "c"}], cs.LAST_ANSWER | cs.CURRENT, "q"),
        ([*said("a", "b"), {"role": "user", "content": "c"}], cs.last(1) | cs.CURRENT, "c q"),
        # two answers in a row belong to one turn
        ([*said("a", "b"), {"role": "assistant", "content": "b2"}], cs.LAST_ANSWER, "b b2"),
        # the assistant opens
        (said("hello", "a", "b", first="assistant"), cs.FIRST_QUESTION, "a"),
        (said("hello", first="assistant"), cs.LAST_ANSWER, "hello"),
        (said("hello", first="assistant"), cs.FIRST_QUESTION | cs.CURRENT, "q"),
        # an empty message is passed over, with its separator
        (said("a", "", "c", "  "), cs.X, "a c q"),
        (said("a", "", "c", "  "), cs.LAST_ANSWER, ""),
    ],
)
def test_conversations_that_do_not_alternate(history: list, parts: cs.Parts, query: str) -> None:
    assert cs.form(parts)(topic(history, "q"))["query"].tolist() == [query]


def test_separators_between_roles() -> None:
    history = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    assert cs.form(cs.X, sep=("[U]", "[T]"))(topic(history, "q"))["query"][0] == "a [U] b [T] c [T] q"
    # what is left out leaves no separator behind
    assert cs.form(cs.QUESTIONS, sep=("[U]", "[T]"))(topic(history, "q"))["query"][0] == "a [U] b [U] q"
    assert cs.form(cs.X, sep=" [SEP] ")(topic(history, "q"))["query"][0] == "a [SEP] b [SEP] c [SEP] q"


def test_separators_are_named_for_lexical_stages() -> None:
    formed = cs.form(cs.X, sep=" [SEP] ")(topic(DUNE))
    assert formed["qsep"].tolist() == [" [SEP] "]
    assert cs.form(cs.X, sep=("[U]", "[T]"))(topic(DUNE))["qsep"].tolist() == [[" [U] ", " [T] "]]
    assert "qsep" not in cs.form(cs.X)(formed).columns


@pytest.mark.parametrize("sep", [" [SEP] ", ("[U]", "[T]"), " ||| ", " and "])
def test_separators_never_reach_bm25(sep, tmp_path) -> None:
    documents = ["Dune by Herbert", "sep u t", "sequels and 1965", "When was it published"]
    index = cs.BM25Index(tmp_path / "i", stemmer=None, stopwords=None, tokenizer="unicode").index(
        [{"docno": str(at), "text": text} for at, text in enumerate(documents)]
    )
    topics = topic(DUNE)
    plain = (cs.form(cs.X) >> index.bm25())(topics)
    other = (cs.form(cs.X, sep=sep) >> index.bm25())(topics)
    pd.testing.assert_frame_equal(plain[["docno", "score", "rank"]], other[["docno", "score", "rank"]])


def test_repeats() -> None:
    def query(parts: cs.Parts, repeat: dict, **options) -> str:
        return cs.form(parts, repeat=repeat, **options)(topic(said("a", "b"), "q", qrewrite="r"))["query"][0]

    assert query(cs.X, {cs.CURRENT: 3}) == "a b q q q"
    assert query(cs.X, {cs.QUESTIONS: 2}) == "a a b q q"
    assert query(cs.X, {cs.QUESTIONS: 2, cs.CURRENT: 3}) == "a a b q q q"
    assert query(cs.X, {cs.X: 1}) == "a b q"
    assert query(cs.LAST_ANSWER | cs.REWRITE, {cs.REWRITE: 2}) == "b r r"
    assert query(cs.X, {cs.CURRENT: 2}, sep=("[U]", "[T]")) == "a [T] b [T] q [U] q"
    assert cs.form(cs.X, repeat={cs.X: 1}) == cs.form(cs.X)


@pytest.mark.parametrize(
    "repeat", [{cs.CURRENT: 0}, {cs.CURRENT: 1.5}, {"CURRENT": 2}, {cs.CURRENT: True}, {cs.ANSWERS: 2}]
)
def test_repeats_that_say_nothing_are_refused(repeat: dict) -> None:
    with pytest.raises(ValueError, match="repeat"):
        cs.form(cs.QUESTIONS, repeat=repeat)


def test_columns_are_kept_pushed_and_undone() -> None:
    topics = topic(DUNE, note=["a", "list"], query_toks={"x": 1.0}, query_vec=np.ones(2))
    formed = cs.form(cs.X)(topics)
    assert "query_toks" not in formed.columns
    assert "query_vec" not in formed.columns
    assert formed["note"].tolist() == [["a", "list"]]
    assert formed["query_0"].tolist() == topics["query"].tolist()
    assert formed["qutterance"].tolist() == topics["query"].tolist()
    assert pt.rewrite.reset()(formed)["query"].tolist() == topics["query"].tolist()
    assert topics.columns.tolist() == ["qid", "query", "qhistory", "note", "query_toks", "query_vec"]
    twice = cs.form(cs.QUESTIONS)(formed)
    assert twice["query"][0] == "Who wrote Dune? When was it published? Did he write sequels?"
    assert twice["query_1"].tolist() == topics["query"].tolist()


def test_a_former_starts_from_the_utterance_after_a_rewriter() -> None:
    rewriter = pt.apply.query(lambda row: row["query"] + " rewritten")
    pipeline = cs.form(cs.CURRENT) >> rewriter >> cs.form(cs.X)
    assert pipeline(topic(said("a", "b"), "q"))["query"][0] == "a b q"


def test_rows_in_batches_or_alone_and_any_index() -> None:
    topics = pd.concat([topic(DUNE).assign(qid=f"c_{at}", query=f"q{at}") for at in range(5)])
    former = cs.form(cs.X, max_tokens=9)
    whole = former(topics)
    alone = pd.concat([former(topics.iloc[at : at + 1]) for at in range(5)])
    pd.testing.assert_frame_equal(whole, alone)
    assert whole.index.tolist() == [0] * 5


@pytest.mark.parametrize("former", [cs.form(cs.X), cs.form(cs.X, sep=" [SEP] ", max_tokens=9), cs.form(cs.CURRENT)])
def test_empty_frames(former: Form) -> None:
    full = former(topic(DUNE))
    empty = former(topic(DUNE).head(0))
    assert empty.columns.tolist() == full.columns.tolist()
    assert len(empty) == 0
    assert empty["query"].dtype == full["query"].dtype
    assert empty["qutterance"].dtype == full["qutterance"].dtype


def test_histories_in_other_shapes() -> None:
    for history in (
        ["a", "b"],
        '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]',
        np.array(said("a", "b"), dtype=object),
        [{"role": "system", "content": "s"}, *said("a", "b")],
        [{"speaker": "user", "text": "a"}, {"speaker": "agent", "text": "b"}],
    ):
        assert cs.form(cs.X)(topic(history, "q"))["query"][0] == "a b q"


def test_errors() -> None:
    with pytest.raises(KeyError, match=r"qhistory.*cs\.topics\.from_messages") as caught:
        cs.form(cs.X)(pd.DataFrame({"qid": ["1"], "query": ["a"]}))
    assert isinstance(caught.value, pt.validate.InputValidationError)
    assert cs.form(cs.CURRENT)(pd.DataFrame({"qid": ["1"], "query": ["a"]}))["query"].tolist() == ["a"]
    with pytest.raises(KeyError, match="qrewrite"):
        cs.form(cs.REWRITE)(topic(DUNE))
    for missing in (None, float("nan"), " "):
        with pytest.raises(ValueError, match="'c_3'"):
            cs.form(cs.REWRITE)(topic(DUNE, qrewrite=missing))
    for history in (None, float("nan"), 3, "no json", [3], [{"content": "a"}], [{"role": "bard?", "content": "a"}]):
        with pytest.raises(ValueError, match="c_3"):
            cs.form(cs.X)(topic(history))
    for query in (None, float("nan"), 3):
        with pytest.raises(ValueError, match="c_3"):
            cs.form(cs.X)(topic(DUNE, query))
    with pytest.raises(ValueError, match="2 qids"):
        cs.form(cs.X)(pd.concat([topic(DUNE), topic(DUNE), topic(DUNE).assign(qid="b"), topic(DUNE).assign(qid="b")]))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"tokenizer": "words"}, "max_tokens"),
        ({"mode": "paper"}, "max_tokens"),
        ({"max_tokens": 5, "mode": "papers"}, "mode"),
        ({"sep": None}, "sep"),
        ({"sep": ("[U]", "")}, "sep"),
    ],
)
def test_options_that_contradict(options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        cs.form(cs.X, **options)


def test_parts_must_be_parts() -> None:
    for parts in ("X", None, cs.form(cs.X), Form):
        with pytest.raises(TypeError, match="parts is"):
            cs.form(parts)


def test_ids_become_str() -> None:
    assert cs.form(cs.X)(topic(DUNE).assign(qid=7))["qid"].tolist() == ["7"]


def test_a_question_that_ends_its_own_history_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="1 of 1.*c_3"):
        formed = cs.form(cs.X)(topic([*DUNE, {"role": "user", "content": "q"}], "q"))
    assert formed["query"][0].endswith("In 1965. q q")


def shout(row: dict) -> str:
    return row["query"].upper()


def newest(row: dict) -> list:
    return [*row["qhistory"][-2:], {"role": "user", "content": row["query"]}]


def test_functions_of_ones_own() -> None:
    assert cs.form(shout)(topic(DUNE, "q"))["query"][0] == "Q"
    assert (
        cs.form(newest, sep=("[U]", "[T]"))(topic(DUNE, "q"))["query"][0] == "When was it published? [T] In 1965. [T] q"
    )
    assert cs.form(newest, max_tokens=2)(topic(DUNE, "q"))["query"][0] == "1965. q"
    # a function starts from q_t as it was said, too
    assert (cs.form(cs.X) >> cs.form(shout))(topic(DUNE, "q"))["query"][0] == "Q"
    assert pickle.loads(pickle.dumps(cs.form(shout))) == cs.form(shout)
    assert repr(cs.form(shout)) == "form(shout)"
    with pytest.raises(TypeError, match="c_3"):
        cs.form(lambda row: 3)(topic(DUNE))
    with pytest.raises(pickle.PicklingError, match="top level"):
        pickle.dumps(cs.form(lambda row: ""))


def test_identity() -> None:
    assert cs.form(cs.X - cs.CURRENT) == cs.form(cs.X & ~cs.CURRENT)
    assert hash(cs.form(cs.X - cs.CURRENT)) == hash(cs.form(cs.X & ~cs.CURRENT))
    formers = [
        cs.form(cs.X),
        cs.form(cs.CURRENT),
        cs.form(cs.X, sep="\n"),
        cs.form(cs.X, repeat={cs.CURRENT: 2}),
        cs.form(cs.X, max_tokens=5),
        cs.form(cs.X, max_tokens=5, mode="tail"),
        cs.form(cs.X, max_tokens=5, tokenizer="characters"),
        cs.form(cs.X, sep=("[U]", "[T]")),
    ]
    assert len(set(formers)) == len(formers)
    assert len({repr(former) for former in formers}) == len(formers)
    for former in formers:
        former(topic(DUNE))
        assert pickle.loads(pickle.dumps(former)) == former
    assert repr(cs.form(cs.X, sep=" [SEP] ", repeat={cs.CURRENT: 2}, max_tokens=9, mode="tail")) == (
        "form(X, sep=' [SEP] ', repeat={CURRENT: 2}, max_tokens=9, mode='tail')"
    )


def test_options_can_be_set_by_a_grid_search() -> None:
    former = cs.form(cs.X, max_tokens=4)
    assert former(topic(DUNE))["query"][0] == "Did he write sequels?"
    former.set_parameter("max_tokens", 7)
    assert former(topic(DUNE))["query"][0] == "Who wrote Dune? Did he write sequels?"
    former.set_parameter("parts", cs.CURRENT)
    assert former(topic(DUNE))["query"][0] == "Did he write sequels?"


def test_inspection_and_schematic() -> None:
    former = cs.form(cs.X - cs.CURRENT)
    assert pt.inspect.transformer_inputs(former) == [["qid", "query", "qhistory"]]
    assert pt.inspect.transformer_outputs(former, ["qid", "query", "qhistory"]) == [
        "qid",
        "query_0",
        "qhistory",
        "query",
        "qutterance",
    ]
    assert "form(X - CURRENT)" in pt.schematic.draw(former)


TestFormer = pt.testing.transformer_test_class(lambda: cs.form(cs.X))


def test_what_was_cut_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pt_convsearch"):
        formed = cs.form(cs.X, max_tokens=7)(topic(DUNE))
    # q_t has 4 words, q_1 three
    assert formed["query"].tolist() == ["Who wrote Dune? Did he write sequels?"]
    assert formed["qcut"].tolist() == [len("Frank Herbert wrote it.When was it published?In 1965.")]
    assert "1 of 1 queries cut to 7 tokens" in caplog.text


@pytest.mark.parametrize(
    ("former", "label"),
    [
        (cs.form(cs.X - cs.CURRENT), "form(X - CURRENT)"),
        (cs.form(cs.X - cs.CURRENT, sep=" [SEP] ", max_tokens=9), "form(X - CURRENT)"),
        (cs.form(cs.QUESTIONS - cs.CURRENT), "QUESTIONS - CURRENT"),
        (cs.form(cs.FIRST_QUESTION | cs.CURRENT), "FIRST_QUESTION | CU…"),
    ],
)
def test_labels_fit_into_schematics(former: pt.Transformer, label: str) -> None:
    assert pt.schematic.transformer_schematic(former)["label"] == label
    assert len(label) <= 20


def test_what_repeat_must_be() -> None:
    with pytest.raises(TypeError, match="repeat is 3: give a dict of parts and numbers"):
        cs.form(cs.X, repeat=3)
    with pytest.raises(ValueError, match="repeat goes with an expression over parts"):
        cs.form(len, repeat={cs.CURRENT: 2})


def test_a_tokenizer_is_shown_by_its_name(tmp_path) -> None:
    from transformers import AutoTokenizer

    from tests.desk import tokenizer

    tokenizer(tmp_path)
    former = cs.form(cs.X, max_tokens=9, tokenizer=AutoTokenizer.from_pretrained(tmp_path))
    assert repr(former) == f"form(X, max_tokens=9, tokenizer={str(tmp_path)!r})"
