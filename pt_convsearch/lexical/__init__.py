"""Lexical search: BM25 for queries of any length, other engines behind the same door, RM3, weights of encoders."""

from .analysis import Analyzer
from .anserini import AnseriniRetriever
from .front_door import bm25
from .impacts import ImpactIndex
from .impacts_retriever import ImpactRetriever
from .index import BM25Index
from .pisa import PisaRetriever, build_pisa_index
from .queries import without_separators
from .retriever import BM25Retriever
from .rm3 import RM3
from .terrier import TerrierRetriever
from .text_loader import TextLoader

__all__ = [
    "RM3",
    "Analyzer",
    "AnseriniRetriever",
    "BM25Index",
    "BM25Retriever",
    "ImpactIndex",
    "ImpactRetriever",
    "PisaRetriever",
    "TerrierRetriever",
    "TextLoader",
    "bm25",
    "build_pisa_index",
    "without_separators",
]
