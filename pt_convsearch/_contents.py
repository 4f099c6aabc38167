"""What an index holds, told apart from where it lies: one that was moved, or reached by another path, is the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ._files import PathLike, json_or_none

_WHOLE = 1 << 24
_BLOCK, _BLOCKS = 1 << 16, 64


def index_contents(path: PathLike) -> list[Any] | None:
    """What tells the index of another library from others: its settings, and sizes and checksums of the files that are
    written when it is built and never after. Of a file above 16 MB, 64 blocks are read, evenly spaced.

    Args:
        path: the folder of a FlexIndex, or of an index of PISA, Terrier or Lucene; of Terrier's also the
            ``.properties`` file.

    Returns:
        values that JSON can say; None where no such index is there.
    """
    place = Path(path)
    folder, prefix = (place.parent, place.stem) if place.suffix == ".properties" else (place, "data")
    kinds = (
        ("vecs.f4", "docnos.npids"),
        ("fwd", "fwd.terms", "fwd.documents"),
        tuple(f"{prefix}.{part}" for part in ("properties", "inverted.*", "lexicon.*", "document.*", "meta*")),
        ("segments_*",),  # Lucene names every segment, and every commit, by an id of its own
    )
    for patterns in kinds:
        found = [sorted(folder.glob(pattern)) for pattern in patterns]
        if all(found):
            meta = json_or_none(folder / "pt_meta.json")
            return [meta, *(_checksum(file) for files in found for file in files)]
    return None


def _checksum(file: Path) -> list[Any]:
    state, size = hashlib.blake2b(digest_size=16), file.stat().st_size
    if file.suffix == ".properties":  # Terrier writes into it when and where it was made
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        said = sorted(line for line in lines if not line.startswith(("#", "index.created=")))
        return [file.name.rpartition(".")[2], hashlib.blake2b("\n".join(said).encode(), digest_size=16).hexdigest()]
    with file.open("rb") as handle:
        if size <= _WHOLE:
            state.update(handle.read())
        else:
            for block in range(_BLOCKS):
                handle.seek(block * (size - _BLOCK) // (_BLOCKS - 1))
                state.update(handle.read(_BLOCK))
    return [file.name, size, state.hexdigest()]
