"""``answers``: does a retriever need the question? Measured on any chat log, with its own answers as the collection."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from pt_convsearch.evaluation.study import Engine, Study
    from pt_convsearch.topics.task import Task

UNSEEN = ", unseen"
LATER = "t > 1"
ORACLE = "conversation oracle"
#: collections up to this size are encoded without being asked to
MOST_ENCODED = 20_000


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "answers",
        help="measure the shortcut on a log of your own, without judgments",
        description="Makes a retrieval task of a log: every question looks for the answer it was given, among all answers of the "
        "log. Searches with BM25 and (where an encoder is installed) dense, with the whole conversation (X_t), without the current "
        "question (X_t\\q_t), with it alone (q_t), all questions (Q_t) and the last answer (a_{t-1}); prints the table by turn depth, "
        "beside an oracle that knows the conversation and not the question, and how much the rankings depend on the question. "
        "Answers that the history holds already fill the top ranks, so every figure is given with and without them ('unseen').",
    )
    parser.add_argument("conversations", type=Path, metavar="LOG", help="chat logs, dialogues or topics: .jsonl, .json, .parquet, also .gz, .bz2, .xz")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where results.csv, results.json, table.md and answers.png go")
    parser.add_argument("--by", action="append", default=[], metavar="COLUMN", help="a label to break the table down by; may be given again")
    parser.add_argument("--sample", type=int, default=2000, metavar="N", help="questions searched, drawn evenly (default 2000; 0: all); "
                        "the collection is always that of the whole log")  # fmt: skip
    parser.add_argument("--no-dense", action="store_true", help="leave the dense rows out")
    parser.add_argument("--encoder", metavar="MODEL", help="name or folder of a bi-encoder (default: all-MiniLM-L6-v2 where installed, "
                        f"for up to {MOST_ENCODED:,} answers)")  # fmt: skip
    parser.add_argument("--tokenizer", choices=["auto", "lucene", "unicode"], default="auto",
                        help="of BM25: lucene (English), unicode (any script); auto: unicode where most letters are not Latin")  # fmt: skip
    parser.add_argument("--stemmer", metavar="LANGUAGE", help="of BM25, e.g. german, or none (default: English for lucene, none for unicode)")
    parser.add_argument("--columns", nargs="+", default=[], metavar="THEIRS=OURS", help="other names of fields, e.g. dialog=messages")
    parser.add_argument("--user", metavar="NAME", help="who asks, in dialogues of named speakers (default: who opens them)")
    parser.add_argument("--duplicates", choices=["equal-text", "own-id"], default="equal-text",
                        help="equal answers are one document (default), or each its own")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the control (default 1)")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; prints the tables to stdout and progress to stderr."""
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import FORMS, shortcut_study

    began = time.perf_counter()
    timings: dict[str, float] = {}

    def say(text: str) -> None:
        if not arguments.quiet:
            print(f"[{time.perf_counter() - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    task = _task(arguments, say)
    timings["read"] = time.perf_counter() - began
    topics = _sampled(task, arguments.sample, arguments.seed)
    total = task.qrels["qid"].nunique()
    if len(topics) < total:
        say(f"{len(topics):,} of {total:,} questions are searched (--sample), all answers are the collection")
    groups = _groups(topics, arguments.by)
    depth, notes = _depth(topics), _notes(task, topics)
    forms = {name: parts for name, parts in FORMS.items() if name != "rewrite" or _all_rewritten(topics)}

    with tempfile.TemporaryDirectory(prefix="convsearch-") as folder:
        engines = [_bm25(Path(folder), task, arguments, depth, timings, say, notes)]
        dense = _dense(Path(folder), task, arguments, depth, timings, say, notes)
        engines += [dense] if dense is not None else []
        study = shortcut_study(
            [one for engine in engines for one in (engine, _unseen(engine))], topics, task.qrels, _measures(), forms=forms,
            by=groups, dependence_by=groups, control="swapped" if _swappable(topics) else None,
            seed=arguments.seed, on_step=say,
        )  # fmt: skip
    _add_oracle(study, task, topics, groups)
    timings["total"] = time.perf_counter() - began

    names = [engine.name for engine in engines]
    settings = {
        "log": arguments.conversations.name, "questions": len(task.topics), "with an answer": total, "searched": len(topics),
        "answers": len(task.corpus), "task": "answers as the collection", "seed": arguments.seed,
        "duplicates": arguments.duplicates, "engines": names, "notes": notes,
    }  # fmt: skip
    study.write(arguments.out, settings=settings, timings=timings)
    text = "\n\n".join(_report(study, names, list(forms), groups, "text", notes))
    with_markup = "\n\n".join(_report(study, names, list(forms), groups, "markdown", notes))
    (arguments.out / "table.md").write_text(with_markup + "\n", encoding="utf-8")
    _figure(study, names[-1], groups).savefig(arguments.out / "answers.png", dpi=150)
    print(text)
    print(f"\nWritten to {arguments.out}: answers.png, results.csv, results.json, table.md")
    say(f"done ({cs.__name__} {cs.__version__})")
    return 0


# -- the task


def _task(arguments: argparse.Namespace, say: Callable[[str], None]) -> Task:
    """The log as a task of answer retrieval, or an error that says why it is none."""
    import pt_convsearch as cs

    log = arguments.conversations
    topics = _read(log, arguments)
    say(f"{log.name}: {len(topics):,} questions")
    if len(topics) == 0:
        raise ValueError(f"{log} holds no question: no conversation has a message of the user with text")
    if "answer" not in topics.columns:
        raise ValueError(f"{log} has topics without a column 'answer': there is nothing to search for (--columns THEIRS=answer)")
    if "conversation_id" not in topics.columns:
        raise ValueError(f"{log} has topics without 'conversation_id' (--columns THEIRS=conversation_id): it is never guessed")
    if "turn_number" not in topics.columns:
        turns = [1 + sum(message["role"] == "user" for message in history) for history in topics["qhistory"]]
        topics = topics.assign(turn_number=turns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there was to say about the histories was said when they were read
        task = cs.topics.answers(topics, duplicates=arguments.duplicates)
    judged = task.topics["qid"].isin(task.qrels["qid"])
    if not judged.any():
        raise ValueError(
            f"none of the {len(topics):,} questions of {log} has an answer with text: the answers are what is searched for"
        )
    if not (judged & (task.topics["qhistory"].map(len) > 0)).any():
        raise ValueError(
            f"no question of {log} with an answer has a history (all are first turns): there is nothing that could be used "
            "in place of the question"
        )
    say(
        f"{len(task.corpus):,} answers in {task.topics['conversation_id'].nunique():,} conversations; "
        f"{int((~judged).sum()):,} questions have none and are not searched"
    )
    return task


def _read(log: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    """Topics of any log, with the label columns asked for."""
    from pt_convsearch.datasets.folder import NAMES
    from pt_convsearch.topics import from_messages, read
    from pt_convsearch.topics.chats import LISTS
    from pt_convsearch.topics.files import _first

    if log.is_dir():
        raise ValueError(f"{log} is a folder: name the file of the log or of the topics in it")
    columns = dict(_renaming(pair) for pair in arguments.columns)
    first = _first(log)
    fields = set(first) if isinstance(first, dict) else set()
    if fields & set(LISTS) and "query" not in fields and not columns:
        strangers = [column for column in arguments.by if column not in fields]
        if strangers:
            raise ValueError(f"--by {strangers[0]}: {log.name} has no such field, only {', '.join(sorted(fields))}")
        return from_messages(log, columns=arguments.by)
    if "query" in fields | set(columns.values()):  # topics under the names that data sets have for them
        for ours, theirs in NAMES.items():
            found = next((name for name in theirs if name in fields and name not in columns), None)
            if found is not None and found != ours and ours not in {*fields, *columns.values()}:
                columns[found] = ours
    topics = read(log, columns=columns, **({"user": arguments.user} if arguments.user else {}))
    strangers = [column for column in arguments.by if column not in topics.columns]
    if strangers:
        raise ValueError(f"--by {strangers[0]}: the topics of {log.name} have no such column, only {', '.join(topics.columns)}")
    return topics


def _renaming(pair: str) -> tuple[str, str]:
    theirs, equals, ours = pair.partition("=")
    if not (theirs and equals and ours):
        raise ValueError(f"--columns {pair}: write THEIRS=OURS, e.g. dialog=messages")
    return theirs, ours


def _sampled(task: Task, number: int, seed: int) -> pd.DataFrame:
    """The questions to search: those with an answer, or so many of them, in the log's order."""
    import numpy as np

    judged = task.topics[task.topics["qid"].isin(task.qrels["qid"])].reset_index(drop=True)
    if number <= 0 or number >= len(judged):
        return judged
    later = np.flatnonzero(judged["qhistory"].map(len).to_numpy() > 0)
    random = np.random.default_rng(seed)
    rows = random.choice(len(judged), number, replace=False)
    if not np.isin(later, rows).any():  # a question with a history must be there, however rare
        rows[0] = random.choice(later)
    return judged.iloc[np.sort(rows)].reset_index(drop=True)


def _groups(topics: pd.DataFrame, by: list[str]) -> list[Any]:
    """By turn depth, and by the labels."""
    turn = topics["turn_number"].to_numpy()
    later = (topics["qhistory"].map(len) > 0).to_numpy()
    depths = {"t = 1": ~later, LATER: later, "t = 2": later & (turn <= 2), "t = 3-4": later & (turn >= 3) & (turn <= 4),
              "t = 5-8": later & (turn >= 5) & (turn <= 8), "t = 9+": later & (turn >= 9)}  # fmt: skip
    return [{name: mask for name, mask in depths.items() if mask.any()}, *dict.fromkeys(by)]


def _depth(topics: pd.DataFrame) -> int:
    """How deep to search, so that a hundred are left when the seen ones are gone."""
    seen = (len({message.get("docno") for message in history} - {None}) for history in topics["qhistory"])
    return min(100 + max(seen), 1000)


def _swappable(topics: pd.DataFrame) -> bool:
    """Whether a question with a history can get one from another conversation."""
    return topics["conversation_id"][topics["qhistory"].map(len) > 0].nunique() > 1


def _all_rewritten(topics: pd.DataFrame) -> bool:
    return "qrewrite" in topics.columns and bool(topics["qrewrite"].notna().all())


def _notes(task: Task, topics: pd.DataFrame) -> list[str]:
    """What a reader of the table must know about the log."""
    notes = []
    if len(topics) < task.qrels["qid"].nunique():
        notes.append(f"{len(topics):,} questions were drawn from {task.qrels['qid'].nunique():,}; the collection is the whole log's")
    golds = dict(zip(task.qrels["qid"], task.qrels["docno"], strict=True))
    again = sum(
        any(message.get("docno") == golds[qid] for message in history)
        for qid, history in zip(topics["qid"], topics["qhistory"], strict=True)
    )
    if again:
        notes.append(f"{again:,} questions have an answer that was given before in their conversation: they count 0 among the unseen")
    shared = int(task.qrels["docno"].duplicated(keep=False).sum())
    if shared:
        notes.append(f"{shared:,} questions share their answer with another, to the letter: each such answer is one document")
    if len(task.corpus) <= 100:
        notes.append(f"there are only {len(task.corpus)} answers: R@10 says little")
    if not _swappable(topics):
        notes.append("all questions with a history are of one conversation: there is no other question for the control")
    return notes


# -- the engines


def _bm25(
    folder: Path, task: Task, arguments: argparse.Namespace, depth: int, timings: dict[str, float],
    say: Callable[[str], None], notes: list[str],
) -> Engine:  # fmt: skip
    import pt_convsearch as cs
    from pt_convsearch.evaluation.study import Engine

    tokenizer = arguments.tokenizer
    if tokenizer == "auto":
        tokenizer = "lucene" if _latin(task) else "unicode"
        if tokenizer == "unicode":
            notes.append("most letters are not Latin: BM25 uses the tokenizer 'unicode' (--tokenizer lucene for the other)")
            say(notes[-1])
    options: dict[str, Any] = {"tokenizer": tokenizer}
    if tokenizer == "unicode":
        options |= {"stemmer": None, "stopwords": None}
    if arguments.stemmer:
        options |= {"stemmer": None if arguments.stemmer == "none" else arguments.stemmer, "stopwords": None}
    start = time.perf_counter()
    index = cs.BM25Index(folder / "answers.bm25", store_text=False, verbose=not arguments.quiet, **options).index(task.corpus)
    timings["index BM25"] = time.perf_counter() - start
    say("indexed with BM25")
    return Engine("BM25", index.bm25(num_results=depth))


def _latin(task: Task) -> bool:
    """Whether at least half of the letters are Latin, as far as a thousand answers tell."""
    import regex

    step = max(1, len(task.corpus) // 1000)
    text = " ".join(document["text"][:500] for document in itertools.islice(task.corpus, 0, None, step))
    return 2 * len(regex.findall(r"\p{Latin}", text)) >= len(regex.findall(r"\p{L}", text))


def _dense(
    folder: Path, task: Task, arguments: argparse.Namespace, depth: int, timings: dict[str, float],
    say: Callable[[str], None], notes: list[str],
) -> Engine | None:  # fmt: skip
    if arguments.no_dense:
        return None
    if arguments.encoder is None and len(task.corpus) > MOST_ENCODED:
        notes.append(f"the dense rows are left out: {len(task.corpus):,} answers take long to encode (--encoder MODEL does it all the same)")
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
    start = time.perf_counter()
    encoder = cs.BiEncoder(model, verbose=not arguments.quiet)
    index = cs.DenseIndex(folder / "answers.flex", encoder).index(task.corpus)
    timings["index dense"] = time.perf_counter() - start
    name = "MiniLM" if arguments.encoder is None else Path(arguments.encoder).name
    say(f"encoded with {name}")
    if encoder.cut["passage"]:
        notes.append(f"{encoder.cut['passage']:,} answers are longer than the {encoder.max_passage_length} tokens that {name} reads, and were cut")
    if arguments.encoder is None and not _latin(task):
        notes.append("all-MiniLM-L6-v2 is a model of English: --encoder names one for another language")
    return dense_engine(name, index.retriever(num_results=depth), encoder)


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


# -- what is shown


def _report(
    study: Study, engines: list[str], forms: list[str], groups: list[Any], style: str, notes: list[str]
) -> list[str]:
    """The tables and what they say, as paragraphs."""
    import pandas as pd

    import pt_convsearch as cs

    table = study.table
    names = [ORACLE, *(f"{engine} {form}" for engine in engines for form in forms)]

    def unseen(name: str) -> str:
        engine = next((engine for engine in engines if name.startswith(f"{engine} ")), ORACLE)
        return f"{engine}{UNSEEN}{name[len(engine) :]}"

    later = pd.DataFrame(
        [
            [table.loc[name if suffix == "" else unseen(name), (LATER, measure)] for suffix in ("", UNSEEN) for measure in ("R@1", "R@10", "RR")]
            for name in names
        ],
        columns=["R@1", "R@10", "MRR", "unseen R@1", "unseen R@10", "unseen MRR"],
    )
    later.insert(0, "system", names)
    shown = [group for group in table.columns.get_level_values(0).unique() if group != "All"]
    by_group = pd.DataFrame(
        [[table.loc[unseen(name), (group, "RR")] for group in shown] for name in names],
        columns=[f"{group} (n {int(table[group, 'n'].iloc[0]):,})" for group in shown],
    )
    by_group.insert(0, "unseen MRR", names)
    heading = "## " if style == "markdown" else ""
    return [
        f"{heading}Questions with a history (n {int(table[LATER, 'n'].iloc[0]):,}); unseen: answers given before are taken out of the ranking",
        cs.render(later, style),
        f"{heading}By turn depth" + (" and label" if len(groups) > 1 else ""),
        cs.render(by_group, style),
        f"{heading}Shortcut dependence: does the retriever need the question at all? (1: it does not)",
        cs.render(_dependence(study), style),
        *(_reading(study, engine) for engine in engines),
        f"The {ORACLE} knows the conversation, not the question, and orders its answers at random (expectation).",
        "The collection is the log's own answers: levels are not those of a search in a large collection.",
        *(f"Note: {note}." for note in notes),
    ]


def _dependence(study: Study) -> pd.DataFrame:
    """The dependence by group; all of its questions have a history, so "All" is "t > 1"."""
    table = study.dependence_table()
    columns = ["engine", "group", "n", "overlap@10", "overlap@10 swapped", "RBO", "R@10 full", "R@10 without", "R@10 swapped", "retention"]
    return table.loc[table["group"] != "All", [column for column in columns if column in table]]


def _reading(study: Study, engine: str) -> str:
    """The figures of one engine as a sentence."""
    row, table = study.dependence[engine].summary.iloc[0], study.table
    mine, best = table.loc[f"{engine}{UNSEEN} X_t", (LATER, "RR")], table.loc[ORACLE + UNSEEN, (LATER, "RR")]
    said = f"{engine}: without the question R@10 is {row['R@10 without']:.3f}, with it {row['R@10 full']:.3f}"
    said += f" ({row['retention']:.0%} kept)" if row["R@10 full"] else ""
    said += f"; the ten best agree to {row['overlap@10']:.0%}"
    if "overlap@10 swapped" in row:
        said += f", with the question of another conversation to {row['overlap@10 swapped']:.0%}"
    verdict = "below the oracle, so it has not shown that it reads the question" if mine < best else "above the oracle: it reads the question"
    return f"{said}. Unseen MRR {mine:.3f}, oracle {best:.3f}: {verdict}."


def _figure(study: Study, engine: str, groups: list[Any]) -> Any:
    """MRR on unseen answers by turn depth: the oracle, and the last engine with, without and with only the question."""
    from pt_convsearch.evaluation import plots

    systems = [ORACLE + UNSEEN, *(f"{engine}{UNSEEN} {form}" for form in ("X_t", "X_t\\q_t", "q_t"))]
    return plots.bars(study.table, "RR", systems=systems, groups=[name for name in groups[0] if name != LATER])
