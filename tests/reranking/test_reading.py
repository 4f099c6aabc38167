"""What is cut, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pt_convsearch.reranking.reading import FIXED, PASSAGE, QUESTION, encode_pairs, encode_templates, kept

from .conftest import WORDS


def segments(*runs: tuple[int, int]) -> np.ndarray:
    return np.concatenate([np.full(count, segment) for segment, count in runs])


PAIR = segments((FIXED, 1), (QUESTION, 4), (FIXED, 1), (PASSAGE, 6), (FIXED, 1))


def test_what_fits_is_kept_whole() -> None:
    assert kept(PAIR, 13, None) is None
    assert kept(PAIR, 13, 4) is None


@pytest.mark.parametrize(
    ("max_length", "max_query", "question", "passage"),
    [
        (12, None, [1, 2, 3, 4], [6, 7, 8, 9, 10]),  # the passage gives way, the question has its half of 9 and its 4
        (9, None, [2, 3, 4], [6, 7, 8]),  # room for 6: three each
        (13, 2, [3, 4], [6, 7, 8, 9, 10, 11]),  # the question's limit, though there is room
        (7, 1, [4], [6, 7, 8]),
        (3, None, [], []),  # nothing but the model's own tokens
    ],
)
def test_questions_keep_their_end_and_passages_their_start(
    max_length: int, max_query: int | None, question: list[int], passage: list[int]
) -> None:
    stays = kept(PAIR, max_length, max_query)
    assert stays is not None
    assert stays.tolist() == [0, *question, 5, *passage, 12]


def test_a_short_passage_leaves_its_room_to_the_question() -> None:
    pair = segments((FIXED, 1), (QUESTION, 10), (FIXED, 1), (PASSAGE, 2), (FIXED, 1))
    stays = kept(pair, 11, None)  # 8 tokens of room: 2 for the passage, 6 for the question
    assert stays is not None
    assert stays.tolist() == [0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_two_passages_share_and_give_what_they_do_not_need() -> None:
    triple = segments((QUESTION, 2), (PASSAGE, 1), (PASSAGE + 1, 9))
    stays = kept(triple, 8, None)  # 2 for the question, 6 for the passages: 1 and 5
    assert stays is not None
    assert stays.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


@given(
    st.lists(st.sampled_from([FIXED, QUESTION, PASSAGE, PASSAGE + 1]), min_size=1, max_size=40),
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_never_too_long_and_never_shorter_than_it_need_be(parts: list[int], length: int, most: int | None) -> None:
    whole = np.array(parts)
    stays = kept(whole, length, most)
    left = whole if stays is None else whole[stays]
    assert (left == FIXED).sum() == (whole == FIXED).sum()
    assert len(left) <= max(length, (whole == FIXED).sum())
    if most is not None:
        assert (left == QUESTION).sum() <= most
    elif len(whole) >= length >= (whole == FIXED).sum():
        assert len(left) == length  # no room is wasted


def test_pairs_of_a_real_tokenizer(tiny_cross_encoder: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_cross_encoder)
    features, cut = encode_pairs(tokenizer, [("w0 w1 w2 w3", "w4 w5 w6"), ("w0", "w1")], 7, None)
    assert [tokenizer.convert_ids_to_tokens(row) for row in features["input_ids"]] == [
        ["[CLS]", "w2", "w3", "[SEP]", "w4", "w5", "[SEP]"],
        ["[CLS]", "w0", "[SEP]", "w1", "[SEP]"],
    ]
    assert features["token_type_ids"] == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert cut.tolist() == [True, False]


def test_prompts_stay_whole(tmp_path) -> None:
    from transformers import AutoTokenizer

    from tests.tiny_seq2seq import tiny_t5

    tokenizer = AutoTokenizer.from_pretrained(tiny_t5(tmp_path, [*WORDS, "Query", "Document", "Relevant", ":"]))
    row = [("Query:", FIXED), ("w1 w2 w3 w4", QUESTION), ("Document:", FIXED), ("w5 w6 w7 w8", PASSAGE)]
    features, cut = encode_templates(tokenizer, [[*row, ("Relevant:", FIXED)]], 11, None)
    assert tokenizer.convert_ids_to_tokens(features["input_ids"][0]) == [
        "Query", ":", "w3", "w4", "Document", ":", "w5", "w6", "Relevant", ":", "</s>",
    ]  # fmt: skip
    assert cut.tolist() == [True]
