"""Looking inside a bi-encoder: a question and its passages, projected to a plane."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch._optional import require
from pt_convsearch.negatives.filter import positives_of
from pt_convsearch.topics.checks import check_queries

if TYPE_CHECKING:
    from pt_convsearch.dense import BiEncoder

#: what a point may be, in the order of a legend
KINDS = ("query", "gold", "shortcut", "other")
Corpus = Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]


def neighbourhood(
    qid: str,
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: Corpus,
    *,
    shortcut: pt.Transformer,
    num_shortcut: int = 10,
    num_others: int = 100,
    seed: int = 1,
    text_field: str = "text",
) -> pd.DataFrame:
    """The passages to look at beside one question: its golds, those that the shortcut leads to, and others at random.

    Args:
        qid: the question.
        topics: the topics frame.
        qrels: qid, docno, label; a label above 0 is a gold.
        corpus: dicts of docno and text, or a callable that gives them; read once, as a stream.
        shortcut: what finds the shortcut passages without the question, ``cs.form(cs.X - cs.CURRENT) >> bm25``; golds
            among them stay golds.
        num_shortcut: how many of its best.
        num_others: how many at random, the same for the same seed and corpus.
        seed: of the draw.
        text_field: the field of the text.

    Returns:
        kind (gold, shortcut, other), docno, text; golds first, shortcut passages by rank.

    Raises:
        ValueError: no such question, or none of its golds is in the corpus.

    Source: Kim & Kim (2022), who show the top of BM25 on X_t \\ q_t.
    """
    topics = check_queries(topics)
    asked = topics[topics["qid"] == qid]
    if asked.empty:
        raise ValueError(f"topics have no question {qid!r}")
    relevant = positives_of(qrels)
    golds = relevant.loc[relevant["qid"] == qid, "docno"].tolist()
    found: pd.DataFrame = shortcut.transform(asked.reset_index(drop=True))
    by_rank = found.sort_values("rank")["docno"].astype(str)
    led = [docno for docno in dict.fromkeys(by_rank) if docno not in set(golds)][:num_shortcut]
    wanted = {**dict.fromkeys(golds, "gold"), **dict.fromkeys(led, "shortcut")}
    texts: dict[str, str] = {}
    generator = np.random.default_rng(seed)
    others: list[tuple[str, str]] = []  # a reservoir: each other passage with equal chance
    seen = 0
    for passage in corpus() if callable(corpus) else corpus:
        docno, text = str(passage["docno"]), str(passage[text_field])
        if docno in wanted:
            texts[docno] = text
            continue
        seen += 1
        if len(others) < num_others:
            others.append((docno, text))
        elif num_others and (at := int(generator.integers(seen))) < num_others:
            others[at] = (docno, text)
    if not any(docno in texts for docno in golds):
        raise ValueError(f"none of the golds of {qid!r} ({', '.join(golds) or 'there are none'}) is in the corpus")
    rows = [(kind, docno, texts[docno]) for docno, kind in wanted.items() if docno in texts]
    rows += [("other", docno, text) for docno, text in others]
    return pd.DataFrame(rows, columns=["kind", "docno", "text"])


def project(
    encoder: BiEncoder,
    query: str,
    passages: pd.DataFrame,
    *,
    method: Literal["tsne", "pca", "umap"] = "tsne",
    perplexity: float = 30.0,
    seed: int = 1,
) -> pd.DataFrame:
    """Encode a question and its passages, and project the vectors to a plane.

    Args:
        encoder: the bi-encoder.
        query: the question as the encoder reads it: ``cs.form(cs.X)(topics)["query"]``.
        passages: what :func:`neighbourhood` returned: kind, docno, text.
        method: "tsne" (cosine), "pca", or "umap" (needs ``umap-learn``).
        perplexity: of t-SNE, lowered where there are too few points.
        seed: of t-SNE and UMAP.

    Returns:
        kind, docno (None for the query, the first row), x, y, similarity (cosine with the query, before projecting).

    Raises:
        ValueError: an unknown method, an empty query, or fewer than three passages.
        ImportError: "umap" without ``umap-learn``; "tsne" and "pca" without ``scikit-learn``.

    Example:
        >>> passages = neighbourhood("1_3", topics, qrels, corpus, shortcut=short >> bm25)          # doctest: +SKIP
        >>> cs.figures.space({"DPR": project(dpr, query, passages)})                                # doctest: +SKIP
    """
    if method not in ("tsne", "pca", "umap"):
        raise ValueError(f"method={method!r}: 'tsne', 'pca' or 'umap'")
    missing = {"kind", "docno", "text"} - set(passages.columns)
    if missing:
        raise ValueError(f"passages lack the columns {sorted(missing)}: give what neighbourhood() returned")
    if not query.strip():
        raise ValueError("the query is empty: its vector would mean nothing")
    if len(passages) < 3:
        raise ValueError(f"{len(passages)} passages: three at least make a picture")
    vectors = np.vstack([encoder.encode_queries([query]), encoder.encode_docs(passages["text"].tolist())])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    plane = _plane(unit, method, perplexity, seed)
    return pd.DataFrame(
        {
            "kind": ["query", *passages["kind"]],
            "docno": list(itertools.chain([None], passages["docno"])),
            "x": plane[:, 0],
            "y": plane[:, 1],
            "similarity": unit @ unit[0],
        }
    )


def _plane(vectors: np.ndarray, method: str, perplexity: float, seed: int) -> np.ndarray:
    if method == "umap":
        umap = require("umap", step="the UMAP projection", install="umap-learn")
        neighbours = min(15, len(vectors) - 1)
        return np.asarray(umap.UMAP(metric="cosine", n_neighbors=neighbours, random_state=seed).fit_transform(vectors))
    require("sklearn", step=f"the {method} projection", install="scikit-learn")
    if method == "pca":
        from sklearn.decomposition import PCA

        return np.asarray(PCA(n_components=2, svd_solver="full").fit_transform(vectors))
    from sklearn.manifold import TSNE

    fitting = min(perplexity, (len(vectors) - 1) / 3)
    model = TSNE(n_components=2, metric="cosine", init="random", perplexity=fitting, random_state=seed)
    return np.asarray(model.fit_transform(vectors))
