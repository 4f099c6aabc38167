"""Retrieving responses, from dialogues to a table: what Penha & Hauff's experiments need, composed on tiny data."""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, R, Success

import pt_convsearch as cs
from tests.tiny_seq2seq import tiny_t5

PROBLEMS = ["wifi", "printer", "sound", "screen", "mouse", "disk", "kernel", "grub", "swap", "fan", "usb", "boot"]


def dialogues() -> list[dict[str, Any]]:
    """Twelve dialogues: the second response names the problem, the last is said by everybody."""
    found = []
    for problem in PROBLEMS:
        named = f"my {problem} is down", f"which {problem} driver", "no idea", f"try lspci for {problem}"
        said = list(zip("ababab", [*named, "works now", "np"], strict=True))
        utterances = [{"speaker": speaker, "text": text} for speaker, text in said]
        found.append({"dialogue_id": problem, "utterances": utterances})
    return found


@pytest.fixture(scope="module")
def task() -> cs.topics.Task:
    return cs.topics.responses(dialogues())


@pytest.fixture(scope="module")
def index(task: cs.topics.Task, tmp_path_factory: pytest.TempPathFactory) -> cs.BM25Index:
    return cs.BM25Index(tmp_path_factory.mktemp("responses") / "x.bm25").index(task.corpus)


def test_full_rank_by_both_policies(task: cs.topics.Task, index: cs.BM25Index) -> None:
    """36 contexts. By equal text every "np" is right for twelve of them, by own id one is."""
    same = cs.topics.responses(dialogues(), duplicates="equal-text")
    assert len(task.qrels) == 36
    assert len(same.qrels) == 24 + 12 * 12
    everything = pd.DataFrame(
        [(qid, "wifi_5", 1.0, 0) for qid in task.topics["qid"]], columns=["qid", "docno", "score", "rank"]
    )
    own = cs.Experiment([everything], task.topics, task.qrels, [R @ 1, Success @ 1])["All"]
    equal = cs.Experiment([everything], same.topics, same.qrels, [R @ 1, Success @ 1])["All"]
    assert own[["R@1", "Success@1"]].values.tolist() == [[pytest.approx(1 / 36)] * 2]
    assert equal[["R@1", "Success@1"]].values.tolist() == [[pytest.approx(12 / 36 / 12), pytest.approx(12 / 36)]]
    rm3 = index.bm25(num_results=10) >> index.rm3(fb_docs=2, fb_terms=5) >> index.bm25()
    table = cs.Experiment(
        {"BM25": cs.form(cs.X) >> index.bm25(), "RM3": cs.form(cs.X) >> rm3}, task.topics, task.qrels, [R @ 10, RR],
        baseline="BM25", correction="bonferroni",
    )  # fmt: skip
    assert table.loc["BM25", ("All", "R@10")] > 0.6
    assert len(table.tests) == 2


def test_candidates_are_another_measure(task: cs.topics.Task, index: cs.BM25Index) -> None:
    """R_10@1 of BM25 on full depth: the right response of each named problem is the only one that shares its word."""
    lists = cs.candidate_lists(task.topics, task.qrels, task.corpus, num_candidates=10)
    ranked = (cs.form(cs.X) >> index.bm25(num_results=100))(task.topics)
    among = ranked.merge(lists[["qid", "docno"]], on=["qid", "docno"])
    among["rank"] = among.groupby("qid").cumcount()
    values = cs.Experiment({"BM25": among}, task.topics, task.qrels, [R @ 1], perquery=True)
    first = values[values["qid"].str.endswith("_1")]
    assert first["value"].tolist() == [1.0] * 12


