"""The shortcut on MTRAG-UN's conversations, their own answers as the collection, as for QReCC's (Katsis et al., 2025).

    python experiments/mtrag_answers.py --data mtrag/mini --out out/mtrag_answers

The 507 tasks of MTRAG-UN hold the whole conversation before their question. Each is read as a chat log, and
``python -m pt_convsearch answers`` does the rest: every earlier question looks for the answer that it was given, among
all answers. So the questions are others than those of ``mtrag.py``, and no judged passage plays a part. The domain of a
conversation is its label.
"""

from __future__ import annotations

import json
from pathlib import Path

from _common import arguments, say, temporary

import pt_convsearch as cs
from pt_convsearch._files import writing_text
from pt_convsearch.cli import main as command


def main(argv: list[str] | None = None) -> None:
    parser = arguments(__doc__, data="the folder mtrag/mini", quick="the dense rows")
    options = parser.parse_args(argv)
    topics = cs.dataset("mtrag-mini/un", path=options.data).get_topics()
    with temporary() as folder:
        log = Path(folder) / "mtrag-un.jsonl"
        with writing_text(log) as handle:
            for row in topics.itertuples():
                said = [{"role": m["role"], "content": m["content"]} for m in row.qhistory]
                asked = {"role": "user", "content": row.query}
                record = {"id": row.conversation_id, "domain": row.qdomain, "messages": [*said, asked]}
                handle.write(json.dumps(record) + "\n")
        say(f"{len(topics):,} conversations")
        dense = ["--no-dense"] if options.no_dense or options.quick else []
        status = command(["answers", str(log), "--out", str(options.out), "--by", "domain", "--sample", "0",
                          "--seed", str(options.seed), *dense])  # fmt: skip
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    main()
