"""UDC-DSTC8: the Ubuntu part of NOESIS-II's subtask 1, with its splits as Penha & Hauff made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.dialogues import ResponseDataset
from pt_convsearch.datasets.instances import candidates_frame, instance_task
from pt_convsearch.datasets.noesis import NAMES, read_noesis
from pt_convsearch.datasets.source import File, Source
from pt_convsearch.topics import Task

SPLITS = ("train", "valid", "test")
#: the files of the challenge as they are
WHOLE = ("dev", "blind")
_HOW = (
    "Participants of DSTC8 got it (https://github.com/dstc8-track2/NOESIS-II); it is on Google Drive, by way of "
    "https://github.com/Guzpenha/transformer_rankers: unpack ubuntu_dstc8.zip and give the folder as path=."
)

SOURCE = Source(
    key="udc-dstc8",
    title="UDC-DSTC8 (NOESIS-II, subtask 1, Ubuntu)",
    homepage="https://github.com/dstc8-track2/NOESIS-II",
    licence="none stated",
    citation="Kim et al.: The Eighth Dialog System Technology Challenge. 2019; Kummerfeld et al., ACL 2019",
    files=(
        File("train", "task-1.ubuntu.train.json", how=_HOW, checked="the form that the README shows"),
        File(
            "dev",
            "task-1.ubuntu.dev.json",
            how=_HOW,
            checked="the form that the README shows, and a derived file of it",
        ),
        File("blind", "task-1.ubuntu.test.blind.json", how=_HOW, optional=True),
        File("blind-answers", "ubuntu-task-1.txt", how=_HOW, optional=True),
    ),
)


class UDC(ResponseDataset):
    """Contexts of the Ubuntu channel, with a hundred candidates each, of which some, one or none is the next utterance.

    Args:
        name: ``"udc-dstc8/train"``; ``"udc-dstc8/valid"`` and ``"udc-dstc8/test"``: the two halves of the development
            file, as in the paper; ``"udc-dstc8/dev"``: that file whole; ``"udc-dstc8/blind"``: the challenge's test
            file with the answers published later.
        names: what becomes of "participant_N : ", see :func:`~pt_convsearch.datasets.noesis.read_noesis`.
        correct: "all" right options are relevant, or the "first" alone, as in the paper.
        no_answer: "keep" questions none of whose candidates is right (they have no judgment, and so do not count), or
            "drop" them, as the paper.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.

    docno is the distributor's candidate id. The halves are cut as the paper's code does: after half of the questions
    that have an answer; one without goes with those around it.

    Source: Penha & Hauff; ubuntu_dstc8_processor of Guzpenha/transformer_rankers.
    """

    source = SOURCE
    splits = SPLITS

    def __init__(
        self, name: str, *, names: str = "drop", correct: str = "all", no_answer: str = "keep", **options: Any
    ):
        super().__init__(name, **options)
        if self.split not in (*SPLITS, *WHOLE):
            raise KeyError(
                f"no data set is called {name!r}: {', '.join(f'udc-dstc8/{one}' for one in (*SPLITS, *WHOLE))}"
            )
        for option, value, known in (
            ("names", names, NAMES), ("correct", correct, ("all", "first")), ("no_answer", no_answer, ("keep", "drop"))
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{option}={value!r}: {', '.join(map(repr, known))}")
        self.names, self.correct, self.no_answer = names, correct, no_answer

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        """The examples, streamed: dialogue_id, utterances, responses (the right ones), candidates (docno, text)."""
        return self._examples(candidates=True)

    def _examples(self, *, candidates: bool) -> Iterator[dict[str, Any]]:
        half = self.split if self.split in ("valid", "test") else None
        file = "dev" if half else self.split
        first, last = self._bounds() if half else (0, None)
        answers = self.file("blind-answers") if file == "blind" else None
        examples = read_noesis(self.file(file), names=self.names, answers=answers, candidates=candidates)
        for at, example in enumerate(examples):
            if at < first or (last is not None and at >= last):
                continue
            if not example["responses"] and self.no_answer == "drop":
                continue
            if self.correct == "first":
                example["responses"] = example["responses"][:1]
            yield {**example, "dialogue_id": f"{file}-{example['dialogue_id']}"}

    def candidates(self) -> pd.DataFrame:
        """The options of each question: qid, docno, text, label (1 for the right ones)."""
        rows = []
        for example in self.get_dialogues():
            right = {option["docno"] for option in example["responses"]}
            listed = {option["docno"]: option["text"] for option in example["candidates"]}
            rows += [(example["dialogue_id"], docno, text, int(docno in right)) for docno, text in listed.items()]
        return candidates_frame(rows)

    def _own_task(self) -> Task:
        return instance_task(self._examples(candidates=False), self.duplicates)

    def _bounds(self) -> tuple[int, int | None]:
        """Where this half of the development file begins and ends, counted in examples."""
        examples = read_noesis(self.file("dev"), names="keep", candidates=False)
        answered = [at for at, example in enumerate(examples) if example["responses"]]
        half = len(answered) // 2
        middle = answered[half] if half < len(answered) else 0
        return (0, middle) if self.split == "valid" else (middle, None)

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "names": self.names, "correct": self.correct, "no_answer": self.no_answer}


@register("udc-dstc8")
def _make(rest: str, **options: Any) -> UDC:
    return UDC(f"udc-dstc8/{rest}", **options)


_make.names = (*SPLITS, *WHOLE)  # type: ignore[attr-defined]