def test_expanded_responses_are_found_by_their_contexts(task: cs.topics.Task, tmp_path: Path) -> None:
    """ "np" has no word of any context; a model that has learnt what is said before it finds it."""
    words = sorted(
        {word for document in task.corpus for word in document["text"].split()}
        | {"works", "now", "my", "is", "down", "no", "idea"}
    )
    start = tiny_t5(tmp_path / "t5", words, scale=1.0)
    expander = cs.train_resp2ctxt(
        dialogues(), "last_utterance", init=start, out=tmp_path / "m", batch_size=36, max_steps=60, learning_rate=2e-2,
        precision="fp32", device="cpu",
    )  # fmt: skip
    expanded = (expander >> cs.BM25Index(tmp_path / "expanded.bm25")).index(task.corpus)
    plain = cs.BM25Index(tmp_path / "plain.bm25").index(task.corpus)
    asked = task.topics[task.topics["qid"] == "wifi_5"].reset_index(drop=True)
    last = cs.form(cs.CURRENT)
    assert len((last >> plain.bm25())(asked)) == 0
    assert (last >> expanded.bm25(num_results=1))(asked)["docno"][0].endswith("_5")
    terms = cs.expansion_terms(expander(pd.DataFrame(task.corpus)))
    assert cs.expansion_summary(terms)["share_new"] > 0.5


def test_negatives_of_e2_to_e5_compose(task: cs.topics.Task, index: cs.BM25Index, tmp_path: Path) -> None:
    drop = cs.DropPositives(task.qrels)
    bm25 = index.bm25(num_results=100)
    external = [{"docno": f"x{n}", "text": f"{problem} {problem} manual"} for n, problem in enumerate(PROBLEMS)]
    larger = cs.BM25Index(tmp_path / "larger.bm25").index([*task.corpus, *external])
    miners = {
        "E2": cs.form(cs.X) >> bm25 >> drop >> cs.Ranks(3, 12),
        "E3": cs.form(cs.X) >> bm25 >> drop >> cs.DropContextSubsets(),
        "E4": cs.form(cs.CURRENT) >> bm25 >> drop,
        "E5": cs.form(cs.X) >> larger.bm25(num_results=100) >> drop,
    }
    form = cs.form(cs.X, sep=("[U]", "[T]"))
    frames = {}
    for name, miner in miners.items():
        corpus = [*task.corpus, *external] if name == "E5" else task.corpus
        pairs = cs.training_pairs(task.topics, task.qrels, corpus, form=form, negatives=miner, out=tmp_path / name)
        frames[name] = pairs.frame().set_index("qid")
        assert frames[name].loc["wifi_3", "query"] == "my wifi is down [T] which wifi driver [T] no idea"
        assert all(qid not in negatives for qid, negatives in frames[name]["negatives"].items())
    assert (frames["E2"]["ranks"].map(lambda ranks: min(ranks, default=2)) >= 2).all()
    # the context of the second response holds the first one, which E3 drops
    assert "wifi_1" not in frames["E3"].loc["wifi_3", "negatives"]
    # what the last utterance alone ("no idea") finds has no word of the problem
    assert not any(docno.startswith("wifi_1") for docno in frames["E4"].loc["wifi_3", "negatives"])
    assert frames["E5"].loc["wifi_1", "negatives"][0] == "x0"


def test_long_and_odd_contexts(task: cs.topics.Task, index: cs.BM25Index) -> None:
    """Contexts of two thousand terms and of one emoji."""
    long = " ".join(f"{PROBLEMS[n % 12]}{n}" for n in range(2000)) + " wifi driver"
    topics = pd.DataFrame({"qid": ["1", "2"], "query": [long, "🙂"], "qhistory": [[], []]})
    rm3 = cs.form(cs.X) >> index.bm25(num_results=10) >> index.rm3() >> index.bm25(num_results=3)
    found = rm3(topics)
    assert found["docno"][0] == "wifi_1"
    assert set(found["qid"]) == {"1"}


