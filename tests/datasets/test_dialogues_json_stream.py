"""Huge JSON item by item: the same values as json.loads, faults by line, little memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from pt_convsearch.datasets import json_stream
from pt_convsearch.datasets.json_stream import iter_json_items

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
CHUNKS = st.sampled_from([1, 2, 3, 7, 64, 1 << 20])


@pytest.fixture
def chunk(monkeypatch):
    return lambda size: monkeypatch.setattr(json_stream, "_CHUNK", size)


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, max_size=4) | st.dictionaries(st.text(max_size=4), VALUES, max_size=4), CHUNKS, st.data())
def test_same_values_whatever_the_piece_read_at_a_time(tmp_path_factory, value, size, data):
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 0, 2])), ensure_ascii=data.draw(st.booleans()))
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if text.isascii() else text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK", size)
        found = list(iter_json_items(path))
        if isinstance(value, dict):
            assert {key: item for _, key, item in found} == value
        else:
            assert [item for _, _, item in found] == value
        # cut anywhere, it is refused
        cut = data.draw(st.integers(0, len(text) - 1))
        path.write_text(text[:cut], encoding="utf-8")
        with pytest.raises(ValueError, match=r"value\.json, (after )?line \d+"):
            list(iter_json_items(path))


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"a": 1},\n{"a": 2,},\n{}]', "line 3: not valid JSON"),
        ('[\n{"a": 1}\n{"a": 2}]', "line 3: .*comma is due"),
        ('{"a": 1,\n\n"a": 2}', "line 3: .*'a' stands twice"),
        ('{"a" 1}', "line 1: .*colon is due"),
        ("{1: 2}", "line 1: .*double quotes"),
        ('["a",\n"b"] x', "line 2: .*after the end"),
        ("", "line 1: the file is empty"),
        ("<html>", "line 1: not a JSON list or object"),
        ('["\\x"]', "line 1: not valid JSON"),
        ("[1, 2", "line 1: .*cut"),
    ],
)
def test_faults_are_named_by_line(tmp_path, chunk, size, text, message):
    chunk(size)
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"broken\.json, {message}"):
        list(iter_json_items(path))


def test_no_utf8_and_cut_gzip_are_named(tmp_path, chunk):
    path = tmp_path / "latin.json"
    path.write_bytes(b'["a",\n"caf\xe9"]')
    with pytest.raises(ValueError, match=r"latin\.json, line 2: not valid UTF-8"):
        list(iter_json_items(path))
    whole = gzip.compress(json.dumps([{"text": f"utterance {n} " * 20} for n in range(3000)]).encode())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    chunk(4096)
    seen = 0
    with pytest.raises(ValueError, match=r"cut\.json\.gz, after line 1: the file is cut"):
        for _ in iter_json_items(path):
            seen += 1
    assert 0 < seen < 3000


def test_mark_and_compression(tmp_path):
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + '{"é": "🙂"}'.encode())
    assert list(iter_json_items(path)) == [(1, "é", "🙂")]
    (tmp_path / "packed").write_bytes(gzip.compress(b"\r\n[1,\r\n 2]"))
    assert [(line, value) for line, _, value in iter_json_items(tmp_path / "packed")] == [(2, 1), (3, 2)]


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Thirty megabytes of dialogues in a few of memory."""
    path = tmp_path / "large.json"
    dialogue = json.dumps({"utterances": [{"utterance": "word " * 60, "actor_type": "user"}] * 5})
    with path.open("w", encoding="utf-8") as handle:
        handle.write("{" + ",\n".join(f'"{n}": {dialogue}' for n in range(18000)) + "}")
    assert path.stat().st_size > 25e6
    tracemalloc.start()
    count = sum(1 for _ in iter_json_items(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 18000
    assert peak < 12e6
