"""`LeavingTasks`: the leaving tasks that wait until a thread closes them. Some wait for a busy engine first.

*Guarantees*: a task whose engine is busy isn't taken before its time, except after `hurry`. The others are taken in the
order in which they came.
*Assumes*: the caller holds the scheduler's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milestones.m2_processing_threads.scheduled_task import ScheduledTask


class LeavingTasks:
    """*Owns*: the order of the leaving tasks that no thread has."""

    def __init__(self) -> None:
        self._waiting: dict[ScheduledTask, None] = {}
        self._hurried = False

    def __iter__(self) -> Iterator[ScheduledTask]:
        return iter(self._waiting)

    def put(self, scheduled: ScheduledTask) -> None:
        self._waiting[scheduled] = None

    def hurry(self) -> None:
        """From now on let no task wait for its engine."""
        self._hurried = True

    def due(self, now_ms: int) -> int:
        """Return the number of tasks that threads could take now."""
        return sum(self._is_due(scheduled, now_ms) for scheduled in self._waiting)

    def take(self, now_ms: int) -> ScheduledTask | None:
        """Take out the next task; None if no task can be taken now."""
        for scheduled in self._waiting:
            if self._is_due(scheduled, now_ms):
                del self._waiting[scheduled]
                return scheduled
        return None

    def idle_ms(self, now_ms: int, most_ms: int) -> int:
        """Return the ms until another task can be taken; at most `most_ms`."""
        return min([most_ms, *(max(1, scheduled.busy_until_ms - now_ms) for scheduled in self._waiting)])

    def _is_due(self, scheduled: ScheduledTask, now_ms: int) -> bool:
        return self._hurried or now_ms >= scheduled.busy_until_ms
