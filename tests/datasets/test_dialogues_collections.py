"""Collections of dialogues by name: topics, responses, judgments, splits that do not leak, candidates."""

from __future__ import annotations

import functools
import json
import logging
import shutil
from pathlib import Path

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.instances import instance_task
from pt_convsearch.datasets.leaks import check_leaks, find_leaks, normalised, without_leaks
from pt_convsearch.measures import evaluate


def jsonl(path, dialogues):
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in dialogues), encoding="utf-8")
    return path


def dialogue(name, *texts):
    """Speakers alternate, ann opens."""
    return {
        "dialogue_id": name,
        "utterances": [{"speaker": ("ann", "bob")[n % 2], "text": text} for n, text in enumerate(texts)],
    }


@pytest.fixture
def irc(tmp_path):
    jsonl(
        tmp_path / "train.jsonl",
        [
            dialogue("t1", "wifi?", "which card?", "intel", "Yes"),
            dialogue("t2", "sound?", "try alsa", "ok", "good  LUCK"),
        ],
    )
    jsonl(tmp_path / "dev.jsonl", [dialogue("d1", "grub?", "yes"), dialogue("d2", "x?", "good luck")])
    return tmp_path


class TestLeaks:
    def test_what_a_held_out_split_says_is_not_trained_on(self, irc, caplog):
        with caplog.at_level(logging.WARNING):
            data = cs.dataset("irc/train", path=irc)
            topics = data.get_topics()
        assert topics["qid"].tolist() == ["t1_1", "t2_1"]
        assert [document["text"] for document in data.get_corpus_iter()] == ["which card?", "try alsa"]
        assert data.get_qrels().values.tolist() == [["t1_1", "t1_1", 1], ["t2_1", "t2_1", 1]]
        assert "2 responses" in caplog.text
        check_leaks(data.task(), cs.dataset("irc/dev", path=irc).task())

    def test_kept_or_refused_when_asked_for(self, irc):
        assert len(cs.dataset("irc/train", path=irc, leaks="keep").get_topics()) == 4
        with pytest.raises(ValueError, match=r"2 responses .*'Yes', 'good LUCK'|2 responses .*'Yes'"):
            cs.dataset("irc/train", path=irc, leaks="raise").get_topics()
        with pytest.raises(ValueError, match="leaks="):
            cs.dataset("irc/train", path=irc, leaks="never")

    def test_found_from_either_side(self, irc):
        for split in ("train", "dev"):
            found = cs.dataset(f"irc/{split}", path=irc).find_leaks()
            assert found[["docno", "held_out_docno"]].values.tolist() == [["t1_3", "d1_1"], ["t2_3", "d2_1"]]

    def test_held_out_splits_are_whole(self, irc):
        assert len(cs.dataset("irc/dev", path=irc).get_topics()) == 2

    def test_no_held_out_split_on_disk(self, irc):
        (irc / "dev.jsonl").unlink()
        assert len(cs.dataset("irc/train", path=irc).get_topics()) == 4

    def test_functions(self):
        train = cs.topics.responses([dialogue("a", "?", "same", "?", "own"), dialogue("b", "?", "own2")])
        test = cs.topics.responses([dialogue("c", "?", " SAME ")])
        clean = without_leaks(train, test)
        assert clean.topics["qid"].tolist() == ["a_3", "b_1"]
        assert len(find_leaks(clean, test)) == 0
        assert without_leaks(clean, test) is clean
        with pytest.raises(ValueError, match=r"1 training responses .*'same'"):
            check_leaks(train, test)
        assert find_leaks(train).columns.tolist() == ["text", "docno", "held_out_docno"]

    def test_a_question_with_another_answer_stays(self):
        """Two right responses, the second leaked: the question keeps the first."""
        train = instance_task([{
            "dialogue_id": "a", "utterances": [{"speaker": "x", "text": "?"}],
            "responses": [{"docno": "r1", "text": "fine"}, {"docno": "r2", "text": "leaked"}],
        }])  # fmt: skip
        clean = without_leaks(train, cs.topics.responses([dialogue("c", "?", "leaked")]))
        assert clean.topics["qid"].tolist() == ["a"]
        assert clean.qrels["docno"].tolist() == ["r1"]

    def test_normalised(self):
        assert normalised("  Ｔｒｙ\u00a0GRUB\n") == "try grub"
        assert normalised("e\u0301") == normalised("é")
        assert normalised("yes!") != normalised("yes")


