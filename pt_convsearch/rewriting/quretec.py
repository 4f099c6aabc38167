"""Query resolution by term classification: a tagger says which words of the history belong to the question."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch import _files
from pt_convsearch._process import quiet
from pt_convsearch.dense.encoding import autocast, has_bf16, positions
from pt_convsearch.dense.weights import _VOLATILE, _tokenizer, tower_hash
from pt_convsearch.forming import Parts, X
from pt_convsearch.rewriting.answer_cache import content_key
from pt_convsearch.rewriting.models import parts_from
from pt_convsearch.rewriting.rewriting_stage import RewritingStage, Turn, Written
from pt_convsearch.rewriting.words import STOPWORDS, folded, words

#: what ``cs.train_quretec`` leaves in a model's folder
SETTINGS = "quretec.json"


class QuReTeC(RewritingStage):
    """Adds to q_t the terms of the history that a token classifier picks (Q -> Q).

    The classifier reads the history's words and q_t; the first piece of each word of the history carries the word's
    label. Words with a probability above ``threshold`` are added behind q_t, in the order of the conversation, each
    once, those that q_t holds already left out. What does not fit is left out: q_t stays, then q_1, then the newest
    messages. A question to which nothing is to be added stays as it is.

    Input columns: ``qid``, ``query``, ``qhistory``. Output columns: all of them; the resolved query in ``query``, the
    former one in ``query_0``, q_t in ``qutterance``. First turns stay as they are.

    Args:
        model: a folder that ``cs.train_quretec`` wrote, or any token classifier of two labels, the second of which is
            "add this word"; or the model itself.
        tokenizer: of a model that is given as an object.
        parts: whose words may be added: as trained, else ``cs.X``.
        threshold: the least probability of a word that is added.
        max_length: the most tokens the classifier reads: as trained, else 300, and what its positions allow.
        batch_size: questions in the model at a time.
        bf16: run in bfloat16; None: where the processor has it.
        device: None: a GPU where there is one.
        verbose: show progress.

    Raises:
        ValueError: the model does not have two labels, or its tokenizer is no fast one.
        OSError: the model is not found.

    Example:
        >>> cs.QuReTeC("quretec-qrecc") >> index.bm25(num_results=100)  # doctest: +SKIP

    Source: Voskarides et al., "Query resolution for conversational search with limited supervision" (SIGIR 2020).
    """

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        parts: Parts | None = None,
        threshold: float = 0.5,
        max_length: int | None = None,
        batch_size: int = 16,
        bf16: bool | None = None,
        device: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.parts = parts
        self.threshold = threshold
        self.max_length = max_length
        self.batch_size = batch_size
        self.bf16 = bf16
        self.device = device
        self.verbose = verbose
        #: questions that terms were added to or not, and those of which the history was cut
        self.counts = {"rewritten": 0, "empty": 0, "terms": 0, "cut": 0}
        self._loaded: tuple[Any, Any, dict[str, Any]] | None = None
        self._hash: str | None = None
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold={threshold}: a probability")
        self._load()

    def _load(self) -> tuple[Any, Any, dict[str, Any]]:
        if self._loaded is None:
            self._loaded = _load(self.model, self.tokenizer, self.device)
        return self._loaded

    def _settings(self) -> tuple[Parts, int]:
        model, _, trained = self._load()
        parts = self.parts or (parts_from(trained["parts"]) if "parts" in trained else X)
        longest = positions(model.config) or 10**9
        return parts, min(self.max_length or trained.get("max_length", 300), longest)

    def _rewrite(self, turns: list[Turn], frame: pd.DataFrame) -> list[Written]:
        from tqdm.auto import tqdm

        _, tokenizer, _ = self._load()
        parts, max_length = self._settings()
        read = [Reading.of(turn, parts, tokenizer, max_length) for turn in turns]
        self.counts["cut"] += sum(reading.cut for reading in read)
        order = np.argsort([-len(reading.input_ids) for reading in read], kind="stable")
        queries: list[Written] = [[] for _ in turns]
        for start in tqdm(range(0, len(order), self.batch_size), desc="QuReTeC", disable=not self.verbose):
            rows = order[start : start + self.batch_size].tolist()
            for row, probabilities in zip(rows, self._probabilities([read[row] for row in rows]), strict=True):
                added = _added(turns[row].question, read[row].history, probabilities, self.threshold)
                self.counts["terms"] += len(added)
                queries[row] = [(" ".join([turns[row].question, *added]), 1.0)]
        return queries

    def _probabilities(self, read: list[Reading]) -> list[np.ndarray]:
        """For each reading, the probability that each word of its history is to be added."""
        import torch

        model, tokenizer, _ = self._load()
        device = next(model.parameters()).device
        bf16 = has_bf16(device) if self.bf16 is None else self.bf16
        inputs = tokenizer.pad(
            {"input_ids": [reading.input_ids for reading in read]}, padding=True, return_tensors="pt"
        )
        with torch.inference_mode(), autocast(device, bf16):
            logits = model(**inputs.to(device)).logits
        found = torch.softmax(logits.float(), dim=-1)[:, :, 1].cpu().numpy()
        return [row[reading.first_pieces] for row, reading in zip(found, read, strict=True)]

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        return (self._model_hash(), *self._settings(), self.threshold)

    def _model_hash(self) -> str:
        if self._loaded is not None or self._hash is None:
            model, tokenizer, _ = self._load()
            config = {key: value for key, value in model.config.to_diff_dict().items() if key not in _VOLATILE}
            shown = json.loads(json.dumps([config, _tokenizer(tokenizer)], default=str))
            self._hash = content_key(tower_hash(model), shown)
        return self._hash

    def __repr__(self) -> str:
        name = (
            repr(os.fspath(self.model))
            if isinstance(self.model, str | os.PathLike)
            else f"<{type(self.model).__name__}>"
        )
        shown = [name] + ([f"parts={self.parts!r}"] if self.parts else [])
        shown += [f"threshold={self.threshold}"] if self.threshold != 0.5 else []
        shown += [f"max_length={self.max_length}"] if self.max_length else []
        return f"QuReTeC({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded anew where it is first used."""
        self._model_hash()
        named = isinstance(self.model, str | os.PathLike)
        return {**self.__dict__, "_loaded": None} if named else dict(self.__dict__)

    def subtransformers(self) -> dict[str, Any]:
        return {}


