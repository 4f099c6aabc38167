"""The entry point through which ``pt.get_dataset("convsearch:NAME")`` finds the collections."""

from __future__ import annotations

from collections.abc import Iterable

import pyterrier as pt

from pt_convsearch.datasets.base import Dataset
from pt_convsearch.datasets.registry import dataset, names


class Provider(pt.datasets.DatasetProvider):
    """What ``pt.get_dataset`` asks for names that begin with ``convsearch:``."""

    def get_dataset(self, name: str) -> Dataset:
        """The collection of that name; KeyError where there is none."""
        return dataset(name)

    def list_dataset_names(self) -> Iterable[str]:
        """Names that need nothing of the user's own."""
        return [name for name in names() if not any(part.isupper() for part in name.replace(":", "/").split("/"))]
