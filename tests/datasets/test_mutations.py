"""Published files, damaged at random: either the right values or an error that names file and line."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pt_convsearch.datasets import read_qrels, read_run
from pt_convsearch.datasets.cast import read_topics as read_cast
from pt_convsearch.datasets.folder import read_topics as read_folder
from pt_convsearch.datasets.ikat import read_topics as read_ikat
from pt_convsearch.datasets.mtrag import read_generation_tasks
from pt_convsearch.datasets.qrecc import read_turns

READERS = {
    "cast": (read_cast, "cast/2022/2022_evaluation_topics_tree_v1.0.json"),
    "ikat": (read_ikat, "ikat-topics/2023_train_topics.json"),
    "qrecc": (read_turns, "qrecc-labels/qrecc-trec-part.questions.json"),
    "folder": (read_folder, "qrecc-dev2k/dev.topics.jsonl"),
    "mtrag": (read_generation_tasks, "mtrag/mini/un.topics.jsonl"),
    "qrels": (read_qrels, "ikat-topics/ptkb_rel_nist"),
}
FOREIGN = (
    b"",
    b"\n\n",
    b"<!DOCTYPE html>\n<html></html>",
    b"\x00\x01\x02\xff\xfe",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b"[1, 2]",
    b"%PDF-1.4\n",
    b'"x"',
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
)
LIMITS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def small(path: Path, kind: str) -> bytes:
    """The beginning of a published file, whole in itself."""
    if path.suffix == ".json":
        return json.dumps(json.loads(path.read_text(encoding="utf-8"))[:2], ensure_ascii=False, indent=1).encode()
    lines = path.read_bytes().splitlines(keepends=True)[:8]
    if kind == "mtrag":  # as distributed, out of the small copy
        tasks = []
        for line in lines[:4]:
            item = json.loads(line)
            tasks.append(
                {"task_id": item["qid"], "input": [*item["history"], {"speaker": "user", "text": item["query"]}]}
            )
        return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks).encode()
    return b"".join(lines)


def read(reader, path: Path) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reader(path)


def attempt(reader, path: Path) -> tuple[pd.DataFrame | None, str]:
    """The frame, or what the refusal says."""
    try:
        return read(reader, path), ""
    except ValueError as error:
        return None, str(error)


def values(column: pd.Series) -> list[object]:
    return [None if not isinstance(value, list | dict) and pd.isna(value) else value for value in column]


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@LIMITS
def test_a_cut_file_is_an_error_or_the_beginning(realdata, tmp_path, kind, data):
    reader, name = READERS[kind]
    raw = small(realdata / name, kind)
    place = tmp_path / "file"
    place.write_bytes(raw)
    whole = read(reader, place)
    place.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    part, told = attempt(reader, place)
    if part is None:
        assert re.search(rf"{re.escape(str(place))}, (after )?line \d+", told), told
    else:
        # line-wise files that end with a line: what is there is right
        assert kind in ("folder", "mtrag", "qrels")
        for column in part.columns:
            if column != "label":  # the half of a number is a number
                assert values(part[column]) == values(whole[column])[: len(part)]


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@LIMITS
def test_a_flipped_byte_changes_a_value_or_is_an_error(realdata, tmp_path, kind, data):
    reader, name = READERS[kind]
    raw = bytearray(small(realdata / name, kind))
    place = tmp_path / "file"
    place.write_bytes(raw)
    whole = read(reader, place)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != raw[at]))
    place.write_bytes(raw)
    found, told = attempt(reader, place)
    if found is None:
        assert re.search(rf"{re.escape(str(place))}, (after )?line \d+", told), told
    else:
        # nothing is lost: one byte touches one row (or, in a history, those after it)
        assert len(found) in (len(whole), len(whole) - 1, len(whole) + 1)
        assert found["qid"].is_unique or kind == "qrels"


@pytest.mark.parametrize("kind", READERS)
def test_a_foreign_file_is_an_error(realdata, tmp_path, kind):
    reader, _ = READERS[kind]
    for number, raw in enumerate(FOREIGN):
        place = tmp_path / f"foreign{number}"
        place.write_bytes(raw)
        with pytest.raises(ValueError, match=rf"foreign{number}, line \d+"):
            read(reader, place)


@pytest.mark.parametrize("kind", READERS)
def test_windows_line_ends_and_a_byte_order_mark_change_nothing(realdata, tmp_path, kind):
    reader, name = READERS[kind]
    raw = small(realdata / name, kind)
    (tmp_path / "a").write_bytes(raw)
    (tmp_path / "b").write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))
    assert read(reader, tmp_path / "a").equals(read(reader, tmp_path / "b"))


@given(data=st.data())
@LIMITS
def test_a_damaged_run(realdata, tmp_path, data):
    path = realdata / "cast" / "2021" / "baselines-depth100" / "org_convdr.run.gz"
    raw = bytearray(gzip.decompress(path.read_bytes())[:2000])
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    place = tmp_path / "run"
    place.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    run, told = attempt(read_run, place)
    if run is None:
        assert re.search(rf"{re.escape(str(place))}, line \d+", told), told
    else:
        assert run["score"].notna().all()
        assert (run["docno"] != "").all()
