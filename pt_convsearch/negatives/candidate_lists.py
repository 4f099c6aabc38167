"""Lists of candidates: one right response among wrong ones, as the older literature ranks them (R_n@k)."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from pt_convsearch.topics.checks import check_queries, first_three

from ._texts import Corpus, TextStore, as_store
from .filter import positives_of


def candidate_lists(
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: Corpus | TextStore,
    *,
    num_candidates: int = 10,
    seed: int = 1,
    text_field: str = "text",
) -> pd.DataFrame:
    """For each judged question one gold and ``num_candidates - 1`` random passages that are none.

    R_n@k of the literature on response ranking is R@k over such lists of n; with a dev set of them ``cs.train`` selects
    by re-ranking, ``dev=(topics, qrels, corpus, candidates), metric="AP"``. Figures over lists of n say nothing about
    ranking a whole collection. No candidate has the text of a gold, none the text of another candidate, and
    the gold stands at a random place. The draw depends on the seed and the qid alone.

    Args:
        topics: qid, query.
        qrels: qid, docno, label; of several golds the first whose text the corpus has is taken.
        corpus: as in :func:`training_pairs`.
        num_candidates: passages per question, the gold included.
        seed: another seed draws others.
        text_field: the field of the text.

    Returns:
        qid, docno, text, label (1 the gold, 0 the others), in the order of the topics.

    Raises:
        ValueError: fewer than two candidates, no judged question, or a collection with too few distinct texts.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["who?"]})
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
        >>> corpus = [{"docno": d, "text": t} for d, t in [("a", "Herbert"), ("b", "herbert"), ("c", "Le Guin")]]
        >>> sorted(cs.candidate_lists(topics, qrels, corpus, num_candidates=2).docno)
        ['a', 'c']

    Source: Penha and Hauff: dev re-ranking of 1 relevant among 10; DSTC8's 100 candidates (R_100@k).
    """
    if num_candidates < 2:
        raise ValueError(f"num_candidates={num_candidates}: give at least 2, the gold and another")
    topics = check_queries(topics)
    store = as_store(corpus, text_field)
    golds = positives_of(qrels)
    golds = golds[golds["qid"].isin(topics["qid"])].assign(row=lambda frame: store.rows(frame["docno"]))
    golds = golds[golds["row"] >= 0]
    if len(golds) == 0:
        raise ValueError(f"none of the {len(topics)} topics has a gold with a text in the corpus: do the ids agree?")
    keys = store.keys(np.arange(store.size))
    rows_of = golds.groupby("qid", sort=False)["row"].apply(list).to_dict()
    found: list[np.ndarray] = []
    short = []
    asked = [qid for qid in topics["qid"] if qid in rows_of]
    for qid in asked:
        own = rows_of[qid]
        digest = hashlib.blake2b(f"{seed} {qid}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        generator = np.random.Generator(np.random.Philox(int.from_bytes(digest, "little")))
        others = _others(generator, keys, set(keys[own].tolist()), num_candidates - 1)
        if len(others) < num_candidates - 1:
            short.append(qid)
        found.append(generator.permutation(np.array([own[0], *others], dtype=np.int64)))
    if short:
        raise ValueError(
            f"num_candidates={num_candidates}, but the collection has too few distinct texts for {len(short)} "
            f"questions ({first_three(short)})"
        )
    rows = np.concatenate(found)
    first = np.repeat([rows_of[qid][0] for qid in asked], num_candidates)
    return pd.DataFrame(
        {
            "qid": pd.array(np.repeat(np.array(asked, dtype=object), num_candidates), dtype="str"),
            "docno": pd.array(store.docnos(rows), dtype="str"),
            "text": pd.array(store.texts(rows), dtype="str"),
            "label": (rows == first).astype(np.int64),
        }
    )


def _others(generator: np.random.Generator, keys: np.ndarray, taken: set[int], count: int) -> list[int]:
    """Rows of ``count`` passages, each of another text, or as many as there are."""
    chosen: list[int] = []
    for row in generator.integers(len(keys), size=4 * count).tolist():
        if len(chosen) < count and keys[row] not in taken:
            taken.add(int(keys[row]))
            chosen.append(row)
    if len(chosen) < count:  # a small collection, or one that says the same over and over
        for row in generator.permutation(len(keys)).tolist():
            if len(chosen) < count and keys[row] not in taken:
                taken.add(int(keys[row]))
                chosen.append(row)
    return chosen
