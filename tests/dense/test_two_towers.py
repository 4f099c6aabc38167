"""An encoder of two towers: DPR, two checkpoints, a router."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pt_convsearch as cs

from .test_encoder import HISTORY, by_hand


@pytest.mark.parametrize("projection", [0, 16])
def test_dpr(dpr, projection: int) -> None:
    import torch
    import transformers

    question, context = dpr(projection)
    encoder = cs.BiEncoder(query_model=question, passage_model=context, bf16=False)
    assert encoder.similarity == "dot"
    assert encoder.dimensions == (projection or 32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(question)
    with torch.no_grad():
        model = transformers.DPRQuestionEncoder.from_pretrained(question).eval()
        query = model(**tokenizer(["who wrote dune ?"], return_tensors="pt")).pooler_output.numpy()
        model = transformers.DPRContextEncoder.from_pretrained(context).eval()
        pair = tokenizer(["dune"], ["frank herbert wrote it"], return_tensors="pt")
        pair["token_type_ids"] *= 0  # as DPR was trained
        passage = model(**pair).pooler_output.numpy()
    np.testing.assert_allclose(encoder.encode_queries(["who wrote dune ?"]), query, atol=1e-4)
    frame = pd.DataFrame({"docno": ["1"], "title": ["dune"], "text": ["frank herbert wrote it"]})
    np.testing.assert_allclose(np.stack(encoder.doc_encoder()(frame)["doc_vec"]), passage, atol=1e-4)


def test_half_of_dpr_is_refused(dpr) -> None:
    question, context = dpr(0)
    with pytest.raises(ValueError, match="query_model"):
        cs.BiEncoder(question)
    with pytest.raises(ValueError, match="query_model"):
        cs.BiEncoder(query_model=context, passage_model=question)


def test_towers_of_different_dimensions_are_refused(dpr) -> None:
    with pytest.raises(ValueError, match=r"32 dimensions.*16"):
        cs.BiEncoder(query_model=dpr(0)[0], passage_model=dpr(16)[1])


def test_two_plain_towers(bert) -> None:
    encoder = cs.BiEncoder(bert(0), query_model=bert(1), similarity="dot", bf16=False)
    np.testing.assert_allclose(encoder.encode_queries(["dune"]), by_hand(bert(1), ["dune"]), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs(["dune"]), by_hand(bert(0), ["dune"]), atol=1e-5)
    assert encoder == cs.BiEncoder(query_model=bert(1), passage_model=bert(0), similarity="dot")
    assert encoder != cs.BiEncoder(query_model=bert(0), passage_model=bert(1), similarity="dot")


def test_a_router_of_two_towers(bert, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    router = Router.for_query_document(
        query_modules=[Transformer(str(bert(1))), Pooling(32, "cls")],
        document_modules=[Transformer(str(bert(0))), Pooling(32, "mean")],
    )
    SentenceTransformer(modules=[router], device="cpu", similarity_fn_name="dot").save(str(tmp_path / "router"))
    encoder = cs.BiEncoder(tmp_path / "router", max_query_length=16, bf16=False)
    assert (encoder.similarity, encoder.max_query_length, encoder.max_passage_length) == ("dot", 16, 64)
    text = f"{HISTORY} who wrote dune ?"
    expected = by_hand(bert(1), [text], pooling="cls", max_length=16, side="left")
    np.testing.assert_allclose(encoder.encode_queries([text]), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_docs(["dune"]), by_hand(bert(0), ["dune"]), atol=1e-5)
