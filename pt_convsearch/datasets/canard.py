"""QuAC's dialogues about sections of Wikipedia, and CANARD's rewrites of their questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.formats import field, read_json, read_records
from pt_convsearch.datasets.rows import TopicRows, alternating, said
from pt_convsearch.datasets.source import File, Source

_NONE = "CANNOTANSWER"

CANARD_SOURCE = Source(
    key="canard",
    title="CANARD",
    homepage="https://sites.google.com/view/qanta/projects/canard",
    licence="CC BY-SA 4.0",
    citation="Elgohary, Peskov and Boyd-Graber, Can You Unpack That?, EMNLP 2019",
    files=(
        File("archive", "CANARD_Release.zip", "https://obj.umiacs.umd.edu/elgohary/CANARD_Release.zip", optional=True),
        *(File(split, f"{split}.json", archive="archive") for split in ("train", "dev", "test")),
    ),
)
QUAC_SOURCE = Source(
    key="quac",
    title="QuAC",
    homepage="https://quac.ai",
    licence="CC BY-SA 4.0",
    citation="Choi et al., QuAC: Question Answering in Context, EMNLP 2018, arXiv:1808.07036",
    files=tuple(
        File(split, f"{split}_v0.2.json", f"https://s3.amazonaws.com/my89public/quac/{split}_v0.2.json")
        for split in ("train", "val")
    ),
)


#: as the papers state them
_COUNTS = {
    "canard/train": {"turns": 31526},
    "canard/dev": {"turns": 3430},
    "canard/test": {"turns": 5571},
    "quac/train": {"turns": 83568, "conversations": 11567},
    "quac/val": {"turns": 7354, "conversations": 1000},
}


class CANARD(Dataset):
    """One split of CANARD: questions of QuAC and what they mean without their dialogue.

    ``get_topics()``: qid ("C_…_0_q#3", as QuAC and OR-QuAC have it), query, qhistory, qrewrite, conversation_id,
    turn_number, answer ("": the answer of a turn is only known from the history of the next, from which it is taken),
    ``qtitle`` and ``qsection``: the first two entries of the distributed histories are the page's title and the
    section's, and nobody said them. There are no passages and no judgments.

    Args:
        split: "train", "dev" or "test".
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("canard/dev")           # data.get_topics()[["query", "qrewrite"]]
    """

    source = CANARD_SOURCE

    def __init__(self, split: str, **options: Any):
        super().__init__(f"canard/{split}", **options)
        self.split = split

    @property
    def counts(self) -> dict[str, int]:
        return _COUNTS[self.name]

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        return read_canard(self.file(self.split))


class QuAC(Dataset):
    """One split of QuAC, as dialogues: questions, answers (spans of the section), no rewrites, no passages.

    ``get_topics()``: qid ("C_…_0_q#3"), query, qhistory, conversation_id, turn_number, answer ("" for CANNOTANSWER),
    ``qtitle``, ``qsection``.

    Args:
        split: "train" or "val".
        **options: those of :class:`~pt_convsearch.datasets.Dataset`.
    """

    source = QUAC_SOURCE

    def __init__(self, split: str, **options: Any):
        super().__init__(f"quac/{split}", **options)
        self.split = split

    @property
    def counts(self) -> dict[str, int]:
        return _COUNTS[self.name]

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        if variant is not None:
            self._variant(variant, ())
        return read_quac(self.file(self.split))


def read_canard(path: Path) -> pd.DataFrame:
    """Topics from a file of CANARD.

    Raises:
        ValueError: no such file, or a turn twice; named by file and line.
    """
    turns = []
    answers: dict[tuple[str, int], str] = {}
    for line, item in read_records(path):
        where = f"{path}, line {line}"
        dialog, number = field(item, "QuAC_dialog_id", str, where), field(item, "Question_no", int, where)
        history = field(item, "History", list, where)
        if len(history) < 2 or len(history) % 2 or any(not isinstance(text, str) for text in history):
            raise ValueError(
                f"{where}: 'History' is two titles and then question, answer, question, answer …; here {len(history)}"
            )
        texts = ["" if text == _NONE else text for text in history[2:]]
        if texts and number > 1:
            answers[dialog, number - 1] = texts[-1]
        turns.append((line, item, dialog, number, history[:2], texts))
    rows = TopicRows(path)
    for line, item, dialog, number, (title, section), texts in turns:
        where = f"{path}, line {line}"
        rows.add(
            line,
            f"{dialog}_q#{number - 1}",
            field(item, "Question", str, where),
            alternating(texts),
            qrewrite=field(item, "Rewrite", str, where),
            conversation_id=dialog,
            turn_number=number,
            answer=answers.get((dialog, number), ""),
            qtitle=title,
            qsection=section,
        )
    return rows.frame()


def read_quac(path: Path) -> pd.DataFrame:
    """Topics from a file of QuAC.

    Raises:
        ValueError: no such file, or a question twice; named by file and dialogue.
    """
    rows = TopicRows(path)
    data = read_json(path)
    for section in field(data, "data", list, f"{path}, line 1") if isinstance(data, dict) else _no_quac(path):
        where = f"{path}, a section"
        for paragraph in field(section, "paragraphs", list, where):
            dialog = field(paragraph, "id", str, where)
            where = f"{path}, dialogue {dialog!r}"
            history: list[dict[str, str]] = []
            for number, item in enumerate(field(paragraph, "qas", list, where), 1):
                query = field(item, "question", str, where)
                answer = field(field(item, "orig_answer", dict, where, {}), "text", str, where, "")
                answer = "" if answer == _NONE else answer
                rows.add(
                    1,
                    field(item, "id", str, where),
                    query,
                    list(history),
                    conversation_id=dialog,
                    turn_number=number,
                    answer=answer,
                    qtitle=field(section, "title", str, where, None),
                    qsection=field(section, "section_title", str, where, None),
                )
                history.append(said("user", query))
                if answer:
                    history.append(said("assistant", answer))
    return rows.frame()


def _no_quac(path: Path) -> list[Any]:
    raise ValueError(f"{path}, line 1: an object with 'data' is due, not a list")


def _of(maker: Any, first: str, splits: tuple[str, ...]) -> Any:
    def make(rest: str = "", **options: Any) -> Dataset:
        if rest not in splits:
            raise KeyError(
                f"no data set is called '{first}/{rest}': {', '.join(f'{first}/{split}' for split in splits)}"
            )
        made: Dataset = maker(rest, **options)
        return made

    make.names = splits  # type: ignore[attr-defined]
    return make


register("canard")(_of(CANARD, "canard", ("train", "dev", "test")))
register("quac")(_of(QuAC, "quac", ("train", "val")))
