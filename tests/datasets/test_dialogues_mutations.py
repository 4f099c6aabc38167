"""Altered files: a reader gives well-formed dialogues or names the file and the line; nothing else comes out."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pt_convsearch.datasets.convokit import read_convokit
from pt_convsearch.datasets.dialogues import read_dialogue_file
from pt_convsearch.datasets.forum import read_forum
from pt_convsearch.datasets.noesis import read_noesis
from pt_convsearch.datasets.response_tsv import read_response_tsv

FORUM = {
    str(n): {
        "category": "dba",
        "title": "Tïtle 🙂",
        "utterances": [
            {"actor_type": actor, "utterance": f"text {n} “{actor}”", "utterance_pos": at, "votes": 1.5}
            for at, actor in enumerate(("user", "agent", "user"), 1)
        ],
    }
    for n in range(3)
}
NOESIS = [
    {
        "example-id": n,
        "messages-so-far": [{"speaker": "participant_0", "utterance": "participant_0 : hi"}],
        "options-for-correct-answers": [{"candidate-id": "a", "utterance": "yes"}],
        "options-for-next": [{"candidate-id": "a", "utterance": "yes"}, {"candidate-id": "b", "utterance": "nö"}],
    }
    for n in range(3)
]
DIALOGUES = [
    {"dialogue_id": f"d{n}", "utterances": [{"speaker": "a", "text": "hi 🙂"}, {"speaker": "b", "text": "hö"}]}
    for n in range(3)
]
UTTERANCES = [
    {
        "id": str(n),
        "speaker": "s",
        "conversation_id": "0",
        "reply_to": None,
        "timestamp": None,
        "text": "tëxt",
        "meta": {},
    }
    for n in range(3)
]


def lines(values):
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


FORMATS = {
    "forum.json": (read_forum, json.dumps(FORUM, indent=1, ensure_ascii=False)),
    "noesis.json": (read_noesis, json.dumps(NOESIS, ensure_ascii=False)),
    "dialogues.jsonl": (read_dialogue_file, lines(DIALOGUES)),
    "utterances.jsonl": (read_convokit, lines(UTTERANCES)),
    "responses.tsv": (read_response_tsv, "1\thi\tyes?\tso\n0\thi\tyes?\tnö\n1\tä\tb\n"),
}


@st.composite
def altered(draw, raw):
    """The bytes with a few of them cut out, doubled, replaced, or the end cut off."""
    for _ in range(draw(st.integers(1, 3))):
        if not raw:
            break
        at = draw(st.integers(0, len(raw) - 1))
        end = min(len(raw), at + draw(st.integers(1, 12)))
        how = draw(st.sampled_from(["cut", "drop", "double", "replace", "swap"]))
        if how == "cut":
            raw = raw[:at]
        elif how == "drop":
            raw = raw[:at] + raw[end:]
        elif how == "double":
            raw = raw[:end] + raw[at:]
        elif how == "replace":
            raw = raw[:at] + draw(st.binary(min_size=1, max_size=4)) + raw[end:]
        else:
            raw = raw[:at] + bytes(reversed(raw[at:end])) + raw[end:]
    return raw


def outcome(reader, path):
    """What the reader gives, and the message of its ValueError; any other exception is a failure."""
    found = []
    try:
        for dialogue in reader(path):
            found.append(dialogue)
    except ValueError as error:
        return found, str(error)
    return found, None


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_well_formed_or_named(tmp_path_factory, name, data):
    reader, text = FORMATS[name]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data.draw(altered(text.encode())))
    found, refusal = outcome(reader, path)
    assert refusal is None or (name in refusal and "line" in refusal)
    for dialogue in found:
        assert isinstance(dialogue["dialogue_id"], str | int)
        for said in dialogue["utterances"]:
            assert isinstance(said["text"], str)
            assert said["speaker"] is not None


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_altered_gzip_is_refused_or_read(tmp_path_factory, name, data):
    reader, text = FORMATS[name]
    path = tmp_path_factory.getbasetemp() / f"{name}.gz"
    path.write_bytes(data.draw(altered(gzip.compress(text.encode(), mtime=0))))
    _, refusal = outcome(reader, path)
    assert refusal is None or f"{name}.gz" in refusal


@pytest.mark.parametrize("name", FORMATS)
def test_unaltered_with_other_line_ends_and_a_mark(tmp_path, name):
    reader, text = FORMATS[name]
    plain, other = tmp_path / name, tmp_path / f"other-{name}"
    plain.write_text(text, encoding="utf-8")
    other.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert list(reader(plain)) == list(reader(other))
    assert len(list(reader(plain))) == {"responses.tsv": 2, "utterances.jsonl": 1}.get(name, 3)
