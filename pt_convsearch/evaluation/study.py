"""The shortcut study: the same forms of every question on the same engines, and how much the question mattered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyterrier as pt

from pt_convsearch import forming
from pt_convsearch._files import PathLike
from pt_convsearch.evaluation.report import long_table, write_results

if TYPE_CHECKING:
    from pt_convsearch.dense import BiEncoder

logger = logging.getLogger(__name__)

#: the forms of Kim & Kim's ablations, by the names of the paper
FORMS: Mapping[str, forming.Parts] = {
    "X_t": forming.X,
    "X_t\\q_t": forming.X - forming.CURRENT,
    "q_t": forming.CURRENT,
    "Q_t": forming.QUESTIONS,
    "a_{t-1}": forming.LAST_ANSWER,
    "rewrite": forming.REWRITE,
}


@dataclass
class Engine:
    """A retriever with the way its queries are formed.

    Args:
        name: what rows of the table begin with, e.g. ``"BM25"``.
        retriever: Q -> R.
        form_options: options of :func:`pt_convsearch.form` for this engine: separator, token budget, repeats (of the
            parts that a form holds).
        after: an R -> R stage that every system of this engine ends with, e.g. ``cs.DropSeen()``.
    """

    name: str
    retriever: pt.Transformer
    form_options: dict[str, Any] = field(default_factory=dict)
    after: pt.Transformer | None = None

    def system(self, parts: forming.Parts) -> pt.Transformer:
        """The pipeline that searches this engine with the given parts of the conversation."""
        options = dict(self.form_options)
        if options.get("repeat"):  # a form says nothing twice that it does not say at all
            options["repeat"] = {part: times for part, times in options["repeat"].items() if part & parts}
        pipeline = forming.form(parts, **options) >> self.retriever
        return pipeline if self.after is None else pipeline >> self.after


def dense_engine(name: str, retriever: pt.Transformer, encoder: BiEncoder) -> Engine:
    """A dense engine whose queries are joined by the encoder's own separator and cut to its length, q_t kept."""
    tokenizer = encoder.tokenizer
    return Engine(
        name,
        retriever,
        {"sep": f" {tokenizer.sep_token} ", "max_tokens": encoder.max_query_length, "tokenizer": tokenizer},
    )


@dataclass
class Study:
    """What :func:`shortcut_study` found.

    Attributes:
        table: the table of :func:`Experiment`.
        dependence: engine name -> the result of :func:`shortcut_dependence`.
        timings: seconds by step.
        per_query: name, qid, measure, value behind the table.
    """

    table: pd.DataFrame
    dependence: dict[str, Any]
    timings: dict[str, float]
    per_query: pd.DataFrame

    def dependence_table(self) -> pd.DataFrame:
        """The figures of shortcut dependence, one row per engine and group."""
        return pd.concat(
            [result.summary.assign(engine=name) for name, result in self.dependence.items()], ignore_index=True
        ).pipe(lambda frame: frame[["engine", *[column for column in frame.columns if column != "engine"]]])

    def results(self) -> pd.DataFrame:
        """Table and dependence as rows of system, group, measure, value, n, and the table's intervals if it has any."""
        rows = [long_table(self.table)]
        for name, result in self.dependence.items():
            rows.append(result.long().assign(system=f"{name}: X_t against X_t\\q_t"))
        results = pd.concat(rows, ignore_index=True)
        columns = ["system", "group", "measure", "value", "n", "low", "high"]
        return results[[name for name in columns if name in results]]

    def write(self, out: PathLike, *, settings: dict[str, Any], timings: dict[str, float] | None = None) -> None:
        """Write results.csv and results.json into ``out``."""
        write_results(out, self.results(), settings=settings, timings={**(timings or {}), **self.timings})


