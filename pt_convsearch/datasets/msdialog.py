"""MSDialog: dialogues of Microsoft's support forum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import register
from pt_convsearch.datasets.dialogues import ResponseDataset
from pt_convsearch.datasets.forum import read_forum
from pt_convsearch.datasets.instances import instance_task
from pt_convsearch.datasets.response_tsv import read_response_tsv, tsv_candidates
from pt_convsearch.datasets.source import File, Source
from pt_convsearch.topics import Task, responses

SPLITS = ("train", "valid", "test")
#: the JSON files, which know no splits
WHOLE = {"complete": "MSDialog-Complete.json", "intent": "MSDialog-Intent.json"}
_HOW = "It is given out on request at https://ciir.cs.umass.edu/downloads/msdialog/ (a form): give the folder as path=."
_SEEN = "the form that the distributor's page and public code describe"

SOURCE = Source(
    key="msdialog",
    title="MSDialog",
    homepage="https://ciir.cs.umass.edu/downloads/msdialog/",
    licence="on request, for research",
    citation="Qu et al.: Analyzing and Characterizing User Intent in Information-seeking Conversations. SIGIR 2018",
    files=(
        *(File(split, f"MSDialog/{split}.tsv", how=_HOW, checked=_SEEN) for split in SPLITS),
        *(File(key, name, how=_HOW, optional=True, checked=_SEEN) for key, name in WHOLE.items()),
    ),
)


class MSDialog(ResponseDataset):
    """Questions about Microsoft's products, answered by agents and experienced users.

    Args:
        name: ``"msdialog/train"``, ``"msdialog/valid"``, ``"msdialog/test"``: the instances of MSDialog-ResponseRank
            (``label, u1 … un, response``) with their negatives; ``"msdialog/complete"`` and ``"msdialog/intent"``:
            whole dialogues from the JSON files (35,000, and the 2,000 with intents), where each turn of an agent is a
            response.
        **options: as for :class:`~pt_convsearch.datasets.dialogues.ResponseDataset`.

    Topics of the JSON files carry ``category`` (the product) for ``by=``.
    """

    source = SOURCE
    splits = SPLITS

    def __init__(self, name: str, **options: Any):
        super().__init__(name, **options)
        if self.split not in (*SPLITS, *WHOLE):
            raise KeyError(
                f"no data set is called {name!r}: {', '.join(f'msdialog/{one}' for one in (*SPLITS, *WHOLE))}"
            )

    def get_dialogues(self) -> Iterator[dict[str, Any]]:
        """From the JSON files dialogue_id, category, title and utterances; from the TSV files one per instance."""
        if self.split in WHOLE:
            yield from read_forum(self.file(self.split))
            return
        for instance in read_response_tsv(self.file(self.split)):
            yield {**instance, "dialogue_id": f"{self.split}-{instance['dialogue_id']}"}

    def candidates(self) -> pd.DataFrame:
        """The true response and the negatives of each instance: qid, docno, text, label."""
        return super().candidates() if self.split in WHOLE else tsv_candidates(self.get_dialogues())

    def _own_task(self) -> Task:
        if self.split not in WHOLE:
            return instance_task(self.get_dialogues(), self.duplicates, user="user")
        category: dict[str, str] = {}

        def noted() -> Iterator[dict[str, Any]]:
            for dialogue in self.get_dialogues():
                category[dialogue["dialogue_id"]] = dialogue["category"]
                yield dialogue

        task = responses(noted(), self.duplicates, user="user")
        task.topics["category"] = task.topics["conversation_id"].map(category).astype(str)
        return task


@register("msdialog")
def _make(rest: str, **options: Any) -> MSDialog:
    return MSDialog(f"msdialog/{rest}", **options)


_make.names = (*SPLITS, *WHOLE)  # type: ignore[attr-defined]
