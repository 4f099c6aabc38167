"""``datasets``: which collections there are, what is known of them, fetching them, checking one of your own."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "datasets",
        help="list, describe, fetch and check collections",
        description="Collections by name. They are kept in $CONVSEARCH_HOME (else in PyTerrier's home).",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = actions.add_parser("list", help="all names, with sizes, licence and what is on disk")
    listing.add_argument("--json", action="store_true", help="as JSON, one object a line")
    listing.set_defaults(run=run_list)

    info = actions.add_parser("info", help="files, sizes, licence, citation and counts of one collection")
    info.add_argument("name", help="e.g. qrecc/test")
    info.set_defaults(run=run_info)

    fetching = actions.add_parser("fetch", help="bring the files of a collection into the cache")
    fetching.add_argument("name", help="e.g. cast/2020")
    fetching.add_argument("--part", action="append", metavar="KEY", help="only this file (see info); may be repeated")
    fetching.add_argument(
        "--offline", action="store_true", help="fetch nothing: say what is missing and how to supply it"
    )
    fetching.add_argument("--quiet", action="store_true", help="no progress")
    fetching.set_defaults(run=run_fetch)

    checking = actions.add_parser(
        "check",
        help="look through a folder with topics, corpus and judgments",
        description="Exit status: 0 nothing that spoils results, 1 errors (--strict: or warnings), 2 no such folder.",
    )
    checking.add_argument("dir", metavar="DIR", help="the folder")
    checking.add_argument("--strict", action="store_true", help="warnings count as errors")
    checking.add_argument("--quiet", action="store_true", help="no progress")
    checking.set_defaults(run=run_check)


def run_list(arguments: argparse.Namespace) -> int:
    """Print a line for each name."""
    from pt_convsearch.datasets import home, names
    from pt_convsearch.datasets.cache import find, readable_size

    rows = []
    for name in names():
        data = _made(name)
        source = getattr(data, "source", None)
        if source is None:
            rows.append((name, "", "", "", "" if data is None else "embedded", ""))
            continue
        needed = [file for file in source.files if not file.optional]
        here = sum(find(source, file) is not None for file in source.files)
        sizes = [file.size for file in needed]
        known = readable_size(sum(size or 0 for size in sizes)) + ("" if all(sizes) else " +") if any(sizes) else "?"
        turns = data.counts.get("turns")
        passages = data.counts.get("passages") or data.counts.get("documents")
        rows.append(
            (
                name,
                f"{turns:,}" if turns else "",
                f"{passages:,}" if passages else "",
                known,
                f"{here} of {len(source.files)}",
                source.licence.partition(";")[0],
            )
        )
    heads = ("name", "turns", "passages", "size", "on disk", "licence")
    if arguments.json:
        for row in rows:
            print(json.dumps(dict(zip(heads, row, strict=True)), ensure_ascii=False))
        return 0
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(5)]
    for row in [heads, *rows]:
        print("  ".join([*(value.ljust(width) for value, width in zip(row, widths, strict=False)), row[5]]).rstrip())
    print(f"\n'+': some sizes are not known. Kept in {home()}")
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    """Print what is known of a collection."""
    from pt_convsearch.datasets import dataset
    from pt_convsearch.datasets.cache import find, readable_size

    data = _made(arguments.name) or dataset(arguments.name)
    source = data.source
    print(f"convsearch:{arguments.name}")
    if source is None:
        print("needs no file" if data.path is None else f"your own files, in {data.path}: see datasets check")
        return 0
    print(f"{source.title}, {source.homepage}\nLicence: {source.licence}\nCite: {source.citation}")
    if data.counts:
        print("Counts: " + ", ".join(f"{count:,} {name}" for name, count in data.counts.items()))
    for kind, variants in (("Topics", data.topics_variants), ("Judgments", data.qrels_variants)):
        if variants:
            print(f"{kind}: {', '.join(variants)} (the first is the default)")
    print("Files:")
    for file in source.files:
        place = find(source, file)
        print(f"  {file.key}: {file.name}, {readable_size(file.size)}{' (optional)' if file.optional else ''}")
        origin = file.url or (f"in {source.file(file.archive).name}" if file.archive else file.how)
        print(f"    from: {origin}")
        print(f"    SHA-256: {file.sha256 or 'not known'}; {file.checked}")
        print(f"    on disk: {place or 'no'}")
    return 0


def run_fetch(arguments: argparse.Namespace) -> int:
    """Fetch the files of a collection and print where they are."""
    from pt_convsearch.datasets import fetch

    options = {"offline": True} if arguments.offline else {}
    try:
        found = fetch(arguments.name, parts=arguments.part, verbose=not arguments.quiet, **options)
    except ConnectionError as error:
        print(f"datasets fetch: {error}", file=sys.stderr)
        return 2
    for key, place in found.items():
        print(f"{key}: {place}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Check a folder, print the report."""
    from pt_convsearch.datasets import check

    report = check(arguments.dir, verbose=not arguments.quiet and os.isatty(2))
    print(report)
    return int(bool(report.errors) or (arguments.strict and bool(report.warnings)))


def _made(name: str) -> Any:
    """The data set, where it can be made without anything of the user's."""
    from pt_convsearch.datasets import dataset

    try:
        return dataset(name)
    except (FileNotFoundError, TypeError, ValueError):
        return None
