"""What this process may use, and what the libraries in it say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers inside the block: it draws one for each set of weights that it loads or writes;
    ours are drawn on request only."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
