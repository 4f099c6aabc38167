"""What a re-ranker reads of a question and a passage: cut so that the end of the question and the start of the passage
stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: what a token belongs to: the model's own tokens and prompts stay, the question is cut on the left, passages on the
#: right
FIXED, QUESTION, PASSAGE = -1, 0, 1

#: one field of a template (text, segment); a prompt has segment FIXED
Piece = tuple[str, int]


def kept(segments: np.ndarray, max_length: int, max_query_length: int | None) -> np.ndarray | None:
    """Which tokens stay so that at most ``max_length`` do; None for all.

    The question keeps its end, each passage its start. The question has what the passages leave of the room beside the
    fixed tokens, at least half of it, and never more than ``max_query_length``; several passages share the rest evenly,
    and what one does not need is the others'.

    >>> kept(np.array([-1, 0, 0, 0, -1, 1, 1, 1, -1]), 7, None).tolist()     # [CLS] q q q [SEP] p p p [SEP]
    [0, 2, 3, 4, 5, 6, 8]
    """
    sizes = np.bincount(segments[segments >= 0], minlength=2)
    fixed = int((segments < 0).sum())
    question, passages = int(sizes[QUESTION]), sizes[PASSAGE:].astype(int)
    limit = question if max_query_length is None else min(question, max_query_length)
    room = max(0, max_length - fixed)
    if limit == question and question + passages.sum() <= room:
        return None
    limit = min(limit, room if not passages.any() else max(room // 2, room - int(passages.sum())))
    left = room - limit
    given = np.zeros(len(passages), dtype=int)
    waiting = [place for place in range(len(passages)) if passages[place]]
    while waiting and left:
        share = max(1, left // len(waiting))
        for place in list(waiting):
            more = min(share, int(passages[place] - given[place]), left)
            given[place] += more
            left -= more
            if given[place] == passages[place]:
                waiting.remove(place)
    stays = segments < 0
    places = np.flatnonzero(segments == QUESTION)
    stays[places[len(places) - limit :]] = True
    for number, count in enumerate(given.tolist()):
        stays[np.flatnonzero(segments == PASSAGE + number)[:count]] = True
    return np.flatnonzero(stays)


def encode_pairs(
    tokenizer: Any, pairs: Sequence[tuple[str, ...]], max_length: int, max_query_length: int | None
) -> tuple[dict[str, list[list[int]]], np.ndarray]:
    """Token ids (and what else the model reads) of (question, passage) as one sequence each, and which were cut."""
    encoded = tokenizer(
        [question for question, _ in pairs], [passage for _, passage in pairs],
        add_special_tokens=True, truncation=False, padding=False, verbose=False,
    )  # fmt: skip
    features = {name: encoded[name] for name in encoded if name in (*tokenizer.model_input_names, "attention_mask")}
    segments = [
        np.array([FIXED if part is None else part for part in encoded.sequence_ids(row)], dtype=np.int64)
        for row in range(len(pairs))
    ]
    return features, _cut(features, segments, max_length, max_query_length)


def encode_templates(
    tokenizer: Any, rows: Sequence[Sequence[Piece]], max_length: int, max_query_length: int | None
) -> tuple[dict[str, list[list[int]]], np.ndarray]:
    """Token ids of prompts with a question and passages in them, joined by blanks, and which were cut."""
    texts, ends = [], []
    for row in rows:
        text, stops = "", []
        for piece, segment in row:
            text = f"{text} {piece}" if text else piece
            stops.append((len(text), segment))
        texts.append(text)
        ends.append(stops)
    encoded = tokenizer(
        texts, add_special_tokens=True, truncation=False, padding=False, return_offsets_mapping=True,
        return_special_tokens_mask=True, verbose=False,
    )  # fmt: skip
    features = {name: encoded[name] for name in encoded if name in (*tokenizer.model_input_names, "attention_mask")}
    segments = []
    for number, stops in enumerate(ends):
        last = np.array([end for _, end in encoded["offset_mapping"][number]], dtype=np.int64)
        place = np.searchsorted([stop for stop, _ in stops], last)
        of = np.array([segment for _, segment in stops], dtype=np.int64)[np.minimum(place, len(stops) - 1)]
        segments.append(np.where(np.array(encoded["special_tokens_mask"][number]) == 1, FIXED, of))
    return features, _cut(features, segments, max_length, max_query_length)


def _cut(
    features: dict[str, list[list[int]]], segments: list[np.ndarray], max_length: int, max_query_length: int | None
) -> np.ndarray:
    was_cut = np.zeros(len(segments), dtype=bool)
    for row, own in enumerate(segments):
        stay = kept(own, max_length, max_query_length)
        if stay is not None:
            was_cut[row] = True
            for values in features.values():
                values[row] = [values[row][place] for place in stay]
    return was_cut
