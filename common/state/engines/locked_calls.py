"""Calls into a library that holds Python's global lock (GIL) while the disk syncs. No other thread runs during one.

On a slow disk, each such call may take long. If several threads made such calls, the lock would only go from one of
these threads to the next. So only one thread at a time makes such a call. After a long call it pauses before the next
one may begin, so that all other threads can run.

*Guarantees*: after a call that took longer than `LONG_MS`, the pause is half as long as the call, and at most
`REST_MS`. A short call has no pause.
*Assumes*: the calling thread may wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milestones.common.clock import Clock, SystemClock

LONG_MS: Final = 100
"""A call that takes longer is followed by a pause. On a disk that syncs in 10 ms, no call takes so long."""

REST_MS: Final = 250


class LockedCalls:
    """Lets one thread at a time make such a call. *Concurrency*: any thread may call. A lock is held during a call and
    the pause after it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._one = threading.Lock()

    @contextmanager
    def made(self) -> Iterator[None]:
        """Run the block, which makes one such call, when no other thread is in such a block. Pauses after a long
        call."""
        with self._one:
            began_ms = self._clock.monotonic_ms()
            try:
                yield
            finally:
                took_ms = self._clock.monotonic_ms() - began_ms
                if took_ms > LONG_MS:
                    self._clock.sleep_ms(min(took_ms // 2, REST_MS))


LOCKED_CALLS: Final = LockedCalls()
"""The one object of the process: the GIL belongs to the whole process."""
