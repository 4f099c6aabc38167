"""The rows of response_retrieval.py: each is a system that ranks the collection of responses, and the candidates."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from _common import say
from _response_bench import DENSE, MINED, SEPARATORS, SPARSE, TUNED, Bench, NotThere, Ranking, Row
from ir_measures import RR

import pt_convsearch as cs
from pt_convsearch.datasets import iter_jsonl
from pt_convsearch.measures import evaluate


def bm25(bench: Bench) -> Ranking:
    return bench.searched(lambda depth: bench.form() >> bench.index.bm25(num_results=depth))


def rm3(bench: Bench) -> Ranking:
    """Parameters are tuned on held-out contexts: the paper's grid."""

    def system(depth: int, **setting: Any) -> pt.Transformer:
        index = bench.index
        return (
            bench.form() >> index.bm25(num_results=setting["fb_docs"]) >> index.rm3(**setting)
            >> index.bm25(num_results=depth)
        )  # fmt: skip

    scores = {}
    for docs, terms, weight in product((5, 10, 15), (5, 10, 15), (0.5, 0.7)):
        setting = {"fb_docs": docs, "fb_terms": terms, "original_query_weight": weight}
        run = system(100, **setting)(bench.held_out)
        values = evaluate(run, bench.train_qrels, RR, qids=bench.held_out["qid"])
        scores[json.dumps(setting)] = float(values.iloc[:, 0].mean())
    best = max(scores, key=scores.__getitem__)
    bench.notes |= {"tuned": json.loads(best), "held-out RR": scores[best]}
    return bench.searched(lambda depth: system(depth, **json.loads(best)))


def expanded(bench: Bench, target: str) -> Ranking:
    """resp2ctxt and resp2ctxt_lu."""
    given = bench.options
    name = {"context": "resp2ctxt", "last_utterance": "resp2ctxt_lu"}[target]
    length = given.target_length if target == "context" else given.target_length_lu
    expander = cs.train_resp2ctxt(
        bench.dialogues, target, init=given.seq2seq_init or seq2seq_start(bench), out=bench.folder("models", name),
        epochs=2, max_steps=given.seq2seq_steps, batch_size=given.seq2seq_batch_size, warmup=0.05, seed=bench.seed,
        learning_rate=given.seq2seq_learning_rate, max_source_length=100, max_target_length=length,
    )  # fmt: skip
    say(f"{name}: trained")
    expander = cs.Resp2Ctxt(
        expander.model, num_samples=3, top_k=10, seed=bench.seed, cache=bench.out / "expansions.sqlite"
    )
    documents = list(expander.transform_iter(bench.corpus))
    say(f"{name}: expanded")
    terms = cs.expansion_terms(documents)
    bench.notes["terms"] = cs.expansion_summary(terms).round(4).to_dict()
    bench.notes["examples"] = [{key: document[key] for key in ("text_0", "expansion")} for document in documents[:20]]
    index = bench.bm25_index(name, documents)
    return bench.searched(lambda depth: bench.form() >> index.bm25(num_results=depth))


def seq2seq_start(bench: Bench) -> str:
    """The first layers of the encoder, from which both halves of the encoder-decoder are warm-started."""
    given = bench.options
    folder = bench.out / "models" / f"seq2seq-start-{given.seq2seq_layers}"
    if not folder.is_dir():
        from transformers import AutoModel, AutoTokenizer

        source = str(cs.dense.minilm_path()) if given.encoder.endswith("all-MiniLM-L6-v2") else given.encoder
        model = AutoModel.from_pretrained(source)
        model.encoder.layer = model.encoder.layer[: given.seq2seq_layers]
        model.config.num_hidden_layers = given.seq2seq_layers
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


def zero_shot(bench: Bench) -> Ranking:
    """Utterances with a blank between: a separator that the encoder never saw would mean nothing to it."""
    return bench.dense("zero-shot", bench.encoder, " ")


def zero_shot_whole(bench: Bench) -> Ranking:
    """The same with all its layers, where the trained rows have fewer."""
    if not bench.options.layers:
        raise NotThere("the encoders of the other rows have all their layers")
    return bench.dense("zero-shot-whole", bench.bi_encoder(bench.options.encoder), " ")


def random_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("random", cs.RandomNegatives(bench.train_corpus, seed=bench.seed), pool=100)


def _bm25_miner(bench: Bench) -> pt.Transformer:
    return bench.train_index.bm25(num_results=100)


def bm25_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("bm25-negatives", bench.form() >> _bm25_miner(bench))


def dense_negatives(bench: Bench) -> Ranking:
    return bench.fine_tuned("dense-negatives", cs.form(cs.X) >> bench.dense_miner)


def _far(bench: Bench, name: str, miner: pt.Transformer) -> Ranking:
    return bench.fine_tuned(name, miner >> cs.DropPositives(bench.train_qrels) >> cs.Ranks(91, 100))


