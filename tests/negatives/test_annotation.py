"""E1: a sheet for people, and the rates that come back from it; E6: replies as negatives; lists of candidates."""

from __future__ import annotations

import csv
import io
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.negatives.annotation import COLUMNS


@pytest.fixture
def samplers(tmp_path: Path) -> dict[str, Any]:
    topics = pd.DataFrame(
        {"qid": [str(n) for n in range(6)], "query": [f"q{n}" for n in range(6)], "qhistory": [[]] * 6}
    )
    corpus = [{"docno": f"d{n}", "text": f'text, {n}\n"quoted" é'} for n in range(12)]
    qrels = pd.DataFrame({"qid": topics.qid, "docno": [f"d{n}" for n in range(6)], "label": 1})
    return {
        name: cs.training_pairs(
            topics, qrels, corpus, form=cs.X, negatives=cs.RandomNegatives(corpus, seed=seed), out=tmp_path / name
        )
        for name, seed in (("one", 1), ("two", 2))
    }


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return list(csv.DictReader(handle))


def fill(path: Path, labels: dict[str, str]) -> None:
    rows = rows_of(path)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "label": labels.get(row["item"], "")} for row in rows)


def test_a_sheet_and_the_rates_back(samplers: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    sheet = cs.annotation_sheet(samplers, path, num_items=4, seed=5)
    rows = rows_of(path)
    assert [row["item"] for row in rows] == sheet["item"].tolist() == [str(n) for n in range(1, len(rows) + 1)]
    assert "one" not in path.read_text("utf-8-sig")  # annotators are blind to where a pair comes from
    key = rows_of(tmp_path / "sheet.csv.key.csv")
    by_sampler = {name: [row["item"] for row in key if row["sampler"] == name] for name in samplers}
    assert {name: len(items) for name, items in by_sampler.items()} == {"one": 4, "two": 4}
    of_item = {row["item"]: row for row in rows}
    # both samplers are asked about the same questions, no gold is ever asked about
    assert len({frozenset(of_item[item]["qid"] for item in items) for items in by_sampler.values()}) == 1
    assert all(row["docno"] != f"d{row['qid']}" for row in rows)
    assert all(row["answer"].startswith(f"text, {row['qid']}") for row in rows)
    # planted: 1 of 4 of the first sampler is a false negative, one of the second is not judged
    labels = dict.fromkeys(of_item, "0")
    labels[by_sampler["one"][0]] = " Yes"
    labels[next(item for item in by_sampler["two"] if item not in by_sampler["one"])] = ""
    fill(path, labels)
    rates = cs.false_negative_rates(path).set_index("sampler")
    assert rates.loc["one", ["sampled", "judged", "false_negatives", "rate"]].tolist() == [4, 4, 1, 0.25]
    assert rates.loc["two", "judged"] == 3
    # Wilson, 1 of 4, z = 1.959964: centre (1/4 + z²/8) / (1 + z²/4), worked out by hand
    assert rates.loc["one", "low"] == pytest.approx(0.0456, abs=1e-4)
    assert rates.loc["one", "high"] == pytest.approx(0.6994, abs=1e-4)


def test_sheets_that_people_have_worked_on(samplers: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    cs.annotation_sheet(samplers, path, num_items=2)
    rates = cs.false_negative_rates(path)
    assert rates["judged"].tolist() == [0, 0]
    assert rates["rate"].isna().all()
    with pytest.raises(FileExistsError, match="sheet.csv"):
        cs.annotation_sheet(samplers, path)
    fill(path, {"1": "maybe"})
    with pytest.raises(ValueError, match="1: maybe"):
        cs.false_negative_rates(path)
    fill(path, {"1": "1"})
    text = path.read_text("utf-8")
    # a spreadsheet that writes semicolons, with other line ends
    rows = rows_of(path)
    with path.open("w", encoding="utf-8-sig", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, delimiter=";", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows[::-1])
    assert cs.false_negative_rates(path)["judged"].sum() >= 1
    path.write_text("\n".join(text.split("\n")[:1]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no rows"):
        cs.false_negative_rates(path)
    (tmp_path / "sheet.csv.key.csv").unlink()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"key\.csv"):
        cs.false_negative_rates(path)


SHEET = [["item", "label", "candidate"], ["1", "1", "a; b, c\td\n\"e\""], ["2", "0", "é"], ["3", "", "x"]]


def written(rows: list[list[str]], delimiter: str = ",", end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        written(SHEET).encode("utf-8"),
        written(SHEET, ";", "\r\n").encode("utf-8-sig"),
        written(SHEET, "\t").encode("utf-16"),  # a spreadsheet's "Unicode text"
        b"sep=;\r\n" + written(SHEET, ";", "\r\n").encode("utf-8"),
        written([[row[2], row[0], row[1]] for row in SHEET]).encode("utf-8"),
        written([[" Candidate", "ITEM", "Label "], *[[row[2], row[0], row[1]] for row in SHEET[1:]]]).encode("utf-8"),
        written([SHEET[0], ["1.0", "1.0", "a"], ["2.0", "0.0", "b"], ["3.0", "", "c"]]).encode("utf-8"),
        written([SHEET[0], ["1", "1,0", "a"], ["2", "0,0", "b"], ["3", "", "c"]], ";").encode("utf-8"),
        written([SHEET[0], ["1", "TRUE", "a"], ["2", "False", "b"], ["3", " ", "c"]]).encode("utf-8"),
        written([*SHEET, ["", "", ""], ["", "", ""]]).encode("utf-8"),
        written([*SHEET, ["1", "", "a"], ["2", "0", "b"]]).encode("utf-8"),  # copies that contradict nothing
        written([*SHEET[:3], ["3"]]).encode("utf-8"),  # empty cells at the end are left out
    ],
)
def test_habits_of_spreadsheets(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "sheet.csv"
    path.write_bytes(data)
    (tmp_path / "sheet.csv.key.csv").write_text("item,sampler\n1,one\n2,one\n3,one\n", encoding="utf-8")
    found = cs.false_negative_rates(path).iloc[0]
    assert found[["sampled", "judged", "false_negatives", "rate"]].tolist() == [3, 2, 1, 0.5]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (written(SHEET, ";").encode("cp1252"), "CSV UTF-8"),
        (written([*SHEET, ["1", "0", "a"]]).encode("utf-8"), "1 items stand twice with different labels"),
        (written([["item", "candidate"], ["1", "a"]]).encode("utf-8"), "no column 'label'"),
        (b"", "no rows"),
    ],
)
def test_sheets_that_cannot_be_read(tmp_path: Path, data: bytes, named: str) -> None:
    path = tmp_path / "sheet.csv"
    path.write_bytes(data)
    (tmp_path / "sheet.csv.key.csv").write_text("item,sampler\n1,one\n", encoding="utf-8")
    with pytest.raises(ValueError, match=named):
        cs.false_negative_rates(path)


def test_the_widget_saves_each_answer(samplers: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    cs.annotation_sheet(samplers, path, num_items=2)
    box = cs.annotation_widget(path)
    yes, no, skip, back = box.children[2].children
    yes.click()
    assert rows_of(path)[0]["label"] == "1"
    back.click()
    no.click()
    assert rows_of(path)[0]["label"] == "0"
    skip.click()
    assert rows_of(path)[1]["label"] == ""
    assert "0 of" not in box.children[0].value


# candidates


def test_candidates_by_hand() -> None:
    topics = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["a", "b", "c"]})
    corpus = [{"docno": f"d{n}", "text": text} for n, text in enumerate(["yes", "Yes!", "no", "no", "np", "ok"])]
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d0", "d4"], "label": [1, 1]})
    found = cs.candidate_lists(topics, qrels, corpus, num_candidates=4)
    assert found["qid"].tolist() == ["1"] * 4 + ["2"] * 4
    assert found.groupby("qid")["label"].sum().tolist() == [1, 1]
    one = found[found["qid"] == "1"]
    # one candidate for each distinct text, never the copy of the gold
    assert "d1" not in set(one["docno"])
    assert sorted(text.lower().strip("!") for text in one["text"]) == ["no", "np", "ok", "yes"]
    pd.testing.assert_frame_equal(
        cs.candidate_lists(topics[1:], qrels, corpus, num_candidates=4), found[4:].reset_index(drop=True)
    )
    assert not cs.candidate_lists(topics, qrels, corpus, num_candidates=3, seed=2).equals(
        cs.candidate_lists(topics, qrels, corpus, num_candidates=3, seed=3)
    )
    with pytest.raises(ValueError, match="too few distinct texts for 2"):
        cs.candidate_lists(topics, qrels, corpus, num_candidates=5)
    with pytest.raises(ValueError, match="num_candidates=1"):
        cs.candidate_lists(topics, qrels, corpus, num_candidates=1)
    with pytest.raises(ValueError, match="none of the 3"):
        cs.candidate_lists(topics, qrels.assign(docno="x"), corpus)


