"""A mining in a process of its own that is killed in the middle."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pandas as pd

import pt_convsearch as cs


class Dies(cs.RandomNegatives):
    """Finds random passages, and kills the process when it is asked for a certain question."""

    fatal: str | None = None

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        # the control questions come first, in one call with others; only a batch of the mining holds two questions
        if self.fatal in set(topics["qid"]) and len(topics) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(os.environ["MINED"]) / f"{os.getpid()}-{topics['qid'].iloc[0]}-{len(topics)}").touch()
        return super().transform(topics)


def run(out: str, fatal: str | None) -> cs.TrainingPairs:
    corpus = [{"docno": f"d{number}", "text": f"passage {number}"} for number in range(30)]
    topics = pd.DataFrame(
        {"qid": [f"q{number}" for number in range(10)], "query": "x", "qhistory": [[] for _ in range(10)]}
    )
    qrels = pd.DataFrame({"qid": topics["qid"], "docno": [f"d{number}" for number in range(10)], "label": 1})
    miner = Dies(corpus, num_results=20)
    miner.__class__.fatal = fatal
    return cs.training_pairs(topics, qrels, corpus, form=cs.X, negatives=miner, out=out, batch_size=2)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
