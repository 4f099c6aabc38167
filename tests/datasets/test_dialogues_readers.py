"""Readers of MANtIS, MSDialog, response TSV, NOESIS-II and ConvoKit, on small files in their true forms."""

from __future__ import annotations

import gzip
import json

import pytest

from pt_convsearch.datasets.convokit import read_convokit, read_convokit_utterances
from pt_convsearch.datasets.forum import read_forum
from pt_convsearch.datasets.noesis import read_noesis, without_names
from pt_convsearch.datasets.response_tsv import read_response_tsv, tsv_candidates


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def utterance(actor, text, pos, **more):
    return {"actor_type": actor, "utterance": text, "utterance_pos": pos, "votes": 0, "is_answer": 0, "id": "1", **more}


MANTIS = {
    "7": {
        "category": "travel",
        "title": "Ferry to Tartu?",
        "dialog_time": "2012-01-01T10:00:00",
        "has_concatenated_utterances": 0,
        "utterances": [
            utterance("user", "Is there a ferry?", 1, user_name="a"),
            utterance("agent", 'No: <a href="https://x">see</a>', 2),
            utterance("user", "A bus, then?", 3),
            utterance("agent", "Hourly.", 4),
        ],
    },
    "8": {
        "category": "scifi",
        "title": "",
        "dialog_time": "",
        "utterances": [utterance("agent", "second", 2), utterance("user", "first", 1)],
    },
}


class TestForum:
    def test_mantis(self, tmp_path):
        first, second = read_forum(write(tmp_path / "merged_train.json", MANTIS))
        assert (first["dialogue_id"], first["category"], first["title"]) == ("7", "travel", "Ferry to Tartu?")
        assert first["utterances"][1] == {"speaker": "agent", "text": 'No: <a href="https://x">see</a>'}
        assert [said["text"] for said in second["utterances"]] == ["first", "second"]  # by utterance_pos

    def test_msdialog_with_tags(self, tmp_path):
        """The example of its page: actors with capitals, ids as numbers, tags of intents."""
        dialogue = {
            "category": "Word",
            "dialog_time": "2017-09-21T04:15:54",
            "title": "Line and paragraph spacing in Office Word 2007",
            "frequency": "0",
            "utterances": [
                {
                    "affiliation": "Common User", "utterance_time": "2017-09-21T04:15:54", "utterance_pos": 1,
                    "id": 192941, "user_id": "u1", "is_answer": 0, "vote": "0", "actor_type": "User",
                    "utterance": "How?", "tags": "OQ ",
                },
                {"utterance_pos": 2, "actor_type": "Agent", "utterance": "So.", "tags": "PA GG", "is_answer": 1},
            ],
        }  # fmt: skip
        (one,) = read_forum(write(tmp_path / "MSDialog-Intent.json", {"20481": dialogue}))
        assert [(said["speaker"], said["intent"]) for said in one["utterances"]] == [
            ("user", "OQ "),
            ("agent", "PA GG"),
        ]

    def test_labelled_mantis_has_lists_of_intents(self, tmp_path):
        dialogue = {**MANTIS["7"], "utterances": [utterance("user", "x", 1, intent=["OQ", "FD"])]}
        (one,) = read_forum(write(tmp_path / "x.json", {"1": dialogue}))
        assert one["utterances"][0]["intent"] == "OQ FD"

    def test_a_list_with_ids_inside(self, tmp_path):
        (one,) = read_forum(write(tmp_path / "x.json", [{"dialog_id": 3, "utterances": [utterance("user", "x", 1)]}]))
        assert (one["dialogue_id"], one["category"]) == ("3", "")

    @pytest.mark.parametrize(
        ("utterances", "message"),
        [
            ([utterance("bot", "x", 1)], "utterance 1: actor_type is 'bot'"),
            ([{"actor_type": "user", "utterance_pos": 1}], "utterance 1: no field 'utterance'"),
            ([utterance("user", None, 1)], "no field 'utterance' with a value: it is null"),
            ([utterance("user", 5, 1)], "field 'utterance' holds 5"),
            (["x"], "utterances are JSON objects"),
            ({"0": {}}, "field 'utterances' holds"),
            (None, "no field 'utterances'"),
        ],
    )
    def test_faults_name_file_line_and_dialogue(self, tmp_path, utterances, message):
        path = tmp_path / "bad.json"
        good, bad = json.dumps(MANTIS["7"]), json.dumps({"utterances": utterances})
        path.write_text(f'{{"1": {good},\n"2": {bad}}}', encoding="utf-8")
        reader = read_forum(path)
        next(reader)
        with pytest.raises(ValueError, match=rf"bad\.json, line 2, dialogue '2'.*{message}"):
            next(reader)

    def test_cut_in_the_middle(self, tmp_path):
        path = write(tmp_path / "merged_dev.json", json.dumps(MANTIS)[:-40])
        with pytest.raises(ValueError, match=r"merged_dev\.json, line 1: .*cut"):
            list(read_forum(path))


