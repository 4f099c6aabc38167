"""Texts of results, from the index that stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import pyterrier as pt

from .._stage import Stage

if TYPE_CHECKING:
    from .index import BM25Index


class TextLoader(Stage):
    """Adds the stored texts to results, ``R -> R`` (or any frame with ``docno``).

    Input columns: ``docno``. Output columns: those of the input and one per field, replaced where it was there already.

    Args:
        index: an index with stored texts.
        fields: names of stored fields; None: ``text`` alone (the last of the index's text fields).

    Raises:
        ValueError: a docno that the index does not have (on transform), or a field that it does not store.

    Example:
        ``index.bm25() >> index.text_loader()``
    """

    def __init__(self, index: BM25Index, fields: str | Sequence[str] | None = None) -> None:
        self.index = index
        self.fields = fields

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=["docno"], context=self)
        reading = self.index._reading
        names = [reading.meta["text_field"][-1]] if self.fields is None else self.fields
        names = [names] if isinstance(names, str) else list(names)
        stored = {name: reading.stored(name) for name in names}
        ids = reading.doc_ids(inp["docno"].tolist())
        return inp.assign(**{name: pd.array(strings.take(ids), dtype="str") for name, strings in stored.items()})
