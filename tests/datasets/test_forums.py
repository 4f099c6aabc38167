"""Collections of forums and support channels: MANtIS, MSDialog, the Ubuntu corpus, ConvoKit."""

from __future__ import annotations

import json
import pickle

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs

from .test_dialogues_collections import dialogue, jsonl


def mantis_utterances(*texts):
    return [
        {"actor_type": ("user", "agent")[n % 2], "utterance": text, "utterance_pos": n + 1}
        for n, text in enumerate(texts)
    ]


class TestMantis:
    @pytest.fixture
    def folder(self, tmp_path):
        for split in ("train", "dev", "test"):
            long = [f"{split}{n}" for n in range(1, 17)]
            content = {
                "0": {"category": "dba", "title": "t", "utterances": mantis_utterances(*long)},
                "1": {"category": "gis", "title": "t", "utterances": mantis_utterances("u1", f"{split} a1", "u2")},
            }
            (tmp_path / f"merged_{split}.json").write_text(json.dumps(content), encoding="utf-8")
        return tmp_path

    def test_every_turn_of_the_provider(self, folder):
        data = cs.dataset("mantis/valid", path=folder)
        topics = data.get_topics()
        assert len(topics) == 8 + 1
        assert topics["qid"].tolist()[:2] == ["valid-0_1", "valid-0_3"]
        assert topics["category"].tolist() == ["dba"] * 8 + ["gis"]
        assert [message["role"] for message in topics["qhistory"][1]] == ["user", "assistant"]
        assert [one["dialogue_id"] for one in data.get_dialogues()] == ["valid-0", "valid-1"]

    def test_the_distributors_instances(self, folder):
        """From the second question on, ten utterances before it at most; a last question without answer gives none."""
        topics = cs.dataset("mantis/test", path=folder, mode="paper").get_topics()
        assert topics["turn_number"].tolist() == [3, 5, 7, 9, 11, 13, 15]
        assert topics["answer"].tolist() == [f"test{n}" for n in (4, 6, 8, 10, 12, 14, 16)]
        contexts = [[m["content"] for m in history] for history in topics["qhistory"]]
        assert contexts[0] == ["test1", "test2"]
        # position 13: utterances 3 to 13, of which 13 is the question
        assert contexts[5] == [f"test{n}" for n in range(3, 13)]
        assert topics["query"].tolist()[5] == "test13"
        assert set(topics["conversation_id"]) == {"test-0"}

    def test_tsv_form_with_candidates(self, folder, tmp_path):
        tsv = tmp_path / "tsv"
        tsv.mkdir()
        (tsv / "data_test_easy.tsv").write_text('1\thi\t"<a href=""x"">"\n0\thi\tno\n', encoding="utf-8")
        data = cs.dataset("mantis/test", path=tsv)
        assert data.get_topics()["answer"].tolist() == ['<a href="x">']
        assert data.candidates().set_index("docno")["label"].to_dict() == {"test-0": 1, "test-0:n1": 0}
        results = data.get_results()
        assert sorted(results[["qid", "query", "docno", "text"]].values.tolist()) == [
            ["test-0", "hi", "test-0", '<a href="x">'], ["test-0", "hi", "test-0:n1", "no"],
        ]  # fmt: skip
        assert results[["score", "rank"]].values.tolist() == [[0, 0], [0, 1]]
        with pytest.raises(NotImplementedError, match="gives no candidates"):
            cs.dataset("mantis/test", path=folder).candidates()

    def test_tsv_files_under_their_other_names(self, tmp_path):
        (tmp_path / "test.tsv").write_text("1\thi\tyes\n", encoding="utf-8")
        assert cs.dataset("mantis/test", path=tmp_path).get_topics()["qid"].tolist() == ["test-0"]

    def test_dialogue_of_each_line(self, tmp_path):
        """The lookup has a line for each line of the TSV, negatives included."""
        (tmp_path / "data_dev_easy.tsv").write_text("1\ta\tb\n0\ta\tc\n1\tx\ty\n", encoding="utf-8")
        (tmp_path / "data_dev_easy_lookup.txt").write_text("31\n31\n40\n", encoding="utf-8")
        topics = cs.dataset("mantis/valid", path=tmp_path).get_topics()
        assert topics["conversation_id"].tolist() == ["valid-31", "valid-40"]
        (tmp_path / "data_dev_easy_lookup.txt").write_text("31\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"data_dev_easy_lookup\.txt: it is cut"):
            cs.dataset("mantis/valid", path=tmp_path).get_topics()

    def test_names_and_options(self, folder):
        for name in ("mantis", "mantis/dev"):
            with pytest.raises(KeyError, match="mantis/valid"):
                cs.dataset(name)
        with pytest.raises(ValueError, match="form="):
            cs.dataset("mantis/test", form="xml")
        (folder / "merged_dev.json").unlink()
        with pytest.raises(FileNotFoundError, match=r"merged_dev\.json.*guzpenha"):
            cs.dataset("mantis/valid", path=folder).get_topics()
        with pytest.raises(ValueError, match="no variants"):
            cs.dataset("mantis/test", path=folder).get_topics("text")


class TestMSDialog:
    def test_response_ranking(self, tmp_path):
        (tmp_path / "MSDialog").mkdir()
        (tmp_path / "MSDialog" / "test.tsv").write_text("1\ta\tb\tc\td\n0\ta\tb\tc\te\n1\tx\ty\n", encoding="utf-8")
        data = cs.dataset("msdialog/test", path=tmp_path)
        assert data.get_topics()[["qid", "query", "answer"]].values.tolist() == [
            ["test-0", "c", "d"],
            ["test-1", "x", "y"],
        ]
        assert [len(part) for _, part in data.candidates().groupby("qid")] == [2, 1]

    def test_whole_dialogues(self, tmp_path):
        content = {
            "9": {"category": "Excel", "title": "", "utterances": mantis_utterances("q", "a", "thanks", "welcome")}
        }
        (tmp_path / "MSDialog-Complete.json").write_text(json.dumps(content), encoding="utf-8")
        topics = cs.dataset("msdialog/complete", path=tmp_path).get_topics()
        assert topics[["qid", "answer", "category"]].values.tolist() == [
            ["9_1", "a", "Excel"],
            ["9_3", "welcome", "Excel"],
        ]


def noesis(number, correct, text="how?"):
    return {
        "data-split": "dev", "example-id": number,
        "messages-so-far": [{"speaker": "participant_0", "utterance": f"participant_0 : {text}"}],
        "options-for-correct-answers": [
            {"candidate-id": key, "utterance": f"participant_1 : {key}!"} for key in correct
        ],
        "options-for-next": [{"candidate-id": key, "utterance": f"{key}!"} for key in (f"r{number}", "x", "y")],
    }  # fmt: skip


class TestUDC:
    @pytest.fixture
    def folder(self, tmp_path):
        # answered are 1, 3, 4, 6, 7: the paper's halves are two and three of them
        dev = [noesis(n, [f"r{n}"] if n not in (2, 5) else []) for n in range(1, 8)]
        dev[3] = noesis(4, ["r4", "x"])
        (tmp_path / "task-1.ubuntu.dev.json").write_text(json.dumps(dev), encoding="utf-8")
        (tmp_path / "task-1.ubuntu.train.json").write_text(
            json.dumps([noesis(1, ["r1"]), noesis(2, ["z"])]), encoding="utf-8"
        )
        return tmp_path

    def test_halves_as_in_the_paper(self, folder):
        valid, test = (cs.dataset(f"udc-dstc8/{split}", path=folder, no_answer="drop") for split in ("valid", "test"))
        assert valid.get_topics()["qid"].tolist() == ["dev-1", "dev-3"]
        assert test.get_topics()["qid"].tolist() == ["dev-4", "dev-6", "dev-7"]
        kept = [
            cs.dataset(f"udc-dstc8/{split}", path=folder).get_topics()["qid"].tolist() for split in ("valid", "test")
        ]
        assert kept == [["dev-1", "dev-2", "dev-3"], ["dev-4", "dev-5", "dev-6", "dev-7"]]
        assert [*kept[0], *kept[1]] == cs.dataset("udc-dstc8/dev", path=folder).get_topics()["qid"].tolist()

    def test_several_right_options_and_none(self, folder):
        data = cs.dataset("udc-dstc8/test", path=folder)
        assert data.get_qrels().values.tolist() == [
            ["dev-4", "r4", 1], ["dev-4", "x", 1], ["dev-6", "r6", 1], ["dev-7", "r7", 1],
        ]  # fmt: skip
        assert data.get_topics().set_index("qid").loc["dev-5", "answer"] == ""
        first = cs.dataset("udc-dstc8/test", path=folder, correct="first").get_qrels()
        assert first["docno"].tolist() == ["r4", "r6", "r7"]
        candidates = data.candidates()
        assert candidates.groupby("qid")["label"].sum().to_dict() == {"dev-4": 2, "dev-5": 0, "dev-6": 1, "dev-7": 1}
        assert len(candidates) == 12

    def test_r_3_at_1(self, folder):
        """Over the 3 questions that have an answer: one system knows the right ones, another what is wrong."""
        data = cs.dataset("udc-dstc8/test", path=folder)
        known = data.get_results().merge(data.candidates()[["qid", "docno", "label"]], on=["qid", "docno"])
        right = known.assign(score=known["label"]).drop(columns="rank")
        systems = {"knows": right, "errs": right.assign(score=-right["score"])}
        table = cs.Experiment(systems, data.get_topics(), data.get_qrels(), ["Success@1"])
        assert table["All"]["Success@1"].tolist() == [1.0, 0.0]
        assert table["All"]["n"].tolist() == [3, 3]

    def test_training_is_clean(self, folder):
        """r1 is right in training, too: it is dropped, since it is held out in dev."""
        assert cs.dataset("udc-dstc8/train", path=folder).get_topics()["qid"].tolist() == ["train-2"]

    def test_pickle_keeps_options(self, folder):
        data = cs.dataset("udc-dstc8/test", path=folder, names="paper", correct="first")
        data.get_topics()
        again = pickle.loads(pickle.dumps(data))
        assert (again.names, again.correct, again._task) == ("paper", "first", None)
        pd.testing.assert_frame_equal(again.get_topics(), data.get_topics())


class TestConvoKit:
    def test_external_collection_without_what_is_tested_on(self, tmp_path):
        lines = [{"id": str(n), "speaker": "s", "conversation_id": "0", "reply_to": None, "text": text}
                 for n, text in enumerate(["Hello", "", "try   GRUB", "bye"])]  # fmt: skip
        jsonl(tmp_path / "utterances.jsonl", lines)
        test = cs.topics.responses([dialogue("d", "?", "Try grub")])
        data = cs.dataset(f"convokit:{tmp_path}", exclude=[test], prefix="reddit-")
        assert list(data.get_corpus_iter()) == [
            {"docno": "reddit-0", "text": "Hello"},
            {"docno": "reddit-3", "text": "bye"},
        ]
        assert len(list(cs.dataset(f"convokit:{tmp_path}").get_corpus_iter())) == 3

    def test_task_of_its_dialogues(self, tmp_path):
        lines = [{"id": str(n), "speaker": speaker, "conversation_id": "0", "reply_to": None, "text": f"text {n}"}
                 for n, speaker in enumerate("abab")]  # fmt: skip
        jsonl(tmp_path / "utterances.jsonl", lines)
        data = pt.get_dataset(f"convsearch:convokit:{tmp_path}")
        assert data.get_topics()["qid"].tolist() == ["0_1", "0_3"]
