"""resp2ctxt: a response is expanded by contexts that it might be the answer to."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import pyterrier as pt

from pt_convsearch._files import PathLike
from pt_convsearch._stage import Stage
from pt_convsearch.topics.checks import first_three

from .model import load, trained_lengths

if TYPE_CHECKING:
    from pt_convsearch._content_cache import ContentCache
    from pt_convsearch.rewriting.models import Generator

    from .sampling import Sampling

logger = logging.getLogger(__name__)

#: what stands between a response and its expansions: white space that no tokenizer makes a term of, and that no text
#: holds by chance (an em, an en and an em space)
SEPARATOR = "\u2003\u2002\u2003"
#: lengths of the paper, in tokens
MAX_SOURCE_LENGTH, MAX_NEW_TOKENS = 100, 400


def source_of(docno: Any, text: Any, first: Any, text_field: str) -> str:
    """The text before any expansion: ``first`` (the document's text_0) where the text begins with it, as an expanded
    one does.

    Raises:
        ValueError: a text that is no str, or a ``first`` that is another text, which belongs to the user.
    """
    if not isinstance(text, str):
        raise ValueError(f"the {text_field} of docno {docno!r} is {text!r}: give a str ('' where there is none)")
    if not isinstance(first, str):
        return text.split(SEPARATOR, 1)[0]
    if text != first and not text.startswith(first + SEPARATOR):
        raise ValueError(
            f"{text_field}_0 of docno {docno!r} ({first!r:.60}) is not what its {text_field} ({text!r:.60}) was before "
            f"an expansion, which that name is kept for: rename the column {text_field}_0"
        )
    return first


class Resp2Ctxt(Stage):
    """Expands responses by generated contexts: a document transformer for the front of an index.

    For each text ``num_samples`` contexts are sampled from a sequence-to-sequence model that was trained to predict
    the context of a response (``cs.train_resp2ctxt``). BM25 then finds the response by words that only its context
    has, and weighs its own words by how often they are predicted (see :func:`expansion_terms`).

    A text's expansion depends on the text, the model, the seed and the lengths alone: not on the docno, the batch or
    the order of the collection, so equal responses get equal expansions and are generated once. On a CPU that holds to
    the letter; on a GPU, whose kernels follow the shape of a batch, as long as ``generation_batch_size`` stays.
    bfloat16 and float32 give different samples.

    Input columns: ``docno``, ``text``. Output: the same rows in the same order with all their columns, and
    ``expansion`` (str: the generated texts with :data:`SEPARATOR` between). With ``append`` the ``text`` is followed
    by its expansion, and ``text_0`` holds what it was: a second pass starts from there, and expands nothing twice. A
    blank text stays as it is, its expansion empty. Judge relevance by docno, before expansion.

    Args:
        model: a folder (of ``cs.train_resp2ctxt``, or any with an ``AutoModelForSeq2SeqLM``), a name on the hub, or a
            transformers model.
        num_samples: contexts per text.
        top_k: the most likely tokens that are drawn from; None: all.
        seed: another seed draws other contexts.
        max_source_length: tokens of the text that are read; None: as trained, else 100.
        max_new_tokens: tokens of a generated context; None: as trained, else 400.
        append: put the expansion behind the text; False: leave the text alone, and index both with
            ``cs.BM25Index(path, text_field=["expansion", "text"])``, whose text loader then gives the response alone.
        cache: a file that keeps what was generated, by content: a run that was killed goes on, a changed collection
            pays for its new texts only. None: nothing is kept.
        text_field: the column or key of the text.
        tokenizer: of a model that does not bring one.
        precision: "auto": bfloat16 where the processor has it; "bf16", "fp32". A transformers model stays as it is.
        device: "cpu" to leave a GPU alone; None: a GPU where there is one.
        batch_size: documents that are taken together and sorted by length.
        generation_batch_size: texts that are in the model at a time.
        verbose: show progress.

    Raises:
        pt.validate.InputValidationError: a column is missing.
        ValueError: a text that is no str, or a ``text_0`` that is no earlier text of it (the docno is named); an option
            out of range; or a checkpoint that is no sequence-to-sequence model or lacks weights.
        OSError: there is no such model.

    Example:
        >>> expander = cs.Resp2Ctxt("resp2ctxt-model", num_samples=3, top_k=10, max_new_tokens=20)
        >>> expanded = (expander >> cs.BM25Index("expanded.bm25")).index(task.corpus[:9])

    Source: Penha and Hauff (full-rank retrieval of responses for dialogues): resp2ctxt and resp2ctxt_lu; after
    docTTTTTquery (Nogueira and Lin, 2019).
    """

    def __init__(
        self,
        model: Any,
        *,
        num_samples: int = 3,
        top_k: int | None = 10,
        seed: int = 1,
        max_source_length: int | None = None,
        max_new_tokens: int | None = None,
        append: bool = True,
        cache: PathLike | None = None,
        text_field: str = "text",
        tokenizer: Any = None,
        precision: Literal["auto", "bf16", "fp32"] = "auto",
        device: str | None = None,
        batch_size: int = 4096,
        generation_batch_size: int = 32,
        verbose: bool = False,
    ) -> None:
        for name, value in (("num_samples", num_samples), ("top_k", top_k), ("max_source_length", max_source_length),
                            ("max_new_tokens", max_new_tokens), ("batch_size", batch_size),
                            ("generation_batch_size", generation_batch_size)):  # fmt: skip
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
                raise ValueError(f"{name}={value!r}: a whole number from 1 on")
        if precision not in ("auto", "bf16", "fp32"):
            raise ValueError(f"precision={precision!r}: 'auto', 'bf16' or 'fp32'")
        self.model = model
        self.num_samples = num_samples
        self.top_k = top_k
        self.seed = seed
        self.max_source_length = max_source_length
        self.max_new_tokens = max_new_tokens
        self.append = append
        self.cache = cache
        self.text_field = text_field
        self.tokenizer = tokenizer
        self.precision = precision
        self.device = device
        self.batch_size = batch_size
        self.generation_batch_size = generation_batch_size
        self.verbose = verbose
        self._loaded: tuple[Generator, str] | None = None

    # -- the stage

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["docno", self.text_field], context=self)
        source_field = f"{self.text_field}_0"
        known = inp[source_field].tolist() if source_field in inp.columns else [None] * len(inp)
        sources = [
            self._source(docno, text, first)
            for docno, text, first in zip(inp["docno"], inp[self.text_field], known, strict=True)
        ]
        expansions: list[list[str]] = []
        for start in range(0, len(sources), self.batch_size):
            expansions += self._expand(sources[start : start + self.batch_size])
        out = inp.copy()
        if self.append:
            texts = [SEPARATOR.join([source, *said]) for source, said in zip(sources, expansions, strict=True)]
            out[self.text_field] = pd.Series(texts, index=out.index, dtype="str")
            out[source_field] = pd.Series(sources, index=out.index, dtype="str")
        out["expansion"] = pd.Series([SEPARATOR.join(said) for said in expansions], index=out.index, dtype="str")
        return out

    def transform_iter(self, inp: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same over a stream of dicts, ``batch_size`` at a time; each keeps its keys."""
        documents = iter(inp)
        while chunk := list(itertools.islice(documents, self.batch_size)):
            for document in chunk:
                if "docno" not in document or self.text_field not in document:
                    raise ValueError(
                        f"a document ({document.get('docno', document)!r:.60}) has no docno or no {self.text_field!r}"
                    )
            source_field = f"{self.text_field}_0"
            sources = [
                self._source(document["docno"], document[self.text_field], document.get(source_field))
                for document in chunk
            ]
            for document, source, said in zip(chunk, sources, self._expand(sources), strict=True):
                added = {"expansion": SEPARATOR.join(said)}
                if self.append:
                    added |= {self.text_field: SEPARATOR.join([source, *said]), source_field: source}
                yield {**document, **added}

    def _source(self, docno: Any, text: Any, first: Any) -> str:
        return source_of(docno, text, first, self.text_field)

    # -- generating

    def expand(self, texts: Sequence[str]) -> list[list[str]]:
        """The generated contexts of each text: ``num_samples`` of them, fewer where one came out empty, none for a
        blank text."""
        return self._expand([self._source(number, text, None) for number, text in enumerate(texts)])

    def _expand(self, sources: list[str]) -> list[list[str]]:
        wanted = list(dict.fromkeys(source for source in sources if source.strip()))
        if not wanted:
            return [[] for _ in sources]
        from tqdm.auto import tqdm

        from .sampling import generate

        generator = self._load()[0]
        cache = self._cache()
        known: dict[str, list[str]] = {}
        if cache is not None:
            known = {text: texts for (text,), texts in cache.find([(text,) for text in wanted]).items()}
            logger.info("%d of %d texts were in %s", len(known), len(wanted), cache.path)
        fresh = [source for source in wanted if source not in known]
        with tqdm(total=len(fresh), desc="expanding", unit="text", disable=not self.verbose) as bar:
            for rows, said in generate(generator, fresh, self._sampling(), batch_size=self.generation_batch_size):
                found = [(fresh[row], [text for text in texts if text]) for row, texts in zip(rows, said, strict=True)]
                if cache is not None:
                    cache.add(((text,), texts) for text, texts in found)
                known.update(found)
                bar.update(len(found))
        empty = [source for source in fresh if not known[source]]
        if empty:
            logger.warning("%d texts got an empty expansion (%s)", len(empty), first_three(text[:30] for text in empty))
        return [known.get(source, []) for source in sources]

    def _sampling(self) -> Sampling:
        from .sampling import Sampling

        source, target = trained_lengths(self.model)
        return Sampling(
            self.num_samples,
            self.top_k,
            self.seed,
            self.max_source_length or source or MAX_SOURCE_LENGTH,
            self.max_new_tokens or target or MAX_NEW_TOKENS,
        )

    def _load(self) -> tuple[Generator, str]:
        if self._loaded is None:
            generator = load(self.model, tokenizer=self.tokenizer, precision=self.precision, device=self.device)
            self._loaded = generator, generator.identity()
        return self._loaded

    def fingerprint(self) -> str:
        """A hash of all that generated texts depend on besides the text: weights, tokenizer and settings."""
        settings = [self._load()[1], *vars(self._sampling()).values()]
        return hashlib.blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()

    def _cache(self) -> ContentCache | None:
        if self.cache is None:
            return None
        from pt_convsearch._content_cache import ContentCache

        return ContentCache(self.cache, self.fingerprint(), what="expansions")

    # -- identity

    def _identity(self) -> tuple[Any, ...]:
        return self.fingerprint(), self.append, self.text_field

    def __repr__(self) -> str:
        named = isinstance(self.model, str | os.PathLike)
        shown = repr(os.fspath(self.model)) if named else f"<{type(self.model).__name__}>"
        given = {
            "num_samples": (self.num_samples, 3), "top_k": (self.top_k, 10), "seed": (self.seed, 1),
            "max_source_length": (self.max_source_length, None), "max_new_tokens": (self.max_new_tokens, None),
            "append": (self.append, True), "text_field": (self.text_field, "text"),
        }  # fmt: skip
        options = [f"{name}={value!r}" for name, (value, usual) in given.items() if value != usual]
        return f"Resp2Ctxt({', '.join([shown, *options])})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}
