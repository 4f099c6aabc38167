"""The stages of a bi-encoder: pyterrier_dr's, with titles, checks and results ranked as everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pyterrier_dr

from .._results import ranked
from ..topics.checks import first_three
from .separators import warn_of_separators


class QueryEncoder(pyterrier_dr.BiQueryEncoder):
    """Q -> Q: ``query`` to ``query_vec``."""

    schematic = {"label": "Query encoder", "help_url": None}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["query"])
        return inp.assign(query_vec=as_column(self.vectors(inp), inp.index))

    def vectors(self, inp: pd.DataFrame) -> np.ndarray:
        check_texts(inp, "query", "qid")
        warn_of_separators(inp, self.bi_encoder_model)
        vectors = self.encode(inp["query"].tolist())
        check_finite(vectors, inp, "query", "qid")
        return vectors


class DocEncoder(pyterrier_dr.BiDocEncoder):
    """D -> D: the text, after its title where there is one, to ``doc_vec``."""

    schematic = {"label": "Passage encoder", "help_url": None}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=[self.text_field])
        return inp.assign(doc_vec=as_column(self.vectors(inp), inp.index))

    def vectors(self, inp: pd.DataFrame) -> np.ndarray:
        check_texts(inp, self.text_field, "docno")
        title_field = self.bi_encoder_model.title_field
        titles = list(inp[title_field]) if title_field in inp.columns else None
        vectors = self.encode(self.bi_encoder_model.passage_texts(titles, list(inp[self.text_field])))
        check_finite(vectors, inp, "passage", "docno")
        return vectors


class Scorer(pyterrier_dr.BiScorer):
    """R -> R: scores each row; ranks by score, ties in the order given."""

    schematic = {"label": "Bi-encoder scorer", "help_url": None}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        with pt.validate.any(inp) as accepted:
            accepted.columns(includes=["qid", "query_vec", "doc_vec"])
            accepted.columns(includes=["qid", "query", "doc_vec"])
            accepted.columns(includes=["qid", "query_vec", self.text_field])
            accepted.columns(includes=["qid", "query", self.text_field])
        options: dict[str, Any] = {"batch_size": self.batch_size, "verbose": self.verbose}
        encoder = self.bi_encoder_model
        if "query_vec" in inp.columns:
            queries = stacked(inp, "query_vec", "qid")
        else:
            queries = QueryEncoder(encoder, **options).vectors(inp)
        if "doc_vec" in inp.columns:
            passages = stacked(inp, "doc_vec", "docno")
        else:
            passages = DocEncoder(encoder, **options).vectors(inp)
        return ranked(inp.assign(score=np.einsum("ij,ij->i", queries, passages, dtype=np.float64)))


def as_column(vectors: np.ndarray, index: pd.Index) -> pd.Series:
    """A column of vectors; of dtype object also where it is empty."""
    return pd.Series(list(vectors), index=index, dtype=object)


def stacked(frame: pd.DataFrame, column: str, ids: str) -> np.ndarray:
    """A column of vectors as one float32 array; (0, 0) for none.

    Raises:
        ValueError: a value that is no vector, named by its row, or vectors of unequal lengths.
    """
    values = frame[column].tolist()
    if not values:
        return np.empty((0, 0), dtype=np.float32)
    try:
        vectors = np.stack(values).astype(np.float32)
        if vectors.ndim == 2 and vectors.shape[1]:
            return vectors
    except (ValueError, TypeError):
        pass
    wrong = [not _is_vector(value) for value in values]
    if any(wrong):
        named = f"{ids} {first_three(frame[ids][wrong])}" if ids in frame.columns else f"row {wrong.index(True)}"
        raise ValueError(f"{column} of {named} is no vector: give one-dimensional arrays of numbers")
    raise ValueError(f"{column} of {sorted({len(value) for value in values})} dimensions in one frame")


def _is_vector(value: Any) -> bool:
    try:
        shape = np.asarray(value, dtype=np.float32).shape
    except (ValueError, TypeError):
        return False
    return len(shape) == 1 and shape[0] > 0


def check_texts(frame: pd.DataFrame, column: str, ids: str) -> None:
    """Raises ValueError naming the rows whose text is None, NaN or no text."""
    wrong = [not isinstance(text, str) for text in frame[column].tolist()]
    if any(wrong):
        named = f"{ids} {first_three(frame[ids][wrong])}" if ids in frame.columns else f"row {wrong.index(True)}"
        raise ValueError(f"{column} of {named} is None, NaN or no text: give a str")


def check_finite(vectors: np.ndarray, frame: pd.DataFrame, what: str, ids: str) -> None:
    """Raises ValueError naming the rows whose vector holds NaN or infinity."""
    wrong = ~np.isfinite(vectors).all(axis=1) if vectors.size else np.zeros(len(frame), dtype=bool)
    if wrong.any():
        named = f"{ids} {first_three(frame[ids][wrong])}" if ids in frame.columns else f"row {int(wrong.argmax())}"
        raise ValueError(
            f"the vector of {what} {named} holds NaN or infinity: damaged weights, or overflow in half precision"
        )
