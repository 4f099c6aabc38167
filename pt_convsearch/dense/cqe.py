"""CQE: one pass over a conversation gives a dense query and the weights of a sparse one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from .._stage import Stage
from ..topics.checks import check_queries, has_value
from .encoder import BiEncoder, normalized
from .encoding import OFFSETS, forward_window, has_bf16, text_module, tokenize
from .stages import as_column, check_finite

_WINDOW = 4096  # texts that are tokenised and sorted together
_CHUNK = re.compile(r"\S+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")

#: terms of a text: (start and end of the word in the text, its norm, its index terms)
Word = tuple[int, int, float, list[str]]


class CQE(Stage):
    """Adds a dense query and a weighted sparse one to each question, both from one pass of the encoder (Q -> Q).

    The dense query is the encoder's own vector of the text. A word weighs as much as the vectors of its word pieces are
    long (L2 norm; the largest of its pieces counts), since a mean over tokens gives long vectors more say. The sparse
    query has all words of the current question, and those of the history whose norm is above ``threshold``; a word that
    stands there twice counts twice. Words become index terms by the index's own analysis.

    Input columns: ``qid``, ``query``; ``qutterance``, set by formers, says where the current question is (without it,
    the query is the current question). ``qsep``, set by formers, names separators, whose words are no terms. Output
    columns: those of the input, ``query_vec`` (float32) and ``query_toks`` (term -> weight). A blank query has a
    vector of zeros and no terms: dense and lexical retrievers answer it with nothing.

    Args:
        encoder: a bi-encoder with a transformer; the paper's pools by the mean. One trained for conversations
            (``cs.train``, ``cs.train_convdr``) gives both queries of CQE.
        analyze: text to index terms: a :class:`~pt_convsearch.lexical.BM25Index`, or a function (``index.analyze``).
        threshold: a word of the history is kept where its norm is above it. The default is that of the published
            checkpoint (castorini/tct_colbert-v2-msmarco-cqe); norms differ from encoder to encoder:
            :meth:`norms` shows them.
        relative: divide weights by the mean norm of the text's tokens, so that they are about 1: as the published code
            does, and as the hybrid's 0.1 expects.
        verbose: show progress.

    Raises:
        ValueError: the encoder gives no vectors of tokens; a query that is None.

    Example:
        >>> cqe = cs.form(cs.QUESTIONS, sep=" | ") >> cs.CQE(encoder, dense_index)
        >>> hybrid = cqe >> (dense_index.retriever(num_results=1000) + 0.1 * index.bm25(num_results=1000))

    In a sum a passage that one of the two does not find has 0 from it. Where dot products begin far above 0, let it
    have the lowest score, as the paper does: ``cqe >> cs.reranking.interpolate(dense, bm25, weights=[1, 0.1],
    scale=None, missing="minimum")``.

    Source: Lin, Yang, Lin: Contextualized query embeddings for conversational search (EMNLP 2021), section 3, and
    their published code.
    """

    label = "CQE"

    def __init__(
        self,
        encoder: BiEncoder,
        analyze: Any,
        *,
        threshold: float = 10.5,
        relative: bool = True,
        verbose: bool = False,
    ) -> None:
        if not isinstance(encoder, BiEncoder):
            raise TypeError(f"encoder is {encoder!r}: give a cs.BiEncoder")
        if not callable(getattr(analyze, "analyze", analyze)):
            raise TypeError(f"analyze is {analyze!r}: give a BM25 index, or a function from text to index terms")
        if text_module(encoder._load()[0], "query") is None:
            raise ValueError(f"{encoder!r} gives no vectors of tokens: CQE needs a transformer with a fast tokenizer")
        self.encoder = encoder
        self.analyze = analyze
        self.threshold = threshold
        self.relative = relative
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        frame = check_queries(inp, context=self)
        texts = frame["query"].tolist()
        vectors, read = self._read(frame, texts)
        check_finite(vectors, frame, "query", "qid")
        starts = _questions(frame)
        weights = [self._weights(words, mean, start) for (words, mean), start in zip(read, starts, strict=True)]
        return frame.assign(
            query_vec=as_column(vectors, frame.index),
            query_toks=pd.Series(weights, index=frame.index, dtype=object),
        )

    def norms(self, topics: pd.DataFrame) -> pd.DataFrame:
        """The norms of words, to choose a threshold by: on dev, say, the one of the best RR.

        Args:
            topics: qid, query, as for the stage itself.

        Returns:
            one row per word: qid, word, norm, ``question`` (whether it stands in the current question), terms.
        """
        frame = check_queries(topics, context=self)
        texts = frame["query"].tolist()
        _, read = self._read(frame, texts)
        rows = [
            (qid, text[start:end], norm, start >= question, terms)
            for qid, text, (words, _), question in zip(frame["qid"], texts, read, _questions(frame), strict=True)
            for start, end, norm, terms in words
        ]
        return pd.DataFrame(rows, columns=["qid", "word", "norm", "question", "terms"])

    def _weights(self, words: list[Word], mean: float, question: int) -> dict[str, float]:
        """The sparse query: what stands from ``question`` on, and what is above the threshold."""
        weights: dict[str, float] = {}
        for start, _, norm, terms in words:
            if start >= question or norm > self.threshold:
                for term in terms:
                    weights[term] = weights.get(term, 0.0) + (norm / mean if self.relative else norm)
        return weights

    def _read(self, frame: pd.DataFrame, texts: Sequence[str]) -> tuple[np.ndarray, list[tuple[list[Word], float]]]:
        """Vectors of texts, and of each its words with their norms, and the mean norm of its tokens."""
        from tqdm.auto import tqdm

        encoder = self.encoder
        tower, side = encoder._load()[0], encoder._query_side
        tokenizer = text_module(tower, "query").tokenizer
        weights = next(tower.parameters())
        bf16 = has_bf16(weights.device) if encoder.bf16 is None else encoder.bf16
        vectors = np.zeros((len(texts), encoder.dimensions), dtype=np.float32)
        read: list[tuple[list[Word], float]] = [([], 1.0)] * len(texts)
        masked = _without_separators(frame, texts)
        asked = [row for row, text in enumerate(texts) if text.strip()]
        for start in tqdm(range(0, len(asked), _WINDOW), unit="window", desc="CQE", disable=not self.verbose):
            window = asked[start : start + _WINDOW]
            tokens = tokenize(tokenizer, [texts[row] for row in window], side, offsets=True)
            skip = len(side.prompt)
            for places, outputs in forward_window(tower, tokens, side, encoder.batch_size, bf16):
                found = outputs["sentence_embedding"].float().cpu().numpy()
                norms = outputs["token_embeddings"].float().norm(dim=2).cpu().numpy()
                for place, vector, own in zip(places, found, norms, strict=True):
                    row = window[place]
                    vectors[row] = vector[: encoder.dimensions]
                    spans = tokens[0][OFFSETS][place]
                    pieces = [
                        (first - skip, last - skip, float(norm))
                        for (first, last), norm in zip(spans, own[: len(spans)], strict=True)
                        if last > max(first, skip)
                    ]
                    mean = float(np.mean([norm for _, _, norm in pieces])) if pieces else 1.0
                    read[row] = (_words(masked[row], pieces, self._terms), mean or 1.0)
        return (normalized(vectors) if encoder.similarity == "cosine" else vectors), read

    def _terms(self, text: str) -> list[str]:
        return list(getattr(self.analyze, "analyze", self.analyze)(text))

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}


def _questions(frame: pd.DataFrame) -> list[int]:
    """Where the current question begins in each query: at its start where no former said, behind its end where the form
    leaves it out."""
    if "qutterance" not in frame.columns:
        return [0] * len(frame)
    starts = []
    for text, utterance in zip(frame["query"], frame["qutterance"], strict=True):
        said = utterance if isinstance(utterance, str) else ""
        if said.strip() and text.endswith(said):
            starts.append(len(text) - len(said))
        else:  # a budget may have left its end alone
            starts.append(0 if text.strip() and said.endswith(text) else len(text))
    return starts


def _without_separators(frame: pd.DataFrame, texts: Sequence[str]) -> list[str]:
    """Texts with blanks where separators stand, as long as before."""
    if "qsep" not in frame.columns:
        return list(texts)
    found = []
    for text, separators in zip(texts, frame["qsep"], strict=True):
        named = [separators] if isinstance(separators, str) else list(separators) if has_value(separators) else []
        for separator in named:
            if separator.strip():
                text = text.replace(separator, " " * len(separator))
        found.append(text)
    return found


def _words(
    text: str, pieces: list[tuple[int, int, float]], analyze: Callable[[str], list[str]]
) -> list[Word]:
    """The words of a text, each with the largest norm of its pieces and its index terms.

    A word is what stands between white space. Where it has several index terms ("wi-fi"), each is a word of its own if
    a run of its pieces spells it; else it has the largest norm of all. Pieces without a letter or digit do not count,
    unless there are no others.

    >>> pieces = [(0, 2, 3.0), (2, 4, 5.0), (4, 5, 9.0), (6, 8, 1.0), (8, 9, 7.0), (9, 11, 2.0)]
    >>> _words("dune? wi-fi", pieces, lambda word: re.findall(r"[a-z]+", word))
    [(0, 5, 5.0, ['dune']), (6, 8, 1.0, ['wi']), (9, 11, 2.0, ['fi'])]
    """
    found: list[Word] = []
    at = 0
    for match in _CHUNK.finditer(text):
        begin, end = match.span()
        own = []
        while at < len(pieces) and pieces[at][0] < end:
            if pieces[at][1] > begin:
                own.append(pieces[at])
            at += 1
        if not own:  # cut off
            continue
        said = [piece for piece in own if _LETTER_OR_DIGIT.search(text[piece[0] : piece[1]])] or own
        terms = analyze(text[max(begin, own[0][0]) : end])
        runs = _runs(text, own)
        spelt = [(first, last, norm, analyze(text[first:last])) for first, last, norm in runs]
        if len(terms) > 1 and [term for *_, names in spelt for term in names] == terms:
            found += [word for word in spelt if word[3]]
        elif terms:
            found.append((own[0][0], end, max(norm for *_, norm in said), terms))
    return found


def _runs(text: str, pieces: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Pieces that touch and hold letters or digits, as one, with the largest norm."""
    runs: list[tuple[int, int, float]] = []
    for first, last, norm in pieces:
        if not _LETTER_OR_DIGIT.search(text[first:last]):
            continue
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], last, max(runs[-1][2], norm))
        else:
            runs.append((first, last, norm))
    return runs
