"""Which processing threads there are: those that the user counts.

*Guarantees*: there is a thread for each number of the instance's `ThreadRegistry`, within a turn of the polling thread
after a change. A removed thread ends when it has given its task back; then the supervisor gets a message. Threads run
while there is no task, too. The last one is never ended here: the polling thread is asked to end then, and its tasks
need a thread until they are closed.
*Assumes*: driven by the polling thread. The registry gives no number again before the supervisor was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milestones.instance.context import ProcessingThreadMoved
from milestones.instance.identity import processing_thread
from milestones.instance.states import ThreadState
from milestones.m2_processing_threads.processing import ThreadedProcessing

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.m2_processing_threads.pool import WorkerPool


class CountedThreads:
    """*Owns*: the numbers of the threads that it has reported. *Sends*: `ProcessingThreadMoved`."""

    def __init__(self, context: ThreadContext) -> None:
        self._context, self._registry = context, context.thread_registry
        self._told: frozenset[int] = frozenset()

    @property
    def wanted(self) -> int:
        return max(1, self._registry.threads)

    @property
    def due(self) -> bool:
        """Whether the registry has changed, or a thread still leaves."""
        return bool(self._registry.threads and (self._registry.leaving or self._registry.threads != len(self._told)))

    def staff(self, pool: WorkerPool) -> None:
        """Start and end threads, and tell of those that came or have ended; one that was removed before it came is told
        as ended, until its number is free."""
        wanted, leaving = self._registry.numbers(), self._registry.leaving
        if not wanted:
            return
        pool.have(wanted)
        running = pool.numbers
        for number in sorted(running - self._told):
            self._tell(number, ThreadState.RUNNING)
        for number in sorted((self._told | leaving) - running):
            self._tell(number, ThreadState.DEAD)
        self._told = running

    def _tell(self, number: int, state: ThreadState) -> None:
        name = processing_thread(self._context.identity, number)
        serial = self._registry.serial(number)
        self._context.notify(ProcessingThreadMoved(self._context.name, name, serial, state.value))


def counted_processing(context: ThreadContext) -> ThreadedProcessing:
    """Processing by the threads that the user counts."""
    return ThreadedProcessing(context, staffing=CountedThreads(context))
