"""How many rewrites a second: batches of like length beside batches as they come, float32 beside bfloat16, the cache.

    python experiments/bench/rewriting.py --questions 200 --out rewriting.csv

A T5 of the small size with random weights writes a fixed number of tokens greedily, for conversations of a few words to
some hundreds. The peer reads the same inputs with the same model and the generate call
of transformers, in the order they come. Runs are interleaved; the median of each and its ratio to the peer are shown.
``--model`` takes a real checkpoint. HQE is timed beside a BM25 search of the conversation.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import pt_convsearch as cs

WORDS = [f"w{number}" for number in range(2000)]


def made_topics(questions: int, seed: int) -> pd.DataFrame:
    """Conversations of one to ten turns of made-up words."""
    draw = random.Random(seed)

    def said(most: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(3, most)))

    histories = [
        [
            {"role": role, "content": said(most)}
            for _ in range(draw.randint(1, 10))
            for role, most in (("user", 12), ("assistant", 50))
        ]
        for _ in range(questions)
    ]
    qids = [f"c{number}" for number in range(questions)]
    return pd.DataFrame({"qid": qids, "query": [said(12) for _ in qids], "qhistory": histories})


def made_model(folder: Path) -> str:
    """A T5 of the small size with random weights, whose words are tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    vocabulary = {word: at for at, word in enumerate(["<pad>", "</s>", "<unk>", "|||", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    T5ForConditionalGeneration(
        T5Config(vocab_size=len(vocabulary), decoder_start_token_id=4, pad_token_id=0, eos_token_id=1)
    ).save_pretrained(folder)
    return str(folder)


def as_they_come(rewriter: cs.Rewriter, topics: pd.DataFrame, batch_size: int) -> None:
    """The peer: transformers' generate over batches in the order of the topics."""
    import torch

    generator = rewriter.generator()
    texts = rewriter.inputs(topics)["query"].tolist()
    for start in range(0, len(texts), batch_size):
        inputs = generator.tokenizer(texts[start : start + batch_size], padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            generator.model.generate(**inputs.to(generator.model.device), max_new_tokens=rewriter.max_new_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=64, help="how many (default 64)")
    parser.add_argument("--model", help="a checkpoint; default a T5 of the small size with random weights")
    parser.add_argument("--tokens", type=int, default=8, help="tokens written for each (default 8)")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default 1)")
    parser.add_argument("--out", type=Path, help="where to write the figures as CSV")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    topics = made_topics(options.questions, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or made_model(Path(folder) / "model")
        shared: dict[str, Any] = {
            "num_beams": 1, "max_new_tokens": options.tokens, "batch_size": options.batch_size
        }  # fmt: skip
        plain = cs.Rewriter(model, precision="fp32", **shared)
        half = cs.Rewriter(model, precision="bf16", **shared)
        cached = cs.Rewriter(model, precision="fp32", cache=Path(folder) / "cache.jsonl", **shared)
        docs = [
            {"docno": str(number), "text": " ".join(random.Random(number).choices(WORDS, k=40))}
            for number in range(20_000)
        ]
        index = cs.BM25Index(Path(folder) / "index").index(docs)
        formed = cs.form(cs.X)(topics)
        peer = "generate, as they come"
        runs: dict[str, Callable[[], Any]] = {
            peer: lambda: as_they_come(plain, topics, options.batch_size),
            "Rewriter": lambda: plain(topics),
            "Rewriter, bf16": lambda: half(topics),
            "Rewriter, all in the cache": lambda: cached(topics),
            "BM25 search of X_t": lambda: index.bm25(num_results=10)(formed),
            "HQE, no word known": lambda: cs.HQE(index)(topics),
        }
        for run in runs.values():
            run()
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.repeats):
            for name, run in runs.items():
                start = time.process_time()
                run()
                seconds[name].append((time.process_time() - start) / options.questions)
    median = {name: statistics.median(some) for name, some in seconds.items()}
    rows = [[name, round(value * 1e3, 3), round(median[peer] / value, 2)] for name, value in median.items()]
    for name, milliseconds, ratio in rows:
        print(f"{name:30} {milliseconds:10.2f} ms of processor a question {ratio:10.2f} x the peer's speed")
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["stage", "milliseconds_per_question", "speed_to_peer"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
