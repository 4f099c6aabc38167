"""The shortcut on MTRAG, human-made conversations over four domains (Katsis et al., 2025).

    python experiments/mtrag.py --data mtrag/mini --out out/mtrag

Two parts: the turns of MTRAG all of whose relevant passages have text ("human": question types first, no-switch,
switch, switch-back, derived from the source documents of the relevant passages), and MTRAG-UN ("un": one question a
conversation, with the agent's answers in its history). The collection is the pool of their judged passages, not the
full corpora: absolute values are higher than on those; what is compared is the forms of one question on one collection.
Intervals are 95%, by bootstrap over whole conversations, whose questions are not independent of each other.
"""

from __future__ import annotations

from pathlib import Path

from _common import arguments, engines, finish, say, temporary
from ir_measures import RR, R, nDCG

import pt_convsearch as cs
from pt_convsearch.evaluation.study import FORMS, shortcut_study

MEASURES = [RR, R @ 5, R @ 10, R @ 100, nDCG @ 10]


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder mtrag/mini", quick="the dense rows")
    parser.add_argument("--parts", nargs="+", default=["human", "un"], choices=["human", "un"])
    options = parser.parse_args(argv)
    for part in options.parts:
        data = cs.dataset(f"mtrag-mini/{part}", path=options.data)
        topics, qrels = data.get_topics(), data.get_qrels()
        say(f"{part}: {len(topics):,} questions, {qrels.qid.nunique():,} judged")
        forms = {**FORMS, "q_{t-1} q_t": cs.LAST_QUESTION | cs.CURRENT}
        with temporary() as folder:
            study = shortcut_study(
                engines(data.get_corpus_iter, Path(folder), dense=not (options.no_dense or options.quick)),
                topics,
                qrels,
                MEASURES,
                forms=forms,
                by="qtype" if part == "human" else {"t > 1": topics.turn_number > 1},
                ci=0.95,
                seed=options.seed,
                on_step=say,
            )
        settings = {"data": f"mtrag-mini/{part}", "seed": options.seed, "k1": 0.9, "b": 0.4, "ci": 0.95}
        finish(study, options.out / part, settings)


if __name__ == "__main__":
    main()
