"""What a student of an ad hoc retriever learns from: conversations, their rewrites' vectors, passages that stand
still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from torch.utils.data import Dataset

from pt_convsearch.dense import DenseIndex
from pt_convsearch.dense.encoding import Side, text_module, tokenize
from pt_convsearch.forming import Form, Parts
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.negatives.training_pairs import _formed, as_former
from pt_convsearch.topics.checks import check_queries, first_three

#: vectors, one a row: a numpy array of dense ones, a SciPy CSR matrix of sparse ones
Matrix = Any


@dataclass
class Conversations:
    """Questions that the student reads, with their rewrites.

    Attributes:
        qids, texts: of the questions, as the student reads them.
        rewrites: what the teacher reads, one list per way of rewriting; None where there is no rewrite.
        pair_rows: the row of each question in the training pairs, -1 where it is not among them.
    """

    qids: list[str]
    texts: list[str]
    rewrites: list[list[str | None]]
    pair_rows: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Whether a question has all its rewrites."""
        return np.array([all(text is not None for text in row) for row in zip(*self.rewrites, strict=True)], dtype=bool)

    def take(self, kept: np.ndarray) -> Conversations:
        rows = np.flatnonzero(kept)
        return Conversations(
            [self.qids[row] for row in rows], [self.texts[row] for row in rows],
            [[texts[row] for row in rows] for texts in self.rewrites], self.pair_rows[rows],
        )  # fmt: skip

    def digest(self) -> str:
        return digest([self.qids, self.texts, self.rewrites, self.pair_rows.tolist()])


def conversations(topics: pd.DataFrame, form: Any, rewrite: Any, pairs: TrainingPairs | None) -> Conversations:
    """The questions of ``topics`` that say something, as ``form`` and ``rewrite`` write them.

    Raises:
        ValueError: the training pairs were formed otherwise.
    """
    topics = check_queries(topics)
    former = as_former(form)
    texts = [str(text) for text in _formed(former, topics)]
    ways = list(rewrite) if isinstance(rewrite, Sequence) else [rewrite]
    if not ways:
        raise ValueError("rewrite=[]: give at least one way of rewriting")
    rewrites = [_rewrites(topics, way) for way in ways]
    qids = topics["qid"].tolist()
    rows = np.full(len(qids), -1, dtype=np.int64)
    if pairs is not None:
        frame = pairs.frame()
        place = {qid: row for row, qid in enumerate(frame["qid"])}
        rows = np.array([place.get(qid, -1) for qid in qids], dtype=np.int64)
        queries = frame["query"].tolist()
        other = [qid for qid, row, text in zip(qids, rows, texts, strict=True) if row >= 0 and queries[row] != text]
        if other:
            raise ValueError(
                f"{len(other)} questions ({first_three(other)}) read otherwise in {pairs!r}, which was formed by "
                f"{pairs.settings['form']}: give form=, the same one"
            )
    found = Conversations(qids, texts, rewrites, rows)
    return found.take(np.array([bool(text.strip()) for text in texts], dtype=bool))


def _rewrites(topics: pd.DataFrame, way: Any) -> list[str | None]:
    """One way of rewriting; a gold rewrite that is missing is None."""
    parts = way.parts if isinstance(way, Form) else way
    asked = np.ones(len(topics), dtype=bool)
    if isinstance(parts, Parts) and parts.rewrite:
        if "qrewrite" not in topics.columns:
            raise ValueError("topics have no column 'qrewrite': the teacher reads gold rewrites; or give rewrite=")
        asked = np.array([isinstance(text, str) and bool(text.strip()) for text in topics["qrewrite"]], dtype=bool)
    found: list[str | None] = [None] * len(topics)
    if asked.any():
        texts = _formed(as_former(way), topics[asked].reset_index(drop=True))
        for row, text in zip(np.flatnonzero(asked), texts, strict=True):
            found[row] = text if text.strip() else None
    return found


@dataclass(frozen=True)
class Lesson:
    """A question of a batch: its text, and rows of targets and of passages (the positive first)."""

    row: int
    text: str
    passages: np.ndarray


class Lessons(Dataset[Lesson]):
    """Questions by (generation, epoch, row), with negatives drawn anew in every epoch."""

    column_names = ("query",)  # asked for by the trainer, which finds nothing to rename
    _sentence_transformers_preprocessed = True

    def __init__(self, said: Conversations, pairs: TrainingPairs | None, *, num_negatives: int, seed: int) -> None:
        self.said = said
        self.pairs = pairs
        self.num_negatives = num_negatives
        self.seed = seed

    def __len__(self) -> int:
        return len(self.said.texts)

    def __getitem__(self, place: tuple[int, int, int]) -> Lesson:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[tuple[int, int, int]]) -> list[Lesson]:
        rows = [row for _, _, row in places]
        own = self.said.pair_rows[rows]
        drawn: dict[int, np.ndarray] = {}
        if self.pairs is not None and (own >= 0).any():
            asked = own[own >= 0]
            samples = self.pairs.samples(
                asked, epoch=places[0][1], num_negatives=self.num_negatives, seed=self.seed
            )
            drawn = {sample.row: np.array([sample.positive, *sample.negatives], dtype=np.int64) for sample in samples}
        none = np.zeros(0, dtype=np.int64)
        return [
            Lesson(row, self.said.texts[row], drawn.get(int(place), none))
            for row, place in zip(rows, own, strict=True)
        ]


