"""TREC iKAT 2023 to 2025: personal assistants that know statements about their user (PTKB)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.formats import field, read_qrels, read_records
from pt_convsearch.datasets.rows import TopicRows, said
from pt_convsearch.datasets.source import File, Source

_COMMIT = "05399308a3cf4eb56b35bed8bee0771e4f8f1404"
_REPO = f"https://raw.githubusercontent.com/irlabamsterdam/iKAT/{_COMMIT}"
_SEEN = f"read from the file of commit {_COMMIT[:7]}"
_PASSAGES = File(
    "corpus",
    "passages",
    how="The passages are cut from ClueWeb22-B, which needs a licence from CMU (https://lemurproject.org/clueweb22/): "
    "the track hands them out to licensees as .jsonl.bz2 files of {id, contents}. Give the folder as "
    "files={'corpus': FOLDER}.",
    optional=True,
)


def _source(name: str, files: tuple[File, ...], **counts: int) -> Source:
    return Source(
        key=f"ikat/{name}",
        title=f"TREC iKAT {name}",
        homepage="https://github.com/irlabamsterdam/iKAT",
        licence="MIT (topics); judgments: NIST; passages: ClueWeb22-B, by agreement with CMU",
        citation=f"Aliannejadi et al., the iKAT overview in the proceedings of TREC {name[:4]}",
        files=(*files, _PASSAGES),
        counts={**counts, "passages": 116838987},
    )


SOURCES = {
    "2023": _source(
        "2023",
        (
            File(
                "topics",
                "2023_test_topics.json",
                f"{_REPO}/2023/data/2023_test_topics.json",
                size=362388,
                sha256="ff0c1fe67af03cab4b563f628736ca924b9b450212e0dd66daa2d9a7d1e1a883",
                checked=_SEEN,
            ),
            File("qrels", "2023-qrels.all-turns.txt", "https://trec.nist.gov/data/ikat/2023-qrels.all-turns.txt"),
            File(
                "ptkb-nist",
                "ptkb_rel_nist",
                f"{_REPO}/2023/evaluation/ptkb_rel_nist",
                size=13762,
                sha256="a77b50c238df21e44e303f00bc22bfecf5823704c792a6d5387c970d04a5cc00",
                checked=_SEEN,
            ),
            File(
                "ptkb-organisers",
                "ptkb_rel_org",
                f"{_REPO}/2023/evaluation/ptkb_rel_org",
                size=15463,
                sha256="b4c647baec07f9101b538037cafbb71ff6f0111d312b83304202ab6cc04eac36",
                checked=_SEEN,
            ),
        ),
        turns=332,
        conversations=25,
    ),
    "2023/train": _source(
        "2023/train",
        (
            File(
                "topics",
                "2023_train_topics.json",
                f"{_REPO}/data/2023_train_topics.json",
                size=101792,
                sha256="ff52ac0fd49d6bf337679342867214390a2920e57665586df0455d5054c7032d",
                checked=_SEEN,
            ),
        ),
        turns=95,
        conversations=11,
    ),
    "2024": _source(
        "2024",
        (
            File(
                "topics",
                "2024_test_topics.json",
                f"{_REPO}/2024/data/2024_test_topics.json",
                size=277603,
                sha256="c8d5bd52dc59ac49b99a7bdb593be00d889ed27547b1b01ecb422fb7b43da6e3",
                checked=_SEEN,
            ),
            File("qrels", "2024-qrels.txt", "https://trec.nist.gov/data/ikat/2024-qrels.txt"),
        ),
        turns=218,
        conversations=17,
    ),
    "2025": _source(
        "2025",
        (
            File(
                "topics",
                "2025_test_topics.json",
                f"{_REPO}/2025/data/2025_test_topics.json",
                checked="format read from its beginning",
            ),
        ),
    ),
}


class IKAT(Dataset):
    """One year of TREC iKAT.

    ``get_topics()``: qid ("9-1_3"), query, qhistory, qrewrite (the resolved utterance), conversation_id, turn_number,
    answer, ``qtitle``, ``qptkb`` (the statements about the user: a list of {"id", "text"}), ``qptkb_ids`` (ids of
    those that matter for this turn, a list) and ``qprovenance`` (ids of the passages that the response was written
    from, a list). ``get_topics("resolved")`` puts the resolved utterance into ``query``; histories stay raw.
    ``get_qrels()``: judgments of passages, from NIST. ``get_qrels("ptkb-nist")`` and ``"ptkb-organisers"`` (2023): of
    the statements, whose docno is the statement's id.
    ``get_corpus_iter()``: docno, text, from the folder of passages that licensees have (see :meth:`Dataset.file`).

    Args:
        year: "2023", "2023/train", "2024" or "2025".
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("ikat/2024")            # data.get_topics().qptkb[0]
    """

    topics_variants = ("raw", "resolved")

    def __init__(self, year: str, **options: Any):
        self.source = SOURCES[year]
        super().__init__(f"ikat/{year}", **options)
        self.year = year
        self.qrels_variants = tuple(
            file.key for file in self.source.files if file.key == "qrels" or file.key.startswith("ptkb")
        )

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        topics = read_topics(self.file("topics"))
        if variant == "resolved":
            topics["query"] = topics["qrewrite"].where(topics["qrewrite"].notna(), topics["query"])
        return topics

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        if not self.qrels_variants:
            raise NotImplementedError(f"convsearch:{self.name} has no published judgments")
        return read_qrels(self.file(self._variant(variant, self.qrels_variants)))

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        passages = json_passages(self.file("corpus"), docno=("id",), text=("contents", "text"), title=None)
        return counted(passages, verbose=verbose, total=116838987, name="ikat")


def read_topics(path: Path) -> pd.DataFrame:
    """Topics from any of iKAT's JSON files of topics; see :class:`IKAT` for the columns.

    Raises:
        ValueError: no such file, or a turn twice; named by file and line.
    """
    rows = TopicRows(path)
    for line, topic in read_records(path):
        number = str(field(topic, "number", (int, str), f"{path}, line {line}"))
        where = f"{path}, line {line} (topic {number})"
        statements = _statements(topic, where)
        history: list[dict[str, str]] = []
        # 2025 has other names than 2023 and 2024
        for turn in field(topic, "responses" if "turns" not in topic else "turns", list, where):
            if not isinstance(turn, dict):
                raise ValueError(f"{where}: a turn is {turn!r:.60}, not an object")
            at = field(turn, "turn_id", int, where)
            place = f"{where}, turn {at}"
            query = field(turn, "utterance" if "utterance" in turn else "user_utterance", str, place)
            answer = field(turn, "response", str, place, "")
            provenance = _texts(turn, ("response_provenance", "citations"), place)
            rows.add(
                line,
                f"{number}_{at}",
                query,
                list(history),
                qrewrite=field(turn, "resolved_utterance", str, place, None),
                conversation_id=number,
                turn_number=at,
                answer=answer,
                qtitle=field(topic, "title", str, where, None),
                qptkb=statements,
                qptkb_ids=_used(turn, statements, place),
                qprovenance=provenance,
            )
            history.append(said("user", query))
            if answer.strip():
                history.append(said("assistant", answer, provenance[0] if len(provenance) == 1 else None))
    return rows.frame()


def _statements(topic: dict[str, Any], where: str) -> list[dict[str, str]]:
    """The statements, in the file's order: an object of id and text, or a list, numbered from 1."""
    found = field(topic, "ptkb", (dict, list), where, {})
    pairs = found.items() if isinstance(found, dict) else enumerate(found, 1)
    statements = [{"id": str(name), "text": text} for name, text in pairs]
    if any(not isinstance(one["text"], str) for one in statements):
        raise ValueError(f"{where}: field 'ptkb' holds a statement that is no text")
    return statements


