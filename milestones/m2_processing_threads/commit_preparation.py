"""`CommitPreparation` prepares tasks with caches for a commit: their caches are flushed, and they are locked until
`unlock`.

*Guarantees*: a flush that was asked for is made, unless the commit begins before. A commit doesn't wait for a task in a
long call; another commit follows after the call. Only the last commit waits for a task whose engine is busy.
*Assumes*: the caller holds the scheduler's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milestones.m2_processing_threads.scheduled_task import Job, ScheduledTask, SchedulerPlace

if TYPE_CHECKING:
    from milestones.m2_processing_threads.runnable_tasks import RunnableTasks

LOCK_MS = 10_000
"""A flushed task stays locked for its commit for this time, at most."""

LONG_CALL_MS = 250
"""If a task's turn goes on for this time after the end of its slice, the task is in a long call."""


def is_in_a_call(scheduled: ScheduledTask, now_ms: int) -> bool:
    lease = scheduled.lease
    return lease is not None and lease.job is Job.TURN and now_ms >= lease.deadline_ms + LONG_CALL_MS


def is_being_flushed(scheduled: ScheduledTask) -> bool:
    return scheduled.lease is not None and scheduled.lease.job is Job.FLUSH


class CommitPreparation:
    """*Owns*: the fields `flush` and `missed` of scheduled tasks, and their locks."""

    def __init__(self, runnable: RunnableTasks) -> None:
        self._runnable = runnable
        self._touched: dict[ScheduledTask, None] = {}
        self._worked: dict[ScheduledTask, None] = {}

    def worked(self, scheduled: ScheduledTask) -> None:
        """Note that the task's caches may have entries: the task is new, or a thread has worked on it."""
        self._worked[scheduled] = None

    def flush(self, now_ms: int, leased: Iterable[ScheduledTask], *, final: bool) -> bool:
        """See `Scheduler.flush`. Only tasks whose caches may have entries are looked at: threads have them, or have had
        them since the caches were empty. With `final` all tasks are looked at."""
        waiting = 0
        scheduled_tasks = dict.fromkeys(self._runnable.entries.values() if final else leased)
        self._worked = {scheduled: None for scheduled in self._worked if scheduled.task.unflushed}
        for scheduled in scheduled_tasks | self._worked | self._touched:
            if scheduled.place is SchedulerPlace.LOCKED:
                scheduled.locked_until_ms = now_ms + LOCK_MS
            elif self._lacks(scheduled, now_ms, final=final):
                self._runnable.look(scheduled, now_ms)
                waiting += (final or not scheduled.missed) and not is_in_a_call(scheduled, now_ms)
        return not waiting

    def _lacks(self, scheduled: ScheduledTask, now_ms: int, *, final: bool) -> bool:
        """Return True if a thread must do something before all of the task can be committed. The thread is asked for
        that."""
        task, leased = scheduled.task, scheduled.lease is not None
        if scheduled.failure is not None or scheduled.busy_until_ms:
            return final and task.applying and task.commit_needed()
        if task.cached and (task.unflushed or (final and leased)):
            self._ask(scheduled)
            return True
        if final and task.applying and (task.cached or leased or task.commit_needed()):
            return True
        if final and task.cached and task.initialised:
            self._lock(scheduled, now_ms)
        return False

    def _ask(self, scheduled: ScheduledTask) -> None:
        if not scheduled.flush:
            scheduled.flush = True
            self._touched[scheduled] = None
            if scheduled.lease is not None:
                scheduled.lease.end()

    def _lock(self, scheduled: ScheduledTask, now_ms: int) -> None:
        self._touched[scheduled] = None
        scheduled.lock(now_ms + LOCK_MS)
        self._runnable.look(scheduled, now_ms)

    def flushed(self, scheduled: ScheduledTask, now_ms: int) -> None:
        """Lock the task that a thread has flushed, if a commit still waits for it."""
        if scheduled.flush:
            if scheduled.missed:
                scheduled.task.request_commit()
            scheduled.flush = scheduled.missed = False
            self._lock(scheduled, now_ms)

    def unlock(self, now_ms: int) -> None:
        """See `Scheduler.unlock`."""
        touched, self._touched = self._touched, {}
        for scheduled in touched:
            at_work = is_in_a_call(scheduled, now_ms) or is_being_flushed(scheduled)
            scheduled.flush = scheduled.missed = scheduled.flush and at_work
            if scheduled.flush:
                self._touched[scheduled] = None
            if scheduled.place is SchedulerPlace.LOCKED:
                scheduled.release()
            self._runnable.look(scheduled, now_ms)

    def forget(self, scheduled: ScheduledTask) -> None:
        """Forget a task that is taken away."""
        self._touched.pop(scheduled, None)
        self._worked.pop(scheduled, None)
