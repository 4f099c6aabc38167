"""What tells the engines apart: formula, repeated terms, tokens that survive, ties, ids, length, RM3's two definitions.

The page ``pt_docs/engines.md`` says what is tested here. Values are worked out by hand.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.lexical import build_pisa_index

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def documents(*texts: str, fillers: int = 0) -> list[dict[str, str]]:
    """Documents d0, d1 … and after them others, each of one word that no query has."""
    texts = texts + tuple(f"filler{LETTERS[i // 26]}{LETTERS[i % 26]}" for i in range(fillers))
    return [{"docno": f"d{i}", "text": text} for i, text in enumerate(texts)]


def search(engine: Any, query: str) -> pd.DataFrame:
    return engine(pd.DataFrame({"qid": ["1"], "query": [query]}))


def found(engine: Any, query: str) -> list[str]:
    return search(engine, query)["docno"].tolist()


def scores(engine: Any, query: str) -> dict[str, float]:
    return search(engine, query).set_index("docno")["score"].to_dict()


def plain(name: str, docs: list[dict[str, str]], folder: Any) -> Any:
    """An engine over the documents, without stop words or stemming."""
    if name == "ours":
        return cs.BM25Index(folder / "i", stemmer=None, stopwords=None).index(docs).bm25(num_results=50)
    if name == "pisa":
        pytest.importorskip("pyterrier_pisa", reason="pip install 'pt-convsearch[pisa]'")
        return cs.bm25(build_pisa_index(docs, folder / "i", stemmer="none", stops="none"), num_results=50)
    pt.IterDictIndexer(str(folder / "i"), stemmer=None, stopwords=None, meta={"docno": 40}).index(docs)
    return cs.bm25(folder / "i", num_results=50)


@pytest.fixture(params=["ours", "pisa", "terrier"])
def name(request) -> str:
    if request.param == "terrier":
        request.getfixturevalue("terrier")
    return request.param


# -- the formulas, on four documents of three words: length is average, so tf / (tf + k1 (1 - b + b)) = 1 / 1.9

FOUR = documents("dune common one", "sand common two", "common three four", "common five six")


def test_one_word_by_hand(name, tmp_path) -> None:
    # df 1 of 4, tf 1. Lucene: ln(1 + 3.5/1.5) / 1.9. PISA: ln(3.5/1.5), its tf part has a factor k1 + 1 = 1.9.
    # Terrier: log2(3.5/1.5), the same factor, and a query term factor of (8 + 1) * 1 / (8 + 1) = 1
    wanted = {"ours": math.log(10 / 3) / 1.9, "pisa": math.log(7 / 3), "terrier": math.log2(7 / 3)}[name]
    assert scores(plain(name, FOUR, tmp_path), "dune") == pytest.approx({"d0": wanted}, rel=1e-5)


def test_a_word_in_every_document_by_hand(name, tmp_path) -> None:
    # df 4 of 4. Lucene: ln(1 + .5/4.5) / 1.9. PISA: ln(.5/4.5) < 0, so 1e-6. Terrier: log2(.5/4.5) = -3.17, kept
    wanted = {"ours": math.log(10 / 9) / 1.9, "pisa": 1e-6, "terrier": math.log2(1 / 9)}[name]
    engine = plain(name, FOUR, tmp_path)
    assert scores(engine, "common") == pytest.approx({f"d{i}": wanted for i in range(4)}, rel=1e-4)
    # so in Terrier a document with both words ranks below one that has the rare word alone would
    assert (scores(engine, "dune common")["d0"] < 0) == (name == "terrier")


def test_a_word_said_again_by_hand(name, tmp_path) -> None:
    engine = plain(name, FOUR, tmp_path)
    once, thrice = scores(engine, "dune")["d0"], scores(engine, "dune dune dune")["d0"]
    assert thrice == pytest.approx(once if name == "terrier" else 3 * once, rel=1e-5)
    # dune twice, sand once: Terrier divides by the largest count, so sand is 1/2 and gets 9 * .5 / (8 + .5) = 9/17
    both, mixed = scores(engine, "dune sand"), scores(engine, "dune dune sand")
    assert mixed["d0"] == pytest.approx((1 if name == "terrier" else 2) * both["d0"], rel=1e-5)
    assert mixed["d1"] == pytest.approx((9 / 17 if name == "terrier" else 1) * both["d1"], rel=1e-5)


def test_ours_ranks_as_pisa_with_its_idf(tmp_path) -> None:
    docs = documents("dune sand dune", "sand sand", "dune", "worm sand dune house", fillers=9)
    pisa = plain("pisa", docs, tmp_path / "p")
    ours = cs.BM25Index(tmp_path / "o", stemmer=None, stopwords=None).index(docs).bm25(idf="robertson")
    for query in ("dune sand", "dune dune sand worm"):
        assert scores(pisa, query) == pytest.approx({d: 1.9 * s for d, s in scores(ours, query).items()}, rel=1e-4)


def test_lucene_ranks_as_ours(tmp_path) -> None:
    lucene = pytest.importorskip("pyserini.index.lucene", reason="Anserini's jar comes with pyserini: not installed")
    docs = documents("dune sand dune", "sand sand", "dune", "worm sand dune house", fillers=9)
    indexer = lucene.LuceneIndexer(str(tmp_path / "l"))
    indexer.add_batch_dict([{"id": doc["docno"], "contents": doc["text"]} for doc in docs])
    indexer.close()
    engine = cs.bm25(tmp_path / "l")
    ours = cs.BM25Index(tmp_path / "o").index(docs).bm25()
    for query in ("dune sand", "dune dune sand worm"):  # lengths up to 40 survive Lucene's byte exactly
        assert scores(engine, query) == pytest.approx(scores(ours, query), rel=1e-4)


def test_lucenes_lengths_by_hand(tmp_path) -> None:
    lucene = pytest.importorskip("pyserini.index.lucene", reason="Anserini's jar comes with pyserini: not installed")
    # 51 words: 24 + 27, and of 27 (11011 in binary) four digits stay, 26: the length becomes 50; 11 words stay 11
    docs = documents(f"dune {'sea ' * 50}", f"dune {'sand ' * 10}")
    indexer = lucene.LuceneIndexer(str(tmp_path / "l"))
    indexer.add_batch_dict([{"id": doc["docno"], "contents": doc["text"]} for doc in docs])
    indexer.close()
    idf = math.log(1 + 0.5 / 2.5)  # both of two documents
    wanted = {d: idf / (1 + 0.9 * (0.6 + 0.4 * length / 31)) for d, length in (("d0", 50), ("d1", 11))}
    engine = cs.bm25(tmp_path / "l")
    assert scores(engine, "dune") == pytest.approx(wanted, abs=6e-5)  # Anserini rounds scores to four decimals
    ours = scores(cs.BM25Index(tmp_path / "o").index(docs).bm25(), "dune")
    assert ours["d0"] == pytest.approx(idf / (1 + 0.9 * (0.6 + 0.4 * 51 / 31)), rel=1e-5)
    # by itself Lucene raises at more than 1,024 distinct terms
    assert len(found(engine, " ".join(f"w{a}{b}{c}" for a in LETTERS for b in LETTERS for c in "abc") + " dune")) == 2


# -- tokens

WORDS = (
    "café crème", "東京タワー", "москва река", "version 3.5 beta", "the U.S.A. anthem", "wi-fi router",
    "x" * 30 + " long", "naïve idea", "don't panic", "straße", "snake_case",
)  # fmt: skip
#: query -> the engines that find its document; "unicode" and "utf" are the tokenizers for other languages
SURVIVES = {
    "café": (0, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "caf": (0, {"pisa", "terrier"}),  # there the letter with its accent is no letter
    "東京タワー": (1, {"ours", "unicode", "utf"}),
    "東京": (1, {"ours", "unicode"}),  # by character; Terrier's utf keeps the run in one piece
    "タワー": (1, {"ours", "unicode"}),
    "タ": (1, {"unicode"}),
    "москва": (2, {"ours", "unicode", "utf"}),
    "3.5": (3, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "5": (3, {"unicode", "pisa", "terrier", "utf"}),
    "U.S.A.": (4, {"ours", "unicode", "pisa"}),
    "usa": (4, {"pisa"}),  # it writes acronyms without their dots
    "wi-fi": (5, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "fi": (5, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "x" * 30: (6, {"ours", "unicode", "pisa"}),  # Terrier drops words of more than 20 letters
    "naïve": (7, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "don't": (8, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "straße": (9, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "strasse": (9, {"unicode"}),  # the only one that folds case as Unicode says
    "snake_case": (10, {"ours", "unicode", "pisa", "terrier", "utf"}),
    "snake": (10, {"unicode", "pisa", "terrier", "utf"}),  # Lucene's underscore joins
}


def test_which_words_survive(terrier, tmp_path) -> None:
    pytest.importorskip("pyterrier_pisa", reason="pip install 'pt-convsearch[pisa]'")
    docs = documents(*WORDS, fillers=26)
    engines = {
        "ours": cs.BM25Index(tmp_path / "o").index(docs).bm25(),
        "unicode": cs.BM25Index(tmp_path / "u", tokenizer="unicode", stemmer=None, stopwords=None).index(docs).bm25(),
        "pisa": cs.bm25(build_pisa_index(docs, tmp_path / "p")),
    }
    for tokeniser, engine in (("english", "terrier"), ("utf", "utf")):
        pt.IterDictIndexer(str(tmp_path / engine), tokeniser=tokeniser).index(docs)
        engines[engine] = cs.bm25(tmp_path / engine, tokeniser=tokeniser)
    for query, (place, wanted) in SURVIVES.items():
        assert {engine for engine in engines if f"d{place}" in found(engines[engine], query)} == wanted, query


# -- ties, ids, length


def test_equal_scores_come_in_the_order_of_the_collection(name, tmp_path) -> None:
    docs = [{"docno": f"t{i}", "text": "dune words"} for i in (3, 1, 2, 0)] + documents(fillers=12)
    engine = plain(name, docs, tmp_path)
    assert found(engine, "dune") == ["t3", "t1", "t2", "t0"]
    assert found(engine % 2, "dune") == ["t3", "t1"]


def test_long_ids(name, tmp_path) -> None:
    docs = [{"docno": "a" * 30 + letter, "text": f"word{letter}"} for letter in LETTERS]
    assert found(plain(name, docs, tmp_path), "wordb") == ["a" * 30 + "b"]


def test_terrier_cuts_long_ids_unless_told(terrier, tmp_path) -> None:
    docs = [{"docno": "short", "text": "first"}, *({"docno": "a" * 25 + c, "text": f"word{c}"} for c in LETTERS)]
    pt.IterDictIndexer(str(tmp_path / "i")).index(docs)
    assert found(cs.bm25(tmp_path / "i"), "worda wordb") == ["a" * 19, "a" * 19]


def test_ids_with_a_blank_or_said_twice(terrier, tmp_path) -> None:
    """Ours and PISA's (by build_pisa_index) refuse both, Terrier takes both."""
    blank = [{"docno": f"a {c}", "text": f"word{c}"} for c in LETTERS]
    twice = [{"docno": "a", "text": f"word{c}"} for c in LETTERS]
    for i, (docs, ids) in enumerate([(blank, ["a a", "a b"]), (twice, ["a", "a"])]):
        pt.IterDictIndexer(str(tmp_path / f"t{i}")).index(docs)
        assert found(cs.bm25(tmp_path / f"t{i}"), "worda wordb") == ids
        with pytest.raises(ValueError, match="docno"):
            cs.BM25Index(tmp_path / f"o{i}").index(docs)
        with pytest.raises(ValueError, match="docno"):
            build_pisa_index(docs, tmp_path / f"p{i}")


