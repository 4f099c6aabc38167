"""Logs for the tests of ``answers``, and the command run on them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.cli import main


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


# Three conversations of two turns. The second answers repeat a word of the first ones ("alpha" …), so a search with the
# history finds the conversation; the questions alone hold no word of any answer.
LOG = [
    {"id": "a", "lang": "en", "messages": [user("one"), said("alpha first"), user("two"), said("alpha second")]},
    {"id": "b", "lang": "en", "messages": [user("three"), said("beta first"), user("four"), said("beta second")]},
    {"id": "c", "lang": "de", "messages": [user("five"), said("gamma first"), user("six"), said("gamma second")]},
]


def write(path: Path, log: list[Any]) -> Path:
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in log)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode("utf-8")))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def run(tmp_path: Path, log: list[Any] | Path, *options: str, status: int = 0) -> pd.DataFrame:
    """The results as a series by (system, group, measure)."""
    path = log if isinstance(log, Path) else write(tmp_path / "log.jsonl", log)
    given = ["answers", str(path), "--out", str(tmp_path / "out"), "--no-dense", "--quiet", *options]
    assert main(given) == status
    if status:
        return pd.DataFrame()
    return pd.read_csv(tmp_path / "out" / "results.csv").set_index(["system", "group", "measure"])
