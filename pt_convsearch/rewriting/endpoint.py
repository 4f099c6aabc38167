"""An OpenAI-compatible endpoint for chat completions: retries with backoff, time-out, budget."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import requests
import urllib3
from requests.exceptions import ChunkedEncodingError, ContentDecodingError

logger = logging.getLogger(__name__)

#: worth another try: time-outs, conflicts, too many requests, and whatever is the server's own fault
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_LONGEST_WAIT = 60.0
#: bytes; a rewrite takes a few hundred
_LONGEST_ANSWER = 4_000_000


class BudgetExceeded(RuntimeError):
    """The budget of requests or tokens is used up; answers so far are in the cache."""


class EndpointError(RuntimeError):
    """The endpoint gave no answer; the message says to which question, and why."""


@dataclass
class Endpoint:
    """Where chat completions are asked for.

    Attributes:
        url: of the API, such as "http://localhost:8000/v1".
        api_key: sent as a bearer token; None: the environment's ``OPENAI_API_KEY``, if any.
        timeout: seconds to wait for an answer.
        retries: further tries after a failure that may pass.
        backoff: seconds before the first of them, doubled each time; a server's Retry-After is heeded.
        max_requests: the most requests, tries included, over the life of this object; None: no limit.
        max_total_tokens: once so many tokens were used (as the server says), nothing more is asked; None: no limit.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    retries: int = 5
    backoff: float = 1.0
    max_requests: int | None = None
    max_total_tokens: int | None = None
    used: dict[str, int] = field(default_factory=lambda: {"requests": 0, "tokens": 0})

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def completions(self) -> str:
        """The address that is posted to."""
        url = self.url.rstrip("/")
        return url if url.endswith("/chat/completions") else f"{url}/chat/completions"

    def ask(self, body: dict[str, Any], qid: str) -> str:
        """The text of the first choice.

        Raises:
            EndpointError: no answer after all tries, or a refusal that no try will change; it names the qid.
            BudgetExceeded: the budget is used up.
        """
        trouble, wait = "", 0.0
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(min(_LONGEST_WAIT, wait))
                logger.info("qid %r: %s; try %d of %d", qid, trouble, attempt + 1, self.retries + 1)
            self._spend(qid)
            wait = self.backoff * 2**attempt
            try:
                answer = self._post(body)
            except requests.Timeout:
                trouble = f"no answer within {self.timeout:g} s"
                continue
            except (ChunkedEncodingError, ContentDecodingError) as error:
                trouble = f"an answer that breaks off or cannot be read ({_line(error)})"
                continue
            except requests.ConnectionError as error:
                trouble = f"no connection ({_line(error)})"
                continue
            except requests.RequestException as error:
                raise EndpointError(f"qid {qid!r}: {self.completions} cannot be asked: {_line(error)}") from error
            if answer.status_code in _AGAIN:
                trouble = f"status {answer.status_code} ({_line(answer.text)})"
                wait = max(wait, _retry_after(answer))
                continue
            if not answer.ok:
                hint = {401: "give api_key=", 403: "give api_key=", 404: "check base_url and model"}.get(
                    answer.status_code
                )
                raise EndpointError(
                    f"qid {qid!r}: {self.completions} refuses with status {answer.status_code}: {_line(answer.text)}"
                    + (f" ({hint})" if hint else "")
                )
            text = self._text(answer)
            if text is not None:
                return text
            trouble = f"an answer that is no chat completion ({_line(answer.text)})"
        raise EndpointError(
            f"qid {qid!r}: {self.completions} failed {self.retries + 1} times, at last with {trouble}. What was "
            "answered so far is in the cache, if there is one: run again to go on"
        )

    def _post(self, body: dict[str, Any]) -> requests.Response:
        """The answer, read to its end within the time-out: a server that sends a byte now and then is stalling, too."""
        deadline = time.monotonic() + self.timeout
        with requests.post(
            self.completions, json=body, headers=self._headers(), timeout=self.timeout, stream=True
        ) as answer:
            read = bytearray()
            while piece := _arrived(answer):
                read += piece
                if len(read) > _LONGEST_ANSWER:
                    raise ContentDecodingError(f"more than {_LONGEST_ANSWER:,} bytes")
                if time.monotonic() > deadline:
                    raise requests.Timeout
            answer._content = bytes(read)
        return answer

    def _headers(self) -> dict[str, str]:
        key = self.api_key or os.environ.get("OPENAI_API_KEY")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _spend(self, qid: str) -> None:
        with self._lock:
            for name, limit in (("requests", self.max_requests), ("tokens", self.max_total_tokens)):
                if limit is not None and self.used[name] >= limit:
                    raise BudgetExceeded(
                        f"qid {qid!r} is not asked: the budget of {limit} {name} is used up ({self.used['requests']} "
                        f"requests, {self.used['tokens']} tokens). Answers so far are in the cache, if there is one"
                    )
            self.used["requests"] += 1

    def _text(self, answer: requests.Response) -> str | None:
        try:
            value = answer.json()
            message = value["choices"][0]["message"]
            content = message.get("content")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            return None
        usage = value.get("usage") if isinstance(value.get("usage"), dict) else {}
        tokens = usage.get("total_tokens")
        with self._lock:
            self.used["tokens"] += tokens if isinstance(tokens, int) else 0
        if isinstance(content, list):  # content in parts
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def _arrived(answer: requests.Response) -> bytes:
    """What came of an answer since, at least a byte; nothing at its end."""
    try:
        return answer.raw.read1(65536, decode_content=True)
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.Timeout from error
    except urllib3.exceptions.ProtocolError as error:
        raise ChunkedEncodingError(error) from error
    except urllib3.exceptions.DecodeError as error:
        raise ContentDecodingError(error) from error


def _retry_after(answer: requests.Response) -> float:
    try:
        return float(answer.headers.get("Retry-After", 0))
    except ValueError:  # a date
        return 0.0


def _line(value: Any, most: int = 200) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[:most] + " …"
