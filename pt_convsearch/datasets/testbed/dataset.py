"""``convsearch:testbed``: made-up conversations over made-up passages, with dials for what the papers argue about."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.testbed.conversations import Course, conversation
from pt_convsearch.datasets.testbed.draws import pick
from pt_convsearch.datasets.testbed.language import FACETS, SPLITS
from pt_convsearch.datasets.testbed.world import ENTITIES, Region, Shape

#: regions are dealt out to the splits in this order, again and again
_DEAL = ("test", "train", "dev", "test", "train", "test", "train", "test", "train", "test")
_CONVERSATIONS = {"train": 800, "dev": 120, "test": 400}
_MOST = 4_000_000  # passages: beyond, names would repeat
_PASSAGES = 5_940


class Testbed(Dataset):
    """Conversations, passages, answers, rewrites and judgments from a seeded generator.

    Everything is made up: people, towns, novels, companies, birds, festivals, machines and buildings, with twenty facts
    each, and about 27 passages of 45 words on each of them. The passage that answers a question repeats words of the
    answer before it (the retrieval shortcut of Kim & Kim, 2022), shares scenes with its neighbours, and stands among
    passages that nearly state the fact. The corpus depends on ``seed`` and the corpus dials only, and is the same for
    all splits; train, dev and test share no entity, no question phrasing and no answer phrasing.

    ``get_topics()`` gives qid, query, qhistory (with the docno of the passage behind each answer), qrewrite, qtype,
    conversation_id, turn_number, answer. ``qtype`` is true by construction: no-switch, where the new fact lies beside
    the former one and shares a scene with it; switch, where the entity is another or the fact a remote one; first.
    ``get_qrels()`` gives qid, docno, label 1 for every passage that states the fact. ``get_corpus_iter()`` streams
    docno and text: memory does not grow with the corpus.

    Args:
        split: ``"train"``, ``"dev"`` or ``"test"``.
        conversations: how many; the default is 800, 120, 400 for train, dev, test.
        passages: size of the corpus, rounded up to whole regions of ten entities, at least three regions, at most four
            million passages. The default is about 6,000. A corpus dial.
        entities: the same as a number of entities: give one of the two. A corpus dial.
        switch_rate: how often a turn of dev and test switches the topic, 0 to 1. A turn also switches where nothing
            is left to ask nearby.
        train_switch_rate: the same for train.
        shortcut: how often the gold passage of a no-switch turn repeats the previous answer's words, 0 to 1.
        ambiguity: how often a turn that stays with its entity says "it" or leaves it out, 0 to 1.
        near_duplicates: passages that nearly state a fact, per fact, 0 to 4. A corpus dial.
        golds: passages that state a fact, per fact, 1 to 4. A corpus dial.
        turns: turns of a conversation: a number, or (fewest, most), within 1 to 16.
        seed: of the corpus and of the conversations.

    Raises:
        ValueError: a dial out of its range; the message names both.
        KeyError: a split that does not exist.
        TypeError: a dial of the wrong type, or an option that does not exist.

    Example:
        >>> import pt_convsearch as cs
        >>> data = cs.dataset("testbed", conversations=20, seed=2)
        >>> data.get_topics()["qtype"].head(1).tolist()
        ['first']
    """

    def __init__(
        self,
        split: str = "test",
        *,
        conversations: int | None = None,
        passages: int | None = None,
        entities: int | None = None,
        switch_rate: float = 0.15,
        train_switch_rate: float = 0.04,
        shortcut: float = 0.9,
        ambiguity: float = 0.9,
        near_duplicates: float = 0.25,
        golds: float = 1.1,
        turns: int | tuple[int, int] = (3, 7),
        seed: int = 1,
    ) -> None:
        if split not in SPLITS:
            raise KeyError(f"the testbed has the splits train, dev and test, not {split!r}")
        super().__init__("testbed" if split == "test" else f"testbed/{split}")
        self.split = split
        default = _CONVERSATIONS[split]
        self.conversations = _whole("conversations", default if conversations is None else conversations, 1, 10**7)
        self.switch_rate = _share("switch_rate", switch_rate)
        self.train_switch_rate = _share("train_switch_rate", train_switch_rate)
        self.shortcut = _share("shortcut", shortcut)
        self.ambiguity = _share("ambiguity", ambiguity)
        self.near_duplicates = _real("near_duplicates", near_duplicates, 0, 4)
        self.golds = _real("golds", golds, 1, 4)
        self.turns = _range_of_turns(turns)
        self.seed = _whole("seed", seed, 0, 2**63 - 1)
        self._shape = Shape(self.seed, round((self.golds - 1) * FACETS), round(self.near_duplicates * FACETS))
        self._regions = self._count_regions(passages, entities)
        self._options = {
            name: value
            for name, value in {
                "conversations": conversations, "passages": passages, "entities": entities, "switch_rate": switch_rate,
                "train_switch_rate": train_switch_rate, "shortcut": shortcut, "ambiguity": ambiguity,
                "near_duplicates": near_duplicates, "golds": golds, "turns": turns, "seed": seed,
            }.items()
            if value != (self.__init__.__kwdefaults__ or {})[name]  # type: ignore[misc]
        }  # fmt: skip

    def _count_regions(self, passages: int | None, entities: int | None) -> int:
        if passages is not None and entities is not None:
            raise ValueError("give the size of the corpus as passages= or as entities=, not as both")
        each = ENTITIES * self._shape.passages
        if entities is not None:
            regions = -(-_whole("entities", entities, 1, _MOST) // ENTITIES)
        else:
            regions = -(-_whole("passages", _PASSAGES if passages is None else passages, 1, _MOST) // each)
        regions = max(regions, 3)
        if regions * each > _MOST + each:
            raise ValueError(f"entities={entities} is out of range: {regions * each:,} passages, at most {_MOST:,}")
        return regions

    @property
    def num_passages(self) -> int:
        """How many passages the corpus has."""
        return self._regions * ENTITIES * self._shape.passages

    @property
    def num_entities(self) -> int:
        """How many entities the passages are about."""
        return self._regions * ENTITIES

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Stream the passages, each made when it is asked for."""
        passages = (passage for number in range(self._regions) for passage in Region(self._shape, number).passages())
        if not verbose:
            return passages
        from tqdm.auto import tqdm

        return iter(tqdm(passages, total=self.num_passages, desc="testbed", unit="passage"))

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """The questions of the split, in the order of the conversations."""
        if variant is not None:
            raise ValueError(f"the testbed has no variant {variant!r}: its topics hold every column")
        return pd.DataFrame(list(self._turns())).drop(columns="golds")

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Every passage that states what a question of the split asks for, label 1."""
        if variant is not None:
            raise ValueError(f"the testbed has no variant {variant!r} of its judgments")
        rows = [(turn["qid"], docno, 1) for turn in self._turns() for docno in turn["golds"]]
        return pd.DataFrame(rows, columns=["qid", "docno", "label"])

    def get_question_types(self) -> dict[str, str]:
        """qid -> first, switch or no-switch: the column ``qtype`` of the topics."""
        return {turn["qid"]: turn["qtype"] for turn in self._turns()}

    def _turns(self) -> Iterator[dict[str, Any]]:
        regions = [number for number in range(self._regions) if _DEAL[number % len(_DEAL)] == self.split]
        region = lru_cache(maxsize=256)(lambda number: Region(self._shape, number))
        rate = self.train_switch_rate if self.split == "train" else self.switch_rate
        course = Course(self.seed, self.split, rate, self.shortcut, self.ambiguity, self.turns)
        for number in range(self.conversations):
            yield from conversation(course, number, lambda stream: region(pick(stream, regions)))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"cs.dataset({self.name!r}{options})"


def _real(dial: str, value: float, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{dial} is a number from {low} to {high}, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{dial}={value!r} is out of range: it goes from {low} to {high}")
    return float(value)


def _share(dial: str, value: float) -> float:
    return _real(dial, value, 0, 1)


def _whole(dial: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{dial} is a whole number from {low:,} to {high:,}, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{dial}={value!r} is out of range: it goes from {low:,} to {high:,}")
    return int(value)


def _range_of_turns(turns: Any) -> tuple[int, int]:
    pair = tuple(turns) if isinstance(turns, tuple | list) else (turns, turns)
    if len(pair) != 2:
        raise ValueError(f"turns={turns!r}: give a number, or (fewest, most)")
    low, high = (_whole("turns", number, 1, 16) for number in pair)
    if low > high:
        raise ValueError(f"turns={turns!r} is out of range: the fewest come first")
    return low, high


@register("testbed")
def testbed(rest: str, **options: Any) -> Testbed:
    """The testbed by its name: ``testbed`` is the test split, ``testbed/train`` and ``testbed/dev`` are the others."""
    return Testbed(rest or "test", **options)


testbed.names = ("", "train", "dev", "test")  # type: ignore[attr-defined]
