"""Ray, started quietly where it does not run yet, and its errors told as ours."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._optional import require

logger = logging.getLogger(__name__)

#: how often Ray is tried to be started on a busy machine
STARTS = 3


def ray_module(step: str) -> Any:
    """Ray, or what to install for ``step``."""
    # Ray puts its own handlers of signals in the place of Java's, which raises SIGSEGV and handles it all the time:
    # Terrier in the same process would crash. Ray reads this when it is imported
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    return require("ray", step=step, install="pt-convsearch[ray]")


def connect(**options: Any) -> Any:
    """Ray, connected: to the cluster of this process, to ``RAY_ADDRESS``, or to one started on this machine.

    A cluster that is started here has no dashboard and sends no reports of its use; Java's handlers of signals stay as
    they are (where Ray was not imported before), so Terrier may run in the same process. Call ``ray.init`` yourself
    beforehand for anything else; a Ray that is connected already is left as it is.

    Args:
        options: for ``ray.init``.

    Returns:
        the module ``ray``.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at ``RAY_ADDRESS``.
        RuntimeError: Ray could not be started on this machine, tried three times.
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
        _begin(ray, {**defaults, **options}, tries=STARTS if local else 1)
        logger.info("Ray: %s", ray.cluster_resources())
    return ray


def _begin(ray: Any, options: dict[str, Any], tries: int) -> None:
    """Start Ray, again where its processes were too slow: it waits 30 seconds for them and has no option for more."""
    for left in reversed(range(tries)):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray raises nothing more definite
            if tries == 1 or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
            if not left:
                raise RuntimeError(
                    f"Ray did not start within 30 seconds, tried {tries} times: the machine is too busy. Try again "
                    "later, or start Ray by hand ('ray start --head') and set RAY_ADDRESS"
                ) from error
            logger.warning("Ray did not start within 30 seconds: tried again")


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
