"""From topics, judgments, a corpus and a miner to a training set on disk."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch import _files
from pt_convsearch.topics.checks import check_queries, first_three

from ._fingerprint import canary, compared, digest, shown
from ._mining import mining
from ._parts import Parts
from ._pool import Golds, mine
from ._surface import surface_warnings
from ._texts import Corpus, TextStore, as_store
from ._write import write_pairs
from .filter import positives_of
from .mix import Mix
from .pairs import META, PAIRS, TrainingPairs
from .ranks import Ranks
from .sampling import order

logger = logging.getLogger(__name__)
_SURFACE_SAMPLE = 1000
Miners = pt.Transformer | Sequence[pt.Transformer] | Mapping[Any, Any]


def training_pairs(
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    corpus: Corpus | TextStore,
    *,
    form: Any,
    negatives: Miners | None = None,
    num_negatives: int = 1,
    pool: int = 100,
    seed: int = 1,
    out: _files.PathLike | None = None,
    text_field: str = "text",
    title_field: str | None = "title",
    batch_size: int = 1000,
    overwrite: bool = False,
    verbose: bool = False,
) -> TrainingPairs:
    """Mine negatives for every judged question and write the training set.

    The miner is a pipeline: any retriever, with filters behind it. It is given the topics as they are, whole frames of
    ``batch_size`` questions, so ``cs.form(cs.REWRITE) >> dense`` mines with rewrites (CQR negatives of Kim & Kim,
    2022) and ``cs.form(cs.X - cs.CURRENT) >> bm25`` with the history alone (shortcut negatives), while the training
    text stays ``form``. What it finds is kept to depth ``pool``, from which the trainer draws ``num_negatives`` anew
    in every epoch.

    Every gold is dropped from the pool by id and by text, and the next passages move up. A question whose gold was
    not retrieved stays. A gold whose text the corpus lacks is left out and reported; a question without any other is
    left out as well. Nothing is
    padded: where fewer than ``num_negatives`` are left, the question has fewer, and :meth:`TrainingPairs.shortages`
    names it.

    Run again with the same arguments, the set is opened, not mined; a mining that was killed goes on where it
    stopped; a damaged set is mined anew. Anything else that changed (topics, judgments, a text or the order of the
    corpus, the form, a setting of the miner, what it finds for sixteen control questions) is an error that names it,
    unless ``overwrite``. An index counts with what it holds, an encoder with its weights: either may be moved.

    Args:
        topics: the topics frame: qid, query, qhistory, and what form and miner read.
        qrels: qid, docno, label; a label above 0 is a gold.
        corpus: where positives and negatives get their text, both from here: dicts with docno and text, a frame, a
            callable or data set that gives such dicts, or for very large collections a text loader
            (``index.text_loader()``).
        form: what the model will read: parts (``cs.X``), ``cs.form(…)`` with options, or any transformer that sets
            ``query``.
        negatives: the miner; several in a list or ``{name: miner}`` share the draws evenly, ``{miner: weight}`` by
            weight (:class:`Mix`). None: no hard negatives, in-batch negatives only.
        num_negatives: negatives per question and epoch.
        pool: how many passages to keep per question.
        seed: what the draws depend on, with the epoch and the question.
        out: the folder to write; by default a temporary one that goes with the set (keep it: ``out``).
        text_field: the field of the text.
        title_field: the field of the title, put before the text where there is one, as :class:`BiEncoder` does; None:
            not read.
        batch_size: questions per call of the miner, and per part that a killed run keeps.
        overwrite: mine anew whatever ``out`` holds.
        verbose: show a progress bar.

    Returns:
        the set: an Artifact with ``settings``, ``counts``, ``shortages()``, ``to_dataset()``.

    Raises:
        ValueError: bad topics or judgments, no question left, an impossible window (``pool`` or ``Ranks`` narrower than
            ``num_negatives``), or ``out`` holds another set.

    Warns:
        UserWarning: golds without text; no negative for any question; surface features that alone tell positives from
            negatives (quotation marks, case, length).

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["who?"], "qhistory": [[]]})
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
        >>> corpus = [{"docno": docno, "text": text} for docno, text in zip("abc", ("Herbert", "Orwell", "Le Guin"))]
        >>> pairs = cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=cs.RandomNegatives(corpus))
        >>> sorted(pairs.frame().negatives[0])
        ['b', 'c']
    """
    topics = check_queries(topics)
    miner = _miner(negatives)
    if miner is None:
        num_negatives = 0
    _check_window(miner, num_negatives, pool)
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: give at least 1")
    store = as_store(corpus, text_field, title_field)
    former = as_former(form)
    questions, golds, counts = _questions(topics, qrels, store, former)
    settings: dict[str, Any] = {
        "form": shown(form),
        "negatives": None if miner is None else shown(miner),
        "topics": digest(topics),
        "queries": digest(questions[["qid", "formed", "alone"]]),
        "golds": digest([golds.qids.tolist(), golds.docnos.tolist()]),
        "corpus": store.fingerprint,
        "text_field": text_field,
        "title_field": title_field,
        "pool": pool,
        "former": digest(former),
        "miner": None if miner is None else digest(miner),
    }
    scratch = None
    if out is None:
        scratch = _files.Scratch("pt_convsearch-pairs")
        out = scratch.path / "pairs"
    target = Path(out)
    mined = questions.drop(columns=["formed", "alone"])
    if miner is not None:
        with mining(store):
            settings["found for control questions"] = canary(miner, mined)
    again = functools.partial(
        training_pairs, topics, qrels, store, form=former, num_negatives=num_negatives, pool=pool, seed=seed,
        text_field=text_field, title_field=title_field, batch_size=batch_size, verbose=verbose,
    )  # fmt: skip
    _files.check_free(target, _holds_pairs, "mined training set")
    kept = None if overwrite else _existing(target, settings, num_negatives, seed, miner)
    if kept is not None:
        kept.form, kept._again = former, again
        return kept
    changed = functools.partial(compared, new=settings, miner=miner)
    with Parts(target, settings, changed=changed, fresh=overwrite) as parts:
        if miner is not None:
            mine(
                miner, mined, golds, store, parts,
                pool=pool, shares=_shares(miner), batch_size=batch_size, verbose=verbose,
            )  # fmt: skip
        write_pairs(target, questions, golds, store, parts, counts, settings, num_negatives=num_negatives, seed=seed)
        parts.discard()
    pairs = TrainingPairs(target)
    pairs.form, pairs._again, pairs._scratch = former, again, scratch
    _report(pairs)
    return pairs


def _miner(negatives: Miners | None) -> pt.Transformer | None:
    if negatives is None or isinstance(negatives, pt.Transformer):
        return negatives
    if isinstance(negatives, Mapping):
        if all(isinstance(key, pt.Transformer) for key in negatives):
            return Mix(negatives)
        if all(isinstance(key, str) and isinstance(value, pt.Transformer) for key, value in negatives.items()):
            return Mix(list(negatives.values()), names=list(negatives))
        raise TypeError("negatives as a dict are {miner: weight} or {name: miner}")
    if isinstance(negatives, str) or not isinstance(negatives, Sequence):
        raise TypeError(
            f"negatives is a {type(negatives).__name__}: give a pipeline, several in a list or dict, or None"
        )
    return Mix(negatives)


def as_former(form: Any) -> pt.Transformer:
    if isinstance(form, pt.Transformer):
        return form
    from pt_convsearch.forming import form as former

    return former(form)


def _check_window(miner: pt.Transformer | None, num_negatives: int, pool: int) -> None:
    if num_negatives < 0:
        raise ValueError(f"num_negatives={num_negatives}: give 0 or more")
    if pool < max(1, num_negatives):
        raise ValueError(f"pool={pool} is smaller than num_negatives={num_negatives}: there would never be enough")
    for stage in _stages(miner):
        if isinstance(stage, Ranks) and stage.width is not None and stage.width < num_negatives:
            raise ValueError(
                f"{stage!r} holds {stage.width} ranks, fewer than num_negatives={num_negatives}: widen low and high, "
                "or ask for fewer"
            )


def _shares(miner: pt.Transformer) -> dict[str, float] | None:
    """The shares of the mix that a pipeline holds; None without one, or with several."""
    mixes = [stage for stage in _stages(miner) if isinstance(stage, Mix)]
    return mixes[0].shares if len(mixes) == 1 else None


def _stages(stage: Any) -> list[pt.Transformer]:
    """The stages of a pipeline, one after the other; what stands in a mix has its own depth and is not looked into."""
    if stage is None:
        return []
    inner = () if isinstance(stage, Mix) else vars(stage).get("_transformers", ())
    return [stage, *(deeper for one in inner for deeper in _stages(one))]


def _questions(
    topics: pd.DataFrame, qrels: pd.DataFrame, store: TextStore, former: pt.Transformer
) -> tuple[pd.DataFrame, Golds, dict[str, Any]]:
    """The questions to train on, with ``formed`` and ``alone``; their golds; and what was left out."""
    formed = _formed(former, topics)
    relevant = positives_of(qrels)
    relevant = relevant[relevant["qid"].isin(topics["qid"])].reset_index(drop=True)
    rows = store.rows(relevant["docno"])
    if (rows >= 0).any():
        blank = np.array([not text.strip() for text in store.texts(rows[rows >= 0])], dtype=bool)
        rows[np.flatnonzero(rows >= 0)[blank]] = -1
    has_text = rows >= 0
    golds = Golds(relevant["qid"].to_numpy(dtype=object), relevant["docno"].to_numpy(dtype=object), rows)
    judged = topics["qid"].isin(relevant["qid"])
    with_text = topics["qid"].isin(relevant["qid"][has_text])
    empty = formed.str.strip() == ""
    keep = with_text & ~empty
    counts: dict[str, Any] = {
        "questions": len(topics),
        "judged": int(judged.sum()),
        "left out: no gold with a text": int((judged & ~with_text).sum()),
        "left out: empty query": int((with_text & empty).sum()),
        "golds": len(relevant),
        "golds without a text": int((~has_text).sum()),
        "pairs": int(keep.sum()),
    }
    if not has_text.all():
        warnings.warn(
            f"{int((~has_text).sum())} of {len(relevant)} golds have no text in the corpus "
            f"({first_three(relevant['docno'][~has_text].unique())}): they are left out, never replaced",
            stacklevel=3,
        )
    if not keep.any():
        raise ValueError(
            f"no question is left to train on: of {len(topics)} questions {int(judged.sum())} are judged, "
            f"{int(with_text.sum())} have a gold with a text, and {int((with_text & empty).sum())} of these "
            "have an empty query"
        )
    questions = topics.assign(formed=formed.to_numpy(), alone=_alone(former, topics))[keep.to_numpy()].reset_index(
        drop=True
    )
    return questions, golds.of(questions["qid"]), counts


def _formed(former: pt.Transformer, topics: pd.DataFrame) -> pd.Series:
    """The query that the former makes of each row, in the order of ``topics``."""
    formed = former.transform(topics)
    by_qid = dict(zip(formed["qid"].astype(str), formed["query"], strict=True))
    missing = [qid for qid in topics["qid"] if qid not in by_qid]
    if missing:
        raise ValueError(f"the form lost {len(missing)} questions ({first_three(missing)})")
    return pd.Series([by_qid[qid] for qid in topics["qid"]], index=topics.index, dtype=object)


def _alone(former: pt.Transformer, topics: pd.DataFrame) -> list[str]:
    """The query without any history: what ``mask_history`` trains with; '' where the form is not one of parts."""
    from pt_convsearch.forming import Form

    if not isinstance(former, Form) or "qhistory" not in topics.columns:
        return [""] * len(topics)
    return _formed(
        former, topics.assign(qhistory=pd.Series([[]] * len(topics), index=topics.index, dtype=object))
    ).tolist()


def _holds_pairs(folder: Path) -> bool:
    """Whether a folder holds a mined set, be it damaged."""
    meta = _files.json_or_none(folder / META)
    kind = meta.get("type") if isinstance(meta, dict) else None
    return kind == "training_pairs" or (kind is None and (folder / PAIRS).is_file())


def _existing(
    target: Path, settings: dict[str, Any], num_negatives: int, seed: int, miner: pt.Transformer | None
) -> TrainingPairs | None:
    """The set at ``target`` if it is the one that was asked for; None where there is none, or only a damaged one."""
    if not (target / META).is_file():
        return None
    try:
        pairs = TrainingPairs(target)
    except ValueError as error:
        warnings.warn(f"{error}; mining anew", stacklevel=3)
        return None
    asked = {**settings, "num_negatives": num_negatives, "seed": seed}
    different = compared(pairs.settings, asked, miner)
    if different:
        by_path = ""
        if "former" not in pairs.settings and {*different} <= {"negatives", "miner"}:
            by_path = (
                f". In its settings the path of the index counts ({pairs.settings['negatives']}), as it no longer "
                f"does: if only that changed, cs.TrainingPairs({str(target)!r}) opens the set as it is"
            )
        raise ValueError(
            f"{target} was mined with other settings ({', '.join(different)}): choose another folder, "
            f"or overwrite=True{by_path}"
        )
    logger.info("%s holds this training set: nothing is mined", target)
    return pairs


def _report(pairs: TrainingPairs) -> None:
    logger.info("%r: %s", pairs, pairs.counts)
    short = pairs.counts["fewer negatives than asked for"]
    if pairs.num_negatives and not pairs.counts["negatives"]:
        warnings.warn(
            "the miner left no negative for any question: is the retriever as deep as the ranks that are asked for "
            f"(num_results), does a filter drop everything? {pairs.counts}",
            stacklevel=3,
        )
    elif short:
        logger.warning("%d questions have fewer than %d negatives: see shortages()", short, pairs.num_negatives)
    samples = pairs.samples(np.sort(order(0, 0, len(pairs))[:_SURFACE_SAMPLE]), num_negatives=1)
    texts = pairs.passages()["text"]
    for said in surface_warnings(
        texts.iloc[[sample.positive for sample in samples]].tolist(),
        texts.iloc[[int(row) for sample in samples for row in sample.negatives]].tolist(),
    ):
        warnings.warn(f"{said}: a model will learn that instead of relevance", stacklevel=3)
