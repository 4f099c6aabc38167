"""Cross-encoders against sentence-transformers' own scores, and what a stranger would feed them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.reranking.reranker import Reranker

from .conftest import write_bert


@pytest.fixture(scope="module")
def reranker(tiny_cross_encoder: str) -> cs.CrossEncoder:
    return cs.CrossEncoder(tiny_cross_encoder, bf16=False)


def predicted(model: str, pairs: list[tuple[str, str]]) -> list[float]:
    from sentence_transformers import CrossEncoder

    return [float(score) for score in CrossEncoder(model, device="cpu").predict(pairs)]


def test_scores_are_those_of_sentence_transformers(reranker, tiny_cross_encoder, results) -> None:
    out = reranker(results)
    found = {(row.qid, row.docno): row.score for row in out.itertuples()}
    wanted = predicted(tiny_cross_encoder, list(zip(results["query"], results["text"], strict=True)))
    for (qid, docno), score in zip(zip(results["qid"], results["docno"], strict=True), wanted, strict=True):
        assert found[qid, docno] == pytest.approx(score, abs=1e-5)
    for _, group in out.groupby("qid"):
        assert group["rank"].tolist() == [0, 1, 2]
        assert group["score"].is_monotonic_decreasing
    assert set(out.columns) == set(results.columns)
    assert out["qid"].tolist() == ["q1"] * 3 + ["q2"] * 3
    assert str(out["score"].dtype) == "float64"
    assert str(out["rank"].dtype) == "int64"


def test_one_row_at_a_time_and_any_order_of_rows_give_the_same(reranker, results) -> None:
    whole = reranker(results).set_index(["qid", "docno"])["score"]
    shuffled = reranker(results.sample(frac=1, random_state=3)).set_index(["qid", "docno"])["score"]
    assert shuffled[whole.index].to_numpy() == pytest.approx(whole.to_numpy(), abs=1e-5)
    for at in range(len(results)):
        row = reranker(results.iloc[[at]])
        assert row["score"][0] == pytest.approx(whole[row["qid"][0], row["docno"][0]], abs=1e-5)
        assert row["rank"].tolist() == [0]


def test_two_labels_are_the_log_probability_of_the_second(tmp_path, results) -> None:
    """monoBERT: softmax over two logits, taken from transformers itself."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = write_bert(tmp_path / "mono", labels=2)
    out = cs.CrossEncoder(folder, bf16=False)(results[results["qid"] == "q2"]).set_index("docno")["score"]
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = model.eval()(**tokenizer("w9", "w50 w51", return_tensors="pt")).logits[0].tolist()
    assert out["d"] == pytest.approx(logits[1] - np.log(np.exp(logits[0]) + np.exp(logits[1])), abs=1e-5)


def test_three_labels_and_plain_encoders_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="has 3 labels"):
        cs.CrossEncoder(write_bert(tmp_path / "three", labels=3))
    with pytest.raises(ValueError, match=r"no cross-encoder but a BertModel.*train_cross_encoder"):
        cs.CrossEncoder(write_bert(tmp_path / "plain", head=False))
    with pytest.raises(OSError, match="is no folder"):
        cs.CrossEncoder("./no/such/model")


def test_equal_scores_keep_the_former_order(reranker, results) -> None:
    same = results.head(3).assign(text="w4", rank=[2, 0, 1], score=[1.0, 3.0, 2.0])
    assert reranker(same)["docno"].tolist() == ["b", "c", "a"]
    assert reranker(same.drop(columns="rank"))["docno"].tolist() == ["b", "c", "a"]
    assert reranker(same.drop(columns=["rank", "score"]))["docno"].tolist() == ["a", "b", "c"]


def test_no_text_and_no_question_come_last_in_their_former_order(reranker, results) -> None:
    frame = results.assign(text=["", "w1", " \n", "w3", "w4", "w5"], query=["w1"] * 3 + [""] * 3)
    out = reranker(frame)
    assert out["docno"].tolist() == ["b", "a", "c", "a", "b", "d"]
    best = out["score"][0]
    assert out["score"].tolist() == pytest.approx([best, best - 1, best - 2, -1, -2, -3])


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_text_or_query_is_an_error_that_names_it(reranker, results, missing) -> None:
    with pytest.raises(ValueError, match=r"text of docno 'b' .*text_loader"):
        reranker(results.assign(text=["w1", missing, *["w1"] * 4]))
    with pytest.raises(ValueError, match="query of qid 'q1'"):
        reranker(results.assign(query=[missing, *["w1"] * 5]))


def test_missing_column(reranker, results) -> None:
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        reranker(results.drop(columns="text"))


def test_empty_frames_have_the_same_columns(reranker, results) -> None:
    out = reranker(results.head(0))
    assert set(out.columns) == set(results.columns)
    assert str(out["score"].dtype) == "float64"
    assert len(out) == 0


