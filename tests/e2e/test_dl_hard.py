"""experiments/dl_hard.py on the published runs."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scored(dl_hard, realdata, tmp_path_factory):
    """results.csv and results.json of both tasks."""
    results = {}
    for task in ("passage", "doc"):
        out = tmp_path_factory.mktemp(task)
        runs = realdata / "dl-hard" / "runs"
        assert dl_hard.main(["--task", task, "--runs", str(runs), "--out", str(out)]) == 0
        results[task] = (
            pd.read_csv(out / "results.csv"),
            json.loads((out / "results.json").read_text(encoding="utf-8"), parse_constant=_no_nan),
        )
    return results


def _no_nan(name):
    raise AssertionError(f"{name} is no JSON")


def published(realdata):
    """(task, run) -> figures of the repository's .eval files, four digits."""
    with (realdata / "dl-hard" / "eval_all_from_repo.tsv").open(encoding="utf-8") as handle:
        return {(row["task"], row["run"]): row for row in csv.DictReader(handle, delimiter="\t")}


@pytest.mark.parametrize(("task", "runs"), [("passage", 6), ("doc", 11)])
def test_every_published_figure_comes_out(scored, realdata, task, runs):
    table, details = scored[task]
    means = table[table["group"] == "All"].set_index(["system", "measure"])["value"]
    systems = means.index.get_level_values("system").unique()
    assert len(systems) == runs
    for system in systems:
        theirs = published(realdata)[task, system]
        assert means[system, "nDCG@10"] == pytest.approx(float(theirs["ndcg_cut_10"]), abs=0.0001)
        # a first relevant document below rank 100 is missing from the runs at hand
        assert means[system, "RR(rel=2)"] == pytest.approx(float(theirs["recip_rank"]), abs=0.002)
        assert means[system, "R(rel=2)@100"] == pytest.approx(float(theirs["recall_100"]), abs=0.0001)
    assert len(details["published"]) == 2 * runs
    assert all(abs(row["difference"]) <= 0.002 for row in details["published"])
    # depth 100: MAP and recall carry the depth in their names, and are beside no figure of depth 1,000
    assert {row["measure"] for row in details["published"]} == {"nDCG@10", "RR(rel=2)"}
    assert set(table["measure"]) == {"nDCG@10", "RR(rel=2)", "AP(rel=2)@100", "R(rel=2)@100", "Judged@10"}


def test_each_question_of_a_run_as_in_the_published_evaluation(dl_hard, realdata):
    """BM25 on passages, question by question, against the .eval file."""
    folder = realdata / "dl-hard"
    theirs = defaultdict(dict)
    with gzip.open(folder / "runs" / "passage" / "bm25.run.eval.subset.gz", "rt", encoding="utf-8") as handle:
        for line in handle:
            measure, qid, value = line.split()
            theirs[qid][measure] = float(value)
    del theirs["all"]
    data = dl_hard.cs.dataset("dl-hard/passage", path=folder)
    ours = dl_hard.scores(data.get_results("bm25"), data.get_qrels(), data.get_topics()["qid"], ties="trec_eval")
    assert sorted(ours.index) == sorted(theirs)
    for qid, values in theirs.items():
        assert ours.loc[qid, "nDCG@10"] == pytest.approx(values["ndcg_cut_10"], abs=0.00006)
        if values["recip_rank"] >= 0.01:
            assert ours.loc[qid, "RR(rel=2)"] == pytest.approx(values["recip_rank"], abs=0.00006)


def test_groups_cover_the_questions(scored):
    table, _ = scored["doc"]
    one = table[(table["system"] == "bm25") & (table["measure"] == "nDCG@10")].set_index("group")
    assert one.loc["All", "n"] == 50
    for column in ("fold", "query_intent", "answer_type", "topic_domain", "result_type", "judged_by"):
        part = one[one.index.str.startswith(f"{column}=")]
        assert part["n"].sum() == 50
        # means of the groups, weighted, are the mean of all: nobody is left out, nor who has no relevant document
        assert (part["value"] * part["n"]).sum() / 50 == pytest.approx(one.loc["All", "value"])
    assert one.loc[[f"fold={number}" for number in range(1, 6)], "n"].tolist() == [10] * 5


def test_tie_rule_moves_rerankers_with_tied_scores_only(scored):
    for task in ("passage", "doc"):
        for row in scored[task][1]["tie_rules"]:
            moved = abs(row["difference"]) > 1e-9
            assert not moved or row["questions with ties in the top 10"] > 0
            assert abs(row["difference"]) < (0.005 if row["measure"] == "nDCG@10" else 0.011)
    moved = {row["system"] for row in scored["doc"][1]["tie_rules"] if abs(row["difference"]) > 0.001}
    assert moved == {system for system in moved if "mp" in system or "parade" in system}
    assert "bm25+rm3+electra-mp" in moved
    assert not any(abs(row["difference"]) > 1e-9 for row in scored["passage"][1]["tie_rules"])