class TestResponseTSV:
    def test_instances_with_negatives(self, tmp_path):
        path = write(
            tmp_path / "x.tsv", "1\thi\tyes?\thow?\tso\n0\thi\tyes?\thow?\tno\n0\thi\tyes?\thow?\tnever\n1\thi\tyes\n"
        )
        first, second = read_response_tsv(path)
        assert [said["text"] for said in first["utterances"]] == ["hi", "yes?", "how?"]
        assert [said["speaker"] for said in first["utterances"]] == ["user", "agent", "user"]
        assert (first["dialogue_id"], first["response"], first["negatives"], first["line"]) == (
            "0",
            "so",
            ["no", "never"],
            1,
        )
        assert (second["dialogue_id"], second["response"], second["negatives"], second["line"]) == ("1", "yes", [], 4)
        candidates = tsv_candidates([first, second])
        assert candidates["qid"].tolist() == ["0", "0", "0", "1"]
        assert sorted(candidates[["docno", "label"]].values.tolist()) == [["0", 1], ["0:n1", 0], ["0:n2", 0], ["1", 1]]

    def test_window_that_begins_with_the_agent(self, tmp_path):
        (one,) = read_response_tsv(write(tmp_path / "x.tsv", "1\tso it is\tthanks, and?\tthat is all\n"))
        assert [said["speaker"] for said in one["utterances"]] == ["agent", "user"]

    def test_one_context_with_two_responses_is_two_instances(self, tmp_path):
        found = list(read_response_tsv(write(tmp_path / "x.tsv", "1\thi\ta\n0\thi\tc\n1\thi\tb\n")))
        assert [(one["dialogue_id"], one["response"], one["negatives"]) for one in found] == [
            ("0", "a", ["c"]), ("1", "b", ["c"]),
        ]  # fmt: skip

    def test_cells_byte_for_byte(self, tmp_path):
        """Quotes, blanks and NA are text: nothing is parsed."""
        path = write(tmp_path / "x.tsv", '1\t"a" said\t NA \t"quoted"\n')
        (one,) = read_response_tsv(path)
        assert [said["text"] for said in one["utterances"]] + [one["response"]] == ['"a" said', " NA ", '"quoted"']

    def test_cells_that_the_csv_module_quoted(self, tmp_path):
        """As MANtIS's files are written: csv.writer with tabs."""
        import csv

        texts = ['see <a href="x">', "plain", 'he said "no"', '"']
        with (tmp_path / "x.tsv").open("w", encoding="utf-8", newline="") as handle:
            csv.writer(handle, delimiter="\t", lineterminator="\n").writerow([1, *texts])
        assert '""x""' in (tmp_path / "x.tsv").read_text(encoding="utf-8")
        (one,) = read_response_tsv(tmp_path / "x.tsv", quoting="csv")
        assert [said["text"] for said in one["utterances"]] + [one["response"]] == texts
        with pytest.raises(ValueError, match="quoting"):
            list(read_response_tsv(tmp_path / "x.tsv", quoting="all"))

    def test_windows_ends_blank_lines_and_gzip(self, tmp_path):
        (tmp_path / "x.tsv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf1\thi\tyes\r\n\r\n1\tho\tno"))
        assert [one["response"] for one in read_response_tsv(tmp_path / "x.tsv.gz")] == ["yes", "no"]

    def test_frames_that_transformer_rankers_writes(self, tmp_path):
        text = 'context\tresponse\nhi [UTTERANCE_SEP] yes? [TURN_SEP] how? [UTTERANCE_SEP]\t"so ""it"" is"\n'
        (one,) = read_response_tsv(write(tmp_path / "x.tsv", text))
        assert [(said["speaker"], said["text"]) for said in one["utterances"]] == [
            ("user", "hi"), ("agent", "yes?"), ("user", "how?"),
        ]  # fmt: skip
        assert (one["dialogue_id"], one["line"], one["response"]) == ("0", 2, 'so "it" is')

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("1\thi\tyes\n2\thi\tno\n", "line 2: label '2'"),
            ("label\tcontext\tresponse\n", "line 1: label 'label' where 0 or 1"),
            ("1\thi\n", "line 1: 2 cells"),
            ("1\n", "line 1: 1 cells"),
        ],
    )
    def test_faults(self, tmp_path, text, message):
        with pytest.raises(ValueError, match=rf"x\.tsv, {message}"):
            list(read_response_tsv(write(tmp_path / "x.tsv", text)))


