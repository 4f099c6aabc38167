"""A collection is streamed: what is held does not grow with it."""

from __future__ import annotations

import itertools
import json
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pt_convsearch as cs
from pt_convsearch.datasets import check


def peak_while(passages: Iterator[dict]) -> tuple[int, int]:
    tracemalloc.start()
    count = sum(1 for _ in passages)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return count, peak


def lines(count: int, names: tuple[str, str]) -> Iterator[str]:
    text = "word " * 60
    for number in range(count):
        yield json.dumps({names[0]: f"http://x/{number}_p0", names[1]: text, "title": "t"}) + "\n"


def make(folder: Path, kind: str, count: int) -> cs.datasets.Dataset:
    if kind == "zip":
        with zipfile.ZipFile(folder / "passages.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for shard in range(2):
                with archive.open(f"collection-paragraph/{shard}.jsonl", "w") as member:
                    for line in lines(count // 2, ("id", "contents")):
                        member.write(line.encode())
        return cs.dataset("qrecc/test", path=folder)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as handle:
        handle.writelines(lines(count, ("docno", "text")))
    return cs.dataset(f"folder:{folder}")


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_streaming_holds_no_more_for_twenty_times_the_passages(tmp_path, kind):
    peaks = []
    for count in (1000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        data = make(folder, kind, count)
        assert next(iter(data.get_corpus_iter()))["docno"].startswith("http://x/")
        found, peak = peak_while(data.get_corpus_iter())
        assert found == count
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 200_000  # 20,000 passages are 7 MB of text
    assert peaks[1] < 2_000_000


def test_the_first_passage_needs_no_more_than_the_first(tmp_path):
    """A fault at the end of a large file does not keep its beginning from being read."""
    with (tmp_path / "corpus.jsonl").open("w", encoding="utf-8") as handle:
        handle.writelines(lines(100, ("docno", "text")))
        handle.write("{")
    passages = cs.dataset(f"folder:{tmp_path}").get_corpus_iter()
    assert len(list(itertools.islice(passages, 100))) == 100
    with pytest.raises(ValueError, match="line 101"):
        next(passages)


def test_a_check_holds_sixteen_bytes_a_passage(tmp_path):
    make(tmp_path, "folder", 20_000)
    (tmp_path / "topics.jsonl").write_text('{"qid": "1", "query": "a"}', encoding="utf-8")
    (tmp_path / "qrels.txt").write_text("1 0 http://x/7_p0 1", encoding="utf-8")
    tracemalloc.start()
    report = check(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.counts["passages"] == 20_000
    assert any(finding.count == 19_999 and "title and text" in finding.text for finding in report.warnings)
    assert peak < 3_000_000


def test_half_of_a_surrogate_pair_does_not_reach_anybody(tmp_path):
    text = '{"docno": "a", "text": "\\ud83d broken, \\ud83d\\ude42 whole"}\n'
    text += '{"docno": "b", "text": "\\\\ud is no escape"}'
    (tmp_path / "corpus.jsonl").write_text(text, encoding="utf-8")
    texts = [passage["text"] for passage in cs.dataset(f"folder:{tmp_path}").get_corpus_iter()]
    assert texts == ["\ufffd broken, 🙂 whole", "\\ud is no escape"]