def test_plain_and_compressed_runs_score_alike_under_any_name(dl_hard, scored, realdata, tmp_path):
    source = realdata / "dl-hard" / "runs" / "passage" / "bm25+t5(zs).run.gz"
    runs = tmp_path / "runs"
    runs.mkdir()
    with gzip.open(source, "rt", encoding="utf-8") as handle:
        text = handle.read()
    (runs / "plain.run").write_text(text, encoding="utf-8")
    (runs / "dos.trec").write_bytes(text.replace("\n", "\r\n").encode())
    # as NIST names files; ranks from 1, "0" in the second column, tabs
    rows = [line.split() for line in text.splitlines()]
    (runs / "input.other").write_text(
        "".join(
            "\t".join([qid, "0", docno, str(int(rank) + 1), score, "x"]) + "\n"
            for qid, _, docno, rank, score, _ in rows
        ),
        encoding="utf-8",
    )
    (runs / "plain.run.eval").write_text("map all 0.1\n", encoding="utf-8")
    out = tmp_path / "out"
    dl_hard.main(["--task", "passage", "--runs", str(runs), "--data", str(realdata / "dl-hard"), "--out", str(out)])
    ours = pd.read_csv(out / "results.csv").query("group == 'All'")
    assert sorted(ours["system"].unique()) == ["dos", "other", "plain"]
    expected = scored["passage"][0].query("group == 'All' and system == 'bm25+t5(zs)'").set_index("measure")["value"]
    for measure, value in expected.items():
        assert ours[ours["measure"] == measure]["value"].tolist() == pytest.approx([value] * 3)


def test_a_cut_run_is_named_by_file_and_line(dl_hard, realdata, tmp_path):
    (tmp_path / "cut.run").write_text("915593 Q0 3538160 0 -0.1 BERT-P\n915593 Q0 82107 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cut\.run, line 2"):
        dl_hard.main(
            [
                "--task",
                "passage",
                "--runs",
                str(tmp_path),
                "--data",
                str(realdata / "dl-hard"),
                "--out",
                str(tmp_path / "o"),
            ]
        )


def test_a_run_of_the_other_task_and_a_short_one_are_remarked(dl_hard, realdata, tmp_path, capsys):
    folder = realdata / "dl-hard"
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copy(folder / "runs" / "doc" / "bm25.run.gz", runs / "documents.run.gz")
    run = dl_hard.cs.dataset("dl-hard/passage", path=folder).get_results("bm25")
    short = run[run["qid"] == "915593"]
    (runs / "short.run").write_text(
        "".join(
            f"{q} Q0 {d} {r} {s} x\n"
            for q, d, r, s in zip(short.qid, short.docno, short["rank"], short.score, strict=True)
        ),
        encoding="utf-8",
    )
    out = tmp_path / "out"
    dl_hard.main(["--task", "passage", "--runs", str(runs), "--data", str(folder), "--out", str(out)])
    shown = capsys.readouterr().out
    assert "documents has no judged document" in shown
    assert "short has no results for 49 of the questions" in shown
    ours = (
        pd.read_csv(out / "results.csv").query("group == 'All' and measure == 'nDCG@10'").set_index("system")["value"]
    )
    assert ours["documents"] == 0
    # 49 zeros and one question: its own value over fifty
    whole = dl_hard.scores(run, dl_hard.cs.dataset("dl-hard/passage", path=folder).get_qrels(), ["915593"], ties="rank")
    assert ours["short"] == pytest.approx(float(whole["nDCG@10"].iloc[0]) / 50)


def test_a_clone_of_the_repository_as_runs(dl_hard, realdata, tmp_path):
    """Runs of both tasks have equal names; texts that are no runs lie among them."""
    out = tmp_path / "out"
    dl_hard.main(["--task", "passage", "--runs", str(realdata / "dl-hard"), "--out", str(out)])
    assert pd.read_csv(out / "results.csv")["system"].nunique() == 6


def test_map_and_recall_beside_the_table_at_depth_1000(dl_hard, realdata, tmp_path):
    """Below rank 100 nobody judged anything: MAP and recall are those of depth 100, under names of depth 1,000."""
    data = dl_hard.cs.dataset("dl-hard/passage", path=realdata / "dl-hard")
    run = data.get_results("bm25")
    (tmp_path / "bm25.run").write_text(
        "".join(
            [f"{q} Q0 {d} {r} {1000 - r} x\n" for q, d, r in zip(run.qid, run.docno, run["rank"], strict=True)]
            + [f"{q} Q0 none{r} {r} {1000 - r} x\n" for q in run.qid.unique() for r in range(100, 1200)]
        ),
        encoding="utf-8",
    )
    out = tmp_path / "out"
    dl_hard.main(["--task", "passage", "--runs", str(tmp_path), "--data", str(data.path), "--out", str(out)])
    details = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [row["measure"] for row in details["published"]] == [
        "nDCG@10",
        "RR(rel=2)",
        "AP(rel=2)@1000",
        "R(rel=2)@1000",
    ]
    means = pd.read_csv(out / "results.csv").query("group == 'All'").set_index("measure")["value"]
    shallow = dl_hard.scores(run, data.get_qrels(), data.get_topics()["qid"], ties="rank").mean()
    assert means["AP(rel=2)@1000"] == pytest.approx(shallow["AP(rel=2)@100"])
    assert means["R(rel=2)@1000"] == pytest.approx(means["R(rel=2)@100"]) == pytest.approx(shallow["R(rel=2)@100"])


def test_no_run_at_all(dl_hard, realdata, tmp_path):
    with pytest.raises(SystemExit, match="no run"):
        dl_hard.main(
            [
                "--task",
                "passage",
                "--runs",
                str(tmp_path),
                "--data",
                str(realdata / "dl-hard"),
                "--out",
                str(tmp_path / "o"),
            ]
        )


def test_data_are_found_above_the_runs(dl_hard, realdata, tmp_path):
    """The whole folder copied elsewhere: no --data, no network."""
    folder = tmp_path / "DL-Hard"
    shutil.copytree(realdata / "dl-hard", folder, ignore=shutil.ignore_patterns("*.eval*", "doc"))
    out = tmp_path / "out"
    dl_hard.main(["--task", "passage", "--runs", str(folder / "runs" / "passage"), "--out", str(out), "--ties", "rank"])
    assert (out / "results.csv").read_text(encoding="utf-8").startswith("system,group,measure,value,n\n")
