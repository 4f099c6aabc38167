"""MTRAG and MTRAG-UN: conversations of people with retrieval-augmented systems, over four domains (IBM)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.formats import field, iter_jsonl, read_qrels
from pt_convsearch.datasets.mtrag_files import DOMAINS, PASSAGES, SOURCE
from pt_convsearch.datasets.rows import TopicRows, said
from pt_convsearch.topics.checks import first_three
from pt_convsearch.topics.messages import as_history

_PREFIX = "|user|: "


class MTRAG(Dataset):
    """MTRAG's retrieval tasks: 777 questions of 110 conversations, all domains or one.

    ``get_topics()``: qid (the conversation's id, "<::>" and the turn, as published), query (without the "|user|: "
    that the file puts before it, and without blanks at its ends), qhistory, qrewrite, conversation_id, turn_number,
    ``qdomain``. The retrieval tasks hold what the user said only; ``get_topics("conversations")`` takes the histories,
    agent's turns and all, and the answers from the generation tasks (reference.jsonl).
    ``get_qrels()``: of the domain, or of all. ``get_corpus_iter()``: docno, text, title of the domain's passages,
    streamed.

    Args:
        domain: "clapnq", "cloud", "fiqa", "govt", or "" for all four.
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("mtrag/govt")           # data.get_topics(), data.get_corpus_iter()
    """

    source = SOURCE
    topics_variants = ("questions", "conversations")

    def __init__(self, domain: str = "", **options: Any):
        super().__init__(f"mtrag/{domain}" if domain else "mtrag", **options)
        self.domains = (domain,) if domain else DOMAINS

    @property
    def counts(self) -> dict[str, int]:
        return _counts(self, {"clapnq": 208, "cloud": 188, "fiqa": 180, "govt": 201})

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        frames = [
            read_tasks(*(self.file(f"{domain}-{part}") for part in ("questions", "lastturn", "rewrite")), domain=domain)
            for domain in self.domains
        ]
        topics = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
        if variant == "conversations":
            full = read_generation_tasks(self.file("reference")).set_index("qid")
            lacking = [qid for qid in topics["qid"] if qid not in full.index]
            if lacking:
                raise ValueError(
                    f"{self.file('reference')}: {len(lacking)} of {len(topics)} retrieval tasks are not in it "
                    f"({first_three(lacking)})"
                )
            rows = full.loc[topics["qid"]]
            topics["qhistory"], topics["answer"] = rows["qhistory"].tolist(), rows["answer"].tolist()
        return topics

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        return pd.concat([read_qrels(self.file(f"{domain}-qrels")) for domain in self.domains], ignore_index=True)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        return _corpus(self, verbose)


class MTRAGUN(Dataset):
    """MTRAG-UN's tasks: 507 questions, one a conversation, with the whole history; 332 have judgments.

    ``get_topics()``: qid, query, qhistory, conversation_id, turn_number, answer, ``qdomain``, ``qanswerability``
    (ANSWERABLE, UNANSWERABLE, UNDERSPECIFIED, PARTIAL), ``qquestion_type``, ``qmulti_turn`` (several labels joined by
    ", "), ``qprovenance`` (ids of the passages that the reference answer was written from; 45 tasks without judgments
    have some). ``get_qrels()``: of the domain, or of all. ``get_corpus_iter()``: as for MTRAG, whose passages these
    are; the two domains that are not published yet (banking, telco) are not here.

    Args:
        domain: "clapnq", "cloud", "fiqa", "govt", or "" for all four.
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("mtrag-un")             # Experiment(…, by="qanswerability")
    """

    source = SOURCE

    def __init__(self, domain: str = "", **options: Any):
        super().__init__(f"mtrag-un/{domain}" if domain else "mtrag-un", **options)
        self.domains = (domain,) if domain else DOMAINS

    @property
    def counts(self) -> dict[str, int]:
        return _counts(self, {"clapnq": 142, "cloud": 131, "fiqa": 77, "govt": 157})

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        topics = read_generation_tasks(self.file("un-reference"))
        return topics[topics["qdomain"].isin(self.domains)].reset_index(drop=True)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        return pd.concat([read_qrels(self.file(f"un-{domain}-qrels")) for domain in self.domains], ignore_index=True)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        return _corpus(self, verbose)


def _counts(data: MTRAG | MTRAGUN, turns: dict[str, int]) -> dict[str, int]:
    return {
        "turns": sum(turns[domain] for domain in data.domains),
        "passages": sum(PASSAGES[domain] for domain in data.domains),
    }


def _corpus(data: MTRAG | MTRAGUN, verbose: bool) -> Iterator[dict[str, Any]]:
    passages = (
        json_passages(data.file(f"{domain}-corpus"), docno=("_id", "id"), text=("text",)) for domain in data.domains
    )
    total = sum(PASSAGES[domain] for domain in data.domains)
    return counted(itertools.chain.from_iterable(passages), verbose=verbose, total=total, name=data.name)


def read_tasks(questions: Path, lastturn: Path, rewrite: Path, *, domain: str) -> pd.DataFrame:
    """Topics from the three files of a domain's retrieval tasks, joined on their ids.

    Raises:
        ValueError: a line that is no such task, or files that disagree; named by file and line.
    """
    last, rewritten = _texts(lastturn), _texts(rewrite)
    rows = TopicRows(questions)
    for line, item in iter_jsonl(questions):
        where = f"{questions}, line {line}"
        qid = field(item, "_id", str, where)
        conversation, number = _conversation(qid, where)
        texts = _said(field(item, "text", str, where), where)
        if len(texts) != number:
            raise ValueError(f"{where}: {len(texts)} questions are said at turn {number} of {conversation!r}")
        if qid in last and last[qid] != texts[-1]:
            raise ValueError(f"{where}: {qid!r} ends with another question than in {lastturn}")
        rows.add(
            line,
            qid,
            texts[-1],
            [said("user", text) for text in texts[:-1]],
            qrewrite=rewritten.get(qid),
            conversation_id=conversation,
            turn_number=number,
            qdomain=domain,
        )
    for path, found in ((lastturn, last), (rewrite, rewritten)):
        more = [qid for qid in found if qid not in rows]
        if len(found) - len(more) < len(rows) or more:
            warnings.warn(
                f"{path} has {len(found) - len(more)} of the {len(rows)} tasks of {questions}, and {len(more)} others "
                f"{'(' + first_three(more) + ')' if more else ''}",
                stacklevel=3,
            )
    return rows.frame()


def read_generation_tasks(path: Path) -> pd.DataFrame:
    """Topics from a file of generation tasks (reference.jsonl).

    Raises:
        ValueError: a line that is no such task; named by file and line.
    """
    rows = TopicRows(path)
    for line, item in iter_jsonl(path):
        where = f"{path}, line {line}"
        qid = field(item, "task_id", str, where)
        conversation, number = _conversation(qid, where)
        messages = as_history(field(item, "input", list, where), where)
        if not messages or messages[-1]["role"] != "user":
            raise ValueError(f"{where}: 'input' does not end with the user's question")
        targets = as_history(field(item, "targets", list, where, []), where)
        domain = field(item, "Collection", str, where, None)
        contexts = field(item, "contexts", list, where, [])
        if any(not isinstance(one, dict) for one in contexts):
            raise ValueError(f"{where}: field 'contexts' is no list of objects")
        rows.add(
            line,
            qid,
            messages[-1]["content"],
            [said(message["role"], message["content"]) for message in messages[:-1]],
            conversation_id=conversation,
            turn_number=number,
            answer=targets[0]["content"] if targets else "",
            qdomain=_domain(domain, where) if domain else None,
            qanswerability=_joined(item, ("answerability", "Answerability"), where),
            qquestion_type=_joined(item, ("Question Type",), where),
            qmulti_turn=_joined(item, ("Multi-Turn",), where),
            qprovenance=[field(one, "document_id", str, where) for one in contexts],
        )
    return rows.frame()


def _texts(path: Path) -> dict[str, str]:
    """qid -> the one question of each line of a lastturn or rewrite file."""
    texts: dict[str, str] = {}
    for line, item in iter_jsonl(path):
        where = f"{path}, line {line}"
        qid, found = field(item, "_id", str, where), _said(field(item, "text", str, where), where)
        if len(found) != 1 or qid in texts:
            raise ValueError(f"{where}: {len(found)} questions for {qid!r}, or the task stands twice: one is due")
        texts[qid] = found[0]
    return texts


def _said(text: str, where: str) -> list[str]:
    if not text.startswith(_PREFIX):
        raise ValueError(f"{where}: the text does not begin with {_PREFIX!r}: {text!r:.60}")
    return [one.strip() for one in text.removeprefix(_PREFIX).split("\n" + _PREFIX)]


def _conversation(qid: str, where: str) -> tuple[str, int]:
    conversation, _, number = qid.rpartition("<::>")
    if not conversation or not number.isdecimal():
        raise ValueError(f"{where}: id {qid!r} is not a conversation, '<::>' and the number of the turn")
    return conversation, int(number)


def _domain(collection: str, where: str) -> str:
    """The domain of a collection's name: one domain goes by several ("ibmcloud", "mt-rag-ibmcloud-elser-…")."""
    found = [domain for domain in DOMAINS if domain in collection]
    return found[0] if len(found) == 1 else collection


def _joined(item: dict[str, Any], names: tuple[str, ...], where: str) -> str | None:
    for name in names:
        value = field(item, name, (list, str), where, None)
        if value is not None:
            return value if isinstance(value, str) else ", ".join(map(str, value))
    return None


def _of(maker: type[MTRAG] | type[MTRAGUN], first: str) -> Any:
    def make(rest: str = "", **options: Any) -> Dataset:
        if rest not in ("", *DOMAINS):
            raise KeyError(
                f"no data set is called '{first}/{rest}': {first}, {', '.join(f'{first}/{one}' for one in DOMAINS)}"
            )
        return maker(rest, **options)

    make.names = ("", *DOMAINS)  # type: ignore[attr-defined]
    return make


register("mtrag")(_of(MTRAG, "mtrag"))
register("mtrag-un")(_of(MTRAGUN, "mtrag-un"))
