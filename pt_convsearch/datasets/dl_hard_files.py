"""Where DL-HARD's files are published, and the figures of its README."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pt_convsearch.datasets.source import File, Source

TASKS = ("passage", "doc")
_REPO = "https://raw.githubusercontent.com/grill-lab/DL-Hard/main"
_SEEN = "the file of commit 2be6435c2b1f"

#: system, nDCG@10, RR, MAP, R@1000 as the README prints them, and the name of its run
PUBLISHED = {
    "doc": """
BM25|bm25|0.272|0.368|0.174|0.775
BM25+RM3|bm25+rm3|0.279|0.365|0.174|0.775
BM25+BERT-MaxP(Zero-Shot)|bm25+bert-mp(zs)|0.310|0.405|0.187|0.775
BM25+BERT-MaxP|bm25+bert-mp|0.317|0.402|0.200|0.775
BM25+RM3+BERT-MaxP(Zero-Shot)|bm25+rm3+bert-mp(zs)|0.314|0.415|0.188|0.775
BM25+RM3+BERT-MaxP|bm25+rm3+bert-mp|0.295|0.443|0.181|0.775
BM25+T5-MaxP(Zero-Shot)|bm25+t5-mp(zs)|0.327|0.367|0.184|0.775
BM25+RM3+T5-MaxP(Zero-Shot)|bm25+rm3+t5-mp(zs)|0.307|0.359|0.170|0.775
BM25+Electra-MaxP|bm25+electra-mp|0.385|0.448|0.216|0.775
BM25+RM3+Electra-MaxP|bm25+rm3+electra-mp|0.380|0.461|0.215|0.775
BM25+PARADE-BERT|bm25+parade-bert|0.299|0.413|0.174|0.775
BM25+RM3+PARADE-BERT|bm25+rm3+parade-bert|0.313|0.419|0.187|0.775
BM25+PARADE-Electra|bm25+parade-electra|0.356|0.498|0.207|0.775
BM25+RM3+PARADE-Electra|bm25+rm3+parade-electra|0.357|0.489|0.211|0.775
""",
    "passage": """
BM25|bm25|0.304|0.504|0.173|0.669
BM25+RM3|bm25+rm3|0.273|0.409|0.175|0.703
BM25+BERT(Zero-Shot)|bm25+bert(zs)|0.399|0.558|0.229|0.669
BM25+RM3+BERT(Zero-Shot)|bm25+rm3+bert(zs)|0.395|0.559|0.234|0.703
BM25+T5(Zero-Shot)|bm25+t5(zs)|0.408|0.591|0.238|0.669
BM25+RM3+T5(Zero-Shot)|bm25+rm3+t5(zs)|0.396|0.577|0.238|0.703
""",
}


def _file(key: str, folder: str, name: str, size: int | None, sha256: str | None, **more: Any) -> File:
    checked = _SEEN if sha256 else "not verified against a copy of the file"
    return File(key, name, url=f"{_REPO}/{folder}/{name}", size=size, sha256=sha256, checked=checked, **more)


SOURCE = Source(
    key="dl-hard",
    title="DL-HARD",
    homepage="https://github.com/grill-lab/DL-Hard",
    licence="none stated (NIST's and the authors' judgments; MS MARCO questions: non-commercial research)",
    citation="Mackie et al.: How Deep is your Learning: the DL-HARD Annotated Deep Learning Dataset. SIGIR 2021",
    files=(
        _file(
            "topics", "dataset", "topics.tsv", 2139,
            "5367dd96402edb9b409795801b5e85265995141e5882ce492227219a274aad61",
        ),
        _file(
            "folds", "dataset", "folds.json", 897,
            "90d1d089fc8747308a73328c2d921f4769f37bac77f5c6e4609b557ee4ea0080",
        ),
        _file(
            "qrels-passage", "dataset", "dl_hard-passage.qrels", 83362,
            "860c0f9dc06048f4990419fc2e7561c2961e2ec1da133f29f461db7db4ed305e",
        ),
        _file(
            "qrels-doc", "dataset", "dl_hard-doc.qrels", 173803,
            "56abc9d9d0eb6425b52767e667006ba92756a18121fe789421ed9c3d7c8d1ba0",
        ),
        _file(
            "annotations", "annotations/query", "annotations.tsv", 29658,
            "c6e32b23dfa8986efddaac1863c5477a4e6e47d8a20b409b286a8b306ea9d3e2",
        ),
        _file(
            "new-passage", "annotations/new_judgements", "new_judgements-passage.passage-level.qrels", 20508,
            "f18bf6fa0840ff548e86521b2b85f4125f2ab3340a98358e88a48ee29f7ea90d", optional=True,
        ),
        _file(
            "new-doc", "annotations/new_judgements", "new_judgements-doc.doc-level.qrels", 4629,
            "e33fc5750e6e39a8c720e161519d8cfc26ce74031dcc477f4167d7d4e2f06dcf", optional=True,
        ),
        _file(
            "gold-entities", "annotations/entity", "gold-entity-judgements.json", 145131,
            "56049ddd7ea67f1c0aa11cfc9195c1b7ba98bddce68bf8908fd8b4ef61c8015e", optional=True,
        ),
        _file("linked-entities", "annotations/entity", "entity_linker_results.json", None, None, optional=True),
        *(
            File(
                f"run-{task}-{run}", f"baselines/{task}/{run}.run",
                url=f"{_REPO}/dataset/baselines/{task}/{quote(run)}.run", checked="its first 100 ranks", optional=True,
            )
            for task in TASKS for run in (line.split("|")[1] for line in PUBLISHED[task].split())
        ),
    ),
)  # fmt: skip