def _used(turn: dict[str, Any], statements: list[dict[str, str]], where: str) -> list[str]:
    """Ids of the statements that a turn uses: given as numbers (2023, 2024) or as texts (2025)."""
    ids = {one["id"] for one in statements}
    by_text = {one["text"]: one["id"] for one in statements}
    used = []
    for one in field(turn, "ptkb_provenance", list, where, field(turn, "relevant_ptkbs", list, where, [])):
        name = str(one) if str(one) in ids else by_text.get(one) if isinstance(one, str) else None
        if name is None:
            raise ValueError(f"{where}: the turn names the statement {one!r:.60}, which the topic has not")
        used.append(name)
    return used


def _texts(turn: dict[str, Any], names: tuple[str, ...], where: str) -> list[str]:
    for name in names:
        values = field(turn, name, list, where, None)
        if values is not None:
            if any(not isinstance(value, str) for value in values):
                raise ValueError(f"{where}: field {name!r} is no list of texts")
            return list(values)
    return []


@register("ikat")
def _ikat(rest: str = "", **options: Any) -> Dataset:
    if rest not in SOURCES:
        raise KeyError(f"no data set is called 'ikat/{rest}': {', '.join(f'ikat/{year}' for year in SOURCES)}")
    return IKAT(rest, **options)


_ikat.names = tuple(SOURCES)  # type: ignore[attr-defined]