def e2_bm25(bench: Bench) -> Ranking:
    return _far(bench, "e2-bm25", bench.form() >> _bm25_miner(bench))


def e2_dense(bench: Bench) -> Ranking:
    return _far(bench, "e2-dense", cs.form(cs.X) >> bench.dense_miner)


def e3(bench: Bench) -> Ranking:
    return bench.fine_tuned("e3-bm25", bench.form() >> _bm25_miner(bench) >> cs.DropContextSubsets())


def e4(bench: Bench) -> Ranking:
    return bench.fine_tuned("e4-bm25", cs.form(cs.CURRENT) >> _bm25_miner(bench))


def e5(bench: Bench) -> Ranking:
    """A larger collection of responses: ``--external`` (JSON Lines of docno and text); else whatever was said in
    training dialogues and is no response of the task. What stands in the context itself is no negative then."""
    if bench.options.external:
        others = [(document["docno"], document["text"]) for _, document in iter_jsonl(Path(bench.options.external))]
    else:
        others = [(str(number), text) for number, text in enumerate(other_utterances(bench))]
    corpus = [*bench.train_corpus, *({"docno": f"external:{docno}", "text": text} for docno, text in others)]
    index = bench.bm25_index("external", corpus)
    bench.notes["external responses"] = len(others)
    miner = bench.form() >> index.bm25(num_results=100) >> cs.DropContextSubsets()
    return bench.fine_tuned("e5-bm25", miner, corpus)


def other_utterances(bench: Bench) -> list[str]:
    """What was said in training contexts and is the text of no response, each text once."""
    responses = {document["text"] for document in bench.train_corpus}
    said = dict.fromkeys(
        text
        for query, history in zip(bench.dialogues["query"], bench.dialogues["qhistory"], strict=True)
        for text in (*(message["content"] for message in history), query)
    )
    return [text for text in said if text.strip() and text not in responses]


def e6(bench: Bench) -> Ranking:
    """Replies by ``--generator``; by default a model that was trained on the same dialogues the other way round."""
    given = bench.options
    model = given.generator or _replier(bench)
    miner = cs.negatives.GeneratedNegatives(
        model, num_results=given.negatives, seed=bench.seed, max_new_tokens=given.max_passage_length,
        max_input_length=given.max_query_length,
    )  # fmt: skip
    replies = miner.documents(cs.form(cs.X)(bench.train))
    bench.notes |= {"replies": len(replies), "examples": [document["text"] for document in replies[:20]]}
    return bench.fine_tuned("e6-generated", cs.form(cs.X) >> miner, [*bench.train_corpus, *replies])


def _replier(bench: Bench) -> str:
    from transformers import AutoTokenizer

    given, train = bench.options, bench.dialogues
    init = given.seq2seq_init or seq2seq_start(bench)
    tokenizer = AutoTokenizer.from_pretrained(init)
    context = cs.form(cs.X, max_tokens=given.max_query_length, tokenizer=tokenizer)(train)["query"]
    turned = pd.DataFrame({"query": train["answer"], "qhistory": [[]] * len(train), "answer": context})
    folder = bench.folder("models", "e6-generated").with_name(f"replies-seed{bench.seed}")
    cs.train_resp2ctxt(
        turned, "last_utterance", init=init, out=folder,
        max_steps=given.seq2seq_steps, epochs=2, batch_size=given.seq2seq_batch_size,
        max_source_length=given.max_query_length, max_target_length=given.max_passage_length,
        learning_rate=given.seq2seq_learning_rate, warmup=0.05, seed=bench.seed,
    )  # fmt: skip
    return str(folder)


# -- what is done with rankings


def unseen(bench: Bench, name: str) -> Ranking:
    """A row without what the context itself holds: earlier responses of a dialogue are in the collection, too."""
    kept = bench.kept(name)
    asked = kept["run"].merge(bench.topics[["qid", "query", "qhistory"]], on="qid", how="left")
    return cs.DropSeen()(asked), kept["candidates"]


def _fused(bench: Bench, fuse: Callable[..., pt.Transformer]) -> Ranking:
    """The rankings of BM25 and of the bi-encoder with random negatives, fused."""
    kept = [bench.kept("bm25"), bench.kept("random")]
    asked = bench.topics[["qid", "query"]]
    run, candidates = (
        fuse(*(pt.Transformer.from_df(frames[kind]) for frames in kept))(asked) for kind in ("run", "candidates")
    )
    return run, candidates


def hybrid_rrf(bench: Bench) -> Ranking:
    return _fused(bench, lambda *both: cs.rrf(*both, num_results=bench.options.depth))


