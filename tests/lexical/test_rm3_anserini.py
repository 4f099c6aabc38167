"""RM3 beside Anserini's own, where its jar is: CONVSEARCH_ANSERINI names it (pyserini carries it), or it lies with
Terrier's jars. Anserini 1.x needs a JDK from 21 on: CONVSEARCH_JAVA names its ``java``."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import pt_convsearch as cs
from tests.conftest import SHARED

PROGRAM = """
import io.anserini.search.*; import java.nio.file.*; import java.util.*;
public class Ask { public static void main(String[] a) throws Exception {
  org.apache.lucene.search.IndexSearcher.setMaxClauseCount(100000);
  SimpleSearcher s = new SimpleSearcher(a[0]); s.set_bm25(0.9f, 0.4f);
  StringBuilder o = new StringBuilder();
  for (String q : Files.readAllLines(Path.of(a[1]))) {
    s.set_rm3(null, 10, 10, 0.5f, false, true);
    for (var e : s.get_feedback_terms(q).entrySet()) o.append(e.getKey() + " " + e.getValue() + "\\t");
    o.append("\\n");
    for (ScoredDoc d : s.search(q, 5)) o.append(d.docid + "\\t");
    o.append("\\n");
  }
  Files.writeString(Path.of(a[2]), o.toString()); } }
"""


@pytest.fixture(scope="module")
def anserini() -> list[str]:
    """The command that runs a Java class against Anserini."""
    named = os.environ.get("CONVSEARCH_ANSERINI")
    jars = [Path(named)] if named else sorted((SHARED / "jars").glob("anserini*.jar"))
    if not jars or not jars[0].is_file():
        pytest.skip("Anserini's jar not found (set CONVSEARCH_ANSERINI)")
    java = os.environ.get("CONVSEARCH_JAVA") or shutil.which("java")
    if java is None:
        pytest.skip("no Java (set CONVSEARCH_JAVA)")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 21:
        pytest.skip(f"Anserini needs a JDK from 21 on, {java} is {said.splitlines()[0]} (set CONVSEARCH_JAVA)")
    return [java, "-cp", str(jars[0])]


def test_the_same_terms_with_the_same_weights(anserini: list[str], tmp_path: Path) -> None:
    """Documents have fewer than forty terms, whose lengths Lucene keeps exactly; so scores are the same, too."""
    draw = random.Random(3)
    words = [f"w{''.join(draw.choices('bcdfgh', k=4))}" for _ in range(400)]
    documents = [
        {"id": f"d{number}", "contents": " ".join(draw.choices(words, k=draw.randint(3, 30)))} for number in range(600)
    ]
    queries = [" ".join(draw.choices(words, k=length)) for length in (1, 2, 5, 5, 20, 60, 300)]
    source = tmp_path / "json"
    source.mkdir()
    (source / "docs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    (tmp_path / "q.txt").write_text("\n".join(queries) + "\n", encoding="utf-8")
    (tmp_path / "Ask.java").write_text(PROGRAM, encoding="utf-8")
    index = [*anserini, "io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-generator",
             "DefaultLuceneDocumentGenerator", "-input", str(source), "-index", str(tmp_path / "lucene"), "-threads",
             "1", "-storeDocvectors", "-storeRaw"]  # fmt: skip
    ask = [*anserini, str(tmp_path / "Ask.java"), *(str(tmp_path / name) for name in ("lucene", "q.txt", "said.txt"))]
    for command in (index, ask):
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-2000:]
    lines = (tmp_path / "said.txt").read_text(encoding="utf-8").split("\n")
    ours = cs.BM25Index(tmp_path / "ours").index({"docno": d["id"], "text": d["contents"]} for d in documents)
    topics = pd.DataFrame({"qid": [str(number) for number in range(len(queries))], "query": queries})
    expand = ours.bm25(num_results=10) >> ours.rm3(fb_docs=10, fb_terms=10, original_query_weight=0.5)
    toks = expand(topics).set_index("qid")["query_toks"]
    found = (expand >> ours.bm25(num_results=5))(topics)
    for number in range(len(queries)):
        theirs = {pair.split(" ")[0]: float(pair.split(" ")[1]) for pair in lines[2 * number].split("\t") if pair}
        assert toks[str(number)] == pytest.approx(theirs, rel=1e-4)
        ranked = found[found["qid"] == str(number)]["docno"].tolist()
        assert ranked == lines[2 * number + 1].split("\t")[:5]
