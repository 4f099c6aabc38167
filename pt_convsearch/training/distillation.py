"""A student of an ad hoc retriever: how it is trained, selected and kept."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sentence_transformers.base.evaluation import BaseEvaluator

from pt_convsearch import _files
from pt_convsearch._process import quiet
from pt_convsearch.dense import BiEncoder, DenseIndex
from pt_convsearch.dense.encoding import Side, longest, text_module
from pt_convsearch.measures import as_measures, evaluate, judgments
from pt_convsearch.negatives import TrainingPairs
from pt_convsearch.negatives._fingerprint import digest
from pt_convsearch.negatives._texts import TextStore, as_store
from pt_convsearch.negatives.training_pairs import as_former
from pt_convsearch.topics.checks import check_queries

from .building import assemble, epoch_batches
from .distillation_data import Conversations, LessonCollator, Lessons, Passages, targets
from .options import processes
from .rewriter_run import check_numbers, write_rewriter_card
from .runs import BEFORE, CURVE, SETTINGS, finished, prepare
from .trainer import write_curve


class FrozenRetrieval(BaseEvaluator):
    """Searches an index of the teacher with the student's questions and measures; no passage is encoded.

    Args:
        topics: dev topics, formed; those without judgments are left out, one with an empty query counts 0.
        qrels: qid, docno, label.
        index: of the teacher.
        encoder: makes the encoder of a student in training.
        metric: one measure, e.g. "R@5".
    """

    def __init__(
        self, topics: pd.DataFrame, qrels: pd.DataFrame, index: Any, *, encoder: Callable[[Any], Any], metric: Any
    ) -> None:
        super().__init__()
        self.judgments = judgments(qrels)
        self.topics = topics[topics["qid"].isin(self.judgments.qids)].reset_index(drop=True)
        if len(self.topics) == 0:
            raise ValueError("dev: none of the questions is judged: dev is (topics, qrels, corpus or index)")
        named = as_measures(metric)
        if len(named) != 1:
            raise ValueError(f"metric={metric!r}: a model is selected by one measure")
        self.index = index
        self.encoder = encoder
        self.metric = self.primary_metric = next(iter(named))
        self.measure = named[self.metric]
        self.depth = max(100, getattr(self.measure, "params", {}).get("cutoff", 0))
        self.greater_is_better = True

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        training = model.training
        pipeline = self.encoder(model).query_encoder() >> self.index.retriever(num_results=self.depth)
        run = pipeline.transform(self.topics)[["qid", "docno", "score"]]
        model.train(training)
        values = evaluate(run, self.judgments, self.measure, qids=self.topics["qid"])
        return {self.metric: float(values.iloc[:, 0].mean())}


def check_distillation(given: Mapping[str, Any]) -> TrainingPairs | None:
    """Refuse options that no distillation can have; the training pairs, opened.

    Raises:
        ValueError: the first option that is wrong.
        TypeError: what is given as an index or as dev is none.
    """
    check_numbers(given)
    if given["num_negatives"] < 1:
        raise ValueError(f"num_negatives={given['num_negatives']}: give at least 1")
    for name in ("mse_weight", "ranking_weight", "l1_weight"):
        if name in given and not 0 <= given[name] < float("inf"):
            raise ValueError(f"{name}={given[name]}: a number from 0 on")
    pairs, index, dev = given["pairs"], given["index"], given["dev"]
    if dev is not None and (not isinstance(dev, tuple | list) or len(dev) != 3):
        raise TypeError("dev is (topics, qrels, corpus), or (topics, qrels, index of the teacher)")
    for name, one in (("index", index), ("dev", None if dev is None else dev[2])):
        if one is not None and (name == "index" or _is_index(one)):
            check_index(one, given["teacher"], name)
    if pairs is None:
        return None
    pairs = pairs if isinstance(pairs, TrainingPairs) else TrainingPairs(pairs)
    if pairs.settings["negatives"] is None:
        raise ValueError(f"{pairs!r} was made without a miner: give negatives= there")
    return pairs


def student_of(teacher: Any, max_query_length: int) -> tuple[Any, Side]:
    """A copy of the teacher's query tower, and how it reads: so many tokens, cut on the left."""
    from sentence_transformers.base.modules import Router

    tower = copy.deepcopy(teacher._load()[0])
    if isinstance(tower[0], Router):
        route = tower[0]._resolve_route(task="query", modality="text") or "query"
        route_modules: Any = tower[0].sub_modules[route]
        modules = [*route_modules, *list(tower.children())[1:]]
        prompts = {name: text for name, text in tower.prompts.items() if name == "query"}
        tower = type(tower)(
            modules=modules, device=str(tower.device), similarity_fn_name=tower.similarity_fn_name, prompts=prompts
        )
    module = text_module(tower, "query")
    limit = None if module is None else longest(module)
    length = max_query_length if limit is None else min(max_query_length, limit)
    if hasattr(module, "query_length"):
        module.query_length = length
    return tower, Side("query", length, "left", teacher._query_side.prompt)


