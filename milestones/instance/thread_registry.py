"""What changes while an instance runs: how many threads it has and which sub-topologies are paused, by a user; which
topics its sources have, by those who make topics.

*Guarantees*: no two living threads have one number; a new one gets the lowest that is free, as in Kafka Streams, and
with it the transactional id and the static id of a thread that is gone.
*Assumes*: `gone` is called once a thread has ended and everything of it is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from milestones.common.errors import MilestonesError


class ThreadRegistry:
    """Numbers of threads, what is paused, the topics that sources have, as far as they are known.

    *Concurrency*: the lock guards the numbers and the changes, never while user code or I/O runs. `paused`, `threads`
    and `sources` are immutable values, swapped whole: anyone reads them at any time; the supervisor sets `sources`.
    """

    def __init__(self, threads: int = 1) -> None:
        self._lock = threading.Lock()
        self._alive = set(range(1, threads + 1))
        self._leaving = set[int]()
        self._helpers: dict[int, int] = {}
        self.paused: frozenset[int] = frozenset()
        self.sources: frozenset[str] = frozenset()
        self.threads = threads
        """How many threads there are, those that leave not counted."""

    def begin(self, numbers: Iterable[int]) -> None:
        """These threads are there from now on, and no other."""
        with self._lock:
            self._alive = set(numbers)
            self.threads = len(self._alive)

    def numbers(self) -> list[int]:
        """The threads that are there, those that leave not counted."""
        with self._lock:
            return sorted(self._alive)

    def add(self) -> int:
        """Take the lowest number that is free."""
        with self._lock:
            number = next(n for n in count(1) if n not in self._alive | self._leaving)
            self._alive.add(number)
            self.threads = len(self._alive)
            return number

    def remove(self, number: int | None = None, *, own: int | None = None) -> int:
        """Choose who leaves: `number`, else the highest but the caller's `own`, unless that is the last one.

        The highest, so that a later start with fewer threads has the same numbers. `MilestonesError`: there is none.
        """
        with self._lock:
            if not self._alive:
                raise MilestonesError("there is no stream thread to remove: all have been removed")
            if number is None:
                number = max(self._alive - {own} or self._alive)
            elif number not in self._alive:
                raise MilestonesError(f"stream thread {number} is being removed already, or was never there")
            self._alive.remove(number)
            self._leaving.add(number)
            self.threads = len(self._alive)
            return number

    def gone(self, number: int) -> None:
        """The thread has ended: its number is free."""
        with self._lock:
            self._leaving.discard(number)

    @contextmanager
    def helping(self, number: int) -> Iterator[None]:
        """The calling thread runs user code of the stream thread `number`, as long as this lasts."""
        ident = threading.get_ident()
        with self._lock:
            self._helpers[ident] = number
        try:
            yield
        finally:
            with self._lock:
                del self._helpers[ident]

    def helped(self) -> int | None:
        """The stream thread whose user code the calling thread runs; None if it isn't that of any."""
        with self._lock:
            return self._helpers.get(threading.get_ident())

    def helpers(self, number: int) -> frozenset[int]:
        """The idents of the threads that run user code of the stream thread `number`."""
        with self._lock:
            return frozenset(ident for ident, helped in self._helpers.items() if helped == number)

    def pause(self, subtopologies: Iterable[int]) -> None:
        with self._lock:
            self.paused |= frozenset(subtopologies)

    def resume(self, subtopologies: Iterable[int]) -> None:
        with self._lock:
            self.paused -= frozenset(subtopologies)
