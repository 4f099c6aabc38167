"""The cache: appended lines, whole after a kill, shared by processes."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from pt_convsearch.rewriting.answer_cache import AnswerCache, content_key


def entry(key: str, value: str = "x") -> dict[str, str]:
    return {"key": key, "value": value}


def test_what_was_put_is_there_for_the_next_process(tmp_path: Path) -> None:
    AnswerCache(tmp_path / "a" / "c.jsonl").put([entry("1"), entry("2", "é 🙂 \n\u2028 \ud800")])
    found = AnswerCache(tmp_path / "a" / "c.jsonl").get(["2", "3"])
    assert found == {"2": entry("2", "é 🙂 \n\u2028 \ud800")}


def test_two_open_caches_see_each_other(tmp_path: Path) -> None:
    one, two = AnswerCache(tmp_path / "c.jsonl"), AnswerCache(tmp_path / "c.jsonl")
    assert two.get(["1"]) == {}
    one.put([entry("1")])
    assert two.get(["1"]) == {"1": entry("1")}


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_line_cut_by_a_kill_is_passed_over_and_swallows_nothing(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.jsonl"
    AnswerCache(path).put([entry("1"), entry("2")])
    path.write_bytes(path.read_bytes()[:-cut])
    cache = AnswerCache(path)
    assert set(cache.get(["1", "2"])) == {"1"}
    cache.put([entry("3")])
    again = AnswerCache(path).get(["1", "2", "3"])
    assert {"1", "3"} <= set(again)
    if cut > 1:  # with the line end alone gone, the line is whole again
        assert "2" not in again
        assert "1 lines are damaged" in caplog.text


def test_rubbish_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"key": "1"}\n[]\n\xff\xfe\n{"no": 1}\n\n{"key": "2"}\r\n')
    assert set(AnswerCache(path).get(["1", "2"])) == {"1", "2"}


def test_a_file_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    cache = AnswerCache(path)
    cache.put([entry("1"), entry("2")])
    assert len(cache) == 2
    path.write_text("", encoding="utf-8")
    assert len(cache) == 0


def test_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    cache = AnswerCache(path)
    threads = [
        threading.Thread(target=lambda at=at: [cache.put([entry(f"{at}-{n}", "v" * 2000)]) for n in range(20)])
        for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(AnswerCache(path)) == 160


def test_pickles_without_its_content(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "c.jsonl")
    cache.put([entry("1", "v" * 10_000)])
    found = pickle.dumps(cache)
    assert len(found) < 1000
    assert pickle.loads(found).get(["1"])["1"]["key"] == "1"


def test_keys_tell_apart_what_differs() -> None:
    keys = [
        content_key("ab", "c"),
        content_key("a", "bc"),
        content_key(["ab", "c"]),
        content_key(1),
        content_key("1"),
        content_key(None),
    ]
    assert len(set(keys)) == 6


def test_a_folder_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"cache\.jsonl"):
        AnswerCache(tmp_path)
