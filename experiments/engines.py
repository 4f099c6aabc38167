"""One table, several engines: MTRAG's questions with ours, PISA and Terrier, and their speed beside each other.

    python experiments/engines.py --data mtrag/mini --out out/engines

``defaults``: each engine with the tokenizer, stop words and stemmer that it comes with. ``tokens``: all engines get the
terms of our analyzer, so that what is left of the difference is formula ("ours, Robertson" is our engine with PISA's
idf: its rows must be PISA's). ``agreement``: how much of our top 10 each
engine shares. ``speed.csv``: queries of 6 and 470 terms over synthetic documents, rounds interleaved, ratio to ours
(--speed-docs 0 leaves it out). Same k1 and b everywhere; Terrier's BM25 is another function and is so by intention.
Terrier needs Java, and its jars in PYTERRIER_HOME where there is no network. ``--engines anserini --quick`` is Lucene
by way of pyserini, in a run of its own: it needs Java 21 or newer, and two libraries cannot share one Java machine.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from _common import arguments, say
from bench import bm25 as bench
from ir_measures import RR, R, nDCG

import pt_convsearch as cs
from pt_convsearch._files import write_json
from pt_convsearch._stage import Stage
from pt_convsearch.evaluation.report import environment, long_table, write_results
from pt_convsearch.lexical import build_pisa_index

ENGINES = ("ours", "pisa", "terrier")  # and anserini, if asked for
ROBERTSON = "ours, Robertson"
FORMS = {"X_t": cs.X, "X_t\\q_t": cs.X - cs.CURRENT, "q_t": cs.CURRENT, "rewrite": cs.REWRITE}
MEASURES = [RR, R @ 10, R @ 100, nDCG @ 10]


class Terms(Stage):
    """The query as the terms of an index's analyzer, each as one word of letters that no tokenizer splits (Q -> Q)."""

    def __init__(self, index: cs.BM25Index) -> None:
        self.index = index

    def text(self, text: str) -> str:
        return " ".join(map(_spelt, self.index.analyze(text)))

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return inp.assign(query=[self.text(query) for query in inp["query"]])


def _spelt(term: str) -> str:
    """A term in ASCII letters: what else it holds becomes its code point; long ones (Terrier drops them) are cut."""
    letters = "".join(c if c.isascii() and c.isalpha() else f"z{_letters(ord(c))}" for c in term.lower())
    return f"{letters[:16]}qq"  # never a stop word of anybody


def _letters(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in str(number))


def built(
    name: str, corpus: Iterable[dict[str, Any]], folder: Path, *, raw: bool, k1: float, b: float
) -> pt.Transformer:
    """An engine's retriever over a collection.

    Args:
        name: ours, pisa, terrier or anserini.
        corpus: dicts with docno and text.
        folder: where the index goes.
        raw: without the engine's own stop words and stemmer.
        k1, b: of BM25.
    """
    options: dict[str, Any] = {"num_results": 100, "k1": k1, "b": b}
    if name == "ours":
        settings: dict[str, Any] = {"stemmer": None, "stopwords": None} if raw else {}
        return cs.BM25Index(folder / "ours", **settings).index(corpus).bm25(**options)
    if name == "pisa":
        settings = {"stemmer": "none", "stops": "none"} if raw else {}
        return cs.bm25(build_pisa_index(corpus, folder / "pisa", **settings), **options)
    if name == "anserini":
        from pyserini.index.lucene import LuceneIndexer

        indexer = LuceneIndexer(str(folder / "lucene"))  # its stemmer and stop words leave spelt terms as they are
        indexer.add_batch_dict([{"id": doc["docno"], "contents": doc["text"]} for doc in corpus])
        indexer.close()
        return cs.bm25(folder / "lucene", **options)
    settings = {"stemmer": None, "stopwords": None} if raw else {}
    pt.IterDictIndexer(str(folder / "terrier"), meta={"docno": 64}, **settings).index(corpus)  # longer ids are cut
    return cs.bm25(folder / "terrier", **options)


