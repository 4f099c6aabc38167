"""Conversational query rewriting by a large language model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch._files import PathLike, sha256
from pt_convsearch._lines import read_text
from pt_convsearch.forming import CURRENT, FIRST_QUESTION, Parts, X
from pt_convsearch.rewriting.answer_cache import AnswerCache, content_key
from pt_convsearch.rewriting.cleaning import cleaned
from pt_convsearch.rewriting.endpoint import Endpoint, EndpointError
from pt_convsearch.rewriting.rewriting_stage import RewritingStage, Turn, Written


class LLMRewriter(RewritingStage):
    """Rewrites q_t by asking a language model behind an OpenAI-compatible endpoint (Q -> Q): vLLM, llama.cpp, Ollama,
    OpenAI, or any other that answers ``POST {base_url}/chat/completions``.

    Input columns: ``qid``, ``query``, ``qhistory``. Output columns: all of them; the rewrite in ``query``, the former
    query in ``query_0``, q_t in ``qutterance``; with ``num_rewrites`` above 1 also ``qrewrites`` and
    ``qrewrite_weights`` (shares of the draws), for :class:`NthRewrite` and :class:`RewriteTerms`. First turns stay as
    they are unless ``first_turns``.

    Answers are cleaned: quotation marks, labels ("Rewrite:"), leads, JSON, code fences, thoughts and further lines are
    taken off. Where nothing is left to search with (an empty answer, a refusal, an essay) q_t stays; :attr:`counts`
    and the log say how often. :attr:`used` counts requests and tokens.

    Args:
        base_url: of the API, such as "http://localhost:8000/v1". None with ``recorded``.
        model: the model's name there.
        prompt: "rewrite" (a question that stands alone), "keywords" (a query for a lexical engine), or a file of your
            own: a text with ``{history}`` and ``{question}``; what stands above a line ``---`` is the system's message.
        num_rewrites: rewrites per question, each by a request of its own; above 1 with a temperature above 0.
        temperature: of the sampling; 0 for the likeliest rewrite.
        max_new_tokens: the most tokens of an answer; None: the server's default.
        seed: sent with each request, plus the number of the rewrite; None: not sent.
        request: further fields of the request's body, or other values for those above; None takes a field out
            (``{"max_tokens": None, "max_completion_tokens": 200}``).
        parts: what of the conversation the model sees; q_t is always seen.
        max_words: of the history: q_1 stays, then the newest messages; None: no limit.
        api_key: sent as a bearer token; None: the environment's ``OPENAI_API_KEY``, if any.
        timeout: seconds to wait for an answer.
        retries: further tries after a failure that may pass (time-outs, no connection, status 429 and 5xx, answers that
            are no chat completions).
        backoff: seconds before the first of them, doubled each time; the server's Retry-After is heeded, up to 60.
        max_requests: the budget of requests, tries included, of this object; None: no limit.
        max_total_tokens: the budget of tokens, as the server counts them; None: no limit.
        on_error: "raise", or "fallback": q_t stays where the endpoint failed after all tries (counted). A used-up
            budget always raises.
        cache: a file of JSON lines where answers are kept as they came, by endpoint and request. A run that was killed
            or ran out of budget goes on from there.
        recorded: ask nobody: answer from ``cache``, whatever endpoint gave it (for tests, and to run an experiment
            again); a question without a recorded answer is an error.
        threads: requests at a time.
        first_turns: rewrite first turns as well.
        verbose: show progress.

    Raises:
        EndpointError: the endpoint failed; the message names the qid and what it said.
        BudgetExceeded: the budget is used up; answers so far are in the cache.
        ValueError: options that contradict each other, a prompt without its places, a missing recorded answer.
        pt.validate.InputValidationError: ``qhistory`` is missing.

    Example:
        >>> llm = cs.LLMRewriter("http://localhost:8000/v1", "Qwen/Qwen3-8B", cache="llm.jsonl")
        >>> pipeline = llm >> index.bm25(num_results=100)

    Source: prompting for rewrites as in Mao et al., "Large language models know your contextual search intent" (LLM4CS,
        Findings of EMNLP 2023); the prompts are ours.
    """

    def __init__(
        self,
        base_url: str | None,
        model: str,
        *,
        prompt: PathLike = "rewrite",
        num_rewrites: int = 1,
        temperature: float = 0.0,
        max_new_tokens: int | None = 128,
        seed: int | None = 1,
        request: Mapping[str, Any] | None = None,
        parts: Parts = X,
        max_words: int | None = 2000,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 1.0,
        max_requests: int | None = None,
        max_total_tokens: int | None = None,
        on_error: str = "raise",
        cache: PathLike | None = None,
        recorded: bool = False,
        threads: int = 4,
        first_turns: bool = False,
        verbose: bool = False,
    ) -> None:
        self.base_url, self.model, self.prompt = base_url, model, prompt
        self.num_rewrites, self.temperature, self.max_new_tokens, self.seed = (
            num_rewrites,
            temperature,
            max_new_tokens,
            seed,
        )
        self.request = dict(request or {})
        self.parts, self.max_words = parts, max_words
        self.api_key = api_key
        self.timeout, self.retries, self.backoff = timeout, retries, backoff
        self.max_requests, self.max_total_tokens = max_requests, max_total_tokens
        self.on_error = on_error
        self.cache, self.recorded = cache, recorded
        self.threads = threads
        self.first_turns = first_turns
        self.verbose = verbose
        self._check()
        #: questions rewritten or not, answers from the cache, answers that had to be cleaned, endpoint failures
        self.counts = {"rewritten": 0, "empty": 0, "from cache": 0, "cleaned": 0, "failed": 0}
        self._system, self._user = _prompt(prompt)
        self._endpoint = Endpoint(base_url or "", api_key, timeout, retries, backoff, max_requests, max_total_tokens)
        self._answers = None if cache is None else AnswerCache(cache, key="content" if recorded else "key")

    def _check(self) -> None:
        for name, least in (("num_rewrites", 1), ("threads", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: give at least {least}")
        if self.on_error not in ("raise", "fallback"):
            raise ValueError(f"on_error={self.on_error!r}: 'raise' or 'fallback'")
        if self.num_rewrites > 1 and self.temperature == 0 and "temperature" not in self.request:
            raise ValueError(
                f"num_rewrites={self.num_rewrites} at temperature=0 would all be alike: give a temperature above 0"
            )
        if self.recorded and (self.cache is None or not Path(self.cache).is_file()):
            raise ValueError(f"recorded=True answers from cache={self.cache!r}, which is no file")
        if not self.recorded and not self.base_url:
            raise ValueError("base_url is missing: the address of the API, such as 'http://localhost:8000/v1'")

    @property
    def used(self) -> dict[str, int]:
        """Requests that were made, and tokens that the server counted, over the life of this object."""
        return dict(self._endpoint.used)

    # -- asking

    def messages(self, question: str, history: list[dict[str, Any]]) -> list[dict[str, str]]:
        """What is sent for a question: the prompt with the conversation in its places."""
        said = _history(history, self.parts, self.max_words)
        places = {"{history}": said or "(nothing was said before)", "{question}": question}
        user = self._user
        # in one pass: a question may hold "{history}" itself
        pieces = []
        while True:
            found = [(user.find(place), place) for place in places if place in user]
            if not found:
                break
            at, place = min(found)
            pieces += [user[:at], places[place]]
            user = user[at + len(place) :]
        sent = [{"role": "user", "content": "".join([*pieces, user])}]
        return ([{"role": "system", "content": self._system}] if self._system else []) + sent

    def _body(self, turn: Turn, number: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model, "messages": self.messages(turn.question, turn.history),
            "temperature": self.temperature,
            "max_tokens": self.max_new_tokens, "seed": None if self.seed is None else self.seed + number,
            **self.request,
        }  # fmt: skip
        return {name: value for name, value in body.items() if value is not None}

    def _rewrite(self, turns: list[Turn], frame: pd.DataFrame) -> list[Written]:
        bodies = {(at, n): self._body(turn, n) for at, turn in enumerate(turns) for n in range(self.num_rewrites)}
        contents = {place: content_key(body) for place, body in bodies.items()}
        keys = (
            contents
            if self.recorded
            else {place: content_key(self.base_url, content) for place, content in contents.items()}
        )
        known = self._answers.get(keys.values()) if self._answers is not None else {}
        answers: dict[str, str | None] = {key: entry["answer"] for key, entry in known.items()}
        self.counts["from cache"] += len(answers)
        asked = {key: place for place, key in reversed(keys.items()) if key not in answers}
        if asked and self.recorded:
            qids = [turns[at].qid for at, _ in sorted(asked.values())]
            raise ValueError(
                f"{self.cache} holds no answer for {len(asked)} requests (first for qid {qids[0]!r}): "
                "the prompt, the model or the conversation changed"
            )
        self._ask(
            [
                (key, turns[at].qid, bodies[at, n], contents[at, n])
                for key, (at, n) in sorted(asked.items(), key=lambda item: item[1])
            ],
            answers,
        )
        return [self._written([answers[keys[at, n]] for n in range(self.num_rewrites)]) for at in range(len(turns))]

    def _ask(self, requests: list[tuple[str, str, dict[str, Any], str]], answers: dict[str, str | None]) -> None:
        """Ask for what is not known; each answer is kept as soon as it is there."""
        from tqdm.auto import tqdm

        def one(request: tuple[str, str, dict[str, Any], str]) -> tuple[str, str | None]:
            key, qid, body, content = request
            try:
                answer = self._endpoint.ask(body, qid)
            except EndpointError:
                if self.on_error == "raise":
                    raise
                return key, None
            if self._answers is not None:
                self._answers.put(
                    [
                        {
                            "key": key,
                            "content": content,
                            "base_url": self.base_url,
                            "qid": qid,
                            "request": body,
                            "answer": answer,
                        }
                    ]
                )
            return key, answer

        with ThreadPoolExecutor(max_workers=self.threads) as pool:
            waiting = [pool.submit(one, request) for request in requests]
            try:
                for future in tqdm(waiting, desc="rewriting", unit="request", disable=not self.verbose):
                    key, answer = future.result()
                    self.counts["failed"] += answer is None
                    answers[key] = answer
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _written(self, answers: list[str | None]) -> Written:
        weights: dict[str, float] = {}
        for answer in answers:
            rewrite = cleaned(answer)
            if rewrite is not None:
                self.counts["cleaned"] += rewrite != answer
                weights[rewrite] = weights.get(rewrite, 0.0) + 1.0
        total = sum(weights.values())
        return [(rewrite, weight / total) for rewrite, weight in weights.items()]

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        return self._asked(str(self.cache) if self.recorded else None)

    def _contents(self) -> tuple[Any, ...]:
        return self._asked(sha256(self.cache) if self.recorded and self.cache is not None else None)

    def _asked(self, recorded: str | None) -> tuple[Any, ...]:
        return (
            self.base_url, self.model, self._system, self._user, self.num_rewrites, self.temperature,
            self.max_new_tokens,
            self.seed, self.request, self.parts, self.max_words, self.on_error, self.first_turns,
            recorded,
        )  # fmt: skip

    def __repr__(self) -> str:
        shown = [repr(self.base_url), repr(self.model)]
        defaults = {"prompt": "rewrite", "num_rewrites": 1, "temperature": 0.0, "max_new_tokens": 128, "seed": 1,
                    "request": {},
                    "parts": X, "max_words": 2000, "on_error": "raise", "recorded": False,
                    "first_turns": False}  # fmt: skip
        shown += [f"{name}={getattr(self, name)!r}" for name, value in defaults.items() if getattr(self, name) != value]
        return f"LLMRewriter({', '.join(shown)})"


def _prompt(prompt: PathLike) -> tuple[str, str]:
    """The system's message ("" for none) and the user's, of a prompt by name or file."""
    named = resources.files("pt_convsearch.rewriting") / "prompts" / f"{prompt}.txt"
    if isinstance(prompt, str) and prompt.isidentifier() and named.is_file():
        text = named.read_text(encoding="utf-8")
    elif Path(prompt).is_file():
        text = read_text(prompt)
    else:
        known = sorted(path.name.removesuffix(".txt") for path in named.parent.iterdir() if path.name.endswith(".txt"))  # type: ignore[attr-defined]
        raise ValueError(f"prompt={os.fspath(prompt)!r} is neither a file nor one of {', '.join(known)}")
    lines = text.strip().splitlines()
    marks = [at for at, line in enumerate(lines) if line.strip() == "---"]
    system, user = ("\n".join(lines[: marks[0]]), "\n".join(lines[marks[0] + 1 :])) if marks else ("", "\n".join(lines))
    missing = [place for place in ("{history}", "{question}") if place not in user]
    if missing:
        raise ValueError(
            f"prompt={os.fspath(prompt)!r} has no {' and no '.join(missing)}: the places where the conversation goes"
        )
    return system.strip(), user.strip()


def _history(history: list[dict[str, Any]], parts: Parts, max_words: int | None) -> str:
    """The chosen messages, one a line, within so many words: q_1, then the newest."""
    places, _ = (parts - CURRENT).choose(history)
    texts = {at: " ".join(history[at]["content"].split()) for at in places}
    room = max_words if max_words is not None else sum(len(text.split()) for text in texts.values())
    first = [at for at in (FIRST_QUESTION & parts - CURRENT).choose(history)[0] if at in texts]
    kept: dict[int, str] = {}
    for at in [*first, *(at for at in reversed(places) if at not in first)]:
        if room <= 0:
            break
        said = texts[at].split()
        kept[at] = " ".join(said[:room])
        room -= len(said)
    return "\n".join(f"{history[at]['role'].capitalize()}: {kept[at]}" for at in sorted(kept) if kept[at])
