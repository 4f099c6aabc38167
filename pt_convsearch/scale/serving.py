"""Who holds the shards and answers: objects of this process in threads, or Ray actors."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .._process import processors
from .cluster import connect, first_line, plain_errors

logger = logging.getLogger(__name__)

#: (number of the shard, name of its method, arguments)
Call = tuple[int, str, tuple[Any, ...]]
#: after so many seconds without an answer the log says which shard is waited for
PATIENCE = 60.0
#: how often a shard that is gone for good is started again before that is an error
AGAIN = 5


class LocalShards:
    """Shards opened by this process when first asked.

    Args:
        openers: give the shards.
        threads: calls that run at the same time; None: one per processor.
    """

    def __init__(self, openers: list[Callable[[], Any]], threads: int | None = None) -> None:
        self._openers = openers
        self._shards: list[Any] = [None] * len(openers)
        self._locks = [threading.Lock() for _ in openers]
        self.threads = threads or processors()

    def __getitem__(self, number: int) -> Any:
        with self._locks[number]:
            if self._shards[number] is None:
                self._shards[number] = self._openers[number]()
            return self._shards[number]

    def _answer(self, call: Call) -> Any:
        number, method, arguments = call
        return getattr(self[number], method)(*arguments)

    def run(self, calls: Iterable[Call], threads: int | None = None) -> Iterator[Any]:
        """The answers, in the order of the calls; few are held at a time."""
        threads = threads or self.threads
        if threads == 1:
            yield from map(self._answer, calls)
            return
        with ThreadPoolExecutor(threads) as pool:
            pending: deque[Future[Any]] = deque()
            try:
                for call in calls:
                    pending.append(pool.submit(self._answer, call))
                    if len(pending) >= 4 * threads:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()

    def shared(self, value: Any) -> Any:
        """What to give to several calls in place of a large value."""
        return value

    def close(self) -> None:
        self._shards = [None] * len(self._openers)


class RayShards:
    """Shards held by actors, one each, several on a machine; an actor that is lost is started again by Ray.

    Actors are found by name: whoever opens the same index in the same Ray session shares them. They end with the
    process that was first; the others then start them again, and ask again.

    Args:
        openers: give the shards; called in the actors.
        names: what to call the shards in messages.
        key: tells the index, and this state of it.
        num_cpus: processors that Ray sets aside for a shard: 0 lets shards stand beside other work.
    """

    def __init__(self, openers: list[Callable[[], Any]], names: list[str], key: str, num_cpus: float = 0) -> None:
        self._ray = connect()
        self._names = names
        self._openers = openers
        self._num_cpus = num_cpus
        self._prefix = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._actors = [self._actor(number) for number in range(len(openers))]

    def _actor(self, number: int) -> Any:
        return self._ray.remote(ShardActor).options(
            name=f"convsearch-{self._prefix}-{number}", namespace="convsearch", get_if_exists=True,
            num_cpus=self._num_cpus, scheduling_strategy="SPREAD", max_restarts=100, max_task_retries=5,
        ).remote(self._openers[number])  # fmt: skip

    def run(self, calls: Iterable[Call], threads: int | None = None) -> Iterator[Any]:
        """The answers, in the order of the calls; few are waited for at a time."""
        pending: deque[tuple[Call, Any]] = deque()
        for call in calls:
            pending.append((call, self._asked(call)))
            if len(pending) >= 4 * len(self._actors):
                yield self._wait(*pending.popleft())
        while pending:
            yield self._wait(*pending.popleft())

    def _asked(self, call: Call) -> Any:
        number, method, arguments = call
        return self._actors[number].answer.remote(method, *arguments)

    def _wait(self, call: Call, reference: Any) -> Any:
        from ray.exceptions import ActorDiedError

        number, again = call[0], 0
        with plain_errors(f"shard {self._names[number]}"):
            while True:
                while not self._ray.wait([reference], timeout=PATIENCE)[0]:
                    logger.warning("shard %s has not answered for %.0f s: waiting on", self._names[number], PATIENCE)
                try:
                    return self._ray.get(reference)
                except ActorDiedError as error:  # the process ended that had started it, or it could not start again
                    again += 1
                    if again > AGAIN:
                        raise
                    logger.warning("shard %s was lost (%s): started again", self._names[number], first_line(error))
                time.sleep(0.2 * again)  # Ray gives its name free in a moment
                self._actors[number] = self._actor(number)
                reference = self._asked(call)

    def shared(self, value: Any) -> Any:
        """A reference, so that a large value is sent to each machine once."""
        return self._ray.put(value)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []


class ShardActor:
    """Holds one shard; opens it when first asked, so that a damaged file is an answer, not a dead actor."""

    def __init__(self, opener: Callable[[], Any]) -> None:
        self._opener = opener
        self._shard: Any = None

    def answer(self, method: str, *arguments: Any) -> Any:
        if self._shard is None:
            self._shard = self._opener()
        return getattr(self._shard, method)(*arguments)
