"""BM25 on queries of conversation length: ours, bm25s, PISA, Terrier, Lucene (Anserini) in turn, text in, frame out.

    python experiments/bench/bm25.py --docs 200000 --terms 6,100,250,470 --k 100 --out bm25.csv

Every engine gets the same texts (no stop words removed from the index, no stemming), one thread, the same k1 and b.
Queries are windows of text of the given number of terms, once with all terms and once without stop words. Rounds are
interleaved: every engine answers the same queries before the next round begins; the median over rounds is reported,
and the ratio to ours. In the same run the answers are compared: ours with bm25s, and ours with Robertson's idf with
PISA (equal formulas).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

import pt_convsearch as cs
from pt_convsearch._results import results_frame
from pt_convsearch.lexical.analysis import LUCENE_STOPWORDS
from pt_convsearch.lexical.pisa import quiet_stdout

K1, B = 0.9, 0.4
ENGINES = ("ours", "ours-2-threads", "bm25s", "pisa", "pisa-bmw", "terrier", "anserini")


class Zipf:
    """Synthetic text: words in a Zipf-Mandelbrot distribution like English's, stop words the most frequent ones."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        ranks = np.arange(1, vocabulary + 1)
        self._cumulated = np.cumsum((ranks + 2.7) ** -1.08)
        self._cumulated /= self._cumulated[-1]
        self.words = np.array([*sorted(LUCENE_STOPWORDS), *map(_word, range(vocabulary))][:vocabulary], dtype=object)
        self.rng = np.random.default_rng(seed)

    def draw(self, size: int) -> np.ndarray:
        return np.searchsorted(self._cumulated, self.rng.random(size))

    def texts(self, count: int, mean_length: int = 33) -> Iterator[str]:
        for start in range(0, count, 10_000):
            lengths = np.maximum(
                3, self.rng.lognormal(np.log(mean_length) - 0.18, 0.6, min(10_000, count - start))
            ).astype(int)
            tokens = self.words[self.draw(int(lengths.sum()))]
            at = np.concatenate([[0], np.cumsum(lengths)])
            for a, b in itertools.pairwise(at):
                yield " ".join(tokens[a:b])