def shortcut_study(
    engines: Sequence[Engine],
    topics: pd.DataFrame,
    qrels: pd.DataFrame,
    measures: Iterable[Any],
    *,
    forms: Mapping[str, forming.Parts] = FORMS,
    by: Any = "qtype",
    dependence_by: Any = None,
    control: str | None = "swapped",
    ci: float | None = None,
    seed: int = 1,
    verbose: bool = False,
    on_step: Callable[[str], None] | None = None,
) -> Study:
    """Run every form on every engine, tabulate by question type, and measure how much each engine needs the question.

    A form that needs a column which the topics lack (``rewrite`` without ``qrewrite``) is left out with a log line.

    Args:
        engines: what to search with; engines that share a retriever (with and without seen passages, say) share its
            searches.
        topics: the topics frame.
        qrels: qid, docno, label.
        measures: measures of ir_measures, e.g. ``[RR, R@5, R@10, R@100]``.
        forms: name -> parts; must hold the forms of the dependence, ``X_t`` and ``X_t\\q_t``.
        by: as in :func:`Experiment`.
        dependence_by: groups for the dependence, likewise; ``by`` where it is a column, by default.
        control: as in :func:`shortcut_dependence`.
        ci: as in :func:`Experiment`: intervals of the table by bootstrap over conversations.
        seed: for the control and the bootstrap.
        verbose: show progress.
        on_step: told what is being done, for a command line.

    Returns:
        the table, the dependence of each engine, and seconds by step.

    Source: Kim & Kim (2022), Tables 1 and 2 and Figure 2; the dependence without judgments is ours.
    """
    from pt_convsearch.evaluation import Experiment, shortcut_dependence

    forms = dict(forms)
    for name, parts in list(forms.items()):
        if parts == forming.REWRITE and ("qrewrite" not in topics or topics["qrewrite"].isna().any()):
            logger.warning("%s is left out: not every question has a qrewrite", name)
            del forms[name]
    timings: dict[str, float] = {}
    say = on_step or (lambda text: None)
    # forms of one question often coincide (all of a first turn), and table and dependence ask for the same rankings
    kept = {id(engine.retriever): _Kept(engine.retriever) for engine in engines}
    engines = [replace(engine, retriever=kept[id(engine.retriever)]) for engine in engines]
    systems = {f"{engine.name} {name}": engine.system(parts) for engine in engines for name, parts in forms.items()}
    say(f"{len(systems)} systems on {len(topics):,} questions")
    start = time.perf_counter()
    table, per_query = Experiment(
        systems, topics, qrels, list(measures), by=by, ci=ci, seed=seed, perquery="both", verbose=verbose
    )
    timings["experiment"] = time.perf_counter() - start
    if dependence_by is None and isinstance(by, str):
        dependence_by = by
    dependence = {}
    for engine in engines:
        say(f"shortcut dependence of {engine.name}")
        start = time.perf_counter()
        dependence[engine.name] = shortcut_dependence(
            systems[f"{engine.name} X_t"],
            systems[f"{engine.name} X_t\\q_t"],
            topics,
            qrels,
            by=dependence_by,
            control=control,
            seed=seed,
        )
        timings[f"dependence {engine.name}"] = time.perf_counter() - start
    return Study(table, dependence, timings, per_query)


class _Kept(pt.Transformer):
    """A retriever that keeps what it found for each qid and query."""

    def __init__(self, retriever: pt.Transformer) -> None:
        self.retriever = retriever
        self._found: dict[tuple[str, str], pd.DataFrame] = {}

    def transform(self, topics: pd.DataFrame) -> pd.DataFrame:
        keys = list(zip(topics["qid"], topics["query"], strict=True))
        new = [key not in self._found for key in keys]
        if any(new) or not keys:
            results = self.retriever.transform(topics[new])
            by_qid = dict(iter(results.groupby("qid", sort=False)))
            for key in (key for key, unknown in zip(keys, new, strict=True) if unknown):
                self._found[key] = by_qid.get(key[0], results.iloc[:0])
            if not keys:
                return results
        found = [self._found[key] for key in keys]
        return pd.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)