class Passages:
    """Vectors of the passages of a training set, out of an index of the teacher.

    Raises:
        ValueError: the index lacks a passage; its docno is named.
    """

    def __init__(self, index: Any, pairs: TrainingPairs, teacher: Any) -> None:
        self.index = index
        self.docnos = pairs.passages()["docno"]
        if isinstance(index, DenseIndex):
            self.numbers = index.numbers_of(self.docnos)
        else:
            self.numbers = index.doc_ids(self.docnos)
            place = {term: number for number, term in enumerate(teacher.terms)}
            self.columns = np.array([place[term] for term in index.terms()], dtype=np.int64)
            self.dimensions = teacher.dimensions

    def vectors(self, rows: np.ndarray) -> Matrix:
        """Of rows of the passages file."""
        numbers = self.numbers[rows]
        if isinstance(self.index, DenseIndex):
            return np.asarray(self.index.vectors[numbers])
        found = self.index.vectors_of(numbers)
        return scipy.sparse.csr_matrix(
            (found.data, self.columns[found.indices], found.indptr), shape=(len(rows), self.dimensions)
        )


class LessonCollator:
    """Lessons to the student's tokens, cut on the left as at search, and to what it is told, as labels."""

    valid_label_columns = ("label",)

    def __init__(
        self, model: Any, side: Side, targets: list[Matrix], known: np.ndarray, passages: Passages | None, *,
        num_negatives: int, tell_scores: bool,
    ) -> None:  # fmt: skip
        self.model = model
        self.side = side
        self.targets = targets
        self.known = known
        self.passages = passages
        self.num_negatives = num_negatives
        self.tell_scores = tell_scores

    def __call__(self, lessons: list[Lesson]) -> dict[str, Any]:
        module = text_module(self.model, "query")
        texts = [lesson.text for lesson in lessons]
        if module is None:
            features = dict(self.model.preprocess(texts, prompt=self.side.prompt or None, task="query"))
        else:
            encoded, _, prompt_length = tokenize(module.tokenizer, texts, self.side)
            features = dict(module.tokenizer.pad(encoded, padding=True, return_tensors="pt"))
            features["modality"] = "text"
            if prompt_length:
                features["prompt_length"] = prompt_length
        features["task"] = "query"
        batch: dict[str, Any] = {f"query_{name}": value for name, value in features.items()}
        batch["label"] = self._labels(lessons)
        return batch

    def _labels(self, lessons: list[Lesson]) -> dict[str, torch.Tensor]:
        rows = np.array([lesson.row for lesson in lessons])
        labels: dict[str, Any] = {"known": self.known[rows]}
        told = [target[rows] for target in self.targets]
        if not self.tell_scores:
            labels["target"] = _dense(told[0])
        if self.passages is not None:
            width = 1 + self.num_negatives
            allowed = np.zeros((len(lessons), width), dtype=bool)
            for place, lesson in enumerate(lessons):
                allowed[place, : len(lesson.passages)] = True
            wanted = np.concatenate([lesson.passages for lesson in lessons]).astype(np.int64)
            vectors = self.passages.vectors(wanted)
            labels["allowed"] = allowed
            labels |= _placed(vectors, allowed)
            if self.tell_scores:
                owner = np.nonzero(allowed)[0]
                scores = np.zeros(allowed.shape, dtype=np.float32)
                scores[allowed] = np.mean([_dots(one, owner, vectors) for one in told], axis=0)
                labels["scores"] = scores
        return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in labels.items()}


def _dense(matrix: Matrix) -> np.ndarray:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


def _dots(queries: Matrix, owner: np.ndarray, passages: Matrix) -> np.ndarray:
    """The dot product of each passage with the query that it belongs to."""
    if scipy.sparse.issparse(passages):
        return np.asarray(queries[owner].multiply(passages).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", queries[owner], passages)


def _placed(vectors: Matrix, allowed: np.ndarray) -> dict[str, np.ndarray]:
    """Vectors of the passages in the places that are allowed, as the losses read them."""
    if not scipy.sparse.issparse(vectors):
        placed = np.zeros((*allowed.shape, vectors.shape[1]), dtype=np.float32)
        placed[allowed] = vectors
        return {"candidates": placed}
    sizes = np.diff(vectors.indptr)
    most = max(1, int(sizes.max(initial=0)))
    filled = np.arange(most) < sizes[:, None]
    terms = np.zeros((len(sizes), most), dtype=np.int64)
    weights = np.zeros((len(sizes), most), dtype=np.float32)
    terms[filled], weights[filled] = vectors.indices, vectors.data
    placed_terms = np.zeros((*allowed.shape, most), dtype=np.int64)
    placed_weights = np.zeros((*allowed.shape, most), dtype=np.float32)
    placed_terms[allowed], placed_weights[allowed] = terms, weights
    return {"terms": placed_terms, "weights": placed_weights}


def targets(teacher: Any, texts: list[str | None]) -> Matrix:
    """The teacher's vectors of rewrites; a row of zeros where there is none."""
    known = np.array([text is not None for text in texts], dtype=bool)
    vectors = teacher.encode_queries([text for text in texts if text is not None])
    if scipy.sparse.issparse(vectors):
        ends = vectors.indptr[np.concatenate([[0], np.cumsum(known)])]
        return scipy.sparse.csr_matrix((vectors.data, vectors.indices, ends), shape=(len(texts), vectors.shape[1]))
    found = np.zeros((len(texts), vectors.shape[1]), dtype=np.float32)
    found[known] = vectors
    return found
