"""`ThreadRegistry` has the threads, the paused sub-topologies and the source topics of an instance. They may change
while the instance runs.

*Guarantees*: no two living threads have the same number. No two threads ever have the same number and serial. A new
thread gets the lowest free number, as in Kafka Streams, and with that number the transactional id and the static id of
a thread that has ended.
*Assumes*: `gone` is called once a thread has ended and its clients and stores are closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from milestones.common.errors import MilestonesError


class ThreadRegistry:
    """The numbers of the threads, the paused sub-topologies, the known topics of sources.

    *Concurrency*: the lock guards the numbers and their changes, and is never held in user code or I/O. `paused`,
    `threads`, `leaving`, `sources` and `generation` are immutable values that are replaced as a whole, so that any
    thread can read them at any time. The supervisor sets `sources`, and a polling thread sets `generation`.
    """

    def __init__(self, threads: int = 1) -> None:
        self._lock = threading.Lock()
        self._alive = set(range(1, threads + 1))
        self._serials = dict.fromkeys(self._alive, 0)
        self._added = count(1)
        self._helpers: dict[int, int] = {}
        self.paused: frozenset[int] = frozenset()
        self.sources: frozenset[str] = frozenset()
        self.generation: int = -1
        """The generation of the group at the last assignment."""
        self.threads: int = threads
        """The number of threads, without those that leave."""
        self.leaving: frozenset[int] = frozenset()
        """The numbers of the threads that were asked to leave, and aren't `gone` yet."""

    def begin(self, numbers: Iterable[int]) -> None:
        """Set the numbers of the threads with which the instance starts."""
        with self._lock:
            self._alive = set(numbers)
            self._serials = dict.fromkeys(self._alive, 0)
            self.threads = len(self._alive)

    def numbers(self) -> list[int]:
        """The numbers of the threads, without those that are leaving."""
        with self._lock:
            return sorted(self._alive)

    def serial(self, number: int) -> int:
        """Return the serial of the thread that has this number now, or had it last. Threads that have the same number
        one after the other are counted by serials.
        """
        with self._lock:
            return self._serials[number]

    def add(self, tell: Callable[[int], object] = lambda _: None) -> int:
        """Take the lowest free number, and return it. `tell` is called with the number under the lock, so that messages
        about threads are in the order of these changes. It must not wait.
        """
        with self._lock:
            number = next(n for n in count(1) if n not in self._alive | self.leaving)
            self._alive.add(number)
            self._serials[number] = next(self._added)
            self.threads = len(self._alive)
            tell(number)
            return number

    def remove(
        self,
        number: int | None = None,
        *,
        own: int | None = None,
        tell: Callable[[int, int], object] = lambda *_: None,
    ) -> int:
        """Choose a thread that leaves, and return its number. It is `number` if given, or else the highest number. The
        caller's `own` number is chosen only if no other thread is left. The highest number leaves, so that a later
        start with fewer threads has the same numbers. Raises a `MilestonesError` if there is no such thread. `tell`: as
        in `add`, with number and serial.
        """
        with self._lock:
            if not self._alive:
                raise MilestonesError("there is no thread to remove: all have been removed")
            if number is None:
                number = max(self._alive - {own} or self._alive)
            elif number not in self._alive:
                raise MilestonesError(f"thread {number} is being removed already, or was never there")
            self._alive.remove(number)
            self.leaving |= {number}
            self.threads = len(self._alive)
            tell(number, self._serials[number])
            return number

    def gone(self, number: int) -> None:
        """Free the number of a thread that has ended."""
        with self._lock:
            self.leaving -= {number}

    @contextmanager
    def helping(self, number: int) -> Iterator[None]:
        """Record, until the end of the block, that the calling thread runs user code of the stream thread `number`."""
        ident = threading.get_ident()
        with self._lock:
            self._helpers[ident] = number
        try:
            yield
        finally:
            with self._lock:
                del self._helpers[ident]

    def helped(self) -> int | None:
        """Return the number of the stream thread whose user code the calling thread runs, or None."""
        with self._lock:
            return self._helpers.get(threading.get_ident())

    def helpers(self, number: int) -> frozenset[int]:
        """Return the idents of the threads that run user code of the stream thread `number`."""
        with self._lock:
            return frozenset(ident for ident, helped in self._helpers.items() if helped == number)

    def pause(self, subtopologies: Iterable[int]) -> None:
        with self._lock:
            self.paused |= frozenset(subtopologies)

    def resume(self, subtopologies: Iterable[int]) -> None:
        with self._lock:
            self.paused -= frozenset(subtopologies)
