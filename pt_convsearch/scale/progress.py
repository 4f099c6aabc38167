"""How far a training on other machines has come: read from the curve that it writes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

#: seconds from one look to the next
EVERY = 1.0


@contextlib.contextmanager
def training_bar(curve: Path, verbose: bool) -> Iterator[None]:
    """A progress bar over the steps of a training, with its last loss and dev measure, while the block runs.

    Args:
        curve: the JSON Lines that the training writes (every ten steps, or when it measures).
        verbose: show it.
    """
    if not verbose:
        yield
        return
    from tqdm.auto import tqdm

    ended = threading.Event()
    with tqdm(desc="training", unit="step") as bar:

        def watch() -> None:
            while not ended.wait(EVERY):
                show(bar, curve)

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


def show(bar: object, curve: Path) -> None:
    """Set a tqdm bar to what the curve says; a curve that is not there yet, or gone already, changes nothing."""
    try:
        lines = [json.loads(line) for line in curve.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return
    latest = {name: value for line in lines for name, value in line.items()}
    if not latest:
        return
    bar.n = latest.pop("step")  # type: ignore[attr-defined]
    shown = {name: f"{value:.4g}" for name, value in latest.items() if name not in ("epoch", "learning_rate")}
    bar.set_postfix(shown)  # type: ignore[attr-defined]
