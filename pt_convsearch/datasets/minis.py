"""Small collections that others derived from the large ones for tests, in the formats they have: read from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.folder import DOCNO, TEXT, read_topics as read_folder_topics
from pt_convsearch.datasets.formats import field, iter_jsonl, read_qrels
from pt_convsearch.datasets.rows import TopicRows, said
from pt_convsearch.datasets.source import File, Source

_NO_URL = "It is not published by itself: give the folder as path=."
CAST_SOURCE = Source(
    key="cast21-mini",
    title="CAsT 2021, canonical passages only",
    homepage="https://github.com/daltonj/treccastweb",
    licence="as TREC CAsT 2021; not to be passed on",
    citation="as TREC CAsT 2021",
    files=(
        File("topics", "topics.jsonl", how=_NO_URL, checked="read from a copy"),
        File("corpus", "corpus.jsonl.gz", how=_NO_URL, checked="read from a copy"),
        File("qrels-canonical", "qrels.canonical.txt", how=_NO_URL, checked="read from a copy"),
        File("qrels-grades", "qrels.nist-doc-grade.txt", how=_NO_URL, checked="read from a copy"),
    ),
    counts={"turns": 239, "judged turns": 187, "passages": 183},
)
MTRAG_SOURCE = Source(
    key="mtrag-mini",
    title="MTRAG and MTRAG-UN, judged passages only",
    homepage="https://github.com/IBM/mt-rag-benchmark",
    licence="Apache-2.0; passages as MTRAG",
    citation="as MTRAG",
    files=tuple(
        File(key, name, how=_NO_URL, checked="read from a copy")
        for key, name in (
            ("un-topics", "un.topics.jsonl"),
            ("un-qrels", "un.qrels.txt"),
            ("human-topics", "human.topics.jsonl"),
            ("human-covered", "human.qrels.covered.txt"),
            ("human-all", "human.qrels.all.txt"),
            ("corpus", "corpus.jsonl.gz"),
        )
    ),
    counts={"turns": 1284, "passages": 1712},
)


class CAsT21Mini(Dataset):
    """CAsT 2021 with its canonical passages as the collection: for plumbing, not for claims.

    ``get_topics()``: qid, query, qhistory (the answers are the texts of the passages that it names, where the
    collection has them), qrewrite, ``qautomatic``, conversation_id, turn_number, answer, ``qcanonical``,
    ``qcanonical_grade``. Variants as for :class:`~pt_convsearch.datasets.cast.CAsT`. ``get_qrels()``: the canonical
    passage of the turn; ``get_qrels("grades")``: the grade of the document copied to each passage of it.

    Args:
        **options: those of :class:`~pt_convsearch.datasets.Dataset`; ``path`` is needed.
    """

    source = CAST_SOURCE
    topics_variants = ("raw", "automatic", "manual")
    qrels_variants = ("canonical", "grades")

    def __init__(self, **options: Any):
        super().__init__("cast21-mini", **options)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        path = self.file("topics")
        texts = {passage["docno"]: passage["text"] for passage in self.get_corpus_iter()}
        rows = TopicRows(path)
        for line, item in iter_jsonl(path):
            where = f"{path}, line {line}"
            history = []
            for turn in field(item, "history", list, where):
                history.append(said("user", field(turn, "utterance", str, where)))
                docno = field(turn, "response_docno", str, where, "")
                if texts.get(docno, "").strip():
                    history.append(said("assistant", texts[docno], docno))
            canonical = field(item, "canonical_docno", str, where, None)
            raw = field(item, "utterance", str, where)
            forms = {"raw": raw, "manual": field(item, "manual_rewrite", str, where, None)}
            forms["automatic"] = field(item, "automatic_rewrite", str, where, None)
            rows.add(
                line,
                field(item, "qid", str, where),
                forms[variant] if forms[variant] is not None else raw,
                history,
                qrewrite=forms["manual"],
                conversation_id=str(field(item, "topic", (int, str), where)),
                turn_number=field(item, "turn", int, where),
                answer=texts.get(canonical, "") if canonical else "",
                qautomatic=forms["automatic"],
                qcanonical=canonical,
                qcanonical_grade=_shown(field(item, "canonical_doc_grade", (int, str), where, None)),
            )
        return rows.frame()

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        return read_qrels(self.file(f"qrels-{self._variant(variant, self.qrels_variants)}"))

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        return counted(
            json_passages(self.file("corpus"), docno=DOCNO, text=TEXT), verbose=verbose, total=183, name=self.name
        )


class MTRAGMini(Dataset):
    """The judged passages of MTRAG and MTRAG-UN, four domains pooled, with the tasks that they answer.

    ``get_topics()``: qid, query, qhistory, qrewrite (human), qtype (human: first, no-switch, switch, switch-back,
    derived from the documents of the relevant passages), conversation_id, turn_number, ``qdomain`` and the tasks'
    labels. ``get_qrels()``:
    un: all; human: the 262 turns all of whose relevant passages have a text, ``get_qrels("all")`` all 777.

    Args:
        part: "un" (507 tasks, complete) or "human" (777 turns of 110 conversations).
        **options: those of :class:`~pt_convsearch.datasets.Dataset`; ``path`` is needed.
    """

    source = MTRAG_SOURCE

    def __init__(self, part: str, **options: Any):
        super().__init__(f"mtrag-mini/{part}", **options)
        self.part = part
        self.qrels_variants = ("covered", "all") if part == "human" else ("qrels",)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        return read_folder_topics(self.file(f"{self.part}-topics"))

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        return read_qrels(self.file(f"{self.part}-{self._variant(variant, self.qrels_variants)}"))

    def get_question_types(self) -> dict[str, str]:
        """qid -> first, no-switch, switch or switch-back (human)."""
        topics = self.get_topics()
        if "qtype" not in topics:
            return super().get_question_types()
        return dict(zip(topics["qid"], topics["qtype"], strict=True))

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        return counted(
            json_passages(self.file("corpus"), docno=DOCNO, text=TEXT), verbose=verbose, total=1712, name=self.name
        )


@register("cast21-mini")
def _cast21_mini(rest: str = "", **options: Any) -> Dataset:
    if rest:
        raise KeyError(f"no data set is called 'cast21-mini/{rest}': cast21-mini")
    return CAsT21Mini(**options)


@register("mtrag-mini")
def _mtrag_mini(rest: str = "", **options: Any) -> Dataset:
    if rest not in ("un", "human"):
        raise KeyError(f"no data set is called 'mtrag-mini/{rest}': mtrag-mini/un, mtrag-mini/human")
    return MTRAGMini(rest, **options)


_mtrag_mini.names = ("un", "human")  # type: ignore[attr-defined]


def _shown(value: Any) -> str | None:
    return None if value is None else str(value)
