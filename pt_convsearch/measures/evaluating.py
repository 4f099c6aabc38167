"""The front door: a run and judgments in, one row of values per judged question out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ir_measures
import numpy as np
import pandas as pd
import pyarrow as pa
from ir_measures import Measure

from pt_convsearch.measures import arrays
from pt_convsearch.measures.names import as_measures
from pt_convsearch.measures.runs import Judgments, Ranking, Ties, judgments, ranking
from pt_convsearch.topics.checks import as_ids


def evaluate(
    run: pd.DataFrame,
    qrels: pd.DataFrame | Mapping[str, Mapping[str, int]] | Judgments,
    measures: Iterable[Measure | str] | Measure | str,
    *,
    ties: Ties = "rank",
    qids: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Values of the measures for each judged question.

    RR, R, Success, P, AP and nDCG (with ``rel=``, cutoffs, ``dcg=`` and ``gains=``) are computed over arrays and
    equal trec_eval's; every other measure goes to ir_measures, with scores that fall strictly in the order of the
    ranking, so that all measures see one ranking.

    R@k is a fraction of *all* relevant documents, as in trec_eval; Success@k asks whether any was found. The
    "recall" of response selection (R_10@1: one gold response among ten candidates) is Success@1 over ten candidates,
    and is not called R here.

    Args:
        run: qid, docno and ``rank`` or ``score``. Ids become str; a document found twice for a question counts where
            it stands best, with a warning.
        qrels: qid, docno, label; or ``{qid: {docno: label}}``; or what :func:`judgments` returned, to check them
            once for many runs.
        measures: measures of ir_measures, or their names, or trec_eval's.
        ties: "rank": the order of the ``rank`` column, or else of score, rows of equal score as they stand.
            "trec_eval": its own rule, score in single precision and then docno, falling: equal to trec_eval on runs
            with ties.
        qids: evaluate these questions only (the topics), in this order; all judged questions by default.

    Returns:
        a frame indexed by qid with a column for each measure. A judged question without results has 0 (the measure's
        own default), one without any relevant document 0 as well; a question without judgments has no row.

    Raises:
        ValueError: columns that are missing, NaN scores, contradicting judgments, unknown measures; the message
            names them.

    Example:
        >>> run = pd.DataFrame({"qid": ["1", "4"], "docno": ["a", "b"], "score": [2.0, 1.0]})
        >>> qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "c"], "label": [1, 1]})
        >>> evaluate(run, qrels, ["RR"])["RR"].to_dict()
        {'1': 1.0, '2': 0.0}
    """
    named = as_measures(measures)
    judged = qrels if isinstance(qrels, Judgments) else judgments(qrels)
    if qids is not None:
        judged = judged.of(pd.Index(as_ids(pd.Series(list(qids), dtype=object), "qid")))
    ranked = ranking(run, ties=ties)
    hits = arrays.hits(ranked, judged)
    columns = {name: arrays.values(hits, measure) for name, measure in named.items() if arrays.in_arrays(measure)}
    others = {name: measure for name, measure in named.items() if name not in columns}
    if others:
        columns.update(_by_ir_measures(ranked, judged, others))
    index = pd.Index(judged.qids, name="qid")
    return pd.DataFrame({name: columns[name] for name in named}, index=index)


def _by_ir_measures(ranked: Ranking, judged: Judgments, measures: Mapping[str, Measure]) -> dict[str, np.ndarray]:
    if not len(judged.qids):
        return {name: np.empty(0) for name in measures}
    known = judged.qids.get_indexer(ranked.qids) >= 0
    rows = known[ranked.query]
    run_for = pd.DataFrame(
        {
            "query_id": ranked.qids.to_numpy(dtype=object)[ranked.query[rows]],
            "doc_id": ranked.docno.filter(pa.array(rows)).to_numpy(zero_copy_only=False),
            "score": -ranked.position[rows].astype(np.float64),
        }
    )
    qrels_for = pd.DataFrame(
        {
            "query_id": judged.qids.to_numpy(dtype=object)[judged.query],
            "doc_id": judged.docnos.to_numpy(dtype=object)[judged.doc],
            # below 0 is judged and not relevant; trec_eval counts such labels outside its array and may never come back
            "relevance": np.maximum(judged.label, 0),
        }
    )
    found: dict[Measure, np.ndarray] = {
        measure: np.full(len(judged.qids), measure.DEFAULT, dtype=np.float64) for measure in measures.values()
    }
    place = {qid: row for row, qid in enumerate(judged.qids)}
    # a call for each mapping of gains: in one call, ir_measures now and then takes that of one measure for another
    by_gains: dict[str, list[Measure]] = {}
    for measure in found:
        by_gains.setdefault(str(measure.params.get("gains")), []).append(measure)
    for alike in by_gains.values():
        for metric in ir_measures.iter_calc(alike, qrels_for, run_for):
            found[metric.measure][place[metric.query_id]] = metric.value
    return {name: found[measure] for name, measure in measures.items()}
