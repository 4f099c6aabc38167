"""A live conversation."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory) -> pt.Transformer:
    corpus = [
        {"docno": "d1", "text": "Dune is a novel by Frank Herbert, published in 1965."},
        {"docno": "d2", "text": "Frank Herbert wrote five sequels to Dune."},
        {"docno": "d3", "text": "The moon landing was in 1969."},
    ]
    return cs.BM25Index(tmp_path_factory.mktemp("session") / "passages.bm25").index(corpus).bm25()


def test_turns_are_searched_with_the_history(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25 >> cs.DropSeen())
    assert set(chat.ask("Who wrote Dune?").docno) == {"d1", "d2"}
    chat.answer("Frank Herbert wrote it.", docno="d2")
    # 'published' alone finds d1; with the history d2 would come too, but it was shown already
    found = chat.ask("When was it published?")
    assert found.docno.tolist() == ["d1"]
    assert found["query"][0] == "Who wrote Dune? Frank Herbert wrote it. When was it published?"
    assert len(chat) == 2


def test_topics_are_those_of_the_log(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25, conversation_id="c1")
    chat.ask("Who wrote Dune?")
    chat.answer("Frank Herbert wrote it.")
    chat.ask("When was it published?")
    log = [{"id": "c1", "messages": [
        {"role": "user", "content": "Who wrote Dune?"},
        {"role": "assistant", "content": "Frank Herbert wrote it."},
        {"role": "user", "content": "When was it published?"}]}]  # fmt: skip
    pd.testing.assert_frame_equal(chat.topics, cs.topics.from_messages(log))


def test_undo_and_copy(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25)
    chat.ask("Who wrote Dune?")
    chat.answer("Frank Herbert.")
    branch = chat.copy()
    branch.ask("And the sequels?")
    assert (len(chat), len(branch)) == (1, 2)
    branch.undo()
    pd.testing.assert_frame_equal(branch.topics, chat.topics)
    branch.undo()
    assert len(branch.topics) == 0
    with pytest.raises(ValueError, match="no turn"):
        branch.undo()


def test_a_failing_search_leaves_the_conversation_as_it_was(bm25: pt.Transformer) -> None:
    def fail(frame: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("engine down")

    chat = cs.Session(pt.apply.generic(fail, transform_outputs=lambda columns: columns))
    with pytest.raises(RuntimeError, match="engine down"):
        chat.ask("Who wrote Dune?")
    assert len(chat) == 0
    with pytest.raises(ValueError, match="asked"):
        chat.answer("Frank Herbert.")


@pytest.mark.parametrize("query", ["", "  ", None, 3])
def test_questions_without_words(bm25: pt.Transformer, query) -> None:
    with pytest.raises(ValueError, match="question"):
        cs.Session(bm25).ask(query)


def test_columns_of_ones_own(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.REWRITE) >> bm25)
    chat.ask("Who wrote it?", qrewrite="Who wrote sequels?")
    assert chat.ask("When was it?", qrewrite="moon landing").docno.tolist() == ["d3"]
    assert chat.topics.qrewrite.tolist() == ["Who wrote sequels?", "moon landing"]


def test_threads_do_not_lose_turns(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25)
    threads = [threading.Thread(target=chat.ask, args=(f"dune {number}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(chat) == 12
    assert sorted(chat.topics["query"]) == sorted(f"dune {number}" for number in range(12))
    # each question was searched after all that stand before it
    assert [len(history) for history in chat.topics.qhistory] == list(range(12))


def test_a_session_is_pickled_and_its_topics_are_written(bm25: pt.Transformer, tmp_path: Path) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25)
    chat.ask("Who wrote Dune?")
    again = pickle.loads(pickle.dumps(chat))
    again.ask("When?")
    assert (len(chat), len(again)) == (1, 2)
    cs.topics.write(again.topics, tmp_path / "session.jsonl")
    assert cs.topics.read(tmp_path / "session.jsonl")["query"].tolist() == ["Who wrote Dune?", "When?"]


def test_an_answer_from_several_passages(bm25: pt.Transformer) -> None:
    chat = cs.Session(cs.form(cs.X) >> bm25 >> cs.DropSeen())
    assert set(chat.ask("Dune").docno) == {"d1", "d2"}
    chat.answer("A novel with sequels.", docno=["d1", "d2"])
    assert chat.ask("Dune and the moon?").docno.tolist() == ["d3"]


def test_what_is_no_pipeline_and_no_answer() -> None:
    with pytest.raises(TypeError, match="pipeline is a str: give a transformer"):
        cs.Session("bm25")
    chat = cs.Session(cs.form(cs.X))
    chat.ask("Who?")
    with pytest.raises(ValueError, match="an answer is a text, not None"):
        chat.answer(None)
    assert repr(chat) == "Session(form(X), 1 turns)"
