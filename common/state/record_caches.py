"""The bytes that waiting updates of all cached stores of an instance may take (`statestore_cache_max_bytes`).

A task takes bytes in portions as its caches grow, and gives all back once it has flushed them. A task that gets none
flushes what it has itself, as a cache of Kafka Streams evicts entries of the task that writes.

*Guarantees*: what all tasks have taken is at most `max_bytes`; a task's caches exceed what the task has taken by at
most the writes of one record.
*Assumes*: each task gives back what it took, at its close at the latest.
"""

from __future__ import annotations

import threading
from typing import Final

PORTIONS: Final = 1024
"""So many portions make the whole: a task asks for another one now and then only."""


class RecordCaches:
    """The bytes of an instance. `max_bytes` 0: no store is cached.

    *Concurrency*: the lock guards what is free; nothing is called while it is held.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self._portion = max(1, max_bytes // PORTIONS)
        self._free = max_bytes
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Bytes that tasks have now."""
        return self.max_bytes - self._free

    def take(self, wanted: int) -> int:
        """Take at least `wanted` bytes; how many were taken, 0 when there aren't as many."""
        with self._lock:
            if wanted > self._free:
                return 0
            taken = min(self._free, -(-wanted // self._portion) * self._portion)
            self._free -= taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self._free += count


class TaskCaches:
    """What one task has taken. *Owned* by the thread that has the task."""

    __slots__ = ("_caches", "_taken")

    def __init__(self, caches: RecordCaches) -> None:
        self._caches = caches
        self._taken = 0

    def hold(self, count: int) -> bool:
        """Whether there is room for `count` bytes in all; takes what is missing."""
        missing = count - self._taken
        if missing <= 0:
            return True
        taken = self._caches.take(missing)
        self._taken += taken
        return taken > 0

    def release(self) -> None:
        """Give all back: nothing waits any more."""
        taken, self._taken = self._taken, 0
        if taken:
            self._caches.give_back(taken)