def test_other_scripts_emoji_and_endless_texts(reranker, results) -> None:
    texts = ["深度学习 の 質問", "😀", "w1 " * 5000, "مرحبا", "\u200b", "a" * 3000]
    out = reranker(results.assign(text=texts, query="w2 " * 500 + "w7"))
    assert np.isfinite(out["score"]).all()
    assert len(out) == 6


def test_the_end_of_a_long_question_counts_and_its_beginning_does_not(reranker, results) -> None:
    one = results.head(1)
    long = "w3 " * 200
    score = reranker(one.assign(query=f"{long}w1"))["score"][0]
    assert reranker(one.assign(query=f"w8 {long}w1"))["score"][0] == pytest.approx(score, abs=1e-6)
    assert reranker(one.assign(query=f"{long}w8"))["score"][0] != pytest.approx(score, abs=1e-6)


def test_a_form_of_the_conversation_is_read_and_the_query_stays(tiny_cross_encoder, results) -> None:
    formed = cs.CrossEncoder(tiny_cross_encoder, form=cs.X, bf16=False)
    out = formed(results)
    by_hand = cs.CrossEncoder(tiny_cross_encoder, bf16=False)(
        results.assign(query=["w30 w31 " + query for query in results["query"]])
    )
    assert out["score"].tolist() == pytest.approx(by_hand["score"].tolist(), abs=1e-6)
    assert out["query"].tolist() == ["w1 w2"] * 3 + ["w9"] * 3
    assert set(out.columns) == set(results.columns)


def test_speakers_and_turns_in_the_text(tiny_cross_encoder, results) -> None:
    spoken = cs.form(cs.Speakers(cs.X), sep=("[U]", "[T]"))
    text = spoken(results[["qid", "query", "qhistory"]].drop_duplicates("qid"))["query"]
    assert text.tolist()[0] == "user: w30 [T] assistant: w31 [T] user: w1 w2"
    stage = cs.CrossEncoder(tiny_cross_encoder, form=spoken)
    assert np.isfinite(stage(results)["score"]).all()
    assert pickle.loads(pickle.dumps(stage)) == stage
    with pytest.raises(ValueError, match="reads column 'qhistory'"):
        stage(results.drop(columns="qhistory"))


def test_titles_are_put_before_the_text(reranker, results) -> None:
    titled = reranker(results.assign(title=["w8", "", None, "w8", "w8", "w8"]))
    by_hand = reranker(results.assign(text=["w8 w3 w4 w5", "w1", "w2 w2 w7", "w8 w3 w4 w5", "w8 w1", "w8 w50 w51"]))
    assert titled["score"].tolist() == pytest.approx(by_hand["score"].tolist(), abs=1e-6)


def test_nan_scores_are_refused(tiny_cross_encoder, results) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(tiny_cross_encoder, device="cpu")
    with torch.no_grad():
        model[0].model.classifier.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="gives nan for 6 rows"):
        cs.CrossEncoder(model)(results)


class Counting:
    """Counts the texts that a stage really scores."""

    def __init__(self, stage: Reranker, fail_after: int | None = None) -> None:
        self.count, self.forward, self.fail_after = 0, stage._forward, fail_after
        stage._forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, features):
        if self.fail_after is not None and self.count >= self.fail_after:
            raise KeyboardInterrupt
        self.count += len(features["input_ids"])
        return self.forward(features)


def test_equal_pairs_are_scored_once_and_cached_scores_not_again(tiny_cross_encoder, results, tmp_path) -> None:
    cache = tmp_path / "deep" / "scores.sqlite"
    stage = cs.CrossEncoder(tiny_cross_encoder, cache=cache)
    counting = Counting(stage)
    twice = pd.concat([results, results.assign(qid=results["qid"] + "x")])
    first = stage(twice)
    assert counting.count == 6
    again = cs.CrossEncoder(tiny_cross_encoder, cache=cache)
    counting = Counting(again)
    pd.testing.assert_frame_equal(again(twice), first)
    assert counting.count == 0
    # another model, or another length, finds nothing there
    for other in (cs.CrossEncoder(tiny_cross_encoder, cache=cache, max_length=5),):
        counting = Counting(other)
        other(results)
        assert counting.count == 6


def test_a_stopped_run_goes_on(tiny_cross_encoder, results, tmp_path) -> None:
    many = pd.concat([results.assign(text=f"w{number} w5", docno=str(number)).head(1) for number in range(20)])
    stage = cs.CrossEncoder(tiny_cross_encoder, cache=tmp_path / "c.sqlite", batch_size=4)
    Counting(stage, fail_after=8)
    with pytest.raises(KeyboardInterrupt):
        stage(many)
    stage = cs.CrossEncoder(tiny_cross_encoder, cache=tmp_path / "c.sqlite", batch_size=4)
    counting = Counting(stage)
    out = stage(many)
    assert counting.count == 12
    assert out["score"].tolist() == pytest.approx(cs.CrossEncoder(tiny_cross_encoder)(many)["score"].tolist(), abs=1e-2)


