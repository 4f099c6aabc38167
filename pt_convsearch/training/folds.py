"""Cross-validation over given folds: trained on some, selected on one, judged on another, in rotation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch import _files
from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.topics.checks import as_ids, check_queries, first_three

logger = logging.getLogger(__name__)
_CHOICES, _RUN = "choices.json", "run.parquet"
_RUN_COLUMNS = ["qid", "docno", "score", "rank"]


@dataclass(frozen=True)
class Split:
    """One turn of the rotation.

    Attributes:
        number: of the turn, from 1.
        test_fold, dev_folds, train_folds: names of the folds.
        train, dev: (topics, qrels) of these.
        test: the topics of the test fold; its judgments are not shown.
        folder: where a model of this turn may be written; None without ``out``.
    """

    number: int
    test_fold: str
    dev_folds: tuple[str, ...]
    train_folds: tuple[str, ...]
    train: tuple[pd.DataFrame, pd.DataFrame]
    dev: tuple[pd.DataFrame, pd.DataFrame]
    test: pd.DataFrame
    folder: Path | None = None


@dataclass(frozen=True)
class CrossValidation:
    """What :func:`cross_validate` found.

    Attributes:
        run: qid, docno, score, rank: every question ranked by a system that was neither trained nor selected on it. A
            system for ``cs.Experiment``.
        choices: a row per turn and candidate: turn, test_fold, dev_folds, candidate, dev (its measure there), chosen.
    """

    run: pd.DataFrame
    choices: pd.DataFrame


def cross_validate(
    make: Callable[[Split], pt.Transformer | Mapping[str, pt.Transformer]],
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    folds: Mapping[Any, Sequence[str]] | str = "fold",
    *,
    metric: Any = "nDCG@10",
    dev_folds: int = 1,
    out: _files.PathLike | None = None,
    overwrite: bool = False,
) -> CrossValidation:
    """Train, select and test in rotation: each fold is the test set once.

    With five folds and fold i as the test set, fold i + 1 is the dev set (after the last comes the first) and the other
    three are trained on. ``make`` trains on ``split.train`` and returns a system, or several candidates (other
    hyper-parameters, other models); the one with the best measure on ``split.dev`` ranks the questions of
    ``split.test``. The judgments of the test fold are shown to nobody.

    Args:
        make: from a :class:`Split` to a system, or to ``{name: system}``, of which the first of equals is chosen. A
            training inside it may use ``split.dev`` to select checkpoints, and ``split.folder`` to keep them.
        topics: qid, query and what the systems read.
        qrels: qid, docno, label.
        folds: ``{name: qids}`` (``cs.dataset("dl-hard/doc").folds()``), or the column of ``topics`` that names them.
        metric: the measure of selection.
        dev_folds: how many folds are the dev set; 0: none, and ``make`` returns one system.
        out: a folder; a turn that is done is read from it when a stopped run is started again.
        overwrite: run all turns anew.

    Returns:
        the run over all folds, and what was chosen.

    Raises:
        ValueError: fewer folds than are needed, a question in two folds or in none, two folds of one name, judgments
            without qid, docno or label, several candidates without dev folds, a candidate that gives NaN, a system
            that ranks what was not asked, or ``out`` belongs to other folds, topics or judgments.

    Example:
        >>> data = cs.dataset("dl-hard/doc")                                                     # doctest: +SKIP
        >>> def make(split):                                                                     # doctest: +SKIP
        ...     return {f"RM3 {terms}": bm25 >> index.rm3(fb_terms=terms) >> bm25 for terms in (5, 10, 20)}
        >>> found = cs.cross_validate(make, data.get_topics(), data.get_qrels(), data.folds())   # doctest: +SKIP
        >>> cs.Experiment({"BM25": bm25, "RM3": found.run}, data.get_topics(), data.get_qrels(), ["nDCG@10"])
        ... # doctest: +SKIP

    Source: the protocol of DL-HARD's fine-tuned baselines (Mackie et al., SIGIR 2021): five folds, three to train on,
        one to select on, one to test on.
    """
    topics = check_queries(topics).reset_index(drop=True)
    judgments(qrels)  # what is wrong with them is said before anything is trained
    qrels = qrels.assign(qid=as_ids(qrels["qid"], "qid"))
    named = _folds(folds, topics)
    if dev_folds < 0 or len(named) < dev_folds + 2:
        raise ValueError(
            f"{len(named)} folds, {dev_folds} of them to select on: one is tested, at least one is trained on"
        )
    measures = as_measures(metric)
    if len(measures) != 1:
        raise ValueError(f"metric={metric!r}: systems are selected by one measure")
    measure = next(iter(measures.values()))
    state = {
        "topics": digest(topics), "qrels": digest(qrels[["qid", "docno", "label"]]), "folds": digest(named),
        "metric": str(measure), "dev_folds": dev_folds,
    }  # fmt: skip
    runs, choices = [], []
    for split in _splits(named, topics, qrels, dev_folds, None if out is None else Path(out)):
        done = None if overwrite else _done(split, state)
        if done is None:
            done = _turn(make, split, measure, dev_folds)
            _write(split, state, *done)
        else:
            logger.info("turn %d (test fold %s) is done already", split.number, split.test_fold)
        runs.append(done[0])
        choices.append(done[1])
    order = {qid: place for place, qid in enumerate(topics["qid"])}
    run = pd.concat(runs, ignore_index=True)
    run = run.take(np.lexsort((run["rank"].to_numpy(), run["qid"].map(order).to_numpy()))).reset_index(drop=True)
    return CrossValidation(run, pd.concat(choices, ignore_index=True))


def _folds(folds: Mapping[Any, Sequence[str]] | str, topics: pd.DataFrame) -> dict[str, list[str]]:
    """Name -> qids; every question in one fold."""
    if isinstance(folds, str):
        if folds not in topics.columns:
            raise ValueError(f"topics have no column {folds!r} that names the folds: give folds={{name: qids}}")
        missing = topics["qid"][topics[folds].isna()]
        if len(missing):
            raise ValueError(f"qid {first_three(missing)} is in no fold")
        folds = {name: part["qid"].tolist() for name, part in topics.groupby(folds, sort=True)}
    found = {str(name): [str(qid) for qid in qids] for name, qids in folds.items()}
    if len(found) < len(folds):
        raise ValueError(f"two folds have the same name in {first_three(folds)}: give each one of its own")
    of: dict[str, str] = {}
    for name, qids in found.items():
        for qid in qids:
            if qid in of:
                raise ValueError(f"qid {qid!r} is in the folds {of[qid]} and {name}")
            of[qid] = name
    missing = topics["qid"][~topics["qid"].isin(of)]
    if len(missing):
        raise ValueError(f"qid {first_three(missing)} is in no fold")
    known = set(topics["qid"])
    kept = {name: [qid for qid in qids if qid in known] for name, qids in found.items()}
    return {name: qids for name, qids in kept.items() if qids}


def _splits(
    folds: dict[str, list[str]], topics: pd.DataFrame, qrels: pd.DataFrame, dev_folds: int, out: Path | None
) -> list[Split]:
    names = list(folds)

    def part(chosen: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
        qids = {qid for name in chosen for qid in folds[name]}
        rows = topics[topics["qid"].isin(qids)].reset_index(drop=True)
        return rows, qrels[qrels["qid"].isin(qids)].reset_index(drop=True)

    splits = []
    for number in range(len(names)):
        turned = names[number:] + names[:number]
        test, dev, train = turned[0], turned[1 : 1 + dev_folds], turned[1 + dev_folds :]
        folder = None if out is None else out / f"turn-{number + 1}"
        topics_of_test, _ = part([test])
        splits.append(Split(number + 1, test, tuple(dev), tuple(train), part(train), part(dev), topics_of_test, folder))
    return splits


def _turn(make: Callable[..., Any], split: Split, measure: Any, dev_folds: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    if split.folder is not None:
        split.folder.mkdir(parents=True, exist_ok=True)
    made = make(split)
    candidates: dict[str, pt.Transformer] = dict(made) if isinstance(made, Mapping) else {"system": made}
    if not candidates or not all(isinstance(system, pt.Transformer) for system in candidates.values()):
        raise TypeError(f"make returned {made!r}: a transformer is needed, or {{name: transformer}}")
    if len(candidates) > 1 and dev_folds == 0:
        raise ValueError("several candidates and no folds to select on: dev_folds=1")
    values = dict.fromkeys(candidates, np.nan)
    if dev_folds:
        topics, qrels = split.dev
        judged = judgments(qrels)
        qids = topics["qid"][topics["qid"].isin(judged.qids)]
        for name, system in candidates.items():
            values[name] = float(evaluate(system.transform(topics), judged, measure, qids=qids).iloc[:, 0].mean())
        if len(candidates) > 1 and np.isnan(list(values.values())).any():
            raise ValueError(f"turn {split.number}: no question of the dev folds is judged, nothing can be selected")
    chosen = max(candidates, key=lambda name: values[name]) if len(candidates) > 1 else next(iter(candidates))
    logger.info("turn %d (test fold %s): %s, %s", split.number, split.test_fold, chosen, values)
    run = candidates[chosen].transform(split.test)
    pt.validate.columns(run, includes=_RUN_COLUMNS, context=candidates[chosen])
    run = run.assign(qid=as_ids(run["qid"], "qid"), docno=as_ids(run["docno"], "docno"))[_RUN_COLUMNS]
    other = run["qid"][~run["qid"].isin(split.test["qid"])]
    if len(other):
        raise ValueError(f"{chosen} ranks for qid {first_three(other.unique())}, which was not asked")
    table = pd.DataFrame(
        [
            (split.number, split.test_fold, ", ".join(split.dev_folds), name, value, name == chosen)
            for name, value in values.items()
        ],
        columns=["turn", "test_fold", "dev_folds", "candidate", "dev", "chosen"],
    )
    return run.reset_index(drop=True), table


def _write(split: Split, state: dict[str, Any], run: pd.DataFrame, choices: pd.DataFrame) -> None:
    if split.folder is None:
        return
    with _files.written(split.folder / _RUN) as temporary:
        run.to_parquet(temporary)
    rows = [{**row, "dev": None if row["dev"] != row["dev"] else row["dev"]} for row in choices.to_dict("records")]
    _files.write_json(split.folder / _CHOICES, {"state": state, "run": _hash(split.folder / _RUN), "choices": rows})


def _done(split: Split, state: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """What an earlier run found in this turn."""
    if split.folder is None or not (split.folder / _CHOICES).is_file():
        return None
    found = _files.json_or_none(split.folder / _CHOICES)
    if not isinstance(found, dict) or found.get("run") != _hash(split.folder / _RUN):
        return None
    if found["state"] != state:
        wrong = [name for name in state if found["state"].get(name) != state[name]]
        raise ValueError(
            f"{split.folder} is of another cross-validation ({', '.join(wrong)}): another folder, or overwrite=True"
        )
    choices = pd.DataFrame(found["choices"])
    return pd.read_parquet(split.folder / _RUN), choices.astype({"dev": "float64"})


def _hash(path: Path) -> str | None:
    return _files.sha256(path) if path.is_file() else None
