"""``python -m pt_convsearch datasets``: what it prints and the status it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pt_convsearch.cli import main


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVSEARCH_HOME", str(tmp_path / "home"))


def test_list(capsys, realdata, tmp_path):
    folder = tmp_path / "home" / "cast" / "2020"
    folder.mkdir(parents=True)
    (folder / "2020qrels.txt").symlink_to(realdata / "cast" / "2020" / "2020qrels.txt")
    assert main(["datasets", "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "216" in rows["cast/2020"]
    assert "1 of 3" in rows["cast/2020"]
    assert "54,573,064" in rows["qrecc/test"]
    assert main(["datasets", "list", "--json"]) == 0
    row = next(one for one in map(json.loads, capsys.readouterr().out.splitlines()) if one["name"] == "mtrag-un")
    assert (row["turns"], row["passages"]) == ("507", "366,459")


def test_info(capsys):
    assert main(["datasets", "info", "qrecc/test"]) == 0
    out = capsys.readouterr().out
    for part in (
        "CC BY-SA 3.0",
        "arXiv:2202.07280",
        "16,451 turns",
        "8,209 judged turns",
        "78501c85b464",
        "not verified",
        "zenodo.org",
    ):
        assert part in out
    assert main(["datasets", "info", "testbed"]) == 0
    assert main(["datasets", "info", "nothing"]) == 2
    assert "no data set is called 'nothing'" in capsys.readouterr().err


def test_fetch_offline_says_what_is_missing(capsys):
    assert main(["datasets", "fetch", "cast/2020", "--offline"]) == 2
    err = capsys.readouterr().err
    assert "2020_manual_evaluation_topics_v1.0.json" in err
    assert "raw.githubusercontent.com" in err


def test_fetch_of_what_is_there(capsys, realdata, tmp_path):
    folder = tmp_path / "home" / "cast" / "2020"
    folder.mkdir(parents=True)
    for file in (realdata / "cast" / "2020").iterdir():
        (folder / file.name).symlink_to(file)
    assert main(["datasets", "fetch", "cast/2020", "--offline", "--part", "qrels", "--quiet"]) == 0
    assert capsys.readouterr().out == f"qrels: {folder / '2020qrels.txt'}\n"
    assert main(["datasets", "fetch", "cast/2020", "--offline", "--part", "nothing"]) == 2


def test_fetch_without_a_server(capsys, monkeypatch):
    from pt_convsearch.datasets import cache

    def fail(url, target, **options):
        raise ConnectionError(f"{url}: no")

    monkeypatch.setattr(cache, "download", fail)
    monkeypatch.setenv("CONVSEARCH_OFFLINE", "0")
    assert main(["datasets", "fetch", "cast/2020", "--quiet"]) == 2
    assert "raw.githubusercontent.com" in capsys.readouterr().err


def test_the_licence_is_shown_once(caplog, monkeypatch):
    from pt_convsearch.datasets import cache, fetch

    def pretend(url, target, **options):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x")
        return target

    monkeypatch.setattr(cache, "download", pretend)
    fetch("canard/dev", parts=["archive"], offline=False, verbose=False)
    fetch("quac/val", parts=["train", "val"], offline=False, verbose=False)
    shown = [record.getMessage() for record in caplog.records if "Licence:" in record.getMessage()]
    assert [text.partition(".")[0] for text in shown] == ["CANARD", "QuAC"]


@pytest.mark.parametrize(
    ("qrels", "options", "status"),
    [("1 0 d 1\n", [], 0), ("1 0 e 1\n", [], 1), ("1 0 d 0\n", [], 0), ("1 0 d 0\n", ["--strict"], 1)],
)
def test_check_leaves_a_status(tmp_path, capsys, qrels, options, status):
    (tmp_path / "topics.jsonl").write_text('{"qid": "1", "query": "a"}', encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text('{"docno": "d", "text": "b"}', encoding="utf-8")
    (tmp_path / "qrels.txt").write_text(qrels, encoding="utf-8")
    assert main(["datasets", "check", str(tmp_path), *options]) == status
    assert "1 questions, 1 judgments, 1 passages" in capsys.readouterr().out


def test_check_of_nothing(capsys, tmp_path):
    assert main(["datasets", "check", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_terminal_that_lacks_a_character_is_shown_its_number(tmp_path):
    (tmp_path / "topics.jsonl").write_text('{"qid": "1", "query": "🙂"}', encoding="utf-8")
    (tmp_path / "corpus.jsonl").write_text('{"docno": "日本", "text": "é"}', encoding="utf-8")
    (tmp_path / "qrels.txt").write_text("1 0 ü 1", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pt_convsearch", "datasets", "check", str(tmp_path)],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 1, done.stderr
    assert b"judgments of passages that the corpus lacks: '\\xfc'" in done.stdout


def test_faults_of_the_file_system_are_one_line(capsys, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", "home")

    monkeypatch.setattr("pt_convsearch.datasets.fetch", refused)
    assert main(["datasets", "fetch", "cast/2020"]) == 2
    assert capsys.readouterr().err == "datasets: [Errno 13] Permission denied: 'home'\n"


def test_output_that_nobody_reads_is_no_fault():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pt_convsearch", "datasets", "info", "testbed"],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=240,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
