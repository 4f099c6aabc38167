"""CAsT's files as published, and the traps in them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import pt_convsearch as cs
from pt_convsearch.datasets.cast import read_topics
from pt_convsearch.datasets.cast_topics import read_resolved

pytestmark = pytest.mark.filterwarnings("ignore:.*histories hold their own question")


def dump(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def turn(number, text, **more):
    return {"number": number, "raw_utterance": text, **more}


@pytest.mark.parametrize(
    ("year", "turns", "conversations", "judged"),
    [("2019", 479, 50, 173), ("2019/train", 269, 30, 120), ("2020", 216, 25, 208), ("2021", 239, 26, 158)],
)
def test_counts_of_the_published_files(realdata, year, turns, conversations, judged):
    data = cs.dataset(f"cast/{year}", path=realdata / "cast")
    topics, qrels = data.get_topics(), data.get_qrels()
    assert (len(topics), topics["conversation_id"].nunique(), qrels["qid"].nunique()) == (turns, conversations, judged)
    assert set(qrels["qid"]) <= set(topics["qid"])
    assert {"turns": turns, "conversations": conversations, "judged turns": judged}.items() <= data.counts.items()
    assert (topics["qid"] == topics["conversation_id"] + "_" + topics["turn_number"].astype(str)).all()
    # without answers in the file the history is what the user said before
    assert (
        topics["qhistory"].map(lambda history: sum(m["role"] == "user" for m in history)) == topics["turn_number"] - 1
    ).all()


def test_2019_resolved_questions_are_joined_by_id(realdata):
    data = cs.dataset("cast/2019", path=realdata / "cast")
    topics = data.get_topics().set_index("qid")
    assert topics.loc["31_2", "query"] == "Is it treatable?"
    assert (
        topics.loc["31_2", "qrewrite"] == "Is throat cancer treatable?"
    )  # no \r at its end: the file has Windows line ends
    assert topics.loc["31_9", "query"] == "What's the difference in their symptoms?"
    assert topics["qrewrite"].notna().all()
    assert topics.loc[topics["conversation_id"] == "44", "qdescription"].isna().all()
    assert data.get_topics("manual").set_index("qid").loc["31_2", "query"] == "Is throat cancer treatable?"
    with pytest.raises(ValueError, match="no variant 'automatic'"):
        data.get_topics("automatic")


def test_2019_text_form_reads_as_the_json(realdata):
    folder = realdata / "cast" / "2019"
    text, js = read_topics(folder / "evaluation_topics_v1.0.txt"), read_topics(folder / "evaluation_topics_v1.0.json")
    assert text["qid"].tolist() == js["qid"].tolist()
    assert (text["query"].str.strip() == js["query"].str.strip()).all()


def test_2019_training_has_rewrites_for_two_topics(realdata):
    data = cs.dataset("cast/2019/train", path=realdata / "cast")
    assert data.get_topics()["qrewrite"].notna().sum() == 23
    with pytest.warns(UserWarning, match="246 of 269 questions have no manual rewrite"):
        topics = data.get_topics("manual")
    assert topics.set_index("qid").loc["3_5", "query"] == "What causes it?"


def test_2020_automatic_and_manual_differ_in_text_and_canonical_result(realdata):
    data = cs.dataset("cast/2020", path=realdata / "cast")
    raw, automatic, manual = (data.get_topics(variant).set_index("qid") for variant in ("raw", "automatic", "manual"))
    assert raw.loc["81_2", "query"] == "Now it stopped working. Why?"
    assert automatic.loc["81_2", "query"] == "Why did garage door opener stop working?"
    assert manual.loc["81_2", "query"] == "Now my garage door opener stopped working. Why?"
    assert (automatic.loc["81_1", "qcanonical"], manual.loc["81_1", "qcanonical"]) == ("MARCO_8752370", "MARCO_5498474")
    assert raw.loc["81_2", "qautomatic"] == automatic.loc["81_2", "query"]


def test_2020_the_annotated_file_has_a_turn_that_the_others_lack(realdata):
    """81_6 stands only there: joined by position, everything after it would be wrong."""
    folder = realdata / "cast" / "2020"
    annotated = read_topics(folder / "automatic_evaluation_topics_annotated_v1.1.json")
    assert len(annotated) == 217
    data = cs.dataset(
        "cast/2020",
        path=realdata / "cast",
        files={"topics": folder / "automatic_evaluation_topics_annotated_v1.1.json"},
        verify=False,
    )
    with pytest.warns(UserWarning, match=r"the file of qautomatic has no '\d+_\d+' \(1\), and nothing more \(0\)"):
        topics = data.get_topics()
    lacking = topics["qid"][topics["qautomatic"].isna()].tolist()
    assert len(topics) == 217
    assert len(lacking) == 1
    automatic = cs.dataset("cast/2020", path=realdata / "cast").get_topics().set_index("qid")["qautomatic"]
    joined = topics.set_index("qid")["qautomatic"].dropna()
    assert joined.equals(automatic[joined.index])


def test_2021_passages_answer_and_documents_are_judged(realdata):
    data = cs.dataset("cast/2021", path=realdata / "cast")
    topics = data.get_topics().set_index("qid")
    second = topics.loc["106_2"]
    assert [message["role"] for message in second["qhistory"]] == ["user", "assistant"]
    assert second["qhistory"][1]["docno"] == "MARCO_D59865-7"
    assert second["qhistory"][1]["content"].startswith("More research is needed. Types Breast cancer can be")
    assert second["qcanonical"] == "MARCO_D684514-1"
    assert second["answer"].startswith("Even though this condition doesn’t spread")
    assert not data.get_qrels()["docno"].str.contains(r"MARCO_D\d+-\d").any()
    with pytest.raises(ValueError, match="no variant 'passages': documents"):
        data.get_qrels("passages")


def test_2021_passage_2_has_two_texts_and_each_turn_keeps_its_own(realdata):
    topics = cs.dataset("cast/2021", path=realdata / "cast").get_topics()
    texts = set(topics["answer"][topics["qcanonical"] == "MARCO_D684519-2"])
    assert len(texts) == 2


def test_2021_published_runs(realdata):
    folder = realdata / "cast" / "2021" / "baselines-depth100"
    data = cs.dataset("cast/2021", path=folder)
    documents, passages = data.get_results("org_manual_bm25.run"), data.get_results("org_manual_bm25.trec")
    assert documents["rank"].min() == passages["rank"].min() == 0
    assert not documents["docno"].str.fullmatch(r".*-\d{1,3}").all()
    assert passages["docno"].str.fullmatch(r".*-\d+").all()


def test_2022_tree_and_flattened_files_give_the_same_questions_and_histories(realdata):
    folder = realdata / "cast" / "2022"
    tree = read_topics(folder / "2022_evaluation_topics_tree_v1.0.json").set_index("qid")
    flat = (
        read_topics(folder / "2022_evaluation_topics_flattened_duplicated_v1.0.json").set_index("qid").loc[tree.index]
    )
    ids = json.loads((folder / "2022_evaluation_topics_turn_ids.json").read_text(encoding="utf-8"))
    assert set(tree.index) == {f"{topic}_{number}" for topic, numbers in ids.items() for number in numbers}
    assert len(tree) == 205
    for name in ("query", "qhistory", "qrewrite", "conversation_id", "turn_number"):
        assert tree[name].tolist() == flat[name].tolist()


def test_2022_histories_follow_the_path(realdata):
    topics = cs.dataset("cast/2022", path=realdata / "cast").get_topics().set_index("qid")
    turn = topics.loc["132_2-1"]
    assert (turn["conversation_id"], turn["turn_number"]) == ("132_2", 3)
    # 2-1 hangs on 1-4: the user's turns before it are 1-1 and 1-3, not 1-5
    said = [message["content"] for message in turn["qhistory"] if message["role"] == "user"]
    assert said == [topics.loc["132_1-1", "query"], topics.loc["132_1-3", "query"]]
    assert "docno" not in turn["qhistory"][1]  # written from three passages
    assert turn["qhistory"][3]["docno"] == "MARCO_02_1687136851-3"
    assert topics.loc["132_1-1", "qprovenance"] == [
        "MARCO_26_222804180-1",
        "MARCO_26_222804180-2",
        "MARCO_33_1621342262-1",
    ]
    ids = [docno for value in topics["qprovenance"] if isinstance(value, list) for docno in value]
    assert not [
        docno for docno in ids if " " in docno or docno.startswith("-")
    ]  # one id is cut in two, one has a blank
    assert "MARCO_16_1884092099-2" in ids
    automatic = cs.dataset("cast/2022", path=realdata / "cast").get_topics("automatic").set_index("qid")
    assert automatic.loc["132_1-3", "query"] == "What are the effects of COP26?"


def test_a_tree_with_two_answers_to_one_question(tmp_path):
    """The sample of 2022: lower-case participants, parent_turn, provenance as objects, one object instead of a list."""
    path = dump(
        tmp_path / "tree.json",
        json.dumps(
            {
                "number": 1,
                "title": "California",
                "turn": [
                    turn(
                        "1-1",
                        "Cool things?",
                        parent_turn="",
                        participant="user",
                        resolved_utterance="Cool things in California?",
                    ),
                    {
                        "number": "1-2",
                        "parent_turn": "1-1",
                        "participant": "System",
                        "response": "Lots.",
                        "provenance": [{"id": "W_1-1"}],
                    },
                    {
                        "number": "1-3",
                        "parent_turn": "1-1",
                        "participant": "system",
                        "response": "Your interests?",
                        "provenance": [],
                    },
                    turn("1-4", "Biking.", parent_turn="1-3", participant="user"),
                    turn("1-5", "Wine.", parent_turn="1-2", participant="user"),
                ],
            },
            indent=1,
        ),
    )
    topics = read_topics(path).set_index("qid")
    assert topics.index.tolist() == ["1_1-1", "1_1-5", "1_1-4"]
    assert topics.loc["1_1-5", "qhistory"] == [
        {"role": "user", "content": "Cool things?"},
        {"role": "assistant", "content": "Lots.", "docno": "W_1-1"},
    ]
    assert topics.loc["1_1-4", "qhistory"][1] == {"role": "assistant", "content": "Your interests?"}
    assert topics.loc["1_1-1", "qrewrite"] == "Cool things in California?"


def test_paths_written_out(tmp_path):
    ways = [[("1-1", "A?"), ("1-5", "B?")], [("1-1", "A?"), ("1-4", "C?")]]
    path = dump(
        tmp_path / "linear.json",
        {
            "number": "1",
            "paths": [{"turns": [{"number": n, "utterance": u, "response": "yes"} for n, u in way]} for way in ways],
        },
    )
    topics = read_topics(path)
    assert topics["qid"].tolist() == ["1_1-1", "1_1-5", "1_1-4"]
    assert [len(history) for history in topics["qhistory"]] == [0, 2, 2]


def test_flattened_paths_that_disagree(tmp_path):
    def path_of(*turns):
        return {"number": 7, "turn": [{"number": n, "utterance": u, "response": r} for n, u, r in turns]}

    one, two = path_of(("1-1", "A?", "a"), ("1-3", "B?", "b")), path_of(("1-1", "A?", "other"), ("1-3", "B?", "b"))
    with pytest.warns(UserWarning, match=r"1 turns \('7_1-3'\) stand on paths with different histories"):
        topics = read_topics(dump(tmp_path / "x.json", [one, two]))
    assert topics["qhistory"][1][1]["content"] == "a"
    three = path_of(("1-1", "A!", "a"))
    with pytest.raises(ValueError, match=r"y\.json, line \d+: turn '7_1-1' was said otherwise in line \d+"):
        read_topics(dump(tmp_path / "y.json", [one, three]))


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ({"number": 1, "turn": [turn(1, "a"), turn(1, "b")]}, "'1_1' stands in line 1 already"),
        ({"number": 1, "turn": [{"number": 1}]}, "turn 1: no field 'raw_utterance'"),
        ({"number": 1, "turn": []}, "no list of turns"),
        ({"number": 1}, "no field 'turn'"),
        ({"number": None, "turn": [turn(1, "a")]}, "no field 'number'"),
        ({"number": 1, "turn": [turn(1, 7)]}, "'raw_utterance' holds 7"),
        ({"number": 1, "turn": [turn("2", "a", parent="1")]}, "its parent '1' is not in the topic"),
        ({"number": 1, "turn": [turn("1", "a", parent="2"), turn("2", "b", parent="1")]}, "go round in a circle"),
        ({"number": 1, "turn": [turn("1", "a", participant="Bot")]}, "neither User nor System"),
        ({"number": 1, "turn": [{"number": "1", "participant": "System", "response": "x"}]}, "before any user"),
        (
            {"number": 1, "turn": [turn("1", "a", participant="User"), turn("1", "a", participant="User")]},
            "stands twice",
        ),
    ],
)
def test_what_is_no_topic_is_named(tmp_path, topic, message):
    with pytest.raises(ValueError, match=rf"t\.json, line 1.*{message}"):
        read_topics(dump(tmp_path / "t.json", [topic]))


def test_resolved_files(tmp_path):
    assert read_resolved(dump(tmp_path / "r.tsv", '\ufeff31_1\tIs "it" so?\r\n31_2\tNA\r\n')) == {
        "31_1": 'Is "it" so?',
        "31_2": "NA",
    }
    with pytest.raises(ValueError, match=r"r\.tsv, line 2: '31_1' has another text"):
        read_resolved(dump(tmp_path / "r.tsv", "31_1\ta\n31_1\tb\n"))


def test_rewrites_on_one_side_only_are_named(tmp_path):
    (tmp_path / "2019").mkdir()
    dump(tmp_path / "evaluation_topics_v1.0.json", [{"number": 31, "turn": [turn(1, "a"), turn(2, "b")]}])
    dump(tmp_path / "evaluation_topics_annotated_resolved_v1.0.tsv", "31_2\tB\n31_3\tC\n")
    data = cs.dataset("cast/2019", path=tmp_path, verify=False)
    with pytest.warns(UserWarning, match=r"no '31_1' \(1\), and '31_3' more \(1\)"):
        topics = data.get_topics()
    assert topics["qrewrite"].isna().tolist() == [True, False]
    assert topics["qrewrite"][1] == "B"


def test_cast21_mini(realdata):
    data = cs.dataset("cast21-mini", path=realdata / "cast" / "cast21-mini")
    topics, corpus = data.get_topics().set_index("qid"), {one["docno"]: one["text"] for one in data.get_corpus_iter()}
    assert (len(topics), len(corpus), data.get_qrels()["qid"].nunique()) == (239, 183, 187)
    assert set(data.get_qrels()["docno"]) | set(data.get_qrels("grades")["docno"]) == set(corpus)
    history = topics.loc["106_4", "qhistory"]
    assert [message.get("docno") for message in history] == [
        None,
        "MARCO_D59865-7",
        None,
        "MARCO_D684514-1",
        None,
        "KILT_1845197-7",
    ]
    assert history[1]["content"] == corpus["MARCO_D59865-7"]
    grades = topics["qcanonical_grade"].value_counts().to_dict()
    assert {grade: grades[grade] for grade in "43210"} == {"4": 26, "3": 27, "2": 41, "1": 15, "0": 33}
    assert isinstance(topics["qcanonical"].dropna(), pd.Series)


def test_2022_judgments_under_the_name_of_the_repository(tmp_path):
    """Passages are judged, and turns are named by topic, branch and number."""
    (tmp_path / "2022").mkdir()
    dump(
        tmp_path / "2022" / "cast2022.qrel",
        "132_1-1 0 KILT_1168284-2 0\n132_1-1 0 MARCO_07_1289912856-1 1\n132_1-3 0 KILT_2119174-1 3\n",
    )
    data = cs.dataset("cast/2022", path=tmp_path, verify=False)
    assert data.get_qrels("passages").values.tolist()[1] == ["132_1-1", "MARCO_07_1289912856-1", 1]
    with pytest.raises(ValueError, match=r"cast2022\.qrel .* is not the file that was published \(1435510 bytes"):
        cs.dataset("cast/2022", path=tmp_path).get_qrels()
