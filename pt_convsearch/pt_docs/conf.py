"""Sphinx settings of the site: ``sphinx-build -W pt_convsearch/pt_docs out/docs``, which asks no network.

``index.rst`` and the pages beside it are pulled into PyTerrier's own site too, so they use only what that site loads as
well: autodoc, napoleon and plain MyST.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import warnings
from typing import Any

from sphinx.util import inspect

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

project = "pt_convsearch"
author = "The pt_convsearch authors"
copyright = f"2026, {author}"
release = importlib.metadata.version("pt-convsearch")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_parser"]
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = f"pt_convsearch {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

NAMES = re.compile(r" +(\w+, )*\w+,")


def find_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Docstrings say ``pt_convsearch.Experiment`` or ``Experiment``; the reference has it under its room."""
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].removeprefix("pt_convsearch.")
    objects = env.domains["py"].objects
    full = next((full for full in objects if full.startswith("pt_convsearch.") and full.endswith(f".{name}")), None)
    if full is None:
        return None
    kind = objects[full].objtype
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, kind, full, node, content)


def for_napoleon(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings as napoleon reads them: names of options on one line where ``a, b,`` and ``c: what`` were two."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)  # what stands before a colon would be taken for a type
    at = 0
    while at + 1 < len(lines):
        if NAMES.fullmatch(lines[at]) and lines[at + 1].startswith("    "):
            lines[at] += f" {lines.pop(at + 1).strip()}"
        else:
            at += 1


def show_options(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """The options of a stage: PyTerrier's ``__new__`` takes anything, the constructor says what."""
    if what != "class" or signature != "(*args, **kwargs)" or obj.__init__ is object.__init__:
        return signature, returns
    options = inspect.signature(obj.__init__, bound_method=True)
    return inspect.stringify_signature(options, show_return_annotation=False, unqualified_typehints=True), returns


def setup(app: Any) -> None:
    warnings.filterwarnings("ignore")  # those of libraries that autodoc imports
    app.connect("autodoc-process-docstring", for_napoleon, priority=400)  # napoleon's is 500
    app.connect("autodoc-process-signature", show_options)
    app.connect("missing-reference", find_public_name)
