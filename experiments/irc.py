"""Whole context against last utterance: retrieving the response in Ubuntu IRC dialogues (Kummerfeld et al., 2019).

    python experiments/irc.py --data irc-dialogues --out out/irc

Penha & Hauff's task: given the dialogue so far, find the next message among all responses. The collection is the responses of
the split that is searched; every response of equal text is relevant ("equal-text"), so R@k is a fraction of copies and Success@k
is the paper's recall.
"""

from __future__ import annotations

from pathlib import Path

from _common import arguments, engines, finish, say, temporary
from ir_measures import RR, R, Success

import pt_convsearch as cs
from pt_convsearch.evaluation.study import shortcut_study

FORMS = {
    "X_t": cs.X,
    "X_t\\q_t": cs.X - cs.CURRENT,
    "last utterance": cs.CURRENT,
    "last two turns": cs.last(1) | cs.CURRENT,
    "first and last": cs.FIRST_QUESTION | cs.CURRENT,
}


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder irc-dialogues", quick="the dense rows")
    parser.add_argument("--split", default="dev", choices=["train", "dev"])
    options = parser.parse_args(argv)
    task = cs.dataset(f"irc/{options.split}", path=options.data).responses(duplicates="equal-text")
    say(f"{len(task.topics):,} contexts, {len(task.corpus):,} responses")
    with temporary() as folder:
        study = shortcut_study(
            engines(lambda: task.corpus, Path(folder), dense=not (options.no_dense or options.quick)),
            task.topics,
            task.qrels,
            [RR, R @ 1, R @ 10, Success @ 1, Success @ 10],
            forms=FORMS,
            by={
                "one utterance": task.topics.qhistory.map(len) == 0,
                "longer": task.topics.qhistory.map(len) > 0,
            },
            seed=options.seed,
            on_step=say,
        )
    finish(study, options.out, {"data": f"irc/{options.split}", "duplicates": "equal-text", "k1": 0.9, "b": 0.4})


if __name__ == "__main__":
    main()