def _word(number: int) -> str:
    """A pronounceable word of its own for every number, none of them a stop word."""
    consonants, vowels = "bcdfghjklmnprstvz", "aeiou"
    word = ""
    number += 100
    while number:
        number, rest = divmod(number, len(consonants) * len(vowels))
        word = consonants[rest // len(vowels)] + vowels[rest % len(vowels)] + word
    return word + "x"


def read_corpus(path: Path, limit: int) -> Iterator[str]:
    with path.open(encoding="utf-8") as handle:
        for _, line in zip(range(limit), handle, strict=False):
            yield " ".join(cs.lexical.analysis.lucene_tokens(json.loads(line)["text"]))


def windows(texts: list[str], terms: int, count: int, stop: bool, seed: int) -> list[str]:
    """Queries: texts one after another; from 20 terms on a third is said again, as people do in a dialogue."""
    rng = random.Random(seed)
    fresh = terms if terms < 20 else int(terms * 0.68)
    queries = []
    for _ in range(count):
        words: list[str] = []
        while len(words) < fresh:
            words += [word for word in rng.choice(texts).split() if stop or word not in LUCENE_STOPWORDS]
        words = words[:fresh]
        queries.append(" ".join(words + rng.choices(words, k=terms - fresh)))
    return queries


def build(name: str, texts: list[str], folder: Path, k: int) -> tuple[Callable[[pd.DataFrame], pd.DataFrame], float]:
    """The engine's retriever, and the seconds that indexing took."""
    docs = ({"docno": f"d{i}", "text": text} for i, text in enumerate(texts))
    start = time.perf_counter()
    retriever: Any
    if name.startswith("ours"):
        if not (folder / "ours").exists():
            cs.BM25Index(folder / "ours", tokenizer="lucene", stemmer=None, stopwords=None).index(docs)
        index = cs.BM25Index(folder / "ours")
        retriever = index.bm25(num_results=k, k1=K1, b=B, threads=2 if name == "ours-2-threads" else 1)
    elif name == "bm25s":
        retriever = _bm25s(texts, k)
    elif name.startswith("pisa"):
        from pyterrier_pisa import PisaIndex

        if not (folder / "pisa").exists():
            cs.lexical.build_pisa_index(docs, folder / "pisa", stemmer="none", stops="none")
        index = PisaIndex(str(folder / "pisa"), stemmer="none", stops="none")
        algorithm = "block_max_wand" if name == "pisa-bmw" else "maxscore"
        with quiet_stdout():
            retriever = index.bm25(k1=K1, b=B, num_results=k, query_algorithm=algorithm, query_weighted=True)
    elif name == "terrier":
        ref = pt.IterDictIndexer(str(folder / "terrier"), stemmer=None, stopwords=None).index(docs)
        retriever = pt.terrier.Retriever(
            ref, wmodel="BM25", num_results=k, controls={"bm25.k_1": str(K1), "bm25.b": str(B)}
        )
    elif name == "anserini":
        retriever = _anserini(texts, folder / "lucene", k)
    else:
        raise SystemExit(f"unknown engine {name!r}: one of {', '.join(ENGINES)}")
    return retriever, time.perf_counter() - start


def _anserini(texts: list[str], folder: Path, k: int) -> pt.Transformer:
    from pyserini.analysis import get_lucene_analyzer
    from pyserini.index.lucene import LuceneIndexer
    from pyserini.search.lucene import LuceneSearcher

    indexer = LuceneIndexer(str(folder), args=["-index", str(folder), "-stemmer", "none", "-keepStopwords"])
    for start in range(0, len(texts), 10_000):
        block = texts[start : start + 10_000]
        indexer.add_batch_dict([{"id": f"d{start + i}", "contents": text} for i, text in enumerate(block)])
    indexer.close()
    searcher = LuceneSearcher(str(folder))
    searcher.set_analyzer(get_lucene_analyzer(stemming=False, stopwords=False))
    return cs.bm25(searcher, num_results=k, k1=K1, b=B)


def _bm25s(texts: list[str], k: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    import bm25s

    options: dict[str, Any] = {"stopwords": [], "show_progress": False, "token_pattern": r"(?u)\b\w+\b"}
    engine = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
    engine.index(bm25s.tokenize(texts, **options), show_progress=False)
    engine.activate_numba_scorer()
    docnos = np.array([f"d{i}" for i in range(len(texts))], dtype=object)

    def retrieve(topics: pd.DataFrame) -> pd.DataFrame:
        tokens = bm25s.tokenize(topics["query"].tolist(), return_ids=False, **options)
        found = engine.retrieve(tokens, k=min(k, len(texts)), show_progress=False, n_threads=1)
        kept = found.scores > 0
        return results_frame(topics, kept.sum(axis=1), docnos[found.documents[kept]], found.scores[kept])

    return retrieve


def agreement(a: pd.DataFrame, b: pd.DataFrame, depth: int = 10) -> float:
    """The share of a's first documents that b has among its own, documents tied with b's last one counting as equal."""
    shares = []
    of_b = dict(tuple(b.groupby("qid", sort=False)))
    for qid, rows in a.groupby("qid", sort=False):
        top = rows.head(depth)
        other = of_b.get(qid)
        if other is None:  # an engine whose stop words take all of a query finds nothing
            shares.append(0.0)
            continue
        last = other["score"].iloc[min(depth, len(other)) - 1]
        allowed = set(other["docno"][other["score"] >= last * (1 - 1e-5)])
        shares.append(len(set(top["docno"]) & allowed) / len(top))
    return float(np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=int, default=200_000)
    parser.add_argument("--terms", default="6,100,250,470")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--queries", type=int, default=64, help="queries per cell")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="ours,ours-2-threads,bm25s,pisa,pisa-bmw", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--corpus", type=Path, help="JSON Lines with text, in place of synthetic text")
    parser.add_argument("--vocabulary", type=int, default=300_000, help="of the synthetic text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")

    source = read_corpus(args.corpus, args.docs) if args.corpus else Zipf(args.vocabulary, args.seed).texts(args.docs)
    texts = list(source)
    names = args.engines.split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        for name in names:
            engines[name], seconds = build(name, texts, Path(folder), args.k)
            rows.append(
                {"engine": name, "what": "indexing", "terms": "", "value": len(texts) / seconds, "unit": "docs/s"}
            )
            print(f"{name}: indexed {len(texts) / seconds:,.0f} documents per second")
        for stop in (True, False):
            for terms in map(int, args.terms.split(",")):
                queries = windows(texts, terms, args.queries, stop, args.seed)
                cell(engines, queries, terms, "all" if stop else "nostop", args.rounds, rows, Path(folder), args.k)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(args.out, index=False)


def cell(
    engines: dict[str, Any],
    queries: list[str],
    terms: int,
    kind: str,
    rounds: int,
    rows: list[dict[str, Any]],
    folder: Path,
    k: int,
) -> None:
    """Measure one number of terms on every engine, print the ratios to ours, compare the answers."""
    topics = pd.DataFrame({"qid": [str(i) for i in range(len(queries))], "query": queries})
    times: dict[str, list[float]] = {name: [] for name in engines}
    found = {name: engine(topics) for name, engine in engines.items()}  # warm
    for _ in range(rounds):
        for name, engine in engines.items():
            start = time.perf_counter()
            engine(topics)
            times[name].append((time.perf_counter() - start) * 1000 / len(queries))
    medians = {name: float(np.median(values)) for name, values in times.items()}
    own = medians.get("ours", min(medians.values()))
    distinct = np.mean([len(set(query.split())) for query in queries])
    print(f"{kind}, {terms} terms ({distinct:.0f} distinct), ms per query and ratio to ours:")
    for name, value in medians.items():
        rows.append({"engine": name, "what": kind, "terms": terms, "value": value, "unit": "ms/query"})
        rows.append({"engine": name, "what": kind, "terms": terms, "value": value / own, "unit": "ratio to ours"})
        print(f"    {name:15} {value:9.3f} {value / own:7.2f}")
    index = cs.BM25Index(folder / "ours") if (folder / "ours").exists() else None
    pairs = [("ours", other, found.get("ours")) for other in ("bm25s", "anserini")]
    if index is not None and "pisa" in found:
        pairs.append(("ours-robertson", "pisa", index.bm25(num_results=k, k1=K1, b=B, idf="robertson")(topics)))
    for own_name, other, results in pairs:
        if results is not None and other in found:
            share = agreement(results, found[other])
            rows.append(
                {
                    "engine": own_name,
                    "what": kind,
                    "terms": terms,
                    "value": share,
                    "unit": f"top 10 shared with {other}",
                }
            )
            print(f"    top 10 of {own_name} shared with {other}: {share:.4f}")


if __name__ == "__main__":
    main()
