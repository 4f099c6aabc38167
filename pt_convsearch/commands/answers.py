"""``answers``: does a retriever need the question? Measured on any chat log, with its own answers as the collection."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pt_convsearch._files import check_folder, json_or_none, no_address, writing_text, written
from pt_convsearch.commands._answers_log import (
    all_rewritten,
    groups_of_log,
    log_task,
    notes_on,
    sampled,
    search_depth,
    swappable,
)
from pt_convsearch.commands._answers_report import ORACLE, UNSEEN, figure, report

if TYPE_CHECKING:
    import pandas as pd

    from pt_convsearch.evaluation.study import Engine, Study
    from pt_convsearch.topics.task import Task

#: the files that it writes
WRITTEN = ("answers.png", "results.csv", "results.json", "table.md")
#: collections up to this size are encoded without being asked to
MOST_ENCODED = 20_000
#: English has about a fifth of such words, German, Spanish and Dutch up to a twentieth; a few words tell nothing
LEAST_ENGLISH, FEWEST_WORDS = 0.1, 200
#: a log in one script has this share of its letters from it, names and loan words aside
MOSTLY = 0.8


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "answers",
        help="measure the shortcut on a log of your own, without judgments",
        description="Makes a retrieval task of a log: every question looks for the answer it was given, among all "
        "answers of the log. Searches with BM25 and (where an encoder is installed) dense, with the whole conversation "
        "(X_t), without the current question (X_t\\q_t), with it alone (q_t), all questions (Q_t) and the last answer "
        "(a_{t-1}); prints the table by turn depth, beside an oracle that knows the conversation and not the question, "
        "and how much the rankings depend on the question. Answers that the history holds already fill the top ranks, "
        "so every figure is given with and without them ('unseen').",
    )
    parser.add_argument(
        "conversations",
        type=Path,
        metavar="LOG",
        help="chat logs, dialogues or topics: .jsonl, .json, .parquet, also .gz, .bz2, .xz, or a folder of them",
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="where results.csv, results.json, table.md and answers.png go",
    )
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a label to break the table down by; may be given again",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=2000,
        metavar="N",
        help="questions searched, drawn evenly (default 2000; 0: all); the collection is always that of the whole log",
    )
    parser.add_argument("--no-dense", action="store_true", help="leave the dense rows out")
    parser.add_argument(
        "--encoder",
        metavar="MODEL",
        help="name or folder of a bi-encoder (default: all-MiniLM-L6-v2 where installed, "
        f"for up to {MOST_ENCODED:,} answers)",
    )
    parser.add_argument(
        "--tokenizer",
        choices=["auto", "lucene", "unicode"],
        default="auto",
        help="of BM25: lucene (English), unicode (any script); auto: unicode where most letters are not Latin",
    )
    parser.add_argument(
        "--stemmer",
        metavar="LANGUAGE",
        help="of BM25, e.g. german, or none (default: English for lucene, none for unicode)",
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="THEIRS=OURS",
        help="another name of a field, e.g. dialog=messages; may be given again",
    )
    parser.add_argument(
        "--roles",
        action="append",
        default=[],
        metavar="THEIRS=OURS",
        help="another name of a speaker: OURS is user, assistant or none (left out), e.g. bot=assistant; may be given "
        "again",
    )
    parser.add_argument(
        "--user", metavar="NAME", help="who asks, in dialogues of named speakers (default: who opens them)"
    )
    parser.add_argument(
        "--duplicates",
        choices=["equal-text", "own-id"],
        default="equal-text",
        help="equal answers are one document (default), or each its own",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the control (default 1)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; prints the tables to stdout and progress to stderr."""
    began = time.perf_counter()
    timings: dict[str, float] = {}

    def say(text: str) -> None:
        if not arguments.quiet:
            print(f"[{time.perf_counter() - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    _check(arguments)
    say(f"reading {arguments.conversations.name}; libraries are loaded meanwhile, which takes a while the first time")
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import FORMS, shortcut_study

    task = log_task(arguments, say)
    timings["read"] = time.perf_counter() - began
    topics = sampled(task, arguments.sample, arguments.seed)
    total = task.qrels["qid"].nunique()
    if len(topics) < total:
        say(f"{len(topics):,} of {total:,} questions are searched (--sample), all answers are the collection")
    groups = groups_of_log(topics, arguments.by)
    depth, notes = search_depth(topics), notes_on(task, topics)
    forms = {name: parts for name, parts in FORMS.items() if name != "rewrite" or all_rewritten(topics)}

    with tempfile.TemporaryDirectory(prefix="convsearch-") as folder:
        bm25, tokens = _bm25(Path(folder), task, arguments, depth, timings, say, notes)
        engines = [bm25]
        dense = _dense(Path(folder), task, arguments, depth, timings, say, notes)
        if dense is not None:
            engines.append(dense)
            notes += _cut_queries(dense, topics)
        study = shortcut_study(
            [one for engine in engines for one in (engine, _unseen(engine))],
            topics,
            task.qrels,
            _measures(),
            forms=forms,
            by=groups,
            dependence_by=groups,
            control="swapped" if swappable(topics) else None,
            seed=arguments.seed,
            on_step=say,
        )
    _add_oracle(study, task, topics, groups)
    timings["total"] = time.perf_counter() - began

    names = [engine.name for engine in engines]
    settings = {
        "log": arguments.conversations.name,
        "questions": len(task.topics),
        "with an answer": total,
        "searched": len(topics),
        "answers": len(task.corpus),
        "task": "answers as the collection",
        "seed": arguments.seed,
        "duplicates": arguments.duplicates,
        "BM25": tokens,
        "engines": names,
        "notes": notes,
    }
    # all is made before anything is written
    text = "\n\n".join(report(study, names, list(forms), groups, "text", notes))
    with_markup = "\n\n".join(report(study, names, list(forms), groups, "markdown", notes))
    drawn = figure(study, names[-1], groups)
    study.write(arguments.out, settings=settings, timings=timings)
    with writing_text(arguments.out / "table.md") as handle:
        handle.write(with_markup + "\n")
    with written(arguments.out / "answers.png") as temporary:
        drawn.savefig(temporary, dpi=150, format="png")
    print(text)
    print(f"\nWritten to {arguments.out}: {', '.join(WRITTEN)}")
    say(f"done ({cs.__name__} {cs.__version__})")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Options that would be found wrong only after the work, or that would cost the user a file."""
    log, out = arguments.conversations, no_address(arguments.out)
    check_folder(out, "--out")
    if out.resolve() == log.resolve():
        raise ValueError(f"--out {out} is the folder of the log: name another one")
    if log.resolve() in {(out / name).resolve() for name in WRITTEN}:
        raise ValueError(f"--out {out} is where the log lies, and {log.name} would be written over: name another")
    there = out / "results.json"
    if there.is_file() and "environment" not in (json_or_none(there) or ()):
        raise ValueError(f"{there} is there and no result of this package: name another folder as --out")
    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: give a number from 0 on")


# -- the engines


def _bm25(
    folder: Path,
    task: Task,
    arguments: argparse.Namespace,
    depth: int,
    timings: dict[str, float],
    say: Callable[[str], None],
    notes: list[str],
) -> tuple[Engine, dict[str, Any]]:
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import Engine
    from pt_convsearch.lexical.settings import DEFAULTS

    tokenizer, latin = arguments.tokenizer, _latin(task)
    if tokenizer == "auto":
        tokenizer = "lucene" if latin >= 0.5 else "unicode"
        if tokenizer == "unicode":
            notes.append(
                "most letters are not Latin: BM25 uses the tokenizer 'unicode' (--tokenizer lucene for the other)"
            )
            say(notes[-1])
    if 1 - MOSTLY < latin < MOSTLY:
        notes.append(
            f"{latin:.0%} of the letters are Latin: the log mixes scripts, and one tokenizer ({tokenizer!r}) cuts all "
            "of it: a file for each language, measured one by one, says more"
        )
        say(notes[-1])
    options: dict[str, Any] = {"tokenizer": tokenizer}
    if tokenizer == "unicode":
        options |= {"stemmer": None, "stopwords": None}
    if tokenizer == "lucene" and not arguments.stemmer and (share := _english(task)) is not None:
        notes.append(
            f"only {share:.0%} of the words are English function words, and BM25 reads the log as English: if it is in "
            "another language, --stemmer names it (german, french …), or none"
        )
        say(notes[-1])
    if arguments.stemmer:
        options |= {"stemmer": None if arguments.stemmer == "none" else arguments.stemmer, "stopwords": None}
    say(f"indexing {len(task.corpus):,} answers with BM25")
    start = time.perf_counter()
    index = cs.BM25Index(folder / "answers.bm25", store_text=False, verbose=not arguments.quiet, **options).index(
        task.corpus
    )
    timings["index BM25"] = time.perf_counter() - start
    say("indexed with BM25")
    used = {name: options.get(name, DEFAULTS[name]) for name in ("tokenizer", "stemmer", "stopwords")}
    return Engine("BM25", index.bm25(num_results=depth)), used


def _latin(task: Task) -> float:
    """The share of the letters that are Latin, as far as a thousand answers tell; 1 where there are no letters."""
    import regex

    text = _some_text(task)
    letters = len(regex.findall(r"\p{L}", text))
    return len(regex.findall(r"\p{Latin}", text)) / letters if letters else 1.0


def _english(task: Task) -> float | None:
    """The share of Lucene's English stop words, where there are so few that the log is hardly English."""
    from pt_convsearch.lexical.analysis import LUCENE_STOPWORDS, lucene_tokens

    words = lucene_tokens(_some_text(task))
    share = sum(word in LUCENE_STOPWORDS for word in words) / max(1, len(words))
    return share if len(words) >= FEWEST_WORDS and share < LEAST_ENGLISH else None


def _some_text(task: Task) -> str:
    step = max(1, len(task.corpus) // 1000)
    return " ".join(document["text"][:500] for document in itertools.islice(task.corpus, 0, None, step))


def _dense(
    folder: Path,
    task: Task,
    arguments: argparse.Namespace,
    depth: int,
    timings: dict[str, float],
    say: Callable[[str], None],
    notes: list[str],
) -> Engine | None:
    if arguments.no_dense:
        return None
    if arguments.encoder is None and len(task.corpus) > MOST_ENCODED:
        notes.append(
            f"the dense rows are left out: {len(task.corpus):,} answers take long to encode "
            "(--encoder MODEL does it all the same)"
        )
        say(notes[-1])
        return None
    import pt_convsearch as cs
    from pt_convsearch.dense import minilm_path
    from pt_convsearch.evaluation.study import dense_engine

    try:
        model = arguments.encoder or minilm_path()
    except ImportError as error:
        notes.append(f"the dense rows are left out. {error}")
        say(notes[-1])
        return None
    say(f"loading the encoder, encoding {len(task.corpus):,} answers")
    start = time.perf_counter()
    try:
        encoder = cs.BiEncoder(model, verbose=not arguments.quiet)
    except OSError as error:
        raise ValueError(f"--encoder {model}: no such model ({str(error).splitlines()[0]})") from error
    index = cs.DenseIndex(folder / "answers.flex", encoder).index(task.corpus)
    timings["index dense"] = time.perf_counter() - start
    name = "MiniLM" if arguments.encoder is None else Path(arguments.encoder).name
    say(f"encoded with {name}")
    if encoder.cut["passage"]:
        notes.append(
            f"{encoder.cut['passage']:,} answers are longer than the {encoder.max_passage_length} tokens that {name} "
            "reads, and were cut"
        )
    if arguments.encoder is None and _latin(task) < 0.5:
        notes.append("all-MiniLM-L6-v2 is a model of English: --encoder names one for another language")
    return dense_engine(name, index.retriever(num_results=depth), encoder)


def _cut_queries(engine: Engine, topics: pd.DataFrame) -> list[str]:
    """How many conversations are longer than what the encoder reads of a query."""
    import pt_convsearch as cs

    cut = int((cs.form(cs.X, **engine.form_options).transform(topics)["qcut"] > 0).sum())
    read = f"the {engine.form_options['max_tokens']} tokens that {engine.name} reads of a query"
    said = f"{cut:,} of {len(topics):,} conversations (X_t) are longer than {read}: older messages were left out"
    return [said] if cut else []


def _unseen(engine: Engine) -> Engine:
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import Engine

    return Engine(engine.name + UNSEEN, engine.retriever, engine.form_options, cs.DropSeen())


def _measures() -> list[Any]:
    from ir_measures import RR, R

    return [R @ 1, R @ 10, RR]


def _add_oracle(study: Study, task: Task, topics: pd.DataFrame, groups: list[Any]) -> None:
    """The oracle's expectation, as the first two rows of the table."""
    from pt_convsearch.evaluation.oracle import ConversationOracle, with_row

    oracle = ConversationOracle(task.topics, task.qrels)
    for name in (ORACLE + UNSEEN, ORACLE):
        values = oracle.expected(topics, task.qrels, _measures(), drop_seen=name != ORACLE)
        study.table = with_row(study.table, name, values, topics, groups)
