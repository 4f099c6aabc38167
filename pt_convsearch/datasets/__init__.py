"""Collections by name: ``pt.get_dataset("convsearch:NAME")`` or ``cs.dataset(NAME, **options)``."""

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
from pt_convsearch.datasets.provider import Provider
from pt_convsearch.datasets.registry import dataset, names
from pt_convsearch.datasets.source import File, Source

__all__ = [
    "Dataset", "File", "Provider", "Source", "check", "dataset", "fetch", "field", "home", "is_offline", "iter_jsonl",
    "iter_lines", "iter_tsv", "names", "open_data", "read_json", "read_qrels", "read_records", "read_run", "register",
]  # fmt: skip