class TestPolicies:
    def test_duplicates(self, tmp_path):
        jsonl(tmp_path / "dev.jsonl", [dialogue("a", "?", "yes"), dialogue("b", "!", "yes", "more", "no")])
        own = cs.dataset("irc/dev", path=tmp_path).get_qrels()
        assert own.values.tolist() == [["a_1", "a_1", 1], ["b_1", "b_1", 1], ["b_3", "b_3", 1]]
        equal = cs.dataset("irc/dev", path=tmp_path, duplicates="equal-text").get_qrels()
        assert sorted(map(tuple, equal.values.tolist())) == [
            ("a_1", "a_1", 1), ("a_1", "b_1", 1), ("b_1", "a_1", 1), ("b_1", "b_1", 1), ("b_3", "b_3", 1),
        ]  # fmt: skip
        with pytest.raises(ValueError, match="duplicates="):
            cs.dataset("irc/dev", path=tmp_path, duplicates="none")

    def test_training_responses_as_documents(self, tmp_path):
        """The paper's collection; with equal texts, a training response is relevant to a test context."""
        jsonl(tmp_path / "train.jsonl", [dialogue("t", "?", "yes"), dialogue("u", "?", "perhaps")])
        jsonl(tmp_path / "test.jsonl", [dialogue("a", "!", "yes")])
        options = {"path": tmp_path, "collection": "train+split", "leaks": "keep"}
        own = cs.dataset("irc/test", **options)
        assert [document["docno"] for document in own.get_corpus_iter()] == ["t_1", "u_1", "a_1"]
        assert own.get_qrels()["docno"].tolist() == ["a_1"]
        equal = cs.dataset("irc/test", duplicates="equal-text", **options)
        assert equal.get_qrels().values.tolist() == [["a_1", "t_1", 1], ["a_1", "a_1", 1]]
        assert [d["docno"] for d in cs.dataset("irc/train", **options).get_corpus_iter()] == ["t_1", "u_1"]

    def test_instances(self):
        instances = [
            {
                "dialogue_id": 1,
                "utterances": [{"speaker": "x", "text": "hi"}, {"speaker": "y", "text": " "}],
                "response": "a",
            },
            {"dialogue_id": 2, "utterances": [{"speaker": "x", "text": "ho"}], "response": " "},
            {"dialogue_id": 3, "utterances": [], "response": "never"},
            {"dialogue_id": 4, "utterances": [{"speaker": "x", "text": "he"}], "response": "a", "conversation_id": "c"},
        ]
        with pytest.warns(UserWarning, match="1 instances without a context"):
            task = instance_task(instances, "equal-text", prefix="p-")
        assert task.topics[["qid", "query", "answer", "conversation_id", "turn_number"]].values.tolist() == [
            ["p-1", "hi", "a", "p-1", 1], ["p-2", "ho", "", "p-2", 1], ["p-4", "he", "a", "p-c", 1],
        ]  # fmt: skip
        assert task.corpus == [{"docno": "p-1", "text": "a"}, {"docno": "p-4", "text": "a"}]
        assert len(task.qrels) == 4
        with pytest.raises(ValueError, match="'1' comes twice"):
            instance_task([instances[0], instances[0]])
        empty = instance_task([])
        assert empty.topics.columns.tolist() == task.topics.columns.tolist()
        assert empty.qrels.dtypes.tolist() == task.qrels.dtypes.tolist()

    def test_one_id_for_two_texts_is_said(self):
        def one(number, text):
            said = [{"speaker": "x", "text": "hi"}]
            return {"dialogue_id": number, "utterances": said, "responses": [{"docno": "r", "text": text}]}

        with pytest.warns(UserWarning, match="1 responses carry the id of another text"):
            task = instance_task([one(1, "a"), one(2, "b"), one(3, "a")])
        assert task.corpus == [{"docno": "r", "text": "a"}]














