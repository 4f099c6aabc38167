"""Ids come back byte for byte, and whatever is wrong with a file is named by file and line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pt_convsearch.datasets import iter_jsonl, iter_tsv, read_json, read_qrels, read_records, read_run

ODD_IDS = [
    '"Heroes"_(album)',
    "a,b",
    "NA",
    "007",
    "nan",
    "1e5",
    "http://x/y?a=1,2%20_p0",
    "日本語",
    "a\u00a0b",
    "'q'",
    "-1",
    "None",
]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def test_odd_ids_come_back_byte_for_byte(tmp_path):
    qrels = read_qrels(write(tmp_path / "q", "".join(f"NA 0 {docno} 1\n" for docno in ODD_IDS)))
    assert qrels["docno"].tolist() == ODD_IDS
    assert qrels["qid"].unique().tolist() == ["NA"]
    assert qrels["label"].tolist() == [1] * len(ODD_IDS)
    run = read_run(write(tmp_path / "r", "".join(f"007 Q0 {docno} {n} {-n} t\n" for n, docno in enumerate(ODD_IDS, 1))))
    assert run["docno"].tolist() == ODD_IDS
    assert run["qid"].unique().tolist() == ["007"]


@pytest.mark.parametrize(
    "text",
    [
        "q1 0 a 1\nq1 0 b 0\n",
        "q1\t0\ta\t1\nq1\t0\tb\t0\n",
        "q1 0 a 1\r\nq1 0 b 0\r\n",
        "\ufeffq1 0 a 1\nq1 0 b 0",
        "q1 0 a 1 extra\nq1 0 b 0 0.5\n",
        "  q1  0   a  1  \n\n\nq1 \t 0 b 0\n\n",
        "q1 Q0 a 1\nq1 Q0 b 0\n",
        "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n",
        '{"q1": {"a": 1, "b": 0}}',
        '{"q0": {"": 1}, "q1": {"a": 1, "b": 0}}',
    ],
    ids=["blanks", "tabs", "crlf", "bom", "five", "padding", "Q0", "beir", "json", "qrecc"],
)
def test_every_form_of_judgments_reads_the_same(tmp_path, text):
    qrels = read_qrels(write(tmp_path / "qrels", text))
    assert qrels.to_dict("list") == {"qid": ["q1", "q1"], "docno": ["a", "b"], "label": [1, 0]}
    assert qrels["label"].dtype == "int64"


def test_tabs_keep_blanks_in_ids(tmp_path):
    qrels = read_qrels(write(tmp_path / "q", "q 1\t0\thttp://x/a b_p0\t2\n"))
    assert qrels.iloc[0].tolist() == ["q 1", "http://x/a b_p0", 2]


def test_a_row_said_twice_is_one_and_a_contradiction_is_refused(tmp_path):
    assert len(read_qrels(write(tmp_path / "q", "1 0 a 1\n1 0 a 1\n"))) == 1
    with pytest.raises(ValueError, match=r"q2, line 3: 'a' has label 2 for '1', but 1 in line 1"):
        read_qrels(write(tmp_path / "q2", "1 0 a 1\n1 0 b 1\n1 0 a 2\n"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1 0 a 1\n1 0 b\n", 2),
        ("1 0 a 1\n1 0 b x\n", 2),
        ("1 0 a b c d\n", 1),
        ("1 0 a 1_0\n", 1),
        ("1 0 a ١\n", 1),
        ("1 0 a 1\n<html>\n", 2),
        ("", 1),
        ("\n\n", 1),
        ("1\t0\t\t1\n", 1),
        ("1 0 a nan\n", 1),
        ("query-id\tcorpus-id\tscore\n1\ta\n", 2),
    ],
)
def test_what_is_no_judgment_is_named_by_file_and_line(tmp_path, text, line):
    path = write(tmp_path / "some.qrels", text)
    with pytest.raises(ValueError, match=rf"some\.qrels, line {line}:"):
        read_qrels(path)


@pytest.mark.parametrize(
    "text", ['{"1": {"a": "x"}}', '{"1": ["a"]}', '{"1": {"a": true}}', '{"": {"a": 1}}', '{"1": {"a": 1}', "{"]
)
def test_what_is_no_json_of_judgments_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"some\.json"):
        read_qrels(write(tmp_path / "some.json", text))


def test_json_that_names_a_question_twice_is_refused(tmp_path):
    path = write(tmp_path / "q.json", '{"1": {"a": 1},\n "2": {"b": 1},\n "1": {"c": 1}}')
    with pytest.raises(ValueError, match=r"q\.json, line 3: the key '1' stands twice"):
        read_qrels(path)


def test_judgments_that_all_mean_none_are_an_empty_frame(tmp_path):
    qrels = read_qrels(write(tmp_path / "q.json", '{"1": {"": 1}, "2": {"": 1}}'))
    assert qrels.empty
    assert qrels.dtypes.astype(str).tolist() == ["str", "str", "int64"]


def test_runs_rank_from_zero_whatever_the_file_does(tmp_path):
    zero = read_run(write(tmp_path / "zero", "1 Q0 a 0 2.5 t\n1 Q0 b 1 1e-3 t\n"))
    one = read_run(write(tmp_path / "one", "1\t0\ta\t1\t2.5\tt\n1\t0\tb\t2\t1e-3\tt\n"))
    assert zero.equals(one)
    assert zero["rank"].tolist() == [0, 1]
    assert zero["score"].tolist() == [2.5, 0.001]
    cut = read_run(write(tmp_path / "from91", "1 Q0 a 91 2 t\n1 Q0 b 92 1 t\n"))
    assert cut["rank"].tolist() == [91, 92]


def test_run_without_tag_and_a_document_twice(tmp_path):
    path = write(tmp_path / "r", "1 Q0 a 3 1\n1 Q0 b 2 2\n1 Q0 a 1 3\n")
    with pytest.warns(UserWarning, match="1 rows repeat a document"):
        run = read_run(path)
    assert run.sort_values("rank")[["docno", "rank", "score"]].values.tolist() == [["a", 0, 3.0], ["b", 1, 2.0]]
    assert run["tag"].tolist() == ["", ""]


@pytest.mark.parametrize(
    ("text", "line"),
    [("1 Q0 a 1 nan t\n", 1), ("1 Q0 a 1 inf t\n", 1), ("1 Q0 a x 1 t\n", 1), ("1 Q0 a 1 1 t\n1 Q0 b 2\n", 2), ("", 1)],
)
def test_what_is_no_run_is_named_by_file_and_line(tmp_path, text, line):
    with pytest.raises(ValueError, match=rf"some\.run, line {line}:"):
        read_run(write(tmp_path / "some.run", text))


def compress(path: Path, raw: bytes, how: str) -> Path:
    if how == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__MACOSX/x", b"junk")
            archive.writestr("folder/x", raw)
        return path
    return write(path, {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "plain": bytes}[how](raw))


@pytest.mark.parametrize("how", ["gz", "bz2", "xz", "zip", "plain"])
@pytest.mark.parametrize("named", [True, False])
def test_compression_is_told_by_content(tmp_path, how, named):
    name = f"q.{how}" if named and how != "plain" else "q"
    path = compress(tmp_path / name, "\ufeff1 0 é 1\r\n".encode(), how)
    assert read_qrels(path).values.tolist() == [["1", "é", 1]]


@pytest.mark.parametrize("how", ["gz", "bz2", "xz", "zip"])
def test_a_cut_compressed_file_is_refused(tmp_path, how):
    raw = "".join(f"{n} 0 document{n * 7919} 1\n" for n in range(2000)).encode()
    whole = compress(tmp_path / "whole", raw, how).read_bytes()
    for size in (7, len(whole) // 2, len(whole) - 5):
        with pytest.raises(ValueError, match=r"cut\.file"):
            read_qrels(write(tmp_path / "cut.file", whole[:size]))


def test_a_web_page_under_the_name_of_an_archive_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"x\.jsonl\.gz, line 1: not a \.gz file"):
        list(iter_jsonl(write(tmp_path / "x.jsonl.gz", "<!DOCTYPE html>")))


def test_what_is_not_utf8_is_named_by_its_line(tmp_path):
    with pytest.raises(ValueError, match=r"latin, line 3: not valid UTF-8"):
        list(iter_jsonl(write(tmp_path / "latin", b'{"a": 1}\n{"a": 2}\n{"a": "\xe9"}\n')))
    with pytest.raises(ValueError, match="UTF-16"):
        read_json(write(tmp_path / "wide", "[1]".encode("utf-16")))
    with pytest.raises(ValueError, match=r"late, line 2: not valid UTF-8"):
        read_json(write(tmp_path / "late", b'["a",\n"\xff"]'))
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        with pytest.raises(ValueError, match="line 1: NUL bytes at the start"):
            read_json(write(tmp_path / encoding, "[1]".encode(encoding)))
    assert read_run(write(tmp_path / "nul", b"\0 Q0 d 1 2.5 tag\n"))["qid"].tolist() == ["\0"]  # no other encoding
    with pytest.raises(ValueError, match="digits: not valid JSON"):
        read_json(write(tmp_path / "digits", "7" * 5000))


def test_tsv_knows_no_quotes(tmp_path):
    path = write(tmp_path / "t.tsv", '1\t"a "b"\r\n\r\n2\tNA\r\n')
    assert list(iter_tsv(path, columns=2)) == [(1, ["1", '"a "b"']), (3, ["2", "NA"])]
    with pytest.raises(ValueError, match=r"t2\.tsv, line 2: 1 tab-separated fields where 2 are due"):
        list(iter_tsv(write(tmp_path / "t2.tsv", "1\ta\nb\n"), columns=2))


def test_records_know_their_lines(tmp_path):
    path = write(tmp_path / "r.json", '\ufeff[\n {"a": 1},\n {"a":\n   2}\n,{"a": 3}]\n')
    assert list(read_records(path)) == [(2, {"a": 1}), (3, {"a": 2}), (5, {"a": 3})]
    assert list(read_records(write(tmp_path / "l", '{"a": 1}\n\n{"a": 2}'))) == [(1, {"a": 1}), (3, {"a": 2})]
    assert list(read_records(write(tmp_path / "o", '{\n"a": 1\n}\n'))) == [(1, {"a": 1})]
    assert list(read_records(write(tmp_path / "e", "[ ]"))) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[\n{"a": 1},\n{"a": ', 3),
        ('[\n{"a": 1}', 2),
        ('[\n{"a": 1}\n{"a": 2}]', 3),
        ('[\n{"a": 1},\n]', 3),
        ('[{"a": 1},\n[2]]', 2),
        ('[{"a": 1}]\n[]', 2),
        ("\nnothing", 2),
        ("", 1),
        ('{"a": 1}\n{"a"', 2),
        ('[{"a": 1, "a": 2}]', 1),
        ("[" * 100_000, 1),
        ('[\n{"a": ' + "7" * 5000 + "}]", 2),
    ],
)
def test_records_that_are_cut_or_foreign_are_named_by_file_and_line(tmp_path, text, line):
    with pytest.raises(ValueError, match=rf"x\.json, line {line}:"):
        list(read_records(write(tmp_path / "x.json", text)))


# what an id can be in a file whose columns stand between blanks: anything but blanks, tabs and line ends
IDS = st.text(
    st.characters(exclude_characters=" \t\r\n", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12
).filter(lambda text: not text.startswith(("{", "\ufeff")))


@given(
    st.dictionaries(st.tuples(IDS, IDS), st.integers(-2, 4), min_size=1, max_size=20),
    st.sampled_from([" ", "\t", "  \t"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_judgments_survive_writing_and_reading(tmp_path, rows, blank):
    text = "\r\n".join(blank.join([qid, "0", docno, str(label)]) for (qid, docno), label in rows.items())
    found = read_qrels(write(tmp_path / "q", text))
    assert {(qid, docno): label for qid, docno, label in found.itertuples(index=False)} == rows
    found = read_qrels(
        write(tmp_path / "j", json.dumps({qid: {d: v for (q, d), v in rows.items() if q == qid} for qid, _ in rows}))
    )
    assert {(qid, docno): label for qid, docno, label in found.itertuples(index=False)} == rows
