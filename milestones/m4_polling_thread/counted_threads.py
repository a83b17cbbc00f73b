"""`CountedThreads` starts and ends the processing threads, so that there are as many as the user has asked for.

*Guarantees*: within a turn of the polling thread after a change, there is a thread for each number in the instance's
`ThreadRegistry`. A removed thread ends when it has given its task back; then the supervisor gets a message. Threads run
even when there is no task. The last thread is never ended here: its removal ends the polling thread, and tasks need a
processing thread until they are closed.
*Assumes*: the polling thread makes all calls. The registry reuses a number only after the supervisor has got the
message.
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
    """*Owns*: the numbers of the threads that were reported as running. *Sends*: `ProcessingThreadMoved`."""

    def __init__(self, context: ThreadContext) -> None:
        self._context, self._registry = context, context.thread_registry
        self._told: frozenset[int] = frozenset()

    @property
    def wanted(self) -> int:
        return max(1, self._registry.threads)

    @property
    def due(self) -> bool:
        """True if the registry has changed, or a removed thread hasn't ended yet."""
        return bool(self._registry.threads and (self._registry.leaving or self._registry.threads != len(self._told)))

    def staff(self, pool: WorkerPool) -> None:
        """Start and end threads, and report which ones came or ended. A thread that was removed before it came is
        reported as ended, too, so that its number becomes free."""
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
    """Make the processing part, with the threads that the user counts."""
    return ThreadedProcessing(context, staffing=CountedThreads(context))
