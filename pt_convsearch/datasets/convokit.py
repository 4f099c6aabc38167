"""Corpora in ConvoKit's format on disk: a folder with utterances.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pt_convsearch._files import PathLike
from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.dialogues import ResponseDataset
from pt_convsearch.datasets.formats import field, iter_jsonl
from pt_convsearch.datasets.json_stream import iter_json_items
from pt_convsearch.datasets.leaks import normalised
from pt_convsearch.topics import Task, responses

_NAMES = ("utterances.jsonl", "utterances.json")


def read_convokit_utterances(path: PathLike) -> Iterator[dict[str, Any]]:
    """The utterances of a ConvoKit corpus, streamed in the file's order: id, speaker, conversation_id, reply_to, text.

    Old corpora are read as well: ``root`` for conversation_id, ``user`` for speaker, ``reply-to`` for reply_to, and
    ``utterances.json`` (one list) for ``utterances.jsonl``. Pickled metadata beside the corpus is never opened.

    Args:
        path: the corpus' folder, or the file itself, plain or compressed.

    Raises:
        FileNotFoundError: the folder holds no utterances.
        ValueError: a line that is no utterance, named by file and line.

    Source: ConvoKit's documentation, "Data Format".
    """
    path = _utterances(Path(path))
    if ".jsonl" in path.suffixes:
        lines: Iterator[tuple[int, Any]] = iter_jsonl(path)
    else:
        lines = ((line, item) for line, _, item in iter_json_items(path))
    for number, item in lines:
        where = f"{path}, line {number}"
        if not isinstance(item, dict):
            raise ValueError(f"{where}: an utterance is a JSON object, not {type(item).__name__}")
        conversation = item.get("conversation_id", item.get("root"))
        reply_to = item.get("reply_to", item.get("reply-to"))
        speaker = item.get("speaker", item.get("user"))
        if isinstance(speaker, dict):  # written with the whole speaker in it
            speaker = speaker.get("id")
        yield {
            "id": str(field(item, "id", (str, int), where)),
            "speaker": "" if speaker is None else str(speaker),
            "conversation_id": "" if conversation is None else str(conversation),
            "reply_to": None if reply_to is None else str(reply_to),
            "text": field(item, "text", str, where, ""),
        }


def read_convokit(path: PathLike) -> Iterator[dict[str, Any]]:
    """The dialogues of a ConvoKit corpus: dialogue_id and utterances (dicts of speaker and text), in the file's order.

    A conversation that is a tree of replies is read as the list of its utterances. Conversations whose utterances do
    not stand together are put together, so all of them are held in memory; :func:`read_convokit_utterances` streams.
    """
    conversations: dict[str, list[dict[str, str]]] = {}
    for one in read_convokit_utterances(path):
        # an utterance without a conversation opens one of its own
        conversation = conversations.setdefault(one["conversation_id"] or one["id"], [])
        conversation.append({"speaker": one["speaker"], "text": one["text"]})
    for dialogue_id, utterances in conversations.items():
        yield {"dialogue_id": dialogue_id, "utterances": utterances}


def _utterances(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _NAMES:
        for suffix in ("", ".gz", ".bz2", ".xz"):
            if (path / (name + suffix)).is_file():
                return path / (name + suffix)
    raise FileNotFoundError(f"{path} holds no ConvoKit corpus: no file {' or '.join(_NAMES)} in it")


class ConvoKit(ResponseDataset):
    """A corpus of ConvoKit on disk, as dialogues or as an external collection of responses.

    ``get_corpus_iter()`` streams every utterance (docno is its id), however large the corpus is: a larger collection
    to mine negatives from or to retrieve responses from (E5 of Penha & Hauff). ``get_topics()`` and ``get_qrels()``
    make a task of the dialogues, as everywhere.

    Args:
        name: ``"convokit:FOLDER"``.
        exclude: tasks whose responses must not be in the collection, whatever their case and blanks: those that are
            tested on.
        prefix: goes before every docno of the collection, to tell it from the task's own.
        user: who asks, for ``get_topics()``; by default whoever opens the conversation.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.

    Example:
        >>> import pt_convsearch as cs
        >>> cs.dataset("convokit:corpora/reddit-corpus-small")
        cs.dataset('convokit:corpora/reddit-corpus-small')
    """

    def __init__(self, name: str, *, exclude: Iterable[Task] = (), prefix: str = "", user: Any = None, **options: Any):
        super().__init__(name, **options)
        self.folder, self.split = Path(name.partition(":")[2]).expanduser(), ""
        self.exclude, self.prefix, self.user = tuple(exclude), prefix, user

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        return read_convokit(self.folder)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """docno and text of each utterance that has a text and that ``exclude`` does not name."""
        left_out = {normalised(document["text"]) for task in self.exclude for document in task.corpus}
        utterances: Iterable[dict[str, Any]] = read_convokit_utterances(self.folder)
        if verbose:
            from tqdm.auto import tqdm

            utterances = tqdm(utterances, desc=f"convsearch:{self.name}", unit="utterance")
        for one in utterances:
            if one["text"].strip() and normalised(one["text"]) not in left_out:
                yield {"docno": self.prefix + one["id"], "text": one["text"]}

    def _own_task(self) -> Task:
        return responses(self.get_dialogues(), self.duplicates, user=self.user)


@register("convokit")
def _make(rest: str, **options: Any) -> ConvoKit:
    return ConvoKit(f"convokit:{rest}", **options)


_make.names = (":FOLDER",)  # type: ignore[attr-defined]