def test_a_query_of_two_thousand_words(name, tmp_path) -> None:
    """Lucene by itself raises at more than 1,024 distinct terms; none of these has a limit."""
    words = [f"w{a}{b}{c}" for a in LETTERS[:10] for b in LETTERS[:20] for c in LETTERS[:10]]
    docs = [{"docno": word, "text": word} for word in words]
    engine = plain(name, docs, tmp_path)
    assert sorted(found(engine, " ".join(words[100:140]))) == words[100:140]
    assert len(found(engine, " ".join(words))) == 50


# -- RM3: 120 documents, so that words in 2 to 11 of them are candidates by Terrier's rule and by Anserini's

RM3_DOCS = documents(
    "spice spice spice sand worm", "spice sand sand house", "worm house", "dune", "dune", fillers=115
)  # fmt: skip
#: of d0: spice 3/5, sand 1/5, worm 1/5; of d1: sand 2/4, spice 1/4, house 1/4. Shares 3/4 and 1/4 of the two give
#: spice 3/5*3/4 + 1/4*1/4 = 41/80, sand 3/20 + 1/8 = 22/80, worm 12/80, house 5/80: together 1
FEEDBACK = {"spice": 41 / 80, "sand": 22 / 80, "worm": 12 / 80, "house": 5 / 80}
ORIGINAL = {"dune": 2 / 3, "spice": 1 / 3}


