"""The mining itself: whole frames go to the miner, arrays come back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyterrier as pt

from pt_convsearch.topics.checks import as_ids, first_three

from ._fingerprint import check_results
from ._mining import mining
from ._parts import Parts
from ._texts import TextStore
from .filter import pairs_in
from .mix import PLUS


@dataclass(frozen=True)
class Golds:
    """Golds, one an entry: qid, docno, row in the store of texts (-1: no text)."""

    qids: np.ndarray
    docnos: np.ndarray
    rows: np.ndarray

    def of(self, qids: pd.Series) -> Golds:
        """Those of some questions."""
        chosen = np.isin(self.qids.astype(str), qids.to_numpy(dtype=str))
        return Golds(self.qids[chosen], self.docnos[chosen], self.rows[chosen])


def mine(
    miner: pt.Transformer,
    questions: pd.DataFrame,
    golds: Golds,
    store: TextStore,
    parts: Parts,
    *,
    pool: int,
    shares: dict[str, float] | None,
    batch_size: int,
    verbose: bool,
) -> None:
    """Run the miner over the questions, batch by batch, and keep the pools as parts.

    ``shares`` are those of a mix: each miner keeps its share of the draws whatever was dropped from its list.
    """
    from tqdm.auto import tqdm

    with tqdm(total=len(questions), desc="mining", unit="question", disable=not verbose) as bar:
        for start in range(0, len(questions), batch_size):
            batch = questions.iloc[start : start + batch_size].reset_index(drop=True)
            stop = start + len(batch)
            if not parts.has(start, stop):
                with mining(store) as run:
                    found = miner.transform(batch)
                table, tally = _pools(found, batch, golds, store, pool, shares)
                tally.update(run.removed)
                parts.add(start, stop, table, tally)
            parts.done.append((start, stop))
            bar.update(len(batch))


def _pools(
    found: pd.DataFrame, batch: pd.DataFrame, golds: Golds, store: TextStore, pool: int, shares: dict[str, float] | None
) -> tuple[pa.Table, Counter[str]]:
    """One row per question: negatives, ranks, scores (and source, weight), best first, without golds.

    In the tally each row that was retrieved stands once: under the first name of those below that fits it, or as
    "beyond the pool", or else it is a negative.
    """
    tally: Counter[str] = Counter()
    check_results(found)
    found = found.assign(**{column: as_ids(found[column], column) for column in ("qid", "docno")})
    question = pd.Index(batch["qid"]).get_indexer(pd.Index(found["qid"]))
    if (question < 0).any():
        raise ValueError(
            "the miner gives results for qids that it was not asked "
            f"({first_three(found['qid'][question < 0].unique())})"
        )
    tally["retrieved"] = len(found)
    tally["questions without any result"] = len(batch) - len(np.unique(question))
    order = np.lexsort((found["rank"].to_numpy(), question))
    columns = [name for name in ("docno", "score", "rank", "source", "weight") if name in found.columns]
    frame = found[columns].take(order).reset_index(drop=True)
    question = question[order]

    rows = store.rows(frame["docno"])
    repeated = pd.DataFrame({"question": question, "docno": frame["docno"]}).duplicated().to_numpy()
    asked = pd.Index(batch["qid"]).get_indexer(pd.Index(golds.qids))
    gold = pairs_in((question, frame["docno"]), (asked, golds.docnos))
    keys = store.keys(rows)
    gold_keys = store.keys(golds.rows)
    with_text = gold_keys != 0
    copies = pairs_in((question, keys), (asked[with_text], gold_keys[with_text]))
    keep = np.ones(len(frame), dtype=bool)
    for name, reason in (
        ("found twice", repeated),
        ("golds", gold),
        ("texts of golds under another id", copies),
        ("no text in the corpus", rows < 0),
    ):
        tally[f"dropped: {name}"] = int((keep & reason).sum())
        keep &= ~reason
    frame, question = frame[keep], question[keep]

    starts = np.searchsorted(question, np.arange(len(batch)))
    place = np.arange(len(question)) - starts[question]
    tally["beyond the pool"] = int((place >= pool).sum())
    frame, question = frame[place < pool], question[place < pool]
    offsets = pa.array(np.searchsorted(question, np.arange(len(batch) + 1)).astype(np.int32))
    columns_out = {
        "qid": pa.array(batch["qid"].to_numpy(dtype=object), pa.string()),
        "negatives": _list(offsets, frame["docno"].to_numpy(dtype=object), pa.string()),
        "ranks": _list(offsets, frame["rank"].to_numpy(), pa.int32()),
        "scores": _list(offsets, frame["score"].to_numpy(), pa.float32()),
    }
    if "weight" in frame.columns and "source" in frame.columns:
        if shares is not None:
            frame = frame.assign(weight=_weights(question, frame["source"], shares))
        columns_out["source"] = _list(offsets, frame["source"].to_numpy(dtype=object), pa.string())
        columns_out["weight"] = _list(offsets, frame["weight"].to_numpy(), pa.float64())
    return pa.table(columns_out), tally


def _weights(question: np.ndarray, source: pd.Series, shares: dict[str, float]) -> np.ndarray:
    """What each passage has of the shares of its miners, which are divided among those that are left of their list."""
    codes, distinct = pd.factorize(source)
    weights = np.zeros(len(question))
    for name, share in shares.items():
        own = np.array([name in names.split(PLUS) for names in distinct], dtype=bool)[codes]
        weights[own] += share / np.bincount(question[own])[question[own]]
    return weights


def _list(offsets: pa.Array, values: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(offsets, pa.array(values, kind) if len(values) else pa.array([], kind))
