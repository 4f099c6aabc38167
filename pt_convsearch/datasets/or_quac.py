"""OR-QuAC: QuAC's questions over 11 million passages of Wikipedia (Qu et al., 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.corpora import counted, json_passages
from pt_convsearch.datasets.formats import field, iter_jsonl, read_qrels
from pt_convsearch.datasets.rows import TopicRows, said
from pt_convsearch.datasets.source import File, Source

SPLITS = ("train", "dev", "test")
_URL = "https://ciir.cs.umass.edu/downloads/ORConvQA"

#: as the paper states them
_COUNTS = {
    "train": {"turns": 31526, "conversations": 4383},
    "dev": {"turns": 3430, "conversations": 490},
    "test": {"turns": 5571, "conversations": 771},
}

SOURCE = Source(
    key="or-quac",
    title="OR-QuAC",
    homepage="https://github.com/prdwb/orconvqa-release",
    licence="CC BY-SA 4.0",
    citation="Qu et al., Open-Retrieval Conversational Question Answering, SIGIR 2020, arXiv:2005.11364",
    counts={"passages": 11377951},
    files=(
        *(
            File(
                split,
                f"preprocessed/{split}.txt",
                f"{_URL}/preprocessed/{split}.txt",
                optional=split == "train",
                aliases=(f"{split}.json",),
            )
            for split in SPLITS
        ),
        File("qrels", "qrels.txt.gz", f"{_URL}/qrels.txt.gz"),
        File("corpus", "all_blocks.txt.gz", f"{_URL}/all_blocks.txt.gz", optional=True),
        File("corpus-dev", "dev_blocks.txt.gz", f"{_URL}/dev_blocks.txt.gz", optional=True),
    ),
)


class ORQuAC(Dataset):
    """One split of OR-QuAC.

    ``get_topics()``: qid ("C_…_0_q#3", as published), query, qhistory, qrewrite, conversation_id ("C_…_0", from before
    the last "#"), turn_number (from 1; the qid counts from 0), answer ("" for CANNOTANSWER, QuAC's mark for none). The
    distributor replaced the first question of every conversation by its rewrite, in the questions and in the histories
    alike; ``qfirst_rewritten`` says for each row whether this is so for its conversation (True where the first
    question equals its rewrite, missing where the file lacks that turn). ``get_topics("questions")`` leaves the
    answers out of the histories: what the paper of the collection searches with. ``get_corpus_iter()``: docno, text,
    title, streamed.

    Args:
        split: "train", "dev" or "test".
        collection: "full" (11 million passages) or "dev" (the small one that models are selected on).
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Raises:
        ValueError: an unknown collection.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("or-quac/dev", collection="dev")    # data.get_topics("questions")
    """

    source = SOURCE
    topics_variants = ("answers", "questions")

    def __init__(self, split: str, *, collection: str = "full", **options: Any):
        super().__init__(f"or-quac/{split}", **options)
        if collection not in ("full", "dev"):
            raise ValueError(f"convsearch:or-quac: collection is full or dev, not {collection!r}")
        self.split, self.collection = split, collection

    @property
    def counts(self) -> dict[str, int]:
        return {**_COUNTS[self.split], "passages": SOURCE.counts["passages"]}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        return read_topics(self.file(self.split), answers=variant == "answers")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        qrels = read_qrels(self.file("qrels"))
        # one file for all splits: those of this one are the questions of its file
        mine = {
            field(item, "qid", str, f"{self.name}, line {line}") for line, item in iter_jsonl(self.file(self.split))
        }
        return qrels[qrels["qid"].isin(mine)].reset_index(drop=True)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        path = self.file("corpus" if self.collection == "full" else "corpus-dev")
        total = 11377951 if self.collection == "full" else None
        return counted(json_passages(path, docno=("id",), text=("text",)), verbose=verbose, total=total, name="or-quac")


def read_topics(path: Path, *, answers: bool = True) -> pd.DataFrame:
    """Topics from a preprocessed file of OR-QuAC (JSON Lines).

    Raises:
        ValueError: a line that is no such turn, or a turn twice; named by file and line.
    """
    rows = TopicRows(path)
    rewritten: dict[str, bool] = {}
    turns = []
    for line, item in iter_jsonl(path):
        where = f"{path}, line {line}"
        qid = field(item, "qid", str, where)
        conversation, _, number = qid.rpartition("#")
        if not number.isdecimal() or not conversation:
            raise ValueError(f"{where}: qid {qid!r} does not end with '#' and the number of the turn")
        question, rewrite = field(item, "question", str, where), field(item, "rewrite", str, where, None)
        if int(number) == 0 and rewrite is not None:
            rewritten[conversation] = question == rewrite
        history = []
        for earlier in field(item, "history", list, where):
            if not isinstance(earlier, dict):
                raise ValueError(f"{where}: the history holds {earlier!r:.60}, not a turn")
            history.append(said("user", field(earlier, "question", str, where)))
            answer = _answer(earlier, where)
            if answers and answer.strip():
                history.append(said("assistant", answer))
        turns.append((line, qid, question, history, rewrite, conversation, int(number) + 1, _answer(item, where)))
    for line, qid, question, history, rewrite, conversation, number, answer in turns:
        rows.add(
            line,
            qid,
            question,
            history,
            qrewrite=rewrite,
            conversation_id=conversation.removesuffix("_q"),
            turn_number=number,
            answer=answer,
            qfirst_rewritten=rewritten.get(conversation),
        )
    return rows.frame()


def _answer(item: dict[str, Any], where: str) -> str:
    answer = item.get("answer")
    if answer is None:
        return ""
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, dict):
        raise ValueError(f"{where}: the answer is {answer!r:.60}, not an object with a text")
    text = field(answer, "text", str, where, "")
    return "" if text == "CANNOTANSWER" else text


@register("or-quac")
def _or_quac(rest: str = "", **options: Any) -> Dataset:
    if rest not in SPLITS:
        raise KeyError(f"no data set is called 'or-quac/{rest}': or-quac/train, or-quac/dev, or-quac/test")
    return ORQuAC(rest, **options)


_or_quac.names = SPLITS  # type: ignore[attr-defined]
