"""Lexical search: BM25 for queries of any length, other engines behind the same door, RM3."""

from .index import BM25Index
from .retriever import BM25Retriever
from .text_loader import TextLoader

__all__ = ["BM25Index", "BM25Retriever", "TextLoader"]
