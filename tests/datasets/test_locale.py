"""The same text on every platform: a reader that leaves the encoding to the platform fails here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CODE = """
import json, sys, warnings
import pt_convsearch as cs
from pt_convsearch.datasets import check
for folder in sys.argv[1:]:
    data = cs.dataset("folder:" + folder)
    assert data.get_topics()["query"][0] == "What\\u2019s \\xf3rg\\xe3os? \\U0001f642"
    assert data.get_qrels()["docno"][0] == "\\u65e5\\u672c"
    assert next(data.get_corpus_iter())["text"] == "\\xe9"
    assert check(folder)
    cast = cs.dataset("cast/2020", path=folder, verify=False).get_topics()
    assert cast["query"][0] == "\\u2019"
"""


def test_ascii_locale_bom_and_no_default_encoding(tmp_path):
    folders = [tmp_path / "plain", tmp_path / "marked"]
    for folder, encoding in zip(folders, ("utf-8", "utf-8-sig"), strict=True):
        folder.mkdir()

        def put(name: str, text: str, folder: Path = folder, encoding: str = encoding) -> None:
            (folder / name).write_bytes(text.encode(encoding))

        put("topics.jsonl", json.dumps({"qid": "1", "query": "What’s órgãos? 🙂"}, ensure_ascii=False))
        put("corpus.jsonl", json.dumps({"docno": "日本", "text": "é"}, ensure_ascii=False))
        put("qrels.txt", "1 0 日本 1\n")
        turns = [{"number": 81, "turn": [{"number": 1, "raw_utterance": "’", "automatic_rewritten_utterance": "é"}]}]
        for name in ("2020_manual_evaluation_topics_v1.0.json", "2020_automatic_evaluation_topics_v1.0.json"):
            put(name, json.dumps(turns, ensure_ascii=False))
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", CODE, *map(str, folders)],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    told = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if "EncodingWarning" in line]
    assert not [line for line in told if "pt_convsearch" in line]
