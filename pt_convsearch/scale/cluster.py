"""Ray, started quietly where it does not run yet, and its errors told as ours."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._optional import require

logger = logging.getLogger(__name__)


def ray_module(step: str) -> Any:
    """Ray, or what to install for ``step``."""
    return require("ray", step=step, install="pt-convsearch[ray]")


def connect(**options: Any) -> Any:
    """Ray, connected: to the cluster of this process, to ``RAY_ADDRESS``, or to one started on this machine.

    A cluster that is started here has no dashboard and sends no reports of its use. Call ``ray.init`` yourself
    beforehand for anything else; a Ray that is connected already is left as it is.

    Args:
        options: for ``ray.init``.

    Returns:
        the module ``ray``.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at ``RAY_ADDRESS``.
    """
    # where Ray meters itself, it asks a server outside: not from here
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = ray_module("running on several machines")
    if not ray.is_initialized():
        local = not (options.get("address") or os.environ.get("RAY_ADDRESS"))
        if local and options.keys() & {"num_cpus", "num_gpus", "resources", "object_store_memory"}:
            options["address"] = (
                "local"  # else Ray would join one that runs on this machine, which takes no such option
            )
        defaults: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
        if local:
            defaults["include_dashboard"] = False
        ray.init(**{**defaults, **options})
        logger.info("Ray: %s", ray.cluster_resources())
    return ray


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Raise an error of a remote function as what it was there, the loss of a worker as RuntimeError with ``what``."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, Exception) and not isinstance(cause, RayError):
            raise cause from None
        raise RuntimeError(f"{what}: {first_line(error)}") from error
    except RayError as error:
        raise RuntimeError(f"{what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of a message that may have many."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
