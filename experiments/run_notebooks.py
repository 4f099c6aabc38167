"""Run the notebooks and keep what they show: tables and figures, no progress bars and no paths of this machine.

    python experiments/run_notebooks.py                        # all of them
    python experiments/run_notebooks.py notebooks/01_shortcut.ipynb

They run in a folder of their own, on the testbed also where real data lie beside the checkout: texts of other people's
data are not committed. The last cell says at which commit. A notebook that fails stays as it was.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import nbformat
from _common import say, temporary
from nbclient import NotebookClient

from pt_convsearch._files import written
from pt_convsearch.evaluation.report import environment

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
MADE = "made"  # the tag of the last cell


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="default: all under notebooks/")
    paths = parser.parse_args(argv).notebooks or sorted(NOTEBOOKS.glob("*.ipynb"))
    at = environment()["commit"]
    for path in paths:
        with written(path) as partial:
            nbformat.write(run(nbformat.read(path, as_version=4), at), partial)
        say(f"{path.name} is done")


def run(notebook: Any, at: str | None) -> Any:
    """The notebook with its outputs and a last cell that says where they come from."""
    notebook.cells = [cell for cell in notebook.cells if MADE not in cell.metadata.get("tags", [])]
    with temporary() as folder:
        elsewhere = dict.fromkeys(("CONVSEARCH_SHARED", "IRC_DIALOGUES"), str(Path(folder) / "none"))
        client = NotebookClient(
            notebook, timeout=1800, kernel_name="python3", record_timing=False, resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, **elsewhere, "TMPDIR": folder})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = [output for output in cell.outputs if not passing(output)]
            cell.outputs = nbformat.from_dict(json.loads(json.dumps(shown).replace(f"{folder}/", "")))
    text = (
        f"---\n*Outputs: `python experiments/run_notebooks.py` at commit {at or 'unknown'}, on made-up data, "
        f"{os.cpu_count()} CPU cores.*"
    )
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id=MADE, metadata={"tags": [MADE]}))
    notebook.metadata = {name: notebook.metadata[name] for name in ("kernelspec", "language_info")}
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def passing(output: Any) -> bool:
    """Whether an output is of the run alone: warnings, logs and progress bars, those of ipywidgets too."""
    data = output.get("data", {})
    bar = "application/vnd.jupyter.widget-view+json" in data and "/s]" in "".join(data.get("text/plain", ""))
    return output.get("name") == "stderr" or bar


if __name__ == "__main__":
    main()
