"""TREC CAsT 2019 to 2022: the Conversational Assistance Track."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.cast_files import SOURCES
from pt_convsearch.datasets.cast_topics import Turn, history_of, read_conversations, read_resolved
from pt_convsearch.datasets.formats import read_qrels, read_run
from pt_convsearch.datasets.rows import TopicRows, column
from pt_convsearch.topics.checks import first_three

logger = logging.getLogger(__name__)
VARIANTS = ("raw", "automatic", "manual")
_COLLECTIONS = {"2019": "v1", "2020": "v1", "2021": "v2", "2022": "v3"}


class CAsT(Dataset):
    """One year of TREC CAsT.

    ``get_topics()``: qid ("31_4"; in 2022 "132_1-3"), query, qhistory, qrewrite (the manual rewrite), ``qautomatic``
    (the organisers' automatic one, where published), conversation_id, turn_number, answer (the canonical response,
    2021 and 2022), ``qtitle`` and ``qdescription`` where the file has them, ``qcanonical`` (the id of the canonical
    result, "MARCO_D59865-7" in 2021), ``qprovenance`` (2022: ids of the passages that the answer was written from).
    Messages of the assistant carry ``docno``. The variants put another text into ``query``: "raw" what was said,
    "automatic" or "manual" the rewrite; the histories stay raw.

    2022's conversations are trees: a conversation here is one path from the first question to a last one, and a
    question that several paths share is one row, with the one history it can have. conversation_id is "132_" and the
    name of the branch that the turn hangs on ("132_2" for turn 2-3); turn_number counts the user's turns from the
    first question of the path.

    Rewrites are joined on qid, never on position: a file that lacks or has more turns than another is told by a
    warning that names them.

    ``get_qrels()``: as published: passages in 2019, 2020 and 2022, documents in 2021 ("MARCO_D684519"). In 2021
    ``get_qrels("passages")`` raises, since nobody judged them. ``get_results("org_manual_bm25.run")``: a published
    baseline (2021): ``.run`` ranks documents, ``.trec`` passages.

    The passages are from MS MARCO, Wikipedia and the Washington Post; ``get_corpus_iter()`` reads them through
    :mod:`ir_datasets` (``trec-cast/v0`` to ``/v3``, as far as the installed version has them), which says how to get
    them.

    Args:
        year: "2019", "2019/train", "2020", "2021" or "2022".
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("cast/2020")            # data.get_topics("manual"), data.get_qrels()
    """

    def __init__(self, year: str, **options: Any):
        self.source = SOURCES[year]
        super().__init__(f"cast/{year}", **options)
        self.year = year
        self.topics_variants = ("raw", "manual") if year.startswith("2019") else VARIANTS
        self.qrels_variants = ("documents",) if year == "2021" else ("passages",)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        automatic_only = variant == "automatic" and self._has("topics-automatic")
        topics = read_topics(self.file("topics-automatic" if automatic_only else "topics"))
        self._join(topics, "qrewrite", self._rewrites("rewrite"), needed=variant == "manual")
        self._join(topics, "qautomatic", self._rewrites("automatic"), needed=variant == "automatic")
        if variant != "raw":
            name = {"automatic": "qautomatic", "manual": "qrewrite"}[variant]
            lacking = topics["qid"][topics[name].isna()] if name in topics else topics["qid"]
            if len(lacking):
                warnings.warn(
                    f"convsearch:{self.name}: {len(lacking)} of {len(topics)} questions have no {variant} rewrite "
                    f"({first_three(lacking)}): they stay as they were said",
                    stacklevel=2,
                )
            if name in topics:
                topics["query"] = topics[name].where(topics[name].notna(), topics["query"])
        return topics

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        self._variant(variant, self.qrels_variants)
        return read_qrels(self.file("qrels"))

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """A published run: qid, docno, rank, score, tag."""
        assert self.source is not None
        runs = tuple(file.key for file in self.source.files if file.key.startswith("org_"))
        return read_run(self.file(self._variant(variant, runs)))

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        name = f"trec-cast/{'v0' if self.year == '2019/train' else _COLLECTIONS[self.year]}"
        import ir_datasets

        if name not in ir_datasets.registry:
            raise NotImplementedError(
                f"convsearch:{self.name}: the installed ir_datasets has no {name!r}. The track's own tools "
                "(https://github.com/grill-lab/trec-cast-tools) cut the passages from MS MARCO, KILT and Washington "
                "Post: index what they write"
            )
        import pyterrier as pt

        return iter(pt.get_dataset(f"irds:{name}").get_corpus_iter(verbose=verbose))

    def _has(self, key: str) -> bool:
        assert self.source is not None
        return any(file.key == key for file in self.source.files)

    def _rewrites(self, kind: str) -> dict[str, str] | None:
        """qid -> rewrite from a file of its own; None where the year has none or it is not there."""
        key = {"rewrite": "resolved", "automatic": "topics-automatic"}[kind]
        if not self._has(key):
            return None
        try:
            path = self.file(key)
        except FileNotFoundError as error:
            logger.info("no %s rewrites: %s", kind, error)
            return None
        if kind == "rewrite":
            return read_resolved(path)
        return dict(rewrites_in(path, kind))

    def _join(self, topics: pd.DataFrame, name: str, found: dict[str, str] | None, *, needed: bool) -> None:
        if found is None:
            return
        own = topics[name] if name in topics else pd.Series([None] * len(topics))
        values = [found.get(qid, mine) for qid, mine in zip(topics["qid"], own, strict=True)]
        topics[name] = column([None if pd.isna(value) else value for value in values])
        qids = set(topics["qid"])
        left = [qid for qid in topics["qid"] if qid not in found]
        right = [qid for qid in found if qid not in qids]
        # a sample of rewrites is published for training: lacking ones are no fault there
        if right or (left and (needed or self.year != "2019/train")):
            warnings.warn(
                f"convsearch:{self.name}: the file of {name} has no {first_three(left) if left else 'lack'} "
                f"({len(left)}), "
                f"and {first_three(right) if right else 'nothing'} more ({len(right)})",
                stacklevel=3,
            )


def read_topics(path: Path) -> pd.DataFrame:
    """Topics from any of CAsT's JSON files of topics; see :class:`CAsT` for the columns.

    Raises:
        ValueError: no such file, or one turn with two utterances or two histories; named by file and line.
    """
    rows = TopicRows(path)
    known: dict[str, tuple[int, str, list[dict[str, str]]]] = {}
    twofold: dict[str, None] = {}
    for line, topic, item, turns in read_conversations(path):
        for at, turn in enumerate(turns):
            qid, history = f"{topic}_{turn['number']}", history_of(turns[:at])
            if qid in known and _is_path(turn):
                before, utterance, other = known[qid]
                if utterance != turn["utterance"]:
                    raise ValueError(f"{path}, line {line}: turn {qid!r} was said otherwise in line {before}")
                if other != history:
                    twofold[qid] = None
                continue
            rows.add(line, qid, turn["utterance"], history, **_columns(topic, item, turn, at))
            known[qid] = (line, turn["utterance"], history)
    if twofold:
        warnings.warn(
            f"{path}: {len(twofold)} turns ({first_three(twofold)}) stand on paths with different histories: "
            "the first is kept",
            stacklevel=3,
        )
    return rows.frame()


def rewrites_in(path: Path, kind: str) -> Iterator[tuple[str, str]]:
    """Yield (qid, text) of the rewrites ("rewrite" for the manual, "automatic") in a file of topics."""
    for _, topic, _, turns in read_conversations(path):
        for turn in turns:
            if turn[kind] is not None:
                yield f"{topic}_{turn['number']}", turn[kind]


def _is_path(turn: Turn) -> bool:
    return "-" in turn["number"]


def _columns(topic: str, item: dict[str, Any], turn: Turn, at: int) -> dict[str, Any]:
    branch = turn["number"].partition("-")[0] if _is_path(turn) else None
    return {
        "qrewrite": turn["rewrite"],
        "qautomatic": turn["automatic"],
        "conversation_id": topic if branch is None else f"{topic}_{branch}",
        "turn_number": at + 1 if branch is not None or not turn["number"].isdecimal() else int(turn["number"]),
        "answer": turn["answer"],
        "qcanonical": turn["docno"],
        "qprovenance": turn["provenance"] or None,
        "qtitle": item.get("title"),
        "qdescription": item.get("description"),
    }


@register("cast")
def _cast(rest: str = "", **options: Any) -> Dataset:
    if rest not in SOURCES:
        raise KeyError(f"no data set is called 'cast/{rest}': {', '.join(f'cast/{year}' for year in SOURCES)}")
    return CAsT(rest, **options)


_cast.names = tuple(SOURCES)  # type: ignore[attr-defined]
