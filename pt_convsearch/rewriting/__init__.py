"""Conversational query rewriting: from q_t and its history to a question that stands alone.

Sequence-to-sequence and causal models, large language models behind an endpoint, expansion by the collection's
statistics, term classification. Gold rewrites are ``cs.form(cs.REWRITE)``.
"""

from pt_convsearch.rewriting.hqe import HQE
from pt_convsearch.rewriting.llm_rewriter import BudgetExceeded, LLMRewriter
from pt_convsearch.rewriting.quretec import QuReTeC
from pt_convsearch.rewriting.rewriter import Rewriter
from pt_convsearch.rewriting.several import NthRewrite, RewriteTerms
from pt_convsearch.rewriting.term_overlap import term_overlap

__all__ = ["HQE", "BudgetExceeded", "LLMRewriter", "NthRewrite", "QuReTeC", "RewriteTerms", "Rewriter", "term_overlap"]
