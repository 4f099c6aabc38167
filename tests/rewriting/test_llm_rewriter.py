"""LLMRewriter against a local server: what is asked, budgets, caches, several rewrites."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.rewriting.endpoint import BudgetExceeded

from .conftest import said
from .stub_server import Stub, chat, llm, question_of


def test_what_is_asked(stub: Stub, log: pd.DataFrame) -> None:
    out = llm(stub, api_key="sk-1", threads=1, seed=4)(log)
    assert out["query"][0] == "Who wrote Dune?"
    assert len(stub.requests) == 2
    request = stub.requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert (request["model"], request["temperature"], request["max_tokens"], request["seed"]) == ("stub", 0.0, 128, 4)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    user = request["messages"][1]["content"]
    assert "User: Who wrote Dune?\nAssistant: Frank Herbert wrote it.\n" in user
    assert question_of(request) == "When was it {history} published?"  # what a user types is no place of the prompt
    assert stub.headers[0]["Authorization"] == "Bearer sk-1"
    assert out["query_0"].tolist() == out["qutterance"].tolist() == log["query"].tolist()
    assert out["tags"].tolist() == log["tags"].tolist()


def test_fields_of_the_request_can_be_changed_and_taken_out(stub: Stub, log: pd.DataFrame) -> None:
    llm(stub, seed=None, request={"max_tokens": None, "max_completion_tokens": 9, "temperature": 0.3})(log)
    assert {"max_tokens", "seed"}.isdisjoint(stub.requests[0])
    assert (stub.requests[0]["max_completion_tokens"], stub.requests[0]["temperature"]) == (9, 0.3)


def test_any_base_url(stub: Stub, log: pd.DataFrame) -> None:
    for url in (stub.url + "/", stub.url + "/chat/completions"):
        cs.LLMRewriter(url, "m")(log.iloc[[1]])
    assert {request["path"] for request in stub.requests} == {"/v1/chat/completions"}


def test_a_prompt_of_ones_own(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("\ufeffFrage: {question} ({history})", encoding="utf-8")
    stage = llm(stub, prompt=path, max_words=4)
    assert stage.messages("q", log["qhistory"][1]) == [
        {"role": "user", "content": "Frage: q (User: Who wrote Dune?\nAssistant: Frank)"}
    ]
    path.write_text("nothing to fill in {question}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"no \{history\}"):
        llm(stub, prompt=path)
    with pytest.raises(ValueError, match="keywords, rewrite"):
        llm(stub, prompt="poem")


def test_long_histories_keep_q_1_and_the_newest(stub: Stub) -> None:
    history = [said("user", "a b"), said("assistant", "c " * 50), said("user", "d e"), said("assistant", "f g")]
    content = llm(stub, max_words=7).messages("q", history)[-1]["content"]
    assert "User: a b\nAssistant: c\nUser: d e\nAssistant: f g\n" in content


def test_the_budget_of_requests(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    stage = llm(stub, max_requests=1, threads=1, cache=tmp_path / "c.jsonl")
    with pytest.raises(BudgetExceeded, match=r"qid 'd_2'.*1 requests"):
        stage(log)
    assert len(stub.requests) == 1
    done = llm(stub, max_requests=1, threads=1, cache=tmp_path / "c.jsonl")
    done(log)  # goes on from the cache
    assert done.counts["from cache"] == 1
    assert len(stub.requests) == 2


def test_the_budget_of_tokens(stub: Stub, log: pd.DataFrame) -> None:
    stub.answer = lambda *_: (200, chat("x", tokens=70))
    stage = llm(stub, max_total_tokens=70, threads=1)
    with pytest.raises(BudgetExceeded, match="70 tokens"):
        stage(log)
    assert stage.used == {"requests": 1, "tokens": 70}


def test_tries_count_into_the_budget(stub: Stub, log: pd.DataFrame) -> None:
    stub.answer = lambda *_: (500, {})
    with pytest.raises(BudgetExceeded):
        llm(stub, max_requests=2, retries=5)(log.iloc[[1]])
    assert len(stub.requests) == 2


def test_cached_answers_are_not_asked_again(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    first = llm(stub, cache=path, api_key="sk-secret")(log)
    asked = len(stub.requests)
    pd.testing.assert_frame_equal(llm(stub, cache=path)(log), first)
    assert len(stub.requests) == asked
    for change in ({"temperature": 0.5}, {"prompt": "keywords"}, {"seed": 9}, {"parts": cs.QUESTIONS}):
        llm(stub, cache=path, **change)(log)
        assert len(stub.requests) > asked
        asked = len(stub.requests)
    assert "sk-secret" not in path.read_text(encoding="utf-8")


def test_another_endpoint_is_asked_anew(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    llm(stub, cache=tmp_path / "c.jsonl")(log)
    asked = len(stub.requests)
    cs.LLMRewriter(stub.url + "/other", "stub", cache=tmp_path / "c.jsonl")(log)
    assert len(stub.requests) == 2 * asked


def test_recorded_answers_need_no_server(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    first = llm(stub, cache=path)(log)
    asked = len(stub.requests)
    again = llm(None, cache=path, recorded=True)
    pd.testing.assert_frame_equal(again(log), first)
    assert len(stub.requests) == asked
    with pytest.raises(ValueError, match=r"c.jsonl holds no answer for 1 requests \(first for qid 'd_2'\)"):
        again(log.assign(query=["a", log["query"][1], "other"]))
    with pytest.raises(ValueError, match="no file"):
        llm(None, cache=tmp_path / "none.jsonl", recorded=True)


def test_several_rewrites(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    stub.answer = lambda body, number: ["one", "two", "one", ""][body["seed"] - 1]
    stage = llm(stub, num_rewrites=4, temperature=0.7)
    out = stage(log)
    assert out["qrewrites"].tolist() == [["Who wrote Dune?"], ["one", "two"], ["one", "two"]]
    assert out["qrewrite_weights"][1] == pytest.approx([2 / 3, 1 / 3])
    assert out["query"].tolist()[1:] == ["one", "one"]
    assert Counter(request["seed"] for request in stub.requests) == {1: 2, 2: 2, 3: 2, 4: 2}
    with pytest.raises(ValueError, match="temperature above 0"):
        llm(stub, num_rewrites=2)


def test_equal_requests_are_made_once(stub: Stub, log: pd.DataFrame) -> None:
    twice = pd.concat([log, log.assign(qid=["e_1", "e_2", "f_2"])], ignore_index=True)
    out = llm(stub)(twice)
    assert len(stub.requests) == 2
    assert out["query"].tolist()[:3] == out["query"].tolist()[3:]


def test_the_order_of_answers_does_not_matter(stub: Stub, log: pd.DataFrame) -> None:
    many = pd.DataFrame(
        {
            "qid": [f"{at}_2" for at in range(12)],
            "query": [f"q {at}" for at in range(12)],
            "qhistory": [log["qhistory"][1]] * 12,
        }
    )

    def slow_first(body: dict[str, Any], number: int) -> str:
        time.sleep(0.1 if number < 4 else 0)
        return "about " + question_of(body)

    stub.answer = slow_first
    assert llm(stub, threads=4)(many)["query"].tolist() == [f"about q {at}" for at in range(12)]


def test_identity_repr_and_pickling(stub: Stub, log: pd.DataFrame) -> None:
    stage = llm(stub, api_key="sk-secret")
    assert stage == llm(stub, threads=9, timeout=1)
    assert stage != llm(stub, temperature=0.1)
    assert hash(stage) == hash(llm(stub))
    assert repr(stage) == f"LLMRewriter({stub.url!r}, 'stub')"
    assert "sk-secret" not in repr(stage._endpoint)
    assert pickle.loads(pickle.dumps(stage))(log)["query"].tolist() == stage(log)["query"].tolist()


def test_empty_frames_ask_nobody(log: pd.DataFrame) -> None:
    stage = cs.LLMRewriter("http://127.0.0.1:9", "m")
    out = stage(log.iloc[:0])
    assert {"qid", "query", "query_0", "qutterance", "tags"} <= set(out.columns)
    with pytest.raises(pt.validate.InputValidationError, match="qhistory"):
        stage(log.drop(columns="qhistory"))


@pytest.mark.parametrize(
    ("options", "named"),
    [({"on_error": "ignore"}, "on_error"), ({"threads": 0}, "threads"), ({"retries": -1}, "retries")],
)
def test_impossible_options(stub: Stub, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        llm(stub, **options)
    with pytest.raises(ValueError, match="base_url"):
        cs.LLMRewriter(None, "m")
