"""experiments/dl_hard.py: places of systems against TREC DL, and tests of pairs, worked out by hand."""

from __future__ import annotations

import json

import pandas as pd
import pytest


def test_places_by_hand(dl_hard):
    """Three systems on two questions; on the other side the first two change places.

    Means before .9, .5, .1 and after .4, .6, .2: one of three pairs is swapped, so tau = (2 - 1) / 3; places moved 1,
    1, 0."""
    measure = "nDCG@10"

    def values(*numbers):
        return pd.DataFrame({measure: numbers}, index=pd.Index([f"q{n}" for n in range(len(numbers))], name="qid"))

    before = {"a": values(1.0, 0.8), "b": values(0.4, 0.6), "c": values(0.2, 0.0)}
    after = {"a": values(0.4, 0.4), "b": values(0.6, 0.6), "c": values(0.1, 0.3), "only here": values(1.0, 1.0)}
    found = dl_hard.places("x", before, "y", after, measure, "holm")
    assert found["systems"] == 3
    assert found["kendall_tau_b"] == pytest.approx(1 / 3)
    assert found["mean_places_moved"] == pytest.approx(2 / 3)
    assert found["most_places_moved"] == 1
    assert (found["first_before"], found["first_after"]) == ("a", "b")
    # upper half: a (.9 -> .4) and b (.5 -> .6)
    assert found["relative_change_upper_half"] == pytest.approx((-0.5 / 0.9 + 0.1 / 0.5) / 2)
    assert [(row["system"], row["place_from"], row["place_to"]) for row in found["by_system"]] == [
        ("a", 1, 2), ("b", 2, 1), ("c", 3, 3),
    ]  # fmt: skip
    assert found["pairs"]["all"] == 3
    assert found["pairs"]["swapped"] == 1


def test_pair_tests_are_paired_and_corrected(dl_hard):
    """Differences 1, 1, 1, 0 and their mirror: t = .75 / .25 = 3 on 3 degrees of freedom, p = .0577; Bonferroni over 3
    pairs."""
    measure = "nDCG@10"
    frames = {
        name: pd.DataFrame({measure: numbers}, index=["1", "2", "3", "4"])
        for name, numbers in {"a": [1.0, 1.0, 1.0, 0.0], "b": [0.0, 0.0, 0.0, 0.0], "c": [0.0, 0.0, 0.0, 0.0]}.items()
    }
    tests = dl_hard.pair_tests(frames, ["a", "b", "c"], measure, "bonferroni")
    assert [(row["better"], row["n"]) for row in tests[:2]] == [("a", 4), ("a", 4)]
    assert tests[0]["p_value"] == pytest.approx(0.0577, abs=0.0001)
    assert tests[0]["corrected"] == pytest.approx(3 * tests[0]["p_value"])
    assert tests[2]["p_value"] == 1.0


def test_trec_runs_are_scored_on_both_sides(dl_hard, realdata, tmp_path, capsys):
    """Runs over TREC DL's questions: half of DL-HARD's among them, and one that DL-HARD has not."""
    folder = realdata / "dl-hard"
    data = dl_hard.cs.dataset("dl-hard/passage", path=folder)
    nist = [qid for qid, who in data.judged_by().items() if who == "NIST"]
    trec_runs = tmp_path / "trec"
    trec_runs.mkdir()
    for name in ("bm25", "bm25+rm3", "bm25+t5(zs)"):
        run = data.get_results(name)
        run = run[run["qid"].isin(nist)]
        lines = [
            f"{q} Q0 {d} {r + 1} {s} {name}\n"
            for q, d, r, s in zip(run.qid, run.docno, run["rank"], run.score, strict=True)
        ]
        good = (
            "easy Q0 d1 1 2.0 x\neasy Q0 d2 2 1.0 x\n" if name == "bm25" else "easy Q0 d2 1 2.0 x\neasy Q0 d1 2 1.0 x\n"
        )
        (trec_runs / f"{name}.run").write_text("".join(lines) + good, encoding="utf-8")
    qrels = data.get_qrels()
    lines = [
        f"{q} 0 {d} {label}\n" for q, d, label in zip(qrels.qid, qrels.docno, qrels.label, strict=True) if q in nist
    ]
    (tmp_path / "qrels.txt").write_text("".join(lines) + "easy 0 d1 3\n", encoding="utf-8")
    out = tmp_path / "out"
    dl_hard.main([
        "--task", "passage", "--runs", str(folder / "runs"), "--out", str(out),
        "--trec-runs", str(trec_runs), "--trec-qrels", str(tmp_path / "qrels.txt"),
    ])  # fmt: skip
    assert "TREC DL" in capsys.readouterr().out
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))["places"][0]
    assert (found["from"], found["systems"], found["measure"]) == ("TREC DL", 3, "nDCG@10")
    table = pd.read_csv(out / "results.csv").query("measure == 'nDCG@10'").set_index(["system", "group"])["value"]
    by_system = {row["system"]: row for row in found["by_system"]}
    # 21 questions of NIST and the easy one: BM25 has the relevant document first (1), the others second (1 / log2 3)
    n = len(nist)
    for name, easy in (("bm25", 1.0), ("bm25+rm3", 0.6309297535714575), ("bm25+t5(zs)", 0.6309297535714575)):
        expected = (n * table[name, "judged_by=NIST"] + easy) / (n + 1)
        assert by_system[name]["value_from"] == pytest.approx(expected)
        assert by_system[name]["value_to"] == pytest.approx(table[name, "All"])


def test_figures_of_others_are_enough_for_places(dl_hard, realdata, tmp_path):
    """Figures in the reverse order of DL-HARD's: tau is -1 for two systems, and no test can be made on that side."""
    (tmp_path / "figures.csv").write_text(
        "system,measure,value\nbm25,nDCG@10,0.9\nbm25+t5(zs),nDCG@10,0.1\n", encoding="utf-8"
    )
    out = tmp_path / "out"
    dl_hard.main([
        "--task", "passage", "--runs", str(realdata / "dl-hard" / "runs"), "--out", str(out),
        "--trec-figures", str(tmp_path / "figures.csv"),
    ])  # fmt: skip
    first, second = json.loads((out / "results.json").read_text(encoding="utf-8"))["places"][:2]
    assert first["kendall_tau_b"] == pytest.approx(-1.0)
    assert "from" not in first["tests"]
    assert second["note"].startswith("fewer than two systems")
