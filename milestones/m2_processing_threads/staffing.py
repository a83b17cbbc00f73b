"""`Staffing`: which processing threads there are; `ShareOfThreads`: a stream thread's share of the instance's.

*Guarantees*: those of `WorkerPool`.
*Assumes*: driven by the thread that owns the pool.
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
        """Whether `staff` is to be called now; about once a second, and for each task, it is called in any case."""
        ...

    def staff(self, pool: WorkerPool) -> None:
        """Start the threads that are missing, and have those leave that are too many."""
        ...


class ShareOfThreads:
    """As many threads as are a stream thread's share of the instance's: another number when stream threads come or go.
    A thread in a long call that is to leave has a substitute with another number."""

    due = False

    def __init__(self, context: ThreadContext) -> None:
        self._context = context

    @property
    def wanted(self) -> int:
        return processing_threads(self._context.config, self._context.thread_registry, self._context.number)

    def staff(self, pool: WorkerPool) -> None:
        pool.resize(self.wanted)
