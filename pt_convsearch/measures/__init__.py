"""The papers' measures over arrays, one tie rule for all of them, agreement of rankings, significance: no retrieval
here."""

from pt_convsearch.measures.agreement import agreement
from pt_convsearch.measures.evaluating import evaluate
from pt_convsearch.measures.names import as_measures
from pt_convsearch.measures.runs import Judgments, judgments
from pt_convsearch.measures.significance import bootstrap, correct, paired_test
from pt_convsearch.measures.trec import read_qrels, read_run, write_run

__all__ = [
    "Judgments",
    "agreement",
    "as_measures",
    "bootstrap",
    "correct",
    "evaluate",
    "judgments",
    "paired_test",
    "read_qrels",
    "read_run",
    "write_run",
]
