"""BM25 by the formula, in float64, over dictionaries: what the engine is held against."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np


class Reference:
    """Documents are lists of terms; queries are dicts of term -> weight."""

    def __init__(self, docs: dict[str, list[str]], *, k1: float = 0.9, b: float = 0.4, idf: str = "lucene") -> None:
        self.docs = {docno: Counter(terms) for docno, terms in docs.items()}
        self.lengths = {docno: len(terms) for docno, terms in docs.items()}
        self.average = sum(self.lengths.values()) / max(1, len(docs))
        self.df = Counter(term for terms in self.docs.values() for term in terms)
        self.k1, self.b, self.kind = k1, b, idf

    def idf(self, term: str) -> float:
        ratio = (len(self.docs) - self.df[term] + 0.5) / (self.df[term] + 0.5)
        return math.log(1 + ratio) if self.kind == "lucene" else max(1e-6, math.log(ratio))

    def weight(self, term: str, docno: str) -> float:
        tf = self.docs[docno][term]
        if tf == 0:
            return 0.0
        return self.idf(term) * tf / (tf + self.k1 * (1 - self.b + self.b * self.lengths[docno] / self.average))

    def search(self, query: dict[str, float]) -> list[tuple[str, float]]:
        """All documents with a term of the query, best first, ties in the order of the collection."""
        scores = {}
        for docno, terms in self.docs.items():
            said = [term for term in terms if query.get(term, 0) > 0]
            if said:
                scores[docno] = math.fsum(query[term] * self.weight(term, docno) for term in said)
        return sorted(scores.items(), key=lambda item: -item[1])


def assert_same_ranking(found, wanted: list[tuple[str, float]], k: int) -> None:
    """The frame of one query is the reference's ranking: scores to 1e-5, and the order up to that."""
    assert len(found) == min(k, len(wanted))
    by_docno = dict(wanted)
    scores = found["score"].to_numpy()
    np.testing.assert_allclose(scores, [score for _, score in wanted[: len(found)]], rtol=1e-5)
    np.testing.assert_allclose(scores, [by_docno[docno] for docno in found["docno"]], rtol=1e-5)
    assert found["docno"].is_unique
    assert found["rank"].tolist() == list(range(len(found)))
    assert (np.diff(scores) <= 0).all()


def zipf_collection(num_docs: int, vocabulary: int, seed: int) -> dict[str, list[str]]:
    """Documents of 0 to 80 terms t0, t1, …, t0 being the most frequent."""
    rng = np.random.default_rng(seed)
    weights = 1 / (np.arange(vocabulary) + 1.5)
    weights /= weights.sum()
    return {
        f"d{i}": [f"t{t}" for t in rng.choice(vocabulary, size=int(rng.integers(0, 80)), p=weights)]
        for i in range(num_docs)
    }
