"""What users type, in the order of a first day with the library. Values were worked out by hand."""

from __future__ import annotations

import json
import logging
import pickle

import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, R

import pt_convsearch as cs

LOG = [
    {
        "id": "c1",
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "Who wrote Dune?"},
            {"role": "assistant", "content": "Frank Herbert wrote it."},
            {"role": "user", "content": "When was it published?"},
            {"role": "assistant", "content": "In 1965."},
            {"role": "user", "content": "Did he write sequels?"},
        ],
    }
]
CORPUS = [
    {"docno": "d1", "text": "Dune is a novel by Frank Herbert, published in 1965."},
    {"docno": "d2", "text": "Frank Herbert wrote five sequels to Dune."},
    {"docno": "d3", "text": "The moon landing was in 1969."},
    {"docno": "d4", "text": "Sequels are often worse than the first book."},
]


@pytest.fixture
def topics() -> pd.DataFrame:
    return cs.topics.from_messages(LOG)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> cs.BM25Index:
    return cs.BM25Index(tmp_path_factory.mktemp("stories") / "passages.bm25").index(CORPUS)


# 1. My own chat log


def test_a_log_of_messages_becomes_topics(topics: pd.DataFrame) -> None:
    assert topics.qid.tolist() == ["c1_1", "c1_2", "c1_3"]
    assert topics.answer.tolist() == ["Frank Herbert wrote it.", "In 1965.", ""]
    assert topics.qhistory[0] == []
    assert len(topics.qhistory[2]) == 4
    assert [message["role"] for message in topics.qhistory[2]] == ["user", "assistant", "user", "assistant"]
    assert cs.topics.from_messages(LOG, turns="last").qid.tolist() == ["c1_3"]


def test_messages_without_text_and_other_roles() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is"},
                                     {"type": "image_url", "image_url": {"url": "x"}},
                                     {"type": "text", "text": "this?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
        {"role": "tool", "content": "a cat"},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Which breed?"},
    ]  # fmt: skip
    frame = cs.topics.from_messages([{"conversation_id": 7, "conversation": messages}])
    assert frame.qid.tolist() == ["7_1", "7_2"]
    assert frame["query"].tolist() == ["What is this?", "Which breed?"]
    assert [message["content"] for message in frame.qhistory[1]] == ["What is this?", "A cat."]
    with pytest.raises(ValueError, match=r"narrator.*c9|c9.*narrator"):
        cs.topics.from_messages([{"id": "c9", "messages": [{"role": "narrator", "content": "x"}]}])