def test_a_file_that_is_no_cache_is_named(tiny_cross_encoder, results, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes " * 100, encoding="utf-8")
    with pytest.raises(ValueError, match=r"notes\.txt is no cache of scores"):
        cs.CrossEncoder(tiny_cross_encoder, cache=tmp_path / "notes.txt")(results)
    with pytest.raises(IsADirectoryError, match=r"scores\.sqlite"):
        cs.CrossEncoder(tiny_cross_encoder, cache=tmp_path)(results)


def test_identity_pickle_and_repr(tiny_cross_encoder, tmp_path) -> None:
    import shutil

    copy = shutil.copytree(tiny_cross_encoder, tmp_path / "copy")
    one, other = cs.CrossEncoder(tiny_cross_encoder), cs.CrossEncoder(copy)
    assert one == other
    assert hash(one) == hash(other)
    assert one != cs.CrossEncoder(write_bert(tmp_path / "other", seed=1))
    assert one != cs.CrossEncoder(copy, max_length=10)
    assert one != cs.CrossEncoder(copy, form=cs.X)
    assert one == cs.CrossEncoder(copy, batch_size=3, verbose=True)
    loaded = pickle.loads(pickle.dumps(one))
    assert loaded == one
    assert loaded._loaded is None
    assert "max_length=10" in repr(cs.CrossEncoder(copy, max_length=10))


def test_the_pooler_counts(tiny_cross_encoder) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(tiny_cross_encoder, device="cpu")
    before = cs.CrossEncoder(tiny_cross_encoder)
    with torch.no_grad():
        model[0].model.bert.pooler.dense.bias.add_(1.0)
    assert cs.CrossEncoder(model) != before


def test_in_a_pipeline_and_an_experiment(reranker, tmp_path) -> None:
    corpus = [{"docno": f"d{n}", "text": f"w{n} w{n + 1} w3"} for n in range(20)]
    index = cs.BM25Index(tmp_path / "i.bm25").index(corpus)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["w3 w5", "w3 w9"], "qhistory": [[], []]})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d5", "d9"], "label": 1})
    pipeline = cs.form(cs.X) >> index.bm25(num_results=20) % 5 >> index.text_loader() >> reranker
    out = pipeline(topics)
    assert out.groupby("qid").size().tolist() == [5, 5]
    table = cs.Experiment({"BM25": index.bm25(), "re-ranked": pipeline}, topics, qrels, ["RR"])
    assert table.index.tolist() == ["BM25", "re-ranked"]
    empty = cs.form(cs.X - cs.CURRENT) >> index.bm25() >> index.text_loader() >> reranker
    assert len(empty(topics)) == 0


def test_as_the_judge_of_negatives(reranker, results) -> None:
    scores = reranker(results).set_index(["qid", "docno"])["score"]
    threshold = float(scores.median())
    kept = cs.CrossEncoderDenoise(reranker, threshold=threshold)(results)
    assert {(row.qid, row.docno) for row in kept.itertuples()} == {key for key, s in scores.items() if s <= threshold}
    assert kept["rank"].tolist() == results.set_index(["qid", "docno"]).loc[
        list(zip(kept["qid"], kept["docno"], strict=True)), "rank"
    ].tolist()  # fmt: skip


def test_bf16_makes_no_ties(tiny_cross_encoder, results) -> None:
    many = pd.concat(
        [results.head(1).assign(docno=str(n), text=f"w{n} w{(n * 7) % 100} w{(n * 3) % 100}") for n in range(100)]
    )
    exact = cs.CrossEncoder(tiny_cross_encoder, bf16=False)(many).set_index("docno")["score"]
    short = cs.CrossEncoder(tiny_cross_encoder, bf16=True)(many).set_index("docno")["score"]
    assert short.nunique() > 90
    assert np.abs(short[exact.index] - exact).max() < 0.05


def test_fusion_loads_no_torch() -> None:
    code = "import sys, pt_convsearch as cs; cs.rrf; print(*(m in sys.modules for m in ('torch', 'numba')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_speakers_of_rewrites() -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["When?"], "qhistory": [[]], "qrewrite": ["When was Dune written?"]})
    spoken = cs.form(cs.Speakers(cs.REWRITE))
    assert spoken(topics)["query"].tolist() == ["user: When was Dune written?"]
    for lacking in (topics.drop(columns="qrewrite"), topics.assign(qrewrite=None)):
        with pytest.raises(ValueError, match="column 'qrewrite', and qid '1' has none"):
            spoken(lacking)
