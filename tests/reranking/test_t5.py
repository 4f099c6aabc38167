"""monoT5 and duoT5: the softmax over two logits from transformers itself, sums worked out by hand."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import pt_convsearch as cs
from pt_convsearch._content_cache import Texts
from tests.tiny_seq2seq import tiny_t5

from .conftest import WORDS, write_bert

PROMPT = ["Query", "Document", "Document0", "Document1", "Relevant", ":", "true", "false", "yes", "no"]


@pytest.fixture(scope="module")
def t5(tmp_path_factory) -> str:
    return tiny_t5(tmp_path_factory.mktemp("t5"), [*WORDS, *PROMPT])


@pytest.fixture(scope="module")
def mono(t5) -> cs.MonoT5:
    return cs.MonoT5(t5, bf16=False)


def two_logits(t5: str, prompt: str, words: tuple[str, str] = ("true", "false")) -> list[float]:
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    tokenizer, model = AutoTokenizer.from_pretrained(t5), T5ForConditionalGeneration.from_pretrained(t5).eval()
    with torch.inference_mode():
        logits = model(**tokenizer(prompt, return_tensors="pt"), decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
    return [float(logits[tokenizer.convert_tokens_to_ids(word)]) for word in words]


def test_score_is_the_log_softmax_over_true_and_false(mono, t5, results) -> None:
    out = mono(results).set_index(["qid", "docno"])["score"]
    for row in results.itertuples():
        true, false = two_logits(t5, f"Query: {row.query} Document: {row.text} Relevant:")
        wanted = true - math.log(math.exp(true) + math.exp(false))
        assert out[row.qid, row.docno] == pytest.approx(wanted, abs=1e-4)


def test_as_pyterrier_t5(mono, t5, results) -> None:
    """Their stage one input at a time, where padding puts nothing between the text and the prompt."""
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    pyterrier_t5 = pytest.importorskip("pyterrier_t5", reason="pyterrier-t5 is not installed")
    MonoT5ReRanker = pyterrier_t5.MonoT5ReRanker

    theirs: Any = MonoT5ReRanker.__new__(MonoT5ReRanker)
    theirs.verbose, theirs.batch_size, theirs.device, theirs.text_field = False, 1, torch.device("cpu"), "text"
    theirs.tokenizer, theirs.model = AutoTokenizer.from_pretrained(t5), T5ForConditionalGeneration.from_pretrained(t5)
    theirs.model.eval()
    theirs.model.config.n_positions = 512
    theirs.REL, theirs.NREL = (theirs.tokenizer.encode(word)[0] for word in ("true", "false"))
    wanted = theirs.transform(results).set_index(["qid", "docno"])["score"]
    ours = mono(results).set_index(["qid", "docno"])["score"]
    assert ours.to_numpy() == pytest.approx(wanted[ours.index].to_numpy(), abs=1e-4)


def test_other_words(t5, results) -> None:
    one = results.head(1)
    yes, no = two_logits(t5, "Query: w1 w2 Document: w3 w4 w5 Relevant:", ("yes", "no"))
    score = cs.MonoT5(t5, words=("yes", "no"), bf16=False)(one)["score"][0]
    assert score == pytest.approx(yes - math.log(math.exp(yes) + math.exp(no)), abs=1e-4)
    with pytest.raises(ValueError, match="does not tell these two apart"):
        cs.MonoT5(t5, words=("maybe", "perhaps"))


def test_a_long_conversation_leaves_the_passage_and_the_prompt(mono, t5, results) -> None:
    short = cs.MonoT5(t5, max_length=15, bf16=False)  # 7 tokens of prompt and end, 8 of room: 4 and 4
    row = results.head(1).assign(query="w9 " * 50 + "w5 w6 w7 w8", text="w1 w2 w3 w4 " + "w0 " * 50)
    true, false = two_logits(t5, "Query: w5 w6 w7 w8 Document: w1 w2 w3 w4 Relevant:")
    assert short(row)["score"][0] == pytest.approx(true - math.log(math.exp(true) + math.exp(false)), abs=1e-4)
    assert short.cut == 1


def test_the_model_is_as_before_afterwards(mono, results) -> None:
    mono(results)
    assert "forward" not in vars(mono._load().model.get_output_embeddings())


def test_form_cache_identity_and_pickle(t5, results, tmp_path) -> None:
    one = cs.MonoT5(t5, form=cs.X, cache=tmp_path / "s.sqlite", bf16=False)
    first = one(results)
    assert first["score"].tolist() == pytest.approx(
        cs.MonoT5(t5, bf16=False)(results.assign(query="w30 w31 " + results["query"]))["score"].tolist(), abs=1e-4
    )
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    again._forward = None  # nothing is computed
    assert again(results)["score"].tolist() == first["score"].tolist()
    assert one != cs.MonoT5(t5, bf16=False)
    assert repr(one) == f"MonoT5({t5!r}, form=form(X))"


def test_no_encoder_decoder(tmp_path) -> None:
    with pytest.raises(ValueError, match="writes no text"):
        cs.MonoT5(write_bert(tmp_path / "bert"))


def test_empty_and_bare(mono, results) -> None:
    assert len(mono(results.head(0))) == 0
    out = mono(results.assign(text=["w1", "", "w2", "", "", ""]))
    assert out["docno"].tolist()[2:] == ["b", "a", "b", "d"]


class Judge(cs.DuoT5):
    """A duoT5 whose chances are given."""

    def _scores(self, rows: list[Texts]) -> np.ndarray:  # type: ignore[override]
        chances = {("x", "y"): 0.9, ("y", "x"): 0.2, ("x", "z"): 0.6, ("z", "x"): 0.5, ("y", "z"): 0.3, ("z", "y"): 0.8}
        return np.log([chances[first, second] for _, first, second in rows])


@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [
        ("sum", {"x": 1.5, "y": 0.5, "z": 1.3}),
        # x: .9 + (1-.2) + .6 + (1-.5); y: .2 + (1-.9) + .3 + (1-.8); z: .5 + (1-.6) + .8 + (1-.3)
        ("sym-sum", {"x": 2.8, "y": 0.8, "z": 2.4}),
        ("log-sum", {"x": math.log(0.54), "y": math.log(0.06), "z": math.log(0.4)}),
        (
            "sym-log-sum",
            {
                "x": math.log(0.9 * 0.8 * 0.6 * 0.5),
                "y": math.log(0.2 * 0.1 * 0.3 * 0.2),
                "z": math.log(0.5 * 0.4 * 0.8 * 0.7),
            },
        ),
        ("binary", {"x": 2.0, "y": 0.0, "z": 1.0}),
    ],
)
def test_aggregations_by_hand(t5, results, aggregation, wanted) -> None:
    rows = results.head(3).assign(text=["y", "z", "x"], docno=["y", "z", "x"])
    out = Judge(t5, aggregation=aggregation)(rows)
    assert out.set_index("docno")["score"].to_dict() == pytest.approx(wanted)
    assert out["docno"].tolist() == ["x", "z", "y"]


def test_duo_reads_both_orders_of_two_passages(t5, results) -> None:
    rows = results.head(2)
    chances = []
    for first, second in (("w3 w4 w5", "w1"), ("w1", "w3 w4 w5")):
        true, false = two_logits(t5, f"Query: w1 w2 Document0: {first} Document1: {second} Relevant:")
        chances.append(math.exp(true) / (math.exp(true) + math.exp(false)))
    out = cs.DuoT5(t5, bf16=False)(rows).set_index("docno")["score"]
    assert out["a"] == pytest.approx(chances[0] + 1 - chances[1], abs=1e-4)
    assert out["b"] == pytest.approx(chances[1] + 1 - chances[0], abs=1e-4)


def test_what_is_below_the_depth_stays_below(t5, results) -> None:
    duo = cs.DuoT5(t5, depth=2)
    out = duo(results)
    assert out.groupby("qid")["docno"].last().to_dict() == {"q1": "c", "q2": "d"}
    lowest = out.groupby("qid")["score"].apply(lambda scores: scores.iloc[1] - scores.iloc[2])
    assert lowest.tolist() == pytest.approx([1.0, 1.0])
    assert duo != cs.DuoT5(t5)
    assert cs.DuoT5(t5, depth=1)(results)["docno"].tolist() == results["docno"].tolist()
    assert len(duo(results.head(0))) == 0
    with pytest.raises(ValueError, match="aggregation='mean'"):
        cs.DuoT5(t5, aggregation="mean")


def test_bf16_stays_near(t5, results) -> None:
    exact = cs.MonoT5(t5, bf16=False)(results).set_index(["qid", "docno"])["score"]
    short = cs.MonoT5(t5, bf16=True)(results).set_index(["qid", "docno"])["score"]
    assert np.abs(exact - short[exact.index]).max() < 0.3
