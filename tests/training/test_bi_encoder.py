"""cs.train from end to end on a tiny model: it learns, selects, and leaves a folder all can open."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

import pt_convsearch as cs
from pt_convsearch.measures import evaluate

HERE = Path(__file__).parent
OPTIONS: dict[str, Any] = {
    "device": "cpu", "precision": "fp32", "batch_size": 8, "learning_rate": 1e-3, "similarity": "cosine",
}  # fmt: skip


class Watch(TrainerCallback):
    """Notes learning rates, and stops like a crash after a step."""

    def __init__(self, crash_after: int | None = None) -> None:
        self.rates: list[float] = []
        self.steps = 0
        self.crash_after = crash_after

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.crash_after:
            raise KeyboardInterrupt
        self.rates.append(kwargs["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def same_weights(left: Path, right: Path) -> bool:
    one, two = weights(left), weights(right)
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def curve(folder: Path, measure: str = "R@5") -> dict[int, float]:
    lines = (folder / "dev_curve.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["step"]: line[measure] for line in map(json.loads, lines) if measure in line}


def test_it_learns_selects_and_saves(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    model = cs.train(
        pairs, init=tiny_bert, out=out, dev=collection.all, metric="R@1", epochs=12, eval_every=16, **OPTIONS
    )
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "it/s" not in shown.err  # no bar, ours or the libraries'
    points = curve(out, "R@1")
    assert list(points) == [0, 16, 32, 48]
    assert points[0] < 0.5 < 0.75 < points[48]
    assert not (tmp_path / "model.training").exists()

    # the folder opens with both libraries, and they agree
    texts = collection.topics["query"].tolist()
    opened = cs.BiEncoder(str(out), bf16=False)
    assert opened.similarity == "cosine"
    by_library = SentenceTransformer(str(out), device="cpu").encode_query(texts, normalize_embeddings=True)
    assert np.abs(opened.encode_queries(texts) - by_library).max() < 1e-5
    assert opened == model or opened.max_query_length != model.max_query_length
    assert not [path for path in out.rglob("*") if path.suffix in (".bin", ".pt", ".pkl", ".pickle")]

    # the measure that was selected by is the measure of a search
    index = cs.DenseIndex(tmp_path / "index", cs.BiEncoder(str(out))).index(collection.corpus)
    run = (cs.form(cs.X) >> index.retriever(num_results=10))(collection.topics)
    best = max(list(points)[1:], key=lambda step: points[step])
    assert evaluate(run, collection.qrels, "R@1")["R@1"].mean() == pytest.approx(points[best])

    card = (out / "README.md").read_text(encoding="utf-8")
    assert "RandomNegatives" in card
    assert "seed: 1" in card
    assert f"dev R@1: {points[best]}" in card
    assert json.loads((out / "training.json").read_text(encoding="utf-8"))["scale"] == 20.0


def test_shuffled_labels_give_chance(collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    shuffled = collection.qrels.assign(docno=np.roll(collection.qrels["docno"].to_numpy(), 11))
    pairs = cs.training_pairs(
        collection.topics.iloc[:16], shuffled.iloc[:16], collection.corpus, form=cs.X,
        negatives=cs.RandomNegatives(collection.corpus),
    )  # fmt: skip
    held_out = (collection.topics.iloc[16:], shuffled.iloc[16:], collection.corpus)
    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", dev=held_out, epochs=20, eval_every=40, **OPTIONS)
    # nothing that was learnt about some questions tells the labels of others: 5 of 32 by chance, .16, give or take
    # three standard errors of .09 for 16 questions; with the right labels it is 1
    assert curve(tmp_path / "m")[40] < 0.16 + 3 * 0.092


def test_the_learning_rate_rises_for_a_tenth_of_the_steps_and_falls_to_nothing(
    pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path
) -> None:
    watch = Watch()
    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", epochs=5, callbacks=[watch], **OPTIONS)
    # 32 questions in batches of 8, five times: 20 steps, 2 of them warm-up
    expected = [0.0, 0.5e-3, *(1e-3 * (20 - step) / 18 for step in range(2, 20))]
    assert watch.rates == pytest.approx(expected)








def test_one_question_without_negatives_has_nothing_to_learn_from(tiny_bert: str, tmp_path: Path) -> None:
    topics = pd.DataFrame({"qid": ["1"], "query": ["w1"], "qhistory": [[]]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d"], "label": [1]})
    pairs = cs.training_pairs(topics, qrels, [{"docno": "d", "text": "w2"}], form=cs.X)
    with pytest.raises(ValueError, match="a training set of one question without hard negatives"):
        cs.train(pairs, init=tiny_bert, out=tmp_path / "m", **OPTIONS)


def test_it_runs_where_it_is_without_being_told(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    options = {name: value for name, value in OPTIONS.items() if name not in ("device", "precision")}
    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, **options)
    for precision in ("bf16", "fp32"):
        cs.train(pairs, init=tiny_bert, out=tmp_path / precision, max_steps=1, precision=precision, **options)
    assert weights(tmp_path / "bf16")["embeddings.word_embeddings.weight"].dtype == np.float32


def test_a_given_model_is_not_changed(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    model = SentenceTransformer(tiny_bert, device="cpu")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cs.train(pairs, init=model, out=tmp_path / "m", max_steps=2, **OPTIONS)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_seed_decides(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cs.train(pairs, init=tiny_bert, out=tmp_path / name, max_steps=2, seed=seed, **OPTIONS)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_two_towers(pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    model = cs.train(pairs, init=tiny_bert, out=tmp_path / "m", towers=2, dev=collection.all, epochs=2, **OPTIONS)
    assert not np.allclose(model.encode_queries(["w1"]), model.encode_docs(["w1"]), atol=1e-3)
    library = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    found = cs.BiEncoder(str(tmp_path / "m"), bf16=False)
    assert (
        np.abs(library.encode_query(["who w1"], normalize_embeddings=True) - found.encode_queries(["who w1"])).max()
        < 1e-5
    )
    assert np.abs(library.encode_document(["w1"], normalize_embeddings=True) - found.encode_docs(["w1"])).max() < 1e-5
    pair = cs.train(pairs, init=(tiny_bert, tiny_bert), out=tmp_path / "p", max_steps=1, **OPTIONS)
    assert pair.dimensions == 32


def test_early_stopping(pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    cs.train(
        pairs, init=tiny_bert, out=tmp_path / "m", dev=collection.all, max_steps=40, eval_every=1, patience=2,
        **{**OPTIONS, "learning_rate": 1e-9},
    )  # fmt: skip
    assert list(curve(tmp_path / "m")) == [0, 1, 2, 3]  # the first is the best, two more are not better








def test_dev_by_candidates_and_of_questions_without_a_query(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    topics, qrels, corpus = collection.topics.iloc[:2], collection.qrels.iloc[:2], collection.corpus
    candidates = pd.DataFrame({"qid": ["c0_1"] * 2 + ["c1_1"], "docno": ["d0", "d9", "d1"]})
    cs.train(
        pairs, init=tiny_bert, out=tmp_path / "m", dev=(topics, qrels, corpus, candidates), metric="AP", max_steps=1,
        **OPTIONS,
    )  # fmt: skip
    # one question has its gold alone, the other beside one more: AP is 1, or the mean of 1 and 1/2
    assert curve(tmp_path / "m", "AP")[1] in (1.0, 0.75)
    with pytest.raises(ValueError, match="the candidates hold no judged question"):
        wrong = candidates.assign(qid=["x"] * 3)
        cs.train(pairs, init=tiny_bert, out=tmp_path / "n", dev=(topics, qrels, corpus, wrong), max_steps=1, **OPTIONS)
    with pytest.raises(ValueError, match="'d99' is not in the dev corpus"):
        wrong = candidates.assign(docno=["d0", "d99", "d1"])
        cs.train(pairs, init=tiny_bert, out=tmp_path / "n", dev=(topics, qrels, corpus, wrong), max_steps=1, **OPTIONS)
    with pytest.raises(ValueError, match="none of the questions is judged"):
        other = qrels.assign(qid=["x", "y"])
        cs.train(pairs, init=tiny_bert, out=tmp_path / "n", dev=(topics, other, corpus), max_steps=1, **OPTIONS)
    # X without the question leaves a first turn nothing: it counts 0, and the other counts as it stands
    first = topics.assign(qhistory=[[], topics["qhistory"][1]])
    cs.train(
        pairs, init=tiny_bert, out=tmp_path / "e", dev=(first, qrels, corpus[:2]), form=cs.X - cs.CURRENT, metric="R@5",
        max_steps=1, **OPTIONS,
    )  # fmt: skip
    assert curve(tmp_path / "e")[1] == 0.5


def test_dev_ids_that_are_no_text(pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    """Each question beside its gold alone, ids as int: AP is 1."""
    topics = collection.topics.head(2).assign(qid=[1, 2])
    corpus = [{"docno": str(at), "text": document["text"]} for at, document in enumerate(collection.corpus[:4])]
    gold = pd.DataFrame({"qid": [1, 2], "docno": [3, 0], "label": 1})
    cs.train(
        pairs, init=tiny_bert, out=tmp_path / "m", dev=(topics, gold, corpus, gold[["qid", "docno"]]), metric="AP",
        max_steps=1, **OPTIONS,
    )  # fmt: skip
    assert curve(tmp_path / "m", "AP")[1] == 1.0


def test_a_model_that_tells_nothing_apart_is_not_the_best() -> None:
    """All vectors equal, the gold always listed first: what is left is chance, a mean AP of (1 + 1/2 + … + 1/5) / 5."""
    from pt_convsearch.negatives._texts import TextStore
    from pt_convsearch.training.selection import DevRetrieval

    class Collapsed:
        def encode_queries(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 3), dtype=np.float32)

        encode_docs = encode_queries

    qids = [str(number) for number in range(300)]
    candidates = pd.DataFrame(
        [(qid, f"d{(int(qid) + place) % 300}") for qid in qids for place in range(5)], columns=["qid", "docno"]
    )
    dev = DevRetrieval(
        pd.DataFrame({"qid": qids, "query": "x"}),
        candidates.groupby("qid", sort=False).head(1).assign(label=1),
        TextStore([{"docno": f"d{number}", "text": "x"} for number in range(300)]),
        encoder=lambda model: Collapsed(),
        metric="AP",
        candidates=candidates,
    )
    found = dev(torch.nn.Linear(1, 1))["AP"]
    assert 0.39 < found < 0.53  # .457, the standard deviation of one question's AP is .29: four of the mean's


def test_negatives_are_refreshed_with_the_model(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    mined: list[np.ndarray] = []

    def miner(encoder: cs.BiEncoder) -> pt.Transformer:
        mined.append(encoder.encode_docs(["w1 w2"])[0])
        folder = tmp_path / f"index-{len(mined)}-{os.urandom(3).hex()}"
        return cs.form(cs.X) >> cs.DenseIndex(folder, encoder).index(collection.corpus).retriever(num_results=20)

    options = {**OPTIONS, "init": tiny_bert, "max_steps": 6, "eval_every": 3, "refresh": miner, "refresh_every": 2}
    cs.train(pairs, out=tmp_path / "whole", **options)
    assert len(mined) == 2  # after steps 2 and 4, not after the last
    assert not np.allclose(mined[0], mined[1])
    with pytest.raises(KeyboardInterrupt):
        cs.train(pairs, out=tmp_path / "cut", callbacks=[Watch(crash_after=4)], **options)
    assert (tmp_path / "cut.training" / "negatives-1").is_dir()
    cs.train(pairs, out=tmp_path / "cut", **options)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    static = {**options, "refresh": None, "refresh_every": None}
    cs.train(pairs, out=tmp_path / "static", **static)
    assert not same_weights(tmp_path / "whole", tmp_path / "static")
    with pytest.raises(ValueError, match="opened from disk"):
        cs.train(pairs.path, out=tmp_path / "disk", **options)


def test_a_loss_of_ones_own_gets_columns_and_labels(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    cs.train(pairs, init=tiny_bert, out=tmp_path / "m", max_steps=1, loss=MultipleNegativesRankingLoss, **OPTIONS)
    assert (tmp_path / "m" / "model.safetensors").is_file()


def test_options_of_the_trainer_have_the_last_word(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    watch = Watch()
    cs.train(
        pairs, init=tiny_bert, out=tmp_path / "m", epochs=1, callbacks=[watch], **OPTIONS,
        trainer_options={"gradient_accumulation_steps": 2, "lr_scheduler_type": "constant"},
    )  # fmt: skip
    assert watch.rates == [1e-3] * 2  # four batches are two steps


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": 0}, "epochs"),
        ({"max_steps": 0}, "max_steps"),
        ({"warmup": 2}, "warmup"),
        ({"mask_history": -1}, "mask_history"),
        ({"patience": 1}, "patience"),
        ({"refresh_every": 1}, "refresh"),
        ({"towers": 3}, "towers"),
        ({"precision": "int8"}, "precision"),
        ({"precision": "fp16"}, "GPU"),
        ({"num_negatives": -1}, "num_negatives"),
        ({"batch_size": 1, "num_negatives": 0}, "nothing to tell"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], named: str, pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=named):
        cs.train(pairs, init=tiny_bert, out=tmp_path / "m", **{**OPTIONS, **options})
    assert not (tmp_path / "m").exists()


def test_what_a_set_from_disk_cannot_know(
    pairs: cs.TrainingPairs, collection: Any, tiny_bert: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="form=X"):
        cs.train(pairs.path, init=tiny_bert, out=tmp_path / "m", dev=collection.all, max_steps=1, **OPTIONS)
    cs.train(pairs.path, init=tiny_bert, out=tmp_path / "m", dev=collection.all, form=cs.X, max_steps=1, **OPTIONS)
    bare = cs.training_pairs(*collection.all, form=cs.X - cs.CURRENT)
    with pytest.raises(ValueError, match="without a miner"):
        cs.train(bare, init=tiny_bert, out=tmp_path / "n", num_negatives=1, **OPTIONS)
    with pytest.raises(ValueError, match="mask_history"):
        cs.train(bare, init=tiny_bert, out=tmp_path / "n", mask_history=0.1, **OPTIONS)


def test_the_encoder_travels(pairs: cs.TrainingPairs, tiny_bert: str, tmp_path: Path) -> None:
    model = cs.train(pairs, init=tiny_bert, out=f"{tmp_path}/m/", max_steps=1, **OPTIONS)
    assert [path.name for path in (tmp_path / "m").iterdir() if "training" in path.name] == ["training.json"]
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert np.allclose(again.encode_queries(["w1"]), model.encode_queries(["w1"]))


