"""Conversational query rewriting by a sequence-to-sequence or causal model."""

from __future__ import annotations

import os
from typing import Any

import pandas as pd

from pt_convsearch._files import PathLike
from pt_convsearch.forming import Form, Parts, X, form
from pt_convsearch.forming.separators import Separator
from pt_convsearch.rewriting.answer_cache import AnswerCache, content_key
from pt_convsearch.rewriting.generation import Decoding, generate
from pt_convsearch.rewriting.models import Generator, load_generator, parts_from
from pt_convsearch.rewriting.rewriting_stage import RewritingStage, Turn, Written

_DEFAULT = {"sep": " ||| ", "prefix": "", "suffix": "", "max_input_length": 512}


class Rewriter(RewritingStage):
    """Rewrites q_t into a question that stands alone, by any generating model (Q -> Q).

    Input columns: ``qid``, ``query``, ``qhistory``. Output columns: all of them; the rewrite in ``query``, the former
    query in ``query_0``, q_t as it was said in ``qutterance``; with ``num_rewrites`` above 1 also ``qrewrites`` (a list
    of distinct rewrites, the best first; ``query`` is the first) and ``qrewrite_weights`` (theirs, summing to 1: shares
    of probability of a beam, or of the draws), for :class:`NthRewrite` and :class:`RewriteTerms`.

    The model reads parts of the conversation, joined by ``sep`` and cut to ``max_input_length`` tokens so that q_t,
    then q_1, then the newest messages stay. Inputs run in batches of similar length, each distinct input once. Where
    the model writes nothing, q_t stays; how often is in the log and in :attr:`counts`. A first turn stays as it was
    said unless ``first_turns``.

    Args:
        model: a folder (one that ``cs.train_rewriter`` wrote brings its own settings), a name on the hub such as
            "castorini/t5-base-canard", or a transformers model: an encoder-decoder (T5, BART, an EncoderDecoderModel)
            or a causal model (GPT-2).
        sep: what stands between messages; as trained, else " ||| " (NTR).
        parts: what the model reads: an expression over parts; as trained, else ``cs.X``. ``cs.QUESTIONS`` for models
            that were trained on questions alone.
        prefix: text before the input, such as a task's name; as trained, else "".
        suffix: text after the input: for causal models, the mark after which the rewrite begins; as trained, else "".
        num_rewrites: rewrites per question.
        num_beams: width of the beam search; 1 is greedy, and several times as fast.
        sample: draw rewrites in place of the beam search.
        temperature, top_k, top_p: of the draws; by default from the whole distribution.
        max_new_tokens: the most tokens of a rewrite.
        max_input_length: the most tokens the model reads; as trained, else 512, and what the model's positions allow.
        seed: of the draws. They depend on the seed and the input alone: one row or a million give equal rewrites.
        first_turns: rewrite first turns as well.
        cache: a file of JSON lines where rewrites are kept, by the model's weights, the settings and the input. A run
            that was killed goes on from there.
        tokenizer: of a model that does not bring one.
        batch_size: inputs in the model at a time.
        precision: "auto": bfloat16 on a GPU that has it, else float32; "bf16", "fp32".
        device: None: a GPU where there is one.
        verbose: show progress.

    Raises:
        ValueError: the model cannot write text, or options contradict each other.
        OSError: the model is not found.
        pt.validate.InputValidationError: ``qhistory`` is missing.

    Example:
        >>> rewriter = cs.Rewriter("castorini/t5-base-canard", parts=cs.QUESTIONS, cache="ntr.jsonl")
        >>> pipeline = rewriter >> index.bm25(num_results=100)

    Sources: NTR, a T5 fine-tuned on CANARD (Lin et al., "Multi-stage conversational passage retrieval", 2020): turns
        joined by " ||| ", a beam of 10, 64 tokens; GPT2QR (Yu et al., "Few-shot generative conversational query
        rewriting", SIGIR 2020) for causal models.
    """

    def __init__(
        self,
        model: Any,
        *,
        sep: Separator | None = None,
        parts: Parts | None = None,
        prefix: str | None = None,
        suffix: str | None = None,
        num_rewrites: int = 1,
        num_beams: int = 10,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        max_new_tokens: int = 64,
        max_input_length: int | None = None,
        seed: int = 1,
        first_turns: bool = False,
        cache: PathLike | None = None,
        tokenizer: Any = None,
        batch_size: int = 16,
        precision: str = "auto",
        device: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.sep, self.parts, self.prefix, self.suffix = sep, parts, prefix, suffix
        self.num_rewrites, self.num_beams = num_rewrites, num_beams
        self.sample, self.temperature, self.top_k, self.top_p = sample, temperature, top_k, top_p
        self.max_new_tokens, self.max_input_length = max_new_tokens, max_input_length
        self.seed = seed
        self.first_turns = first_turns
        self.cache = cache
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.precision = precision
        self.device = device
        self.verbose = verbose
        #: questions rewritten, answered from the cache, left as they were for want of a rewrite, and inputs cut
        self.counts = {"rewritten": 0, "from cache": 0, "empty": 0, "cut": 0}
        self._generator: Generator | None = None
        self._hash: str | None = None
        self._former: tuple[Any, Form] | None = None
        self._answers = None if cache is None else AnswerCache(cache)
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: give at least 1")
        self.decoding()
        self._settings()

    # -- the model and its settings

    def generator(self) -> Generator:
        """The model with its tokenizer, loaded once."""
        if self._generator is None:
            self._generator = load_generator(
                self.model, tokenizer=self.tokenizer, device=self.device, precision=self.precision
            )
        return self._generator

    def decoding(self) -> Decoding:
        """How rewrites are written, as the options now say."""
        return Decoding(
            self.num_rewrites, self.num_beams, self.sample, self.temperature, self.top_k, self.top_p,
            self.max_new_tokens, self.seed
        ).checked()  # fmt: skip

    def _settings(self) -> dict[str, Any]:
        """How inputs are made: as given, else as trained, else the defaults."""
        generator = self.generator()
        trained = dict(generator.trained_with)
        if "parts" in trained:
            trained["parts"] = parts_from(trained["parts"])
        settings = {"parts": X, **_DEFAULT, **trained}
        for name in settings:
            given = getattr(self, name, None)
            settings[name] = settings[name] if given is None else given
        longest = generator.longest()
        if longest is not None:
            room = longest if generator.seq2seq else longest - self.max_new_tokens
            settings["max_input_length"] = min(settings["max_input_length"], room)
            if settings["max_input_length"] < 1:
                raise ValueError(
                    f"max_new_tokens={self.max_new_tokens} leaves no room for the input: "
                    f"the model has {longest} positions"
                )
        return settings

    def inputs(self, topics: pd.DataFrame) -> pd.DataFrame:
        """What the model reads of each question: the topics with the input in ``query``, and ``qcut``, the characters
        that had to be left out."""
        settings = self._settings()
        tokenizer = self.generator().tokenizer
        around = settings["prefix"] + settings["suffix"]
        room = settings["max_input_length"]
        if around:  # pieces may part otherwise where texts meet
            room -= len(tokenizer(around, add_special_tokens=False)["input_ids"]) + 2
        about = (settings["parts"], settings["sep"], room)
        if self._former is None or self._former[0] != about:  # it remembers the pieces of words
            former = form(settings["parts"], sep=settings["sep"], max_tokens=room, tokenizer=tokenizer)
            self._former = about, former
        formed = self._former[1].transform(topics)
        return formed.assign(query=settings["prefix"] + formed["query"] + settings["suffix"])

    # -- rewriting

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        self.decoding()  # GridScan sets attributes
        return super().transform(inp)

    def _rewrite(self, turns: list[Turn], frame: pd.DataFrame) -> list[Written]:
        read = self.inputs(frame)
        self.counts["cut"] += int((read["qcut"] > 0).sum())
        found = self.write(read["query"].tolist())
        return [found[text] for text in read["query"]]

    def write(self, texts: list[str]) -> dict[str, Written]:
        """What the model writes for inputs as it reads them, from the cache where that knows them."""
        from tqdm.auto import tqdm

        distinct = list(dict.fromkeys(texts))
        settings, decoding = self._settings(), self.decoding()
        found: dict[str, Written] = {}
        keys: dict[str, str] = {}
        if self._answers is not None:
            about = [self._identity_of_model(), vars(decoding), settings["max_input_length"]]
            keys = {text: content_key(*about, text) for text in distinct}
            known = self._answers.get(keys.values())
            found = {
                text: [tuple(pair) for pair in known[key]["written"]] for text, key in keys.items() if key in known
            }
            self.counts["from cache"] += len(found)
        missing = [text for text in distinct if text not in found]
        with tqdm(total=len(missing), desc="rewriting", unit="question", disable=not self.verbose) as bar:

            def done(rows: list[int], written: list[Written]) -> None:
                bar.update(len(rows))
                if self._answers is not None:
                    self._answers.put(
                        {"key": keys[missing[row]], "input": missing[row], "written": some}
                        for row, some in zip(rows, written, strict=True)
                    )

            if missing:
                written = generate(
                    self.generator(), missing, decoding, max_input_length=settings["max_input_length"],
                    batch_size=self.batch_size, done=done,
                )  # fmt: skip
                found.update(zip(missing, written, strict=True))
        return found

    # -- identity

    def _identity_of_model(self) -> str:
        if self._generator is not None or self._hash is None:
            self._hash = self.generator().identity()
        return self._hash

    def _identity(self) -> tuple[Any, ...]:
        settings = self._settings()
        return (self._identity_of_model(), *vars(self.decoding()).items(), *sorted(settings.items()), self.first_turns)

    def __repr__(self) -> str:
        shown = [
            repr(os.fspath(self.model))
            if isinstance(self.model, str | os.PathLike)
            else f"<{type(self.model).__name__}>"
        ]
        defaults = {"num_rewrites": 1, "num_beams": 10, "sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0,
                    "max_new_tokens": 64, "seed": 1, "first_turns": False}  # fmt: skip
        for name in ("sep", "parts", "prefix", "suffix", "max_input_length", *defaults):
            value = getattr(self, name)
            if value != defaults.get(name):
                shown.append(f"{name}={value!r}")
        return f"Rewriter({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        """A model that has a name travels by its name, and is loaded anew where it is first used."""
        self._identity_of_model()
        if isinstance(self.model, str | os.PathLike):
            return {**self.__dict__, "_generator": None, "_former": None}
        return {**self.__dict__, "_former": None}

    def subtransformers(self) -> dict[str, Any]:
        return {}
