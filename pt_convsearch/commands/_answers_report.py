"""What ``answers`` shows: tables, sentences, a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pt_convsearch.commands._answers_log import LATER

if TYPE_CHECKING:
    import pandas as pd

    from pt_convsearch.evaluation.study import Study

UNSEEN = ", unseen"
ORACLE = "conversation oracle"


#: a difference is called one below this p-value of a paired t-test over the questions with a history
ALPHA = 0.05


def report(
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
            [
                table.loc[name if suffix == "" else unseen(name), (LATER, measure)]
                for suffix in ("", UNSEEN)
                for measure in ("R@1", "R@10", "RR")
            ]
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
    asked = int(table[LATER, "n"].iloc[0])
    return [
        f"{heading}Questions with a history (n {asked:,}); unseen: answers given before are taken out of the ranking",
        cs.render(later, style),
        f"{heading}By turn depth" + (" and label (of these the questions with a history)" if len(groups) > 1 else ""),
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
    columns = [
        "engine",
        "group",
        "n",
        "overlap@10",
        "overlap@10 swapped",
        "RBO",
        "R@10 full",
        "R@10 without",
        "R@10 swapped",
        "retention",
    ]
    return table.loc[table["group"] != "All", [column for column in columns if column in table]]


def _reading(study: Study, engine: str) -> str:
    """The figures of one engine as a sentence."""
    row, table = study.dependence[engine].summary.iloc[0], study.table
    mine = float(table[LATER]["RR"][f"{engine}{UNSEEN} X_t"])
    best = float(table[LATER]["RR"][ORACLE + UNSEEN])
    said = f"{engine}: without the question R@10 is {row['R@10 without']:.3f}, with it {row['R@10 full']:.3f}"
    said += f" ({row['retention']:.0%} kept)" if row["R@10 full"] else ""
    if math.isnan(row["overlap@10"]):
        said += "; it finds nothing for any question, with it or without"
    else:
        said += f"; the ten best agree to {row['overlap@10']:.0%}"
        if "overlap@10 swapped" in row:
            said += f", with the question of another conversation to {row['overlap@10 swapped']:.0%}"
    if mine > best + 1e-9:
        verdict = f"above the oracle{_by_the_question(study, engine)}"
    else:
        how = "below" if mine < best - 1e-9 else "no better than"
        verdict = f"{how} the oracle, so it has not shown that it reads the question"
    return f"{said}. Unseen MRR {mine:.3f}, oracle {best:.3f}: {verdict}."


def _by_the_question(study: Study, engine: str) -> str:
    """Whether the question is what helps: the next answer may resemble the last one, which no oracle knows."""
    from pt_convsearch.measures.significance import paired_test

    rows = study.per_query[study.per_query["measure"] == "RR"].set_index(["name", "qid"])["value"]
    of = {form: rows[f"{engine}{UNSEEN} {form}"] for form in ("X_t", "X_t\\q_t")}
    asked = study.dependence[engine].per_query["qid"]
    full, without = (of[form].reindex(asked).fillna(0.0).to_numpy() for form in of)
    p = paired_test(full, without)
    compared = f"without the question {without.mean():.3f}, p {p:.3f}" if p == p else f"without it {without.mean():.3f}"
    if p < ALPHA and full.mean() > without.mean():
        return f", and better than without the question ({compared}): it reads the question"
    return f", but not shown to be better than without the question ({compared}): it may live on the history alone"


def figure(study: Study, engine: str, groups: list[Any]) -> Any:
    """MRR on unseen answers by turn depth: the oracle, and the last engine with, without and with only the question."""
    from pt_convsearch.evaluation import plots

    systems = [ORACLE + UNSEEN, *(f"{engine}{UNSEEN} {form}" for form in ("X_t", "X_t\\q_t", "q_t"))]
    return plots.bars(study.table, "RR", systems=systems, groups=[name for name in groups[0] if name != LATER])
