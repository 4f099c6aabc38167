"""The table of the documentation says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pt_convsearch as cs
from pt_convsearch.datasets import Provider

PAGE = (Path(cs.__file__).parent / "pt_docs" / "datasets.md").read_text(encoding="utf-8")


def rows() -> dict[str, str]:
    """name -> its row of the table; "`a/x`, `/y`" stands for a/x and a/y."""
    found = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            first, names = "", re.findall(r"`([^`]+)`", line.split("|")[1].partition("(and")[0])
            for name in names:
                first = name if not name.startswith("/") else first
                found[name if not name.startswith("/") else names[0].partition("/")[0] + name] = line
    return found


def test_every_collection_of_this_room_is_in_the_table_with_its_counts():
    table = rows()
    for name in Provider().list_dataset_names():
        data = cs.dataset(name)
        if type(data).__module__.rpartition(".")[2] not in (
            "qrecc",
            "or_quac",
            "topiocqa",
            "cast",
            "ikat",
            "mtrag",
            "canard",
        ):
            continue
        row = table.get(name) or table[name.partition("/")[0]]
        if name in table:
            for count in data.counts.values():
                assert f"{count:,}" in row, (name, count)
