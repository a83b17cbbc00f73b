"""The memory bound for waiting updates in the record caches of an instance (`statestore_cache_max_bytes`).

A task takes bytes in portions as its caches grow. When it has flushed its caches, it gives all portions back. A task
that gets no portion flushes its own caches: also in Kafka Streams, a full cache evicts entries of the task that writes.

*Guarantees*: the portions of all tasks together are at most `max_bytes`. A task's caches exceed its portions by at most
the writes of one record.
*Assumes*: each task gives its portions back, at the latest when it is closed.
"""

from __future__ import annotations

import threading
from typing import Final

PORTIONS: Final = 1024
"""The number of portions in all. With so few, a portion is large, and a task seldom asks for another one."""


class RecordCaches:
    """The bytes that all tasks of an instance share. If `max_bytes` is 0, no store is cached.

    *Concurrency*: the lock guards the number of free bytes; nothing is called while it is held.
    """

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self._portion = max(1, max_bytes // PORTIONS)
        self._free = max_bytes
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """The bytes that tasks have taken and not given back."""
        return self.max_bytes - self._free

    def take(self, wanted: int) -> int:
        """Reserve at least `wanted` bytes for a task's caches. Returns the number of bytes reserved, or 0 if fewer
        are free."""
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
    """The portions of one task. *Owned* by the thread that has the task."""

    __slots__ = ("_caches", "_taken")

    def __init__(self, caches: RecordCaches) -> None:
        self._caches = caches
        self._taken = 0

    def hold(self, count: int) -> bool:
        """Take the portions that are missing for `count` bytes. Returns True if the task's portions suffice then."""
        missing = count - self._taken
        if missing <= 0:
            return True
        taken = self._caches.take(missing)
        self._taken += taken
        return taken > 0

    def release(self) -> None:
        """Give all portions back. The caller has flushed its caches, or dropped their updates, before."""
        taken, self._taken = self._taken, 0
        if taken:
            self._caches.give_back(taken)
