"""Arrays and strings on disk: plain .npy files, written as a stream, read by memory mapping."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


def load_array(folder: Path, name: str) -> np.ndarray:
    """``folder/name.npy``, memory-mapped (an empty array cannot be mapped and is read).

    Raises:
        ValueError: the file is missing, cut or altered; the message names it.
    """
    path = folder / f"{name}.npy"
    try:
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError:
            return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, FileNotFoundError) as error:
        raise ValueError(f"{path.name} is missing or cut ({error})") from error


class ArrayWriter:
    """A one-dimensional .npy file that grows as it is written; the header is set right on closing."""

    def __init__(self, folder: Path, name: str, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = (folder / f"{name}.npy").open("wb")
        self._header()

    def _header(self) -> None:
        # numpy leaves room in the header for the first dimension to grow to 20 digits
        np.lib.format.write_array_header_1_0(
            self._file, {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        )

    def write(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, dtype=self.dtype)
        self.length += len(values)
        self._file.write(values.data)

    def close(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class StringsWriter:
    """Strings as UTF-8 bytes and offsets, written batch by batch."""

    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = ArrayWriter(folder, f"{name}.bytes", np.uint8)
        self._offsets = ArrayWriter(folder, f"{name}.offsets", np.int64)
        self._offsets.write(np.zeros(1, dtype=np.int64))

    def write(self, encoded: Sequence[bytes]) -> None:
        start = self._bytes.length
        self._bytes.write(np.frombuffer(b"".join(encoded), dtype=np.uint8))
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        self._offsets.write(start + np.cumsum(lengths))

    def close(self) -> None:
        self._bytes.close()
        self._offsets.close()


class Strings:
    """Memory-mapped strings, as an Arrow array: taking some costs no Python object per string."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bytes = load_array(folder, f"{name}.bytes")
        self.offsets = load_array(folder, f"{name}.offsets")
        if len(self.offsets) == 0 or self.offsets[-1] != len(self.bytes):
            raise ValueError(f"the files {name}.* do not fit together")
        self.arrow = pa.LargeStringArray.from_buffers(
            len(self.offsets) - 1, pa.py_buffer(self.offsets), pa.py_buffer(self.bytes)
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> str:
        return bytes(self.bytes[self.offsets[i] : self.offsets[i + 1]]).decode("utf-8", "surrogatepass")

    def take(self, ids: np.ndarray) -> pa.Array:
        """The strings of these numbers, as an Arrow array."""
        return self.arrow.take(pa.array(ids, type=pa.int64()))


class Lookup(Strings):
    """Distinct strings that can be found: number by string, by binary search in their sorted checksums."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.checksums = load_array(folder, f"{name}.checksums")
        self.order = load_array(folder, f"{name}.order")
        if not len(self.checksums) == len(self.order) == len(self):
            raise ValueError(f"the files {name}.* do not fit together")

    @staticmethod
    def write_order(folder: Path, name: str) -> None:
        """Add to the strings of that name what finding them needs."""
        strings = Strings(folder, name)
        offsets, data = strings.offsets, strings.bytes
        checksums = np.empty(len(strings), dtype=np.uint32)
        step = 65_536
        for start in range(0, len(strings), step):
            ends = offsets[start : start + step + 1].tolist()
            block = bytes(data[ends[0] : ends[-1]])
            base = ends[0]
            checksums[start : start + len(ends) - 1] = [
                zlib.crc32(block[a - base : b - base]) for a, b in itertools.pairwise(ends)
            ]
        order = np.argsort(checksums, kind="stable")
        np.save(folder / f"{name}.checksums.npy", checksums[order], allow_pickle=False)
        np.save(folder / f"{name}.order.npy", order.astype(np.uint32 if len(order) < 2**32 else np.int64))

    @staticmethod
    def repeated(folder: Path, name: str, limit: int = 3) -> tuple[int, list[str]]:
        """How many strings are said more than once, and the first few of them."""
        table = Lookup(folder, name)
        same = np.flatnonzero(table.checksums[1:] == table.checksums[:-1])
        # a group of equal checksums is looked at as a whole: different strings may share one
        groups = np.unique(table.checksums[same])
        found: list[str] = []
        for checksum in groups.tolist():
            first, last = np.searchsorted(table.checksums, [checksum, checksum + 1])
            values = [table[int(i)] for i in table.order[first:last]]
            found += {value for value in values if values.count(value) > 1}
        return len(found), sorted(found)[:limit]

    def find(self, values: Iterable[str]) -> np.ndarray:
        """The number of each string, -1 where there is none."""
        encoded = [value.encode("utf-8", "surrogatepass") for value in values]
        wanted = np.fromiter(map(zlib.crc32, encoded), dtype=np.uint32, count=len(encoded))
        found = np.full(len(encoded), -1, dtype=np.int64)
        if len(self.order) == 0:
            return found
        offsets, data, order, checksums = self.offsets, self.bytes, self.order, self.checksums
        for i, (at, checksum) in enumerate(
            zip(np.searchsorted(checksums, wanted).tolist(), wanted.tolist(), strict=True)
        ):
            while at < len(checksums) and checksums[at] == checksum:
                number = int(order[at])
                if data[offsets[number] : offsets[number + 1]].tobytes() == encoded[i]:
                    found[i] = number
                    break
                at += 1
        return found