def hybrid_weighted(bench: Bench) -> Ranking:
    """The weight is tuned on held-out contexts."""
    encoder = bench.bi_encoder(str(bench.folder("models", "random")))
    index = bench.dense_index(bench.folder("indexes", "random"), encoder, bench.corpus)
    sparse = bench.form() >> bench.index.bm25(num_results=100)
    dense = cs.form(cs.X, sep=SEPARATORS) >> index.retriever(num_results=100)
    both = [pt.Transformer.from_df(system(bench.held_out)) for system in (sparse, dense)]
    scores = {}
    for tenths in range(1, 10):
        weights = [tenths / 10, 1 - tenths / 10]
        run = cs.reranking.interpolate(*both, weights=weights)(bench.held_out[["qid", "query"]])
        values = evaluate(run, bench.train_qrels, RR, qids=bench.held_out["qid"])
        scores[tenths] = float(values.iloc[:, 0].mean())
    best = max(scores, key=scores.__getitem__)
    bench.notes |= {"weight of BM25": best / 10, "held-out RR": {str(key / 10): value for key, value in scores.items()}}
    weights = [best / 10, 1 - best / 10]
    return _fused(
        bench, lambda *both: cs.reranking.interpolate(*both, weights=weights, num_results=bench.options.depth)
    )


def cross_encoder(bench: Bench) -> Ranking:
    """The first of the fusion, read again by a cross-encoder that is trained on the pairs of the random negatives."""
    given = bench.options
    pairs, form = bench.folder("pairs", "random"), cs.form(cs.X, sep=SEPARATORS)
    if not pairs.is_dir():
        raise NotThere("it needs the row 'random': run that first")
    dev = cs.candidate_lists(bench.held_out, bench.train_qrels, bench.train_corpus, seed=1)
    reranker = cs.train_cross_encoder(
        cs.TrainingPairs(pairs), init=str(bench.start(separators=True)), out=bench.folder("models", "cross-encoder"),
        form=form, dev=(bench.held_out, bench.train_qrels, bench.train_corpus, dev[["qid", "docno"]]), metric="AP",
        num_negatives=max(3, given.negatives), max_steps=given.steps, batch_size=max(1, given.batch_size // 2),
        learning_rate=given.learning_rate, eval_every=given.eval_every, seed=bench.seed,
        max_length=given.max_query_length + given.max_passage_length,
    )  # fmt: skip
    texts = {document["docno"]: document["text"] for document in bench.corpus}
    topics = form(bench.topics)[["qid", "query"]]
    run = bench.kept("hybrid-rrf")["run"]
    run = run[run["rank"] < given.reranked].merge(topics, on="qid")
    run = run.assign(text=run["docno"].map(texts).astype("str"))
    candidates = bench.candidates.drop(columns="label").merge(topics, on="qid").assign(score=0.0)
    candidates = candidates.assign(rank=candidates.groupby("qid").cumcount())
    return reranker(run), reranker(candidates)


#: by name; a row that needs others comes after them
ROWS: dict[str, Row] = {
    "bm25": Row(bm25, "BM25", SPARSE, seeded=False),
    "rm3": Row(rm3, "BM25 + RM3", SPARSE, seeded=False),
    "resp2ctxt": Row(lambda bench: expanded(bench, "context"), "BM25 + resp2ctxt", (*SPARSE, "seq2seq", "resp2ctxt")),
    "resp2ctxt_lu": Row(
        lambda bench: expanded(bench, "last_utterance"), "BM25 + resp2ctxt_lu", (*SPARSE, "seq2seq", "resp2ctxt_lu")
    ),
    "zero-shot": Row(zero_shot, "bi-encoder, zero-shot", DENSE, seeded=False),
    "zero-shot-whole": Row(zero_shot_whole, "bi-encoder, all layers, zero-shot", ("whole encoder",), seeded=False),
    "random": Row(random_negatives, "fine-tuned, random negatives", TUNED),
    "bm25-negatives": Row(bm25_negatives, "fine-tuned, BM25 negatives"),
    "dense-negatives": Row(dense_negatives, "fine-tuned, bi-encoder negatives"),
    "e2-bm25": Row(e2_bm25, "E2: BM25 negatives, ranks 91-100"),
    "e2-dense": Row(e2_dense, "E2: bi-encoder negatives, ranks 91-100"),
    "e3-bm25": Row(e3, "E3: BM25 negatives that the context does not hold"),
    "e4-bm25": Row(e4, "E4: BM25 negatives of the last utterance"),
    "e5-bm25": Row(e5, "E5: BM25 negatives of a larger collection", (*MINED, "external")),
    "e6-generated": Row(e6, "E6: generated negatives", (*MINED, "seq2seq", "replies")),
    "bm25-unseen": Row(lambda bench: unseen(bench, "bm25"), "BM25, without what was said before", SPARSE, seeded=False),
    "random-unseen": Row(
        lambda bench: unseen(bench, "random"), "fine-tuned, random negatives, without what was said before", TUNED
    ),
    "hybrid-rrf": Row(hybrid_rrf, "BM25 and random negatives, RRF", TUNED),
    "hybrid-weighted": Row(hybrid_weighted, "BM25 and random negatives, weighted", TUNED),
    "cross-encoder": Row(cross_encoder, "RRF, the first re-ranked by a cross-encoder", (*TUNED, "reranked")),
}
