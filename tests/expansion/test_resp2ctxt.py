"""Expanding a collection: nothing lost, nothing doubled, the same text whatever the batch, paid for once."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

import pt_convsearch as cs
from pt_convsearch.expansion import SEPARATOR

LENGTHS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 30, 40]


def texts_of(count: int) -> list[str]:
    generator = random.Random(3)
    return [" ".join(f"w{generator.randrange(60)}" for _ in range(LENGTHS[n % len(LENGTHS)])) for n in range(count)]


@pytest.fixture
def expander(t5: str) -> cs.Resp2Ctxt:
    return cs.Resp2Ctxt(t5, max_new_tokens=12, generation_batch_size=4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_text_depends_on_no_other(t5: str, precision: str) -> None:
    texts = texts_of(24)
    options = {"max_new_tokens": 16, "precision": precision}
    alone = {text: cs.Resp2Ctxt(t5, generation_batch_size=1, **options).expand([text])[0] for text in texts[:6]}
    for size in (3, 32):
        order = random.Random(size).sample(texts, len(texts))
        together = dict(zip(order, cs.Resp2Ctxt(t5, generation_batch_size=size, **options).expand(order), strict=True))
        assert {text: together[text] for text in alone} == alone
        if size == 3:
            small = together
    assert together == small


def test_seeds_and_samples_differ(t5: str) -> None:
    texts = texts_of(8)
    one, again, other = (cs.Resp2Ctxt(t5, seed=seed, max_new_tokens=12).expand(texts) for seed in (1, 1, 2))
    assert one == again
    assert sum(left != right for left, right in zip(one, other, strict=True)) >= 5
    assert sum(len(set(samples)) > 1 for samples in one) >= 5
    # more samples begin with the same ones
    more = cs.Resp2Ctxt(t5, num_samples=5, max_new_tokens=12).expand(texts[:2])
    assert [samples[:3] for samples in more] == one[:2]


def test_samples_follow_the_models_chances(t5: str) -> None:
    """The first token of many samples, against softmax over the top k computed by the model in one plain call."""
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    model, tokenizer = T5ForConditionalGeneration.from_pretrained(t5).eval(), AutoTokenizer.from_pretrained(t5)
    inputs = tokenizer("w1 w2 w3", return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)).logits[0, -1]
    best, ids = logits.topk(4)
    chances = dict(zip(tokenizer.convert_ids_to_tokens(ids.tolist()), best.softmax(-1).tolist(), strict=True))
    expander = cs.Resp2Ctxt(t5, num_samples=600, top_k=4, max_new_tokens=1, precision="fp32", generation_batch_size=1)
    said = expander.expand(["w1 w2 w3"])[0]
    for word, chance in chances.items():
        if word.startswith("w"):
            assert abs(said.count(word) / 600 - chance) < 4 * (chance * (1 - chance) / 600) ** 0.5 + 1e-9
    assert set(said) <= set(chances)


def test_top_1_is_greedy_decoding(t5: str) -> None:
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    model, tokenizer = T5ForConditionalGeneration.from_pretrained(t5).eval(), AutoTokenizer.from_pretrained(t5)
    texts = texts_of(6)
    ours = cs.Resp2Ctxt(t5, top_k=1, num_samples=1, max_new_tokens=10, precision="fp32").expand(texts)
    for text, said in zip(texts, ours, strict=True):
        tokens = model.generate(**tokenizer(text, return_tensors="pt"), do_sample=False, max_new_tokens=10)
        greedy = " ".join(tokenizer.decode(tokens[0], skip_special_tokens=True).split())
        assert said == ([greedy] if greedy else [])


def test_same_docnos_number_and_order(expander: cs.Resp2Ctxt) -> None:
    documents = [
        {"docno": f"d{n}", "text": text, "n": n, "tags": [n]} for n, text in enumerate(["w1 w2", "w3", "w4 w5"])
    ]
    frame = expander(pd.DataFrame(documents))
    assert frame["docno"].tolist() == ["d0", "d1", "d2"]
    assert frame["tags"].tolist() == [[0], [1], [2]]
    assert list(expander.transform_iter(documents))[1] == {
        **documents[1],
        **frame.loc[1, ["text", "text_0", "expansion"]],
    }
    assert frame["text_0"].tolist() == ["w1 w2", "w3", "w4 w5"]
    for row in frame.to_dict("records"):
        assert row["text"] == row["text_0"] + SEPARATOR + row["expansion"]
        assert len(row["expansion"].split(SEPARATOR)) <= 3


def test_one_row_at_a_time(expander: cs.Resp2Ctxt) -> None:
    frame = pd.DataFrame({"docno": [f"d{n}" for n in range(6)], "text": texts_of(6)})
    single = pd.concat([expander(frame.iloc[[n]]) for n in range(6)])
    pd.testing.assert_frame_equal(single, expander(frame))


def test_empty_emoji_and_equal_responses(expander: cs.Resp2Ctxt, tmp_path: Path) -> None:
    texts = ["", "  \n", "🙂", "w7", "w7", "日本語 \u202eabc"]
    documents = [{"docno": f"d{n}", "text": text} for n, text in enumerate(texts)]
    found = list(expander.transform_iter(documents))
    assert [d["text"] for d in found[:2]] == texts[:2]
    assert [d["expansion"] for d in found[:2]] == ["", ""]
    assert found[2]["text_0"] == "🙂"
    assert found[2]["expansion"]
    assert found[3]["expansion"] == found[4]["expansion"]
    index = (expander >> cs.BM25Index(tmp_path / "x.bm25")).index(documents)
    assert index.docnos() == [f"d{n}" for n in range(6)]


def test_a_second_pass_expands_nothing_twice(expander: cs.Resp2Ctxt) -> None:
    once = expander(pd.DataFrame({"docno": ["a", "b"], "text": ["w1 w2", ""]}))
    pd.testing.assert_frame_equal(expander(once), once)
    # also where only docno and text were kept, as an index's text loader gives them
    pd.testing.assert_frame_equal(expander(once[["docno", "text"]]), once)


def test_a_column_of_the_users_own_is_not_taken_for_the_text(expander: cs.Resp2Ctxt) -> None:
    """text_0 is the text before an expansion only where the text is it, or goes on after it with the separator."""
    own = [{"docno": "a", "text": "w1", "text_0": "w1"}, {"docno": "b", "text": "w1 w2", "text_0": "w1"}]
    refused = r"text_0 of docno 'b' \('w1'\) is not what its text \('w1 w2'\) was.*rename the column text_0"
    with pytest.raises(ValueError, match=refused):
        expander(pd.DataFrame(own))
    with pytest.raises(ValueError, match=refused):
        list(expander.transform_iter(own))
    with pytest.raises(ValueError, match=refused):
        cs.expansion_terms([document | {"expansion": "w3"} for document in own])
    assert expander(pd.DataFrame(own[:1]))["text_0"].tolist() == ["w1"]
    expanded = {"docno": "c", "text": f"w1{SEPARATOR}w9", "text_0": "w1"}
    assert next(expander.transform_iter([expanded])) == next(expander.transform_iter([{**own[0], "docno": "c"}]))
    with pytest.raises(ValueError, match="the text of docno 'd' is None"):
        cs.expansion_terms([{"docno": "d", "expansion": "w3"}])


def test_the_text_stays_where_it_is_not_to_be_touched(t5: str, tmp_path: Path) -> None:
    expander = cs.Resp2Ctxt(t5, append=False, max_new_tokens=12)
    documents = [{"docno": "a", "text": "w1 w2"}, {"docno": "b", "text": "w3"}]
    frame = expander(pd.DataFrame(documents))
    assert frame.columns.tolist() == ["docno", "text", "expansion"]
    assert frame["text"].tolist() == ["w1 w2", "w3"]
    index = (expander >> cs.BM25Index(tmp_path / "x.bm25", text_field=["expansion", "text"])).index(documents)
    found = (index.bm25() >> index.text_loader())(pd.DataFrame({"qid": ["1"], "query": [frame["expansion"][0]]}))
    assert found.iloc[0]["docno"] == "a"
    assert found.iloc[0]["text"] == "w1 w2"


@pytest.mark.parametrize("analyze", [str.split, cs.lexical.Analyzer(), cs.lexical.Analyzer("unicode", None, None)])
def test_the_separator_is_no_term(analyze: Any) -> None:
    assert analyze(f"one{SEPARATOR}two") == analyze("one two")


def test_empty_frames(expander: cs.Resp2Ctxt) -> None:
    found = expander(pd.DataFrame({"docno": pd.Series([], dtype="str"), "text": pd.Series([], dtype="str")}))
    assert found.columns.tolist() == ["docno", "text", "text_0", "expansion"]
    assert len(found) == 0
    assert all(isinstance(dtype, pd.StringDtype) for dtype in found.dtypes)
    assert list(expander.transform_iter([])) == []


def test_identity(t5: str, tmp_path: Path) -> None:
    import shutil

    copied = shutil.copytree(t5, tmp_path / "copy")
    one = cs.Resp2Ctxt(t5, max_new_tokens=12)
    assert one == cs.Resp2Ctxt(str(copied), max_new_tokens=12)
    assert hash(one) == hash(cs.Resp2Ctxt(str(copied), max_new_tokens=12))
    assert one != cs.Resp2Ctxt(t5, max_new_tokens=12, seed=2)
    assert one != cs.Resp2Ctxt(t5, max_new_tokens=13)
    back = pickle.loads(pickle.dumps(one))
    assert back == one
    assert back.expand(["w1"]) == one.expand(["w1"])
    assert repr(cs.Resp2Ctxt("m", seed=2)) == "Resp2Ctxt('m', seed=2)"


def test_settings_of_the_model_folder(t5: str, tmp_path: Path) -> None:
    """A model of cs.train_resp2ctxt says how long its texts are."""
    import json
    import shutil

    copied = shutil.copytree(t5, tmp_path / "trained")
    (copied / "training.json").write_text(
        json.dumps({"max_source_length": 5, "max_target_length": 4}), encoding="utf-8"
    )
    said = cs.Resp2Ctxt(str(copied), precision="fp32").expand(["w1 w2 w3 w4 w5 w6"])[0]
    assert max(len(text.split()) for text in said) <= 4
    same = cs.Resp2Ctxt(t5, precision="fp32", max_source_length=5, max_new_tokens=4).expand(["w1 w2 w3 w4 w5 w6"])[0]
    assert said == same


# what is paid for once


def test_the_cache_answers_in_place_of_the_model(t5: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "cache.sqlite"
    first = cs.Resp2Ctxt(t5, cache=path, max_new_tokens=12).expand(["w1", "w2 w3"])
    import pt_convsearch.expansion.sampling as sampling

    asked: list[str] = []
    real = sampling.generate

    def counting(generator: Any, texts: Any, how: Any, **options: Any) -> Any:
        asked.extend(texts)
        return real(generator, texts, how, **options)

    monkeypatch.setattr(sampling, "generate", counting)
    again = cs.Resp2Ctxt(t5, cache=path, max_new_tokens=12)
    assert again.expand(["w2 w3", "w1", "w9"])[:2] == first[::-1]
    assert asked == ["w9"]
    cs.Resp2Ctxt(t5, cache=path, max_new_tokens=12, seed=2).expand(["w1"])
    assert asked == ["w9", "w1"]  # another seed
    cs.Resp2Ctxt(t5, cache=path, max_new_tokens=11).expand(["w1"])
    assert asked == ["w9", "w1", "w1"]


def test_other_weights_at_the_same_path_miss_the_cache(tmp_path: Path) -> None:
    from tests.tiny_seq2seq import tiny_t5

    words = ["w1", "w2", "w3"]
    one = cs.Resp2Ctxt(tiny_t5(tmp_path / "m", words), cache=tmp_path / "c", max_new_tokens=8)
    before = one.fingerprint()
    other = cs.Resp2Ctxt(tiny_t5(tmp_path / "m", words, scale=2.0), cache=tmp_path / "c", max_new_tokens=8)
    assert other.fingerprint() != before
    assert one != other


def test_a_kill_loses_one_batch_at_most(t5: str, tmp_path: Path) -> None:
    """The process dies in its third batch; the next one asks the model for the rest only."""
    path = tmp_path / "cache.sqlite"
    code = f"""