class TestOwnFiles:
    def test_dialogues(self, tmp_path):
        path = jsonl(
            tmp_path / "mine.jsonl", [dialogue("a", "one", "two"), {**dialogue("", "x", "y"), "dialogue_id": None}]
        )
        data = cs.dataset(f"dialogues:{path}")
        assert data.get_topics()["qid"].tolist() == ["a_1", "2_1"]
        (tmp_path / "mine.json").write_text(json.dumps([dialogue("a", "one", "two")], indent=1), encoding="utf-8")
        assert cs.dataset(f"dialogues:{tmp_path / 'mine.json'}").get_topics()["answer"].tolist() == ["two"]
        assert cs.dataset(f"dialogues:{path}", user="bob").get_topics()["qid"].tolist() == []

    def test_tsv(self, tmp_path):
        (tmp_path / "x.tsv").write_text("1\ta\tb\n0\ta\tc\n", encoding="utf-8")
        data = cs.dataset(f"tsv:{tmp_path / 'x.tsv'}")
        assert data.get_topics()["query"].tolist() == ["a"]
        assert data.candidates().set_index("text")["label"].to_dict() == {"b": 1, "c": 0}

    def test_the_order_of_candidates_says_nothing(self, tmp_path):
        """The file lists the right one first; who gives all candidates one score is right by chance, 1 of 5."""
        lines = [f"{int(n == 0)}\tq{number}\tr{number}.{n}\n" for number in range(400) for n in range(5)]
        (tmp_path / "x.tsv").write_text("".join(lines), encoding="utf-8")
        data = cs.dataset(f"tsv:{tmp_path / 'x.tsv'}")
        run = data.get_results()
        assert (run["score"] == 0).all()
        found = evaluate(run, data.get_qrels(), "Success@1")["Success@1"].mean()
        assert 0.13 < found < 0.27  # 3.5 standard deviations of 400 draws
        again = cs.dataset(f"tsv:{tmp_path / 'x.tsv'}").candidates()
        pd.testing.assert_frame_equal(data.candidates(), again)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"dialogue_id": "x", "utterances": [{"text": "hi"}]}', "utterance 1 lacks a speaker"),
            ('{"dialogue_id": "x", "utterances": [{"speaker": "a", "text": 1}]}', "utterance 1 lacks"),
            ('{"dialogue_id": "x"}', "list 'utterances'"),
            ('{"dialogue_id": "x", "utterances": [', "not valid JSON"),
            ("[1]", "JSON object is due"),
        ],
    )
    def test_faults(self, tmp_path, line, message):
        path = jsonl(tmp_path / "bad.jsonl", [dialogue("a", "one", "two")])
        path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
        with pytest.raises(ValueError, match=rf"bad\.jsonl, line 2: .*{message}"):
            cs.dataset(f"dialogues:{path}").get_topics()

    def test_ids_twice(self, tmp_path):
        path = jsonl(tmp_path / "bad.jsonl", [dialogue("a", "one", "two")] * 2)
        with pytest.raises(ValueError, match="'a'"):
            cs.dataset(f"dialogues:{path}").get_topics()


@functools.lru_cache
def irc_topics(folder: Path, split: str) -> pd.DataFrame:
    """Read once: what the tests below only look at."""
    return cs.dataset(f"irc/{split}", path=folder, leaks="keep").get_topics()


