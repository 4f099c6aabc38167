"""Readers of the formats that collections come in: ids byte for byte, every fault named by file and line.

All files are UTF-8, with or without BOM, with \\n or \\r\\n, plain or compressed (gzip, bz2, xz, zip with one file in
it; told by the content, so a name without suffix will do), and read as a stream.
"""

from __future__ import annotations

from pt_convsearch._lines import iter_lines, open_data
from pt_convsearch._records import field, iter_jsonl, iter_tsv, read_json, read_records
from pt_convsearch.measures import read_qrels, read_run

__all__ = [
    "field",
    "iter_jsonl",
    "iter_lines",
    "iter_tsv",
    "open_data",
    "read_json",
    "read_qrels",
    "read_records",
    "read_run",
]
