"""Dialogues of the Ubuntu IRC channel, cut out of the disentanglement corpus of Kummerfeld et al. (2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.dialogues import ResponseDataset, read_dialogue_file
from pt_convsearch.datasets.formats import iter_tsv
from pt_convsearch.datasets.source import File, Source
from pt_convsearch.topics import Task, responses

SPLITS = ("train", "dev", "test")
_HOW = (
    "The dialogues are derived: {split}.jsonl has a line {{dialogue_id, utterances: [{{speaker, text}}]}} for each "
    "thread of the annotated logs in https://github.com/jkkummerfeld/irc-disentanglement (data/{split})."
)

SOURCE = Source(
    key="irc",
    title="Ubuntu IRC dialogues (from irc-disentanglement)",
    homepage="https://github.com/jkkummerfeld/irc-disentanglement",
    licence="CC BY 4.0",
    citation="Kummerfeld et al.: A Large-Scale Corpus for Conversation Disentanglement. ACL 2019",
    files=tuple(
        file
        for split in SPLITS
        for file in (
            File(f"{split}", f"{split}.jsonl", how=_HOW.format(split=split), checked="train, dev"),
            File(f"{split}-ids", f"{split}.ids.tsv", how=_HOW.format(split=split), optional=True, checked="train, dev"),
        )
    ),
)
#: checked against the files
_COUNTS = {
    "train": {"turns": 9481, "passages": 9481, "dialogues": 3294, "messages": 44497},
    "dev": {"turns": 780, "passages": 780, "dialogues": 144, "messages": 1853},
}


class IRC(ResponseDataset):
    """Threads of technical help: the opener asks, everybody else (bots included) answers.

    Args:
        name: ``"irc/train"``, ``"irc/dev"`` (or ``"irc/valid"``) or ``"irc/test"``.
        instances: "published": where ``SPLIT.ids.tsv`` lies beside the dialogues, its instances only (in training at
            most four a dialogue); "all": every turn by somebody other than the opener.
        join_turns: make messages of one speaker in a row one message, as in the TSV files of these dialogues.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.

    Contexts with a hundred candidates each, where they lie beside the dialogues, have NOESIS-II's form:
    ``cs.dataset("udc-dstc8/dev", files={"dev": "dstc8-style.task-1.dev.json.gz"})``.
    """

    source = SOURCE
    splits = SPLITS

    def __init__(self, name: str, *, instances: str = "published", join_turns: bool = True, **options: Any):
        # the other collections call it valid
        super().__init__("irc/dev" if name == "irc/valid" else name, **options)
        if self.split not in SPLITS:
            raise KeyError(f"no data set is called {name!r}: {', '.join(f'irc/{split}' for split in SPLITS)}")
        if instances not in ("published", "all"):
            raise ValueError(f"instances={instances!r}: 'published' or 'all'")
        self.instances, self.join_turns = instances, join_turns

    @property
    def counts(self) -> dict[str, int]:
        return dict(_COUNTS.get(self.split, {}))

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        """dialogue_id and utterances (every message as it was sent; speakers user1 …, bot1 …, other1 …)."""
        return read_dialogue_file(self.file(self.split))

    def _own_task(self) -> Task:
        task = responses(self.get_dialogues(), self.duplicates, join_turns=self.join_turns)
        published = self._published() if self.instances == "published" else None
        if published is None:
            return task
        missing = sorted(published - set(task.topics["qid"]))
        if missing:
            path = self.file(f"{self.split}-ids")
            raise ValueError(f"{path}: instance {missing[0]!r} (of {len(missing)}) is in none of the dialogues")
        topics = task.topics[task.topics["qid"].isin(published)].reset_index(drop=True)
        qrels = task.qrels[task.qrels["qid"].isin(published) & task.qrels["docno"].isin(published)].reset_index(
            drop=True
        )
        return Task(topics, [document for document in task.corpus if document["docno"] in published], qrels)

    def _published(self) -> set[str] | None:
        """qids of the published instances, or None where their list is not on disk."""
        try:
            path = self.file(f"{self.split}-ids")
        except FileNotFoundError:
            return None
        rows = iter_tsv(path, columns=4)
        _, header = next(rows)
        if header[1:3] != ["dialogue_id", "turn"]:
            raise ValueError(
                f"{path}, line 1: columns instance, dialogue_id, turn, speakers are due, not {', '.join(header)}"
            )
        return {f"{cells[1]}_{cells[2]}" for _, cells in rows}

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "instances": self.instances, "join_turns": self.join_turns}


@register("irc")
def _make(rest: str, **options: Any) -> IRC:
    return IRC(f"irc/{rest}", **options)


_make.names = SPLITS  # type: ignore[attr-defined]
