"""The experiments on real data, in their quick form; values known from the data's own counts or from the papers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch):
    """Import a script of experiments/ as it is imported when it is run."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))

    def load(name: str) -> ModuleType:
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


def cells(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""]).set_index(
        ["system", "group", "measure"]
    )


def test_counts_of_qrecc_types_are_the_papers(experiment, realdata: Path, tmp_path: Path) -> None:
    experiment("qrecc_types").main(["--data", str(realdata / "qrecc-labels"), "--out", str(tmp_path)])
    counts = cells(tmp_path)["value"]
    gold = counts["with a gold passage"].droplevel("measure")
    assert (gold["first"], gold["switch"], gold["no-switch"]) == (267, 573, 279)
    assert counts["judgments", "questions", "questions"] == 16451
    assert counts["judgments", "with a gold passage", "questions"] == 8209
    # the structure alone gives the union of switch and no-switch, and first before questions without gold are dropped
    assert counts["structure", "switch or no-switch", "questions"] == 573 + 279
    assert counts["structure", "first", "questions"] == 959


def test_mtrag(experiment, realdata: Path, tmp_path: Path) -> None:
    experiment("mtrag").main(["--data", str(realdata / "mtrag" / "mini"), "--out", str(tmp_path), "--quick"])
    human = cells(tmp_path / "human")
    assert human.loc[("BM25 X_t", "All", "R@10"), "n"] == 262
    value = human["value"].xs("R@10", level="measure")
    # on the topic BM25 hardly misses the question; where the topic switches, the question alone beats the history
    assert value["BM25 X_t\\q_t", "no-switch"] > 0.9 * value["BM25 X_t", "no-switch"]
    assert value["BM25 q_t", "switch"] > value["BM25 X_t", "switch"]
    un = cells(tmp_path / "un")
    assert un.loc[("BM25 X_t", "All", "R@10"), "n"] == 332
    assert (tmp_path / "human" / "table.md").read_text(encoding="utf-8").startswith("|")


def test_cast21(experiment, realdata: Path, tmp_path: Path) -> None:
    experiment("cast21").main(["--data", str(realdata / "cast" / "cast21-mini"), "--out", str(tmp_path), "--quick"])
    results = cells(tmp_path)
    assert results.loc[("BM25 X_t", "All", "R@10"), "n"] == 187
    assert results.loc[("BM25 rewrite", "All", "RR"), "value"] > results.loc[("BM25 X_t", "All", "RR"), "value"]
    assert pd.isna(results.loc[("BM25 X_t\\q_t", "t = 1", "RR"), "value"])


def test_irc(experiment, realdata: Path, tmp_path: Path) -> None:
    experiment("irc").main(["--data", str(realdata / "irc-dialogues"), "--out", str(tmp_path), "--quick"])
    results = cells(tmp_path)
    assert results.loc[("BM25 X_t", "All", "R@1"), "n"] == 780
    value = results["value"]
    # copies of a response are relevant too, so finding one of them counts more than the fraction found
    assert value["BM25 X_t", "All", "Success@10"] >= value["BM25 X_t", "All", "R@10"]
    one = results.xs("one utterance", level="group")["value"].unstack("system")
    assert (one["BM25 X_t"] == one["BM25 last utterance"]).all()


def test_readme_shows_the_results_that_are_there(experiment) -> None:
    script = experiment("update_readme")
    text = (EXPERIMENTS.parent / "README.md").read_text(encoding="utf-8")
    assert script.MARKER.search(text)
    assert script.renewed(text) == text, "README's tables are not those of experiments/results: run update_readme.py"


def test_ci_runs_the_command_of_the_readme() -> None:
    root = EXPERIMENTS.parent
    command = "pip install -c constraints.txt -e '.[dev]' && python -m pytest -q"
    assert command in (root / "README.md").read_text(encoding="utf-8")
    ran = (root / ".ci" / "run").read_text(encoding="utf-8").replace("install -q --progress-bar off", "install")
    assert command in ran
