"""MANtIS: information-seeking dialogues of fourteen Stack Exchange sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pt_convsearch._lines import iter_lines
from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.cache import find
from pt_convsearch.datasets.dialogues import ResponseDataset
from pt_convsearch.datasets.forum import read_forum
from pt_convsearch.datasets.instances import instance_task
from pt_convsearch.datasets.response_tsv import read_response_tsv, tsv_candidates
from pt_convsearch.datasets.source import File, Source
from pt_convsearch.topics import Task, responses

SPLITS = ("train", "valid", "test")
_AT_SOURCE = {"train": "train", "valid": "dev", "test": "test"}
_HOW = "It is on Google Drive, by way of https://guzpenha.github.io/MANtIS/: unpack it and give the folder as path=."
_SEEN = "the form that the distributor's page and code describe"
#: the TSV files by the names they go by: mantis_10, mantis_50, and what transformer_rankers makes of the first
_TSV = {"tsv": "data_{0}_easy.tsv", "tsv-50": "data_{0}.tsv", "tsv-renamed": "{1}.tsv"}
#: the window of the distributor's own instances, in utterances before the last question
_WINDOW = 10

SOURCE = Source(
    key="mantis",
    title="MANtIS",
    homepage="https://guzpenha.github.io/MANtIS/",
    licence="CC BY-SA (Stack Exchange); none stated for the compilation",
    citation="Penha, Balan, Hauff: Introducing MANtIS. arXiv:1912.04639",
    files=tuple(
        file
        for split, theirs in _AT_SOURCE.items()
        for file in (
            File(split, f"merged_{theirs}.json", how=_HOW, checked=_SEEN),
            *(
                File(f"{split}-{key}", name.format(theirs, split), how=_HOW, optional=True, checked=_SEEN)
                for key, name in _TSV.items()
            ),
            File(f"{split}-lookup", f"data_{theirs}_easy_lookup.txt", how=_HOW, optional=True),
        )
    ),
)


class MANtIS(ResponseDataset):
    """Dialogues between a seeker (``user``) and a provider (``agent``), with the site as ``category``.

    Args:
        name: ``"mantis/train"``, ``"mantis/valid"`` or ``"mantis/test"``.
        form: "json": ``merged_train.json``, ``merged_dev.json``, ``merged_test.json``; "tsv": ``data_train_easy.tsv``
            … (also under the names train.tsv, valid.tsv, test.tsv), whose instances carry ten negatives each; by
            default JSON where it is on disk.
        mode: "all": every turn of the provider is a response; "paper" (JSON only): the distributor's instances, from
            the second question on, with at most the ten utterances before it.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.

    Topics carry ``category`` (JSON form) for ``by=``.

    Source: Penha, Balan & Hauff (2019); csearch/converters/json2training.py of Guzpenha/MANtIS.
    """

    source = SOURCE
    splits = SPLITS

    def __init__(self, name: str, *, form: str | None = None, mode: str = "all", **options: Any):
        super().__init__(name, **options)
        if self.split not in SPLITS:
            raise KeyError(f"no data set is called {name!r}: {', '.join(f'mantis/{split}' for split in SPLITS)}")
        if form not in (None, "json", "tsv") or mode not in ("all", "paper"):
            raise ValueError(f"form={form!r}, mode={mode!r}: form is 'json' or 'tsv', mode 'all' or 'paper'")
        self.form, self.mode = form, mode

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        """dialogue_id (with the split before it), category, title and utterances; in the TSV form one per instance."""
        if self._form() == "tsv":
            yield from self._instances()
            return
        for dialogue in read_forum(self.file(self.split)):
            yield {**dialogue, "dialogue_id": f"{self.split}-{dialogue['dialogue_id']}"}

    def candidates(self) -> pd.DataFrame:
        """The true response and the negatives of each instance of the TSV form: qid, docno, text, label."""
        if self._form() != "tsv":
            return super().candidates()
        return tsv_candidates(self._instances())

    def _own_task(self) -> Task:
        if self._form() == "tsv":
            return instance_task(self._instances(), self.duplicates, user="user")
        category: dict[str, str] = {}
        if self.mode == "paper":
            task = instance_task(self._windows(category), self.duplicates, user="user")
        else:
            task = responses(self._noting(category), self.duplicates, user="user")
        task.topics["category"] = task.topics["conversation_id"].map(category).astype(str)
        return task

    def _noting(self, category: dict[str, str]) -> Iterator[dict[str, Any]]:
        for dialogue in self.get_dialogues():
            category[dialogue["dialogue_id"]] = dialogue["category"]
            yield dialogue

    def _windows(self, category: dict[str, str]) -> Iterator[dict[str, Any]]:
        for dialogue in self._noting(category):
            utterances, name = dialogue["utterances"], dialogue["dialogue_id"]
            asked = [at for at, said in enumerate(utterances) if said["speaker"] == "user"]
            for at in asked[1:]:
                if at + 1 < len(utterances):
                    yield {
                        "dialogue_id": f"{name}_{at + 1}",
                        "conversation_id": name,
                        "turn_number": at + 1,
                        "utterances": utterances[max(0, at - _WINDOW) : at + 1],
                        "response": utterances[at + 1]["text"],
                    }

    def _instances(self) -> Iterator[dict[str, Any]]:
        key = self._tsv_key() or f"{self.split}-tsv"
        dialogue_of = self._lookup() if key == f"{self.split}-tsv" else []
        for instance in read_response_tsv(self.file(key), quoting="csv"):
            if dialogue_of:
                if instance["line"] > len(dialogue_of):
                    raise ValueError(f"{self.file(f'{self.split}-lookup')}: it is cut: {self.file(key)} has more lines")
                instance["conversation_id"] = f"{self.split}-{dialogue_of[instance['line'] - 1]}"
            yield {**instance, "dialogue_id": f"{self.split}-{instance['dialogue_id']}"}

    def _lookup(self) -> list[str]:
        """The dialogue of each line of the TSV, where the list lies beside it."""
        if not self._on_disk(f"{self.split}-lookup"):
            return []
        return [line.strip() for _, line in iter_lines(self.file(f"{self.split}-lookup"))]

    def _form(self) -> str:
        if self.form is not None:
            return self.form
        return "tsv" if self._tsv_key() and not self._on_disk(self.split) else "json"

    def _tsv_key(self) -> str | None:
        return next((f"{self.split}-{key}" for key in _TSV if self._on_disk(f"{self.split}-{key}")), None)

    def _on_disk(self, key: str) -> bool:
        return key in self.files or find(SOURCE, SOURCE.file(key), self.path) is not None

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "form": self.form, "mode": self.mode}


@register("mantis")
def _make(rest: str, **options: Any) -> MANtIS:
    return MANtIS(f"mantis/{rest}", **options)


_make.names = SPLITS  # type: ignore[attr-defined]