import os, pt_convsearch as cs
from pt_convsearch._content_cache import ContentCache
add, seen = ContentCache.add, []
def dying(self, rows):
    add(self, rows); seen.append(1)
    if len(seen) == 2: os._exit(9)
ContentCache.add = dying
expander = cs.Resp2Ctxt({t5!r}, cache={str(path)!r}, max_new_tokens=8, generation_batch_size=2)
expander.expand([f"w{{n}}" for n in range(10)])
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, env=environment, capture_output=True).returncode == 9
    )
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM expansions").fetchone()[0] == 4
    texts = [f"w{n}" for n in range(10)]
    resumed = cs.Resp2Ctxt(t5, cache=path, max_new_tokens=8, generation_batch_size=2).expand(texts)
    assert resumed == cs.Resp2Ctxt(t5, max_new_tokens=8).expand(texts)


def test_a_damaged_cache_is_named(t5: str, tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"no database at all, but long enough to be one" * 30)
    with pytest.raises(ValueError, match="cache.sqlite is no cache of expansions, or damaged"):
        cs.Resp2Ctxt(t5, cache=path).expand(["w1"])
    with pytest.raises(IsADirectoryError, match="a cache is one file"):
        cs.Resp2Ctxt(t5, cache=tmp_path).expand(["w1"])


