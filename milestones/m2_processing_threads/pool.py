"""Starts and ends the processing threads of one stream thread.

*Guarantees*: two threads never have the same name at the same time. A thread that is no longer wanted ends as soon as
it has given its task back, even if there is more to do; after the end of the stream thread it ends when all tasks are
closed. If the system can't start a thread, each later call retries it; until then the other threads do its work.
*Assumes*: the stream thread makes all calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from milestones.common.clock import Clock
    from milestones.m2_processing_threads.worker import Worker

log: Final = logging.getLogger(__name__)

SHORTEST_WAIT_MS = 100
"""The shortest time for which `join` waits for each thread."""


class WorkerHandle(Protocol):
    """The thread of a worker."""

    def join(self, timeout: float | None = None) -> None: ...


class WorkerPool:
    """*Owns*: the workers' threads. `make` makes the worker with this number, from 1. `launch` starts a thread for a
    worker.

    `refused`: why the system couldn't start a missing thread; None if none is missing."""

    def __init__(self, make: Callable[[int], Worker], launch: Callable[[Worker], WorkerHandle]) -> None:
        self._make, self._launch = make, launch
        self._at_work: dict[int, tuple[Worker, WorkerHandle]] = {}
        self._leaving: dict[int, tuple[Worker, WorkerHandle]] = {}
        self.refused: RuntimeError | None = None

    def __len__(self) -> int:
        """The number of threads that weren't asked to leave."""
        return len(self._at_work)

    def resize(self, wanted: int) -> None:
        """Start missing threads, with the lowest free numbers. If there are too many threads, those with the highest
        numbers leave."""
        self._forget_ended()
        at_work = sorted(self._at_work)
        missing = range(wanted - len(at_work))
        free = (number for number in count(1) if number not in self._at_work and number not in self._leaving)
        self.have({*at_work[:wanted], *(next(free) for _ in missing)})

    def have(self, numbers: Collection[int]) -> None:
        """Have threads with exactly these numbers: start missing ones, and let the others leave. A thread whose number
        isn't free yet is started by a later call."""
        self._forget_ended()
        for number in self._at_work.keys() - set(numbers):
            self._leaving[number] = self._at_work.pop(number)
            self._leaving[number][0].leaving = True
        for number in sorted(set(numbers) - self._at_work.keys() - self._leaving.keys()):
            worker = self._make(number)
            try:
                self._at_work[number] = worker, self._launch(worker)
            except RuntimeError as error:
                if self.refused is None:
                    log.error("%s: %s; the start is retried until it succeeds", worker.name, error)
                self.refused = error
                return
        self.refused = None

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of all threads that hadn't ended at the last call of `resize` or `have`."""
        return frozenset(self._at_work.keys() | self._leaving.keys())

    def _forget_ended(self) -> None:
        self._leaving = {number: left for number, left in self._leaving.items() if not left[0].ended}

    def join(self, clock: Clock, deadline_ms: int) -> None:
        """Wait until all threads have ended, but not longer than `deadline_ms`."""
        for _, thread in [*self._at_work.values(), *self._leaving.values()]:
            thread.join(max(SHORTEST_WAIT_MS, deadline_ms - clock.monotonic_ms()) / 1000)
