"""Are the negatives negative? A sheet for people to judge samples of them, and the rates of false negatives from it."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pt_convsearch import _files
from pt_convsearch._optional import require
from pt_convsearch.topics.checks import first_three

from .pairs import TrainingPairs

COLUMNS = ("item", "qid", "docno", "context", "answer", "candidate", "label", "note")
_YES = frozenset({"1", "y", "yes", "true", "relevant"})
_NO = frozenset({"0", "n", "no", "false", "irrelevant", "not relevant"})


def annotation_sheet(
    samplers: Mapping[str, TrainingPairs], out: _files.PathLike, *, num_items: int = 100, seed: int = 1
) -> pd.DataFrame:
    """Write a sheet (CSV) on which people judge whether sampled negatives answer the question after all.

    For each sampler ``num_items`` negatives are drawn, at most one for a question, as the trainer draws them in its
    first epoch. All samplers are asked about the same questions as far as they have negatives for them. Rows
    are shuffled and do not say where they come from: that is kept in ``<out>.key.csv``. A pair that
    several samplers drew is judged once. Fill in ``label``: 1 if the candidate answers the question, 0 if not.

    Args:
        samplers: name -> mined set.
        out: the file to write; one that exists is left alone, since somebody may have worked on it.
        num_items: negatives per sampler; fewer where a set has fewer questions with negatives.
        seed: another seed draws others.

    Returns:
        the sheet: item (a running number), qid, docno, context (the query as the model reads it), answer (a gold),
        candidate (the negative), label and note (empty).

    Raises:
        FileExistsError: there is a sheet already.
        ValueError: no sampler, or none of them has a negative.

    Example:
        >>> sheet = cs.annotation_sheet({"BM25": bm25_pairs, "random": random_pairs}, "sheet.csv")

    Source: Penha and Hauff, experiment E1: how many of each sampler's negatives are false.
    """
    path, key = Path(out), _key_of(Path(out))
    for file in (path, key):
        if file.exists():
            raise FileExistsError(f"{file} exists: somebody may have worked on it, choose another name")
    if not samplers:
        raise ValueError("no sampler was given: name -> mined set")
    drawn: dict[tuple[str, str], dict[str, Any]] = {}
    sources: dict[tuple[str, str], list[str]] = {}
    for name, pairs in samplers.items():
        for row in _sampled(pairs, num_items, seed):
            pair = row["qid"], row["docno"]
            drawn.setdefault(pair, row)
            sources.setdefault(pair, []).append(name)
    if not drawn:
        raise ValueError("none of the samplers has a negative to judge")
    pairs_in_order = list(drawn)
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(pairs_in_order))
    shuffled = [pairs_in_order[place] for place in order]
    rows = [{"item": str(number), **drawn[pair], "label": "", "note": ""} for number, pair in enumerate(shuffled, 1)]
    _write(key, ["item", "sampler"], [[str(n), name] for n, pair in enumerate(shuffled, 1) for name in sources[pair]])
    _write(path, COLUMNS, [[row[column] for column in COLUMNS] for row in rows])
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype="str")


def _sampled(pairs: TrainingPairs, num_items: int, seed: int) -> list[dict[str, str]]:
    frame, passages = pairs.frame(), pairs.passages()
    # the order of questions depends on seed and qid alone, so that samplers are asked about the same ones
    priority = pd.util.hash_pandas_object(frame["qid"].astype(object) + f" {seed}", index=False).to_numpy()
    found: list[dict[str, str]] = []
    for at in np.argsort(priority, kind="stable").tolist():
        sample = pairs.sample(at, num_negatives=1, seed=seed)
        if len(sample.negatives) == 0:
            continue
        negative, positive = passages.iloc[int(sample.negatives[0])], passages.iloc[sample.positive]
        found.append({"qid": frame["qid"][at], "docno": negative["docno"], "context": sample.query,
                      "answer": positive["text"], "candidate": negative["text"]})  # fmt: skip
        if len(found) == num_items:
            break
    return found


def false_negative_rates(sheet: _files.PathLike, *, confidence: float = 0.95) -> pd.DataFrame:
    """The share of each sampler's negatives that people judged to be answers.

    Args:
        sheet: the filled sheet, with its key file beside it. Labels are 1 or 0 (or yes, no, true, false …); a row
            without one is not judged yet and does not count.
        confidence: the level of the intervals.

    Returns:
        one row per sampler, in the order of the key: sampler, sampled, judged, false_negatives, rate, low, high
        (Wilson's interval; NaN where nothing is judged).

    Raises:
        FileNotFoundError: the sheet or its key is missing.
        ValueError: a label that is neither, or an item with two different ones, named by item; columns or items that
            do not fit the key.

    Source: Penha and Hauff, experiment E1; Wilson (1927).
    """
    from statsmodels.stats.proportion import proportion_confint

    labels = read_labels(sheet)
    rows: dict[str, list[int | None]] = {}
    for item, name in _read(_key_of(Path(sheet)), ["item", "sampler"]):
        if item not in labels:
            raise ValueError(f"{sheet} has no row for item {item!r}: rows may be filled in and moved, not deleted")
        rows.setdefault(name, []).append(labels[item])
    found = []
    for name, values in rows.items():
        judged = [value for value in values if value is not None]
        low = high = rate = float("nan")
        if judged:
            rate = sum(judged) / len(judged)
            low, high = proportion_confint(sum(judged), len(judged), alpha=1 - confidence, method="wilson")
        found.append((name, len(values), len(judged), sum(judged), rate, float(low), float(high)))
    return pd.DataFrame(found, columns=["sampler", "sampled", "judged", "false_negatives", "rate", "low", "high"])


def read_labels(sheet: _files.PathLike) -> dict[str, int | None]:
    """The label of each item: 1, 0, or None where nobody judged it."""
    labels: dict[str, int | None] = {}
    wrong, twice = [], []
    for item, label in _read(Path(sheet), ["item", "label"]):
        number, said = _number(item), _number(label).casefold()
        if said and said not in _YES | _NO:
            wrong.append(f"{number}: {label}")
        judged = None if not said else int(said in _YES)
        known = labels.get(number)
        if known is not None and judged is not None and known != judged:
            twice.append(number)
        labels[number] = known if judged is None else judged
    if wrong:
        raise ValueError(f"{sheet}: {len(wrong)} labels are neither 1 nor 0 ({first_three(wrong)})")
    if twice:
        raise ValueError(f"{sheet}: {len(twice)} items stand twice with different labels ({first_three(twice)})")
    return labels


def _number(cell: str) -> str:
    """A cell as it was, where a spreadsheet made a number of it: 1 for 1.0 and 1,0."""
    return re.sub(r"[.,]0+$", "", cell.strip())


def annotation_widget(sheet: _files.PathLike) -> Any:
    """Judge a sheet in a notebook: one pair at a time, each answer saved to the file at once.

    Args:
        sheet: what :func:`annotation_sheet` wrote.

    Returns:
        a widget; show it as the last line of a cell.

    Raises:
        ImportError: ipywidgets is missing.
    """
    widgets = require("ipywidgets", step="the annotation widget", install="ipywidgets")
    path = Path(sheet)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in _read(path, list(COLUMNS))]
    labels = read_labels(path)
    place = itertools.count()
    state = {"at": next((n for n in place if n >= len(rows) or labels[_number(rows[n]["item"])] is None), 0)}
    text, count = widgets.HTML(), widgets.Label()

    def show() -> None:
        done = sum(1 for row in rows if row["label"].strip())
        count.value = f"{done} of {len(rows)} judged"
        if state["at"] >= len(rows):
            text.value = "<p>All pairs were seen.</p>"
            return
        row = rows[state["at"]]
        shown = [f"<p><b>{name}</b><br>{_escaped(row[name])}</p>" for name in ("context", "answer", "candidate")]
        text.value = f"<p>Item {row['item']}: does the candidate answer the context, too? {row['label']}</p>" + "".join(
            shown
        )

    def choose(label: str | None, step: int) -> None:
        if label is not None and state["at"] < len(rows):
            rows[state["at"]]["label"] = label
            _write(path, COLUMNS, [[row[column] for column in COLUMNS] for row in rows])
        state["at"] = min(max(0, state["at"] + step), len(rows))
        show()

    buttons = []
    for name, label, step in (("answers (1)", "1", 1), ("does not (0)", "0", 1), ("skip", None, 1), ("back", None, -1)):
        button = widgets.Button(description=name)
        button.on_click(lambda _, label=label, step=step: choose(label, step))
        buttons.append(button)
    show()
    return widgets.VBox([count, text, widgets.HBox(buttons)])


def _escaped(text: str) -> str:
    import html

    return html.escape(text).replace("\n", "<br>")


def _key_of(sheet: Path) -> Path:
    return sheet.with_name(f"{sheet.name}.key.csv")


def _write(path: Path, header: Any, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(header), *rows])
    with _files.written(path) as temporary:
        # the mark tells spreadsheets that this is UTF-8
        temporary.write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode("utf-8", "surrogatepass"))


def _read(path: Path, columns: list[str]) -> list[list[str]]:
    """These columns of the rows that are not blank, however a spreadsheet wrote them back.

    Commas, semicolons or tabs; UTF-8 or UTF-16; columns in any order, their names in any case; a first line ``sep=;``.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: a sheet and its key are written by cs.annotation_sheet")
    data = path.read_bytes()
    try:
        wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = data.decode("utf-16") if wide else data.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}): save it as 'CSV UTF-8'") from error
    first, _, rest = text.partition("\n")
    if first.lower().startswith("sep="):
        text, first = rest, rest.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    header, *rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) or [[]]
    place = {name.strip().casefold(): at for at, name in reversed(list(enumerate(header)))}
    missing = [column for column in columns if column not in place]
    if missing and any(header):
        raise ValueError(f"{path} has no column {missing[0]!r}: its columns are {', '.join(header)}")
    found = [
        [row[place[column]] if place[column] < len(row) else "" for column in columns] for row in rows if any(row)
    ]
    if not found:
        raise ValueError(f"{path} has no rows")
    return found