def example(number, correct=("c1",), messages=("participant_0 : help", "participant_1 : participant_0: how?"), **more):
    return {
        "data-split": "train",
        "example-id": number,
        "messages-so-far": [
            {"date": "2007-02-13", "speaker": f"participant_{n % 2}", "time": "07:31", "utterance": text}
            for n, text in enumerate(messages)
        ],
        "options-for-correct-answers": [
            {"candidate-id": key, "speaker": "participant_1", "utterance": f"participant_1 : {key} it is"}
            for key in correct
        ],
        "options-for-next": [
            {"candidate-id": f"c{n}", "speaker": "participant_1", "utterance": f"participant_0: c{n} it is"}
            for n in (1, 2, 3)
        ],
        "scenario": 1,
        **more,
    }


class TestNoesis:
    def test_example(self, tmp_path):
        (one,) = read_noesis(write(tmp_path / "x.json", [example(5)]))
        assert one["dialogue_id"] == "5"
        assert one["utterances"] == [
            {"speaker": "participant_0", "text": "help"}, {"speaker": "participant_1", "text": "how?"},
        ]  # fmt: skip
        assert one["responses"] == [{"docno": "c1", "text": "c1 it is", "speaker": "participant_1"}]
        assert [option["docno"] for option in one["candidates"]] == ["c1", "c2", "c3"]

    def test_several_correct_options_and_none(self, tmp_path):
        several, none = read_noesis(write(tmp_path / "x.json", [example(1, ("c2", "c3")), example(2, ())]))
        assert [option["docno"] for option in several["responses"]] == ["c2", "c3"]
        assert none["responses"] == []

    @pytest.mark.parametrize(
        ("text", "drop", "paper"),
        [
            ("participant_0 : in short, no.", "in short, no.", "in short, no."),
            ("participant_1 : participant_0: k3b won't", "k3b won't", ": k3b won't"),
            ("participant_1 , are you sure?", "are you sure?", " , are you sure?"),
            ("ask participant_12 about it", "ask participant_12 about it", "ask  about it"),
            ("try : sudo participant_0 : this", "try : sudo this", "try : sudo this"),
            ("participants: all", "participants: all", "participants: all"),
            ("participant_3 you could", "participant_3 you could", " you could"),
        ],
    )
    def test_names(self, text, drop, paper):
        assert without_names(text, "drop") == drop
        assert without_names(text, "paper") == paper
        assert without_names(text, "keep") == text

    def test_answers_of_the_blind_test(self, tmp_path):
        blind = [
            {key: value for key, value in example(n).items() if key != "options-for-correct-answers"} for n in (1, 2)
        ]
        path = write(tmp_path / "blind.json", blind)
        answers = write(tmp_path / "answers.txt", "1\tc3\tparticipant_0: c3 it is\n2\tNONE\tNone\n")
        first, second = read_noesis(path, answers=answers)
        assert [option["docno"] for option in first["responses"]] == ["c3"]
        assert second["responses"] == []
        with pytest.raises(ValueError, match=r"blind\.json, line 1, example 1: the correct answer 'c9'"):
            list(read_noesis(path, answers=write(tmp_path / "wrong.txt", "1\tc9\tx\n")))

    def test_faults(self, tmp_path):
        path = tmp_path / "bad.json"
        broken = example(2, messages=[])
        broken["messages-so-far"] = [{"speaker": "participant_0"}]
        path.write_text("[" + json.dumps(example(1)) + ",\n" + json.dumps(broken) + "]", encoding="utf-8")
        with pytest.raises(ValueError, match=r"bad\.json, line 2, example 2: no field 'utterance'"):
            list(read_noesis(path))
        with pytest.raises(ValueError, match=r"bad\.json, line 1: .*JSON object"):
            list(read_noesis(write(path, [3])))
        with pytest.raises(ValueError, match="names="):
            list(read_noesis(path, names="all"))


