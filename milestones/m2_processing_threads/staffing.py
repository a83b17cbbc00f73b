"""`Staffing` decides which processing threads there are. `ShareOfThreads` gives a stream thread its share of the
instance's processing threads.

*Guarantees*: everything that `WorkerPool` guarantees.
*Assumes*: the thread that owns the pool makes all calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milestones.instance.capacity import processing_threads

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.m2_processing_threads.pool import WorkerPool


class Staffing(Protocol):
    """Decides which processing threads there are."""

    @property
    def wanted(self) -> int:
        """The number of threads that there should be now, at least 1."""
        ...

    @property
    def due(self) -> bool:
        """True if `staff` should be called now. `staff` is called about once a second, and for each new task, in any
        case."""
        ...

    def staff(self, pool: WorkerPool) -> None:
        """Start missing threads, and let surplus threads leave."""
        ...


class ShareOfThreads:
    """Gives a stream thread its share of the instance's threads. The share changes when stream threads come or go. If a
    thread that must leave is in a long call, a substitute with another number takes its place."""

    due = False

    def __init__(self, context: ThreadContext) -> None:
        self._context = context

    @property
    def wanted(self) -> int:
        return processing_threads(self._context.config, self._context.thread_registry, self._context.number)

    def staff(self, pool: WorkerPool) -> None:
        pool.resize(self.wanted)
