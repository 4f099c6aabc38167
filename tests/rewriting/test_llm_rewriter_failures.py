"""LLMRewriter against a server that fails, stalls, drips, dies and answers rubbish."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.rewriting.endpoint import EndpointError

from .stub_server import Answer, Stub, chat, llm, question_of


def test_a_failing_server_is_asked_again(stub: Stub, log: pd.DataFrame) -> None:
    rubbish: list[Answer] = [(500, {"error": "x"}), (429, {"error": "slow"}), "good"]
    stub.answer = lambda body, number: rubbish[number - 1]
    stage = llm(stub, threads=1)
    assert stage(log.iloc[[1]])["query"].tolist() == ["good"]
    assert stage.used == {"requests": 3, "tokens": 10}


@pytest.mark.parametrize(
    "body",
    [
        b"<html>busy</html>", b"", {"error": "no"}, {"choices": []}, {"choices": [{"message": None}]}, [1], b"\xff\xfe",
        b"[" * 200_000,
    ],
)
def test_an_answer_that_is_no_chat_completion_names_the_qid(stub: Stub, log: pd.DataFrame, body: Any) -> None:
    stub.answer = lambda *_: (200, body)
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*3 times.*no chat completion"):
        llm(stub)(log.iloc[[1]])
    assert len(stub.requests) == 3


def test_a_refusal_is_not_repeated(stub: Stub, log: pd.DataFrame) -> None:
    stub.answer = lambda *_: (401, {"error": "bad key"})
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*401.*bad key.*api_key"):
        llm(stub)(log.iloc[[1]])
    assert len(stub.requests) == 1


def test_a_stalling_server_times_out(stub: Stub, log: pd.DataFrame) -> None:
    stub.answer = lambda *_: time.sleep(2) or "late"  # type: ignore[func-returns-value]
    start = time.monotonic()
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*2 times.*no answer within 0.2 s"):
        llm(stub, timeout=0.2, retries=1)(log.iloc[[1]])
    assert time.monotonic() - start < 2


def test_a_server_that_drips_is_stalling_too(log: pd.DataFrame) -> None:
    import socket

    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    stage = cs.LLMRewriter(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", timeout=0.3, retries=0)
    with pytest.raises(EndpointError, match="no answer within 0.3 s"):
        stage(log.iloc[[1]])
    listener.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_that_dies_in_its_answer_is_asked_again(log: pd.DataFrame, chunked: bool) -> None:
    """The connection ends in the middle of the first answer; the second is whole."""
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    whole = json.dumps(chat("When was Dune published?")).encode()
    head = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: 1000\r\n"
    cut = b"3e8\r\n{" if chunked else b"{"
    heads = [b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + cut,
             b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole]  # fmt: skip

    def serve() -> None:
        for answer in heads:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    stage = cs.LLMRewriter(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", timeout=5, retries=1, backoff=0.01)
    assert stage(log.iloc[[1]])["query"].tolist() == ["When was Dune published?"]
    assert stage.used["requests"] == 2
    listener.close()


def test_an_answer_without_end_is_not_read_to_it(
    stub: Stub, log: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pt_convsearch.rewriting.endpoint._LONGEST_ANSWER", 1000)
    stub.answer = lambda *_: "word " * 1000
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*cannot be read \(more than 1,000 bytes"):
        llm(stub, retries=0)(log.iloc[[1]])


def test_no_server_at_all(log: pd.DataFrame) -> None:
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*no connection"):
        cs.LLMRewriter("http://127.0.0.1:9", "m", retries=0)(log.iloc[[1]])
    with pytest.raises(EndpointError, match=r"qid 'c_2'.*cannot be asked"):
        cs.LLMRewriter("no-url", "m", retries=0)(log.iloc[[1]])


def test_failures_fall_back_where_that_is_wanted(stub: Stub, log: pd.DataFrame, tmp_path: Path) -> None:
    stub.answer = lambda body, number: (500, {}) if "film" in question_of(body) else "good"
    stage = llm(stub, on_error="fallback", cache=tmp_path / "c.jsonl")
    assert stage(log)["query"].tolist() == ["Who wrote Dune?", "good", "And the film?"]
    assert stage.counts == {"rewritten": 1, "empty": 1, "from cache": 0, "cleaned": 0, "failed": 1}
    stub.answer = lambda *_: "now"
    assert stage(log)["query"].tolist() == ["Who wrote Dune?", "good", "now"]  # a failure is not cached


@pytest.mark.parametrize(
    "answer", ["", '""', "I'm sorry, I cannot do that.", "```json\n{}\n```", None, "[" * 100_000, "\ud83d"]
)
def test_rubbish_falls_back_to_q_t_and_is_counted(
    stub: Stub, log: pd.DataFrame, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stub.answer = lambda *_: (200, chat(answer))
    stage = llm(stub)
    with caplog.at_level(logging.WARNING):
        assert stage(log)["query"].tolist() == log["query"].tolist()
    assert stage.counts["empty"] == 2
    assert "'c_2', 'd_2'" in caplog.text


def test_answers_are_cleaned_and_counted(stub: Stub, log: pd.DataFrame) -> None:
    stub.answer = lambda *_: 'Sure! Here it is:\n"When was Dune published?"'
    stage = llm(stub)
    assert stage(log)["query"].tolist()[1:] == ["When was Dune published?"] * 2
    assert stage.counts["cleaned"] == 2
