"""Expanding a collection: resp2ctxt adds to each response the contexts that it might answer."""

from pt_convsearch.expansion.resp2ctxt import SEPARATOR, Resp2Ctxt
from pt_convsearch.expansion.terms import expansion_summary, expansion_terms

__all__ = ["SEPARATOR", "Resp2Ctxt", "expansion_summary", "expansion_terms"]
