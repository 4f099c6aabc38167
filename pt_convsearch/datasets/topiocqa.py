"""TopiOCQA: conversations that switch between topics of Wikipedia (Adlakha et al., 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, stream_lines
from pt_convsearch.datasets.formats import field, read_records
from pt_convsearch.datasets.rows import TopicRows, alternating, qrels_frame, unquoted
from pt_convsearch.datasets.source import File, Source

SPLITS = ("train", "dev")
_URL = "https://zenodo.org/record"

#: as the paper states them
_COUNTS = {"train": {"turns": 45450, "conversations": 3509}, "dev": {"turns": 2514, "conversations": 205}}

SOURCE = Source(
    key="topiocqa",
    title="TopiOCQA",
    homepage="https://github.com/McGill-NLP/topiocqa",
    licence="CC BY-NC-SA 4.0",
    citation="Adlakha et al., TopiOCQA, TACL 10 (2022), arXiv:2110.00768",
    counts={"passages": 25700592},
    files=(
        *(
            File(
                split,
                f"topiocqa_{split}.json",
                f"{_URL}/7709644/files/topiocqa_{split}.json",
                optional=split == "train",
                aliases=(f"topiocqa_{'train' if split == 'train' else 'valid'}.jsonl",),
            )
            for split in SPLITS
        ),
        *(
            File(
                f"gold-{split}",
                f"gold_passages_info/all_history/{split}.json",
                f"{_URL}/6151011/files/data/gold_passages_info/all_history/{split}.json",
                optional=split == "train",
                aliases=(f"topiocqa_all_history_{split}.json",),
            )
            for split in SPLITS
        ),
        File(
            "corpus",
            "full_wiki_segments.tsv",
            f"{_URL}/6149599/files/data/wikipedia_split/full_wiki_segments.tsv",
            optional=True,
        ),
    ),
)


class TopiOCQA(Dataset):
    """One split of TopiOCQA.

    ``get_topics()``: qid ("dev-12-3": split, conversation, turn), query, qhistory, conversation_id ("dev-12"),
    turn_number, answer, and where the file has labels ``qtopic`` and ``qsection`` (page and section of Wikipedia) and
    ``qtype``: "first", "switch" where the topic is another than at the turn before, else "no-switch".
    ``get_topics("sections")``: the same, but a new section is a switch, too. Both are derived from the file's labels.
    ``get_topics("gold")`` reads the file of gold passages, in which a question holds its history (``q1 [SEP] a1 [SEP]
    q2``) and has no labels. ``get_qrels()``: from that file; ``get_qrels("turns")`` from the ``Gold_passage`` of the
    turns, where they have it. ``get_corpus_iter()``: docno (the number in the passage file), title (page and section),
    text, streamed.

    Args:
        split: "train" or "dev" (the published test set has no answers).
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("topiocqa/dev")         # data.get_topics(), then Experiment(…, by="qtype")
    """

    source = SOURCE
    topics_variants = ("topics", "sections", "gold")
    qrels_variants = ("gold", "turns")

    def __init__(self, split: str, **options: Any):
        super().__init__(f"topiocqa/{split}", **options)
        self.split = split

    @property
    def counts(self) -> dict[str, int]:
        return {**_COUNTS[self.split], "passages": SOURCE.counts["passages"]}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        if variant == "gold":
            return read_gold_topics(self.file(f"gold-{self.split}"), self.split)
        return read_topics(self.file(self.split), self.split, sections=variant == "sections")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.qrels_variants)
        key = f"gold-{self.split}" if variant == "gold" else self.split
        return qrels_frame(_judgments(self.file(key), self.split, gold=variant == "gold"))

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        return counted(read_segments(self.file("corpus")), verbose=verbose, total=25700592, name="topiocqa")


def read_topics(path: Path, split: str, *, sections: bool = False) -> pd.DataFrame:
    """Topics from ``topiocqa_SPLIT.json`` (a list, or JSON Lines).

    Raises:
        ValueError: no such file, or a turn twice; named by file and line.
    """
    rows = TopicRows(path)
    turns = []
    labels: dict[tuple[str, int], tuple[str | None, ...]] = {}
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        conversation, number = _conversation(item, "Conversation_no", where), field(item, "Turn_no", int, where)
        context = field(item, "Context", list, where, [])
        if any(not isinstance(text, str) for text in context):
            raise ValueError(f"{where}: field 'Context' is no list of texts")
        topic = field(item, "Topic", str, where, None)
        section = field(item, "Topic_section", str, where, None)
        labels[conversation, number] = (topic, section) if sections else (topic,)
        turns.append((line, item, conversation, number, context, topic, section))
    for line, item, conversation, number, context, topic, section in turns:
        where = f"{path}, line {line}"
        before = labels.get((conversation, number - 1))
        now = labels[conversation, number]
        qtype = (
            None
            if topic is None
            else "first"
            if number == 1
            else None
            if before is None
            else "no-switch"
            if before == now
            else "switch"
        )
        rows.add(
            line,
            f"{split}-{conversation}-{number}",
            field(item, "Question", str, where),
            alternating(context),
            qtype=qtype,
            conversation_id=f"{split}-{conversation}",
            turn_number=number,
            answer=field(item, "Answer", str, where, ""),
            qtopic=topic,
            qsection=section,
        )
    return rows.frame()


def read_gold_topics(path: Path, split: str) -> pd.DataFrame:
    """Topics from a file of ``gold_passages_info/all_history``.

    Raises:
        ValueError: no such file, or a turn twice; named by file and line.
    """
    rows = TopicRows(path)
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        conversation, number = (
            _conversation(item, "conv_id", where),
            int(_conversation(item, "turn_id", where, digits=True)),
        )
        *context, question = field(item, "question", str, where).split(" [SEP] ")
        answers = field(item, "answers", list, where, [])
        rows.add(
            line,
            f"{split}-{conversation}-{number}",
            question,
            alternating(context),
            conversation_id=f"{split}-{conversation}",
            turn_number=number,
            answer=str(answers[0]) if answers else "",
        )
    return rows.frame()


def read_segments(path: Path) -> Iterator[dict[str, Any]]:
    """Passages of ``full_wiki_segments.tsv``: a header, then id, text, title, quoted as Python's csv module writes.

    Raises:
        ValueError: a line without three fields, named by file and line.
    """
    for name, number, line in stream_lines(path):
        fields = [unquoted(value) for value in line.split("\t")]
        if len(fields) != 3:
            raise ValueError(
                f"{name}, line {number}: {len(fields)} tab-separated fields where 3 (id, text, title) are due"
            )
        docno, text, title = fields
        if docno == "id" and number == 1:
            continue
        if not docno:
            raise ValueError(f"{name}, line {number}: an empty id")
        yield {"docno": docno, "text": text, "title": " ".join(title.split(" [SEP] "))}


def _judgments(path: Path, split: str, *, gold: bool) -> Iterator[tuple[str, str, int]]:
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        if gold:
            qid = (
                f"{split}-{_conversation(item, 'conv_id', where)}-{_conversation(item, 'turn_id', where, digits=True)}"
            )
            passages = field(item, "positive_ctxs", list, where)
        else:
            qid = f"{split}-{_conversation(item, 'Conversation_no', where)}-{field(item, 'Turn_no', int, where)}"
            passage = field(item, "Gold_passage", dict, where, None)
            passages = [passage] if passage else []
        for passage in passages:
            if not isinstance(passage, dict):
                raise ValueError(f"{where}: a gold passage is {passage!r:.60}, not an object")
            docno = passage.get("passage_id") or passage.get("id")
            if not isinstance(docno, str | int) or isinstance(docno, bool):
                raise ValueError(f"{where}: a gold passage without 'passage_id'")
            yield qid, str(docno).removeprefix("wiki:"), 1


def _conversation(item: dict[str, Any], name: str, where: str, *, digits: bool = False) -> str:
    value = str(field(item, name, (int, str), where))
    if not value or (digits and not value.isdecimal()):
        raise ValueError(f"{where}: field {name!r} holds {value!r}")
    return value


@register("topiocqa")
def _topiocqa(rest: str = "", **options: Any) -> Dataset:
    if rest not in SPLITS:
        raise KeyError(f"no data set is called 'topiocqa/{rest}': topiocqa/train, topiocqa/dev")
    return TopiOCQA(rest, **options)


_topiocqa.names = SPLITS  # type: ignore[attr-defined]
