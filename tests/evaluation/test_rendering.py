"""The table as text: dashes, n, bold, daggers, escapes."""

from __future__ import annotations

import html.parser

import pandas as pd
import pytest
from ir_measures import RR, R

import pt_convsearch as cs


@pytest.fixture
def table(topics, qrels, systems) -> pd.DataFrame:
    return cs.Experiment(systems, topics, qrels, [RR, R @ 1], by="qtype", baseline="X_t", correction="holm")


def test_text(table) -> None:
    lines = cs.render(table, "text", digits=2).splitlines()
    assert lines[0].split("  ")[0].strip() == ""
    assert [part.strip() for part in lines[0].split("  ") if part.strip()] == [
        "All (n = 4)", "first (n = 2)", "no-switch (n = 1)", "switch (n = 1)", "missing (n = 0)",
    ]  # fmt: skip
    assert lines[1].split() == ["system", *["RR", "R@1"] * 5]
    assert lines[3].split() == ["X_t", "0.88*", "0.75*", "1.00*", "1.00*", "1.00*", "1.00*", "0.50", "0.00", "–", "–"]
    assert lines[4].split() == ["X_t\\q_t", "0.25", "0.25", "–", "–", "0.00", "0.00", "1.00*", "1.00*", "–", "–"]
    text = "\n".join(lines[6:])
    assert "4 of 5 questions judged" in text
    assert "without results, counted 0: X_t\\q_t 2" in text
    assert (
        "differs from X_t (paired t-test, p < 0.05, corrected by holm over the systems, per measure and group)" in text
    )


def test_markdown(table) -> None:
    lines = cs.render(table, digits=1, notes=False).splitlines()
    assert len(lines) == 6
    assert len({line.count("|") for line in lines}) == 1
    assert lines[0].startswith("| system | All (n = 4) |  | first (n = 2) |  |")
    assert lines[2].startswith("|  | *RR* | *R@1* |")
    assert lines[4].startswith("| X_t\\q_t | 0.2 | 0.2 | – | – |")


def test_latex(table) -> None:
    text = cs.render(table.rename(index={"q_t": "50% & more_{x}"}), "latex", digits=3)
    assert r"\multicolumn{2}{c}{first (n = 2)}" in text
    assert r"\cmidrule(lr){4-5}" in text
    assert r"X\_t\textbackslash{}q\_t & 0.250 & 0.250 & -- & --" in text
    assert r"50\% \& more\_\{x\}" in text
    assert r"\textbf{0.875}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") - line.count(r"\&") for line in rows[1:]} == {10}


def test_html_is_well_formed_and_escaped(table) -> None:
    text = cs.render(table.rename(index={"q_t": "<script>"}), "html")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text

    class Balanced(html.parser.HTMLParser):
        open: list[str] = []

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(text)
    assert parser.open == []


def test_a_pipe_in_a_name_does_not_make_a_column(table) -> None:
    lines = cs.render(table.rename(index={"q_t": "a|b"}), "markdown", notes=False).splitlines()
    assert lines[5].startswith(r"| a\|b |")
    assert lines[5].count("|") - 1 == lines[0].count("|")


def significant_table() -> pd.DataFrame:
    qids = [f"q{at}" for at in range(8)]
    topics = pd.DataFrame({"qid": qids, "query": "x", "conversation_id": qids})
    good = pd.DataFrame({"qid": qids, "docno": "g", "score": 1.0})
    worse = pd.DataFrame({"qid": qids, "docno": ["x"] * 7 + ["g"], "score": 1.0})
    qrels = pd.DataFrame({"qid": qids, "docno": "g", "label": 1})
    return cs.Experiment({"good": good, "worse": worse}, topics, qrels, [RR], baseline="good", ci=0.95)


def test_daggers_and_intervals() -> None:
    table = significant_table()
    assert table.tests["significant"].tolist() == [True]
    text = cs.render(table, "text")
    assert "0.125† [0.000, 0.375]" in text
    assert "1.000* [1.000, 1.000]" in text
    assert "[" not in cs.render(table, "text", intervals=False)
    assert "0.125<sup>†</sup>" in cs.render(table, "markdown")
    assert r"0.125$^{\dagger}$" in cs.render(table, "latex")


def test_the_best_is_marked_only_among_several(table) -> None:
    assert "*" not in cs.render(table.head(1), "text")
    assert "**" not in cs.render(table.head(1), "markdown")


def test_time_is_better_when_lower(topics, qrels, systems) -> None:
    table = cs.Experiment(systems, topics, qrels, [RR, "mrt"])
    table[("All", "mrt")] = [3.0, 1.0, 2.0]
    assert "1.0*" in cs.render(table, "text", digits=1)
    assert "3.0*" not in cs.render(table, "text", digits=1)


def test_other_frames_are_written_plainly() -> None:
    frame = pd.DataFrame({"group": ["All", "a|b"], "n": [1234, 5], "value": [0.12345, None]}, index=[0, 1])
    text = cs.render(frame, "text", digits=2)
    assert text.splitlines()[2].split() == ["All", "1234", "0.12"]
    assert text.splitlines()[3].split() == ["a|b", "5", "–"]
    assert r"a\|b" in cs.render(frame, "markdown")
    assert "a|b" in cs.render(frame.set_index("group"), "html")
    for style in ("text", "markdown", "latex", "html"):
        assert "value" in cs.render(frame.head(0), style)


def test_unknown_styles(table) -> None:
    with pytest.raises(ValueError, match="style='pdf'"):
        cs.render(table, "pdf")


def test_names_in_the_notes_of_markdown_are_escaped(topics, qrels, systems) -> None:
    named = {"<b>": systems["X_t\\q_t"], "a|b": systems["X_t"]}
    written = cs.render(cs.Experiment(named, topics, qrels, [RR], baseline="<b>"), "markdown")
    assert "<b>" not in written
    assert "counted 0: &lt;b> 2." in written
