"""The model card: what a model was trained on, how, and how well it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pt_convsearch import _files
from pt_convsearch.negatives import TrainingPairs


def write_card(
    folder: Path,
    *,
    name: str,
    init: str,
    pairs: TrainingPairs,
    settings: dict[str, Any],
    best: dict[str, Any] | None,
    steps: int,
) -> None:
    """Write ``README.md``: data, negatives, seed, scores, how to load.

    Args:
        folder: of the model.
        name: of the folder that the model will have.
        init: what the training started from.
        pairs: the training set.
        settings: of the training.
        best: the dev measures of the checkpoint that was kept, with its step; None without a dev collection.
        steps: optimiser steps that were made.
    """
    mined = pairs.settings
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, feature-extraction, conversational-search, pyterrier, pt_convsearch]",
        "---",
        "",
        "# Bi-encoder for conversational search",
        "",
        f"Trained by pt_convsearch from {init}. It opens with both libraries:",
        "",
        "```python",
        f'encoder = pt_convsearch.BiEncoder("{name}", max_query_length={settings["max_query_length"]}, '
        f"max_passage_length={settings['max_passage_length']})",
        f'model = sentence_transformers.SentenceTransformer("{name}")',
        "```",
        "",
        f"Queries are cut on the left to {settings['max_query_length']} tokens, so that the current question stays; "
        f"passages on the right to {settings['max_passage_length']}. Vectors are compared by {settings['similarity']}.",
        "",
        "## Data",
        "",
        f"- form of the query: `{mined['form']}`",
        f"- negatives: `{mined['negatives'] or 'in-batch only'}`, {settings['num_negatives']} per question "
        f"from a pool of {mined['pool']}",
        *(f"- {name}: {value}" for name, value in pairs.counts.items()),
        f"- fingerprint of the set: {pairs.fingerprint}",
        "",
        "## Training",
        "",
        *(f"- {name}: {json.dumps(value)}" for name, value in settings.items()),
        f"- steps: {steps}",
        "",
        "## Scores",
        "",
    ]
    if best is None:
        lines.append("No dev collection was given: the last step is kept.")
    else:
        lines += [f"- dev {name}: {value}" for name, value in best.items()]
        lines.append("- the whole dev curve: `dev_curve.jsonl`")
    with _files.writing_text(folder / "README.md") as handle:
        handle.write("\n".join(lines) + "\n")
