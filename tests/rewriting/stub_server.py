"""A chat endpoint on this machine, for tests of LLMRewriter: what it is asked is kept, what it answers is set."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pt_convsearch as cs

Answer = tuple[int, Any] | str


class Stub:
    """A chat endpoint: ``answer`` is given the request's body and its number, from 1, and returns a text (the rewrite),
    or a status with a body."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any], int], Answer] = lambda body, number: (
            "rewritten: " + body["messages"][-1]["content"][-40:]
        )
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub.lock:
                    stub.requests.append({"path": self.path, **body})
                    stub.headers.append(dict(self.headers))
                    number = len(stub.requests)
                found = stub.answer(body, number)
                status, sent = (200, chat(found)) if isinstance(found, str) else found
                data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


def chat(text: Any, tokens: int = 10) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"total_tokens": tokens}}


def llm(stub: Stub | None, **options: Any) -> cs.LLMRewriter:
    return cs.LLMRewriter(
        stub.url if stub else None, "stub", **{"backoff": 0.01, "timeout": 5, "retries": 2, **options}
    )


def question_of(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"].split("Last question: ")[1].split("\n")[0]
