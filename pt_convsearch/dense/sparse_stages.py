"""The stages of a sparse encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyterrier as pt

from .._stage import Stage
from ..topics.checks import check_queries
from .stages import check_texts

if TYPE_CHECKING:
    from .sparse_encoder import SparseEncoder


class SparseQueryEncoder(Stage):
    """Q -> Q: ``query`` to ``query_toks``, a dict of term -> weight; {} for a blank query."""

    label = "Sparse query encoder"

    def __init__(self, encoder: SparseEncoder) -> None:
        self.encoder = encoder

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        frame = check_queries(inp, context=self)
        return frame.assign(query_toks=pd.Series(self.weights(frame), index=frame.index, dtype=object))

    def weights(self, topics: pd.DataFrame) -> list[dict[str, float]]:
        """The weights of each row's query."""
        return self.encoder.dicts(self.encoder.encode_queries(topics["query"].tolist()))

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}


class SparseDocEncoder(Stage):
    """D -> D: the text, after its title where there is one, to ``toks``, a dict of term -> weight."""

    label = "Sparse passage encoder"

    def __init__(self, encoder: SparseEncoder) -> None:
        self.encoder = encoder

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        encoder = self.encoder
        pt.validate.columns(inp, includes=[encoder.text_field], context=self)
        check_texts(inp, encoder.text_field, "docno")
        titles = list(inp[encoder.title_field]) if encoder.title_field in inp.columns else None
        weights = encoder.encode_docs(encoder.passage_texts(titles, list(inp[encoder.text_field])))
        return inp.assign(toks=pd.Series(encoder.dicts(weights), index=inp.index, dtype=object))

    def subtransformers(self) -> dict[str, pt.Transformer]:
        return {}
