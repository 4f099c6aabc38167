"""The shortcut on CAsT 2021's canonical passages (Dalton et al., 2021): a small plumbing run, not a claim.

    python experiments/cast21.py --data cast/cast21-mini --out out/cast21

183 passages, 239 questions; each question's canonical passage is taken as its one relevant passage.
"""

from __future__ import annotations

from pathlib import Path

from _common import arguments, engines, finish, say, temporary
from ir_measures import RR, R

import pt_convsearch as cs
from pt_convsearch.evaluation.study import shortcut_study


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder cast/cast21-mini", quick="the dense rows")
    options = parser.parse_args(argv)
    data = cs.dataset("cast21-mini", path=options.data)
    topics, qrels = data.get_topics(), data.get_qrels()
    say(f"{len(topics):,} questions, {qrels.qid.nunique():,} judged")
    with temporary() as folder:
        study = shortcut_study(
            engines(data.get_corpus_iter, Path(folder), dense=not (options.no_dense or options.quick)),
            topics,
            qrels,
            [RR, R @ 5, R @ 10, R @ 100],
            by={"t = 1": topics.turn_number == 1, "t > 1": topics.turn_number > 1},
            seed=options.seed,
            on_step=say,
        )
    finish(study, options.out, {"data": "cast21-mini", "seed": options.seed, "k1": 0.9, "b": 0.4})


if __name__ == "__main__":
    main()
