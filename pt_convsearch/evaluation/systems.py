"""Systems of an experiment: their names, running each once, keeping what it returned."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
from tqdm.auto import tqdm

from pt_convsearch._files import PathLike
from pt_convsearch._stage import Stage
from pt_convsearch.measures import read_run, write_run
from pt_convsearch.topics.checks import first_three

logger = logging.getLogger(__name__)

System = pt.Transformer | pd.DataFrame
_SAVE_MODES = ("warn", "reuse", "overwrite", "error")


def named_systems(
    systems: Mapping[str, System] | Sequence[System] | System, names: Iterable[str] | None = None
) -> dict[str, System]:
    """The systems by name.

    Raises:
        ValueError: no system, two systems of one name, or another number of names than of systems.
        TypeError: a system that is neither a transformer nor a frame of results.
    """
    if isinstance(systems, pt.Transformer | pd.DataFrame):
        systems = [systems]
    if isinstance(systems, Mapping):
        pairs = [(str(name), system) for name, system in systems.items()]
        if names is not None:
            raise ValueError("names= goes with a list of systems: a mapping names them already")
    else:
        listed = list(systems)
        defaults = (_default_name(system, place) for place, system in enumerate(listed))
        given = list(defaults) if names is None else [str(name) for name in names]
        if len(given) != len(listed):
            raise ValueError(f"{len(given)} names for {len(listed)} systems: give each system a name")
        pairs = list(zip(given, listed, strict=True))
    if not pairs:
        raise ValueError("no system was given")
    for name, system in pairs:
        if not isinstance(system, pt.Transformer | pd.DataFrame):
            raise TypeError(f"system {name!r} is a {type(system).__name__}: give a transformer or a frame of results")
    given = [name for name, _ in pairs]
    twice = [name for name in dict.fromkeys(given) if given.count(name) > 1]
    if twice:
        raise ValueError(
            f"systems of one name: {first_three(twice)}; give each a name of its own (names= or a mapping)"
        )
    return dict(pairs)


def _default_name(system: Any, place: int) -> str:
    return f"results {place}" if isinstance(system, pd.DataFrame) else str(system)


def position_of(baseline: str | int, names: Sequence[str]) -> str:
    """The baseline's name, given by name or position.

    Raises:
        ValueError: no such system.
    """
    if isinstance(baseline, str):
        if baseline not in names:
            raise ValueError(f"baseline={baseline!r} is none of the systems: {first_three(names)}")
        return baseline
    if not -len(names) <= int(baseline) < len(names):
        raise ValueError(f"baseline={baseline} is no position among {len(names)} systems")
    return names[int(baseline)]


@dataclass
class Runner:
    """Runs systems over the topics: each once, in batches, from and to saved runs.

    Args:
        topics: what to search.
        systems: all that will be run: results are kept in memory only where an equal system comes later.
        batch_size: questions per call; all at once where None.
        save_dir: folder of ``{name}.res.gz``; made where it is missing.
        save_mode: what to do with a file that is there: "reuse" it, "overwrite" it, "warn" and overwrite, or "error".
    """

    topics: pd.DataFrame
    systems: Sequence[System]
    batch_size: int | None = None
    save_dir: PathLike | None = None
    save_mode: str = "warn"
    _done: list[tuple[pt.Transformer, pd.DataFrame, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: at least one question per batch")
        if self.save_mode not in _SAVE_MODES:
            raise ValueError(f"save_mode={self.save_mode!r}: one of {', '.join(_SAVE_MODES)}")

    def run(self, name: str, system: System) -> tuple[pd.DataFrame, float]:
        """Results of the system and the milliseconds it took per question (0 for results given or read)."""
        if isinstance(system, pd.DataFrame):
            return system, 0.0
        saved = self._file(name)
        if saved is not None and saved.exists():
            if self.save_mode == "reuse":
                results = read_run(saved, may_be_empty=True)
                strangers = set(results["qid"]) - set(self.topics["qid"])
                if strangers:
                    raise ValueError(
                        f"{saved} holds {len(strangers)} qids that the topics lack ({first_three(sorted(strangers))}): "
                        "if it is another experiment's, save_mode='overwrite' replaces it"
                    )
                return results, 0.0
            if self.save_mode == "error":
                raise ValueError(f"{saved} exists: save_mode='reuse' reads it, 'overwrite' replaces it")
            if self.save_mode == "warn":
                warnings.warn(f"{saved} exists and is replaced: save_mode='reuse' would read it", stacklevel=4)
        found = next((done for done in self._done if _surely_equal(done[0], system)), None)
        if found is None:
            found = (system, *self._search(name, system))
            if sum(_surely_equal(system, other) for other in self.systems) > 1:
                self._done.append(found)
        else:
            logger.info("%s is the same system as one that has been run: its results are used again", name)
        _, results, milliseconds = found
        if saved is not None:
            write_run(results if "rank" in results.columns else pt.model.add_ranks(results.copy()), saved)
        return results, milliseconds

    def _search(self, name: str, system: pt.Transformer) -> tuple[pd.DataFrame, float]:
        size = self.batch_size or max(len(self.topics), 1)
        start = time.perf_counter()
        pieces = [system.transform(self.topics.iloc[at : at + size]) for at in range(0, max(len(self.topics), 1), size)]
        seconds = time.perf_counter() - start
        for piece in pieces:
            if not isinstance(piece, pd.DataFrame):
                raise TypeError(
                    f"system {name!r} returned a {type(piece).__name__}: a system returns a frame of results"
                )
            missing = [column for column in ("qid", "docno") if column not in piece.columns]
            if missing:
                raise ValueError(
                    f"system {name!r} returned no {' and no '.join(missing)} (found {list(piece.columns)}): "
                    "does it end in a retriever?"
                )
        filled = [piece for piece in pieces if len(piece)]
        results = pd.concat(filled, ignore_index=True) if filled else pieces[0]
        return results, 1000 * seconds / max(len(self.topics), 1)

    def _file(self, name: str) -> Path | None:
        if self.save_dir is None:
            return None
        if not pt.io.ok_filename(name):
            raise ValueError(
                f"system {name!r} is saved under its name, which no file can have: give it another (names=)"
            )
        return Path(self.save_dir) / f"{name}.res.gz"


def progress(systems: Mapping[str, System], verbose: bool) -> Iterable[tuple[str, System]]:
    """The systems, with a progress bar if asked for."""
    return tqdm(systems.items(), disable=not verbose, unit="system", desc="Experiment")


def _surely_equal(first: Any, second: Any) -> bool:
    """Whether two systems are equal and their parts say so reliably.

    Only our own stages are taken at their word: two of pyterrier_dr's encoders with different models may call
    themselves equal.
    """
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, pt._ops.Compose):
        parts = list(first._transformers), list(second._transformers)
        return len(parts[0]) == len(parts[1]) and all(map(_surely_equal, *parts))
    return isinstance(first, Stage) and first == second


def had_nothing_to_say(system: System, topics: pd.DataFrame) -> bool:
    """Whether every query that the system formed for these topics is empty: its form does not apply to them.

    Asked only where the system returned nothing for any of them, so the stages before the first retriever are run
    again.
    """
    if isinstance(system, pd.DataFrame):
        return False
    if isinstance(system, pt._ops.Compose):
        for stage in system._transformers:
            if _all_empty(topics):
                return True
            nested = _branches(stage)
            if nested:
                return all(had_nothing_to_say(branch, topics) for branch in nested)
            topics = stage.transform(topics)
            if "docno" in topics.columns or "query" not in topics.columns:
                return False
        return _all_empty(topics)
    nested = _branches(system)
    return _all_empty(topics) or (bool(nested) and all(had_nothing_to_say(branch, topics) for branch in nested))


def _all_empty(topics: pd.DataFrame) -> bool:
    return len(topics) > 0 and not topics["query"].str.strip().astype(bool).any()


def _branches(stage: pt.Transformer) -> list[pt.Transformer]:
    """The pipelines that a fusion stage or an operator (``+``, ``|``, ``^`` …) runs side by side."""
    try:
        parts = pt.inspect.subtransformers(stage)
    except pt.inspect.InspectError:
        return []
    branches: list[pt.Transformer] = []
    for part in parts.values():
        branches += part if isinstance(part, list) else [part]
    return branches if len(branches) > 1 else []
