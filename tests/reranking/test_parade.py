"""PARADE's aggregation worked out by hand, and the stage around it."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pt_convsearch as cs

from .conftest import write_bert

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return write_bert(tmp_path_factory.mktemp("parade") / "encoder", head=False)


def write_parade(encoder: str, folder: Path, aggregator: Any = "attn", **settings: Any) -> str:
    from transformers import AutoModel, AutoTokenizer

    from pt_convsearch.reranking.parade_model import ParadeNetwork

    torch.manual_seed(0)
    network = ParadeNetwork(AutoModel.from_pretrained(encoder, add_pooling_layer=False), aggregator, 3)
    folder.mkdir(parents=True)
    reading = {"passage_length": 4, "stride": 3, "max_length": 20, "max_query_length": None, **settings}
    network.save(folder, AutoTokenizer.from_pretrained(encoder), reading)
    return str(folder)


PASSAGES = [[[1.0, 0.0], [3.0, 2.0]], [[-1.0, 4.0], [7.0, 7.0]]]  # the second document has one passage
THERE = [[True, True], [True, False]]


def aggregated(module: Any) -> list[list[float]]:
    with torch.inference_mode():
        return module.eval()(torch.tensor(PASSAGES), torch.tensor(THERE)).tolist()


def test_max_and_average_by_hand() -> None:
    from pt_convsearch.reranking.parade_model import Average, Maximum

    assert aggregated(Maximum()) == [[3.0, 2.0], [-1.0, 4.0]]
    assert aggregated(Average()) == [[2.0, 1.0], [-1.0, 4.0]]


def test_attention_by_hand() -> None:
    from pt_convsearch.reranking.parade_model import Attention

    module = Attention(2)
    with torch.no_grad():
        module.weight.weight.copy_(torch.tensor([[0.0, math.log(3) / 2]]))
    # logits 0 and log 3: weights 1/4 and 3/4
    assert aggregated(module) == [pytest.approx([0.25 * 1 + 0.75 * 3, 0.75 * 2]), pytest.approx([-1.0, 4.0])]


def test_transformer_by_hand() -> None:
    """One layer that attends evenly (queries and keys 0, values as they are) and feeds nothing forward."""
    from pt_convsearch.reranking.parade_model import Transformer

    module = Transformer(2, 1, most=3, layers=1)
    layer = module.layers.layers[0]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.self_attn.in_proj_weight[4:] = torch.eye(2)
        layer.self_attn.out_proj.weight.copy_(torch.eye(2))
        layer.norm1.weight.fill_(1.0)
        layer.norm2.weight.fill_(1.0)
        module.first.copy_(torch.tensor([2.0, 1.0]))
        module.positions[2] = torch.tensor([0.0, 6.0])
    # document 1: 2 1 + mean(2 1, 1 0, 3 2+6) = 2+2, 1+3 = 4, 4: nothing but its mean, normalised to 0 0
    # document 2: 2 1 + mean(2 1, -1 4) = 2.5, 3.5: normalised to -1, 1, twice
    found = aggregated(module)
    assert found[0] == pytest.approx([0.0, 0.0], abs=1e-2)
    assert found[1] == pytest.approx([-1.0, 1.0], abs=1e-3)


@pytest.mark.parametrize("aggregator", ["transformer", "attn", "avg", "max"])
def test_a_document_is_scored_the_same_alone_and_beside_longer_ones(encoder, results, tmp_path, aggregator) -> None:
    stage = cs.PARADE(write_parade(encoder, tmp_path / "parade", aggregator), bf16=False)
    frame = results.assign(text=["w1", "w1 w2 w3 w4 w5 w6 w7", "w9 " * 40, "w1 w2 w3", "w4 w5 w6 w7 w8", "w9"])
    whole = stage(frame).set_index(["qid", "docno"])["score"]
    assert whole.nunique() == 6
    for at in range(len(frame)):
        alone = stage(frame.iloc[[at]])
        assert alone["score"][0] == pytest.approx(whole[alone["qid"][0], alone["docno"][0]], abs=1e-5)


def test_the_score_from_the_parts(encoder, results, tmp_path) -> None:
    """avg over two windows, from transformers and numpy."""
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoTokenizer

    folder = write_parade(encoder, tmp_path / "parade", "avg")
    row = results.head(1).assign(text="w1 w2 w3 w4 w5 w6 w7", title="w50")
    found = cs.PARADE(folder, bf16=False)(row)["score"][0]
    model, tokenizer = AutoModel.from_pretrained(encoder), AutoTokenizer.from_pretrained(encoder)
    vectors = []
    with torch.inference_mode():
        for passage in ("w50 w1 w2 w3 w4", "w50 w4 w5 w6 w7"):
            vectors.append(
                model.eval()(**tokenizer("w1 w2", passage, return_tensors="pt")).last_hidden_state[0, 0].numpy()
            )
    rest = load_file(Path(folder) / "aggregator.safetensors")
    wanted = rest["head.weight"].numpy()[0] @ np.mean(vectors, axis=0) + rest["head.bias"].item()
    assert found == pytest.approx(float(wanted), abs=1e-4)


def test_the_first_and_the_last_passage_are_always_read(encoder, results, tmp_path) -> None:
    stage = cs.PARADE(write_parade(encoder, tmp_path / "parade", "avg"), bf16=False)  # 3 passages of 4 words at most
    row = results.head(1)
    middle = "w9 " * 60

    def score(text: str) -> float:
        return stage(row.assign(text=text))["score"][0]

    base = score(f"w1 {middle} w2")
    assert score(f"w3 {middle} w2") != pytest.approx(base, abs=1e-6)
    assert score(f"w1 {middle} w3") != pytest.approx(base, abs=1e-6)


def test_saving_is_exact_and_says_what_is_wrong(encoder, results, tmp_path) -> None:
    folder = write_parade(encoder, tmp_path / "parade", "transformer")
    stage, again = cs.PARADE(folder), cs.PARADE(folder)
    assert stage == again
    assert stage != cs.PARADE(write_parade(encoder, tmp_path / "other", "transformer", stride=2))
    assert pickle.loads(pickle.dumps(stage)) == stage
    assert stage(results)["score"].tolist() == again(results)["score"].tolist()
    assert not list(Path(folder).rglob("*.bin"))
    assert not list(Path(folder).rglob("*.pt"))
    with pytest.raises(ValueError, match=r"no PARADE model .*train_parade"):
        cs.PARADE(encoder)
    (Path(folder) / "aggregator.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"aggregator\.safetensors is missing or damaged"):
        cs.PARADE(folder)


def test_edges(encoder, results, tmp_path) -> None:
    stage = cs.PARADE(write_parade(encoder, tmp_path / "parade"), cache=tmp_path / "s.sqlite")
    assert len(stage(results.head(0))) == 0
    out = stage(results.assign(text=["", "w1", "質問 " * 500, "w1", "w2", "😀"]))
    assert out["docno"].tolist()[2] == "a"
    assert np.isfinite(out["score"]).all()
    stage._forward = None  # type: ignore[assignment]  # all is known
    stage(results.assign(text=["", "w1", "質問 " * 500, "w1", "w2", "😀"]))
