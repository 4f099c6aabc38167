"""Whole context against last utterance: retrieving the response in Ubuntu IRC dialogues (Kummerfeld et al., 2019).

    python experiments/irc.py --data irc-dialogues --out out/irc

Penha & Hauff's task: given the dialogue so far, find the next message among all responses. The collection is the
responses of the training split and of the one that is searched, as in the paper; every response of equal text is
relevant ("equal-text"), so R@k is a fraction of copies and Success@k is the paper's recall.
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
    parser.add_argument("--collection", default="train+split", choices=["split", "train+split"])
    options = parser.parse_args(argv)
    data = cs.dataset(f"irc/{options.split}", path=options.data, duplicates="equal-text", collection=options.collection)
    topics, qrels = data.get_topics(), data.get_qrels()
    say(f"{len(topics):,} contexts")
    with temporary() as folder:
        study = shortcut_study(
            engines(data.get_corpus_iter, Path(folder), dense=not (options.no_dense or options.quick)),
            topics,
            qrels,
            [RR, R @ 1, R @ 10, Success @ 1, Success @ 10],
            forms=FORMS,
            by={
                "one utterance": topics.qhistory.map(len) == 0,
                "longer": topics.qhistory.map(len) > 0,
            },
            seed=options.seed,
            on_step=say,
        )
    settings = {"data": f"irc/{options.split}", "collection": options.collection, "duplicates": "equal-text"}
    finish(study, options.out, settings)


if __name__ == "__main__":
    main()
