"""Several miners at once, each with its share of the draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pt_convsearch._stage import Stage

#: what stands between the names of several miners that found one passage
PLUS = "+"


class Mix(Stage):
    """Bring together what several miners find, so that each gives its share of the negatives.

    A negative is drawn by first drawing the miner, by weight, and then a passage from its list, evenly; without
    putting back. A miner that finds nothing for a question leaves its share to the others. A passage that two miners
    found stands once, with both chances, where it ranks best. In :func:`training_pairs` a miner keeps its share when
    golds are dropped from its list or the pool cuts it.

    Input: what the miners read. Output: the first miner's columns; docno, score and rank are those of the miner that
    ranks the passage best; ``source`` names the miners, ``weight`` (float64) is the passage's share. Ordered by rank,
    then by the order of the miners; several passages of a question may have one rank.

    Args:
        miners: weight by pipeline, ``{bm25: 3, shortcut: 1}``; or a list of pipelines of equal weight.
        names: what ``source`` calls them, in their order; by default the number of the miner, from 0.

    Raises:
        ValueError: no miner, a weight that is not above 0, or names that do not fit.

    Example:
        >>> import pandas as pd, pt_convsearch as cs
        >>> mix = cs.Mix({cs.RandomNegatives(["a", "b"], seed=1): 3, cs.RandomNegatives(["c"], seed=1): 1})
        >>> mix(pd.DataFrame({"qid": ["1"], "query": ["x"]})).groupby("source").weight.sum().tolist()
        [3.0, 1.0]
    """

    def __init__(
        self, miners: Mapping[pt.Transformer, float] | Sequence[pt.Transformer], *, names: Sequence[str] | None = None
    ) -> None:
        self.miners = dict(miners) if isinstance(miners, Mapping) else dict.fromkeys(miners, 1.0)
        self.names = None if names is None else tuple(names)
        if not self.miners:
            raise ValueError("a mix needs at least one miner")
        wrong = [weight for weight in self.miners.values() if not weight > 0]
        if wrong:
            raise ValueError(f"a miner's weight is {wrong[0]}: weights are above 0, leave the miner out instead")
        if self.names is not None and len(self.names) != len(self.miners):
            raise ValueError(f"{len(self.names)} names for {len(self.miners)} miners: give one each")
        if len(self.shares) < len(self.miners) or any(PLUS in name for name in self.shares):
            raise ValueError(f"names={list(self.names or ())}: give each miner its own, without a {PLUS!r}")

    @property
    def shares(self) -> dict[str, float]:
        """The weight of each miner, by what ``source`` calls it."""
        names = self.names or [str(number) for number in range(len(self.miners))]
        return dict(zip(names, self.miners.values(), strict=True))

    def subtransformers(self) -> dict[str, Any]:
        return {"miners": list(self.miners)}

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        found = []
        for miner, (name, weight) in zip(self.miners, self.shares.items(), strict=True):
            frame = miner.transform(topics)
            sizes = (
                frame.groupby("qid", sort=False)["docno"].transform("size")
                if len(frame)
                else pd.Series(dtype=np.float64)
            )
            share = np.float64(weight) / sizes.to_numpy(dtype=np.float64)
            found.append(frame.assign(source=pd.array([name] * len(frame), dtype="str"), weight=share))
        every = pd.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)
        if len(every) == 0:
            return every
        order = pd.DataFrame(
            {"qid": pd.Index(topics["qid"].astype(str)).get_indexer(pd.Index(every["qid"])), "rank": every["rank"]}
        )
        every = every.loc[order.sort_values(["qid", "rank"], kind="stable").index].reset_index(drop=True)
        pair = every.groupby(["qid", "docno"], sort=False)
        if not every.duplicated(["qid", "docno"]).any():
            return every
        every["weight"] = pair["weight"].transform("sum")
        every["source"] = pair["source"].transform(PLUS.join)
        return every[~every.duplicated(["qid", "docno"])].reset_index(drop=True)
