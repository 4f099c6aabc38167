"""Other engines behind the door: PISA against the formula it has, Terrier against Terrier's, one contract for all."""

from __future__ import annotations

import math
import pickle
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.lexical import PisaRetriever, TerrierRetriever, build_pisa_index

from .reference import Reference, zipf_collection

# letters only, since the engines' tokenizers differ on digits
COLLECTION = {
    docno: ["w" + "".join(chr(97 + int(digit)) for digit in term[1:]) + "x" for term in terms]
    for docno, terms in zipf_collection(300, 150, seed=6).items()
}
WORDS = sorted({term for terms in COLLECTION.values() for term in terms})


def stream():
    return ({"docno": docno, "text": " ".join(terms)} for docno, terms in COLLECTION.items())


def queries(count: int, length: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice([*WORDS, "unknownword"], size=length)) for _ in range(count)]


def frame(*asked: str) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(asked))], "query": list(asked)}).assign(
        qhistory=[[i] for i in range(len(asked))]
    )


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return cs.BM25Index(tmp_path_factory.mktemp("ours") / "i", stemmer=None, stopwords=None).index(stream())


@pytest.fixture(scope="module")
def pisa(tmp_path_factory):
    pytest.importorskip("pyterrier_pisa")
    return build_pisa_index(stream(), tmp_path_factory.mktemp("pisa") / "i", stemmer="none", stops="none")


@pytest.fixture(scope="module")
def terrier_index(terrier, tmp_path_factory):
    path = tmp_path_factory.mktemp("terrier") / "i"
    pt.IterDictIndexer(str(path), stemmer=None, stopwords=None).index(stream())
    return path


ENGINES = ["ours", "pisa", "terrier_index"]


@pytest.fixture(params=ENGINES)
def retriever(request):
    return cs.bm25(request.getfixturevalue(request.param), num_results=20)


def test_one_contract(retriever):
    asked = frame("", "   ", "unknownword", "?!^~(:", *queries(3, 30, seed=1))
    found = retriever(asked)
    assert found.columns.tolist() == ["qid", "query", "qhistory", "docno", "score", "rank"]
    assert found["qid"].unique().tolist() == ["q4", "q5", "q6"]
    assert found["qhistory"].tolist() == [[i] for i in (4, 5, 6) for _ in range(20)]
    assert found.groupby("qid")["rank"].apply(list).tolist() == [list(range(20))] * 3
    assert found.dtypes.astype(str).tolist()[3:] == ["str", "float64", "int64"]
    for nothing in (retriever(asked.head(4)), retriever(asked.head(0))):
        assert len(nothing) == 0
        assert nothing.columns.tolist() == found.columns.tolist()
        assert nothing.dtypes.equals(found.dtypes)
    with pytest.raises(ValueError, match="q1"):
        retriever(pd.DataFrame({"qid": ["q0", "q1"], "query": ["x", None]}))
    with pytest.raises(ValueError, match="stand in more than one row"):
        retriever(pd.DataFrame({"qid": ["q", "q"], "query": ["x", "y"]}))


def test_what_cannot_be_encoded_is_no_word(retriever):
    word = WORDS[3]
    asked = frame("", word).assign(query=pd.Series([f"\ud800 {word}", word], dtype=object))  # no str dtype holds it
    found = retriever(asked)
    assert found[found["qid"] == "q0"]["docno"].tolist() == found[found["qid"] == "q1"]["docno"].tolist() != []