# generated negatives


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny causal model with random weights."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    words = {word: number for number, word in enumerate(["<end>", "<unk>", *(f"w{n}" for n in range(40))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(0)
    GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(words), n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
        )
    ).save_pretrained(folder)
    return str(folder)


def test_replies_are_negatives_like_any_other(gpt2: str, tmp_path: Path) -> None:
    topics = pd.DataFrame(
        {"qid": ["1", "2", "3"], "query": ["w1 w2", "w3", ""], "qhistory": [[]] * 3, "extra": [[1], [2], [3]]}
    )
    corpus = [{"docno": "a", "text": "w1"}, {"docno": "b", "text": "w2"}]
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "b"], "label": 1})
    miner = cs.GeneratedNegatives(gpt2, num_results=4, max_new_tokens=5)
    found = miner(topics)
    assert set(found["qid"]) == {"1", "2"}
    assert found["extra"].tolist() == [[int(qid)] for qid in found["qid"]]
    assert (found.groupby("qid")["rank"].max() < 4).all()
    assert found["docno"].str.startswith("generated-").all()
    assert miner(topics.iloc[[1]])["text"].tolist() == found.loc[found["qid"] == "2", "text"].tolist()
    assert (
        cs.GeneratedNegatives(gpt2, num_results=4, max_new_tokens=5, seed=2)(topics)["text"].tolist()
        != found["text"].tolist()
    )
    documents = miner.documents(topics)
    assert {d["docno"] for d in documents} == set(found["docno"])
    pairs = cs.training_pairs(
        topics,
        qrels,
        [*corpus, *documents],
        form=cs.X,
        negatives=cs.form(cs.X) >> miner,
        num_negatives=2,
        out=tmp_path / "p",
    )
    assert all(docno.startswith("generated-") for pool in pairs.frame()["negatives"] for docno in pool)
    assert len(pairs) == 2
    assert miner == pickle.loads(pickle.dumps(miner))
    empty = miner(topics.iloc[:0])
    assert {"docno", "score", "rank", "text"} <= set(empty.columns)
    assert len(empty) == 0
    with pytest.raises(ValueError, match="prompt"):
        cs.GeneratedNegatives(gpt2, prompt="hello")
    with pytest.raises(ValueError, match="num_results"):
        cs.GeneratedNegatives(gpt2, num_results=0)


def test_a_long_query_loses_its_beginning_not_its_prompt(gpt2: str) -> None:
    long = cs.GeneratedNegatives(gpt2, num_results=2, max_new_tokens=4, max_input_length=4, prompt="w9 {query} w8")
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["w1 w2 w3 w4 w5", "w7 w6 w4 w5"]})
    found = long(topics)
    generator = long._load()[0]
    assert long._end_of(generator, "w1 w2 w3 w4 w5") == "w4 w5"
    assert found[found["qid"] == "1"]["text"].tolist() == found[found["qid"] == "2"]["text"].tolist()