# what is refused


def test_wrong_input_is_named(expander: cs.Resp2Ctxt, t5: str) -> None:
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        expander(pd.DataFrame({"docno": ["a"]}))
    with pytest.raises(ValueError, match="docno 'b'"):
        expander(pd.DataFrame({"docno": ["a", "b"], "text": ["w1", None]}))
    with pytest.raises(ValueError, match="'b'"):
        list(expander.transform_iter([{"docno": "b"}]))
    for options in (
        {"num_samples": 0},
        {"top_k": 0},
        {"batch_size": 1.5},
        {"max_new_tokens": -1},
        {"precision": "int8"},
    ):
        with pytest.raises(ValueError, match=next(iter(options))):
            cs.Resp2Ctxt(t5, **options)


def test_checkpoints_that_would_write_noise_are_refused(t5: str, tmp_path: Path, minilm: str) -> None:
    with pytest.raises(ValueError, match="writes no text|no encoder-decoder"):
        cs.Resp2Ctxt(minilm).expand(["w1"])
    with pytest.raises(OSError, match="nowhere"):
        cs.Resp2Ctxt(str(tmp_path / "nowhere")).expand(["w1"])
    shutil.copytree(t5, tmp_path / "cut")
    (tmp_path / "cut" / "training.json").write_text('{"max_source', encoding="utf-8")
    with pytest.raises(ValueError, match=r"training\.json is damaged"):
        cs.Resp2Ctxt(str(tmp_path / "cut")).expand(["w1"])