def test_fusion_is_tuned_on_held_out_contexts(task: cs.topics.Task, index: cs.BM25Index) -> None:
    """Of the two pipelines one ranks upside down: the weight goes to the other."""
    wrong = cs.form(cs.X) >> index.bm25() >> pt.apply.doc_score(lambda row: -row["score"])
    hybrid = cs.reranking.interpolate(wrong, cs.form(cs.X) >> index.bm25(), weights=[0.5, 0.5])
    dev, test = task.topics.head(18), task.topics.tail(18).reset_index(drop=True)
    grid = {hybrid: {"weights": [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]}}
    tuned = pt.GridSearch(hybrid, grid, dev, task.qrels, "recip_rank", verbose=False)
    assert list(tuned.weights) == [0.1, 0.9]
    table = cs.Experiment([tuned, wrong], test, task.qrels, [RR], names=["tuned", "wrong"])
    assert table.loc["tuned", ("All", "RR")] > table.loc["wrong", ("All", "RR")]


# -- the experiment


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "experiments"))
    for name in ("response_retrieval", "_responses", "_response_bench", "_response_tables"):
        sys.modules.pop(name, None)
    return importlib.import_module("response_retrieval")


def values(folder: Path) -> pd.Series:
    return pd.read_csv(folder / "results.csv").set_index(["system", "group", "measure"])["value"]


def write_mantis(folder: Path) -> None:
    """Two questions and answers a dialogue; the paper's instances begin with the second question."""
    for split in ("train", "dev", "test"):
        content = {}
        for number, problem in enumerate(PROBLEMS):
            said = [f"{problem} {split}", f"first {problem}", f"{problem} {split} still", f"{problem} {split} fixed"]
            utterances = [
                {"actor_type": ("user", "agent")[at % 2], "utterance": text, "utterance_pos": at + 1}
                for at, text in enumerate(said)
            ]
            content[str(number)] = {"category": "dba", "title": "t", "utterances": utterances}
        (folder / f"merged_{split}.json").write_text(json.dumps(content), encoding="utf-8")


