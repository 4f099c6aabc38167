"""One lexicon for all shards: terms numbered as one index over the whole would number them, with their df."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..lexical.storage import Lookup, StringsWriter, load_array

_BATCH = 100_000


def write_statistics(shards: list[Path], names: list[str], folder: Path) -> None:
    """Merge the shards' lexicons.

    An index numbers terms in the order in which they first occur; so does this, shard after shard. The numbers decide
    in which order a query's terms are summed, and so the last digit of a score, by which ties are told from near-ties.

    Args:
        shards: the shards' folders, in the order of the collection.
        names: what their files are named after.
        folder: gets ``lexicon``, ``df`` and per shard ``NAME.terms``: the number of each of its terms in the whole.
    """
    numbers: dict[str, int] = {}
    df = np.zeros(0, dtype=np.int64)
    lexicon = StringsWriter(folder, "lexicon")
    for shard, name in zip(shards, names, strict=True):
        own = Lookup(shard, "lexicon")
        counts = np.diff(load_array(shard, "postings.offsets"))
        ids = np.empty(len(own), dtype=np.uint32)
        for start in range(0, len(own), _BATCH):
            terms = own.arrow.slice(start, _BATCH).to_pylist()
            known = len(numbers)
            ids[start : start + len(terms)] = [numbers.setdefault(term, len(numbers)) for term in terms]
            new = [
                term
                for term, number in zip(terms, ids[start : start + len(terms)].tolist(), strict=True)
                if number >= known
            ]
            lexicon.write([term.encode("utf-8", "surrogatepass") for term in new])
        df = np.concatenate([df, np.zeros(len(numbers) - len(df), dtype=np.int64)])
        df[ids] += counts  # a shard's terms are distinct
        np.save(folder / f"{name}.terms.npy", ids, allow_pickle=False)
    lexicon.close()
    Lookup.write_order(folder, "lexicon")
    np.save(folder / "df.npy", df, allow_pickle=False)
