"""What collections of dialogues have in common: topics, responses and judgments by one policy, candidates, clean
splits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch._files import PathLike
from pt_convsearch._lines import iter_lines
from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.formats import iter_jsonl
from pt_convsearch.datasets.instances import DUPLICATES, judged
from pt_convsearch.datasets.json_stream import iter_json_items
from pt_convsearch.datasets.leaks import find_leaks, without_leaks
from pt_convsearch.topics import Task, first_three, responses

logger = logging.getLogger(__name__)
LEAKS = ("drop", "keep", "raise")
COLLECTIONS = ("split", "train+split")
TRAIN = "train"


class ResponseDataset(Dataset):
    """Dialogues for response retrieval: every context looks for the response that followed it.

    ``get_dialogues()`` streams the dialogues as they are; :meth:`task` turns them into topics, collection and
    judgments, of which ``get_topics()``, ``get_corpus_iter()`` and ``get_qrels()`` give one each.

    Args:
        name: ``"irc/train"`` …
        duplicates: "own-id": relevant is the response that followed; "equal-text": every response of equal text, too.
        leaks: what the training split does with responses that a held-out split on disk has as well, whatever their
            case and blanks: "drop" leaves them, their topics and judgments out (the count is logged), "keep" does
            nothing, as the paper, "raise" is an error that names them.
        collection: "split", or "train+split": the training responses are documents as well, as in the paper.
        **options: ``path``, ``files``, ``offline``, ``verify`` as in :class:`~pt_convsearch.datasets.Dataset`.

    Source: Penha & Hauff, full-rank retrieval of responses for dialogues: data and collection.
    """

    #: the splits of the collection that have names; the training one first
    splits: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        *,
        duplicates: str = "own-id",
        leaks: str = "drop",
        collection: str = "split",
        **options: Any,
    ):
        super().__init__(name, **options)
        for option, value, known in (
            ("duplicates", duplicates, DUPLICATES), ("leaks", leaks, LEAKS), ("collection", collection, COLLECTIONS)
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{option}={value!r}: {', '.join(map(repr, known))}")
        self.duplicates, self.leaks, self.collection = duplicates, leaks, collection
        self.split = name.partition("/")[2]
        self._task: Task | None = None
        self._train: ResponseDataset | None = None

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        """The dialogues, streamed: dialogue_id, utterances (dicts of speaker and text), and what else the file says."""
        raise NotImplementedError(f"convsearch:{self.name} has no dialogues")

    def task(self) -> Task:
        """Topics, collection and judgments; read once and kept.

        Raises:
            ValueError: ``leaks="raise"``, and a held-out response is in the training data; or a malformed file, named
                by line.
        """
        if self._task is None:
            task = self._own_task()
            if self.split == TRAIN and self.leaks != "keep":
                task = self._clean(task)
            self._task = task
        return self._task

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """One row per context: qid, query (its last utterance), qhistory, answer (the response), conversation_id,
        turn_number."""
        self._only(variant)
        return self.task().topics.copy()

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """qid, docno, label (1), by the policy for duplicates; over the whole collection."""
        self._only(variant)
        task = self.task()
        if not (self._is_joint() and self.duplicates == "equal-text"):
            return task.qrels.copy()
        texts = {document["docno"]: document["text"] for document in self.get_corpus_iter()}
        own = list(zip(task.qrels["qid"], task.qrels["docno"], strict=True))
        return judged(own, texts, self.duplicates)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """The responses, docno and text; with ``collection="train+split"`` those of the training split first."""
        seen: set[str] = set()
        for task in [self._training().task(), self.task()] if self._is_joint() else [self.task()]:
            for document in task.corpus:
                if document["docno"] not in seen:
                    seen.add(document["docno"])
                    yield dict(document)

    def candidates(self) -> pd.DataFrame:
        """The candidates that the file gives for each context (R_n@k): qid, docno, text, label (1 right, 0 wrong).

        Their order says nothing about the labels, whatever the file's: a right one listed first would win every tie.

        Raises:
            NotImplementedError: the collection gives none.
        """
        raise NotImplementedError(
            f"convsearch:{self.name} gives no candidates with its contexts: search the whole collection"
        )

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """:meth:`candidates` as results to be re-ranked: the topics' columns, docno, text, score 0, rank; in
        an order that says nothing."""
        self._only(variant)
        given = self.candidates().drop(columns="label")
        results = self.get_topics().merge(given, on="qid", how="inner", sort=False)
        results["score"] = 0.0
        results["rank"] = results.groupby("qid", sort=False).cumcount()
        return results

    def find_leaks(self) -> pd.DataFrame:
        """Responses of this split that a held-out split on disk has as well: text, docno, held_out_docno.

        For a split that is held out itself, the training responses that have leaked from it.
        """
        if self.split == TRAIN:
            return find_leaks(self._own_task(), *self._held_out())
        return find_leaks(self._training()._own_task(), self._own_task())

    def _own_task(self) -> Task:
        raise NotImplementedError

    def _only(self, variant: str | None) -> None:
        if variant is not None:
            raise ValueError(f"convsearch:{self.name} has no variants, so none called {variant!r}")

    def _is_joint(self) -> bool:
        return self.collection == "train+split" and self.split != TRAIN and TRAIN in self.splits

    def _clean(self, task: Task) -> Task:
        held_out = self._held_out()
        found = find_leaks(task, *held_out)
        if not len(found):
            return task
        if self.leaks == "raise":
            texts = first_three(text[:60] for text in dict.fromkeys(found["text"]))
            raise ValueError(
                f"convsearch:{self.name}: {len(found)} responses are also responses of a held-out split ({texts}): "
                "leaks='drop' leaves them out, leaks='keep' trains on them"
            )
        logger.warning(
            "convsearch:%s: %d responses that a held-out split has, too, are left out (leaks='keep' keeps them)",
            self.name, len(found),
        )  # fmt: skip
        return without_leaks(task, *held_out)

    def _held_out(self) -> list[Task]:
        tasks = []
        for split in self.splits:
            if split != TRAIN:
                try:
                    tasks.append(self._other(split)._own_task())
                except FileNotFoundError:
                    logger.info(
                        "convsearch:%s: no file of the %s split, so nothing was compared with it", self.name, split
                    )
        return tasks

    def _training(self) -> ResponseDataset:
        if self._train is None:
            self._train = self._other(TRAIN)
        return self._train

    def _other(self, split: str) -> ResponseDataset:
        """The same collection's other split, with the same options."""
        first = self.name.partition("/")[0]
        return type(self)(f"{first}/{split}", **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "duplicates": self.duplicates, "leaks": self.leaks, "path": self.path, "files": self.files,
            "offline": self.offline, "verify": self.verify,
        }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_task": None, "_train": None}


