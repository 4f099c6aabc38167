"""Batches: which question when, which negatives, which tokens."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.utils.data import DataLoader

import pt_convsearch as cs
from pt_convsearch.training.data import Collator, EpochBatches, Examples
from pt_convsearch.training.towers import sides


def all_batches(batches: EpochBatches, epoch: int) -> list[list[Any]]:
    batches.begin_epoch(epoch)
    return list(batches)


def test_an_epoch_holds_every_question_once_in_an_order_of_its_own() -> None:
    batches = EpochBatches(10, 4, seed=1)
    assert len(batches) == 3
    first, second = all_batches(batches, 0), all_batches(batches, 1)
    assert [len(batch) for batch in first] == [4, 4, 2]
    rows = [row for batch in first for _, _, row in batch]
    assert sorted(rows) == list(range(10))
    assert rows != [row for batch in second for _, _, row in batch]
    assert first == all_batches(EpochBatches(10, 4, seed=1), 0)
    assert first != all_batches(EpochBatches(10, 4, seed=2), 0)
    assert {epoch for batch in second for _, epoch, _ in batch} == {1}


def test_two_processes_take_the_same_number_of_full_batches() -> None:
    one, two = EpochBatches(21, 8, seed=1), EpochBatches(21, 4, seed=1, processes=2)
    assert len(two) == 4  # two rounds of 2 x 4; the rest of 5 does not fill a third
    joined = all_batches(two, 0)
    assert [joined[0] + joined[1], joined[2] + joined[3]] == all_batches(one, 0)[:2]
    assert len(EpochBatches(7, 4, seed=1, processes=2)) == 0


def test_negatives_mined_after_a_step_serve_from_the_second_step_after_it() -> None:
    batches = EpochBatches(12, 2, seed=1, refresh_every=2)  # six steps an epoch
    generations = [batch[0][0] for epoch in (0, 1) for batch in all_batches(batches, epoch)]
    # mined after step 2: the batch of step 3 may lie ready by then, that of step 4 does not
    assert generations == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert {batch[0][0] for batch in all_batches(EpochBatches(12, 2, seed=1), 3)} == {0}


def test_examples_do_not_depend_on_workers(pairs: cs.TrainingPairs) -> None:
    examples = Examples(pairs, num_negatives=2, seed=1)
    batches = EpochBatches(len(examples), 8, seed=1)
    batches.begin_epoch(3)

    def run(workers: int) -> list[Any]:
        loader: Any = DataLoader(examples, batch_sampler=batches, collate_fn=list, num_workers=workers)
        return [(e.query, e.positive, tuple(e.negatives), e.keys.tolist()) for batch in loader for e in batch]

    alone = run(0)
    assert alone == run(2)
    again = pickle.loads(pickle.dumps(examples))
    assert again[(0, 3, 5)].negatives == examples[(0, 3, 5)].negatives
    assert examples[(0, 4, 5)].negatives != examples[(0, 3, 5)].negatives
    assert examples[(0, 3, 5)].positive not in examples[(0, 3, 5)].negatives


def test_keys_of_a_batch(collection: Any, tiny_bert: str, tmp_path: Path) -> None:
    corpus = [*collection.corpus, {"docno": "copy", "text": collection.corpus[0]["text"].upper()}]
    pairs = cs.training_pairs(
        collection.topics.iloc[:2], collection.qrels.iloc[:2], corpus, form=cs.X,
        negatives=cs.RandomNegatives(["copy", "d5"]), num_negatives=3,
    )  # fmt: skip
    model = SentenceTransformer(tiny_bert, device="cpu")
    query, passage = sides(model, 128, 384)
    collate = Collator(model, query, passage, num_negatives=3)
    examples = Examples(pairs, num_negatives=3, seed=1)
    batch = collate([examples[(0, 0, 0)], examples[(0, 0, 1)]])
    candidates, golds = batch["label"]["candidates"], batch["label"]["golds"]
    # question 0: its gold's copy is no negative of it, one is left; question 1 has both; of the third there is none
    assert candidates.shape == (4, 2)
    assert (candidates == 0).tolist() == [[False, False], [False, False], [True, False], [True, True]]
    assert golds.tolist() == [[candidates[0, 0].item()], [candidates[0, 1].item()]]
    # the copy, a negative of question 1, has the key of question 0's gold, and so is masked there
    assert candidates[0, 0] in candidates[1:, 1]
    assert {"query_input_ids", "positive_input_ids", "negative_3_attention_mask"} <= set(batch)
    assert (batch["query_task"], batch["positive_task"]) == ("query", "document")


def test_long_texts_are_cut_where_the_encoder_cuts_them(tiny_bert: str) -> None:
    said = " ".join(f"w{number}" for number in range(150))
    topics = pd.DataFrame(
        {"qid": ["1", "2"], "query": ["who w7", "who w8"], "qhistory": [[{"role": "user", "content": said}]] * 2}
    )
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "b"], "label": 1})
    corpus = [{"docno": "a", "text": said}, {"docno": "b", "text": "w9"}]
    pairs = cs.training_pairs(topics, qrels, corpus, form=cs.X)
    model = SentenceTransformer(tiny_bert, device="cpu")
    collate = Collator(model, *sides(model, 8, 10), num_negatives=0)
    batch = collate(Examples(pairs, num_negatives=0, seed=1).__getitems__([(0, 0, 0), (0, 0, 1)]))
    tokenizer = model.tokenizer
    queries = tokenizer.batch_decode(batch["query_input_ids"])
    # eight places: [CLS], the last six words, [SEP]; the question stays, so the two differ
    assert queries == [f"[CLS] w146 w147 w148 w149 who w{number} [SEP]" for number in (7, 8)]
    passages = tokenizer.batch_decode(batch["positive_input_ids"])
    assert passages[0] == "[CLS] w0 w1 w2 w3 w4 w5 w6 w7 [SEP]"
    assert batch["positive_attention_mask"].sum(1).tolist() == [10, 3]
    encoder = cs.BiEncoder(model, similarity="dot", max_query_length=8, max_passage_length=10, bf16=False)
    with torch.no_grad():
        features = {name.removeprefix("query_"): value for name, value in batch.items() if name.startswith("query_")}
        trained = model.eval()(features)["sentence_embedding"].numpy()
    found = encoder.encode_queries(pairs.frame()["query"].tolist())
    assert abs(trained - found).max() < 1e-5


def test_lengths_are_bounded_by_the_model(tiny_bert: str) -> None:
    model = SentenceTransformer(tiny_bert, device="cpu")
    query, passage = sides(model, 32, 384)
    assert (query.max_length, passage.max_length) == (32, 64)


@pytest.mark.parametrize("mask_history", [0.0, 0.5, 1.0])
def test_history_is_dropped_at_random_and_reproducibly(pairs: cs.TrainingPairs, mask_history: float) -> None:
    examples = Examples(pairs, num_negatives=0, seed=1, mask_history=mask_history)
    queries = [examples[(0, epoch, row)].query for epoch in range(4) for row in range(32)]
    dropped = sum(query.startswith("who") for query in queries) / len(queries)
    assert abs(dropped - mask_history) < (0.15 if mask_history == 0.5 else 1e-9)
    assert queries == [examples[(0, epoch, row)].query for epoch in range(4) for row in range(32)]
