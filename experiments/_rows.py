"""Experiments that take several sittings: a folder for each row and seed, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from _common import say

from pt_convsearch._files import write_json, written


class Rows:
    """The rows that lie under a folder.

    Args:
        folder: ``OUT/rows``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        name: str,
        seed: int,
        settings: Mapping[str, Any],
        work: Callable[[], tuple[Mapping[str, Any], Mapping[str, pd.DataFrame]]],
    ) -> bool:
        """Do the work of a row unless it was done with these settings; False where it was.

        Args:
            name: of the row.
            seed: of the row.
            settings: all that the result depends on.
            work: returns what goes into ``row.json`` and the frames that are kept beside it as parquet.
        """
        folder = self.folder / f"{slug(name)}.seed{seed}"
        key = fingerprint(settings)
        done = folder / "row.json"
        if done.is_file():
            if json.loads(done.read_text(encoding="utf-8"))["fingerprint"] == key:
                say(f"{name}, seed {seed}: done before")
                return False
            say(f"{name}, seed {seed}: was run with other settings, is run anew")
        say(f"{name}, seed {seed}")
        facts, frames = work()
        with written(folder) as partial:
            partial.mkdir(parents=True)
            for title, frame in frames.items():
                frame.to_parquet(partial / f"{title}.parquet", index=False)
            write_json(
                partial / "row.json",
                {"row": name, "seed": seed, "fingerprint": key, "settings": json.loads(_text(settings)), **facts},
            )
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What is there, each as its ``row.json`` with its ``folder``."""
        for path in sorted(self.folder.glob("*/row.json")):
            yield {**json.loads(path.read_text(encoding="utf-8")), "folder": path.parent}


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A hash of settings: what is made with others has another."""
    return hashlib.sha256(_text(settings).encode("utf-8")).hexdigest()[:16]


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def slug(name: str) -> str:
    """A row's name as that of a folder."""
    name = name.replace("⊗", " without the question")
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")


def minilm(layers: int = 6) -> Any:
    """all-MiniLM-L6-v2 with its lowest layers only."""
    from sentence_transformers import SentenceTransformer

    from pt_convsearch.dense import minilm_path

    model = SentenceTransformer(str(minilm_path()))
    inner: Any = model[0]
    inner.model.encoder.layer = inner.model.encoder.layer[:layers]
    inner.model.config.num_hidden_layers = layers
    return model
