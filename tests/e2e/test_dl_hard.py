"""experiments/dl_hard.py on the published runs, and its comparison of places worked out by hand."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("experiment_dl_hard", ROOT / "experiments" / "dl_hard.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "experiments"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "experiments"))
    return module


@pytest.fixture(scope="module")
def scored(script, realdata, tmp_path_factory):
    """results.csv and results.json of both tasks."""
    results = {}
    for task in ("passage", "doc"):
        out = tmp_path_factory.mktemp(task)
        runs = realdata / "dl-hard" / "runs"
        assert script.main(["--task", task, "--runs", str(runs), "--out", str(out)]) == 0
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


def test_each_question_of_a_run_as_in_the_published_evaluation(script, realdata):
    """BM25 on passages, question by question, against the .eval file."""
    folder = realdata / "dl-hard"
    theirs = defaultdict(dict)
    with gzip.open(folder / "runs" / "passage" / "bm25.run.eval.subset.gz", "rt", encoding="utf-8") as handle:
        for line in handle:
            measure, qid, value = line.split()
            theirs[qid][measure] = float(value)
    del theirs["all"]
    data = script.cs.dataset("dl-hard/passage", path=folder)
    ours = script.scores(data.get_results("bm25"), data.get_qrels(), data.get_topics()["qid"], ties="trec_eval")
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


def test_plain_and_compressed_runs_score_alike_under_any_name(script, scored, realdata, tmp_path):
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
    script.main(["--task", "passage", "--runs", str(runs), "--data", str(realdata / "dl-hard"), "--out", str(out)])
    ours = pd.read_csv(out / "results.csv").query("group == 'All'")
    assert sorted(ours["system"].unique()) == ["dos", "other", "plain"]
    expected = scored["passage"][0].query("group == 'All' and system == 'bm25+t5(zs)'").set_index("measure")["value"]
    for measure, value in expected.items():
        assert ours[ours["measure"] == measure]["value"].tolist() == pytest.approx([value] * 3)


def test_a_cut_run_is_named_by_file_and_line(script, realdata, tmp_path):
    (tmp_path / "cut.run").write_text("915593 Q0 3538160 0 -0.1 BERT-P\n915593 Q0 82107 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cut\.run, line 2"):
        script.main(
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


def test_a_run_of_the_other_task_and_a_short_one_are_remarked(script, realdata, tmp_path, capsys):
    folder = realdata / "dl-hard"
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copy(folder / "runs" / "doc" / "bm25.run.gz", runs / "documents.run.gz")
    run = script.cs.dataset("dl-hard/passage", path=folder).get_results("bm25")
    short = run[run["qid"] == "915593"]
    (runs / "short.run").write_text(
        "".join(
            f"{q} Q0 {d} {r} {s} x\n"
            for q, d, r, s in zip(short.qid, short.docno, short["rank"], short.score, strict=True)
        ),
        encoding="utf-8",
    )
    out = tmp_path / "out"
    script.main(["--task", "passage", "--runs", str(runs), "--data", str(folder), "--out", str(out)])
    shown = capsys.readouterr().out
    assert "documents has no judged document" in shown
    assert "short has no results for 49 of the questions" in shown
    ours = (
        pd.read_csv(out / "results.csv").query("group == 'All' and measure == 'nDCG@10'").set_index("system")["value"]
    )
    assert ours["documents"] == 0
    # 49 zeros and one question: its own value over fifty
    whole = script.scores(run, script.cs.dataset("dl-hard/passage", path=folder).get_qrels(), ["915593"], ties="rank")
    assert ours["short"] == pytest.approx(float(whole["nDCG@10"].iloc[0]) / 50)


def test_a_clone_of_the_repository_as_runs(script, realdata, tmp_path):
    """Runs of both tasks have equal names; texts that are no runs lie among them."""
    out = tmp_path / "out"
    script.main(["--task", "passage", "--runs", str(realdata / "dl-hard"), "--out", str(out)])
    assert pd.read_csv(out / "results.csv")["system"].nunique() == 6


def test_map_and_recall_beside_the_table_at_depth_1000(script, realdata, tmp_path):
    """Below rank 100 nobody judged anything: MAP and recall are those of depth 100, under names of depth 1,000."""
    data = script.cs.dataset("dl-hard/passage", path=realdata / "dl-hard")
    run = data.get_results("bm25")
    (tmp_path / "bm25.run").write_text(
        "".join(
            [f"{q} Q0 {d} {r} {1000 - r} x\n" for q, d, r in zip(run.qid, run.docno, run["rank"], strict=True)]
            + [f"{q} Q0 none{r} {r} {1000 - r} x\n" for q in run.qid.unique() for r in range(100, 1200)]
        ),
        encoding="utf-8",
    )
    out = tmp_path / "out"
    script.main(["--task", "passage", "--runs", str(tmp_path), "--data", str(data.path), "--out", str(out)])
    details = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [row["measure"] for row in details["published"]] == [
        "nDCG@10",
        "RR(rel=2)",
        "AP(rel=2)@1000",
        "R(rel=2)@1000",
    ]
    means = pd.read_csv(out / "results.csv").query("group == 'All'").set_index("measure")["value"]
    shallow = script.scores(run, data.get_qrels(), data.get_topics()["qid"], ties="rank").mean()
    assert means["AP(rel=2)@1000"] == pytest.approx(shallow["AP(rel=2)@100"])
    assert means["R(rel=2)@1000"] == pytest.approx(means["R(rel=2)@100"]) == pytest.approx(shallow["R(rel=2)@100"])


def test_no_run_at_all(script, realdata, tmp_path):
    with pytest.raises(SystemExit, match="no run"):
        script.main(
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


def test_places_by_hand(script):
    """Three systems on two questions; on the other side the first two change places.

    Means before .9, .5, .1 and after .4, .6, .2: one of three pairs is swapped, so tau = (2 - 1) / 3; places moved 1,
    1, 0."""
    measure = "nDCG@10"

    def values(*numbers):
        return pd.DataFrame({measure: numbers}, index=pd.Index([f"q{n}" for n in range(len(numbers))], name="qid"))

    before = {"a": values(1.0, 0.8), "b": values(0.4, 0.6), "c": values(0.2, 0.0)}
    after = {"a": values(0.4, 0.4), "b": values(0.6, 0.6), "c": values(0.1, 0.3), "only here": values(1.0, 1.0)}
    found = script.places("x", before, "y", after, measure, "holm")
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


def test_pair_tests_are_paired_and_corrected(script):
    """Differences 1, 1, 1, 0 and their mirror: t = .75 / .25 = 3 on 3 degrees of freedom, p = .0577; Bonferroni over 3
    pairs."""
    measure = "nDCG@10"
    frames = {
        name: pd.DataFrame({measure: numbers}, index=["1", "2", "3", "4"])
        for name, numbers in {"a": [1.0, 1.0, 1.0, 0.0], "b": [0.0, 0.0, 0.0, 0.0], "c": [0.0, 0.0, 0.0, 0.0]}.items()
    }
    tests = script.pair_tests(frames, ["a", "b", "c"], measure, "bonferroni")
    assert [(row["better"], row["n"]) for row in tests[:2]] == [("a", 4), ("a", 4)]
    assert tests[0]["p_value"] == pytest.approx(0.0577, abs=0.0001)
    assert tests[0]["corrected"] == pytest.approx(3 * tests[0]["p_value"])
    assert tests[2]["p_value"] == 1.0


def test_trec_runs_are_scored_on_both_sides(script, realdata, tmp_path, capsys):
    """Runs over TREC DL's questions: half of DL-HARD's among them, and one that DL-HARD has not."""
    folder = realdata / "dl-hard"
    data = script.cs.dataset("dl-hard/passage", path=folder)
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
    script.main([
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


def test_figures_of_others_are_enough_for_places(script, realdata, tmp_path):
    """Figures in the reverse order of DL-HARD's: tau is -1 for two systems, and no test can be made on that side."""
    (tmp_path / "figures.csv").write_text(
        "system,measure,value\nbm25,nDCG@10,0.9\nbm25+t5(zs),nDCG@10,0.1\n", encoding="utf-8"
    )
    out = tmp_path / "out"
    script.main([
        "--task", "passage", "--runs", str(realdata / "dl-hard" / "runs"), "--out", str(out),
        "--trec-figures", str(tmp_path / "figures.csv"),
    ])  # fmt: skip
    first, second = json.loads((out / "results.json").read_text(encoding="utf-8"))["places"][:2]
    assert first["kendall_tau_b"] == pytest.approx(-1.0)
    assert "from" not in first["tests"]
    assert second["note"].startswith("fewer than two systems")