@pytest.mark.parametrize("options", [{"num_results": 0}, {"num_results": "5"}, {"k1": -1.0}, {"b": None}, {"b": 2}])
def test_options_out_of_range_are_refused_by_name(retriever, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        cs.bm25(retriever.index, **options)
    ((name, value),) = options.items()
    retriever.set_parameter(name, value)
    with pytest.raises(ValueError, match=name):
        retriever(frame(WORDS[0]))


def test_single_queries_and_batches_agree(retriever):
    asked = frame(*queries(5, 12, seed=2))
    singly = pd.concat([retriever(asked.iloc[[i]]) for i in range(5)], ignore_index=True)
    pd.testing.assert_frame_equal(retriever(asked), singly)


def test_num_results_and_cutoff(retriever):
    asked = frame(*queries(2, 12, seed=2))
    compiled = (retriever % 1).compile()
    assert compiled.num_results == 1
    pd.testing.assert_frame_equal(compiled(asked), retriever(asked).groupby("qid").head(1).reset_index(drop=True))
    assert (retriever % 50).compile().num_results == 20


def test_separators_and_query_language_never_reach_the_engine(retriever):
    word = WORDS[3]
    plain = retriever(frame(word))
    for said in (f"{word} [SEP] ", f" [SEP] {word}"):
        found = retriever(frame(said).assign(qsep=" [SEP] "))
        assert found["docno"].tolist() == plain["docno"].tolist()
    for raw in (
        f"title:{word}",
        f"+{word}",
        f'"{word}"',
        f"{word}^3",
        f"/{word}?",
        f"{{{word}}}",
        f"({word}",
        f"#combine({word})",
    ):
        found = retriever(frame(raw))
        assert set(plain["docno"]) <= set(found["docno"]), raw


def test_identity_and_pickling(retriever):
    asked = frame(*queries(2, 12, seed=2))
    copy = pickle.loads(pickle.dumps(retriever)) if not isinstance(retriever, TerrierRetriever) else retriever
    assert copy == retriever
    assert hash(copy) == hash(retriever)
    pd.testing.assert_frame_equal(copy(asked), retriever(asked))
    changed = pickle.loads(pickle.dumps(retriever))
    changed.set_parameter("k1", 2.0)
    assert changed != retriever
    assert not np.allclose(changed(asked)["score"], retriever(asked)["score"])


def test_pisa_equals_ours_with_its_idf(ours, pisa):
    for length in (1, 6, 470):
        asked = frame(*queries(5, length, seed=length))
        found, own = cs.bm25(pisa, num_results=50)(asked), ours.bm25(num_results=50, idf="robertson")(asked)
        assert found["qid"].tolist() == own["qid"].tolist()
        # PISA has a factor k1 + 1
        np.testing.assert_allclose(found["score"], own["score"] * 1.9, rtol=1e-4)
        for i, query in enumerate(asked["query"]):
            wanted = [(d, s * 1.9) for d, s in Reference(COLLECTION, idf="robertson").search(Counter(query.split()))]
            rows = found[found["qid"] == f"q{i}"]
            np.testing.assert_allclose(rows["score"], [score for _, score in wanted[:50]], rtol=1e-4)


def test_pisa_counts_repeats_and_takes_weights(pisa):
    retriever = cs.bm25(pisa, num_results=300)
    word, other = WORDS[5], WORDS[60]
    once, thrice = (retriever(frame(query)) for query in (word, f"{word} {word} {word}"))
    np.testing.assert_allclose(thrice["score"], 3 * once["score"], rtol=1e-4)
    said = retriever(frame(f"{word} {word} {other}"))
    told = retriever(pd.DataFrame({"qid": ["1", "2"], "query_toks": [{word: 2e-6, other: 1e-6}, {"unknownword": 1.0}]}))
    assert told["docno"].tolist() == said["docno"].tolist()
    np.testing.assert_allclose(told["score"], said["score"] * 1e-6, rtol=1e-3)


def test_pisa_is_quiet(pisa, capfd):
    cs.bm25(pisa, k1=0.77)(frame(WORDS[0]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("docs", "message"),
    [
        ([{"docno": "a b", "text": "x"}], "white space"),
        ([{"docno": "", "text": "x"}], "empty"),
        ([{"docno": "a", "text": "x"}] * 2, "more than one document"),
        ([{"docno": "a", "text": None}], "document 'a' has no text"),
        ([{"docno": "a", "text": "x"}, {"docno": "b"}], "document 'b' has no text"),
        ([{"text": "x"}], "docno None"),
        # PISA would end the whole process
        ([], "no document holds a word"),
        ([{"docno": "a", "text": ""}, {"docno": "b", "text": "?"}], "no document holds a word"),
    ],
)
def test_pisa_indexes_only_docnos_that_survive(tmp_path, docs, message):
    pytest.importorskip("pyterrier_pisa")
    with pytest.raises(ValueError, match=message):
        build_pisa_index(docs, tmp_path / "i")
    assert not list(tmp_path.iterdir())


def test_pisa_iterator_that_fails_is_an_error(tmp_path):
    pytest.importorskip("pyterrier_pisa")

    def docs():
        yield {"docno": "a", "text": "x"}
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        build_pisa_index(docs(), tmp_path / "i")
    assert not list(tmp_path.iterdir())


def test_pisa_index_that_exists(pisa):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        build_pisa_index(stream(), pisa.path)


def terrier_bm25(query: list[str], k1: float = 0.9, b: float = 0.4, k3: float = 8.0) -> list[tuple[str, float]]:
    """Terrier's BM25: log2 idf without a floor, query term frequency over the largest one, saturated by k_3."""
    reference = Reference(COLLECTION)
    counts = Counter(query)
    scores: dict[str, float] = {}
    for docno, terms in reference.docs.items():
        for term, times in counts.items():
            if terms[term]:
                df, tf = reference.df[term], terms[term]
                norm = k1 * (1 - b + b * reference.lengths[docno] / reference.average)
                share = times / max(counts.values())
                weight = (
                    (k1 + 1)
                    * tf
                    / (norm + tf)
                    * (k3 + 1)
                    * share
                    / (k3 + share)
                    * math.log2((len(COLLECTION) - df + 0.5) / (df + 0.5))
                )
                scores[docno] = scores.get(docno, 0.0) + weight
    return sorted(scores.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("length", [2, 20, 200])
def test_terrier_equals_terriers_formula(terrier_index, length):
    asked = queries(3, length, seed=length)
    found = cs.bm25(str(terrier_index), num_results=30)(frame(*asked))
    for i, query in enumerate(asked):
        words = [word for word in query.split() if word != "unknownword"]
        rows = found[found["qid"] == f"q{i}"]
        wanted = terrier_bm25(words)
        np.testing.assert_allclose(rows["score"], [score for _, score in wanted[: len(rows)]], rtol=1e-4)


def test_terrier_is_another_bm25(ours, terrier_index):
    """What the front door's table says: there a repeated word takes weight from the others, here it adds."""
    word, other = WORDS[40], WORDS[90]
    terrier, own = cs.bm25(terrier_index, num_results=300), ours.bm25(num_results=300)
    assert terrier(frame(f"{word} {word}"))["score"].tolist() == pytest.approx(terrier(frame(word))["score"].tolist())
    assert own(frame(f"{word} {word}"))["score"].tolist() == pytest.approx((2 * own(frame(word))["score"]).tolist())
    said_twice, said_once = (
        terrier(frame(query)).set_index("docno")["score"] for query in (f"{word} {word} {other}", f"{word} {other}")
    )
    only_other = [docno for docno in said_once.index if COLLECTION[docno].count(word) == 0]
    assert only_other
    assert all(said_twice[docno] < said_once[docno] for docno in only_other)


def test_terrier_reads_accents_only_with_its_utf_tokeniser(terrier, tmp_path):
    docs = [
        {"docno": f"d{i}", "text": text}
        for i, text in enumerate(["café bar", "órgãos", "plain word", "other", "one", "two"])
    ]
    pt.IterDictIndexer(str(tmp_path / "utf"), tokeniser="utf").index(docs)
    retriever = cs.bm25(tmp_path / "utf", tokeniser="utf")
    assert retriever(frame("café?"))["docno"].tolist() == ["d0"]
    assert retriever(frame("órgãos"))["docno"].tolist() == ["d1"]


@pytest.mark.parametrize(
    "turn", ["What's its cause?", "Queen 's role", "/etc/apt error", "{x} cause", "órgãos cause", "a -b +c cause"]
)
def test_natural_questions_reach_terrier_as_their_words(terrier, tmp_path, turn):
    texts = ["the cause", "queen role", "etc apt error", "x cause", "nothing", "at all", "to see", "here now"]
    pt.IterDictIndexer(str(tmp_path / "i")).index([{"docno": f"d{i}", "text": text} for i, text in enumerate(texts)])
    retriever = cs.bm25(tmp_path / "i")
    cleaned = "".join(c if c.isascii() and c.isalnum() else " " for c in turn)
    assert retriever(frame(turn))["docno"].tolist() == retriever(frame(cleaned))["docno"].tolist() != []


def test_all_kinds_of_terrier_index(terrier_index):
    asked = frame(WORDS[5])
    wanted = cs.bm25(str(terrier_index))(asked)
    for index in (
        terrier_index,
        pt.terrier.TerrierIndex(str(terrier_index)),
        pt.IndexFactory.of(str(terrier_index)),
        str(terrier_index / "data.properties"),
    ):
        pd.testing.assert_frame_equal(cs.bm25(index)(asked), wanted)


def test_feedback_terms_reach_every_engine(ours, retriever):
    asked = frame(f"{WORDS[40]} {WORDS[90]}")
    found = (retriever >> ours.rm3(fb_docs=3, fb_terms=5) >> retriever)(asked)
    assert len(found["query_toks"][0]) >= 5
    assert len(found) == 20
    assert len(set(found["docno"]) - set(retriever(asked)["docno"])) > 0 or len(retriever(asked)) == 20


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_metadata_that_was_cut(tmp_path, content):
    (tmp_path / "pt_meta.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="without a known index"):
        cs.bm25(tmp_path)


def test_the_door_tells_what_it_was_given(ours, pisa, tmp_path):
    assert isinstance(cs.bm25(str(ours.path)), cs.lexical.BM25Retriever)
    assert cs.bm25(ours, num_results=3) == ours.bm25(num_results=3)
    assert isinstance(cs.bm25(str(pisa.path)), PisaRetriever)
    with pytest.raises(FileNotFoundError, match="no index at"):
        cs.bm25(tmp_path / "nothing")
    with pytest.raises(ValueError, match="without a known index"):
        cs.bm25(tmp_path)
    with pytest.raises(TypeError, match="dict is no index"):
        cs.bm25({})
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "segments_1").touch()
    if "pyserini" not in sys.modules:
        with pytest.raises(ImportError, match="Anserini engine needs 'pyserini'"):
            cs.bm25(tmp_path / "l")