def write_msdialog(folder: Path) -> None:
    (folder / "MSDialog").mkdir()
    for split in ("train", "valid", "test"):
        lines = []
        for at, problem in enumerate(PROBLEMS):
            context = f"my {problem} {split}\twhat of it\tthe {problem} {split} fails"
            lines.append(f"1\t{context}\ttry {problem} {split}")
            lines += [f"0\t{context}\t{PROBLEMS[at - step]} never" for step in (1, 2)]
        (folder / "MSDialog" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_udc(folder: Path) -> None:
    """Of twice twelve examples every fourth has no right option: eighteen have one, the halves get nine each."""
    for split, rounds in (("train", ["a"]), ("dev", ["b", "c"])):
        examples = []
        for at, (turn, problem) in enumerate((turn, problem) for turn in rounds for problem in PROBLEMS):
            right = {"candidate-id": f"{split}{at}", "utterance": f"{problem} {turn} ok"}
            others = [{"candidate-id": f"x{n}", "utterance": f"{PROBLEMS[at % 12 - n]} never"} for n in (1, 2)]
            answered = at % 4 != 3
            examples.append({
                "data-split": split, "example-id": at, "options-for-next": [right] * answered + others,
                "messages-so-far": [{"speaker": "participant_0", "utterance": f"participant_0 : {problem} {turn}?"}],
                "options-for-correct-answers": [right] * answered,
            })  # fmt: skip
        (folder / f"task-1.ubuntu.{split}.json").write_text(json.dumps(examples), encoding="utf-8")


@pytest.mark.parametrize(
    ("dataset", "write", "contexts", "responses"),
    [("mantis", write_mantis, 12, 24), ("msdialog", write_msdialog, 12, 24), ("udc", write_udc, 9, 18)],
)
def test_the_papers_settings_on_files_of_the_true_form(
    experiment: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    dataset: str, write: Any, contexts: int, responses: int,
) -> None:  # fmt: skip
    write(tmp_path)
    given = ["--data", str(tmp_path), "--dataset", dataset, "--out", str(tmp_path / "out"), "--paper"]
    given += ["--held-out", "4", "--num-candidates", "5"]
    experiment.main([*given, "--dry-run"])
    plan = capsys.readouterr().out
    assert f"contexts {contexts}, responses {responses}, candidates {5 * contexts}" in plan
    for said in ("encoder: bert-base-uncased", "seq2seq_init: t5-base", "steps: 10000", "negatives: 10",
                 "target_length: 400", "target_length_lu: 100", "query_characters: 512", "scale: 20.0"):  # fmt: skip
        assert said in plan
    assert not (tmp_path / "out" / "rows").exists()
    experiment.main([*given, "--rows", "bm25,rm3"])
    found = values(tmp_path / "out")
    # a context and its response share the problem and the split's word, with no other response both
    assert found["BM25", "own-id", "R@1"] == 1.0
    assert found["BM25", "candidates", "R_5@1"] == 1.0
    assert found["BM25 + RM3", "own-id", "R@10"] == 1.0
    note = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Not run here: BM25 + resp2ctxt;" in note
    assert "fine-tuned, random negatives" in note


def test_given_candidates_are_searched_among(experiment: ModuleType, tmp_path: Path) -> None:
    """Each context comes with two negatives that name other problems: they are put into the collection."""
    write_msdialog(tmp_path)
    given = ["--data", str(tmp_path), "--dataset", "msdialog", "--out", str(tmp_path / "out"), "--rows", "bm25"]
    experiment.main([*given, "--held-out", "4", "--candidates", "given"])
    found = values(tmp_path / "out")
    assert found["BM25", "candidates", "R_3@1"] == 1.0
    settings = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert settings["settings"]["num_candidates"] == 3
    assert str(tmp_path) not in json.dumps(settings)


def test_rows_are_run_anew_only_when_what_they_depend_on_changed(
    experiment: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_msdialog(tmp_path)
    given = ["--data", str(tmp_path), "--dataset", "msdialog", "--out", str(tmp_path / "out"), "--held-out", "4"]
    given += ["--num-candidates", "5", "--rows", "bm25"]
    experiment.main(given)
    first = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    capsys.readouterr()
    experiment.main([*given, "--steps", "7"])  # BM25 knows no steps
    assert "bm25, seed 0: done before" in capsys.readouterr().err
    experiment.main([*given, "--query-characters", "9"])
    assert "bm25, seed 0: was run with other settings, is run anew" in capsys.readouterr().err
    experiment.main(given)
    assert (tmp_path / "out" / "table.md").read_text(encoding="utf-8") == first


def test_seeds_are_averaged_and_their_spread_is_shown(experiment: ModuleType, tmp_path: Path) -> None:
    """By hand: one seed finds all, the other nothing: a mean of 0.5 and a standard deviation of 0.707."""
    write_msdialog(tmp_path)
    given = ["--data", str(tmp_path), "--dataset", "msdialog", "--out", str(tmp_path / "out"), "--held-out", "4"]
    options = experiment.parsed([*given, "--num-candidates", "5"])
    bench = experiment.loaded(options)
    right = bench.qrels.drop(columns="label").assign(rank=0, score=1.0)
    wrong = right.assign(docno="train-0")
    for seed, run in ((1, right), (2, wrong)):
        frames = {"run": run, "candidates": run}
        facts = {"processor seconds": 1.5, "notes": {"examples": ["not shown"], "n": 1}}
        settings = bench.settings(experiment.ROWS["random"], seed)
        bench.rows.run("random", seed, settings, lambda frames=frames, facts=facts: (facts, frames))
    bench.rows.run("bm25", 0, {"of": "another time"}, lambda: (facts, frames))
    experiment.write_tables(bench)
    results = pd.read_csv(tmp_path / "out" / "results.csv").set_index(["system", "group", "measure"])
    assert set(results.index.get_level_values("system")) == {"fine-tuned, random negatives"}
    row = results.loc[("fine-tuned, random negatives", "own-id", "R@1")]
    assert row[["value", "seeds", "n"]].tolist() == [0.5, 2, 12]
    assert row["sd"] == pytest.approx(0.5**0.5)
    assert "0.500 ± 0.707" in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    written = (tmp_path / "out" / "results.json").read_text(encoding="utf-8")
    assert "not shown" not in written
    assert json.loads(written)["timings"] == {"fine-tuned, random negatives": 3.0}


# -- planted cases


def planted() -> list[dict[str, Any]]:
    """Twelve dialogues, and one with a response of an emoji, one without a text, one that repeats a response of another
    dialogue but for case and blanks, and one with a context of two thousand terms."""
    long = " ".join(f"{PROBLEMS[n % 12]}{n}" for n in range(1999)) + " teapot"
    added = {
        "emoji": ["is this thing on", "🙂"],
        "empty": ["anybody", "   ", "hello", "hi there"],
        "copy": ["my printer is down today", "  Which PRINTER driver "],
        "long": [long, "short and stout"],
    }
    return dialogues() + [
        {"dialogue_id": name, "utterances": [{"speaker": "ab"[at % 2], "text": text} for at, text in enumerate(said)]}
        for name, said in added.items()
    ]


def test_planted_false_negatives_are_never_mined(tmp_path: Path) -> None:
    """copy_1 is, in other letters, the gold of printer_1, and stands under another id: no negative of it; nor are the
    twelve copies of "np" of each other."""
    task = cs.topics.responses(planted())
    ids = [document["docno"] for document in task.corpus]
    assert {"emoji_1", "copy_1", "long_1"} <= set(ids)
    # the response without a text is none, nor is it part of the context of the one that follows
    assert {d["docno"]: d["text"] for d in task.corpus}["empty_1"] == "hi there"
    assert all(document["text"].strip() for document in task.corpus)
    assert len(ids) == 36 + 4
    index = cs.BM25Index(tmp_path / "x.bm25").index(task.corpus)
    miner = cs.form(cs.X) >> index.bm25(num_results=100)
    for name, negatives in {"mined": miner, "drawn": cs.RandomNegatives(task.corpus, seed=1)}.items():
        pairs = cs.training_pairs(
            task.topics, task.qrels, task.corpus, form=cs.X, num_negatives=5, seed=1, out=tmp_path / name,
            negatives=negatives >> cs.DropPositives(task.qrels),
        )  # fmt: skip
        of = pairs.frame().set_index("qid")["negatives"]
        assert len(of["printer_1"]) > 0
        assert not {"copy_1", "printer_1"} & set(of["printer_1"])
        assert not {"copy_1", "printer_1"} & set(of["copy_1"])
        assert not any(docno.endswith("_5") for docno in of["wifi_5"])


@pytest.mark.filterwarnings("ignore:.*a model will learn that instead of relevance")
def test_the_rate_of_planted_false_negatives_comes_back(tmp_path: Path) -> None:
    """A careless miner brings, for every third question, a paraphrase of the gold under another id: 4 of 12."""
    asked = [f"my {name} is down" for name in PROBLEMS]
    topics = pd.DataFrame({"qid": PROBLEMS, "query": asked, "qhistory": [[]] * 12})
    qrels = pd.DataFrame({"qid": PROBLEMS, "docno": [f"{name}-gold" for name in PROBLEMS], "label": 1})
    corpus = [{"docno": f"{name}-gold", "text": f"reinstall the {name} driver"} for name in PROBLEMS]
    corpus += [{"docno": f"{name}-same", "text": f"put the {name} driver in again"} for name in PROBLEMS]
    corpus += [{"docno": f"{name}-other", "text": f"no idea about {name}"} for name in PROBLEMS]
    brought = [f"{name}-{'same' if at % 3 == 0 else 'other'}" for at, name in enumerate(PROBLEMS)]
    found = pd.DataFrame({"qid": PROBLEMS, "docno": brought, "score": 1.0, "rank": 0})
    careless = pd.DataFrame({"qid": PROBLEMS, "docno": [f"{name}-other" for name in PROBLEMS], "score": 1.0, "rank": 0})
    samplers = {
        name: cs.training_pairs(
            topics, qrels, corpus, form=cs.X, num_negatives=1, seed=1, out=tmp_path / name,
            negatives=pt.Transformer.from_df(frame),
        )
        for name, frame in {"careless": found, "careful": careless}.items()
    }  # fmt: skip
    sheet = cs.annotation_sheet(samplers, tmp_path / "sheet.csv", num_items=12, seed=1)
    sheet["label"] = ["1" if text.endswith("in again") else "0" for text in sheet["candidate"]]
    sheet.to_csv(tmp_path / "sheet.csv", index=False, encoding="utf-8")
    rates = cs.false_negative_rates(tmp_path / "sheet.csv").set_index("sampler")
    assert rates.loc["careless", ["judged", "false_negatives"]].tolist() == [12, 4]
    assert rates.loc["careful", ["judged", "false_negatives"]].tolist() == [12, 0]
    # Wilson, 4 of 12 at 0.95: (4 + 1.9207) / 15.8415 ± 1.95996 * sqrt(4 * 8 / 12 + 0.96036) / 15.8415
    assert rates.loc["careless", ["low", "high"]].tolist() == pytest.approx([0.13812, 0.60938], abs=1e-4)


def test_planted_contexts_are_searched(tmp_path: Path) -> None:
    """Identical responses with two ids: by equal text either counts, by own id one; the emoji is found by nobody whose
    words it lacks; two thousand terms are searched with in full."""
    task = cs.topics.responses(planted())
    index = cs.BM25Index(tmp_path / "x.bm25").index(task.corpus)
    rm3 = index.bm25(num_results=10) >> index.rm3() >> index.bm25(num_results=100)
    for system in (cs.form(cs.X) >> index.bm25(num_results=100), cs.form(cs.X) >> rm3):
        asked = task.topics[task.topics["qid"].isin(["emoji_1", "long_1", "copy_1"])].reset_index(drop=True)
        results = system(asked)
        scores = results.set_index(["qid", "docno"])["score"]
        assert scores["copy_1", "copy_1"] == scores["copy_1", "printer_1"] > 0
        assert "emoji_1" not in set(results["docno"])
        # the context names all problems, as part of longer words; "teapot" is no word of any response
        assert (results["qid"] == "long_1").sum() == 0
    lists = cs.candidate_lists(task.topics, task.qrels, task.corpus, num_candidates=5)
    of = lists.groupby("qid")["docno"].apply(set)
    assert not of["copy_1"] >= {"copy_1", "printer_1"}
    assert lists.groupby("qid")["label"].sum().eq(1).all()


def test_rm3_is_not_what_long_contexts_cost(tmp_path: Path) -> None:
    """Measured on contexts of 250 terms over ten thousand responses: a third of one search to depth 1,000."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(3000)]
    documents = ({"docno": str(at), "text": " ".join(draw.choices(words, k=12))} for at in range(5000))
    index = cs.BM25Index(tmp_path / "x.bm25").index(documents)
    contexts = [" ".join(draw.choices(words, k=400)) for _ in range(40)]
    topics = pd.DataFrame({"qid": [str(at) for at in range(40)], "query": contexts})
    first, rm3, last = index.bm25(num_results=10), index.rm3(fb_docs=10, fb_terms=10), index.bm25(num_results=1000)
    spent: dict[str, list[float]] = {"rm3": [], "search": []}
    for _ in range(4):
        results = first(topics)
        began = time.process_time()
        expanded = rm3(results)
        spent["rm3"].append(time.process_time() - began)
        began = time.process_time()
        last(topics)
        spent["search"].append(time.process_time() - began)
    assert min(spent["rm3"]) < 2 * min(spent["search"])
    own = [set(index.analyze(text)) for text in contexts]
    assert all(len(set(toks) - terms) <= 10 for toks, terms in zip(expanded["query_toks"], own, strict=True))
