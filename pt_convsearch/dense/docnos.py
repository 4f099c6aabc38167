"""The docnos of a dense index, in the file format (npids) that FlexIndex reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from npids.builder import FwdLookupBuilder, InvLookupBuilder
from npids.codecs import FwdFixedBytes

if TYPE_CHECKING:
    from npids import Lookup

#: docnos that share one width on disk, at least; npids reads slowly where there are many such blocks
_BLOCK = 65_536


class _FixedBytes(FwdFixedBytes):
    """npids's codec for any docnos, mended: it cannot read a single docno, nor a prefix that ends in mid-character."""

    prefix: bytes | None
    length: int | None

    def seed(self, id: str) -> bool:
        super().seed(id)
        while self.prefix and (len(self.prefix) == self.length or not _whole(self.prefix)):
            self.prefix = self.prefix[:-1]
        return True


def _whole(prefix: bytes) -> bool:
    try:
        prefix.decode()
    except UnicodeDecodeError:
        return False
    return True


def write_docnos(docnos: list[str], path: Path) -> None:
    """Write the docnos, then read them back.

    Raises:
        ValueError: a docno that the format cannot keep.
    """
    from npids import Lookup

    path.unlink(missing_ok=True)
    builder = FwdLookupBuilder(path, min_block=_BLOCK)
    # of npids's codecs only this one takes every docno; the others save a few bytes on ids of a certain form
    builder.formats = {FwdFixedBytes.NAME: _FixedBytes()}
    builder.seeded_formats = dict(builder.formats)
    for docno in docnos:
        builder.add(docno)
    builder.close()
    InvLookupBuilder.build(path)
    for docno, read in zip(docnos, read_docnos(Lookup(path)), strict=True):
        if docno != read:
            raise ValueError(f"docno {docno!r} cannot be stored: it is read back as {read!r}")


def numbers_of_docnos(lookup: Lookup, docnos: Iterable[str]) -> np.ndarray:
    """The numbers of docnos, -1 for those that are not there: int64 of shape (docnos,)."""
    keys = [docno.encode("utf-8", "surrogatepass") for docno in docnos]
    if not keys or not len(lookup):
        return np.full(len(keys), -1, dtype=np.int64)
    numbers = np.asarray(lookup.inv[np.array(keys, dtype="S")]).astype(np.int64)
    numbers[[key.endswith(b"\0") for key in keys]] = -1  # numpy drops what pads its fixed width
    return numbers


def read_docnos(lookup: Lookup) -> Iterator[str]:
    """All docnos, in order."""
    for start in range(0, len(lookup), 10_000):
        yield from lookup.fwd[np.arange(start, min(start + 10_000, len(lookup)))].tolist()
