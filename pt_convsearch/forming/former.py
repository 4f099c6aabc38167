"""The query former: a choice of parts becomes the query."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch._stage import Stage
from pt_convsearch.forming import separators, tokens
from pt_convsearch.forming.budget import Budget, Said, joined
from pt_convsearch.forming.parts import Parts
from pt_convsearch.topics.checks import check_queries, first_three
from pt_convsearch.topics.messages import USER, Message
from pt_convsearch.topics.validation import MISSING, histories

logger = logging.getLogger(__name__)

#: queries that are cut together: enough for the tokenizer's batches, few enough to hold
_CHUNK = 8192
#: the most characters of a label that PyTerrier's schematics render well
_LABEL = 20
#: what belongs to the former query
_STALE = ("query_toks", "query_vec", separators.COLUMN, "qcut")


class Form(Stage):
    """Makes the query from parts of the conversation (Q -> Q); ``cs.form`` is its name in pipelines.

    Input columns: ``qid``, ``query``; ``qhistory`` where the parts reach into it; ``qrewrite`` for ``REWRITE``.
    Output columns: all of them, the former query in ``query_0`` (``pt.rewrite.reset()`` undoes the form),
    ``qutterance`` (q_t as it was said: every later former starts from it), ``qsep`` where separators are more than
    white space (lexical stages of this package take them out of the text again), ``qcut`` where there is a budget.
    ``query_toks`` and ``query_vec`` belong to the old query and are dropped.

    Args:
        parts: an expression over parts, e.g. ``cs.X - cs.CURRENT``. They are said in the order of the conversation;
            messages without text are passed over. Or a function of a row (a dict of its columns, ``query`` being q_t)
            that returns the query, or a list of messages; a function must be defined at the top level of a module to
            be pickled.
        sep: what stands between parts: a str (a space for lexical engines, ``" [SEP] "`` for BERT), or a pair of
            tokens such as ``("[U]", "[T]")``, the first between messages of one role, the second where the role
            changes.
        repeat: how often a part is said, e.g. ``{cs.CURRENT: 3}``: weight for a lexical engine. Where parts overlap,
            the greater number counts.
        max_tokens: the most tokens of a query, the tokenizer's special ones included. ``qcut`` says how many
            characters of the chosen parts were left out of each query; the log says how many queries were cut.
        tokenizer: whose tokens: the name or path of a Hugging Face tokenizer, or a fast tokenizer; "words" (the
            default) for words as white space parts them; "characters".
        mode: what stays. By default q_t, then q_1, then the newest messages, cut on the left between words; q_t is
            never lost: where it alone is too long its end is kept. Extra copies by ``repeat`` come after q_t and q_1.
            "tail": the newest messages, whatever they are, between words. "paper": what the code of Kim and Kim
            (2022) does: q_1 whole, and the last tokens of all the rest, q_t included, cut inside a word if need be; a
            long q_1 makes a query that is longer than the budget.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: a rewrite is missing (the qid is named), or options contradict each other.

    Example:
        >>> import pt_convsearch as cs
        >>> topics = cs.topics.from_messages([[
        ...     {"role": "user", "content": "Who wrote Dune?"}, {"role": "assistant", "content": "Herbert."},
        ...     {"role": "user", "content": "When?"}]])
        >>> cs.form(cs.X)(topics)["query"].tolist()
        ['Who wrote Dune?', 'Who wrote Dune? Herbert. When?']
        >>> cs.form(cs.X, sep=" [SEP] ", max_tokens=3)(topics)["query"][1]
        'Dune? [SEP] When?'

    Sources: Kim and Kim (2022) for X_t and its ablations, and for the budget; Penha and Hauff for [U] and [T].
    """

    def __init__(
        self,
        parts: Parts | Callable[[dict[str, Any]], str | list[Message]],
        sep: separators.Separator = " ",
        repeat: Mapping[Parts, int] | None = None,
        max_tokens: int | None = None,
        tokenizer: Any = None,
        mode: str | None = None,
    ) -> None:
        if not isinstance(parts, Parts) and not callable(parts):
            raise TypeError(f"parts is {parts!r}: give an expression such as cs.X - cs.CURRENT, or a function of a row")
        if isinstance(parts, pt.Transformer | type):
            raise TypeError(f"parts is {parts!r}, which is no choice of parts: pipelines are joined with >>")
        self.parts = parts
        self.sep = separators.checked(sep)
        self.repeat = _checked_repeat(repeat, parts)
        if max_tokens is not None and (
            isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer) or max_tokens < 1
        ):
            raise ValueError(f"max_tokens is {max_tokens!r}: give a whole number of tokens, 1 or more")
        if mode not in (None, "tail", "paper"):
            raise ValueError(f"mode is {mode!r}: give None, 'tail' or 'paper'")
        if max_tokens is None and (tokenizer is not None or mode is not None):
            raise ValueError("tokenizer and mode say how a query is cut: give max_tokens as well")
        self.max_tokens = max_tokens if max_tokens is None else int(max_tokens)
        self.tokenizer = tokenizer
        self.mode = mode
        # made when first used, and anew where pt.GridScan has set another option since
        self._budget: tuple[tuple[Any, ...], Budget] | None = None

    @property
    def label(self) -> str:  # type: ignore[override]
        """What schematics show: as much of the form as their boxes hold."""
        parts = repr(self)[5:-1] if not isinstance(self.parts, Parts) else repr(self.parts)
        shown = (repr(self), f"form({parts})", parts)
        return next((text for text in shown if len(text) <= _LABEL), f"{parts[: _LABEL - 1]}…")

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        frame = self._checked(inp)
        utterances = _utterances(frame)
        if isinstance(self.parts, Parts) and self.parts.needs_history:
            _warn_of_repeats(frame["qid"], utterances, frame["qhistory"].tolist())
        said = self._said(frame, utterances)
        formed = pt.model.push_queries(frame, keep_original=True)
        formed = formed.drop(columns=[column for column in _STALE if column in formed.columns])
        formed["qutterance"] = pd.Series(utterances, index=formed.index, dtype="str")
        if self.max_tokens is None:
            texts = [joined(row, self.sep) for row in said]
        else:
            texts, lost = self._cut(said)
            formed["qcut"] = pd.Series(lost, index=formed.index, dtype="int64")
        formed["query"] = pd.Series(texts, index=formed.index, dtype="str")
        named = separators.named(self.sep)
        if named is not None:
            formed[separators.COLUMN] = pd.Series([named] * len(formed), index=formed.index, dtype=object)
        return formed

    def _checked(self, inp: pd.DataFrame) -> pd.DataFrame:
        needed = ["query"]
        if isinstance(self.parts, Parts):
            needed += ["qhistory"] if self.parts.needs_history else []
            needed += ["qrewrite"] if self.parts.rewrite else []
        try:
            pt.validate.query_frame(inp, needed, context=self)
        except pt.validate.InputValidationError as error:
            lacks = {column for mode in error.modes for column in mode.missing_columns}
            hint = (
                f" {MISSING}."
                if "qhistory" in lacks
                else " cs.REWRITE reads column 'qrewrite'."
                if "qrewrite" in lacks
                else ""
            )
            raise pt.validate.InputValidationError(f"{error.args[0]}{hint}", error.modes) from None
        frame = check_queries(inp, context=self)
        if "qhistory" in needed or (callable(self.parts) and "qhistory" in frame.columns):
            frame = frame.assign(qhistory=histories(frame["qhistory"], frame["qid"]))
        return frame

    def _said(self, frame: pd.DataFrame, utterances: list[str]) -> Iterator[Said]:
        """For each row, the messages that make its query."""
        parts = self.parts
        if not isinstance(parts, Parts):
            for record in frame.assign(query=utterances).to_dict("records"):
                yield _own(parts(record), record["qid"], parts)  # type: ignore[arg-type]
            return
        column = frame["qhistory"].tolist() if parts.needs_history else [[]] * len(frame)
        rewrites = _rewrites(frame) if parts.rewrite else None
        repeats = list(self.repeat.items()) if self.repeat else []
        for at, (utterance, history) in enumerate(zip(utterances, column, strict=True)):
            chosen, current = parts.choose(history)
            places, texts, roles = [], [], []
            for place in chosen:
                message = history[place]
                text = message["content"]
                if text and not text.isspace():
                    places.append(place)
                    texts.append(text)
                    roles.append(message["role"])
            first = _first(history, places)
            now = 0
            if current and utterance and not utterance.isspace():
                if not any(message["role"] == USER for message in history):
                    first = len(texts)
                places.append(len(history))
                texts.append(utterance)
                roles.append(USER)
                now = 1
            if rewrites is not None:
                places.append(-1)
                texts.append(rewrites[at])
                roles.append(USER)
                now += 1
            yield Said(texts, roles, first, now, _copies(repeats, history, places) if repeats else None)

    def _cut(self, said: Iterator[Said]) -> tuple[list[str], list[int]]:
        assert self.max_tokens is not None
        options = (self.max_tokens, self.tokenizer, self.sep, self.mode)
        if self._budget is None or self._budget[0] != options:
            self._budget = options, Budget(*options)
        texts: list[str] = []
        lost: list[int] = []
        while chunk := list(islice(said, _CHUNK)):
            some_texts, some_lost = self._budget[1].cut(chunk)
            texts += some_texts
            lost += some_lost
        cut = sum(count > 0 for count in lost)
        if cut:
            logger.info(
                "%d of %d queries cut to %d tokens, %d characters left out", cut, len(texts), self.max_tokens, sum(lost)
            )
        return texts, lost

    def _identity(self) -> tuple[Any, ...]:
        return self._settings(tokens.identity)

    def _contents(self) -> tuple[Any, ...]:
        return self._settings(tokens.contents)

    def _settings(self, told: Callable[[Any], Any]) -> tuple[Any, ...]:
        if self.max_tokens is None:
            return self.parts, self.sep, self.repeat
        return self.parts, self.sep, self.repeat, self.max_tokens, told(self.tokenizer), self.mode

    def __repr__(self) -> str:
        shown = [getattr(self.parts, "__qualname__", None) or repr(self.parts)]
        shown += [f"sep={self.sep!r}"] if self.sep != " " else []
        shown += [f"repeat={self.repeat!r}"] if self.repeat else []
        if self.max_tokens is not None:
            name = self.tokenizer
            if name is not None and not isinstance(name, str):
                name = getattr(name, "name_or_path", "") or type(name).__name__
            shown.append(f"max_tokens={self.max_tokens}")
            shown += [f"tokenizer={name!r}"] if name is not None else []
            shown += [f"mode={self.mode!r}"] if self.mode is not None else []
        return f"form({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        if not isinstance(self.parts, Parts):
            try:
                pickle.dumps(self.parts)
            except Exception as error:
                raise pickle.PicklingError(
                    f"{self!r} cannot be pickled, because its function cannot: define it at the top level of a module, "
                    f"not as a lambda or inside another function ({error})"
                ) from error
        return {**self.__dict__, "_budget": None}


#: what pipelines are written with
form = Form


def _checked_repeat(repeat: Mapping[Parts, int] | None, parts: Any) -> dict[Parts, int] | None:
    if not repeat:
        return None
    if not isinstance(repeat, Mapping):
        raise TypeError(f"repeat is {repeat!r}: give a dict of parts and numbers, e.g. {{cs.CURRENT: 3}}")
    if not isinstance(parts, Parts):
        raise ValueError("repeat goes with an expression over parts; a function says by itself what it says twice")
    for part, times in repeat.items():
        if (
            not isinstance(part, Parts)
            or isinstance(times, bool)
            or not isinstance(times, int | np.integer)
            or times < 1
        ):
            raise ValueError(f"repeat holds {part!r}: {times!r}: give a part and how often it is said, 1 or more")
        if not part & parts:
            raise ValueError(f"repeat holds {part!r}, of which {parts!r} says nothing")
    return {part: int(times) for part, times in repeat.items() if times > 1} or None


def _utterances(frame: pd.DataFrame) -> list[str]:
    """q_t as it was said: ``qutterance`` where a former has been here before, else ``query``."""
    queries: list[str] = frame["query"].tolist()
    if "qutterance" not in frame.columns:
        return queries
    return [
        said if isinstance(said, str) else query
        for said, query in zip(frame["qutterance"].tolist(), queries, strict=True)
    ]


def _rewrites(frame: pd.DataFrame) -> list[str]:
    rewrites = frame["qrewrite"].tolist()
    missing = [not isinstance(rewrite, str) or _blank(rewrite) for rewrite in rewrites]
    if any(missing):
        raise ValueError(
            f"{sum(missing)} rows have no qrewrite (qid {first_three(frame['qid'][missing])}): leave them out, or "
            "choose parts without cs.REWRITE"
        )
    return rewrites


def _warn_of_repeats(qids: pd.Series, utterances: list[str], column: list[list[Message]]) -> None:
    found = [
        qid
        for qid, utterance, history in zip(qids.tolist(), utterances, column, strict=True)
        if history and history[-1]["content"] == utterance and utterance
    ]
    if found:
        warnings.warn(
            f"{len(found)} of {len(qids)} histories end with their own question (qid {first_three(found)}): qhistory "
            "ends before q_t. Nothing was changed: people do repeat themselves",
            stacklevel=3,
        )


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _first(history: list[Message], places: list[int]) -> int:
    """Where the first question stands among the chosen messages; -1 if nowhere."""
    for at, place in enumerate(places):
        if history[place]["role"] == USER:
            return -1 if any(message["role"] == USER for message in history[:place]) else at
    return -1


def _copies(repeats: list[tuple[Parts, int]], history: list[Message], places: list[int]) -> list[int]:
    """How often each chosen message is said: ``places`` index the history, then q_t, -1 for the rewrite."""
    copies = [1] * len(places)
    for part, times in repeats:
        chosen, current = part.choose(history)
        said = {*chosen, *([len(history)] if current else []), *([-1] if part.rewrite else [])}
        for at, place in enumerate(places):
            if place in said:
                copies[at] = max(copies[at], times)
    return copies


def _own(said: Any, qid: str, function: Any) -> Said:
    """What a user's function returned."""
    if isinstance(said, str):
        return Said([said] if said.strip() else [], [USER] if said.strip() else [], now=1 if said.strip() else 0)
    if isinstance(said, list | tuple) and all(
        isinstance(message, dict) and isinstance(message.get("content"), str) for message in said
    ):
        kept = [message for message in said if not _blank(message["content"])]
        return Said([message["content"] for message in kept], [message.get("role", USER) for message in kept])
    name = getattr(function, "__qualname__", repr(function))
    raise TypeError(f"{name} returned {said!r} for qid {qid!r}: give the query as a str, or a list of messages")
