"""Token budgets: what stays, by hand; never too long, on any text, beside the tokenizer itself."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import pt_convsearch as cs

WORDPIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "b",
    "##a",
    "##b",
    "un",
    "##believ",
    "##able",
    "q",
    "?",
    "[",
    "]",
    "sep",
    "中",
    "é",
    "e",
]


def bert() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(WORDPIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    return tokenizer


def bytes_bpe() -> Tokenizer:
    """RoBERTa's and GPT-2's way: bytes, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["a believable story of an unbelievable queen, told again and again"] * 9, trainer)
    return tokenizer


def sentencepiece() -> Tokenizer:
    """T5's way: words carry a mark in front; pieces may run over several words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    trainer = trainers.BpeTrainer(vocab_size=80, show_progress=False, special_tokens=["<unk>"])
    tokenizer.train_from_iterator(["a believable story of an unbelievable queen, told again and again"] * 9, trainer)
    return tokenizer


TOKENIZERS = {"bert": bert(), "bytes": bytes_bpe(), "sentencepiece": sentencepiece()}


def bare(name: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(TOKENIZERS[name].to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


BARE = {name: bare(name) for name in TOKENIZERS}


def topic(history: list[str], query: str) -> pd.DataFrame:
    return pd.DataFrame({"qid": ["1"], "query": [query], "qhistory": [history]})


def query(history: list[str], query: str, parts: cs.Parts = cs.X, **options) -> str:
    return cs.form(parts, **options)(topic(history, query))["query"][0]


HISTORY = ["q one", "answer number one", "q two", "answer number two"]


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (99, "q one answer number one q two answer number two q three"),
        (12, "q one answer number one q two answer number two q three"),
        (11, "q one number one q two answer number two q three"),
        (10, "q one one q two answer number two q three"),
        (9, "q one q two answer number two q three"),
        (8, "q one two answer number two q three"),
        (5, "q one two q three"),
        (4, "q one q three"),
        (3, "one q three"),
        (2, "q three"),
        (1, "three"),
    ],
)
def test_what_stays_by_default(max_tokens: int, expected: str) -> None:
    assert query(HISTORY, "q three", max_tokens=max_tokens) == expected


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (8, "one q two answer number two q three"),
        (7, "q two answer number two q three"),
        (3, "two q three"),
        (1, "three"),
    ],
)
def test_what_stays_of_the_tail(max_tokens: int, expected: str) -> None:
    assert query(HISTORY, "q three", max_tokens=max_tokens, mode="tail") == expected


def test_without_the_current_question_the_first_one_leads() -> None:
    assert query(HISTORY, "q three", cs.X - cs.CURRENT, max_tokens=4) == "q one number two"
    assert query(HISTORY, "q three", cs.ANSWERS, max_tokens=4) == "one answer number two"


def test_separators_count() -> None:
    # words: q three (2), [SEP] (1), q one (2), [SEP] (1), and two of 'answer number two'
    assert query(HISTORY, "q three", max_tokens=8, sep=" [SEP] ") == "q one [SEP] number two [SEP] q three"
    assert query(HISTORY, "q three", max_tokens=8, sep=("[U]", "[T]")) == "q one [T] number two [T] q three"
    assert query(HISTORY, "q three", max_tokens=3, sep=" [SEP] ") == "q three"


def test_copies_come_after_what_must_stay() -> None:
    repeat = {cs.CURRENT: 3}
    assert query(HISTORY, "q three", max_tokens=9, repeat=repeat) == "q one two q three q three q three"
    assert query(HISTORY, "q three", max_tokens=7, repeat=repeat) == "q one two q three q three"
    assert query(HISTORY, "q three", max_tokens=4, repeat=repeat) == "q one q three"
    assert query(HISTORY, "q three", max_tokens=1, repeat=repeat) == "three"


def test_characters() -> None:
    # 7 for q_t, a space and 5 for q_1, a space and 3 of the newest answer
    assert query(HISTORY, "q three", max_tokens=17, tokenizer="characters") == "q one two q three"
    assert query(HISTORY, "q three", max_tokens=16, tokenizer="characters") == "q one q three"
    assert (
        query(["x"], "last words of a long story", max_tokens=12, tokenizer="characters", mode="tail") == "a long story"
    )


def test_bert_pieces_by_hand() -> None:
    # 'unbelievable' is three pieces; [CLS] and [SEP] are two of the budget, a separator one
    options = {"tokenizer": TOKENIZERS["bert"], "sep": " [SEP] "}
    assert query(["a b", "unbelievable a"], "q", max_tokens=11, **options) == "a b [SEP] unbelievable a [SEP] q"
    assert query(["a b", "unbelievable a"], "q", max_tokens=10, **options) == "a b [SEP] a [SEP] q"
    assert query(["a b", "unbelievable a"], "q", max_tokens=8, **options) == "a b [SEP] a [SEP] q"
    assert query(["a b", "unbelievable a"], "q", max_tokens=7, **options) == "a b [SEP] q"
    assert query(["a b", "unbelievable a"], "q", max_tokens=6, **options) == "a b [SEP] q"
    assert query(["a b", "unbelievable a"], "q", max_tokens=5, **options) == "b [SEP] q"


def test_a_long_question_keeps_its_end() -> None:
    assert query(["a"], "a b a b q", max_tokens=5, tokenizer=TOKENIZERS["bert"]) == "a b q"
    # one endless word: cut inside rather than lost
    kept = query(["b"], "a" * 30, max_tokens=12, tokenizer=TOKENIZERS["bert"])
    assert kept == "a" * 10


def test_scripts_without_spaces_are_cut_between_characters() -> None:
    assert query(["a"], "中中中中 中中", max_tokens=5, tokenizer=TOKENIZERS["bert"]) == "中 中中"


def test_an_endless_word_in_the_history_is_left_out_whole() -> None:
    options = {"tokenizer": TOKENIZERS["bert"]}
    assert query(["a", "b " + "a" * 30], "q", max_tokens=12, **options) == "a q"
    assert query(["a" * 30, "b"], "q", max_tokens=12, **options) == "b q"
    assert query(["a" * 30, "b"], "", max_tokens=12, parts=cs.FIRST_QUESTION, **options) == "a" * 10


@pytest.mark.parametrize(
    ("history", "current", "max_tokens", "expected"),
    [
        # [CLS] a b [SEP] + 4 of 'b a [SEP] q q' (6 with the last [SEP] counted as special)
        (["a b", "b a"], "q q", 10, "a b [SEP] b a [SEP] q q"),
        (["a b", "b a"], "q q", 9, "a b [SEP] a [SEP] q q"),
        # inside a word
        (["a", "unbelievable"], "q", 8, "a [SEP] believable [SEP] q"),
        (["a", "unbelievable"], "q", 7, "a [SEP] able [SEP] q"),
        # a long q_1 eats q_t
        (["a b a b", "b"], "q a q", 9, "a b a b [SEP] a q"),
        # no room for the rest: the slice counts from the other end, here all of it stays
        (["a b a b", "b"], "q a q", 7, "a b a b [SEP] b [SEP] q a q"),
        # a first turn is q_1 alone, whole
        ([], "a b a b a b", 5, "a b a b a b"),
    ],
)
def test_the_cut_of_the_paper(history: list[str], current: str, max_tokens: int, expected: str) -> None:
    options = {"tokenizer": TOKENIZERS["bert"], "sep": " [SEP] ", "mode": "paper"}
    assert query(history, current, max_tokens=max_tokens, **options) == expected


TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            [
                "a",
                "ab",
                "unbelievable",
                "q?",
                "[SEP]",
                "中中",
                "é",
                "e\u0301",
                "\u0301",
                "\x0c",
                "\x85",
                "a\x1cb",
                "🙂",
                "👩‍👩‍👧",
                "\u200b",
                "don't",
                "x" * 40,
                "ab" * 30,
                "กข",
                "한국어",
                "again",
                " ",
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@pytest.mark.filterwarnings("ignore:.*end with their own question")
@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@settings(max_examples=80, deadline=None)
@given(
    history=st.lists(TEXTS, max_size=5),
    current=TEXTS,
    max_tokens=st.integers(3, 24),
    sep=st.sampled_from([" ", " [SEP] ", ("[U]", "[T]"), " a ", "", "\n"]),
    mode=st.sampled_from([None, "tail"]),
    copies=st.integers(1, 3),
    parts=st.sampled_from([cs.X, cs.X - cs.CURRENT, cs.QUESTIONS, cs.LAST_ANSWER | cs.CURRENT]),
)
@example(history=["a\x1cb " * 9], current="a\x0cb", max_tokens=6, sep=" ", mode=None, copies=1, parts=cs.X)
def test_no_query_is_longer_than_its_budget(name, history, current, max_tokens, sep, mode, copies, parts) -> None:
    history = [text.encode("utf-8", "replace").decode() for text in history]
    former = cs.form(
        parts, sep=sep, repeat={parts: copies}, max_tokens=max_tokens, tokenizer=TOKENIZERS[name], mode=mode
    )
    formed = former(
        topic(history, current).assign(
            qhistory=[[{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(history)]]
        )
    )
    text = formed["query"][0]
    assert len(BARE[name].encode(text).ids) <= max_tokens
    needed = BARE[name].encode(current, add_special_tokens=False).ids
    if cs.CURRENT & parts and current.strip() and needed and mode is None and (name == "bert" or max_tokens >= 12):
        # the end of q_t is there: never lost (a character alone takes up to 4 bytes), and whole where it fits
        assert text.strip()
        if len(BARE[name].encode(current).ids) <= max_tokens and name == "bert":
            assert current in text


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(
        st.lists(st.sampled_from(["a", "b", "ab", "unbelievable", "q?"]), min_size=1, max_size=9).map(" ".join),
        max_size=5,
    ),
    max_tokens=st.integers(3, 40),
)
def test_no_word_is_cut(history: list[str], max_tokens: int) -> None:
    former = cs.form(cs.X - cs.CURRENT, max_tokens=max_tokens, tokenizer=TOKENIZERS["bert"])
    text = former(topic(history, "q"))["query"][0]
    words = {word for message in history for word in message.split()}
    longest = max((len(BARE["bert"].encode(word).ids) for word in words), default=0)
    if longest <= max_tokens:
        assert set(text.split()) <= words


def test_minilm_by_name_and_by_object(minilm: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    history = [
        "Who wrote the unbelievably long novel Dune?",
        "Frank Herbert did. " * 40,
        "When?",
        "In 1965 — they say. " * 30,
    ]
    topics = topic(history, "Did he write sequels?")
    by_name = cs.form(cs.X, sep=" [SEP] ", max_tokens=128, tokenizer=minilm)(topics)["query"][0]
    by_object = cs.form(cs.X, sep=" [SEP] ", max_tokens=128, tokenizer=tokenizer)(topics)["query"][0]
    assert by_name == by_object
    length = len(tokenizer(by_name)["input_ids"])
    # the next word to the left would be 'they', one piece, or '—'
    assert 126 <= length <= 128
    assert by_name.startswith(history[0] + " [SEP] ")
    assert by_name.endswith(" [SEP] Did he write sequels?")
    one, other = (cs.form(cs.X, max_tokens=8, tokenizer=AutoTokenizer.from_pretrained(minilm)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    # a tokenizer that was used keeps the truncation and padding of that call
    one.tokenizer(["a b c d e f", "a"], truncation=True, max_length=4, padding=True)
    assert one.tokenizer.backend_tokenizer.truncation is not None
    assert one == other
    assert hash(one) == hash(other)


def test_a_question_that_ends_in_nothing_is_not_lost() -> None:
    def formed(utterance: str, tokenizer: Tokenizer, tokens: int) -> str:
        history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        topics = pd.DataFrame({"qid": ["1"], "query": [utterance], "qhistory": [history]})
        return cs.form(cs.X, max_tokens=tokens, tokenizer=tokenizer)(topics)["query"][0]

    # BERT makes no token of a zero-width space, and un ##believ ##able has one token too many
    assert formed("unbelievable \u200b", bert(), 4) == "believable \u200b"
    # each line end is a token to GPT-2: they go before the words
    assert formed("again and again" + "\n" * 9, bytes_bpe(), 3).endswith("n")
    # " again" is one token, "again" is more
    assert formed("again", bytes_bpe(), 1) == "n"


def test_tokenizers_that_are_none() -> None:
    with pytest.raises(ValueError, match="tokenizer is a int"):
        query([], "q", max_tokens=3, tokenizer=7)
    with pytest.raises(OSError, match="no-such-tokenizer"):
        query([], "q", max_tokens=3, tokenizer="/no-such-tokenizer")
    with pytest.raises(ValueError, match="2 of its own"):
        query([], "q", max_tokens=2, tokenizer=TOKENIZERS["bert"])


def test_counting_by_hand(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a budget asks of its counters, one by one; a store of words that is full is emptied, not wrong."""
    from transformers import AutoTokenizer

    from pt_convsearch.forming import tokens
    from tests.desk import tokenizer

    assert tokens.last_tokens("a bc  d", 2, tokens.Words()) == ("bc  d", 2)
    tokenizer(tmp_path)
    bert = tokens.counter(AutoTokenizer.from_pretrained(tmp_path))
    assert bert.last_words("lima peru", 9) == (2, 2)
    assert bert.last_words("peru xyz", 3) == (1, 3)  # x ##y ##z
    monkeypatch.setattr(tokens, "_MOST_WORDS", 1)
    assert [bert.count(text) for text in ("lima", "lima rome", "xy", "lima rome xy")] == [1, 2, 2, 4]
    assert not tokens._begins_word("e\u0301", 1)  # an accent of its own belongs to its letter
    assert not tokens._begins_word("a", 1)
