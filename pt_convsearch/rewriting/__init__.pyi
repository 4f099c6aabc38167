from .endpoint import BudgetExceeded as BudgetExceeded, EndpointError as EndpointError
from .hqe import HQE as HQE
from .llm_rewriter import LLMRewriter as LLMRewriter
from .overlap import term_overlap as term_overlap
from .quretec import QuReTeC as QuReTeC
from .rewriter import Rewriter as Rewriter
from .several import NthRewrite as NthRewrite, RewriteTerms as RewriteTerms
