"""Collections by name: ``pt.get_dataset("convsearch:NAME")`` or ``cs.dataset(NAME, **options)``."""

import importlib
from typing import Any

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.cache import fetch, home, is_offline
from pt_convsearch.datasets.checks import check
from pt_convsearch.datasets.formats import (
    field,
    iter_jsonl,
    iter_lines,
    iter_tsv,
    open_data,
    read_json,
    read_qrels,
    read_records,
    read_run,
)
from pt_convsearch.datasets.json_stream import iter_json_items
from pt_convsearch.datasets.provider import Provider
from pt_convsearch.datasets.registry import dataset, names
from pt_convsearch.datasets.source import File, Source

__all__ = [
    "Dataset", "File", "Provider", "Source", "automatic_hard", "check", "check_leaks", "dataset", "fetch", "field",
    "find_leaks", "home", "instance_task", "is_offline", "iter_json_items", "iter_jsonl", "iter_lines", "iter_tsv",
    "names", "open_data", "read_convokit", "read_convokit_utterances", "read_dialogue_file", "read_forum", "read_json",
    "read_noesis", "read_qrels", "read_records", "read_response_tsv", "read_run", "register", "without_leaks",
]  # fmt: skip

#: names that are loaded with the collection that they belong to -> its module
_LATER = {
    "automatic_hard": "dl_hard",
    "check_leaks": "leaks",
    "find_leaks": "leaks",
    "instance_task": "instances",
    "read_convokit": "convokit",
    "read_convokit_utterances": "convokit",
    "read_dialogue_file": "dialogues",
    "read_forum": "forum",
    "read_noesis": "noesis",
    "read_response_tsv": "response_tsv",
    "without_leaks": "leaks",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
