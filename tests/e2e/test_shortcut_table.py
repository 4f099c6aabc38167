"""experiments/shortcut_table.py and or_quac_table.py: rows that resume, and tables worked out by hand."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ir_measures import RR, R
from scipy.stats import ttest_rel

import pt_convsearch as cs

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
DIALS = {"entities": 30, "conversations": 12}
QUICK = [
    "--dataset", "testbed", "--quick", "--threads", "1", "--steps", "2",
    *(part for name, value in DIALS.items() for part in ("--dial", f"{name}={value}")),
]  # fmt: skip


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, Any]]:
    before = set(sys.modules)
    sys.path.insert(0, str(EXPERIMENTS))
    names = ("shortcut_table", "_shortcut_setup", "_shortcut_tables", "_rows", "or_quac_table")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(EXPERIMENTS))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXPERIMENTS)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def out(scripts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    scripts["shortcut_table"].main([*QUICK, "--rows", "DPR;w. Shortcut + Model Negs", "--out", str(folder)])
    return folder


def stamps(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("rows/*/row.json")}


def test_the_lexical_rows_are_those_of_an_experiment(out: Path, scripts: dict[str, Any], tmp_path: Path) -> None:
    data = cs.dataset("testbed", **DIALS)
    bm25 = cs.BM25Index(tmp_path / "index").index(data.get_corpus_iter()).bm25(num_results=100)
    forms = {"BM25": cs.X, "BM25⊗": cs.X - cs.CURRENT, "BM25, gold rewrite": cs.REWRITE}
    topics = data.get_topics()
    expected = cs.Experiment(
        {name: cs.form(parts) >> bm25 for name, parts in forms.items()}, topics, data.get_qrels(),
        [RR, R @ 5, R @ 10, R @ 100], by=["qtype", {"t > 1": (topics["turn_number"] > 1).to_numpy()}],
    )  # fmt: skip
    found = pd.read_csv(out / "results.csv").set_index(["system", "group", "measure"])
    for name in forms:
        for group in ("All", "first", "no-switch", "t > 1"):
            for measure in ("RR", "R@5", "R@10", "R@100"):
                cell = found.loc[(name, group, measure)]
                assert cell["value"] == pytest.approx(expected.loc[name, (group, measure)], nan_ok=True)
                assert cell["n"] == expected.loc[name, (group, "n")]
    assert np.isnan(found.loc[("BM25⊗", "first", "RR"), "value"])

    scripts["or_quac_table"].main(["--dataset", "testbed", "--quick", "--out", str(tmp_path / "forms")])
    forms_table = pd.read_csv(tmp_path / "forms" / "results.csv")
    assert list(forms_table["system"].unique()) == ["q_1", "q_t", "Q_{t-1}", "Q_t", "X_t\\q_t", "X_t", "rewrite"]
    first = forms_table[(forms_table["group"] == "first") & (forms_table["measure"] == "RR")]
    first = first.set_index("system")["value"]
    assert first["q_1"] == first["q_t"] == first["Q_t"] == first["X_t"]  # the same words
    assert np.isnan(first["Q_{t-1}"])


def test_what_was_run_is_told_from_what_was_not(out: Path) -> None:
    results, details = pd.read_csv(out / "results.csv"), json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert "w. BM25 Negs" in details["not run"]
    assert "DPR" not in details["not run"]
    assert results.loc[results["system"] == "w. BM25 Negs", "group"].tolist() == ["not run here"]
    text = (out / "table.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert "not run here" in rows["w. CQR Negs"]
    assert "A quick run" in text
    for name in ("overlap@10", "retention", "overlap@10 swapped"):
        part = results[(results["system"] == "DPR") & (results["measure"] == name) & (results["group"] == "t > 1")]
        assert len(part) == 1
        assert part["value"].iloc[0] >= 0
    curve = details["dev curves"]["DPR, seed 1"]
    assert [point["step"] for point in curve if "R@5" in point] == [0, 1, 2]
    steps = {cost["step"]: cost for cost in details["costs"]["w. Shortcut + Model Negs, seed 1"]}
    assert set(steps) == {"mining", "training", "indexing", "inference"}
    assert steps["indexing"]["items"] == cs.dataset("testbed", **DIALS).num_passages
    assert steps["training"]["items"] == 2 * 8  # steps x batch
    assert {cost["step"] for cost in details["costs"]["DPR, seed 1"]} == {"training", "indexing", "inference"}
    assert (out / "figure2.png").stat().st_size > 5000
    assert (out / "curves.png").stat().st_size > 5000


def test_rows_that_are_done_stay_and_a_changed_row_is_run_anew(out: Path, scripts: dict[str, Any]) -> None:
    before, table = stamps(out), (out / "table.md").read_text(encoding="utf-8")
    main = scripts["shortcut_table"].main
    main([*QUICK, "--rows", "DPR;w. Shortcut + Model Negs", "--out", str(out)])
    assert stamps(out) == before
    assert (out / "table.md").read_text(encoding="utf-8") == table
    main([*QUICK, "--rows", "DPR", "--learning-rate", "0.001", "--out", str(out)])
    after = stamps(out)
    assert {name for name in after if after[name] != before[name]} == {"DPR.seed1"}
    mixed = (out / "table.md").read_text(encoding="utf-8")
    assert "learning rate 0.001, 2 steps (DPR); learning rate 0.0003, 2 steps (w. Shortcut + Model Negs)" in mixed
    main([*QUICK, "--table-only", "--rows", "w. BM25 Negs", "--out", str(out)])
    assert stamps(out) == after
    main([*QUICK, "--table-only", "--layers", "2", "--out", str(out)])  # other models: none of these rows
    assert "A quick run" in (out / "table.md").read_text(encoding="utf-8")
    assert json.loads((out / "results.json").read_text(encoding="utf-8"))["not run"][0] == "BM25"


def test_arguments(scripts: dict[str, Any], tmp_path: Path) -> None:
    main = scripts["shortcut_table"].main
    for wrong in (["--rows", "DPR;w. Negs"], ["--dial", "entities"], ["--paper"]):
        with pytest.raises(SystemExit):
            main([*QUICK, *wrong, "--out", str(tmp_path)])
    qrecc, or_quac = (scripts["shortcut_table"].paper(name) for name in ("qrecc", "or-quac"))
    assert (qrecc.options["batch_size"], or_quac.options["batch_size"]) == (256, 128)
    assert (qrecc.bm25, or_quac.bm25) == ((0.82, 0.68), (0.9, 0.4))
    assert qrecc.rates == (3e-5,)
    kept = {name: qrecc.options[name] for name in ("epochs", "towers", "similarity", "scale", "max_grad_norm")}
    assert kept == {"epochs": 10, "towers": 2, "similarity": "dot", "scale": 1.0, "max_grad_norm": 2.0}


def test_the_table_of_rows_made_by_hand(scripts: dict[str, Any], tmp_path: Path) -> None:
    """Four questions, two seeds of DPR, one of BM25 negatives: means, spread and tests can be told on paper."""
    qids = ["1_1", "1_2", "1_3", "1_4"]
    values = {  # row, seed -> RR of X_t by question
        ("DPR", 1): [1.0, 0.5, 0.0, 0.5],
        ("DPR", 2): [1.0, 0.0, 0.0, 0.0],
        ("w. BM25 Negs", 1): [1.0, 1.0, 0.5, 1.0],
        ("DPR⊗", 1): [0.0, 0.5, 0.5, 0.5],
    }
    questions = pd.DataFrame({"qid": qids, "All": True, "first": [True, False, False, False]})
    questions["t > 1"] = ~questions["first"]
    rows = scripts["_rows"].Rows(tmp_path / "rows")
    for (name, seed), found in values.items():
        form = "X_t\\q_t" if name == "DPR⊗" else "X_t"
        per_question = pd.concat(
            pd.DataFrame({"name": form, "qid": qids, "measure": measure, "value": found})
            for measure in ("RR", "R@5", "R@10", "R@100")
        )
        facts = {
            "dependence": [{"group": "All", "n": 3, "overlap@10": 0.2 * seed, "retention": None}],
            "costs": [{"step": "training", "seconds": 2.0 * seed, "cpu_seconds": 1.0, "items": 8, "peak_memory": 9.0}],
        }
        frames = {"per_question": per_question, "questions": questions}
        assert rows.run(name, seed, {"learning_rate": 1e-4, "max_steps": 2}, lambda f=facts, p=frames: (f, p))
    settings = {"dataset": "hand", "dials": {}, "quick": False, "paper": False, "init": "bert", "layers": None,
                "training": {"batch_size": 4, "max_query_length": 8, "max_passage_length": 8}}  # fmt: skip
    scripts["_shortcut_tables"].write_tables(tmp_path, list(rows), settings, budget=None, rewriter=None)
    cells = pd.read_csv(tmp_path / "results.csv").set_index(["system", "group", "measure"])
    dpr = cells.loc[("DPR", "All", "RR")]
    assert (dpr["value"], dpr["seeds"], dpr["n"]) == (0.375, 2, 4)  # means of the seeds .5 and .25
    assert dpr["sd"] == pytest.approx(np.sqrt(2) * 0.125)
    assert cells.loc[("w. BM25 Negs", "t > 1", "RR"), "value"] == pytest.approx(2.5 / 3)
    assert np.isnan(cells.loc[("DPR⊗", "first", "RR"), "value"])
    assert cells.loc[("DPR⊗", "All", "RR"), "value"] == 0.375  # the zero of the first turn counts
    assert cells.loc[("DPR", "t > 1", "overlap@10"), "value"] == pytest.approx(0.3)

    details = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    tests = pd.DataFrame(details["tests"]).set_index(["system", "group", "measure"])
    mean = [1.0, 0.25, 0.0, 0.25]
    p = [ttest_rel(values[name, 1], mean).pvalue for name in ("DPR⊗", "w. BM25 Negs")]
    assert tests.loc[("w. BM25 Negs", "All", "RR"), "p"] == pytest.approx(p[1])
    assert tests.loc[("w. BM25 Negs", "All", "RR"), "difference"] == 0.5
    assert tests.loc[("w. BM25 Negs", "All", "RR"), "p (Holm)"] == pytest.approx(min(1.0, 2 * min(p)))
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "learning rate 0.0001, 2 steps; the checkpoint" in text
    assert "0.375 ±0.177" in text
    costs = text.split("## Cost")[1]
    assert "3.0" in costs  # the median of 2 and 4 seconds


def test_published_rows_are_those_that_the_script_would_run(scripts: dict[str, Any]) -> None:
    published = {}
    for path in (EXPERIMENTS / "results" / "shortcut_table" / "rows").glob("*/row.json"):
        row = json.loads(path.read_text(encoding="utf-8"))
        if "seed" in row["settings"]:
            published.setdefault(row["row"], []).append(row["settings"]["row"])
    assert "DPR" in published
    for row in scripts["_shortcut_setup"].ROWS:
        assert all(settings == json.loads(json.dumps(row.settings())) for settings in published.get(row.name, []))


def test_a_row_is_trained_with_its_options(
    scripts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trained(Exception):
        pass

    def train(pairs: Any, **options: Any) -> Any:
        raise Trained(options["mask_history"], options["max_steps"], pairs.frame()["query"].tolist())

    monkeypatch.setattr(scripts["shortcut_table"].cs, "train", train)
    with pytest.raises(Trained) as caught:
        scripts["shortcut_table"].main([*QUICK, "--rows", "DPR, history masked", "--out", str(tmp_path)])
    chance, steps, queries = caught.value.args
    assert (chance, steps) == (0.3, 2)
    assert any("[SEP]" in query for query in queries)
    with pytest.raises(KeyError, match="mask_history"):  # the other rows are not masked
        scripts["shortcut_table"].main([*QUICK, "--rows", "DPR, q_t alone", "--out", str(tmp_path)])