def run_distillation(
    *,
    task: str,
    title: str,
    what: str,
    said: Conversations,
    teacher: Any,
    pairs: TrainingPairs | None,
    index: Any,
    dev: tuple[Any, ...] | None,
    form: Any,
    loss: Callable[[Any], Any],
    tell_scores: bool,
    settings: dict[str, Any],
    student: tuple[Any, Side],
    out: _files.PathLike,
    metric: Any,
    num_workers: int,
    options: Mapping[str, Any],
    callbacks: Sequence[Any],
    overwrite: bool,
    verbose: bool,
) -> Any:
    """Train a student and keep it under ``out``; go on where a killed run stopped, open what is finished.

    Returns:
        the teacher with the student as its query tower.
    """
    model, side = student
    if dev is not None and not _is_index(dev[2]):
        dev = (dev[0], dev[1], as_store(dev[2]))  # read once: it may be an iterator
    settings = {
        "task": task, **settings, "max_query_length": side.max_length, "teacher": teacher.identity(),
        "data": said.digest(), "pairs": None if pairs is None else pairs.fingerprint, "processes": processes(),
        "metric": None if dev is None else str(metric), "dev": None if dev is None else _dev_digest(dev, form),
        "trainer_options": {name: str(value) for name, value in options.items()},
    }  # fmt: skip
    settings = json.loads(json.dumps(settings))
    target = Path(out)
    work = target.with_name(f"{target.name}.training")

    def encoder(current: Any) -> Any:
        return teacher.with_query_model(current, max_query_length=side.max_length)

    if not overwrite and finished(target, settings):
        return encoder(str(target))
    with _files.alone(work) if processes() == 1 else contextlib.nullcontext():
        resume = prepare(work, settings, overwrite)
        told = [targets(teacher, texts) for texts in said.rewrites]
        with _main_first():
            known = index if index is not None or pairs is None else _indexed(teacher, work / "passages", pairs)
            searched = None if dev is None else _dev_index(dev[2], teacher, work / "dev")
        passages = None if pairs is None else Passages(known, pairs, teacher)
        evaluator = None
        if dev is not None:
            topics = as_former(form).transform(check_queries(dev[0]))
            evaluator = FrozenRetrieval(topics, dev[1], searched, encoder=encoder, metric=metric)
        with quiet():
            lessons = Lessons(said, pairs, num_negatives=settings["num_negatives"], seed=settings["seed"])
            collator = LessonCollator(
                model, side, told, said.known, passages, num_negatives=settings["num_negatives"],
                tell_scores=tell_scores,
            )  # fmt: skip
            trainer = assemble(
                model, lessons, epoch_batches(len(lessons), settings, options, what="topics"), collator, settings, work,
                loss=loss, evaluator=evaluator, num_workers=num_workers, options=options, callbacks=callbacks,
                verbose=verbose, resume=resume,
            )  # fmt: skip
            trainer.train(resume_from_checkpoint=resume)
            if trainer.is_world_process_zero():
                _keep(trainer, model, target, work, settings, title=title, what=what, teacher=teacher, said=said)
        trainer.accelerator.wait_for_everyone()
    return encoder(str(target))