def test_data_are_found_above_the_runs(script, realdata, tmp_path):
    """The whole folder copied elsewhere: no --data, no network."""
    folder = tmp_path / "DL-Hard"
    shutil.copytree(realdata / "dl-hard", folder, ignore=shutil.ignore_patterns("*.eval*", "doc"))
    out = tmp_path / "out"
    script.main(["--task", "passage", "--runs", str(folder / "runs" / "passage"), "--out", str(out), "--ties", "rank"])
    assert (out / "results.csv").read_text(encoding="utf-8").startswith("system,group,measure,value,n\n")


def test_systems_are_run_and_scored(script, realdata, tmp_path, capsys):
    """Two passages a question, made up: the pipeline from a collection to the table."""
    data = script.cs.dataset("dl-hard/passage", path=realdata / "dl-hard")
    topics, qrels = data.get_topics(), data.get_qrels()
    texts = dict(zip(topics["qid"], topics["query"], strict=True))
    best = qrels.sort_values("label").groupby("qid").last()
    with (tmp_path / "corpus.jsonl").open("w", encoding="utf-8") as handle:
        for qid, row in best.iterrows():
            handle.write(json.dumps({"docno": row["docno"], "title": "", "text": texts[qid]}) + "\n")
    out = tmp_path / "out"
    given = ["--task", "passage", "--data", str(realdata / "dl-hard"), "--corpus", str(tmp_path / "corpus.jsonl")]
    assert script.main([*given, "--systems", "all", "--out", str(out)]) == 0
    table = pd.read_csv(out / "results.csv").set_index(["system", "group", "measure"])["value"]
    # each question's best passage is its own words: RR from grade 2 is 1 but for the one question without such a grade
    assert table["BM25", "All", "RR(rel=2)"] == pytest.approx(49 / 50, abs=0.011)
    assert {path.name for path in (out / "runs").iterdir()} == {"BM25.run", "BM25+RM3.run"}
    with pytest.raises(SystemExit, match="no system 'BM25\\+T5'"):
        script.main([*given, "--systems", "BM25+T5", "--out", str(out)])
    with pytest.raises(SystemExit, match="--model GPT=x"):
        script.main([*given, "--systems", "all", "--model", "GPT=x", "--out", str(out)])