class TestIRCData:
    """The dialogues at hand, against the counts that come with them."""

    @pytest.fixture
    def folder(self, realdata):
        return realdata / "irc-dialogues"

    @pytest.mark.parametrize(("split", "dialogues", "messages", "instances"), [
        ("train", 3294, 44497, 9481), ("dev", 144, 1853, 780),
    ])  # fmt: skip
    def test_counts(self, folder, split, dialogues, messages, instances):
        data = cs.dataset(f"irc/{split}", path=folder, leaks="keep")
        read = list(data.get_dialogues())
        assert (len(read), sum(len(one["utterances"]) for one in read)) == (dialogues, messages)
        assert data.counts == {
            "turns": instances, "passages": instances, "dialogues": dialogues, "messages": messages,
        }  # fmt: skip
        topics = irc_topics(folder, split)
        assert len(topics) == len(data.get_qrels()) == sum(1 for _ in data.get_corpus_iter()) == instances
        assert sum(1 for _ in cs.datasets.read_response_tsv(folder / f"{split}.tsv")) == instances

    @pytest.mark.parametrize("split", ["train", "dev"])
    def test_same_instances_as_the_tsv(self, folder, split):
        """Contexts cut from the dialogues, and the published instances, are equal to the letter."""
        topics = irc_topics(folder, split)
        ids = (folder / f"{split}.ids.tsv").read_text(encoding="utf-8").splitlines()[1:]
        rows = (folder / f"{split}.tsv").read_text(encoding="utf-8").split("\n")
        theirs = {}
        for line, row in zip(ids, rows, strict=False):
            _, name, turn, _ = line.split("\t")
            theirs[f"{name}_{turn}"] = row.split("\t")[1:]
        assert len(theirs) == len(topics)
        for row in topics.itertuples():
            assert [message["content"] for message in row.qhistory] + [row.query, row.answer] == theirs[row.qid]

    def test_training_does_not_leak(self, folder):
        train, dev = (cs.dataset(f"irc/{split}", path=folder) for split in ("train", "dev"))
        said = {" ".join(document["text"].casefold().split()) for document in dev.get_corpus_iter()}
        kept = {" ".join(document["text"].casefold().split()) for document in train.get_corpus_iter()}
        assert not said & kept
        assert len(train.get_topics()) + len(train.find_leaks()) == 9481

    def test_without_the_list_all_turns_are_instances(self, folder, tmp_path):
        shutil.copy(folder / "dev.jsonl", tmp_path)
        assert len(cs.dataset("irc/dev", path=tmp_path).get_topics()) == 780
        one = cs.dataset("irc/dev", path=tmp_path, join_turns=False).get_topics()
        assert len(one) == 780
        assert (
            one["qhistory"].map(len).sum()
            > cs.dataset("irc/dev", path=tmp_path).get_topics()["qhistory"].map(len).sum()
        )

    def test_noesis_file(self, folder):
        """130 examples, 100 candidates each, every fifth without a right one."""
        files = {"dev": folder / "dstc8-style.task-1.dev.json.gz"}
        data = cs.dataset("udc-dstc8/dev", files=files)
        topics, qrels, candidates = data.get_topics(), data.get_qrels(), data.candidates()
        assert (len(topics), len(qrels), len(candidates)) == (130, 104, 13000)
        assert (topics["answer"] == "").sum() == 26
        assert candidates["label"].sum() == 104
        assert not topics["query"].str.contains(r"participant_\d+ : ").any()
        halves = [
            len(cs.dataset(f"udc-dstc8/{split}", files=files, no_answer="drop").get_topics())
            for split in ("valid", "test")
        ]
        assert halves == [52, 52]

    def test_a_list_that_does_not_fit_is_refused(self, folder, tmp_path):
        shutil.copy(folder / "dev.jsonl", tmp_path)
        (tmp_path / "dev.ids.tsv").write_text(
            "instance\tdialogue_id\tturn\tspeakers\n0\tnobody\t1\ta,b\n", encoding="utf-8"
        )
        with pytest.raises(ValueError, match=r"dev\.ids\.tsv: instance 'nobody_1'"):
            cs.dataset("irc/dev", path=tmp_path).get_topics()
