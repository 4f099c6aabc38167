"""Where files of a collection are found and how they get there: one cache, one order of looking, every file checked."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyterrier as pt

from pt_convsearch._files import sha256, write_json
from pt_convsearch._lines import DAMAGE, open_data
from pt_convsearch.datasets.archives import unpack
from pt_convsearch.datasets.download import download
from pt_convsearch.datasets.source import File, Source

logger = logging.getLogger(__name__)
_SUFFIXES = (".gz", ".bz2", ".xz", ".zip")
_POINTER = b"version https://git-lfs.github.com/spec/"
_DEPTH = 6  # how deep below path= files are looked for: a clone of the distributor's repository will do


def home() -> Path:
    """The folder that collections are kept in: ``$CONVSEARCH_HOME``, else ``convsearch`` in PyTerrier's home.

    A folder per collection lies in it (``cast``, ``qrecc`` …); files that you put there yourself are found as well.
    """
    given = os.environ.get("CONVSEARCH_HOME")
    return Path(given).expanduser() if given else Path(pt.io.pyterrier_home()) / "convsearch"


def is_offline() -> bool:
    """Whether the environment forbids the network: ``CONVSEARCH_OFFLINE``, else ``HF_HUB_OFFLINE``."""
    value = os.environ.get("CONVSEARCH_OFFLINE", os.environ.get("HF_HUB_OFFLINE", ""))
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def obtain(
    source: Source,
    file: File,
    *,
    name: str,
    path: Path | None = None,
    given: Path | None = None,
    offline: bool | None = None,
    verify: bool = True,
    verbose: bool = False,
) -> Path:
    """The path of ``file``: given, in ``path``, in the cache, or fetched into it.

    Raises:
        FileNotFoundError: it is nowhere and cannot be fetched; the message says where it was looked for and how to
            supply it.
        ValueError: it is cut or altered, by size or checksum.
    """
    if given is not None:
        if not given.exists():
            raise FileNotFoundError(f"convsearch:{name}: files={{{file.key!r}: {str(given)!r}}}: there is no such file")
        return _checked(given, file, verify)
    found = find(source, file, path)
    if found is not None:
        if verify and path is None:
            _as_it_came(source, file, found)
        return _checked(found, file, verify)
    if file.archive is not None and (outer := find(source, source.file(file.archive), path)) is not None:
        return _from_archive(source, file, _checked(outer, source.file(file.archive), verify))
    offline = is_offline() if offline is None else offline
    if path is not None or offline or (file.url is None and file.archive is None):
        raise FileNotFoundError(_how_to_supply(source, file, name, path, offline))
    return _fetched(source, file, name=name, verify=verify, verbose=verbose)


def find(source: Source, file: File, path: Path | None = None) -> Path | None:
    """Where ``file`` lies in ``path``, or without one in the cache; ``None`` where it does not.

    Raises:
        ValueError: several different files of that name lie below ``path``.
    """
    folder = path if path is not None else home() / source.key
    names = [spelling for name in (file.name, *file.aliases) for spelling in _spellings(name)]
    for name in dict.fromkeys([*names, *(Path(name).name for name in names)]):
        if (folder / name).exists():
            return folder / name
    if path is None:
        return None
    wanted = {Path(name).name for name in names}
    found = [place for place in _below(path) if place.name in wanted]
    if len(found) > 1:
        # a clone of the repository: the distributor's own folders tell them apart
        exact = [place for place in found if place.as_posix().endswith(tuple(f"/{name}" for name in names))]
        found = exact or found
    if len(found) > 1 and file.sha256 is not None:
        found = [place for place in found if any(_agree(one, file) for one in _fingerprints(place))] or found
    if len(found) > 1 and len({sha256(place) for place in found}) > 1:
        shown = ", ".join(map(str, found[:3]))
        raise ValueError(f"several different files called {found[0].name!r}: {shown}: give the one meant with files=")
    return found[0] if found else None


def _spellings(name: str) -> list[str]:
    """The published name, compressed since, or unpacked."""
    bare = [name.removesuffix(suffix) for suffix in (".gz", ".zip") if name.endswith(suffix)]
    return [name, *(name + suffix for suffix in _SUFFIXES), *bare]


def _below(folder: Path) -> Iterator[Path]:
    depth = len(folder.parts)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        if len(Path(place).parts) - depth >= _DEPTH:
            folders.clear()
        for one in sorted(names):
            yield Path(place) / one


def fetch(name: str, *, parts: list[str] | None = None, verbose: bool = True, **options: Any) -> dict[str, Path]:
    """Bring the files of a collection into the cache, if they are not there yet.

    Args:
        name: as for :func:`pt_convsearch.dataset`.
        parts: keys of the files; ``None``: all that are published and not optional.
        verbose: show progress.
        **options: of the collection.

    Returns:
        dict: key of a file -> its path.

    Raises:
        KeyError: no such collection or part.
        FileNotFoundError: a file that cannot be fetched; the message says how to supply it.
        ConnectionError: the download failed; what came is kept, and the next call goes on from there.
        ValueError: what came is not what was published.
    """
    from pt_convsearch.datasets.registry import dataset

    data = dataset(name, **options)
    if data.source is None:
        return {}
    wanted = parts or [file.key for file in data.source.files if not file.optional and not file.how]
    return {
        key: obtain(
            data.source,
            data.source.file(key),
            name=name,
            path=data.path,
            given=data.files.get(key),
            offline=data.offline,
            verify=data.verify,
            verbose=verbose,
        )
        for key in wanted
    }


def _fetched(source: Source, file: File, *, name: str, verify: bool, verbose: bool) -> Path:
    _show_licence(source)
    if file.archive is not None:
        outer = obtain(source, source.file(file.archive), name=name, offline=False, verify=verify, verbose=verbose)
        return _from_archive(source, file, outer)
    assert file.url is not None
    target = home() / source.key / file.name
    try:
        download(file.url, target, size=file.size, sha256=file.sha256, verbose=verbose)
    except ConnectionError as error:
        raise ConnectionError(f"{error}. {_how_to_supply(source, file, name, None, None)}") from error
    write_json(_note(source), {**_sizes(source), file.name: target.stat().st_size})
    return target


def _as_it_came(source: Source, file: File, found: Path) -> None:
    """Refuse a file of the cache that is no longer as long as when it was fetched."""
    came = _sizes(source).get(file.name)
    if came is not None and found == home() / source.key / file.name and found.stat().st_size != came:
        raise ValueError(
            f"{found} has {found.stat().st_size} bytes, and {came} were fetched: remove it, and fetch it again"
        )


def _sizes(source: Source) -> dict[str, int]:
    try:
        sizes: dict[str, int] = json.loads(_note(source).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return sizes


def _note(source: Source) -> Path:
    return home() / source.key / ".fetched.json"


def _from_archive(source: Source, file: File, archive: Path) -> Path:
    """A member of an archive, written out into the cache (the archive's own folder stays as it is)."""
    state = archive.stat()
    mark = hashlib.sha256(f"{archive.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    target = home() / source.key / "unpacked" / mark / Path(file.name).name
    return target if target.exists() else unpack(archive, target, member=file.name)


def _show_licence(source: Source) -> None:
    """Say once for each cache under which licence the files are published."""
    mark = home() / source.key / ".licence-shown"
    if not mark.exists():
        # a warning, so that it is seen where nobody set up logging
        logger.warning(
            "%s. Licence: %s. Please cite: %s. See %s",
            source.title,
            source.licence.rstrip("."),
            source.citation,
            source.homepage,
        )
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _checked(path: Path, file: File, verify: bool) -> Path:
    if path.is_dir():
        return path
    size = path.stat().st_size
    if size == 0:
        raise ValueError(f"{path}, line 1: the file is empty: fetch it again")
    with path.open("rb") as handle:
        if handle.read(len(_POINTER)) == _POINTER:
            raise ValueError(
                f"{path}, line 1: a pointer of Git LFS, not the file: run `git lfs pull`, or fetch it again"
            )
    if not verify or (file.size is None and file.sha256 is None):
        return path
    if not any(_agree(found, file) for found in _fingerprints(path)):
        cut = " It is cut." if file.size is not None and size < file.size and path.name == Path(file.name).name else ""
        raise ValueError(
            f"{path} ({size} bytes) is not the file that was published ({file.size} bytes, SHA-256 {file.sha256})."
            f"{cut} Fetch it again{f' from {file.url}' if file.url else ''}; if yours is right (a newer version, say), "
            "verify=False reads it"
        )
    return path


def _agree(found: tuple[int, str], file: File) -> bool:
    return file.size in (None, found[0]) and file.sha256 in (None, found[1])


def _fingerprints(path: Path) -> Iterator[tuple[int, str]]:
    """Size and SHA-256 of a file, and of its text whatever its compression, line ends and byte order mark."""
    yield path.stat().st_size, sha256(path)
    digests = [hashlib.sha256() for _ in range(3)]
    sizes = [0, 0, 0]
    with contextlib.suppress(*DAMAGE, ValueError), open_data(path) as stream:
        held, first = b"", True
        while block := stream.read(1 << 20):
            raw = block
            if first:
                block, first = block.removeprefix(b"\xef\xbb\xbf"), False
            block = held + block
            held = b"\r" if block.endswith(b"\r") else b""  # its \n may be in the next block
            unix = block.removesuffix(held).replace(b"\r\n", b"\n")
            for at, part in enumerate((raw, unix, unix.replace(b"\n", b"\r\n"))):
                digests[at].update(part)
                sizes[at] += len(part)
        for at in (1, 2):
            digests[at].update(held)
            sizes[at] += len(held)
        yield from ((size, digest.hexdigest()) for size, digest in zip(sizes, digests, strict=True))


def _how_to_supply(source: Source, file: File, name: str, path: Path | None, offline: bool | None) -> str:
    place = f"{path} (and the folders below it)" if path is not None else home() / source.key / file.name
    lines = [f"convsearch:{name} needs the file {file.name!r} ({source.title}), which is not in {place}."]
    archive = source.file(file.archive) if file.archive else None
    url = file.url or (archive.url if archive else None)
    if url:
        within = f" (in it: {file.name})" if archive else ""
        why = (
            "; this run is offline"
            if offline
            else "; path= is given, so nothing is fetched"
            if path is not None
            else ""
        )
        lines.append(f"It is published at {url}{within}{why}.")
    elif file.how:
        lines.append(file.how)
    lines.append(
        f"Put it there, or say where you have it: cs.dataset({name!r}, path=FOLDER) or files={{{file.key!r}: FILE}}; "
        "CONVSEARCH_HOME moves the cache."
    )
    return " ".join(lines)


def readable_size(size: int | None) -> str:
    """'1.5 MB'; '?' where it is not known."""
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