@pytest.mark.parametrize(("task", "name"), [("passage", "BERT"), ("doc", "BERT"), ("doc", "PARADE-BERT")])
def test_fine_tuned_over_the_folds(script, realdata, tmp_path, monkeypatch, capsys, task, name):
    """Two folds of the five, one step, a tiny BERT: what is trained, selected and written."""
    from tests.reranking.conftest import write_bert

    systems = sys.modules["_dl_hard_systems"]
    data = script.cs.dataset(f"dl-hard/{task}", path=realdata / "dl-hard")
    folds = data.folds()
    kept = {number: folds[number] for number in (1, 2, 3)}
    topics, qrels = data.get_topics(), data.get_qrels()
    topics = topics[topics["fold"] <= 3].reset_index(drop=True)
    qrels = qrels[qrels["qid"].isin(topics["qid"])]
    texts = dict(zip(topics["qid"], topics["query"], strict=True))
    docs = {row.docno: texts[row.qid] + f" w{row.label} w{n % 90}" for n, row in enumerate(qrels.itertuples())}
    index = script.cs.BM25Index(tmp_path / "i.bm25").index({"docno": d, "text": t} for d, t in docs.items())

    class Part:
        def get_topics(self):
            return topics

        def get_qrels(self):
            return qrels

        def folds(self):
            return kept

    args = script.parse(
        ["--task", task, "--systems", "BM25", "--max-steps", "1", "--depth", "10", "--out", str(tmp_path)]
    )
    (tmp_path / "runs").mkdir()
    init = write_bert(tmp_path / "bert", head=False)
    systems.fine_tuned(args, Part(), index, name, init, "BM25", tmp_path / "runs")
    suffix = "-MaxP" if task == "doc" and name == "BERT" else ""
    run = script.read_run(tmp_path / "runs" / f"BM25+{name}{suffix}.run")
    assert set(run["qid"]) == set(topics["qid"])
    assert run.groupby("qid").size().max() == 10
    assert set(run["docno"]) <= set(docs)
    shown = capsys.readouterr().out
    assert shown.count("rate 1e-05") == shown.count("rate 3e-05") == 3


def test_documents_of_passages_by_hand(script, tmp_path):
    """Four passages about one entity, one after the other, are a document; the fifth begins the next."""
    documents, parts = sys.modules["_dl_hard_documents"], sys.modules["_rewriting_parts"]
    passages = [{"docno": f"e1_{n:02}", "text": f"w{n}"} for n in range(6)] + [{"docno": "e2_00", "text": "w6"}]
    history = [{"role": "assistant", "content": "w0", "docno": "e1_00"}]
    topics = pd.DataFrame({"qid": ["1"], "query": ["w1"], "qhistory": [history]})
    qrels = pd.DataFrame({"qid": ["1", "1", "1"], "docno": ["e1_01", "e1_03", "e1_04"], "label": [1, 2, 1]})
    data = parts.Data("testbed", {"test": topics}, {"test": qrels}, lambda: iter(passages), True, False, topics)
    found = documents.of_documents(data)
    assert list(found.corpus()) == [
        {"docno": "e1_d0", "text": "w0 w1 w2 w3"},
        {"docno": "e1_d1", "text": "w4 w5"},
        {"docno": "e2_d0", "text": "w6"},
    ]  # fmt: skip
    # the best passage of a document is its label
    assert found.qrels["test"].values.tolist() == [["1", "e1_d0", 2], ["1", "e1_d1", 1]]
    assert found.topics["test"]["qhistory"][0] == [{"role": "assistant", "content": "w0"}]
    assert history[0]["docno"] == "e1_00"
    assert not found.seen


def test_conversations_with_passages_do_not_stand_in_for_documents(script, realdata, tmp_path):
    given = ["--task", "doc", "--systems", "all", "--stand-in", str(realdata / "qrecc-dev2k"), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="documents stand in with --stand-in testbed"):
        script.main(given)