def _main_first() -> contextlib.AbstractContextManager[Any]:
    """Of several processes one does the work, and then the others find it done."""
    if processes() == 1:
        return contextlib.nullcontext()
    from accelerate import PartialState

    return PartialState().main_process_first()


def _indexed(teacher: Any, path: Path, pairs: TrainingPairs) -> Any:
    """The passages of a training set, encoded by the teacher: once, and found again by a run that goes on."""
    passages = pairs.passages()
    texts = zip(passages["docno"], passages["text"], strict=True)
    return _made(teacher, path, ({"docno": docno, teacher.text_field: text} for docno, text in texts))


def _dev_index(corpus: Any, teacher: Any, path: Path) -> Any:
    """The index that is given, or one of the texts that are."""
    if _is_index(corpus):
        return corpus
    store: TextStore = corpus

    def documents() -> Iterator[dict[str, Any]]:
        for start in range(0, store.size, 10_000):
            rows = np.arange(start, min(start + 10_000, store.size))
            for docno, text in zip(store.docnos(rows), store.texts(rows), strict=True):
                yield {"docno": docno, teacher.text_field: text}

    return _made(teacher, path, documents())


def _made(teacher: Any, path: Path, documents: Iterator[dict[str, Any]]) -> Any:
    index = index_class(teacher)(path, teacher)
    return index if index.built() else index.index(documents)


def index_class(teacher: Any) -> Any:
    """The kind of index that belongs to an encoder."""
    if isinstance(teacher, BiEncoder):
        return DenseIndex
    from pt_convsearch.lexical import ImpactIndex

    return ImpactIndex


def check_index(index: Any, teacher: Any, name: str) -> None:
    """Refuse what is no index of this teacher's passages.

    Raises:
        TypeError: another kind of index.
        ValueError: an index of another encoder.
    """
    kind = index_class(teacher)
    if not isinstance(index, kind):
        raise TypeError(f"{name} is {index!r}: give the teacher's index, cs.{kind.__name__}(path, teacher)")
    index.check_encoder(teacher)


def _is_index(corpus: Any) -> bool:
    return hasattr(corpus, "retriever") and hasattr(corpus, "built")


def _dev_digest(dev: tuple[Any, ...], form: Any) -> str:
    topics, qrels, corpus = dev
    formed = as_former(form).transform(check_queries(topics))
    known = corpus.meta if _is_index(corpus) else corpus.fingerprint
    judged = judgments(qrels)
    golds = [judged.qids, judged.docnos, judged.query, judged.doc, judged.label]
    return digest([formed[["qid", "query"]], golds, json.dumps(known, sort_keys=True, default=str)])


def _keep(
    trainer: Any, model: Any, target: Path, work: Path, settings: dict[str, Any], *, title: str, what: str,
    teacher: Any, said: Conversations,
) -> None:  # fmt: skip
    """Write the student with its card, settings and curve, and remove what only a resumed run would need."""
    best = None
    if trainer.state.best_metric is not None:
        best = {f"dev {settings['metric']}": trainer.state.best_metric, "at step": trainer.state.best_global_step}
    counts = {
        "questions": len(said.texts), "with a rewrite": int(said.known.sum()),
        "with a gold passage": int((said.pair_rows >= 0).sum()), "steps": trainer.state.global_step,
    }  # fmt: skip
    with _files.written(target) as temporary:
        model.save_pretrained(str(temporary), create_model_card=False)
        write_rewriter_card(
            temporary, title=title, what=what, init=repr(teacher)[:300], settings=settings, best=best, counts=counts,
            opens=f'encoder = teacher.with_query_model("{target.name}", '
            f"max_query_length={settings['max_query_length']})",
            tags="sentence-transformers", library="sentence-transformers",
        )  # fmt: skip
        before = _files.json_or_none(work / BEFORE)
        write_curve(temporary / CURVE, trainer.state, before)
        _files.write_json(temporary / SETTINGS, settings)
    shutil.rmtree(work, ignore_errors=True)

