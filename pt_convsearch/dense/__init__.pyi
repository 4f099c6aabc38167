from .albert import albert_towers as albert_towers, orquac_encoder as orquac_encoder
from .cqe import CQE as CQE
from .encoder import BiEncoder as BiEncoder
from .index import DenseIndex as DenseIndex
from .minilm import minilm_path as minilm_path
from .published import published_encoder as published_encoder
from .retriever import DenseRetriever as DenseRetriever
from .sparse_encoder import SparseEncoder as SparseEncoder
