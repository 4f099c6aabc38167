"""Negatives that nobody wrote: replies generated for the context."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pt_convsearch._results import results_frame
from pt_convsearch._stage import Stage
from pt_convsearch.topics.checks import check_queries

from ._texts import normalise

if TYPE_CHECKING:
    from pt_convsearch.rewriting.models import Generator


class GeneratedNegatives(Stage):
    """A retriever that writes its passages: any text-generation model of transformers replies to the query.

    Penha & Hauff's experiment E6. The replies are in no collection: give their texts to :func:`training_pairs` with
    the corpus, ``[*corpus, *miner.documents(topics)]``. A reply depends on the query, the model and the seed alone,
    and is written once as long as the object lives. A reply of the words of another counts once, an empty one not
    at all; a question with an empty query gets none.

    Input: qid, query. Output: the topics' columns and docno ("generated-" and a hash of the text), score (falling
    from ``num_results``), rank, text.

    Args:
        model: a folder, a name on the hub or a transformers model: causal (GPT-2, DialoGPT) or an encoder-decoder.
        num_results: replies per question.
        seed: another seed draws others.
        top_k: the most likely tokens that are drawn from; 0: all.
        top_p: the likeliest tokens that hold this much of the chances are drawn from.
        temperature: scores are divided by it.
        prompt: what the model reads; ``{query}`` stands for the query.
        max_input_length: tokens of the input; of a longer query the end is read.
        max_new_tokens: tokens of a reply.
        tokenizer: of a model that does not bring one.
        precision, device: as in ``cs.Rewriter``.
        batch_size: questions that are in the model at a time.

    Raises:
        ValueError: options out of range, a model that cannot generate.
        OSError: the model is not found.

    Example:
        >>> miner = cs.form(cs.X) >> cs.GeneratedNegatives("microsoft/DialoGPT-small")
        >>> corpus = [*task.corpus, *miner[-1].documents(cs.form(cs.X)(task.topics))]
        >>> pairs = cs.training_pairs(task.topics, task.qrels, corpus, form=cs.X, negatives=miner)
    """

    def __init__(
        self,
        model: Any,
        *,
        num_results: int = 10,
        seed: int = 1,
        top_k: int = 10,
        top_p: float = 1.0,
        temperature: float = 1.0,
        prompt: str = "{query}",
        max_input_length: int = 256,
        max_new_tokens: int = 64,
        tokenizer: Any = None,
        precision: str = "auto",
        device: str | None = None,
        batch_size: int = 16,
    ) -> None:
        for name, value in (("num_results", num_results), ("max_input_length", max_input_length),
                            ("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):  # fmt: skip
            if value < 1:
                raise ValueError(f"{name}={value}: give at least 1")
        if "{query}" not in prompt:
            raise ValueError(f"prompt={prompt!r}: it must say where the query goes, {{query}}")
        self.model = model
        self.num_results = num_results
        self.seed = seed
        self.top_k = top_k
        self.top_p = top_p
        self.temperature = temperature
        self.prompt = prompt
        self.max_input_length = max_input_length
        self.max_new_tokens = max_new_tokens
        self.tokenizer = tokenizer
        self.precision = precision
        self.device = device
        self.batch_size = batch_size
        self._decoding().checked()
        self._replies: dict[str, list[str]] = {}
        self._loaded: tuple[Generator, str] | None = None

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        topics = check_queries(topics, context=self)
        replies = self._write([query if query.strip() else "" for query in topics["query"]])
        counts = [len(texts) for texts in replies]
        texts = list(itertools.chain.from_iterable(replies))
        scores = np.array([self.num_results - place for count in counts for place in range(count)], dtype=np.float64)
        found = results_frame(topics, counts, [_docno(text) for text in texts], scores)
        return found.assign(text=pd.array(texts, dtype="str"))

    def documents(self, topics: pd.DataFrame) -> list[dict[str, str]]:
        """The replies to questions as documents, docno and text, each once.

        Args:
            topics: formed as the miner's retriever sees them.
        """
        found = self.transform(topics)
        return [
            {"docno": docno, "text": text}
            for docno, text in dict(zip(found["docno"], found["text"], strict=True)).items()
        ]

    def _write(self, queries: list[str]) -> list[list[str]]:
        from pt_convsearch.rewriting.generation import generate

        fresh = [query for query in dict.fromkeys(queries) if query and query not in self._replies]
        if fresh:
            generator = self._load()[0]
            inputs = [self.prompt.replace("{query}", self._end_of(generator, query)) for query in fresh]
            written = generate(
                generator, inputs, self._decoding(), max_input_length=self.max_input_length, batch_size=self.batch_size
            )
            for query, some in zip(fresh, written, strict=True):
                by_words = {normalise(text): text for text, _ in reversed(some)}
                self._replies[query] = [text for text, _ in some if by_words[normalise(text)] == text]
        return [self._replies[query] if query else [] for query in queries]

    def _end_of(self, generator: Generator, query: str) -> str:
        """The end of a query that leaves room for the prompt."""
        tokenizer = generator.tokenizer
        own = len(tokenizer(self.prompt.replace("{query}", ""), verbose=False)["input_ids"])
        offsets = tokenizer(query, add_special_tokens=False, return_offsets_mapping=True, verbose=False)[
            "offset_mapping"
        ]
        room = max(1, self.max_input_length - own)
        return query if len(offsets) <= room else query[offsets[-room][0] :]

    def _decoding(self) -> Any:
        from pt_convsearch.rewriting.generation import Decoding

        return Decoding(
            num_rewrites=self.num_results, num_beams=1, sample=True, temperature=self.temperature, top_k=self.top_k,
            top_p=self.top_p, max_new_tokens=self.max_new_tokens, seed=self.seed,
        )  # fmt: skip

    def _load(self) -> tuple[Generator, str]:
        if self._loaded is None:
            from pt_convsearch.rewriting.models import load_generator

            generator = load_generator(
                self.model, tokenizer=self.tokenizer, device=self.device, precision=self.precision
            )
            self._loaded = generator, generator.identity()
        return self._loaded

    def _identity(self) -> tuple[Any, ...]:
        return (
            self._load()[1], self.num_results, self.seed, self.top_k, self.top_p, self.temperature, self.prompt,
            self.max_input_length, self.max_new_tokens,
        )  # fmt: skip

    def __repr__(self) -> str:
        shown = repr(self.model) if isinstance(self.model, str) else f"<{type(self.model).__name__}>"
        return f"GeneratedNegatives({shown}, num_results={self.num_results}, seed={self.seed})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}


def _docno(text: str) -> str:
    return f"generated-{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
