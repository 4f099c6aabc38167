"""DL-HARD, fifty hard questions of TREC DL: judgments, folds, annotations, entity links, published runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pt_convsearch.datasets.base import Dataset, register
from pt_convsearch.datasets.dl_hard_files import PUBLISHED, SOURCE, TASKS
from pt_convsearch.datasets.formats import iter_tsv, read_json, read_qrels, read_run

#: columns of the annotations after qid and query, in the file's order
ANNOTATIONS = ("query_intent", "answer_type", "topic_domain", "result_type")
LINKERS = ("gold", "rel", "blink", "genre", "elq")

#: one value, two spellings; all others are only lower-cased
_SPELLINGS = {"kg": "KG", "map": "maps"}


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

    @property
    def counts(self) -> dict[str, int]:
        collection = {"passages": 8841823} if self.task == "passage" else {"documents": 3213835}
        return {"turns": 50, "judgments": {"passage": 4256, "doc": 8544}[self.task], "annotations": 400, **collection}

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
        rows = [line.split("|") for line in PUBLISHED[self.task].strip().splitlines()]
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
