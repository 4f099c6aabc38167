"""Dense retrieval: a bi-encoder of one tower or two, the index that belongs to it, exact or approximate search.

    encoder = cs.BiEncoder("sentence-transformers/all-MiniLM-L6-v2")
    dense = cs.DenseIndex("passages.flex", encoder).index(corpus).retriever(num_results=100)

The names (`__init__.pyi`) are loaded when first used: PyTorch and FAISS take seconds to import.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