def shared(systems: dict[str, pt.Transformer], topics: pd.DataFrame) -> pd.DataFrame:
    """The share of our top 10 that each engine has in its own, ties at its tenth rank counting as equal."""
    rows = []
    names = [system.removesuffix(" q_t") for system in systems if system.endswith(" q_t")]
    for form in FORMS:
        own = systems[f"ours {form}"](topics)
        for name in names:
            share = bench.agreement(own, systems[f"{name} {form}"](topics))
            rows.append((name, form, "top 10 shared with ours", share, int(own["qid"].nunique())))
    return pd.DataFrame(rows, columns=["system", "group", "measure", "value", "n"])


def speed(names: list[str], docs: int, queries: int, rounds: int, out: Path) -> None:
    """Queries of 6 and 470 terms, with and without stop words, every engine in turn."""
    texts = list(bench.Zipf(300_000, 1).texts(docs))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="convsearch-") as folder:
        engines = {name: bench.build(name, texts, Path(folder), 100)[0] for name in names}
        say("indexed for speed")
        for stop in (True, False):
            for terms in (6, 470):
                asked = bench.windows(texts, terms, queries, stop, 1)
                bench.cell(engines, asked, terms, "all" if stop else "nostop", rounds, rows, Path(folder), 100)
    pd.DataFrame(rows).to_csv(out / "speed.csv", index=False, encoding="utf-8", lineterminator="\n")
    settings = {"docs": docs, "queries": queries, "rounds": rounds, "threads": 1}
    write_json(out / "speed.json", {"settings": settings, "environment": environment()})


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder mtrag/mini", quick="the measuring of speed")
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=[*ENGINES, "anserini"])
    parser.add_argument("--speed-docs", type=int, default=100_000, help="synthetic documents, for speed")
    parser.add_argument("--speed-queries", type=int, default=16)
    parser.add_argument("--speed-rounds", type=int, default=3)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", module="pyterrier")
    names = list(dict.fromkeys(["ours", *options.engines]))
    data = cs.dataset("mtrag-mini/human", path=options.data)
    topics, qrels = data.get_topics(), data.get_qrels()
    say(f"{len(topics):,} questions, {qrels.qid.nunique():,} judged")

    def corpus(terms: Terms | None) -> Iterator[dict[str, Any]]:
        for doc in data.get_corpus_iter():
            text = " ".join(filter(None, (doc.get("title"), doc["text"])))  # one field: not all engines have two
            yield {"docno": doc["docno"], "text": text if terms is None else terms.text(text)}

    settings = {"data": "mtrag-mini/human", "engines": names, "k1": 0.9, "b": 0.4, "num_results": 100}
    with tempfile.TemporaryDirectory(prefix="convsearch-") as temporary:
        for part in ("defaults", "tokens"):
            folder = Path(temporary) / part
            folder.mkdir()
            terms = None
            if part == "tokens":
                terms = Terms(cs.BM25Index(folder / "analyzer").index(corpus(None)))
            systems = {}
            for name in names:
                retriever = built(name, corpus(terms), folder, raw=terms is not None, k1=0.9, b=0.4)
                retrievers = {name: retriever}
                if name == "ours" and terms is not None:
                    retrievers[ROBERTSON] = retriever.index.bm25(num_results=100, k1=0.9, b=0.4, idf="robertson")
                for named, retriever in retrievers.items():
                    for form, parts in FORMS.items():
                        formed = cs.form(parts) if terms is None else cs.form(parts) >> terms
                        systems[f"{named} {form}"] = formed >> retriever
            say(f"{part}: indexed")
            judged = topics[topics["qid"].isin(qrels["qid"])]
            table = cs.Experiment(systems, topics, qrels, MEASURES, by="qtype", filter_by_qrels=True)
            write_results(options.out / part, long_table(table), settings=settings)
            write_results(options.out / "agreement" / part, shared(systems, judged), settings=settings)
            print(cs.render(table, "text"), end="\n\n")
    if options.speed_docs and not options.quick:
        speed(names, options.speed_docs, options.speed_queries, options.speed_rounds, options.out)
    say(f"written to {options.out}")


if __name__ == "__main__":
    main()
