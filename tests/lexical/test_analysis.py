"""Tokens and terms against values worked out by hand; the Lucene cases are what Anserini's analyzer gives, too."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from pt_convsearch.lexical import Analyzer
from pt_convsearch.lexical.analysis import LUCENE_STOPWORDS, lucene_tokens, unicode_tokens

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" ?! … _ __ ", []),
        ("Who wrote Dune?", ["who", "wrote", "dune"]),
        ("wi-fi foo--bar AT&T C++", ["wi", "fi", "foo", "bar", "at", "t", "c"]),
        ("3,000.5 1.a a.1 10:30 x:y é：é 1;2", ["3,000.5", "1", "a", "a", "1", "10", "30", "x", "y", "é", "é", "1;2"]),
        ("U.S.A. foo_bar _x_", ["u.s.a", "foo_bar", "_x_"]),
        ("Queen's queen’s QUEEN'S Queens' don't 'tis", ["queen", "queen", "queen", "queens", "don't", "tis"]),
        ("café ÓRGÃOS e\u0301te\u0301", ["café", "órgãos", "e\u0301te\u0301"]),
        ("東京タワー ひら", ["東", "京", "タワー", "ひ", "ら"]),
        ("한국어 단어", ["한국어", "단어"]),
        ("ภาษาไทย", ["ภาษาไทย"]),
        ("שלום ש״ח", ["שלום", "ש״ח"]),
        (f"ok \U0001f642\U0001f44d\U0001f3fd {FAMILY}", ["ok", "\U0001f642", "\U0001f44d\U0001f3fd", FAMILY]),
        ("x" * 256, ["x" * 255, "x"]),
        ("a\u00a0b\u2028c", ["a", "b", "c"]),
    ],
)
def test_lucene_tokens(text, tokens):
    assert lucene_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Straße ＡＢＣ ﬁne", ["strasse", "abc", "fine"]),
        ("東京タワーへ行く", list("東京タワーへ行く")),
        ("你好，world", ["你", "好", "world"]),
        ("한국어 단어", ["한국어", "단어"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("wi-fi don't 3.5", ["wi", "fi", "don", "t", "3", "5"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("hi \U0001f642!", ["hi", "\U0001f642"]),
    ],
)
def test_unicode_tokens(text, tokens):
    assert unicode_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The running of relational technologies, possibly", ["run", "relat", "technolog", "possibl"]),
        ("us is it as by it's", ["us"]),  # words of two letters are not stemmed; "it's" is "it", a stop word
        ("generalizations oscillators ponies caresses", ["gener", "oscil", "poni", "caress"]),
        ("incredibly responsibly assembly apology", ["incred", "respons", "assembl", "apolog"]),
        ("sky happy", ["sky", "happi"]),
    ],
)
def test_default_terms_are_lucenes(text, terms):
    assert Analyzer()(text) == terms


def test_33_stop_words():
    assert len(LUCENE_STOPWORDS) == 33
    assert Analyzer()(" ".join(LUCENE_STOPWORDS)) == []
    assert len(Analyzer(stopwords=None, stemmer=None)(" ".join(sorted(LUCENE_STOPWORDS)))) == 33


def test_options():
    assert Analyzer(stemmer=None)("running") == ["running"]
    assert Analyzer(stemmer="german", stopwords=["die"])("Die Häuser") == ["haus"]
    assert Analyzer("unicode", None, None)("Die Häuser") == ["die", "häuser"]
    assert Analyzer(str.split, None, None)("A b-c") == ["A", "b-c"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "nltk"}, "nltk"),
        ({"stemmer": "klingon"}, "klingon.*porter"),
        ({"stopwords": "terrier"}, "terrier.*lucene"),
    ],
)
def test_unknown_settings_are_refused_with_what_there_is(options, message):
    with pytest.raises(ValueError, match=message):
        Analyzer(**options)


def test_pickled_and_told_by_settings():
    analyzer = Analyzer("unicode", "english", ["b", "a"])
    for copy in (pickle.loads(pickle.dumps(analyzer)), Analyzer.from_settings(analyzer.settings())):
        assert copy.settings() == analyzer.settings()
        assert copy("running a") == analyzer("running a") == ["run"]


TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(" \t\n\u00a0_.,;:'’\"-aZ9é東タ\u0301\u200d\U0001f642\U0001f3fd"), st.characters()
    )
)


@given(TEXT)
def test_a_piece_between_white_space_is_analysed_by_itself(text):
    for tokenize in (lucene_tokens, unicode_tokens):
        assert [token for piece in text.split() for token in tokenize(piece)] == tokenize(text)


@given(TEXT)
def test_ascii_and_unicode_rules_agree(text):
    text = text.encode("ascii", "ignore").decode()
    assert lucene_tokens(text + " é") == [*lucene_tokens(text), "é"]
