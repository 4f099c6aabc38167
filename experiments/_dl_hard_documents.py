"""Documents of passages, where no collection of documents is at hand: what --task doc of dl_hard.py stands on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from _rewriting_parts import Data

#: passages of the testbed that make a document
PER_DOCUMENT = 4
#: the windows of a document, in words
WINDOWS = {"length": 60, "stride": 50}


def of_documents(data: Data) -> Data:
    """The testbed with documents for passages: so many about one entity, one after the other, make a document, which is
    relevant where a passage of it is. The histories name no documents: that one was shown says little of the next
    answer in it."""

    def name(docno: str) -> str:
        entity, _, number = docno.rpartition("_")
        return f"{entity}_d{int(number) // PER_DOCUMENT}"

    def corpus() -> Iterable[dict[str, Any]]:
        for docno, passages in itertools.groupby(data.corpus(), key=lambda passage: name(passage["docno"])):
            yield {"docno": docno, "text": " ".join(passage["text"] for passage in passages)}

    qrels = {
        split: judged.assign(docno=judged["docno"].map(name))
        .groupby(["qid", "docno"], as_index=False, sort=False)["label"].max()
        for split, judged in data.qrels.items()
    }  # fmt: skip
    topics = {
        split: frame.assign(qhistory=[
            [{key: value for key, value in message.items() if key != "docno"} for message in history]
            for history in frame["qhistory"]
        ])
        for split, frame in data.topics.items()
    }  # fmt: skip
    return replace(data, topics=topics, qrels=qrels, corpus=corpus, seen=False)
