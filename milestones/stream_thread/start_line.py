"""`StartLine` makes the threads with which an instance starts join their group together.

A thread that joins later costs the group a rebalance of its own. Until then the leader sees a smaller instance, and
gives some of the instance's tasks to others.

*Guarantees*: a thread waits until all threads that start together have made their clients, or until one of them must
end. It waits for `PATIENCE_S` at most. After that no thread waits.
*Assumes*: nothing.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Barrier, BrokenBarrierError

PATIENCE_S = 3.0
"""The longest wait of a thread: about as long as a new group waits for its first members
(`group.initial.rebalance.delay.ms`)."""


class StartLine:
    """A barrier that is crossed once; after that no thread waits at it. *Concurrency*: any thread may use it."""

    def __init__(self, threads: int) -> None:
        """`threads`: the number of threads that start together."""
        self._barrier = Barrier(threads)

    def cross(self) -> None:
        """Wait until all threads have come, a thread has dropped out, or `PATIENCE_S` are over."""
        with suppress(BrokenBarrierError):
            self._barrier.wait(PATIENCE_S)
        self.drop_out()

    def drop_out(self) -> None:
        """Let all threads go on without waiting. Any thread may call this."""
        self._barrier.abort()
