"""Retrieving responses, from dialogues to a table: what Penha & Hauff's experiments need, composed on tiny data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
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