class Reading:
    """What the classifier reads of one question.

    Attributes:
        input_ids: [CLS] history [SEP] q_t [SEP].
        history: the words of the history that are read, in order.
        first_pieces: where the first piece of each of them stands.
        cut: whether words of the history were left out.
    """

    def __init__(self, input_ids: list[int], history: list[str], first_pieces: list[int], cut: bool) -> None:
        self.input_ids = input_ids
        self.history = history
        self.first_pieces = first_pieces
        self.cut = cut

    @classmethod
    def of(cls, turn: Turn, parts: Parts, tokenizer: Any, max_length: int) -> Reading:
        """The reading of a question, in at most ``max_length`` tokens: q_t, then q_1, then the newest words."""
        start, end = (
            [tokenizer.cls_token_id or tokenizer.bos_token_id],
            [tokenizer.sep_token_id or tokenizer.eos_token_id],
        )
        places, _ = parts.choose(turn.history)
        messages = [words(turn.history[place]["content"]) for place in places]
        pieces = _pieces([word for said in messages for word in said], tokenizer)
        question = [piece for word in _pieces(words(turn.question), tokenizer) for piece in word]
        room = max(0, max_length - 3)
        question = question[max(0, len(question) - room) :]
        kept = _within(pieces, room - len(question), first=len(messages[0]) if messages else 0)
        history = [word for said in messages for word in said]
        ids, firsts = list(start), []
        for at in kept:
            firsts.append(len(ids))
            ids += pieces[at]
        return cls([*ids, *end, *question, *end], [history[at] for at in kept], firsts, len(kept) < len(history))


def _pieces(some: list[str], tokenizer: Any) -> list[list[int]]:
    """The pieces of each word as it stands within a text, where words have a blank before them."""
    if not some:
        return []
    blank = "" if _parts_words(tokenizer) else " "
    found = tokenizer([blank + word for word in some], add_special_tokens=False)["input_ids"]
    unknown = [tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.pad_token_id]
    return [list(ids) or unknown for ids in found]


def _parts_words(tokenizer: Any) -> bool:
    """Whether the tokenizer parts words before anything else, as BERT's does, so that blanks are nothing to it."""
    kind = json.loads(tokenizer.backend_tokenizer.to_str()).get("pre_tokenizer") or {}
    return kind.get("type") in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")


def _within(pieces: list[list[int]], room: int, first: int) -> list[int]:
    """Which words stay: those of the first message, then the newest, as many as there is room for."""
    chosen = []
    for at in [*range(first), *range(len(pieces) - 1, first - 1, -1)]:
        room -= len(pieces[at])
        if room < 0:
            break
        chosen.append(at)
    return sorted(chosen)


def _added(question: str, history: list[str], probabilities: np.ndarray, threshold: float) -> list[str]:
    known = {folded(word) for word in words(question)}
    added = []
    for word, probability in zip(history, probabilities.tolist(), strict=True):
        if probability > threshold and folded(word) not in known:
            known.add(folded(word))
            added.append(word)
    return added


def labels(question: str, history: list[str], rewrite: str) -> list[int]:
    """For each word of the history, whether the rewrite has it and q_t has not: 1 for a word to be added. Stop words
    are never added.

    >>> labels("When was it published?", ["Who", "wrote", "Dune"], "When was Dune published?")
    [0, 0, 1]
    """
    wanted = {folded(word) for word in words(rewrite)} - {folded(word) for word in words(question)} - STOPWORDS
    return [int(folded(word) in wanted) for word in history]


def _load(model: Any, tokenizer: Any, device: Any) -> tuple[Any, Any, dict[str, Any]]:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        with quiet():
            loaded, found = AutoModelForTokenClassification.from_pretrained(name, output_loading_info=True)
        if found["missing_keys"]:
            raise ValueError(
                f"{name} is no token classifier ({found['missing_keys']} are missing): train one by cs.train_quretec"
            )
    else:
        name, loaded = getattr(model, "name_or_path", "") or "", model
    if loaded.config.num_labels != 2:
        raise ValueError(
            f"the classifier has {loaded.config.num_labels} labels: two are needed, the second for words to be added"
        )
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or name)
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} is no fast tokenizer")
    trained = _files.read_settings(Path(name) / SETTINGS) if name else {}
    return loaded.to(place).eval(), copy.deepcopy(tokenizer), trained