class TestConvoKit:
    LINES = [
        {"id": "145", "speaker": "a", "conversation_id": "145", "reply_to": None, "timestamp": None,
         "text": "It -- it does.", "meta": {"case": "02-1472"}},
        {"id": "x1", "speaker": "b", "conversation_id": "x1", "reply_to": None, "timestamp": 1, "text": "other"},
        {"id": "200", "speaker": "b", "conversation_id": "145", "reply_to": "145", "timestamp": 2, "text": "does it?"},
    ]  # fmt: skip

    def corpus(self, tmp_path, lines):
        (tmp_path / "utterances.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        return tmp_path

    def test_conversations_that_do_not_stand_together(self, tmp_path):
        first, second = read_convokit(self.corpus(tmp_path, self.LINES))
        assert (first["dialogue_id"], [said["text"] for said in first["utterances"]]) == (
            "145",
            ["It -- it does.", "does it?"],
        )
        assert (second["dialogue_id"], len(second["utterances"])) == ("x1", 1)

    def test_old_names(self, tmp_path):
        old = [
            {"id": "1", "user": "a", "root": "1", "reply-to": None, "text": "hi"},
            {"id": "2", "user": {"id": "b"}, "root": "1", "reply-to": "1", "text": None},
        ]
        found = list(read_convokit_utterances(self.corpus(tmp_path, old)))
        assert found[1] == {"id": "2", "speaker": "b", "conversation_id": "1", "reply_to": "1", "text": ""}
        (tmp_path / "utterances.jsonl").unlink()
        write(tmp_path / "utterances.json", old)
        assert list(read_convokit_utterances(tmp_path)) == found

    def test_faults(self, tmp_path):
        folder = self.corpus(tmp_path, [*self.LINES[:1], {"speaker": "a", "text": "x"}])
        with pytest.raises(ValueError, match=r"utterances\.jsonl, line 2: no field 'id'"):
            list(read_convokit(folder))
        with (folder / "utterances.jsonl").open("a", encoding="utf-8") as handle:
            handle.write('{"id": "3", "te')
        with pytest.raises(ValueError, match=r"utterances\.jsonl, line"):
            list(read_convokit(folder))
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match="no ConvoKit corpus"):
            list(read_convokit(tmp_path / "empty"))
