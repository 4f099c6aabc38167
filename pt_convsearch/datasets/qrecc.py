"""QReCC: 14K conversations, 54M web passages (Anantha et al., 2021), as Kim & Kim (2022) split and judge it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.cache import home
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.formats import field, read_json, read_qrels, read_records
from pt_convsearch.datasets.rows import TopicRows, alternating, qrels_frame, said
from pt_convsearch.datasets.source import File, Source

logger = logging.getLogger(__name__)
SPLITS = ("train", "dev", "test")
FORMS = ("cs-shortcut", "scai", "apple")

_NAVER = "https://raw.githubusercontent.com/naver-ai/cs-shortcut/b83352c704715a749f2b8d742c70eca1245d5146/assets/qrecc"
_SCAI = "https://zenodo.org/records/5543685/files"
_SEEN = "read from a copy of the file"

#: turns, conversations and judged turns of a split, counted in its judgments; 2,775 and 2,000 are the paper's, too
_COUNTS = {
    "train": {},
    "dev": {"turns": 11573, "conversations": 2000, "judged turns": 5313},
    "test": {"turns": 16451, "conversations": 2775, "judged turns": 8209},
}

SOURCE = Source(
    key="qrecc",
    title="QReCC",
    homepage="https://github.com/apple/ml-qrecc",
    licence="CC BY-SA 3.0 (questions, answers, rewrites); CC BY-NC 4.0 (split, judgments and types of "
    "naver-ai/cs-shortcut); passages: web pages of their owners",
    citation="Anantha et al., NAACL 2021, arXiv:2010.04898; for split, judgments and types "
    "Kim and Kim, EMNLP 2022, arXiv:2202.07280",
    counts={"passages": 54573064},
    files=(
        File("train", "train.json", f"{_NAVER}/train.json", optional=True),
        File("dev", "dev.json", f"{_NAVER}/dev.json", optional=True),
        File("test", "test.json", f"{_NAVER}/test.json"),
        File(
            "qrels-test",
            "qrels.txt",
            f"{_NAVER}/qrels.txt",
            size=1480287,
            sha256="78501c85b464030c296470240f81ab118d9129768829bbc9f8246c6ca92c5fdc",
            checked=_SEEN,
        ),
        File(
            "qrels-dev",
            "qrels_dev.txt",
            f"{_NAVER}/qrels_dev.txt",
            size=802023,
            sha256="51e641bbae50148e261a56c909f014269ead1f37d2398434baf4e8c5d8b07ce0",
            checked=_SEEN,
            optional=True,
        ),
        File(
            "types",
            "test_question_types.json",
            f"{_NAVER}/test_question_types.json",
            size=247689,
            sha256="75c4b01d136b42929544bc74b96dd044a87eaa88e37c56437ce020038e33bc7f",
            checked=_SEEN,
        ),
        File(
            "scai-train", "scai-qrecc21-training-turns.json", f"{_SCAI}/scai-qrecc21-training-turns.json", optional=True
        ),
        File(
            "scai-test",
            "scai-qrecc21-test-turns.json",
            f"{_SCAI}/scai-qrecc21-test-turns.json",
            optional=True,
            checked="read from 95 turns that the shared task's repository holds",
        ),
        File(
            "apple",
            "qrecc_data.zip",
            "https://github.com/apple/ml-qrecc/raw/main/dataset/qrecc_data.zip",
            optional=True,
        ),
        File("apple-train", "qrecc_train.json", archive="apple", optional=True),
        File("apple-test", "qrecc_test.json", archive="apple", optional=True),
        File("corpus", "passages.zip", "https://zenodo.org/record/5115890/files/passages.zip", optional=True),
        File("corpus-dev", "dev_blocks.jsonl.tar.gz", f"{_NAVER}/dev_blocks.jsonl.tar.gz", optional=True),
    ),
)


class QReCC(Dataset):
    """One split of QReCC.

    ``get_topics()``: qid ("12_3"), query, qhistory (raw questions and gold answers, uncut), qrewrite, conversation_id,
    turn_number, answer, ``qsource`` (trec, quac, nq), and for the test split ``qtype`` (first, switch, no-switch as
    published: most questions have none). Turns without judgment and without answer stay: later turns need them as
    history.
    ``get_qrels()``: without the ``{"": 1}`` that mean "no judgment". ``get_qrels("turns")``: the passages that the
    turns themselves name. ``get_corpus_iter()``: docno (a URL with paragraph, up to 484 characters) and text, streamed.

    Args:
        split: "train", "dev" (2,000 conversations that Kim & Kim cut from train) or "test".
        form: whose files: "cs-shortcut" (that split), "scai" (the shared task's), "apple" (the first release; no dev,
            and no passages named).
        ids: "plain", as published, or "split": ids begin with the split ("dev_12_3"), since 2,554 ids of dev and test
            are the same and mean different questions.
        collection: "full" or "dev" (the passages of cs-shortcut's dev collection).
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Raises:
        ValueError: an unknown split, form or way of ids.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("qrecc/test", ids="split")          # data.get_topics(), data.get_qrels()
    """

    source = SOURCE
    qrels_variants = ("published", "turns")

    def __init__(
        self, split: str, *, form: str = "cs-shortcut", ids: str = "plain", collection: str = "full", **options: Any
    ):
        super().__init__(f"qrecc/{split}", **options)
        for name, value, known in (
            ("form", form, FORMS),
            ("ids", ids, ("plain", "split")),
            ("collection", collection, ("full", "dev")),
        ):
            if value not in known:
                raise ValueError(f"convsearch:qrecc: {name} is one of {', '.join(known)}, not {value!r}")
        if split == "dev" and form != "cs-shortcut":
            raise ValueError(f"convsearch:qrecc/dev: the dev split is cs-shortcut's own, form={form!r} has none")
        self.split, self.form, self.ids, self.collection = split, form, ids, collection

    @property
    def counts(self) -> dict[str, int]:
        return {**_COUNTS[self.split], "passages": SOURCE.counts["passages"]}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        topics = read_turns(self._turns_file())
        if self.split == "test":
            try:
                lists = self._types()
            except FileNotFoundError as error:
                warnings.warn(f"no question types (qtype, qsource): {error}", stacklevel=2)
            else:
                topics["qtype"] = _labelled(topics["qid"], lists, ("first", "switch", "no-switch"))
                sources = _labelled(topics["qid"], lists, ("trec", "quac", "nq"))
                topics["qsource"] = topics["qsource"].fillna(sources) if "qsource" in topics else sources
        return self._with_ids(topics)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.qrels_variants)
        if variant == "turns" or self.split == "train":
            qrels = qrels_of_turns(self._turns_file())
        else:
            qrels = read_qrels(self.file(f"qrels-{self.split}"))
        return self._with_ids(qrels)

    def get_question_types(self) -> dict[str, str]:
        """qid -> first, switch or no-switch, as published for the test split (959, 573, 279)."""
        if self.split != "test":
            raise NotImplementedError(
                f"convsearch:{self.name} has no published question types: only the test split has"
            )
        lists = self._types()
        return {self._id(qid): label for label in ("first", "switch", "no-switch") for qid in lists[label]}

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        passages = json_passages(self._corpus_file(), docno=("id",), text=("contents",), title=None)
        return counted(passages, verbose=verbose, total=54573064 if self.collection == "full" else None, name="qrecc")

    def _turns_file(self) -> Path:
        return self.file(self.split if self.form == "cs-shortcut" else f"{self.form}-{self.split}")

    def _corpus_file(self) -> Path:
        key, folder = (
            ("corpus", "collection-paragraph") if self.collection == "full" else ("corpus-dev", "dev_blocks.jsonl")
        )
        unpacked = (self.path or home() / SOURCE.key) / folder
        if key not in self.files and unpacked.exists():
            return unpacked
        return self.file(key)

    def _types(self) -> dict[str, list[str]]:
        path = self.file("types")
        lists = read_json(path)
        for label in ("trec", "quac", "nq", "first", "switch", "no-switch"):
            if not isinstance(lists, dict) or not isinstance(lists.get(label), list):
                raise ValueError(f"{path}, line 1: no list {label!r}: is it the file of question types?")
        return lists

    def _id(self, qid: str) -> str:
        return f"{self.split}_{qid}" if self.ids == "split" else qid

    def _with_ids(self, frame: pd.DataFrame) -> pd.DataFrame:
        if self.ids == "split":
            for name in ("qid", "conversation_id"):
                if name in frame:
                    frame[name] = self.split + "_" + frame[name]
        return frame


def read_turns(path: Path) -> pd.DataFrame:
    """Topics from a file of QReCC's turns: Apple's, the shared task's or cs-shortcut's.

    The history of a turn is its ``Context`` where it has one, else the questions and answers of the conversation's
    earlier turns in the file.

    Raises:
        ValueError: no such file, or a turn twice; named by file and line.
    """
    turns = _read(path)
    rows = TopicRows(path)
    conversations: dict[str, list[dict[str, Any]]] = {}
    gaps = 0
    for turn in turns:
        conversations.setdefault(turn["conversation"], []).append(turn)
    histories: dict[int, list[dict[str, str]]] = {}
    for said_so_far in conversations.values():
        history: list[dict[str, str]] = []
        for due, turn in enumerate(sorted(said_so_far, key=lambda one: one["number"]), 1):
            gaps += turn["context"] is None and turn["number"] != due
            histories[id(turn)] = list(history) if turn["context"] is None else alternating(turn["context"])
            history.append(said("user", turn["question"]))
            if turn["answer"].strip():
                history.append(said("assistant", turn["answer"]))
    if gaps:
        warnings.warn(
            f"{path}: {gaps} of {len(turns)} turns come after turns that the file lacks: their history is not whole",
            stacklevel=3,
        )
    for turn in turns:
        rows.add(
            turn["line"],
            f"{turn['conversation']}_{turn['number']}",
            turn["question"],
            histories[id(turn)],
            qrewrite=turn["rewrite"],
            conversation_id=turn["conversation"],
            turn_number=turn["number"],
            answer=turn["answer"],
            qsource=turn["source"],
        )
    return rows.frame()


def qrels_of_turns(path: Path) -> pd.DataFrame:
    """Judgments from the ``Truth_passages`` of a file of turns; a turn without any has none.

    Raises:
        ValueError: no such file; named by file and line.
    """
    turns = _read(path, questions=False)
    return qrels_frame(
        (f"{turn['conversation']}_{turn['number']}", docno, 1) for turn in turns for docno in turn["passages"] if docno
    )


def _read(path: Path, *, questions: bool = True) -> list[dict[str, Any]]:
    turns = []
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        question = next((key for key in ("Question", "Rewrite_or_question") if item.get(key) is not None), "Question")
        number = field(item, "Turn_no", int, where)
        if number < 1:
            raise ValueError(f"{where}: Turn_no is {number}: turns are counted from 1")
        passages = item.get("Truth_passages") or []
        if isinstance(passages, dict):
            passages = list(passages)
        texts = item.get("Context")
        for name, values in (("Truth_passages", passages), ("Context", texts or [])):
            if not isinstance(values, list) or any(not isinstance(value, str) for value in values):
                raise ValueError(f"{where}: field {name!r} is no list of texts")
        turns.append(
            {
                "line": line,
                "conversation": str(field(item, "Conversation_no", (int, str), where)),
                "number": number,
                "question": field(item, question, str, where) if questions else "",
                "rewrite": _rewrite(item, where),
                "answer": field(item, "Truth_answer", str, where, field(item, "Answer", str, where, "")),
                "source": field(item, "Conversation_source", str, where, None),
                "passages": passages,
                "context": texts if texts or number == 1 else None,
            }
        )
    return turns


def _rewrite(item: dict[str, Any], where: str) -> str | None:
    rewrite = field(item, "Truth_rewrite", str, where, field(item, "Rewrite", str, where, None))
    return rewrite if rewrite and rewrite.strip() else None


def _labelled(qids: pd.Series, lists: dict[str, list[str]], labels: tuple[str, ...]) -> pd.Series:
    found = {qid: label for label in labels for qid in lists[label]}
    return pd.Series([found.get(qid) for qid in qids], index=qids.index, dtype=str)


@register("qrecc")
def _qrecc(rest: str = "", **options: Any) -> Dataset:
    if rest not in SPLITS:
        raise KeyError(f"no data set is called 'qrecc/{rest}': qrecc/train, qrecc/dev, qrecc/test")
    return QReCC(rest, **options)


_qrecc.names = SPLITS  # type: ignore[attr-defined]
