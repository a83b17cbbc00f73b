"""The processing threads of one stream thread: as many as are its share now.

*Guarantees*: no two threads have one name at a time. A thread that isn't wanted any more ends once it has given its
task back, however much there is to do; after the end of the stream thread it ends when all is closed. A thread that the
system doesn't start is retried by each later call: the others do its work until then.
*Assumes*: driven by the stream thread.
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
"""How long `join` waits for each thread at least."""


class WorkerHandle(Protocol):
    """The thread of a worker."""

    def join(self, timeout: float | None = None) -> None: ...


class WorkerPool:
    """*Owns*: the workers' threads. `make` makes the worker of this number, from 1; `launch` starts a thread for it.

    `refused`: why the system doesn't start a thread that is missing; None when there is none."""

    def __init__(self, make: Callable[[int], Worker], launch: Callable[[Worker], WorkerHandle]) -> None:
        self._make, self._launch = make, launch
        self._at_work: dict[int, tuple[Worker, WorkerHandle]] = {}
        self._leaving: dict[int, tuple[Worker, WorkerHandle]] = {}
        self.refused: RuntimeError | None = None

    def __len__(self) -> int:
        """Threads that are to stay."""
        return len(self._at_work)

    def resize(self, wanted: int) -> None:
        """Start threads that are missing, with the lowest free numbers; have those with the highest numbers leave that
        are too many."""
        self._forget_ended()
        at_work = sorted(self._at_work)
        missing = range(wanted - len(at_work))
        free = (number for number in count(1) if number not in self._at_work and number not in self._leaving)
        self.have({*at_work[:wanted], *(next(free) for _ in missing)})

    def have(self, numbers: Collection[int]) -> None:
        """Start the threads of these numbers that are missing; have the others leave. A thread whose number isn't free
        yet is started by a later call."""
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
                    log.error("%s: %s; it is tried again until it starts", worker.name, error)
                self.refused = error
                return
        self.refused = None

    @property
    def numbers(self) -> frozenset[int]:
        """Of all threads that haven't ended, as far as `resize` and `have` have seen."""
        return frozenset(self._at_work.keys() | self._leaving.keys())

    def _forget_ended(self) -> None:
        self._leaving = {number: left for number, left in self._leaving.items() if not left[0].ended}

    def join(self, clock: Clock, deadline_ms: int) -> None:
        """Wait for all threads, until then."""
        for _, thread in [*self._at_work.values(), *self._leaving.values()]:
            thread.join(max(SHORTEST_WAIT_MS, deadline_ms - clock.monotonic_ms()) / 1000)
