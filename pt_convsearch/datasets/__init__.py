"""Collections by name: ``pt.get_dataset("convsearch:NAME")`` or ``cs.dataset(NAME, **options)``."""

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.cache import fetch, home, is_offline
from pt_convsearch.datasets.checks import check
from pt_convsearch.datasets.convokit import read_convokit, read_convokit_utterances
from pt_convsearch.datasets.dialogues import read_dialogue_file
from pt_convsearch.datasets.dl_hard import automatic_hard
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
from pt_convsearch.datasets.forum import read_forum
from pt_convsearch.datasets.instances import instance_task
from pt_convsearch.datasets.json_stream import iter_json_items
from pt_convsearch.datasets.leaks import check_leaks, find_leaks, without_leaks
from pt_convsearch.datasets.noesis import read_noesis
from pt_convsearch.datasets.provider import Provider
from pt_convsearch.datasets.registry import dataset, names
from pt_convsearch.datasets.response_tsv import read_response_tsv
from pt_convsearch.datasets.source import File, Source

__all__ = [
    "Dataset", "File", "Provider", "Source", "automatic_hard", "check", "check_leaks", "dataset", "fetch", "field",
    "find_leaks", "home", "instance_task", "is_offline", "iter_json_items", "iter_jsonl", "iter_lines", "iter_tsv",
    "names", "open_data", "read_convokit", "read_convokit_utterances", "read_dialogue_file", "read_forum", "read_json",
    "read_noesis", "read_qrels", "read_records", "read_response_tsv", "read_run", "register", "without_leaks",
]  # fmt: skip
