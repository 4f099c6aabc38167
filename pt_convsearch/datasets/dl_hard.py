"""DL-HARD: fifty hard questions of TREC DL 2019 and 2020: judgments, folds, annotations, entity links, published
runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.formats import iter_tsv, read_json, read_qrels, read_run
from pt_convsearch.datasets.source import File, Source

TASKS = ("passage", "doc")
#: columns of the annotations after qid and query, in the file's order
ANNOTATIONS = ("query_intent", "answer_type", "topic_domain", "result_type")
LINKERS = ("gold", "rel", "blink", "genre", "elq")

_REPO = "https://raw.githubusercontent.com/grill-lab/DL-Hard/main"
_SEEN = "the file of commit 2be6435c2b1f"
#: one value, two spellings; all others are only lower-cased
_SPELLINGS = {"kg": "KG", "map": "maps"}

#: system, nDCG@10, RR, MAP, R@1000 as the README prints them, and the name of its run
_PUBLISHED = {
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
            for task in TASKS for run in (line.split("|")[1] for line in _PUBLISHED[task].split())
        ),
    ),
    counts={"questions": 50, "folds": 5, "passage judgments": 4256, "document judgments": 8544, "annotations": 400},
)  # fmt: skip


class DLHard(Dataset):
    """Fifty single questions without a history, for passages or for documents of MS MARCO.

    ``get_topics()`` holds beside qid, query and an empty qhistory the annotations and the fold, ready for ``by=``:
    ``query_intent``, ``answer_type``, ``topic_domain``, ``result_type`` (str) and ``fold`` (int). The collection itself
    (MS MARCO) comes by way of ir_datasets. Relevance of the binary measures begins at grade 2; a question whose
    judgments hold no such grade (documents 801118 and 166046, passages 588587) counts 0, as in trec_eval with ``-c``.

    Args:
        name: ``"dl-hard/passage"`` or ``"dl-hard/doc"``.
        via: ``"distributor"`` reads the files of grill-lab/DL-Hard, ``"ir_datasets"`` takes topics, judgments and folds
            from ``msmarco-passage/trec-dl-hard`` or ``msmarco-document/trec-dl-hard`` (which fetches MS MARCO's
            questions); annotations and entity links are read from the distributor's files in both cases.
        **options: ``path``, ``files``, ``offline``, ``verify`` as in :class:`~pt_convsearch.datasets.Dataset`.

    Source: Mackie, Dalton, Yates (SIGIR 2021), arXiv:2105.07975, and the README of its repository.
    """

    source = SOURCE
    topics_variants = ("all", "fold1", "fold2", "fold3", "fold4", "fold5")
    qrels_variants = topics_variants

    def __init__(self, name: str, *, via: str = "distributor", **options: Any):
        super().__init__(name, **options)
        self.task = name.removeprefix("dl-hard/")
        if self.task not in TASKS:
            raise KeyError(f"no data set is called {name!r}: dl-hard/passage, dl-hard/doc")
        if via not in ("distributor", "ir_datasets"):
            raise ValueError(f"via={via!r}: it is 'distributor' or 'ir_datasets'")
        self.via = via

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """qid, query, qhistory (empty), conversation_id, turn_number, the four annotations, fold; all or one fold."""
        if self.via == "ir_datasets":
            rows = [(query.query_id, query.text) for query in self.ir_dataset().queries_iter()]
        else:
            rows = [(fields[0], fields[1]) for _, fields in iter_tsv(self.file("topics"), columns=2)]
        topics = pd.DataFrame(rows, columns=["qid", "query"], dtype=str)
        topics["qhistory"] = [[] for _ in range(len(topics))]
        topics["conversation_id"] = topics["qid"]
        topics["turn_number"] = 1
        annotations = self.get_annotations().set_index("qid")
        unknown = sorted(set(topics["qid"]) - set(annotations.index))
        if unknown:
            raise ValueError(
                f"{self.file('annotations')}: no annotation of topic {unknown[0]} (of {len(unknown)} topics)"
            )
        for column in ANNOTATIONS:
            topics[column] = annotations[column].reindex(topics["qid"]).to_numpy()
        fold_of = {qid: number for number, qids in self.folds().items() for qid in qids}
        missing = [qid for qid in topics["qid"] if qid not in fold_of]
        if missing:
            raise ValueError(f"topic {missing[0]} is in no fold (of {len(missing)} topics)")
        topics["fold"] = topics["qid"].map(fold_of).astype("int64")
        return self._fold(topics, variant)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """qid, docno, label (0 to 3); all or one fold."""
        if self.via == "ir_datasets":
            rows = [(qrel.query_id, qrel.doc_id, qrel.relevance) for qrel in self.ir_dataset().qrels_iter()]
            qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
        else:
            qrels = read_qrels(self.file(f"qrels-{self.task}"))
        return self._fold(qrels, variant)

    def get_corpus_iter(self, *, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """MS MARCO by way of ir_datasets: docno, text, and for documents title and url."""
        import ir_datasets

        docs = ir_datasets.load("msmarco-passage" if self.task == "passage" else "msmarco-document").docs_iter()
        if verbose:
            from tqdm.auto import tqdm

            docs = tqdm(docs, desc=f"convsearch:{self.name}", unit="d")
        for doc in docs:
            if self.task == "passage":
                yield {"docno": doc.doc_id, "text": doc.text}
            else:
                yield {"docno": doc.doc_id, "text": doc.body, "title": doc.title, "url": doc.url}

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """A published run: qid, docno, score, rank (from 0).

        Args:
            variant: its name in the repository, e.g. ``"bm25+rm3"``; :meth:`published` lists them.

        Raises:
            ValueError: no run has that name.
            FileNotFoundError: the run is not below ``path``, or cannot be fetched.
        """
        known = self.published()["run"].tolist()
        if variant is None or variant not in known:
            raise ValueError(f"convsearch:{self.name} has no published run {variant!r}: {', '.join(known)}")
        return read_run(self._run_file(variant))

    def folds(self) -> dict[int, list[str]]:
        """The five folds for cross-validation: number -> qids."""
        if self.via == "ir_datasets":
            from ir_datasets.datasets.msmarco_passage import DL_HARD_QIDS_BYFOLD

            return {int(number): sorted(qids, key=int) for number, qids in DL_HARD_QIDS_BYFOLD.items()}
        path = self.file("folds")
        folds = read_json(path)
        if not isinstance(folds, dict) or not all(isinstance(qids, list) for qids in folds.values()):
            raise ValueError(f"{path}: not the form of DL-HARD's folds, {{number: [topic, …]}}")
        return {int(number): [str(qid) for qid in qids] for number, qids in folds.items()}

    def get_annotations(self) -> pd.DataFrame:
        """All 400 questions of TREC DL 2019 and 2020: qid, query and the four annotations, "" where a cell is empty."""
        path = self.file("annotations")
        rows = [[*fields[:2], *map(_spelling, fields[2:])] for _, fields in iter_tsv(path, columns=6)]
        frame = pd.DataFrame(rows, columns=["qid", "query", *ANNOTATIONS], dtype=str)
        if frame["qid"].duplicated().any():
            raise ValueError(f"{path}: topic {frame['qid'][frame['qid'].duplicated()].iloc[0]} is annotated twice")
        return frame

    def get_entity_links(self, linker: str = "gold") -> pd.DataFrame:
        """Entities linked in the questions: qid, year, mention, entity, and for the systems score.

        Args:
            linker: ``"gold"`` (entity is a Wikipedia address), or a system's: ``"rel"``, ``"blink"``, ``"genre"``,
                ``"elq"``; the systems' candidates come best first as in the file.
        """
        if linker not in LINKERS:
            raise ValueError(f"linker={linker!r}: {', '.join(LINKERS)}")
        if linker == "gold":
            return self._gold_links()
        rows = []
        for year, qid, entry in self._entities("linked-entities"):
            # the files spell ELQ "eql"
            for link in entry.get("eql" if linker == "elq" else linker) or ():
                rows += [
                    (qid, year, link["mention"], *pair) for pair in zip(link["links"], link["scores"], strict=True)
                ]
        return pd.DataFrame(rows, columns=["qid", "year", "mention", "entity", "score"]).astype({"score": "float64"})

    def get_entity_judgments(self) -> pd.DataFrame:
        """qid, year, answer_in_link (the linked page answers the question), core_entities_in_wiki; both bool."""
        rows = [
            (qid, year, bool(entry["answer_in_link"]), bool(entry["core_entities_in_wiki"]))
            for year, qid, entry in self._entities("gold-entities")
        ]
        return pd.DataFrame(rows, columns=["qid", "year", "answer_in_link", "core_entities_in_wiki"])

    def judged_by(self) -> dict[str, str]:
        """qid -> "NIST" for questions that keep TREC DL's own judgments, "DL-HARD" for those judged anew."""
        new = _labels(read_qrels(self.file(f"new-{self.task}")))
        return {
            qid: "DL-HARD" if new.get(qid) == labels else "NIST" for qid, labels in _labels(self.get_qrels()).items()
        }

    def published(self) -> pd.DataFrame:
        """The table of the README: system, run, nDCG@10, RR, MAP, R@1000 (the last two of runs of depth 1000)."""
        rows = [line.split("|") for line in _PUBLISHED[self.task].strip().splitlines()]
        frame = pd.DataFrame(rows, columns=["system", "run", "nDCG@10", "RR", "MAP", "R@1000"])
        return frame.astype(dict.fromkeys(frame.columns[2:], "float64"))

    def ir_dataset(self) -> Any:
        """The same task in ir_datasets."""
        import ir_datasets

        return ir_datasets.load(f"msmarco-{'passage' if self.task == 'passage' else 'document'}/trec-dl-hard")

    def _fold(self, frame: pd.DataFrame, variant: str | None) -> pd.DataFrame:
        variant = self._variant(variant, self.topics_variants)
        if variant == "all":
            return frame
        return frame[frame["qid"].isin(self.folds()[int(variant[-1])])].reset_index(drop=True)

    def _entities(self, key: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        path = self.file(key)
        for year, entries in read_json(path).items():
            for qid, entry in entries.items():
                yield year, str(qid), entry

    def _gold_links(self) -> pd.DataFrame:
        rows = [
            (qid, year, mention, entity)
            for year, qid, entry in self._entities("gold-entities")
            for link in entry["gold_links"]
            for mention, entity in link.items()
        ]
        return pd.DataFrame(rows, columns=["qid", "year", "mention", "entity"])

    def _run_file(self, run: str) -> Path:
        if self.path is not None:
            for suffix in (".run", ".run.gz", ".run.bz2"):
                for found in sorted(self.path.rglob(f"*{suffix}")):
                    if found.name == run + suffix and self.task in found.parts:
                        return found
        return self.file(f"run-{self.task}-{run}")


def automatic_hard(
    annotations: pd.DataFrame,
    *,
    result_types: tuple[str, ...] = ("web search",),
    added_intents: tuple[str, ...] = ("list", "reason"),
    excluded_intents: tuple[str, ...] = ("quantity", "weather", "language"),
) -> pd.Series:
    """Which questions the automatic criteria of DL-HARD call hard, from their annotations alone.

    A question is hard where the web search engine answered it with nothing better than its result list ("web
    search"), or where its intent is one of ``added_intents``; never where its intent is one of ``excluded_intents``.

    The fifty questions of the data set were picked by hand from such candidates, and not from these alone: see the
    page on DL-HARD in the documentation for how many of them the criteria find.

    Args:
        annotations: columns ``result_type`` and ``query_intent``, as :meth:`DLHard.get_annotations` gives them.
        result_types: result types that are hard by themselves.
        added_intents: query intents added to improve recall.
        excluded_intents: query intents left out, mostly look-ups.

    Returns:
        a bool per row.

    Source: Mackie et al. (SIGIR 2021), "Automatic Hard Criteria", as the README states them.

    Example:
        >>> import pandas as pd
        >>> from pt_convsearch.datasets.dl_hard import automatic_hard
        >>> annotations = pd.DataFrame({"query_intent": ["description", "list", "quantity"],
        ...                             "result_type": ["web search", "web passage", "web search"]})
        >>> automatic_hard(annotations).tolist()
        [True, True, False]
    """
    for column in ("query_intent", "result_type"):
        if column not in annotations.columns:
            raise ValueError(
                f"annotations have no column {column!r}: give get_annotations() of cs.dataset('dl-hard/passage')"
            )
    intent = annotations["query_intent"]
    hard = annotations["result_type"].isin(result_types) | intent.isin(added_intents)
    return (hard & ~intent.isin(excluded_intents)).rename("automatic_hard")


def _spelling(cell: str) -> str:
    value = " ".join(cell.split()).lower()
    return _SPELLINGS.get(value, value)


def _labels(qrels: pd.DataFrame) -> dict[str, dict[str, int]]:
    labels: dict[str, dict[str, int]] = {}
    for qid, docno, label in zip(qrels["qid"], qrels["docno"], qrels["label"], strict=True):
        labels.setdefault(qid, {})[docno] = int(label)
    return labels


@register("dl-hard")
def _make(rest: str, **options: Any) -> DLHard:
    return DLHard(f"dl-hard/{rest}", **options)


_make.names = TASKS  # type: ignore[attr-defined]