# the two effects


def test_new_and_reweighted_terms() -> None:
    """ "reboot the router": reboot, router (the is a stop word). Expansion: my, router, slow, which, router, now."""
    documents = [
        {"docno": "a", "text": f"reboot the router{SEPARATOR}x", "text_0": "reboot the router",
         "expansion": f"my router is slow{SEPARATOR}which router now"},
        {"docno": "b", "text": "np", "expansion": ""},
    ]  # fmt: skip
    terms = cs.expansion_terms(documents)
    assert terms.iloc[0][["docno", "terms", "added", "new", "reweighted"]].tolist() == ["a", 2, 6, 4, 2]
    assert terms["reweighted_terms"][0] == {"router": 2}
    assert set(terms["new_terms"][0]) == {"my", "slow", "which", "now"}
    assert terms.iloc[1][["terms", "added", "new", "reweighted"]].tolist() == [1, 0, 0, 0]
    summary = cs.expansion_summary(terms)
    assert summary["documents"] == 2
    assert summary["expanded"] == 1
    assert summary["share_new"] == pytest.approx(4 / 6)
    assert summary["added"] == pytest.approx(3)
    assert summary["distinct_new"] == pytest.approx(2)
    with pytest.raises(ValueError, match="'c'"):
        cs.expansion_terms([{"docno": "c", "text": "x"}])
    assert len(cs.expansion_terms([])) == 0
    assert cs.expansion_summary(cs.expansion_terms([]))["share_new"] == 0
