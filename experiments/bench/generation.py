"""Expanding responses: Resp2Ctxt beside plain ``model.generate`` in the order of the collection, in turns.

Both write three samples of each response, drawn from the ten likeliest tokens, with the same model and the same number
of responses at a time. Plain generate pads to the longest of what happens to stand together and waits for its longest
sample; ours sorts, drops samples that are done, and runs in bfloat16 where the processor has it (both are also shown in
the other precision). Times are the processor's, for a machine that others use too; the medians of ratios count. Beside
them: how many responses get the same text alone as in another batch.

    python experiments/bench/generation.py --data irc-dialogues --model resp2ctxt --documents 192

Without --model one is trained for a moment (--train-steps) so that its texts end where contexts end.
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

import pt_convsearch as cs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder irc-dialogues")
    parser.add_argument("--model", help="what cs.train_resp2ctxt wrote")
    parser.add_argument("--init", default="sentence-transformers/all-MiniLM-L6-v2", help="of a model trained here")
    parser.add_argument("--train-steps", type=int, default=40)
    parser.add_argument("--documents", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=32, help="responses at a time, both")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures to this CSV file")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    data = cs.dataset("irc/train", path=options.data)
    texts = [document["text"] for document in data.get_corpus_iter()]
    texts = random.Random(options.seed).sample(texts, min(options.documents, len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or trained(options, Path(folder) / "model", data.get_topics().iloc[:2000])
        systems = {
            "model.generate, float32": plain(model, options, "fp32"),
            "Resp2Ctxt": ours(model, options, "auto"),
            "Resp2Ctxt, float32": ours(model, options, "fp32"),
            "model.generate, bfloat16": plain(model, options, "bf16"),
        }
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for run in systems.values():
            run(texts[:2])  # loads and warms up
        for _ in range(options.repeats):
            for name, run in systems.items():  # in turns
                start = time.process_time()
                written = run(texts)
                seconds[name].append(time.process_time() - start)
                words = statistics.mean(len(text.split()) for some in written for text in some)
                print(f"{name}: {seconds[name][-1]:.1f} s of processor time, {words:.1f} words a sample", flush=True)
        expand = ours(model, options, "auto")
        alone = {text: expand([text])[0] for text in texts[:8]}
        together = dict(zip(texts[::-1], expand(texts[::-1]), strict=True))
    first = seconds["model.generate, float32"]
    rows = [
        {
            "system": name, "documents": len(texts), "seconds": round(statistics.median(values), 2),
            "speedup": round(statistics.median(one / other for one, other in zip(first, values, strict=True)), 2),
        }
        for name, values in seconds.items()
    ]  # fmt: skip
    for row in rows:
        print(" ".join(f"{name}={value}" for name, value in row.items()))
    same = sum(together[text] == some for text, some in alone.items())
    print(f"same text alone and in another batch: {same} of {len(alone)}")
    if options.out is not None:
        with options.out.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.DictWriter(handle, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def trained(options: argparse.Namespace, out: Path, topics: object) -> str:
    cs.train_resp2ctxt(
        topics, init=options.init, out=out, max_steps=options.train_steps, batch_size=16, learning_rate=3e-4,
        max_target_length=options.max_new_tokens,
    )  # fmt: skip
    return str(out)


Run = Callable[[list[str]], list[list[str]]]


def ours(model: str, options: argparse.Namespace, precision: str) -> Run:
    expander = cs.Resp2Ctxt(
        model, precision=precision, max_new_tokens=options.max_new_tokens, generation_batch_size=options.batch_size
    )
    return expander.expand


def plain(model: str, options: argparse.Namespace, precision: str) -> Run:
    """What one would write with transformers alone."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)

    def run(texts: list[str]) -> list[list[str]]:
        torch.manual_seed(options.seed)
        written: list[list[str]] = []
        for start in range(0, len(texts), options.batch_size):
            part = texts[start : start + options.batch_size]
            batch = tokenizer(part, padding=True, truncation=True, max_length=100, return_tensors="pt")
            with torch.inference_mode():
                found = loaded.generate(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True, top_k=10,
                    num_return_sequences=3, max_new_tokens=options.max_new_tokens,
                )  # fmt: skip
            said = tokenizer.batch_decode(found, skip_special_tokens=True)
            written += [said[at : at + 3] for at in range(0, len(said), 3)]
        return written

    return run


if __name__ == "__main__":
    main()
