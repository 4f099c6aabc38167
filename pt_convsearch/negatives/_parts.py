"""What a killed mining leaves behind, and how it goes on."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pt_convsearch import _files

logger = logging.getLogger(__name__)


class Parts:
    """Finished batches beside the set that is being mined (``<out>.mining``), each renamed into place when it is whole.

    Parts of another mining are discarded; so is a part that cannot be read. Two minings at once are refused.

    Args:
        target: the folder of the set to be.
        settings: what the mining depends on; JSON.
        changed: the names of settings in which those of a killed mining differ.
        fresh: discard what is there in any case.
    """

    def __init__(
        self, target: Path, settings: dict[str, Any], *, changed: Callable[[Any], list[str]], fresh: bool
    ) -> None:
        self.folder = target.with_name(f"{target.name}.mining")
        self.settings = settings
        self.changed = changed
        self.fresh = fresh
        self.done: list[tuple[int, int]] = []
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Parts:
        self._held.enter_context(_files.alone(self.folder))
        known = self.folder / "settings.json"
        if any(self.folder.iterdir()) and (self.fresh or self.changed(_files.json_or_none(known))):
            logger.info("%s is of another mining: starting anew", self.folder)
            _files.clear(self.folder)
        _files.write_json(known, self.settings)
        found = len(list(self.folder.glob("*.parquet")))
        if found:
            logger.info("%s: going on after %d finished batches", self.folder, found)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Parts stay where a run fails: the next one goes on from them."""
        self._held.close()

    def has(self, start: int, stop: int) -> bool:
        """Whether the batch of questions ``start`` to ``stop`` is finished; a damaged one is removed."""
        path = self._path(start, stop)
        if not path.is_file():
            return False
        try:
            whole = pq.ParquetFile(path, page_checksum_verification=True).read().num_rows == stop - start
        except (pa.ArrowException, OSError) as error:
            logger.warning("%s is damaged (%s): mining this batch again", path, error)
            whole = False
        if not whole:
            path.unlink()
        return whole

    def add(self, start: int, stop: int, table: pa.Table, tally: Counter[str]) -> None:
        """Keep a finished batch, and what was counted in it."""
        path = self._path(start, stop)
        table = table.replace_schema_metadata({"tally": json.dumps(tally)})
        with _files.written(path) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True)

    def read(self, ranges: list[tuple[int, int]]) -> tuple[pa.Table | None, Counter[str]]:
        """All batches as one table, and the sum of what was counted."""
        tables = [pq.read_table(self._path(start, stop)) for start, stop in ranges]
        tally: Counter[str] = Counter()
        for table in tables:
            tally.update(json.loads((table.schema.metadata or {})[b"tally"]))
        return (pa.concat_tables([table.replace_schema_metadata(None) for table in tables]) if tables else None), tally

    def discard(self) -> None:
        """Remove the parts: the set is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, start: int, stop: int) -> Path:
        return self.folder / f"{start:09d}-{stop:09d}.parquet"