def feedback(*given: float) -> pd.DataFrame:
    number = len(given)
    return pd.DataFrame(
        {"qid": "1", "query": "dune spice dune", "docno": [f"d{i}" for i in range(number)], "docid": range(number),
         "score": given, "rank": range(number)}
    )  # fmt: skip


def mixed(weight: float) -> dict[str, float]:
    terms = {*FEEDBACK, *ORIGINAL}
    return {t: weight * ORIGINAL.get(t, 0) + (1 - weight) * FEEDBACK.get(t, 0) for t in terms}


def test_rm3_of_anserini_by_hand(tmp_path) -> None:
    """A document counts as its share of the sum of the scores of the feedback documents: 3 and 1 are 3/4 and 1/4."""
    index = cs.BM25Index(tmp_path / "i", stemmer=None, stopwords=None).index(RM3_DOCS)
    for weight in (0.5, 0.6):
        expanded = index.rm3(fb_docs=2, original_query_weight=weight)(feedback(3.0, 1.0, 9.0))
        assert expanded["query_toks"][0] == pytest.approx(mixed(weight))


def test_rm3_of_terrier_by_hand(terrier, tmp_path) -> None:
    """There it counts as the softmax of its score: ln 3 and 0 are 3/4 and 1/4, and 3 and 1 would be .88 and .12."""
    pt.IterDictIndexer(str(tmp_path / "i"), stemmer=None, stopwords=None).index(RM3_DOCS)
    rm3 = {w: pt.rewrite.RM3(pt.IndexFactory.of(str(tmp_path / "i")), fb_docs=2, fb_lambda=w) for w in (0.5, 0.6)}

    def terms(weight: float, *given: float) -> dict[str, float]:
        query = rm3[weight](feedback(*given))["query"][0].removeprefix("applypipeline:off ")
        return {term: float(value) for term, value in (part.split("^") for part in query.split())}

    for weight in (0.5, 0.6):  # fb_lambda is the weight of the original query, as original_query_weight is
        assert terms(weight, math.log(3), 0.0) == pytest.approx(mixed(weight), rel=1e-5)
    # the softmax runs over the whole list; a third document takes the same share from both, which cancels out
    assert terms(0.5, math.log(3), 0.0, 0.0) == pytest.approx(mixed(0.5), rel=1e-5)
    # scores of 3 and 1: e^3 to e^1, so sand is (e^2/5 + 1/2) / (e^2 + 1) of the feedback
    sand = (math.e**2 / 5 + 1 / 2) / (math.e**2 + 1)
    assert terms(0.5, 3.0, 1.0)["sand"] == pytest.approx(sand / 2, rel=1e-5)


# -- the experiment that makes the page's tables


def test_one_table_with_every_engine(realdata, tmp_path, monkeypatch) -> None:
    pytest.importorskip("pyterrier_pisa", reason="pip install 'pt-convsearch[pisa]'")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    script = importlib.import_module("engines")
    data = str(realdata / "mtrag" / "mini")
    script.main(["--data", data, "--out", str(tmp_path), "--quick", "--engines", "ours", "pisa"])
    tables = {
        part: pd.read_csv(tmp_path / part / "results.csv").set_index(["system", "group", "measure"])["value"]
        for part in ("defaults", "tokens")
    }
    for form in ("X_t", "X_t\\q_t", "q_t", "rewrite"):
        # how terms are spelt is nothing to ours, and with equal terms and idf PISA is ours (but for its rounding)
        for measure in ("RR", "R@10", "R@100", "nDCG@10"):
            cell = ("All", measure)
            assert tables["tokens"][f"ours {form}", *cell] == pytest.approx(tables["defaults"][f"ours {form}", *cell])
            robertson = tables["tokens"][f"ours, Robertson {form}", *cell]
            assert tables["tokens"][f"pisa {form}", *cell] == pytest.approx(robertson, abs=0.002)
