"""The vectors of a frame's queries: those that it brings, or the encoder's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .encoder import normalized
from .stages import QueryEncoder, check_finite, stacked

if TYPE_CHECKING:
    from .index import DenseIndex


def query_vectors(index: DenseIndex, frame: pd.DataFrame, *, verbose: bool = False) -> np.ndarray:
    """``query_vec`` of the frame where it is there, else ``query`` encoded.

    Returns:
        float32, one row per row of ``frame``; normalised where the index compares by cosine.

    Raises:
        ValueError: no ``query_vec`` and no encoder; NaN or infinity in a vector; a vector of other dimensions.
    """
    if "query_vec" in frame.columns:
        vectors = stacked(frame, "query_vec", "qid")
        check_finite(vectors, frame, "query", "qid")
        if index.similarity == "cosine":
            vectors = normalized(vectors)
    else:
        encoder = index.encoder
        if encoder is None:
            raise ValueError(
                f"the index at {index.index_path} does not know its encoder, and the frame has no query_vec: "
                "cs.DenseIndex(path, encoder).retriever(), or encoder >> index.retriever()"
            )
        vectors = QueryEncoder(encoder, verbose=verbose or encoder.verbose).vectors(frame)
    dimensions = index.meta["vec_size"]
    if len(index) and len(vectors) and vectors.shape[1] != dimensions:
        raise ValueError(
            f"query vectors have {vectors.shape[1]} dimensions, the index at {index.index_path} {dimensions}"
        )
    return vectors
