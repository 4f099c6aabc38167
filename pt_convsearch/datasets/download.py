"""One file from the network: resumed where it broke off, checked, and renamed to its own name only when it is whole."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from pt_convsearch._files import sha256 as file_sha256, write_json

logger = logging.getLogger(__name__)
_BLOCK = 1 << 16
_TRIES = 3


def download(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    verbose: bool = False,
    tries: int = _TRIES,
    timeout: float = 30.0,
    wait: float = 1.0,
) -> Path:
    """Fetch ``url`` into ``target``.

    What has come lies in ``target``.part until it is whole; a later call goes on from there if the server still has
    the same file (by ETag or Last-Modified).

    Args:
        url: http or https.
        target: where the file goes; its folder is made.
        size: in bytes, if known; checked.
        sha256: in hexadecimal, if known; checked.
        verbose: show progress.
        tries: how often in a row the connection may fail without a byte having come.
        timeout: seconds without an answer after which it counts as failed.
        wait: seconds before the second try; doubled each time.

    Raises:
        ConnectionError: the server does not answer, says no, or breaks off; what came is kept.
        ValueError: what came has another size or checksum, or is a web page where a file is due; it is removed.
        OSError: no room on the disk.
    """
    import requests

    target.parent.mkdir(parents=True, exist_ok=True)
    part, note = target.with_name(target.name + ".part"), target.with_name(target.name + ".part.json")
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _transfer(url, part, note, target, size=size, timeout=timeout, verbose=verbose)
            break
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            came = (part.stat().st_size if part.exists() else 0) - before
            failures = 1 if came > 0 else failures + 1
            if failures >= tries:
                kept = part.stat().st_size if part.exists() else 0
                raise ConnectionError(
                    f"{url}: the connection failed {failures} times in a row ({error}); {kept} bytes are kept in "
                    f"{part}, and the next call goes on from there"
                ) from error
            logger.info("%s: broken off (%s), going on", url, error)
            time.sleep(min(wait * 2 ** (failures - 1), 60.0))
    got = part.stat().st_size
    wrong = None
    if size is not None and got != size:
        wrong = f"{got} bytes came where {size} are due"
    elif sha256 is not None and (found := file_sha256(part)) != sha256:
        wrong = f"its SHA-256 is {found} where {sha256} is due"
    elif got == 0:
        wrong = "it is empty"
    if wrong:
        part.unlink()
        note.unlink(missing_ok=True)
        raise ValueError(
            f"{url}: {wrong}; what came was removed. The published file may have changed: see its homepage"
        )
    part.replace(target)
    note.unlink(missing_ok=True)
    return target


def _transfer(
    url: str, part: Path, note: Path, target: Path, *, size: int | None, timeout: float, verbose: bool
) -> None:
    import requests
    from tqdm.auto import tqdm

    have = part.stat().st_size if part.exists() else 0
    known = _read_note(note)
    headers = {"Accept-Encoding": "identity"}
    if have and known.get("url") == url and known.get("version"):
        headers |= {"Range": f"bytes={have}-", "If-Range": known["version"]}
    else:
        have = 0
    with requests.get(url, headers=headers, stream=True, timeout=timeout) as answer:
        if answer.status_code == 416:  # nothing is left to send, or the file has become shorter
            if (answer.headers.get("Content-Range") or "").endswith(f"/{have}"):
                return
            part.unlink(missing_ok=True)
            raise requests.ConnectionError(f"{url}: the published file is shorter than what came before; starting anew")
        if answer.status_code >= 500 or answer.status_code == 429:
            raise requests.ConnectionError(f"{url}: the server answered {answer.status_code} {answer.reason}")
        if not answer.ok:
            raise ConnectionError(
                f"{url}: the server answered {answer.status_code} {answer.reason}: see if the file moved"
            )
        if "text/html" in answer.headers.get("Content-Type", "") and not target.name.lower().endswith(
            (".html", ".htm")
        ):
            raise ValueError(
                f"{url}: a web page came, not {target.name}: fetch it with a browser and supply it by hand"
            )
        resumed = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code == 206 and not resumed:
            part.unlink(missing_ok=True)
            raise requests.ConnectionError(f"{url}: the server sent another range than was asked for")
        have = have if resumed else 0
        left = int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
        due = size if size is not None else (have + left if left is not None else None)
        _need_room(part.parent, (due or have) - have)
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if version and version.startswith("W/"):  # a weak tag does not vouch for bytes
            version = answer.headers.get("Last-Modified")
        write_json(note, {"url": url, "version": version})
        with (
            part.open("ab" if resumed else "wb") as handle,
            tqdm(
                total=due, initial=have, unit="B", unit_scale=True, desc=target.name, disable=not verbose, leave=False
            ) as bar,
        ):
            came = 0
            for block in answer.iter_content(_BLOCK):
                handle.write(block)
                came += len(block)
                bar.update(len(block))
        if left is not None and came < left:
            raise requests.ConnectionError(f"{url}: broken off after {have + came} of {have + left} bytes")


def _read_note(note: Path) -> dict[str, Any]:
    try:
        value = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _need_room(folder: Path, due: int) -> None:
    free = shutil.disk_usage(folder).free
    if due > free:
        raise OSError(
            f"{os.fspath(folder)}: {due} bytes are to come and {free} are free: set CONVSEARCH_HOME to a larger disk"
        )
