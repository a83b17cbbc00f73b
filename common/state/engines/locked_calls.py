"""Calls into a library that keeps Python's global lock while the disk syncs: no other thread of the process runs then.

Each such call may take long, on a slow disk. Several threads that make such calls would hand the lock to each other
only. So they make one at a time, and leave the lock to all others after one that took long.

*Guarantees*: between two calls that took longer than `LONG_MS` other threads have at least a third of the time, up to
`REST_MS` at once. What is fast costs nothing.
*Assumes*: the caller isn't one that must not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milestones.common.clock import Clock, SystemClock

LONG_MS: Final = 100
"""More than a call takes on a disk that syncs in 10 ms."""

REST_MS: Final = 250


class LockedCalls:
    """*Concurrency*: any thread; its own lock is held for the length of a call, and of the rest behind it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._one = threading.Lock()

    @contextmanager
    def made(self) -> Iterator[None]:
        """The block makes such a call."""
        with self._one:
            began_ms = self._clock.monotonic_ms()
            try:
                yield
            finally:
                took_ms = self._clock.monotonic_ms() - began_ms
                if took_ms > LONG_MS:
                    self._clock.sleep_ms(min(took_ms // 2, REST_MS))


LOCKED_CALLS: Final = LockedCalls()
"""Those of the process, as the global lock is the process's."""