def read_dialogue_file(path: PathLike) -> Iterator[dict[str, Any]]:
    """Dialogues ``{dialogue_id, utterances: [{speaker, text}]}``: JSON Lines, or one JSON list or object of them.

    Raises:
        ValueError: a malformed line or dialogue, named by file and line.
    """
    items: Iterable[tuple[int, str | None, Any]]
    if _is_json_lines(path):
        items = ((number, None, item) for number, item in iter_jsonl(path))
    else:
        items = iter_json_items(path)
    for number, key, item in items:
        where = f"{path}, line {number}"
        if not isinstance(item, dict) or not isinstance(item.get("utterances"), list):
            raise ValueError(f"{where}: a dialogue is an object with a list 'utterances'")
        for at, said in enumerate(item["utterances"], 1):
            if not isinstance(said, dict) or not isinstance(said.get("text"), str) or said.get("speaker") is None:
                raise ValueError(f"{where}: utterance {at} lacks a speaker or a text: {str(said)[:60]}")
        if key is not None or item.get("dialogue_id") is None:
            item = {"dialogue_id": key if key is not None else item.get("id", str(number)), **item}
        yield item


def _is_json_lines(path: PathLike) -> bool:
    """Whether the file's first line that is not blank holds a whole JSON object."""
    for _, line in iter_lines(path):
        text = line.strip()
        if text:
            return text.startswith("{") and text.endswith("}") and '"utterances"' in text
    return True


class DialogueFile(ResponseDataset):
    """A file of your own with dialogues: ``cs.dataset("dialogues:my/dialogues.jsonl")``.

    Args:
        name: ``"dialogues:FILE"``: JSON Lines or JSON of ``{dialogue_id, utterances: [{speaker, text}]}``.
        user: who asks, as for :func:`pt_convsearch.topics.responses`; by default whoever opens the dialogue.
        join_turns: as for :func:`pt_convsearch.topics.responses`.
        **options: as for :class:`ResponseDataset`.
    """

    def __init__(self, name: str, *, user: Any = None, join_turns: bool = False, **options: Any):
        super().__init__(name, **options)
        self.dialogue_file = Path(name.partition(":")[2]).expanduser()
        self.user, self.join_turns, self.split = user, join_turns, ""

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        return read_dialogue_file(self.dialogue_file)

    def _own_task(self) -> Task:
        return responses(self.get_dialogues(), self.duplicates, user=self.user, join_turns=self.join_turns)


@register("dialogues")
def _make(rest: str, **options: Any) -> DialogueFile:
    return DialogueFile(f"dialogues:{rest}", **options)


_make.names = (":FILE",)  # type: ignore[attr-defined]
