"""`StartLine`: has the threads with which an instance starts join their group together.

A thread that joins later costs the group a rebalance of its own. Until then the leader sees a smaller instance, and
gives some of the instance's tasks to others.

*Guarantees*: a thread waits until as many as start together have made their clients, or one of them is to end, at most
for `PATIENCE_S`. After that no thread waits.
*Assumes*: nothing.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Barrier, BrokenBarrierError

PATIENCE_S = 3.0
"""About as long as a new group waits for its first members (`group.initial.rebalance.delay.ms`)."""


class StartLine:
    """*Concurrency*: a barrier, which is broken once it has been crossed."""

    def __init__(self, threads: int) -> None:
        """`threads`: how many start together."""
        self._barrier = Barrier(threads)

    def cross(self) -> None:
        """Wait for the others."""
        with suppress(BrokenBarrierError):
            self._barrier.wait(PATIENCE_S)
        self.drop_out()

    def drop_out(self) -> None:
        """Have no thread wait any more. Any thread may call this."""
        self._barrier.abort()