def test_sharegpt_files(tmp_path) -> None:
    path = tmp_path / "sharegpt.jsonl"
    path.write_text(
        json.dumps({"id": "s", "conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes."},
                                                 {"from": "human", "value": "Why?"}]}) + "\n",
        encoding="utf-8",
    )  # fmt: skip
    frame = cs.topics.read(path)
    assert frame["query"].tolist() == ["Hi?", "Why?"]
    assert frame.qhistory[1] == [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes."}]


@pytest.mark.parametrize("name", ["topics.jsonl", "topics.parquet", "topics.jsonl.gz"])
def test_topics_are_written_and_read_without_loss(topics: pd.DataFrame, tmp_path, name: str) -> None:
    cs.topics.write(topics, tmp_path / name)
    pd.testing.assert_frame_equal(cs.topics.read(tmp_path / name), topics)


# 2. Forms of the query

WHOLE = "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965. Did he write sequels?"
FORMS = [
    ("X", WHOLE),
    ("X - CURRENT", "Who wrote Dune? Frank Herbert wrote it. When was it published? In 1965."),
    ("CURRENT", "Did he write sequels?"),
    ("FIRST_QUESTION | CURRENT", "Who wrote Dune? Did he write sequels?"),
    ("CURRENT | FIRST_QUESTION", "Who wrote Dune? Did he write sequels?"),
    ("QUESTIONS", "Who wrote Dune? When was it published? Did he write sequels?"),
    ("QUESTIONS - CURRENT", "Who wrote Dune? When was it published?"),
    ("LAST_ANSWER", "In 1965."),
    ("last(1) | CURRENT", "When was it published? In 1965. Did he write sequels?"),
    ("ANSWERS - LAST_ANSWER", "Frank Herbert wrote it."),
    ("X - X", ""),
]


@pytest.mark.parametrize(("expression", "expected"), FORMS)
def test_forms_of_turn_three(topics: pd.DataFrame, expression: str, expected: str) -> None:
    parts = eval(expression, vars(cs) | {name: getattr(cs, name) for name in dir(cs)})
    assert cs.form(parts)(topics)["query"][2] == expected


def test_first_turns(topics: pd.DataFrame) -> None:
    assert cs.form(cs.X - cs.CURRENT)(topics)["query"][0] == ""
    assert cs.form(cs.FIRST_QUESTION | cs.CURRENT)(topics)["query"][0] == "Who wrote Dune?"


def test_a_rewrite_that_is_missing_is_named(topics: pd.DataFrame) -> None:
    rewrites = topics.assign(qrewrite=["Who wrote Dune?", "When was Dune published?", None])
    with pytest.raises(ValueError, match="c1_3"):
        cs.form(cs.REWRITE)(rewrites)
    assert cs.form(cs.REWRITE)(rewrites[:2])["query"].tolist() == ["Who wrote Dune?", "When was Dune published?"]


def test_equal_expressions_are_one_system() -> None:
    one, other = cs.X - cs.CURRENT, cs.X & ~cs.CURRENT
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert cs.form(one) == cs.form(other)
    assert pickle.loads(pickle.dumps(cs.form(one))) == cs.form(one)


def test_forming_keeps_columns_and_is_undone(topics: pd.DataFrame) -> None:
    formed = cs.form(cs.X)(topics.assign(note="kept"))
    assert formed["query_0"].tolist() == topics["query"].tolist()
    assert formed["note"].tolist() == ["kept"] * 3
    assert pt.rewrite.reset()(formed)["query"].tolist() == topics["query"].tolist()
    again = (cs.form(cs.X) >> cs.form(cs.X))(topics)
    assert again["query"][2] == WHOLE
    assert again["qutterance"].tolist() == topics["query"].tolist()


def test_repeats(topics: pd.DataFrame) -> None:
    formed = cs.form(cs.FIRST_QUESTION | cs.CURRENT, repeat={cs.CURRENT: 3})(topics)
    assert formed["query"][2] == "Who wrote Dune? " + " ".join(["Did he write sequels?"] * 3)


# 3. Search


def test_search(topics: pd.DataFrame, index: cs.BM25Index) -> None:
    bm25 = index.bm25(num_results=100)
    found = (cs.form(cs.X) >> bm25)(topics)
    assert set(topics.columns) | {"docno", "score", "rank"} <= set(found.columns)
    assert found[found.qid == "c1_3"].docno.tolist()[0] in ("d1", "d2")
    without = (cs.form(cs.X - cs.CURRENT) >> bm25)(topics)
    assert "c1_1" not in set(without.qid)
    assert set(without.qid) == {"c1_2", "c1_3"}
    texts = (cs.form(cs.X) >> bm25 >> index.text_loader())(topics)
    assert texts.set_index("docno")["text"].to_dict().items() <= {d["docno"]: d["text"] for d in CORPUS}.items()


def test_an_index_is_opened_and_not_overwritten(index: cs.BM25Index, topics: pd.DataFrame) -> None:
    opened = cs.BM25Index(index.path)
    pd.testing.assert_frame_equal(opened.bm25()(topics), index.bm25()(topics))
    with pytest.raises((FileExistsError, ValueError), match="overwrite"):
        cs.BM25Index(index.path).index(CORPUS)


def test_seen_passages_are_left_out(index: cs.BM25Index) -> None:
    log = [{"id": "c", "messages": [
        {"role": "user", "content": "Who wrote Dune?"},
        {"role": "assistant", "content": "Frank Herbert wrote it.", "docno": "d1"},
        {"role": "user", "content": "Did Herbert write sequels to Dune?"}]}]  # fmt: skip
    topics = cs.topics.from_messages(log)
    bm25 = cs.form(cs.X) >> index.bm25()
    assert "d1" in set(bm25(topics[1:]).docno)
    unseen = (bm25 >> cs.DropSeen())(topics)
    assert "d1" not in set(unseen[unseen.qid == "c_2"].docno)
    assert "d1" in set(unseen[unseen.qid == "c_1"].docno)
    assert unseen[unseen.qid == "c_2"]["rank"].tolist() == list(range((unseen.qid == "c_2").sum()))


def test_dense_and_hybrid(topics: pd.DataFrame, index: cs.BM25Index, minilm: str, tmp_path) -> None:
    import pyterrier_dr

    encoder = cs.BiEncoder(minilm)
    dense_index = cs.DenseIndex(tmp_path / "passages.flex", encoder).index(CORPUS)
    dense = dense_index.retriever(num_results=100)
    found = (cs.form(cs.CURRENT) >> dense)(topics)
    assert found.groupby("qid").size().tolist() == [4, 4, 4]
    # 'Who wrote Dune?': the two passages about Dune before those about the moon and about sequels
    assert set(found[found.qid == "c1_1"].docno.tolist()[:2]) == {"d1", "d2"}
    other = pyterrier_dr.FlexIndex(str(tmp_path / "other.flex"))
    (encoder >> other).index(CORPUS)
    theirs = (encoder >> other.np_retriever(num_results=4))(topics)
    ours = dense(topics)
    assert theirs.sort_values(["qid", "rank"]).docno.tolist() == ours.sort_values(["qid", "rank"]).docno.tolist()
    hybrid = cs.rrf(cs.form(cs.QUESTIONS) >> index.bm25(), cs.form(cs.X) >> dense)(topics)
    assert hybrid["query"].tolist() == [dict(zip(topics.qid, topics["query"], strict=True))[qid] for qid in hybrid.qid]
    assert "qhistory" in hybrid


def test_other_languages(tmp_path) -> None:
    documents = [{"docno": "zh", "text": "北京是中国的首都"}, {"docno": "fr", "text": "le café est fermé"}]
    index = cs.BM25Index(tmp_path / "x.bm25", tokenizer="unicode", stemmer=None, stopwords=None).index(documents)
    found = index.bm25()(pd.DataFrame({"qid": ["1", "2", "3"], "query": ["中国", "café", "🙂"]}))
    assert found[["qid", "docno"]].to_numpy().tolist() == [["1", "zh"], ["2", "fr"]]


# 4. Live, turn by turn


def test_a_live_conversation(index: cs.BM25Index) -> None:
    chat = cs.Session(cs.form(cs.X) >> index.bm25())
    assert set(chat.ask("Who wrote Dune?").docno) == {"d1", "d2"}
    chat.answer("Frank Herbert wrote it.", docno="d2")
    assert chat.ask("When was it published?")["query"][0].startswith("Who wrote Dune? Frank Herbert wrote it. When")
    branch = chat.copy()
    chat.undo()
    assert chat.topics["query"].tolist() == ["Who wrote Dune?"]
    assert branch.topics.qhistory[1][1]["docno"] == "d2"


# 5. The table


@pytest.fixture(scope="module")
def judged() -> tuple[pd.DataFrame, pd.DataFrame]:
    topics = cs.topics.from_messages(LOG).assign(qtype=["first", "no-switch", "no-switch"], source=["a", "a", "b"])
    qrels = pd.DataFrame({"qid": ["c1_1", "c1_2", "c1_3"], "docno": ["d1", "d1", "d2"], "label": [1, 1, 1]})
    return topics, qrels


def test_the_table(judged, index: cs.BM25Index) -> None:
    topics, qrels = judged
    bm25 = index.bm25(num_results=100)
    systems = {
        "BM25": cs.form(cs.X) >> bm25,
        "BM25 without q_t": cs.form(cs.X - cs.CURRENT) >> bm25,
        "q_t": cs.form(cs.CURRENT) >> bm25,
    }
    table = cs.Experiment(systems, topics, qrels, [RR, R @ 5], by="qtype", baseline="BM25", correction="holm")
    assert table.index.tolist() == list(systems)
    assert table.columns.get_level_values(0).unique().tolist() == ["All", "first", "no-switch"]
    assert table["All"]["n"].tolist() == [3, 3, 3]
    assert table["no-switch"]["n"].tolist() == [2, 2, 2]
    assert table.loc["BM25", ("All", "R@5")] == 1.0
    # X_1 \ q_1 is empty: a dash in its own column, 0 in All
    assert pd.isna(table.loc["BM25 without q_t", ("first", "R@5")])
    assert table.loc["BM25 without q_t", ("All", "R@5")] == pytest.approx(2 / 3)
    assert table.loc["BM25 without q_t", ("no-switch", "R@5")] == 1.0
    for style in ("markdown", "latex", "text", "html"):
        assert "BM25 without q" in cs.render(table, style)
    both = cs.Experiment(systems, topics, qrels, [RR], by=["qtype", "source"])
    assert both.columns.get_level_values(0).unique().tolist() == ["All", "first", "no-switch", "a", "b"]
    masks = cs.Experiment(systems, topics, qrels, [RR], by={"t > 1": topics.turn_number > 1})
    assert masks["t > 1"]["n"].tolist() == [2, 2, 2]
    assert cs.Experiment(list(systems.values()), topics, qrels, [RR], names=list(systems), baseline=0) is not None


def test_two_systems_of_one_name_are_refused(judged, index: cs.BM25Index) -> None:
    topics, qrels = judged
    bm25 = cs.form(cs.X) >> index.bm25()
    with pytest.raises(ValueError, match="twin"):
        cs.Experiment([bm25, bm25], topics, qrels, [RR], names=["twin", "twin"])


# 6. Does my retriever need the question at all?


def test_shortcut_dependence_without_judgments(judged, index: cs.BM25Index) -> None:
    topics, qrels = judged
    bm25 = index.bm25(num_results=10)
    same = cs.shortcut_dependence(cs.form(cs.X - cs.CURRENT) >> bm25, cs.form(cs.X - cs.CURRENT) >> bm25, topics)
    assert same.summary["overlap@10"].tolist() == [1.0]
    assert same.summary["n"].tolist() == [2]  # the first turn is left out
    judged_too = cs.shortcut_dependence(cs.form(cs.X) >> bm25, cs.form(cs.X - cs.CURRENT) >> bm25, topics, qrels)
    assert judged_too.summary["retention"].tolist() == [1.0]


def test_the_logs_own_answers_are_a_collection(topics: pd.DataFrame, tmp_path) -> None:
    task = cs.topics.answers(topics)
    assert sorted(document["text"] for document in task.corpus) == ["Frank Herbert wrote it.", "In 1965."]
    assert task.qrels.qid.tolist() == ["c1_1", "c1_2"]
    assert [m["docno"] for m in task.topics.qhistory[2] if m["role"] == "assistant"] == task.qrels.docno.tolist()
    index = cs.BM25Index(tmp_path / "answers.bm25").index(task.corpus)
    table = cs.Experiment([cs.form(cs.X) >> index.bm25() >> cs.DropSeen()], task.topics, task.qrels, [R @ 1, RR])
    # 'Who wrote Dune?' finds 'Frank Herbert wrote it.'; turn 2 shares no term with 'In 1965.' once the seen one is gone
    assert table.iloc[0]["All"]["R@1"] == 0.5


# 10. What goes wrong, and what people see


def test_topics_without_history(index: cs.BM25Index) -> None:
    with pytest.raises((KeyError, ValueError), match="qhistory") as caught:
        cs.form(cs.X)(pd.DataFrame({"qid": ["1"], "query": ["a"]}))
    assert "cs.topics.from_messages" in str(caught.value)


def test_ids_become_str_once(index: cs.BM25Index) -> None:
    found = index.bm25()(pd.DataFrame({"qid": [3], "query": ["dune"]}))
    assert set(found.qid) == {"3"}
    found = index.bm25()(pd.DataFrame({"qid": [3.0], "query": ["dune"]}))
    assert set(found.qid) == {"3"}


def test_repeated_qids(topics: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="c1_1"):
        cs.form(cs.X)(pd.concat([topics, topics], ignore_index=True))


@pytest.mark.parametrize("query", [None, float("nan")])
def test_queries_that_are_missing(index: cs.BM25Index, query) -> None:
    with pytest.raises(ValueError, match="'7'"):
        index.bm25()(pd.DataFrame({"qid": ["7"], "query": pd.Series([query], dtype=object)}))


def test_a_question_said_again_is_a_warning(topics: pd.DataFrame) -> None:
    twice = topics.copy()
    twice.at[1, "qhistory"] = [*twice.qhistory[1], {"role": "user", "content": "When was it published?"}]
    with pytest.warns(UserWarning, match="c1_2"):
        cs.topics.validate(twice)


def test_parts_are_not_a_transformer(index: cs.BM25Index) -> None:
    with pytest.raises(TypeError, match=r"cs\.form\("):
        cs.X >> index.bm25()


def test_a_form_of_ones_own_that_cannot_be_pickled_says_so() -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError, ValueError), match="(?i)pickle"):
        pickle.dumps(cs.form(lambda row: row["query"]))


def test_any_script_many_turns_many_terms(index: cs.BM25Index, caplog: pytest.LogCaptureFixture) -> None:
    messages = []
    for turn in range(50):
        messages += [{"role": "user", "content": f"вопрос {turn} 🙂 质问 dune"},
                     {"role": "assistant", "content": " ".join(f"term{turn}x{i}" for i in range(60))}]  # fmt: skip
    topics = cs.topics.from_messages([{"id": "long", "messages": messages}])
    with caplog.at_level(logging.INFO):
        found = (cs.form(cs.X) >> index.bm25())(topics)
    assert found.groupby("qid").size().gt(0).sum() == 50
